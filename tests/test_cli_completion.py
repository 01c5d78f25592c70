"""Shells complete what the commands take, and each help shows how it is used."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from sandbox_kernel.cli import main


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def complete(text: str, line: str, folder: str) -> list[str]:
    """What bash offers for the last word of a line."""
    words = line.split(" ")
    asked = " ".join(f"'{word}'" for word in words)
    shown = "printf '%s\\n' \"${COMPREPLY[@]}\""
    program = f"{text}\nCOMP_WORDS=({asked}); COMP_CWORD={len(words) - 1}; _sandbox_kernel\n{shown}"
    done = subprocess.run(["bash", "-uc", program], capture_output=True, text=True, timeout=50, cwd=folder)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(("line", "there", "not_there"), [
    ("sandbox-kernel ", ["run", "grade", "doctor", "policy", "completion", "--version"], ["show", "a.ipynb"]),
    ("sandbox-kernel do", ["doctor"], ["run"]),
    ("sandbox-kernel policy ", ["show", "check"], ["run"]),
    ("sandbox-kernel policy show --", ["--preset", "--json"], ["--user", "a.ipynb"]),
    ("sandbox-kernel policy show --preset ", ["classroom", "strict"], ["--json", "a.ipynb"]),
    ("sandbox-kernel doctor --level s", ["seccomp", "seccomp+landlock", "subprocess"], ["full"]),
    ("sandbox-kernel run --", ["--html", "--output", "--allow-errors"], ["--level", "a.ipynb"]),
    ("sandbox-kernel run a", ["a.ipynb"], ["--html"]),
    ("sandbox-kernel run --html ", ["a.ipynb", "--output"], []),
    ("sandbox-kernel grade --tests ", ["a.ipynb"], ["--policy"]),
    ("sandbox-kernel grade --policy ", ["a.ipynb", "classroom"], ["--tests"]),
    ("sandbox-kernel completion ", ["bash", "fish", "zsh"], []),
])  # fmt: skip
def test_bash(
    line: str, there: list[str], not_there: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "a.ipynb").touch()
    offered = complete(script("bash", capsys), line, str(tmp_path))
    assert set(there) <= set(offered) and not set(not_there) & set(offered), offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_names_every_command_and_is_a_script_of_its_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = script(shell, capsys)
    for word in ("doctor", "grade", "verify", "preset", "expect-function"):
        assert word in text
    program = shutil.which(shell)
    if program is not None:
        done = subprocess.run([program, "-n"], input=text, capture_output=True, text=True, timeout=50)
        assert done.returncode == 0, done.stderr


def test_every_help_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    commands = re.findall(r"^    ([a-z]+)\b", capsys.readouterr().out, re.MULTILINE)
    assert {"run", "grade", "install", "doctor", "policy", "check", "audit", "completion"} <= set(commands)
    for command in commands:
        with pytest.raises(SystemExit) as stop:
            main([command, "--help"])
        text = capsys.readouterr().out
        assert stop.value.code == 0
        assert re.search(rf"examples:\n.*sandbox-kernel {command}", text), command
