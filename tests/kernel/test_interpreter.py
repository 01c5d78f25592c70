"""``[worker] python``: cells in the interpreter of another environment."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from .conftest import LEVELS, Start


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment that has our packages through its import path, but not this package itself."""
    folder = tmp_path / "other"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=50)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


@pytest.mark.parametrize("level", LEVELS)
def test_cells_run_in_it(start: Start, environment: Path, level: str) -> None:
    kernel = start(level, policy=f'[worker]\npython = "{environment}/bin/python"\n', env={"PYTHONPATH": "/elsewhere"})
    code = "import sys\nprint(sys.prefix, '/elsewhere' in sys.path)\n"
    code += "!{sys.executable} -c 'import sys; print(sys.prefix)'"
    outcome = kernel.good(code)
    assert outcome.stdout.split() == [str(environment), "False", str(environment)]
    assert "full" in kernel.good("%sandbox").stdout or level != "full"


def test_one_that_is_not_there_is_told_in_the_cell(start: Start) -> None:
    kernel = start(policy='[worker]\npython = "/nonexistent/python"\n')
    outcome = kernel.run("1")
    assert outcome.reply["ename"] == "IsolationUnavailable" and "/nonexistent/python" in outcome.reply["evalue"]
