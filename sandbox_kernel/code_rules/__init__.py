"""Rules about what code may say, checked before it runs: guard rails for teaching and for cooperative code.

They are not the wall. Python can say the same thing in more ways than any reader of its text can know; what code may
*do* is decided by the Linux kernel. What these rules see and what they cannot is in docs/code-rules.md.
"""

from __future__ import annotations

from .check import Checker, check
from .gate import CodeGate
from .rules import CodeRules, Violation, refusal

__all__ = ["Checker", "CodeGate", "CodeRules", "Violation", "check", "refusal"]
