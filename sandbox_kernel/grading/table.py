"""Grades in a terminal. All texts are a submission's, or may hold what it returned: no markup, no control sequence."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group
from rich.table import Table
from rich.text import Text

from ..api.execution import plain_text
from .results import Grade

_STYLES = {"passed": "green", "ok": "green", "failed": "red", "unusable": "red", "error": "bold magenta"}


def shown(text: str) -> str:
    """Safe to print: what is not a character that shows is written as an escape."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in plain_text(text))


def number(value: float) -> str:
    """Points: ``2``, ``2.5``."""
    return f"{value:.3f}".rstrip("0").rstrip(".")


def drawn(grade: Grade) -> Group:
    """One grade in full: its tests, and the cells that failed."""
    head = Text(f"{shown(grade.submission)}: {number(grade.score)} of {number(grade.max_score)} points, ")
    head.append(grade.verdict, style=_STYLES.get(grade.verdict, ""))
    if grade.reason:
        head.append(f": {shown(grade.reason)}")
    tests = Table(box=None, pad_edge=False, header_style="bold")
    tests.add_column("test")
    tests.add_column("points", justify="right", no_wrap=True)
    tests.add_column("reason")
    for mark in grade.marks:
        worth = f"{number(mark.score)} of {number(mark.points)}"
        why = " ".join(filter(None, (shown(mark.reason), f"[limit: {mark.limit}]" if mark.limit else "",
                                     shown(mark.denials))))  # fmt: skip
        tests.add_row(Text(shown(mark.title)), Text(worth, style=_STYLES.get(mark.status, "")), Text(why))
    parts: list[Text | Table] = [head, tests]
    troubled = [cell for cell in grade.cells if cell.status != "ok" or cell.denials]
    if troubled:
        cells = Table(box=None, pad_edge=False, header_style="bold")
        for title in ("cell", "line", "what happened"):
            cells.add_column(title, no_wrap=title != "what happened")
        for cell in troubled:
            why = " ".join(filter(None, (shown(cell.reason), shown(cell.denials))))
            line = str(cell.line) if cell.line else ""
            cells.add_row(Text(str(cell.number), style=_STYLES.get(cell.status, "")), line, Text(why))
        parts += [Text(""), cells]
    return Group(*parts)


def overview(grades: Iterable[Grade]) -> Table:
    """Many grades, a line each."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("submission")
    table.add_column("points", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("first reason")
    for grade in grades:
        reasons = grade.failures()
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        first = shown(reasons[0]).partition("\n")[0][:200] + more if reasons else ""
        verdict = Text(grade.verdict, style=_STYLES.get(grade.verdict, ""))
        points = f"{number(grade.score)} of {number(grade.max_score)}"
        table.add_row(Text(shown(grade.submission)), points, verdict, Text(first))
    return table
