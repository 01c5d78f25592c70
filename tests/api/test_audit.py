"""The audit log of programs: a line for each cell and each call, by the same code as the kernel's."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.audit import read_key, verify
from sandbox_kernel.auditing import Audit
from sandbox_kernel.errors import CellError, PolicyRefusal
from sandbox_kernel.grading import grade

NETWORK = "import socket\ntry: socket.create_connection(('127.0.0.1', 9))\nexcept OSError: pass"


def lines_of(log: Path) -> list[dict[str, Any]]:
    verdict = verify(str(log), read_key(f"{log}.key"))
    assert not verdict.problems and verdict.finished
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_cells_calls_and_forks_have_their_lines(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    policy = {"preset": "assistant", "audit": {"file": str(log)}}
    with Sandbox(policy) as box:
        box.run_code(NETWORK)
        box.run_code("def f(x):\n    return 1 / x")
        assert box.call("f", 2) == 0.5
        with pytest.raises(CellError):
            box.call("f", 0)
        with box.fork() as branch:
            branch.run_code("import os; os._exit(3)")
    cells = [line for line in lines_of(log) if line["event"] == "cell"]
    assert [line["outcome"] for line in cells] == ["ok", "ok", "ok", "ZeroDivisionError", "WorkerLost"]
    assert cells[0]["code_sha256"] == hashlib.sha256(NETWORK.encode()).hexdigest()
    assert cells[2]["code_sha256"] == hashlib.sha256(b"f").hexdigest()
    assert any("AF_INET" in denial for denial in cells[0]["denials"]) and cells[0]["level"]
    assert len({line["request"] for line in cells}) == 5, "which sandbox it was, and which of its cells"


def test_sandboxes_of_one_process_share_a_file_and_another_process_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    program = (
        f"from sandbox_kernel import Sandbox\nbox = Sandbox({{'audit': {{'file': {str(log)!r}}}}})\n"
        "ex = box.run_code('print(1)')\nprint(ex.stdout, ex.error)"
    )
    first, second = Audit(str(log)), Audit(str(log))
    for audit in (first, second):
        assert audit.refusal() is None
        audit.note("id", "1", "ok", error=None, level="full", denials=[], seconds=0.0, removed={})
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "PolicyRefusal" in told and "another process writes it; put {pid} into the name" in told
    first.close()
    second.close()
    assert isinstance(first.refusal(), PolicyRefusal)
    assert [line["event"] for line in lines_of(log)] == ["start", "cell", "cell", "end"]
    # A program that never closes its sandbox has an end, too.
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert told.startswith("1\n")
    assert [line["event"] for line in lines_of(log)][4:] == ["start", "cell", "end"]


def test_no_cell_and_no_call_runs_without_its_log(tmp_path: Path) -> None:
    """Nor where cells could see the log."""
    with Sandbox({"audit": {"file": str(tmp_path / "audit.jsonl")}}, workspace=tmp_path) as box:
        ex = box.run_code("open('made.txt', 'w').write('x')")
        assert ex.error is not None and ex.error.name == "PolicyRefusal" and "which cells can see" in ex.error.value
        with pytest.raises(PolicyRefusal):
            box.call("print", "x")
    assert not (tmp_path / "made.txt").exists()


def test_grading_is_noted(tmp_path: Path) -> None:
    log = tmp_path / "log" / "audit.jsonl"
    log.parent.mkdir()
    (tmp_path / "work.py").write_text("def double(x):\n    return 2 * x\n")
    (tmp_path / "tests.py").write_text("def test_double(student):\n    assert student.double(2) == 4\n")
    found = grade(tmp_path / "work.py", tmp_path / "tests.py", {"preset": "classroom", "audit": {"file": str(log)}})
    assert found.score == 1
    texts = [line["code_sha256"] for line in lines_of(log) if line["event"] == "cell"]
    assert texts[-1] == hashlib.sha256(b"double").hexdigest() and len(texts) == 2
