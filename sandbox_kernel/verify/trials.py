"""Where z3 does not know: every argument that the precondition lets through, when they are few, or some of them."""

from __future__ import annotations

import ast
import itertools
import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .interpret import Interpreter, Raised, StepsUsedUp
from .subset import Outside, Program, is_kind_of

_MOST = 50_000
_SOME = 2_000
_FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}


def bounds_of(precondition: ast.expr, subject: str) -> tuple[int | None, int | None]:
    """The least and greatest value that a precondition plainly says about something.

    Args:
        precondition: conditions joined by ``and`` are looked at, each a chain of comparisons with numbers.
        subject: ``n`` or ``len(xs)``, as Python writes it.
    """
    low: int | None = None
    high: int | None = None
    joined = isinstance(precondition, ast.BoolOp) and isinstance(precondition.op, ast.And)
    for condition in precondition.values if joined and isinstance(precondition, ast.BoolOp) else [precondition]:
        if not isinstance(condition, ast.Compare):
            continue
        row = [condition.left, *condition.comparators]
        for left, op, right in zip(row, condition.ops, row[1:], strict=False):
            sides = ((left, type(op), right), (right, _FLIPPED.get(type(op), type(op)), left))
            for one, way, other in sides:
                number = _number(other)
                if number is None or ast.unparse(one) != subject:
                    continue
                if way in (ast.Lt, ast.LtE, ast.Eq):
                    most = number - (way is ast.Lt)
                    high = most if high is None else min(high, most)
                if way in (ast.Gt, ast.GtE, ast.Eq):
                    least = number + (way is ast.Gt)
                    low = least if low is None else max(low, least)
    return low, high


def _number(node: ast.expr) -> int | None:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))):
            return -value
    return None


class Trials:
    """Tries a contract out with the evaluator.

    Attributes:
        counted: arguments tried that fulfil the precondition.
        complete: whether these were all there are.
        example: the first ones that break the contract.
    """

    def __init__(self, program: Program, name: str, pre: ast.expr, post: ast.expr, raises: Sequence[str]) -> None:
        self._program, self._name, self._pre, self._post, self._raises = program, name, pre, post, tuple(raises)
        self.counted = 0
        self.complete = False
        self.example: Mapping[str, Any] | None = None

    def run(self, kinds: Mapping[str, str], until: float) -> None:
        """Try arguments of these kinds until a moment of `time.monotonic()`."""
        boxes = {name: self._box(name, kind) for name, kind in kinds.items()}
        whole = [box for box in boxes.values() if box is not None]
        few = len(whole) == len(boxes) and math.prod(len(box) for box in whole) <= _MOST
        rows: Iterator[Sequence[Any]] = itertools.product(*whole) if few else self._some(kinds)
        try:
            for row in rows:
                if time.monotonic() > until:
                    return
                values = dict(zip(kinds, row, strict=True))
                if self._breaks(values):
                    self.example = values
                    return
            self.complete = few
        except (Outside, StepsUsedUp):
            return

    def _box(self, name: str, kind: str) -> Sequence[Any] | None:
        if kind == "bool":
            return (False, True)
        low, high = bounds_of(self._pre, name)
        if kind != "int" or low is None or high is None or high - low > _MOST:
            return None
        return range(low, high + 1)

    def _some(self, kinds: Mapping[str, str]) -> Iterator[Sequence[Any]]:
        if not all(kind in ("int", "bool", "float", "list[int]") for kind in kinds.values()):
            return
        chance = random.Random(0)  # noqa: S311 - the same answer for the same question
        for turn in range(_SOME):
            size = 3 + turn // 40
            yield [_any(kind, size, chance) for kind in kinds.values()]

    def _breaks(self, values: Mapping[str, Any]) -> bool:
        copies = [{k: list(v) if isinstance(v, list) else v for k, v in values.items()} for _ in range(2)]
        if not Interpreter(self._program).condition(self._pre, values):
            return False
        self.counted += 1
        try:
            result = Interpreter(self._program, 20_000).call(self._name, copies[0])
        except Raised as raised:
            return not is_kind_of(raised.name, self._raises)
        return not Interpreter(self._program).condition(self._post, {**copies[1], "result": result})


def _any(kind: str, size: int, chance: random.Random) -> Any:
    if kind == "list[int]":
        return [chance.randint(-size, size) for _ in range(chance.randint(0, 5))]
    if kind == "bool":
        return chance.random() < 0.5
    return float(chance.randint(-size, size)) / 2 if kind == "float" else chance.randint(-size, size)
