"""The profile's start-up files: run in the sandbox, for each worker, and never one that a cell could have written."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sandbox_kernel.kernel.startup import startup_files

from .conftest import LEVELS, Start

FILES = {
    "10-second.py": "order.append(2)\nimport os\nwhere = os.getpid()\ndef shout(x):\n    return x.upper()\n",
    "00-first.py": "order = [1]\nnamed = __file__\n",
    "20-third.ipy": "%config InlineBackend.figure_format = 'svg'\norder.append(3)\n",
    "30-broken.py": "1 / 0\n",
    "40-last.py": "order.append(4)\n",
    "README": "not run",
}


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    folder = tmp_path / "ipython" / "profile_default" / "startup"
    folder.mkdir(parents=True)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("level", LEVELS)
def test_they_are_run_in_order_inside_the_sandbox(start: Start, profile: Path, level: str) -> None:
    kernel = start(level)
    outcome = kernel.good("print(order, where == os.getpid(), shout('a'), named, '__file__' in globals())")
    assert outcome.stdout == f"[1, 2, 3, 4] True A {profile / '00-first.py'} False\n"
    assert outcome.reply["execution_count"] == 1
    assert "30-broken.py failed" in outcome.stderr and "ZeroDivisionError" in outcome.stderr
    again = kernel.good("import inspect; print(inspect.getsource(shout))\n%who")
    assert again.stderr == "" and "return x.upper()" in again.stdout and "order" not in again.stdout
    with pytest.raises(OSError, match=r"No such file|Permission denied"):
        raise_from(kernel.run("open(named)").reply)
    # A fresh worker runs them again.
    assert kernel.run("import os; os._exit(3)").reply["ename"] == "WorkerLost"
    assert kernel.good("print(order)").stdout == "[1, 2, 3, 4]\n"
    shown = kernel.good("%sandbox").stdout
    assert f"Start-up file {profile / '00-first.py'} is run" in shown and "README" not in shown


def raise_from(reply: dict[str, str]) -> None:
    assert reply["status"] == "error"
    raise OSError(reply["evalue"])


def test_the_policy_can_leave_them_out(start: Start, profile: Path) -> None:
    kernel = start(policy='[worker]\nstartup = "none"\n')
    assert kernel.run("order").reply["ename"] == "NameError"


def test_one_that_does_not_end_can_be_interrupted(start: Start, profile: Path) -> None:
    (profile / "50-endless.py").write_text("import time\nwhile True: time.sleep(1)\n")
    kernel = start()
    request = kernel.client.execute("print('cell', order)")
    answered = ""
    for _ in range(20):
        time.sleep(1)  # (before the cell has begun an interrupt hits nothing)
        kernel.manager.interrupt_kernel()
        while answered != request and kernel.client.shell_channel.msg_ready():
            answered = kernel.client.get_shell_msg(timeout=30)["parent_header"]["msg_id"]
        if answered == request:
            break
    assert answered == request
    assert kernel.good("print(order)").stdout.startswith("[1, 2, 3, 4]")


def test_what_cells_could_have_written_is_not_run(tmp_path: Path, profile: Path) -> None:
    files, notes = startup_files(str(profile.parent), str(tmp_path), {})
    assert files == [] and len(notes) == 5 and all("cells could have written it" in note for note in notes)
    link = tmp_path / "elsewhere" / "profile" / "startup"
    link.mkdir(parents=True)
    work = tmp_path / "work"
    work.mkdir()
    (work / "planted.py").write_text("1")
    (link / "00.py").symlink_to(work / "planted.py")
    files, notes = startup_files(str(link.parent), str(work), {})
    assert files == [] and "cells could have written it" in notes[0]
    assert startup_files(str(tmp_path / "missing"), str(work), {}) == ([], [])


def test_what_is_no_reasonable_file_is_left_out_in_words(tmp_path: Path) -> None:
    folder = tmp_path / "profile" / "startup"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "a.py")
    (folder / "b.py").write_bytes(b"\xff\xfe")
    (folder / "c.py").write_text("x" * (2 << 20))
    (folder / "d.py").mkdir()
    (folder / "e.py").write_text("fine = 1")
    files, notes = startup_files(str(folder.parent), "", {})
    assert files == [(str(folder / "e.py"), "fine = 1")]
    for note, word in zip(notes, ["not an ordinary file", "utf-8", "too long", "directory"], strict=True):
        assert word in note
