"""The policy's ``[code]`` rules, applied to a cell before it is sent to the worker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ..code_rules import Checker, CodeRules, Violation, refusal
from ..code_rules.cells import plain_python
from ..code_rules.check import SYNTAX
from ..errors import PolicyRefusal
from ..policy import Code


class CodeGate:
    """Checks the cells of one kernel. What it refuses the worker never sees."""

    def __init__(self, code: Code) -> None:
        self._checker = Checker(CodeRules.from_policy(code))

    async def refusal(self, code: str, expressions: object) -> PolicyRefusal | None:
        """Why a cell, or an expression that its client asks for with it, may not run; None when it may.

        Reads in a thread: a cell of 200,000 characters takes seconds, and the front answers meanwhile.
        """
        if not self._checker.rules:
            return None
        asked = expressions if isinstance(expressions, Mapping) else {}
        return refusal(await asyncio.to_thread(self._violations, code, asked))

    def _violations(self, code: str, expressions: Mapping[str, object]) -> list[Violation]:
        # IPython reads a long cell many times over, so its length comes first.
        found = self._checker.check(code if self._checker.too_long(code) else plain_python(code))
        for text in expressions.values():
            found += self._checker.check_expression(str(text))
        # What is not Python at all is told best by the worker, with its own traceback.
        return [violation for violation in found if violation.rule != SYNTAX]
