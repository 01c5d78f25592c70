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
def raises(name: str) -> Iterator[None]:
    """``with raises("ValueError"): student.mean([])``: the call is to raise an exception of a class of that name.

    (The name and not the class: the exception lives in the sandbox, and whoever wrote it chose what it is called.)

    Raises:
        AssertionError: it raised none, or another one.
    """
    try:
        yield
    except CellError as error:
        if error.name == name:
            return
        raise AssertionError(f"it should have raised {name}, and raised {error.name}: {error.value}") from None
    raise AssertionError(f"it should have raised {name}, and raised nothing")
