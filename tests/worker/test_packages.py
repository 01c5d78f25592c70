"""Attempts to install packages from a cell: no waiting for a network that is not there, and a sentence that helps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.worker import packages


@pytest.mark.parametrize("command", [
    "pip install x", "pip3.11 install -U x", "'/usr/bin/python' -m pip install x", "python -m pip -q install x",
    "conda install -y x", "mamba create -n y x", "uv pip install x", "uv add x", "apt install x",
    "sudo apt-get install -y x", "cd /tmp && pip download x", "pip list; pip install 'x'", "apt-get update",
])  # fmt: skip
def test_what_installs(command: str) -> None:
    assert packages.installs(command)


@pytest.mark.parametrize("command", [
    "pip list", "ls pip", "echo pip", "git add x", "git pip-install x", "# pip install x", "",
    "grep update conda.txt", "echo 'un\"finished", "uv run x",
])  # fmt: skip
def test_what_does_not(command: str) -> None:
    assert not packages.installs(command)


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with Sandbox(workspace=None) as box:
        yield box


@pytest.mark.parametrize("code", [
    "%pip install nothing-like-it", "!conda install x", "%conda install x", "!apt install x",
])  # fmt: skip
def test_the_reader_is_told(box: Sandbox, code: str) -> None:
    ex = box.run_code(code)
    assert ex.success and "Cells cannot install packages" in ex.stderr and "Ask whoever runs this kernel" in ex.stderr
    assert ex.stderr.count("Cells cannot") == 1


def test_pip_does_not_try_again(box: Sandbox) -> None:
    code = "def pip(): pass\nimport os\n!env | grep -c PIP_RETRIES # pip install"
    assert box.run_code(code).stdout == "0\n", "only commands that install have it"
    assert box.run_code("!env | grep PIP_RETRIES; false && pip install x").stdout == "PIP_RETRIES=0\n"
    assert box.run_code("import os; print(os.environ.get('PIP_RETRIES'))").stdout == "None\n"
