"""What grading gives: plain data, for JSON and for people."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Group

OWN_ERROR = "test error"
VERDICTS = ("passed", "failed", "unusable", "error")


@dataclass
class CellReport:
    """One cell of the submission.

    Attributes:
        number: its place among all cells of the notebook, from 1; of a .py file always 1.
        status: "ok", "failed", or "not run" when the time for the submission was up.
        error: class of the exception, or of the sandbox's own error (``TimeLimit``, ``WorkerLost``, ...); "".
        reason: in words; "".
        line: of the cell, where the error left it; 0: not known.
        limit: the limit that ended it, such as ``limits.memory``; "".
        state: "kept", "restored" or "lost": what became of the variables.
        denials: what the sandbox refused to it, in words; "".
        duration_s: wall time.
    """

    number: int
    status: str = "ok"
    error: str = ""
    reason: str = ""
    line: int = 0
    limit: str = ""
    state: str = "kept"
    denials: str = ""
    duration_s: float = 0.0


@dataclass
class Mark:
    """One test.

    Attributes:
        name: of its function.
        title: the first line of its docstring, else its name.
        points: what it is worth.
        score: what it gave: all or nothing.
        status: "passed", "failed", "test error" when the test itself is wrong, or "error" when it could not be run.
        error: class of what ended it; "".
        reason: in words; "".
        limit: the limit that ended it, such as ``timeout``; "".
        denials: what the sandbox refused meanwhile, in words; "".
        duration_s: wall time.
    """

    name: str
    title: str
    points: float = 1.0
    score: float = 0.0
    status: str = "failed"
    error: str = ""
    reason: str = ""
    limit: str = ""
    denials: str = ""
    duration_s: float = 0.0


@dataclass
class Grade:
    """What one submission got.

    Attributes:
        submission: its name.
        verdict: "passed": every test did; "failed": some did not; "unusable": there is nothing that could be run
            (``reason`` says why), which gives no points; "error": it could not be graded, or not by every test, which
            is not its fault.
        score, max_score: points. Those of a test with an error of its own are in neither.
        reason: of "unusable" and "error", in words.
        cells, marks: one for each cell and test.
        level: the isolation level that was had.
        duration_s: wall time.
    """

    submission: str
    verdict: str = "failed"
    score: float = 0.0
    max_score: float = 0.0
    reason: str = ""
    cells: list[CellReport] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    level: str = ""
    duration_s: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def to_json(self) -> str:
        """As text; what a program needs to show the grade again."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Grade:
        """What `to_dict` gave.

        Raises:
            TypeError: it is something else.
        """
        cells = [CellReport(**cell) for cell in values.get("cells", ())]
        return cls(**{**values, "cells": cells, "marks": [Mark(**mark) for mark in values.get("marks", ())]})

    @classmethod
    def from_json(cls, text: str) -> Grade:
        """What `to_json` gave.

        Raises:
            ValueError, TypeError: it is something else.
        """
        return cls.from_dict(json.loads(text))

    def failures(self) -> list[str]:
        """Each thing that went wrong, as a line: cells first, as they are often the cause of the rest."""
        said = [self.reason] if self.reason else []
        graded = self.verdict in ("passed", "failed") or any(mark.status == OWN_ERROR for mark in self.marks)
        if not graded:
            return said
        said += [f"cell {cell.number}: {cell.reason}" for cell in self.cells if cell.status != "ok"]
        failed = [mark for mark in self.marks if mark.status not in ("passed", OWN_ERROR)]
        return said + [f"{mark.title}: {mark.reason} {mark.denials}".rstrip() for mark in failed]

    def table(self) -> Group:
        """For a terminal (needs the package rich): ``rich.print(grade.table())``."""
        from .table import drawn

        return drawn(self)
