"""Measures the promises of SPECIFICATION.md against the stock kernel, alternately in one run."""

from __future__ import annotations

from .promises import PROMISES, Promise
from .verdict import Verdict, judge

__all__ = ["PROMISES", "Promise", "Verdict", "judge"]
