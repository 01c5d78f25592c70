"""Parameters as symbols, and the plain values that a model of z3 gives them."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import z3

from .state import State
from .subset import Definition, Outside
from .trials import bounds_of
from .values import Choice, Items, ListRef, Term, Value, term

_SCALARS = ("int", "bool", "float")


class Kinds:
    """What kind of value each parameter has.

    Args:
        function: its annotations count.
        types: kinds by name, as annotations are written; they count before the function's own.

    Attributes:
        assumed: sentences about what nobody said.
    """

    def __init__(self, function: Definition, types: Mapping[str, str]) -> None:
        args = function.args
        known = [*args.posonlyargs, *args.args, *args.kwonlyargs]
        unknown = types.keys() - {arg.arg for arg in known}
        if unknown:
            raise ValueError(f"there is no parameter {', '.join(sorted(unknown))}")
        self.assumed: list[str] = []
        self._kinds: dict[str, ast.expr] = {}
        for arg in known:
            if arg.arg in types:
                self._kinds[arg.arg] = ast.parse(types[arg.arg], mode="eval").body
            elif arg.annotation is not None:
                self._kinds[arg.arg] = _unquoted(arg.annotation)
            else:
                self.assumed.append(f"{arg.arg} is an int")
                self._kinds[arg.arg] = ast.Name("int", ast.Load())

        lists = [name for name in self._kinds if _base(self._kinds[name]) in ("list", "sequence")]
        if len(lists) > 1:
            self.assumed.append(f"{' and '.join(lists)} are different lists")

    def texts(self) -> dict[str, str]:
        """The kinds by parameter, as annotations are written."""
        return {name: ast.unparse(kind) for name, kind in self._kinds.items()}

    def lists(self) -> list[str]:
        """Parameters whose length is not fixed by their kind."""
        return [name for name, kind in self._kinds.items() if _element(kind) is not None]

    def lengths(self, precondition: ast.expr, most: int) -> tuple[list[dict[str, int]], bool]:
        """Lengths to try for the lists, and whether there are no others under the precondition."""
        names, ranges, complete = self.lists(), [], True
        for name in names:
            least, high = bounds_of(precondition, f"len({name})")
            low = max(least or 0, 0)
            complete = complete and high is not None and high <= most
            ranges.append(range(low, min(high if high is not None else most, most) + 1))
        return [dict(zip(names, chosen, strict=True)) for chosen in itertools.product(*ranges)], complete

    def symbols(self, lengths: Mapping[str, int], state: State) -> dict[str, Value]:
        """A symbol for each parameter; lists are put into the state's heap."""
        made: dict[str, Value] = {}
        numbers = itertools.count(-1, -1)  # lists that the function makes count upwards
        for name, kind in self._kinds.items():
            made[name] = self._symbol(name, kind, lengths.get(name, 0), state, numbers)
        return made

    def _symbol(self, name: str, kind: ast.expr, length: int, state: State, numbers: Iterator[int]) -> Value:
        match kind:
            case ast.Name(id="int"):
                return z3.Int(name)
            case ast.Name(id="bool"):
                return z3.Bool(name)
            case ast.Name(id="float"):
                return z3.Real(name)
            case ast.BinOp(left=left, op=ast.BitOr(), right=ast.Constant(value=None)):
                absent = z3.Bool(f"{name} is None")
                inner = self._symbol(name, left, length, state, numbers)
                return Choice(((absent, None), (z3.Not(absent), inner)))
            case ast.Subscript(value=ast.Name(id="Optional"), slice=inner):
                return self._symbol(name, ast.BinOp(inner, ast.BitOr(), ast.Constant(None)), length, state, numbers)
        element = _element(kind)
        if element is not None:
            items = tuple(self._symbol(f"{name}[{k}]", element, 0, state, numbers) for k in range(length))
            if _base(kind) == "tuple":
                return Items(items)
            number = next(numbers)
            state.heap[number] = Items(items, "list")
            return ListRef(number)
        match kind:
            case ast.Subscript(value=ast.Name(id="tuple" | "Tuple"), slice=ast.Tuple(elts=parts)):
                made = [self._symbol(f"{name}[{k}]", part, 0, state, numbers) for k, part in enumerate(parts)]
                return Items(tuple(made))
        raise Outside(f"the type {ast.unparse(kind)} of the parameter {name}", kind)


def _unquoted(annotation: ast.expr) -> ast.expr:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            return ast.copy_location(ast.parse(annotation.value, mode="eval").body, annotation)
        except SyntaxError:
            return annotation
    return annotation


def _base(kind: ast.expr) -> str:
    match kind:
        case ast.Name(id=name) | ast.Subscript(value=ast.Name(id=name)):
            return name.lower()
    return ""


def _element(kind: ast.expr) -> ast.expr | None:
    """The kind of the elements of a list or of a tuple of any length; None for other kinds."""
    match kind:
        case ast.Name(id="list" | "List"):
            return ast.Name("int", ast.Load())
        case ast.Subscript(value=ast.Name(id="list" | "List" | "Sequence"), slice=element):
            return element if isinstance(element, ast.Name) and element.id in _SCALARS else None
        case ast.Subscript(value=ast.Name(id="tuple" | "Tuple"), slice=ast.Tuple(elts=[element, ast.Constant() as e])):
            return element if e.value is ... else None
    return None


def plain(value: Value, model: Any, state: State) -> Any:
    """The plain Python value of a symbolic one in a model."""
    if isinstance(value, Choice):
        for condition, each in value.alternatives:
            if z3.is_true(model.eval(term(condition), model_completion=True)):
                return plain(each, model, state)
        return None
    if isinstance(value, ListRef):
        return list(plain(state.heap[value.number], model, state))
    if isinstance(value, Items):
        return tuple(plain(item, model, state) for item in value.items)
    if not isinstance(value, z3.ExprRef):
        return float(value) if isinstance(value, Fraction) else value
    return plain_number(model.eval(value, model_completion=True))


def plain_number(found: Term) -> bool | int | float:
    """A z3 constant as Python writes it; a real becomes the nearest float."""
    if z3.is_true(found) or z3.is_false(found):
        return bool(z3.is_true(found))
    if z3.is_int_value(found):
        return int(found.as_long())
    if z3.is_algebraic_value(found):
        found = found.approx(20)
    exact = Fraction(found.numerator_as_long(), found.denominator_as_long())
    try:
        return float(exact)
    except OverflowError:
        return float("inf") if exact > 0 else float("-inf")


def written(values: Mapping[str, Any] | Sequence[tuple[str, Any]]) -> str:
    """``x = 1, y = [2, 3]``."""
    rows = values.items() if isinstance(values, Mapping) else values
    return ", ".join(f"{name} = {value!r}" for name, value in rows)
