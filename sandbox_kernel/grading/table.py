"""Grades in a terminal. All texts are a submission's, or may hold what it returned: no markup, no control sequence."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.console import Group
from rich.table import Table
from rich.text import Text

from ..api.execution import plain_text
from ..errors import KEPT
from .results import OWN_ERROR, Grade

_STYLES = {"passed": "green", "ok": "green", "failed": "red", "unusable": "red", "error": "bold magenta",
           OWN_ERROR: "bold magenta"}  # fmt: skip
_WIDE = 260  # characters
_PLACE = re.compile(r"line \d+ of the tests: \w+")


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
        own = mark.status == OWN_ERROR
        worth = "not counted" if own else f"{number(mark.score)} of {number(mark.points)}"
        said = ("an error of the test itself:" if own else "", shown(mark.reason),
                f"[limit: {mark.limit}]" if mark.limit else "", shown(mark.denials))  # fmt: skip
        why = " ".join(filter(None, said))
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


def _short(text: str) -> str:
    """What of a reason fits into an overview, to the end of a word; that a session goes on is no news there."""
    text = text.replace(f" {KEPT}", "")
    return text if len(text) <= _WIDE else f"{text[:_WIDE].rpartition(' ')[0]} ..."


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
        first = _short(shown(reasons[0]).partition("\n")[0]) + more if reasons else ""
        verdict = Text(grade.verdict, style=_STYLES.get(grade.verdict, ""))
        points = f"{number(grade.score)} of {number(grade.max_score)}"
        table.add_row(Text(shown(grade.submission)), points, verdict, Text(first))
    return table


def doubtful(grades: Iterable[Grade]) -> list[str]:
    """What the teacher has to know about the tests: those with errors of their own, and those that nobody gets through.

    A line for each test.
    """
    wrong: dict[str, list[str]] = {}
    ended: dict[str, list[str]] = {}
    graded = [grade for grade in grades if grade.cells]
    for mark in (mark for grade in graded for mark in grade.marks):
        if mark.status == OWN_ERROR:
            wrong.setdefault(mark.name, []).append(mark.reason)
        elif mark.status == "failed" and (place := _PLACE.match(mark.reason)):
            ended.setdefault(mark.name, []).append(place[0])
    lines = [f"{name} has an error of its own, so its points are not counted ({len(reasons)} of {len(graded)} "
             f"submissions): {shown(reasons[0])}" for name, reasons in wrong.items()]  # fmt: skip
    for name, places in ended.items():
        if len(places) == len(graded) > 1 and len(set(places)) == 1:
            same = f"{name} ends for all {len(graded)} submissions by the same error"
            lines.append(f"{same}, {shown(places[0])}; look at the test first")
    return lines
