"""Values that may be symbolic: numbers, truth values, sequences, and one of several.

A number or truth value that is known is a plain Python value (a float is the Fraction that it exactly is); one that is
not is a z3 term. What cannot be one term (an int or None, lists of several lengths) is a `Choice`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import z3

from .subset import Outside

Term = Any  # a z3 expression: the package has no types
Value = Any
_MOST_ALTERNATIVES = 64


class Unbound:
    """A local name that has no value yet."""


class Forgotten:
    """A local name of which nothing is known any more, not even whether it is bound."""


UNBOUND = Unbound()
FORGOTTEN = Forgotten()


@dataclass(frozen=True)
class Items:
    """A tuple, or what a list holds."""

    items: tuple[Value, ...]
    kind: str = "tuple"


@dataclass(frozen=True)
class ListRef:
    """A list: which one it is; what it holds is in the heap."""

    number: int


@dataclass(frozen=True)
class Range:
    """A range with a known step."""

    start: Value
    stop: Value
    step: int


@dataclass(frozen=True)
class Choice:
    """One of several values; exactly one of the conditions holds."""

    alternatives: tuple[tuple[Term, Value], ...]


# ------------------------------------------------------------ kinds


def is_bool(value: Value) -> bool:
    return isinstance(value, (bool, z3.BoolRef))


def is_int(value: Value) -> bool:
    if isinstance(value, z3.ArithRef):
        return bool(value.is_int())
    return isinstance(value, int) and not isinstance(value, bool)


def is_real(value: Value) -> bool:
    return isinstance(value, Fraction) or (isinstance(value, z3.ArithRef) and value.is_real())


def is_number(value: Value) -> bool:
    return is_bool(value) or is_int(value) or is_real(value)


def is_plain(value: Value) -> bool:
    """Whether a number is known."""
    return isinstance(value, (bool, int, Fraction))


def kind_of(value: Value) -> str:
    """The value's kind for a person."""
    if value is None:
        return "None"
    names = ((is_bool, "bool"), (is_int, "int"), (is_real, "float"))
    found = [name for test, name in names if test(value)]
    if found:
        return found[0]
    return {"Items": "tuple", "ListRef": "list", "Range": "range", "str": "str",
            "Choice": "value of several shapes"}.get(type(value).__name__, "value")


# ------------------------------------------------------------ logic


def all_of(conditions: Iterable[Term]) -> Term:
    parts = []
    for condition in conditions:
        if condition is False:
            return False
        if condition is not True:
            parts.append(condition)
    return True if not parts else parts[0] if len(parts) == 1 else z3.And(*parts)


def any_of(conditions: Iterable[Term]) -> Term:
    parts = []
    for condition in conditions:
        if condition is True:
            return True
        if condition is not False:
            parts.append(condition)
    return False if not parts else parts[0] if len(parts) == 1 else z3.Or(*parts)


def negated(condition: Term) -> Term:
    return not condition if isinstance(condition, bool) else z3.Not(condition)


def term(value: Value) -> Term:
    """A number or truth value as z3 takes it."""
    if isinstance(value, bool):
        return z3.BoolVal(value)
    if isinstance(value, int):
        return z3.IntVal(value)
    if isinstance(value, Fraction):
        return z3.RealVal(value)
    return value


def as_int(value: Value) -> Value:
    """A truth value as the number that Python counts it as; other numbers unchanged."""
    if isinstance(value, bool):
        return int(value)
    return z3.If(value, z3.IntVal(1), z3.IntVal(0)) if isinstance(value, z3.BoolRef) else value


def as_real(value: Value) -> Value:
    value = as_int(value)
    if isinstance(value, int):
        return Fraction(value)
    return z3.ToReal(value) if isinstance(value, z3.ArithRef) and value.is_int() else value


def alike(left: Value, right: Value) -> tuple[Value, Value]:
    """Two numbers as numbers of one kind."""
    if is_real(left) or is_real(right):
        return as_real(left), as_real(right)
    return as_int(left), as_int(right)


# ------------------------------------------------------------ one of several


def merge(alternatives: Sequence[tuple[Term, Value]]) -> Value:
    """One value out of several, of which exactly one condition holds."""
    flat: list[tuple[Term, Value]] = []
    for condition, value in alternatives:
        if condition is False:
            continue
        if isinstance(value, Choice):
            flat += [(all_of((condition, inner)), each) for inner, each in value.alternatives]
        else:
            flat.append((condition, value))
    groups: list[tuple[Term, Value]] = []
    for condition, value in flat:
        for index, (other, known) in enumerate(groups):
            joined = _join(condition, value, known)
            if joined is not None:
                groups[index] = (any_of((other, condition)), joined[0])
                break
        else:
            groups.append((condition, value))
    if len(groups) == 1:
        return groups[0][1]
    if len(groups) > _MOST_ALTERNATIVES:
        raise Outside("values of too many different shapes at once")
    return Choice(tuple(groups))


def _join(condition: Term, value: Value, other: Value) -> tuple[Value] | None:
    """`value` where the condition holds, else `other`, as one value; None when they have different shapes."""
    if value is other:
        return (value,)
    if is_number(value) and is_number(other):
        if type(value) is type(other) and is_plain(value) and value == other:
            return (value,)
        if condition is True:
            return (value,)
        if is_bool(value) and is_bool(other):
            return (z3.If(condition, term(value), term(other)),)
        left, right = alike(value, other)
        return (z3.If(condition, term(left), term(right)),)
    if isinstance(value, Items) and isinstance(other, Items):
        if value.kind != other.kind or len(value.items) != len(other.items):
            return None
        joined = [_join(condition, one, two) for one, two in zip(value.items, other.items, strict=True)]
        found = [part[0] for part in joined if part is not None]
        return (Items(tuple(found), value.kind),) if len(found) == len(joined) else None
    if isinstance(value, Range) and isinstance(other, Range):
        if value.step != other.step:
            return None
        start, stop = _join(condition, value.start, other.start), _join(condition, value.stop, other.stop)
        return (Range(start[0], stop[0], value.step),) if start and stop else None
    if type(value) is type(other) and isinstance(value, (str, ListRef)) and value == other:
        return (value,)
    return None


def alternatives(value: Value) -> Iterator[tuple[Term, Value]]:
    """(condition, value without choice) for each that it may be."""
    if isinstance(value, Choice):
        yield from value.alternatives
    else:
        yield True, value


def spread(values: Sequence[Value], function: Callable[[Term, list[Value]], Value]) -> Value:
    """A function of values without choice, for values that may have one: `function(condition, values)`."""
    combined: list[tuple[Term, list[Value]]] = [(True, [])]
    for value in values:
        combined = [(all_of((condition, inner)), [*chosen, each])
                    for condition, chosen in combined for inner, each in alternatives(value)]  # fmt: skip
    if len(combined) > _MOST_ALTERNATIVES:
        raise Outside("values of too many different shapes at once")
    return merge([(condition, function(condition, chosen)) for condition, chosen in combined])
