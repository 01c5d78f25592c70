"""Rules about what code may say, checked before it runs: guard rails for teaching and for cooperative code.

They are not the wall. Python can say the same thing in more ways than any reader of its text can know; what code may
*do* is decided by the Linux kernel. What these rules see and what they cannot is in docs/code-rules.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .gate import CodeGate
from .rules import CodeRules, Violation, refusal

if TYPE_CHECKING:
    from .checker import Checker, check

__all__ = ["Checker", "CodeGate", "CodeRules", "Violation", "check", "refusal"]


def __getattr__(name: str) -> object:
    if name not in ("Checker", "check"):  # a kernel without rules, which is most of them, starts without these
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import checker

    return getattr(checker, name)
