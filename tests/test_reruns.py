"""What conftest.py says about running a failed test again, tried on tests that are made up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pytest_rerunfailures")

SETTINGS = """
[pytest]
timeout = 1
filterwarnings = error
markers = security: as in the true settings
"""
TESTS = """
import gc, time
import pytest

runs = []

@pytest.fixture(scope="module")
def kept():
    runs.append("kept")
    yield runs.count("kept")

@pytest.fixture(scope="module")
def late():
    runs.append("late")
    assert runs.count("late") > 1

def first(name):
    runs.append(name)
    return runs.count(name) == 1

def test_once(kept):
    file = open("/dev/null")
    assert not first("once")
    file.close()

def test_fixtures_are_new_after_a_rerun(kept):
    gc.collect()
    assert kept == 2

def test_that_leaves_what_is_shared_broken(kept):
    assert not first("broken")

def test_the_next_one_has_a_new_one(kept):
    assert kept == 3

def test_fixture(late): pass

def test_once_too_slow():
    time.sleep(60 if first("slow") else 0)

def test_always(): assert False

def test_always_too_slow(): time.sleep(60)

def test_hostile(): assert not first("hostile")

def test_hostile_kept_waiting():
    if first("waiting"): raise TimeoutError("no message")

class TestHostileThings:
    def test_it(self): assert not first("things")

@pytest.mark.security
def test_marked(): assert not first("marked")
"""
PLACED = """
import time
import pytest

runs = []

def first(name):
    runs.append(name)
    return runs.count(name) == 1

def test_kept_waiting():
    if first("waiting"): raise TimeoutError("no message")

def test_server_too_slow():
    time.sleep(60 if first("slow") else 0)

def test_not_refused():
    if first("refused"):
        with pytest.raises(ValueError): pass
"""
WALL = """
class ControlFailed(Exception): pass

runs = []

def test_wall():
    runs.append("wall")
    assert runs.count("wall") == 2

def test_control():
    runs.append("control")
    if runs.count("control") == 1: raise ControlFailed("even without layers")
"""


def test_a_third_failure_fails_and_of_security_the_first(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    (tmp_path / "conftest.py").write_text(Path(__file__).with_name("conftest.py").read_text())
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "attacks").mkdir()
    (tmp_path / "attacks" / "test_wall.py").write_text(WALL)
    (tmp_path / "launch").mkdir()
    (tmp_path / "launch" / "test_placed.py").write_text(PLACED)
    command = [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=50)
    assert done.returncode == 1, done.stderr
    found: dict[str, set[str]] = {}
    for line in done.stdout.partition("short test summary info")[2].splitlines():
        outcome, _, rest = line.partition(" ")
        if "::" in rest:
            found.setdefault(outcome, set()).add(rest.split()[0].rpartition("::")[2])
    assert found == {
        "PASSED": {
            "test_once", "test_fixtures_are_new_after_a_rerun", "test_that_leaves_what_is_shared_broken",
            "test_the_next_one_has_a_new_one", "test_fixture", "test_once_too_slow",
            "test_kept_waiting", "test_server_too_slow", "test_control",
        },
        "FAILED": {
            "test_always", "test_always_too_slow", "test_hostile", "test_hostile_kept_waiting", "test_it",
            "test_marked", "test_not_refused", "test_wall",
        },
    }, done.stdout  # fmt: skip
    assert "8 failed, 9 passed, 11 rerun" in done.stdout.splitlines()[-1]
