"""Python's operators on values that may be symbolic, as z3 terms that mean exactly the same.

Integers have no bounds. ``//`` and ``%`` round down, as in Python; z3's own ``div`` rounds so that the remainder is
never negative. Floats are taken as real numbers, which whoever asks is told.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import z3

from .subset import Outside
from .values import (
    Items,
    Term,
    Value,
    alike,
    all_of,
    any_of,
    as_int,
    as_real,
    is_bool,
    is_int,
    is_number,
    is_plain,
    is_real,
    kind_of,
    negated,
    term,
)

Fail = Callable[[str, Term], None]  # (exception, condition under which it is raised)
_MOST_POWER = 64
_MOST_BITS = 4096
_ORDERED = ("bool", "int", "float", "tuple")


def truth(value: Value) -> Term:
    """``bool(value)`` of a value without choice; lists are looked up before."""
    if is_bool(value):
        return value
    if is_number(value):
        return value != 0
    if value is None:
        return False
    if isinstance(value, (str, Items)):
        return len(value) > 0 if isinstance(value, str) else len(value.items) > 0
    raise Outside(f"the truth of a {kind_of(value)}")


@dataclass(frozen=True)
class Notes:
    """What an operation tells besides its value.

    Attributes:
        fail: under which condition it raises what; the value is then arbitrary.
        inexact: the result is a float.
        quotient: the whole quotient of two integers, as a number of which just that is known.
    """

    fail: Fail
    inexact: Callable[[], None]
    quotient: Callable[[Term, Term], Term]


def binary(op: ast.operator, left: Value, right: Value, notes: Notes) -> Value:
    """``left op right`` of two numbers."""
    fail = notes.fail
    if is_bool(left) and is_bool(right) and isinstance(op, (ast.BitAnd, ast.BitOr, ast.BitXor)):
        return _logic(op, left, right)
    left, right = as_int(left), as_int(right)
    fraction = isinstance(op, ast.Div) or (isinstance(op, ast.Pow) and isinstance(right, int) and right < 0)
    if is_real(left) or is_real(right) or fraction:
        notes.inexact()
    match op:
        case ast.Add() | ast.Sub() | ast.Mult():
            one, two = alike(left, right)
            return one + two if isinstance(op, ast.Add) else one - two if isinstance(op, ast.Sub) else one * two
        case ast.Div():
            return _divide(as_real(left), as_real(right), fail)
        case ast.FloorDiv() | ast.Mod():
            return _floor(op, *alike(left, right), notes)
        case ast.Pow():
            return _power(left, right, fail)
        case ast.LShift() | ast.RShift():
            return _shift(op, left, right, notes)
        case ast.BitAnd() | ast.BitOr() | ast.BitXor():
            return _bits(op, left, right, notes)
    raise Outside(f"the operator {type(op).__name__}")


def _logic(op: ast.operator, left: Value, right: Value) -> Value:
    if isinstance(op, ast.BitAnd):
        return all_of((left, right))
    if isinstance(op, ast.BitOr):
        return any_of((left, right))
    return left != right if is_plain(left) and is_plain(right) else z3.Xor(term(left), term(right))


def _divide(left: Value, right: Value, fail: Fail) -> Value:
    if is_plain(right):
        if right == 0:
            fail("ZeroDivisionError", True)
            return Fraction(0)
        return left / right if is_plain(left) else left / term(right)
    fail("ZeroDivisionError", right == 0)
    return term(left) / right


def _floor(op: ast.operator, left: Value, right: Value, notes: Notes) -> Value:
    fail = notes.fail
    want = isinstance(op, ast.FloorDiv)
    if is_plain(right) and right == 0:
        fail("ZeroDivisionError", True)
        return right
    if is_plain(left) and is_plain(right):
        found = left // right if want else left % right
        return Fraction(found) if isinstance(left, Fraction) else found
    if not is_plain(right):
        fail("ZeroDivisionError", right == 0)
    one, two = term(left), term(right)
    if is_real(left):
        whole = z3.ToReal(z3.ToInt(one / two))  # ToInt rounds down
        return whole if want else one - two * whole
    if is_plain(right):
        return (one / two if want else one % two) if right > 0 else (-one / -two if want else -(-one % -two))
    whole = notes.quotient(one, two)
    return whole if want else one - two * whole


def is_quotient(whole: Term, left: Term, right: Term) -> Term:
    """What defines ``whole == left // right``, for a divisor that is not zero.

    z3 decides much more when it is told this than when it is given its own ``div`` by a number that is not known.
    """
    rest = left - right * whole
    return z3.And(z3.Implies(right > 0, z3.And(rest >= 0, rest < right)),
                  z3.Implies(right < 0, z3.And(rest <= 0, rest > right)))  # fmt: skip


def _power(left: Value, right: Value, fail: Fail) -> Value:
    if not isinstance(right, int):
        raise Outside("a power whose exponent is not a known whole number")
    if abs(right) > _MOST_POWER or (isinstance(left, int) and left.bit_length() * abs(right) > _MOST_BITS):
        raise Outside("a power this large")
    result: Value = 1 if not is_real(left) else Fraction(1)
    for _ in range(abs(right)):
        result = result * left if is_plain(result) and is_plain(left) else term(result) * term(left)
    if right >= 0:
        return result
    return _divide(Fraction(1), as_real(result), fail)


def _shift(op: ast.operator, left: Value, right: Value, notes: Notes) -> Value:
    fail = notes.fail
    if not is_int(left) or not is_int(right):
        fail("TypeError", True)
        return 0
    if not isinstance(right, int):
        raise Outside("a shift by a number that is not known")
    if right < 0:
        fail("ValueError", True)
        return 0
    if right > _MOST_BITS:
        raise Outside("a shift this large")
    if isinstance(op, ast.LShift):
        return left * 2**right
    return _floor(ast.FloorDiv(), left, 2**right, notes)


def _bits(op: ast.operator, left: Value, right: Value, notes: Notes) -> Value:
    fail = notes.fail
    if not is_int(left) or not is_int(right):
        fail("TypeError", True)
        return 0
    if isinstance(left, int) and isinstance(right, int):
        known = {ast.BitAnd: left & right, ast.BitOr: left | right, ast.BitXor: left ^ right}
        return known[type(op)]
    if isinstance(left, int):
        left, right = right, left
    if isinstance(op, ast.BitAnd) and isinstance(right, int) and right >= 0 and right & (right + 1) == 0:
        return _floor(ast.Mod(), left, right + 1, notes)  # the lowest bits, of negative numbers too
    raise Outside("a bit operation on numbers that are not known")


def unary(op: ast.unaryop, value: Value, fail: Fail) -> Value:
    """``-x``, ``+x``, ``~x`` of a number."""
    number = as_int(value)
    match op:
        case ast.USub():
            return -number
        case ast.UAdd():
            return number
        case ast.Invert():
            if is_int(number):
                return -number - 1
            fail("TypeError", True)
            return number
    raise Outside("this operator")


def compare(op: ast.cmpop, left: Value, right: Value, fail: Fail) -> Term:
    """A comparison of two values without choice, lists replaced by what they hold."""
    match op:
        case ast.Eq():
            return equal(left, right)
        case ast.NotEq():
            return negated(equal(left, right))
        case ast.Is() | ast.IsNot():
            return _identical(left, right) == isinstance(op, ast.Is)
        case ast.Lt():
            return less(left, right, False, fail)
        case ast.LtE():
            return less(left, right, True, fail)
        case ast.Gt():
            return less(right, left, False, fail)
        case ast.GtE():
            return less(right, left, True, fail)
    raise Outside("this comparison")


def _identical(left: Value, right: Value) -> bool:
    if left is None or right is None:
        return left is right
    raise Outside("`is` with anything but None")


def equal(left: Value, right: Value) -> Term:
    """``left == right``."""
    if is_number(left) and is_number(right):
        if is_bool(left) and is_bool(right):
            return left == right if is_plain(left) and is_plain(right) else term(left) == term(right)
        one, two = alike(left, right)
        return one == two
    if isinstance(left, Items) and isinstance(right, Items):
        if left.kind != right.kind or len(left.items) != len(right.items):
            return False
        return all_of(equal(one, two) for one, two in zip(left.items, right.items, strict=True))
    plain = (str, type(None))
    if isinstance(left, plain) and isinstance(right, plain):
        return left == right
    if any(not is_number(value) and not isinstance(value, (*plain, Items)) for value in (left, right)):
        raise Outside(f"a comparison of a {kind_of(left)} with a {kind_of(right)}")
    return False


def less(left: Value, right: Value, or_equal: bool, fail: Fail) -> Term:
    """``left < right`` or ``left <= right``."""
    if is_number(left) and is_number(right):
        one, two = alike(left, right)
        return one <= two if or_equal else one < two
    if isinstance(left, Items) and isinstance(right, Items) and left.kind == right.kind:
        pairs = list(zip(left.items, right.items, strict=False))
        result: Term = len(left.items) <= len(right.items) if or_equal else len(left.items) < len(right.items)
        for one, two in reversed(pairs):
            if kind_of(one) not in _ORDERED or (is_number(one) != is_number(two)):
                raise Outside("an order of tuples that hold other things than numbers")
            same, below = equal(one, two), less(one, two, False, fail)
            result = any_of((all_of((negated(same), below)), all_of((same, result))))
        return result
    if isinstance(left, str) or isinstance(right, str):
        raise Outside("an order of texts")
    fail("TypeError", True)
    return False


def whole(value: Value) -> Value:
    """``int(value)`` of a number: rounds towards zero."""
    value = as_int(value)
    if is_int(value):
        return value
    if isinstance(value, Fraction):
        return int(value)
    return z3.If(value >= 0, z3.ToInt(value), -z3.ToInt(-value))


def absolute(value: Value) -> Value:
    """``abs(value)`` of a number."""
    value = as_int(value)
    return abs(value) if is_plain(value) else z3.If(value >= 0, value, -value)


def choose(condition: Term, value: Value, other: Value) -> Any:
    """One of two numbers."""
    if isinstance(condition, bool):
        return value if condition else other
    if is_bool(value) and is_bool(other):
        return z3.If(condition, term(value), term(other))
    one, two = alike(value, other)
    return z3.If(condition, term(one), term(two))
