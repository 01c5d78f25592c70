"""The examples in the README and in docs/python-api.md do what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

FILES = ("README.md", "docs/python-api.md")
TEXT = "\n".join((Path(__file__).parents[2] / name).read_text(encoding="utf-8") for name in FILES)
EXAMPLES = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def test_there_are_some() -> None:
    assert len(EXAMPLES) == 5


@pytest.mark.parametrize("at", range(5))
def test_example(at: int, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(EXAMPLES[at], encoding="utf-8")
    done = subprocess.run([sys.executable, "-W", "error", str(script)], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
