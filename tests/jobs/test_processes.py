"""Work in processes of its own: what one piece does costs this piece only, and nothing is left."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.grading import Suite
from sandbox_kernel.grading.job import WORK, given
from sandbox_kernel.jobs import child, local, tree
from sandbox_kernel.jobs.local import Job, in_processes
from sandbox_kernel.jobs.process import JobFailed, JobProcess

from ..waiting import wait_for


def piece(code: str = "") -> dict[str, Any]:
    """Grading what cannot be run needs no sandbox; the tests' file runs in the process all the same."""
    source = f"import os, sys, time\n{code}\ndef test_x(): pass\n"
    suite = Suite("", "/nowhere/tests.py")
    suite.source = source
    return given("s.py", b"\xff", suite, "classroom", timeout=1, loading=1, files={})


@pytest.fixture
def process() -> Iterator[JobProcess]:
    with JobProcess() as made:
        yield made


class TestOne:
    def test_work_is_done_one_after_the_other_in_one_process(self, process: JobProcess) -> None:
        assert process.run(WORK, piece(), seconds=60)["verdict"] == "unusable"
        first = process._process
        assert process.run(WORK, piece(), seconds=60)["verdict"] == "unusable"
        assert process._process is first

    def test_what_it_prints_is_no_answer(self, process: JobProcess) -> None:
        code = "print('{\"done\": {}}'); os.write(1, b'{\"done\": {}}\\n'); os.read(0, 1)"
        assert process.run(WORK, piece(code), seconds=60)["verdict"] == "unusable"

    @pytest.mark.parametrize(
        ("code", "words", "lost"),
        [
            ("1 / 0", "ZeroDivisionError", False),
            ("os._exit(3)", "exit code 3", True),
            ("os.kill(os.getpid(), 9)", "signal 9", True),
        ],
    )
    def test_what_goes_wrong_is_told_and_the_next_piece_is_done(
        self, process: JobProcess, code: str, words: str, lost: bool
    ) -> None:
        with pytest.raises(JobFailed, match=words) as caught:
            process.run(WORK, piece(code), seconds=60)
        assert caught.value.lost is lost
        assert process.run(WORK, piece(), seconds=60)["verdict"] == "unusable"

    def test_work_that_hangs_is_ended(self, process: JobProcess) -> None:
        with pytest.raises(JobFailed, match="within 1 s") as caught:
            process.run(WORK, piece("time.sleep(1000)"), seconds=1)
        assert not caught.value.lost

    def test_only_functions_of_this_package(self, process: JobProcess) -> None:
        with pytest.raises(JobFailed, match="no part of this package"):
            process.run("os:getcwd", {}, seconds=60)

    def test_it_ends_with_its_input_in_the_middle_of_work(self, process: JobProcess, tmp_path: Path) -> None:
        code = f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(1000)"
        waiter = threading.Thread(target=lambda: _quietly(lambda: process.run(WORK, piece(code), seconds=60)))
        waiter.start()
        pid = int(wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text()))
        assert process._process is not None and process._process.stdin is not None
        process._process.stdin.close()
        waiter.join(30)
        assert not waiter.is_alive() and not Path(f"/proc/{pid}").exists()

    def test_failures_cross_process_borders(self) -> None:
        again = pickle.loads(pickle.dumps(JobFailed("gone", lost=True)))
        assert (str(again), again.lost) == ("gone", True)


class TestMany:
    def test_each_is_told_once_whatever_the_others_do(self) -> None:
        pieces = {"good": "", "bad": "1 / 0", "killed": "os.kill(os.getpid(), 9)", "slow": "time.sleep(0.2)"}
        jobs = [_job(name, code) for name, code in pieces.items()]
        told = list(in_processes(WORK, jobs, at_once=2))
        assert sorted(name for kind, name, _ in told if kind == "began") == sorted(pieces)
        ended = {name: what for kind, name, what in told if kind == "ended"}
        assert ended.keys() == pieces.keys()
        assert isinstance(ended["bad"], JobFailed) and isinstance(ended["killed"], JobFailed)
        assert ended["good"]["verdict"] == ended["slow"]["verdict"] == "unusable"

    def test_work_whose_process_was_lost_is_tried_once_more(self, tmp_path: Path) -> None:
        mark = str(tmp_path / "mark")
        code = f"if not os.path.exists({mark!r}):\n    open({mark!r}, 'w').close(); os.kill(os.getpid(), 9)"
        (_, (_, _, what)) = in_processes(WORK, [_job("once", code)], at_once=1)
        assert what["verdict"] == "unusable"

    def test_who_stops_to_listen_ends_it_all(self, tmp_path: Path) -> None:
        code = f"open(os.path.join({str(tmp_path)!r}, str(os.getpid())), 'w').close(); time.sleep(1000)"
        told = in_processes(WORK, [_job(str(number), code) for number in range(9)], at_once=2)
        assert [next(told)[0], next(told)[0]] == ["began", "began"]
        wait_for(lambda: len(os.listdir(tmp_path)) == 2)
        told.close()
        pids = os.listdir(tmp_path)
        assert len(pids) == 2
        assert [pid for pid in pids if Path("/proc", pid).exists()] == []

    def test_what_misses_the_word_is_told_again(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """nbclient sets signal handlers of its own, and much swallows what is raised in the wrong moment."""
        monkeypatch.setattr(local, "_STOP_S", 0.2)
        code = f"""if True:
            import pathlib, signal
            folder, stop = pathlib.Path({str(tmp_path)!r}), signal.getsignal(signal.SIGTERM)
            def miss(number, frame):
                signal.signal(signal.SIGTERM, stop)
                (folder / "missed").touch()
            signal.signal(signal.SIGTERM, miss)
            try:
                (folder / "began").touch()
                time.sleep(1000)
            finally:
                (folder / "in order").touch()"""
        tell = JobProcess.stop
        monkeypatch.setattr(JobProcess, "stop", lambda process: (tell(process), wait_for((tmp_path / "missed").exists)))
        monkeypatch.setattr(JobProcess, "kill", lambda process: wait_for((tmp_path / "in order").exists))
        told = in_processes(WORK, [_job("once", code)], at_once=1)
        next(told)
        wait_for((tmp_path / "began").exists)
        told.close()
        assert sorted(os.listdir(tmp_path)) == ["began", "in order", "missed"]

    def test_what_never_hears_is_killed_with_all_below_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(local, "_STOP_S", 0.2)
        # A grandchild in a session of its own, whose parent ends when its own does; all keep the pipes open.
        code = f"""if True:
            import signal
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            for part in "abc":
                if os.fork():
                    break
                os.setsid()
            open(os.path.join({str(tmp_path)!r}, str(os.getpid())), "w").close()
            time.sleep(1000)"""
        told = in_processes(WORK, [_job("deaf", code)], at_once=1)
        next(told)
        wait_for(lambda: len(os.listdir(tmp_path)) == 4)
        told.close()
        pids = os.listdir(tmp_path)
        assert len(pids) == 4
        wait_for(lambda: not [pid for pid in pids if _lives(pid)])

    def test_a_child_of_somebody_who_has_got_an_old_number_is_left_alone(self) -> None:
        """Numbers are given out again, a handle stays its own; here this process has the number of one that ended."""
        with subprocess.Popen(["sleep", "1000"]) as other, subprocess.Popen(["true"]) as ended:
            held = {os.getpid(): os.pidfd_open(ended.pid)}
            try:
                assert tree._is_there(held[os.getpid()])
                ended.wait()
                tree._hold(other.pid, held)
                assert list(held) == [os.getpid()]
            finally:
                other.kill()
                os.close(held[os.getpid()])

    def test_an_impatient_user_does_not_wait(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(local, "_STOP_S", 1000.0)
        monkeypatch.setattr(JobProcess, "stop", lambda process: os.kill(os.getpid(), signal.SIGINT))
        code = f"open({str(tmp_path / 'began')!r}, 'w').close(); time.sleep(1000)"
        told = in_processes(WORK, [_job("busy", code)], at_once=1)
        next(told)
        wait_for((tmp_path / "began").exists)
        with pytest.raises(KeyboardInterrupt):
            told.close()


def test_a_request_that_raises_leaves_its_traceback_in_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    answer = child._done({"work": WORK, "given": {}}, lambda event: None)
    assert "KeyError" in answer["failed"]
    assert "Traceback" in capfd.readouterr().err


def test_an_answer_is_a_line() -> None:
    stream = io.BytesIO()
    child._write(stream, {"done": {"text": "a\nb"}})
    assert stream.getvalue().count(b"\n") == 1
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, "nothing here has changed it"


def _job(name: str, code: str) -> Job:
    return Job(name, lambda: piece(code), 60)


def _quietly(act: Callable[[], object]) -> None:
    with contextlib.suppress(JobFailed):
        act()


def _lives(pid: str) -> bool:
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
