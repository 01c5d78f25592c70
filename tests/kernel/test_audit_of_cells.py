"""The audit log of a running kernel: a line for each cell, and no cell without a line."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from sandbox_kernel.audit import read_key, verify

from .conftest import Start


def test_each_cell_has_its_line_and_the_chain_holds(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "log" / "audit.jsonl"
    log.parent.mkdir()
    kernel = start("auto", policy=f'[audit]\nfile = "{log}"\n')
    code = "import socket\ntry: socket.create_connection(('127.0.0.1', 9))\nexcept OSError: pass"
    kernel.good(code)
    kernel.run("1/0")
    kernel.run("import os; os._exit(3)")
    kernel.manager.shutdown_kernel()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    cells = [line for line in lines if line["event"] == "cell"]
    # The client that waits for the kernel to be ready runs none.
    assert [line["outcome"] for line in cells] == ["ok", "ZeroDivisionError", "WorkerLost"]
    assert cells[0]["code_sha256"] == hashlib.sha256(code.encode()).hexdigest()
    assert any("AF_INET" in denial for denial in cells[0]["denials"])
    key = Path(f"{log}.key")
    assert not verify(str(log), read_key(str(key))).problems
    log.write_text(log.read_text().replace("ZeroDivisionError", "ok"))
    assert verify(str(log), read_key(str(key))).problems


def test_no_cell_runs_while_the_log_cannot_be_used(start: Start, tmp_path: Path) -> None:
    kernel = start("auto", policy=f'[audit]\nfile = "{tmp_path}/nowhere/audit.jsonl"\n')
    outcome = kernel.run("open('made.txt', 'w').write('x')")
    assert outcome.reply["ename"] == "PolicyRefusal" and "nowhere/audit.jsonl" in outcome.reply["evalue"]
    assert not (kernel.folder / "made.txt").exists()


def test_the_log_may_not_lie_where_cells_can_see_it(start: Start) -> None:
    kernel = start("auto", policy='[files]\nread = ["/usr/share"]\n[audit]\nfile = "/usr/share/audit.jsonl"\n')
    outcome = kernel.run("1")
    assert outcome.reply["ename"] == "PolicyRefusal" and "which cells can see" in outcome.reply["evalue"]
