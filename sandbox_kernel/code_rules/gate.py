"""The policy's ``[code]`` rules, applied to a cell before it is sent to the worker."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Mapping, Sequence
from functools import cached_property
from textwrap import dedent
from typing import TYPE_CHECKING, Any

from ..errors import PolicyRefusal
from .rules import CodeRules, Violation, refusal

if TYPE_CHECKING:
    from ..policy import Code
    from .checker import Checker


class CodeGate:
    """Checks the cells of one session. What it refuses the worker never sees.

    Attributes:
        at_run_time: what the worker is to watch over while a cell runs, as a field of its request; empty without rules.
    """

    def __init__(self, code: Code) -> None:
        rules = CodeRules.from_policy(code)
        self._rules = rules
        watched: dict[str, Any] = {}
        if rules.restricts_imports:
            watched.update(imports_allow=rules.imports_allow, imports_deny=rules.imports_deny)
        if rules.builtins_remove:
            watched["builtins_remove"] = rules.builtins_remove
        if code.ticks:
            watched["ticks"] = code.ticks
        self.at_run_time = {"code_rules": watched} if watched else {}

    @cached_property
    def _checker(self) -> Checker:
        from .checker import Checker

        return Checker(self._rules)

    async def refusal(self, code: str, expressions: object) -> PolicyRefusal | None:
        """Why a cell, or an expression that its client asks for with it, may not run; None when it may.

        Reads in a thread: a cell of 200,000 characters takes seconds, and the front answers meanwhile.
        """
        if not self._rules:
            return None
        asked = expressions if isinstance(expressions, Mapping) else {}
        return refusal(await asyncio.to_thread(self._violations, code, asked))

    async def refusal_of_expressions(self, texts: Sequence[str]) -> PolicyRefusal | None:
        """The same for code that is evaluated beside the cells, which must be Python as it stands.

        Whoever evaluates it may mend what Python cannot read, and then it would be code that nobody has checked.
        """
        if not self._rules:
            return None
        return refusal(await asyncio.to_thread(self._violations_of, [dedent(text).strip() for text in texts]))

    def _violations_of(self, texts: Sequence[str]) -> list[Violation]:
        from .checker import SYNTAX

        found: list[Violation] = []
        for text in texts:
            found += self._checker.check_expression(text)
            if not found and not self._checker.too_long(text):
                try:
                    ast.parse(text)
                except SyntaxError as error:
                    found.append(Violation(1, 1, SYNTAX, f"This is not Python: {error.msg}."))
        return found

    def _violations(self, code: str, expressions: Mapping[str, object]) -> list[Violation]:
        from .cells import plain_python
        from .checker import SYNTAX

        # IPython reads a long cell many times over, so its length comes first.
        found = self._checker.check(code if self._checker.too_long(code) else plain_python(code))
        for text in expressions.values():
            found += self._checker.check_expression(str(text))
        # What is not Python at all is told best by the worker, with its own traceback.
        return [violation for violation in found if violation.rule != SYNTAX]
