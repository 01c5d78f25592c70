"""Grading: a submission runs in a sandbox, the tests and all that they expect stay in this process.

A test calls the student's functions with values of this process and looks at copies of what they return. Only plain
values, frames and arrays cross, so nothing that comes back can lie about what it equals, and nothing of the tests is
there to be read, replaced or waited for.
"""

from __future__ import annotations

from .grade import grade
from .marking import points, raises, timeout
from .results import CellReport, Grade, Mark
from .student import Overdue, Student
from .submission import Submission, Unusable
from .suite import Suite, UnusableTests

__all__ = [
    "CellReport", "Grade", "Mark", "Overdue", "Student", "Submission", "Suite", "Unusable", "UnusableTests", "grade",
    "points", "raises", "timeout",
]  # fmt: skip
