"""What counts as a worker that can run no cell any more, and what as a disturbance."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sandbox_kernel.worker.breakage import is_breakage


def caught(code: Callable[[], object]) -> BaseException:
    try:
        code()
    except BaseException as error:
        return error
    raise AssertionError("it raised nothing")


def fails(*_args: Any) -> None:
    raise ValueError("broken")


class Handler:
    def __call__(self, number: int, frame: object) -> None:
        fails()

    def method(self, number: int, frame: object) -> None:
        fails()


@pytest.fixture
def handled() -> Iterator[Callable[[Any], object]]:
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda handler: signal.signal(signal.SIGUSR1, handler)
    signal.signal(signal.SIGUSR1, before)


def test_an_error_of_what_runs_cells_is_one_whoever_wrote_it() -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec("def run_cell(*args): raise ValueError('no')", names)
    assert is_breakage(caught(names["run_cell"]))
    assert is_breakage(caught(lambda: None.success))  # type: ignore[attr-defined]


def test_an_enum_that_fails_is_no_signal_handler() -> None:
    """Where a signal has no handler an enum's member says so."""
    error = caught(lambda: signal.Signals(-1))
    assert isinstance(error, ValueError) and is_breakage(error)


def test_interrupts_and_want_of_memory_are_none() -> None:
    for error in (KeyboardInterrupt, SystemExit, MemoryError, GeneratorExit):
        assert not is_breakage(error())


@pytest.mark.parametrize(
    "handler", [fails, Handler(), Handler().method, functools.partial(fails, 1), lambda *_args: fails()]
)
def test_what_a_signal_handler_raises_is_none(handled: Callable[[Any], object], handler: Any) -> None:
    assert is_breakage(caught(lambda: handler(10, None))), "it is none yet"
    handled(handler)
    assert not is_breakage(caught(lambda: signal.raise_signal(signal.SIGUSR1)))
    assert is_breakage(caught(lambda: None.success))  # type: ignore[attr-defined]
