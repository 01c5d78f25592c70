"""The same work on a cluster of dask.distributed, here of two processes: the same results, and losses are survived."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from sandbox_kernel.cli import main
from sandbox_kernel.grading.job import WORK
from sandbox_kernel.jobs import cluster
from sandbox_kernel.jobs.local import Job
from sandbox_kernel.jobs.process import JobFailed

from ..waiting import wait_for
from .test_processes import piece

pytestmark = [pytest.mark.integrations, pytest.mark.timeout(150)]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of a scheduler with two workers, all of them processes."""
    script = Path(__file__).with_name("two_workers.py")
    running = subprocess.Popen([sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert running.stdin is not None and running.stdout is not None
    yield json.loads(running.stdout.readline())["address"]
    running.stdin.close()
    running.wait(60)
    running.stdout.close()


def _job(name: str, code: str) -> Job:
    return Job(name, lambda: piece(code), 100)


def test_grades_are_the_same(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    codes = {"right": "return 2 * x", "wrong": "return x", "loops": "while True: pass", "leaves": "raise SystemExit"}
    for name, code in codes.items():
        Path(f"in/{name}.py").write_text(f"def double(x):\n    {code}\n")
    Path("in/text.ipynb").write_text("{")
    Path("tests.py").write_text("def test_double(student):\n    assert student.double(4) == 8\n")
    Path("p.toml").write_text("[limits]\nmemory = '512MiB'\n")
    arguments = ["grade", "in", "--tests", "tests.py", "--policy", "./p.toml", "--timeout", "5"]
    found: dict[str, Any] = {}
    for where, more in (("here", ["-j", "2"]), ("there", ["--scheduler", address])):
        assert main([*arguments, *more, "--output", where]) == 0
        rows = (Path(where) / "summary.csv").read_text()
        found[where] = (rows, sorted(str(path.relative_to(where)) for path in Path(where).rglob("*.json")))
    assert found["here"] == found["there"]
    assert [row.split(",")[1] for row in found["there"][0].splitlines()[1:]] == [
        "failed", "failed", "passed", "unusable", "failed",
    ]  # fmt: skip


def test_notebooks_run_where_the_workers_see_them(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name, code in (("good", "open('made', 'w').write('x')"), ("bad", "1 / 0")):
        nbformat.write(new_notebook(cells=[new_code_cell(code)]), f"{name}.ipynb")
    assert main(["run", "good.ipynb", "bad.ipynb", "--kernel", "python3", "--scheduler", address]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "good.ipynb 1 of 1 cells ok" in shown and "ZeroDivisionError" in shown
    assert Path("made").exists()
    assert nbformat.read("executed/bad.ipynb", as_version=4).cells[0].outputs[0].ename == "ZeroDivisionError"


def test_a_worker_that_is_lost_costs_nothing(address: str, tmp_path: Path) -> None:
    first = tmp_path / "first"
    # (The parent of the process that does the work is the worker.)
    code = (
        f"if not os.path.exists({str(first)!r}):\n"
        f"    with open({str(first)!r} + '.part', 'w') as file: file.write(f'{{os.getppid()}} {{os.getpid()}}')\n"
        f"    os.rename({str(first)!r} + '.part', {str(first)!r}); time.sleep(1000)"
    )
    told: list[Any] = []
    jobs = [_job("hit", code), *(_job(f"other {number}", "") for number in range(4))]
    listener = threading.Thread(target=lambda: told.extend(cluster.on_cluster(address, WORK, jobs)))
    listener.start()
    worker, child = map(int, str(wait_for(lambda: first.exists() and first.read_text())).split())
    os.kill(worker, signal.SIGKILL)
    listener.join(120)
    assert not listener.is_alive()
    assert sorted(name for _, name, _ in told) == sorted(job.name for job in jobs)
    assert {what["verdict"] for _, _, what in told} == {"unusable"}
    wait_for(lambda: not Path(f"/proc/{child}").exists())


def test_what_fails_there_is_told_here(address: str) -> None:
    jobs = [_job("raises", "1 / 0"), _job("dies", "os.kill(os.getpid(), 9)")]
    told = {name: what for _, name, what in cluster.on_cluster(address, WORK, jobs)}
    assert isinstance(told["raises"], JobFailed) and "ZeroDivisionError" in str(told["raises"])
    assert isinstance(told["dies"], JobFailed) and "signal 9" in str(told["dies"])


def test_no_scheduler_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cluster, "CONNECT_S", 1.0)
    Path("s.py").touch()
    Path("tests.py").write_text("def test_x(): pass")
    assert main(["grade", "s.py", "--tests", "tests.py", "--scheduler", "tcp://127.0.0.1:9"]) == 1
    assert "There is no scheduler at tcp://127.0.0.1:9" in capsys.readouterr().err
