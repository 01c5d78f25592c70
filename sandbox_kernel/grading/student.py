"""The submission as a test sees it: names that can be called, and variables that can be read."""

from __future__ import annotations

import reprlib
import time
from typing import Any

from ..api import Sandbox
from ..errors import CellError, SandboxError

_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 120
_short.maxlist = _short.maxtuple = _short.maxset = _short.maxdict = 8


def short(value: object) -> str:
    """A value in a few words, however large; never an error."""
    try:
        return _short.repr(value)
    except Exception:  # whole numbers of more than 4300 digits, for example
        return f"<{type(value).__name__}>"


class Misused(TypeError):
    """A test used what it was given in a way that has no meaning."""


class NoAttribute(Misused, AttributeError):
    """A test asked the submission for what only the student's session has."""


class Overdue(Exception):
    """The time of a test is up."""


class Clock:
    """The time of one test: all its calls share it.

    Args:
        seconds: from now on.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds, self._end = seconds, time.monotonic() + seconds

    def left(self) -> float:
        """Seconds.

        Raises:
            Overdue: there are none.
        """
        left = self._end - time.monotonic()
        if left <= 0:
            raise Overdue(f"the test took longer than its {self.seconds:g} s")
        return left


class Student:
    """``student.mean([1, 2])`` calls the submission's function, ``student["total"]`` reads its variable.

    Dots go as far as wanted: ``student.stack.push(1)`` calls a method of an object that the submission made. Each
    argument and each value is a copy; the time of the test is that of all its calls.
    """

    def __init__(self, sandbox: Sandbox, clock: Clock) -> None:
        self._sandbox_kernel_box, self._sandbox_kernel_clock = sandbox, clock
        self._sandbox_kernel_last = ""  # what the last call gave, for the report
        self._sandbox_kernel_gave = False  # whether anything that the submission chose has reached the test

    def __getattr__(self, name: str) -> _Name:
        if name.startswith("__") or name.startswith("_sandbox_kernel_"):
            raise AttributeError(name)
        return _Name(self, name)

    def __getitem__(self, name: str) -> Any:
        clock = self._sandbox_kernel_clock
        try:
            value = self._sandbox_kernel_box.get(name, timeout=clock.left())
        except KeyError:
            self._sandbox_kernel_last = ""
            raise AssertionError(f"the submission has no variable {name!r}") from None
        self._sandbox_kernel_last, self._sandbox_kernel_gave = f"{name} is {short(value)}", True
        return value

    def __setitem__(self, name: str, value: Any) -> None:
        self._sandbox_kernel_box.put(name, value, timeout=self._sandbox_kernel_clock.left())

    def _sandbox_kernel_call(self, name: str, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        said = f"{name}({', '.join([*map(short, given), *(f'{key}={short(value)}' for key, value in named.items())])})"
        self._sandbox_kernel_last = said
        box, clock = self._sandbox_kernel_box, self._sandbox_kernel_clock
        try:
            value = box.call(name, *given, **named | {"timeout": clock.left()})
        except CellError as error:
            self._sandbox_kernel_last = f"{said} raised {error.name}"
            raise
        except SandboxError:
            self._sandbox_kernel_last = f"{said} was not answered"
            raise
        self._sandbox_kernel_last, self._sandbox_kernel_gave = f"{said} returned {short(value)}", True
        return value


class _Name:
    """A name of the submission, perhaps with dots."""

    def __init__(self, student: Student, name: str) -> None:
        self._student, self._name = student, name

    def __getattr__(self, name: str) -> _Name:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Name(self._student, f"{self._name}.{name}")

    def __call__(self, *given: Any, **named: Any) -> Any:
        if "timeout" in named:
            raise Misused("`timeout` is the sandbox's own word here; give this argument by its position")
        return self._student._sandbox_kernel_call(self._name, given, named)

    def __bool__(self) -> bool:
        raise Misused(f"student.{self._name} is a name and no value: call it, or read student[{self._name!r}]")

    def __eq__(self, other: object) -> bool:
        return bool(self)

    __hash__ = None  # type: ignore[assignment]
