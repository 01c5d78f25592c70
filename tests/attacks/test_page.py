"""docs/threat-model.md tells what the tests try, and nothing else."""

from __future__ import annotations

import ast
import re

from . import front
from .page import PAGE, filled
from .table import ATTEMPTS

ROOT = PAGE.parents[1]


def test_the_tables_are_those_of_the_attempts() -> None:
    text = PAGE.read_text()
    assert filled(text) == text, "run python -m tests.attacks.page"
    for name in (*ATTEMPTS, *(a.id for a in (*front.CELLS, *front.JUNK))):
        assert f"`{name}`" in text


def test_every_test_that_is_named_exists() -> None:
    for page in (PAGE, ROOT / "SECURITY.md"):
        for path, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page.read_text()):
            file = ROOT / path
            assert file.is_file(), f"{page.name} names {path}"
            functions = {n.name for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.FunctionDef)}
            assert not name or name in functions, f"{page.name} names {path}::{name}"


def test_ids_are_unique() -> None:
    names = [*ATTEMPTS, *(a.id for a in (*front.CELLS, *front.JUNK))]
    assert len(names) == len(set(names))
