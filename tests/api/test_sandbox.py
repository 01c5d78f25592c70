"""Cells through the Python API: what an `Execution` says, who ends a cell, and what is left afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel import Policy, Result, Sandbox
from sandbox_kernel.errors import IsolationUnavailable, NoCheckpoint, PolicyError

from ..waiting import children, wait_for
from .conftest import LEVELS


class TestExecution:
    def test_a_session_keeps_its_variables(self, sandbox: Sandbox) -> None:
        assert sandbox.run_code("x = 20").success
        ex = sandbox.run_code("print('seen', x)\nx + 1")
        assert (ex.stdout, ex.stderr, ex.error, ex.state) == ("seen 20\n", "", None, "kept")
        assert [(r.text, r.is_main_result) for r in ex.results] == [("21", True)]
        assert ex.execution_count > 1 and ex.duration_s > 0 and ex.peak_memory_bytes > 1e6

    def test_an_error_is_data(self, sandbox: Sandbox) -> None:
        ex = sandbox.run_code("print('before')\n1/0")
        assert ex.error is not None and not ex.success and not ex.timed_out
        assert (ex.error.name, ex.error.value) == ("ZeroDivisionError", "division by zero")
        assert "----> 2 1/0" in ex.text() and "\x1b" not in ex.text()
        assert ex.stdout == "before\n"
        ex = sandbox.run_code("def broken(:")
        assert ex.error is not None and ex.error.name == "SyntaxError"

    def test_results_have_the_usual_names(self, sandbox: Sandbox) -> None:
        ex = sandbox.run_code(
            "from IPython.display import display, HTML, Markdown, Latex, JSON, SVG as S\n"
            "for x in HTML('<b>h</b>'), Markdown('*m*'), Latex('$l$'), JSON({'a': [1]}), S('<svg></svg>'): display(x)\n"
            "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()\n'end'"
        )
        assert ex.success, ex.text()
        *shown, picture, main = ex.results
        html, markdown, latex, json, svg = shown
        assert (html.html, markdown.markdown, latex.latex, json.json) == ("<b>h</b>", "*m*", "$l$", {"a": [1]})
        assert svg.svg is not None and "<svg" in svg.svg
        assert picture.png is not None and picture.png.startswith(b"\x89PNG") and picture["png"] == picture.png
        assert "png=<" in repr(picture) and len(repr(picture)) < 200, "a figure's bytes are not for the screen"
        assert main.is_main_result and main.formats() == ["text"] and "[png image]" in ex.text()

    def test_a_result_is_one_harmless_line_on_the_screen(self) -> None:
        result = Result(text="a\x1b[31m\n" * 1000, png=bytes(5000), extra={"x/\x1b]0;t\x07": {"a": 1}})
        assert repr(result).isprintable() and len(repr(result)) < 800
        assert "png=<4.88 KiB>" in repr(result) and "<dict>" in repr(result)

    def test_updates_and_clear_output_leave_what_a_notebook_would_show(self, sandbox: Sandbox) -> None:
        code = "from IPython.display import display, clear_output\nh = display('old', display_id=True)\nh.update('new')"
        assert [r.text for r in sandbox.run_code(code).results] == ["'new'"]
        ex = sandbox.run_code("print('old'); display('old'); clear_output(wait=True)\nprint('new')")
        assert (ex.stdout, ex.results) == ("new\n", [])

    def test_callbacks_hear_it_while_it_runs(self, sandbox: Sandbox) -> None:
        heard: list[Any] = []
        threads = set()

        def hear(item: Any) -> None:
            threads.add(threading.get_ident())
            heard.append((item, time.monotonic()))

        code = "import sys, time\nprint('one')\ntime.sleep(0.3)\nprint('two', file=sys.stderr)\n3"
        ex = sandbox.run_code(code, on_stdout=hear, on_stderr=hear, on_result=hear)
        items = [item for item, _ in heard]
        assert items[:2] == ["one\n", "two\n"] and items[2] is ex.results[0]
        assert heard[1][1] - heard[0][1] > 0.2 and threads == {threading.get_ident()}

    def test_a_callback_that_raises_ends_the_cell(self, sandbox: Sandbox) -> None:
        def fail(text: str) -> None:
            raise LookupError(text)

        began = time.monotonic()
        with pytest.raises(LookupError, match="out"):
            sandbox.run_code("import time\nkept = 5\nprint('out')\ntime.sleep(30)", on_stdout=fail)
        assert sandbox.run_code("kept").results[0].text == "5"
        assert time.monotonic() - began < 25

    def test_input_has_nobody_to_ask(self, sandbox: Sandbox) -> None:
        ex = sandbox.run_code("input()")
        assert ex.error is not None and ex.error.name == "StdinNotImplementedError"

    def test_a_refusal_is_told(self, sandbox: Sandbox) -> None:
        ex = sandbox.run_code("import socket\nsocket.create_connection(('127.0.0.1', 80))")
        assert ex.error is not None and ex.error.name == "PermissionError"
        assert [(d.call, d.detail) for d in ex.denials] == [("socket", "AF_INET")]
        assert "network" in ex.stderr.lower()

    def test_processor_time_counts_children(self, sandbox: Sandbox) -> None:
        burn = "import time\nend = time.process_time() + 1.0\nwhile time.process_time() < end: pass"
        code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}], check=True)"
        ex = sandbox.run_code(code)
        assert ex.success and ex.cpu_time_s >= 0.9
        assert sandbox.run_code("1").cpu_time_s < 0.8

    def test_text_is_bounded_and_keeps_head_and_tail(self, sandbox: Sandbox) -> None:
        ex = sandbox.run_code("print('first'); print('x' * 50_000); print('\\x1b[31mred\\x1b[0m\\rlast')")
        text = ex.text(1000)
        assert len(text) <= 1000 and text.startswith("first") and text.endswith("last") and "left out" in text
        assert "red" not in ex.text() and ex.text(10) and len(ex.text(10)) <= 10 and ex.text(0) == ""


class TestEnds:
    """Each of these has a sandbox of its own."""

    def test_a_time_limit_of_the_call(self) -> None:
        with Sandbox() as box:
            box.run_code("x = 1")
            ex = box.run_code("import time; time.sleep(60)", timeout=0.2)
            assert ex.timed_out and ex.error is not None and ex.error.name == "TimeLimit" and ex.state == "kept"
            assert "timeout = 0.2 s" in ex.error.value and 0.1 < ex.duration_s < 30
            code = "import time\nwhile True:\n    try: time.sleep(60)\n    except BaseException: pass"
            ex = box.run_code(code, timeout=0.2)
            assert ex.timed_out and ex.state == "restored" and ex.error is not None and "restored" in ex.error.value
            assert box.run_code("x").results[0].text == "1"

    def test_rollback(self) -> None:
        with Sandbox() as box:
            box.run_code("x = [1]")
            box.run_code("x.append(2)")
            box.run_code("x.append(3)")
            box.rollback()
            assert box.run_code("x").results[0].text == "[1, 2]"
            with pytest.raises(NoCheckpoint, match="had no cells yet; there are copies"):
                box.rollback(9)
            with pytest.raises(ValueError, match="1 or more"):
                box.rollback(0)
            assert box.run_code("x").results[0].text == "[1, 2]"

    def test_a_restart_is_no_rollback(self) -> None:
        with Sandbox() as box:
            box.run_code("x = 1")
            time.sleep(0.5)
            box.restart()
            assert box.run_code("x").error is not None

    def test_a_time_limit_without_a_copy(self) -> None:
        with Sandbox({"recovery": {"checkpoints": "off"}}) as box:
            box.run_code("x = 1")
            code = "import time\nwhile True:\n    try: time.sleep(60)\n    except BaseException: pass"
            ex = box.run_code(code, timeout=0.2)
            assert ex.timed_out and ex.state == "lost" and ex.error is not None and "lost" in ex.error.value
            ex = box.run_code("x")
            assert ex.error is not None and ex.error.name == "NameError" and ex.state == "kept"

    def test_a_timeout_cannot_exceed_the_policy(self) -> None:
        with Sandbox({"limits": {"cell_time": "200ms"}}, timeout=0.1) as box:
            ex = box.run_code("import time; time.sleep(60)", timeout=60)
            assert ex.error is not None and "limits.cell_time = 0.2 s" in ex.error.value
            ex = box.run_code("import time; time.sleep(60)")
            assert ex.error is not None and "timeout = 0.1 s" in ex.error.value

    @pytest.mark.parametrize("code", ["import os; os._exit(3)", "import os; os.kill(os.getpid(), 9)",
                                      "import ctypes; ctypes.string_at(0)"])  # fmt: skip
    def test_a_lost_worker_is_data_and_is_replaced(self, code: str) -> None:
        with Sandbox() as box:
            ex = box.run_code(code)
            assert ex.error is not None and ex.error.name == "WorkerLost" and ex.state == "lost"
            assert box.run_code("6 * 7").results[0].text == "42"
            assert box.status()["workers_lost"] == 1

    def test_memory(self) -> None:
        with Sandbox({"limits": {"memory": "300MiB"}}) as box:
            code = "import os, time\nx = bytearray(b'1' * (100 << 20))\npids = [os.fork() for i in range(2)]\n"
            ex = box.run_code(code + "y = bytearray(b'1' * (90 << 20))\ntime.sleep(20)")
            # (Which of the two comes first depends on how soon anybody looks.)
            assert ex.error is not None and ex.error.name in ("MemoryLimit", "MemoryError")
            assert ex.error.name == "MemoryError" or ex.peak_memory_bytes > 200 << 20
            assert box.run_code("1").success

    def test_what_a_cell_has_left_running_costs_no_other_its_variables(self) -> None:
        with Sandbox({"limits": {"memory": "300MiB"}}) as box:
            box.run_code("import os, time\nx = 7\nopen('/tmp/wait', 'w').close()")
            box.run_code(
                "if os.fork() == 0:\n    while os.path.exists('/tmp/wait'): time.sleep(0.01)\n"
                "    y = [b'1' * (95 << 20) for _ in range(2)]\n    time.sleep(60)"
            )
            ex = box.run_code(
                "y = b'1' * (90 << 20)\nos.remove('/tmp/wait')\n"
                "for i in range(1000):\n    time.sleep(0.02)\n    try: os.waitpid(-1, os.WNOHANG)\n"
                "    except ChildProcessError: break\nx, i < 999"
            )
            assert ex.success and ex.results[0].text == "(7, True)"
            assert "left running were ended" in ex.stderr and "limits.memory = 300 MiB" in ex.stderr

    def test_interrupt_from_another_thread(self) -> None:
        begun = threading.Event()
        with Sandbox() as box:
            with ThreadPoolExecutor(1) as pool:
                code = "x = 7\nprint('begun')\nimport time; time.sleep(60)"
                run = pool.submit(box.run_code, code, on_stdout=lambda _: begun.set())
                wait_for(begun.is_set)
                box.interrupt()
                ex = run.result(20)
            assert ex.error is not None and ex.error.name == "KeyboardInterrupt" and ex.state == "kept"
            assert box.run_code("x").results[0].text == "7"

    def test_restart(self) -> None:
        with Sandbox() as box:
            box.run_code("x = 1")
            box.restart()
            ex = box.run_code("x")
            assert ex.error is not None and ex.error.name == "NameError"
            assert ex.stderr == "" and ex.execution_count == 1
            with ThreadPoolExecutor(1) as pool:
                run = pool.submit(box.run_code, "import time; time.sleep(60)")
                wait_for(lambda: box.status()["state"] == "busy")
                box.restart()
                ex = run.result(20)
            assert ex.error is not None and "restarted" in ex.error.value and ex.state == "lost"

    def test_close_ends_a_running_cell_and_later_calls_are_misuse(self) -> None:
        box = Sandbox()
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(box.run_code, "import time; time.sleep(60)")
            wait_for(lambda: box.status()["state"] == "busy")
            box.close()
            ex = run.result(20)
        assert ex.error is not None and ex.error.name == "WorkerLost" and "closed" in ex.error.value
        box.close()
        assert box.closed and box.status()["state"] == "closed"
        with pytest.raises(RuntimeError, match="closed"):
            box.run_code("1")

    def test_ctrl_c_ends_the_cell_and_reaches_the_caller(self, tmp_path: Path) -> None:
        script = tmp_path / "host.py"
        script.write_text(
            "from sandbox_kernel import Sandbox\nwith Sandbox() as box:\n    try:\n"
            "        code = 'x = 3; print(1); import time; time.sleep(60)'\n"
            "        box.run_code(code, on_stdout=lambda t: print(t, flush=True))\n"
            "    except KeyboardInterrupt:\n        print(box.run_code('x').results[0].text)\n"
        )
        with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as host:
            assert host.stdout is not None
            host.stdout.readline()
            host.send_signal(signal.SIGINT)
            assert host.communicate(timeout=30)[0].split() == ["3"] and host.returncode == 0


class TestLevels:
    @pytest.mark.parametrize("level", [*LEVELS, "landlock", "seccomp", "subprocess"])
    def test_a_named_level_is_had(self, level: str) -> None:
        with Sandbox(level=level) as box:
            assert box.status()["level"] == level
            assert box.run_code("open('new.txt', 'w').write('x'); print(open('new.txt').read())").stdout == "x\n"

    def test_one_that_cannot_be_had_is_an_error(self) -> None:
        before = children()
        with pytest.raises(IsolationUnavailable, match="in-process") as told:
            Sandbox(level="in-process")
        assert "doctor" in told.value.__notes__[0], "a traceback says what to do next"
        with pytest.raises(IsolationUnavailable, match="cannot be started"):
            Sandbox({"worker": {"python": "/nonexistent"}})
        wait_for(lambda: children() <= before)

    def test_a_policy_that_cannot_be_used_is_an_error(self) -> None:
        with pytest.raises(PolicyError, match="Did you mean 'memory'"):
            Sandbox({"limits": {"memry": "1GiB"}})
        with pytest.raises(PolicyError, match="assistant"):
            Sandbox("assistent")
        with Sandbox(Policy.load("strict")) as box:
            assert box.status()["limits"]["cell_time"] == Policy.load("strict").limits.cell_time

    def test_the_workspace_is_what_the_policy_says(self, tmp_path: Path) -> None:
        (tmp_path / "in.txt").write_text("data")
        with Sandbox(workspace=tmp_path) as box:
            assert box.run_code("open('in.txt').read()").results[0].text == "'data'"
            ex = box.run_code("open('out.txt', 'w')")
            assert ex.error is not None and "read-only" in ex.stderr
        with Sandbox("standard", workspace=tmp_path) as box:
            assert box.run_code("open('out.txt', 'w').write('made')").success
        assert (tmp_path / "out.txt").read_text() == "made"


def test_ten_at_once_from_two_threads() -> None:
    def work(number: int) -> list[str | None]:
        with Sandbox() as box:
            box.run_code(f"x = {number}")
            with ThreadPoolExecutor(2) as both:
                found = list(both.map(lambda i: box.run_code(f"print({i}); x * 10 + {i}"), range(6)))
            assert [ex.stdout for ex in found] == [f"{i}\n" for i in range(6)]
            return [ex.results[0].text for ex in found]

    with ThreadPoolExecutor(10) as pool:
        assert list(pool.map(work, range(10))) == [[str(n * 10 + i) for i in range(6)] for n in range(10)]


def test_many_cycles_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def seen() -> tuple[set[int], int, list[str], list[str]]:
        left = os.listdir(tmp_path)
        return children(), len(os.listdir("/proc/self/fd")), left, sorted(t.name for t in threading.enumerate())

    Sandbox().close()
    before = seen()
    for level in LEVELS:
        for _ in range(5):
            with Sandbox(level=level) as box:
                assert box.run_code("open('left.txt', 'w').write('x')").success
    wait_for(lambda: seen() == before)


def test_a_host_that_is_killed_takes_everything_along(tmp_path: Path) -> None:
    script = tmp_path / "host.py"
    script.write_text(
        "from sandbox_kernel import Sandbox\nimport time\nbox = Sandbox(level='seccomp+landlock')\n"
        "box.run_code('import subprocess; p = subprocess.Popen([\"sleep\", \"60\"], start_new_session=True)')\n"
        "print(1, flush=True)\ntime.sleep(60)\n"
    )
    (tmp_path / "tmp").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=environment) as host:
        assert host.stdout is not None and host.stdout.readline()
        below = children(host.pid)
        assert os.listdir(tmp_path / "tmp")
        assert len(below) >= 4
        host.kill()
    wait_for(lambda: not [pid for pid in below if Path(f"/proc/{pid}/cmdline").exists()
                          and Path(f"/proc/{pid}/cmdline").read_bytes()])  # fmt: skip
    wait_for(lambda: not os.listdir(tmp_path / "tmp"))


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's sandbox has one plan only")
def test_a_plan_that_failed_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root's first try is a user who may go to the interpreter, but here not to the folder for temporary files."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("sandbox_kernel.plan.make.reachable", lambda *_: True)
    with Sandbox(level="seccomp+landlock") as box:
        assert box.run_code("1").success
        assert len(os.listdir(tmp_path)) == 1
    wait_for(lambda: not os.listdir(tmp_path))
