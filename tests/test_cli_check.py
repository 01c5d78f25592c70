"""`sandbox-kernel check`."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from sandbox_kernel import launcher
from sandbox_kernel.cli import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("SANDBOX_KERNEL_POLICY", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(launcher, "ADMINISTRATOR", str(tmp_path / "etc.toml"))
    return tmp_path


def notebook(path: Path, cells: Sequence[str | tuple[str, str]]) -> None:
    made = [{"cell_type": "markdown", "source": ["text"]}]
    made += [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells if isinstance(cell, str)]
    path.write_text(json.dumps({"cells": made, "nbformat": 4, "nbformat_minor": 5, "metadata": {}}))


def test_rules(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.py").write_text("import math\nimport ctypes\nx = eval('1')\n")
    assert main(["check", "a.py"]) == 0 and capsys.readouterr().out == "", "off unless a policy asks"
    assert main(["check", "a.py", "--policy", "classroom"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("a.py:2:1: code.imports.deny: The module ctypes may not be imported here. Use numpy")
    assert lines[1].startswith("a.py:3:5: code.forbid: `eval` is forbidden here. Use ast.literal_eval")
    (folder / "p.toml").write_text('[code]\nimports.allow = ["math", "ctypes"]\n')
    assert main(["check", "a.py", "--policy", "./p.toml"]) == 0
    assert main(["check", "a.py", "--policy", "p.toml"]) == 0
    (folder / "etc.toml").write_text("[code]\nfunctions_only = true\n")
    assert main(["check", "a.py"]) == 1, "the administrator's rules hold here, too"
    assert "a.py:3:1: code.functions_only" in capsys.readouterr().out


def test_signature(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.py").write_text("def f(a, b=1): pass\nclass C:\n    def m(self, x): pass\n")
    assert main(["check", "a.py", "--expect-function", "f", "--expect-args", "a,b"]) == 0
    assert main(["check", "a.py", "--expect-function", "f"]) == 0
    assert main(["check", "a.py", "--expect-function", "C.m", "--expect-args", "x"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["check", "a.py", "--expect-function", "f", "--expect-args", "a"]) == 1
    assert "a.py: signature: f has the parameters (a, b), and (a) are wanted" in capsys.readouterr().out
    (folder / "task.md").write_text("Write a function `g(x)`.")
    assert main(["check", "a.py", "--task", "task.md"]) == 1
    assert "There is no function g" in capsys.readouterr().out


def test_notebooks(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells = ["import os as o\n%matplotlib inline", "def f(a): pass", "!ls\n\no.system('x')", "def g(): pass", "1 +"]
    notebook(folder / "n.ipynb", cells)
    command = ["check", "n.ipynb", "--policy", "classroom", "--expect-function", "f", "--expect-args", "b", "--json"]
    assert main(command) == 1
    said = json.loads(capsys.readouterr().out)
    (file,) = said["files"]
    assert said["ok"] is file["ok"] is False
    assert [(v["cell"], v["line"], v["rule"]) for v in file["violations"]] == [(4, 3, "code.forbid"), (6, 1, "syntax")]
    assert file["signature"].startswith("Cell 3: f has the parameters (a), and (b) are wanted")
    assert main(["check", "n.ipynb", "--expect-function", "h"]) == 1
    assert "No cell defines h." in capsys.readouterr().out


def test_several_and_standard_input(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "a.py").write_text("x = 1\n")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"eval('\x1b')\n")))
    assert main(["check", "a.py", "-", "--policy", "strict", "--json"]) == 1
    assert [f["ok"] for f in json.loads(capsys.readouterr().out)["files"]] == [True, False]


def test_hostile_names_do_not_reach_the_terminal(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.py").write_text("def f(): pass\n")
    (folder / "p.toml").write_text('[code]\nimports.allow = ["math"]\n')
    (folder / "b.py").write_text("__import__('\x1b[2J')\n")
    assert main(["check", "b.py", "--policy", "./p.toml"]) == 1
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["missing.py"], "missing.py"), (["bad.ipynb"], "not a notebook"), (["a.py", "--policy", "clasroom"], "classroom"),
     (["a.py", "--expect-args", "a"], "--expect-function"), (["bytes.py"], "UTF-8"), (["."], "directory"),
     (["a.py", "--task", "none.md"], "none.md"), (["a.py", "--task", "a.py"], "names no function")],
)  # fmt: skip
def test_wrong_usage(folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    (folder / "a.py").write_text("x = 1\n")
    (folder / "bad.ipynb").write_text('{"worksheets": []}')
    (folder / "bytes.py").write_bytes(b"\xff")
    assert main(["check", *arguments]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["a.py", "--expect-function", "f", "--expect-args", "a b"], [],
                                       ["a.py", "--expect-function", "f", "--task", "t"]])  # fmt: skip
def test_arguments_that_argparse_refuses(folder: Path, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["check", *arguments])
    assert caught.value.code == 2


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["check", "--help"])
    text = capsys.readouterr().out
    assert "examples:" in text and "exit status: 0" in text
