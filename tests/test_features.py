"""docs/features.md names a test for each feature of others, or the reason why there is none here."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "features.md").read_text(encoding="utf-8")
ROWS = {line.split(" | ")[0].strip("| "): line for line in TEXT.splitlines() if re.match(r"\| [SHL]\d", line)}


def names_in(path: Path) -> set[str]:
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{item.name}" for item in node.body if isinstance(item, ast.FunctionDef)}
    return found


def test_no_row_is_left_out() -> None:
    most = {"S": 22, "H": 13, "L": 14}
    assert list(ROWS) == [f"{letter}{number + 1}" for letter, last in most.items() for number in range(last)]


@pytest.mark.parametrize("row", ROWS)
def test_is_shown_by_tests_that_exist_or_declined_with_a_reason(row: str) -> None:
    line = ROWS[row]
    tests = re.findall(r"`(tests/\S+?\.py)::(\S+)`", line)
    assert tests or "*Declined" in line, row
    for file, name in tests:
        assert name in names_in(ROOT / file), f"{row}: {file}::{name}"
