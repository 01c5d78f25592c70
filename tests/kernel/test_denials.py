"""What was refused is told at the end of the cell, and only then."""

from __future__ import annotations

import pytest

from .conftest import LEVELS, Running, Start


@pytest.fixture(params=LEVELS)
def kernel(start_shared: Start, request: pytest.FixtureRequest) -> Running:
    return start_shared(request.param)


def test_the_end_of_a_cell_tells_what_was_refused(kernel: Running) -> None:
    outcome = kernel.run("import urllib.request; urllib.request.urlopen('http://example.com')")
    assert not outcome.ok and "Network access is blocked by the sandbox policy (socket AF_INET, " in outcome.stderr
    assert kernel.good("1").stderr == ""
    outcome = kernel.good("import os\ntry: os.memfd_create('x', 2)\nexcept PermissionError as e: print(e)")
    assert "memfd_create MFD_ALLOW_SEALING, 1 attempt" in outcome.stderr and "not permitted" in outcome.stdout


def test_a_cell_that_loses_its_worker_is_told_too(kernel: Running) -> None:
    outcome = kernel.run("import os, ctypes\nfor _ in range(3): ctypes.CDLL(None).unshare(0x10000000)\nos._exit(3)")
    assert outcome.reply["ename"] == "WorkerLost" and "unshare CLONE_NEWUSER, 3 attempts" in outcome.stderr
    outcome = kernel.run("import os; os.memfd_create('x', 2)")
    assert "memfd_create MFD_ALLOW_SEALING, 1 attempt" in outcome.stderr


def test_a_file_that_lives_only_in_memory(start_shared: Start) -> None:
    code = "import os\nfd = os.memfd_create('x'); os.write(fd, b'abc'); print(os.pread(fd, 3, 0)); os.close(fd)"
    outcome = start_shared("full").good(code)
    assert (outcome.stdout, outcome.stderr) == ("b'abc'\n", "")
    outcome = start_shared("seccomp+landlock").run(code)
    assert not outcome.ok and "memfd_create, 1 attempt" in outcome.stderr and "at the level full" in outcome.stderr


def test_ordinary_cells_have_no_such_line(kernel: Running) -> None:
    for code in (
        "import numpy, pandas, requests, matplotlib.pyplot as p; p.plot([1]); pandas.DataFrame({'a': [1]})",
        "!ls -l / > /dev/null; id > /dev/null; df > /dev/null 2>&1",
        "import uuid, socket, pwd; uuid.uuid1(); socket.gethostbyname('localhost'); pwd.getpwuid(0)",
    ):
        assert kernel.good(code).stderr == "", code
    assert kernel.run("open('none.csv')").stderr == ""


def test_a_file_outside_is_hinted_at(start_shared: Start) -> None:
    for level in LEVELS:
        kernel = start_shared(level)
        assert "read-only" in kernel.run("open('/usr/new', 'w')").stderr
