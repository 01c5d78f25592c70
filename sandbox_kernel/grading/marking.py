"""What a file of tests imports: points, time limits, and exceptions that a student's function is to raise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from ..errors import CellError

F = TypeVar("F", bound=Callable[..., Any])
POINTS, TIMEOUT = "sandbox_kernel_points", "sandbox_kernel_timeout"


def points(value: float) -> Callable[[F], F]:
    """``@points(2)``: what the test is worth; without it 1.

    Raises:
        ValueError: it is negative.
    """
    if not 0 <= value < float("inf"):
        raise ValueError(f"a test cannot be worth {value} points")

    def mark(test: F) -> F:
        setattr(test, POINTS, value)
        return test

    return mark


def timeout(seconds: float) -> Callable[[F], F]:
    """``@timeout(60)``: what the test may take, all its calls together; without it what `grade` is told.

    Raises:
        ValueError: it is not positive.
    """
    if not 0 < seconds < float("inf"):
        raise ValueError(f"a test cannot have {seconds} seconds")

    def mark(test: F) -> F:
        setattr(test, TIMEOUT, seconds)
        return test

    return mark


@contextmanager
def raises(*kinds: str | type[BaseException]) -> Iterator[None]:
    """``with raises("ValueError"): student.mean([])``: the call is to raise this exception, or one below it.

    Several may be named: ``raises("EmptyError", ValueError)``. A class stands for its name: the exception lives in the
    sandbox, whoever wrote it chose what it is called, and says what it is derived from.

    Raises:
        TypeError: no name or class of an exception is given.
        AssertionError: it raised none, or another one.
    """
    names = [_name_of(kind) for kind in kinds]
    if not names:
        raise TypeError("raises() needs the name of an exception, such as raises('ValueError')")
    due = " or ".join(names)
    try:
        yield
    except CellError as error:
        if {error.name, *error.bases} & set(names):
            return
        raise AssertionError(f"it should have raised {due}, and raised {error.name}: {error.value}") from None
    raise AssertionError(f"it should have raised {due}, and raised nothing")


def _name_of(kind: Any) -> str:
    if isinstance(kind, type) and issubclass(kind, BaseException):
        return kind.__name__
    if isinstance(kind, str) and kind.isidentifier():
        return kind
    raise TypeError(f"{kind!r} is neither an exception's name nor its class")
