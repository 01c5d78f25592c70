"""What docs/teachers.md, assistants.md and operators.md say is done here, in order, by somebody with an empty home."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Reader:
    """Somebody who follows a page."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "home"
        self.home.mkdir()
        bin_folder = Path(sys.executable).parent
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "JUPYTER", "SANDBOX_KERNEL"))}
        self.environment = {**kept, "HOME": str(self.home), "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}

    def run(self, *command: str) -> str:
        options = {"cwd": self.folder, "env": self.environment, "timeout": 150}
        done = subprocess.run(command, capture_output=True, text=True, **options)
        assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    def follow(self, page: str) -> str:
        """Write the files, run the commands; what was printed."""
        printed = ""
        for language, name, text in BLOCK.findall((DOCS / page).read_text(encoding="utf-8")):
            if name:
                path = self.folder / name
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")
            elif language == "sh":
                printed += self.run("bash", "-euc", text)
            else:
                assert language == "text", f"a block of {language} that nobody runs"
        return printed


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    yield Reader(tmp_path)


@pytest.mark.timeout(200)
def test_teachers(reader: Reader) -> None:
    printed = reader.follow("teachers.md")
    assert (reader.home / ".local/share/jupyter/kernels/course/kernel.json").is_file()
    ada, bob = (line for line in printed.splitlines() if line.startswith(("ada.py,", "bob.py,")))
    assert ada.startswith("ada.py,passed,3,3,") and bob.startswith("bob.py,failed,0,3,")
    assert "TimeLimit" in (reader.folder / "grades" / "bob.py.json").read_text(encoding="utf-8")


@pytest.mark.timeout(200)
def test_assistants(reader: Reader) -> None:
    assert reader.follow("assistants.md") == ""
    session = reader.run(sys.executable, "-W", "error", "session.py")
    assert "KeyError: 'east'" in session and "TimeLimit" in session and session.endswith("north\n")
    assert "Network access is blocked" in session
    assert reader.run(sys.executable, "-W", "error", "tools.py") == ""
    assert reader.run(sys.executable, "-W", "error", "checked.py") == ""


@pytest.mark.timeout(200)
def test_operators(reader: Reader) -> None:
    printed = reader.follow("operators.md")
    assert "limits.memory" in printed and "4 GiB" in printed


@pytest.mark.parametrize("page", sorted(path.name for path in DOCS.glob("*.md")))
def test_links_lead_somewhere(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        assert target.startswith("https://") or (DOCS / target).exists(), target
