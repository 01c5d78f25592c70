"""Signals that are not to be heard: between cells, and in steps that no handler of a cell may break in two."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

_T = TypeVar("_T")
_ALL = frozenset(map(int, signal.valid_signals()))
# What stands behind `signal.pthread_sigmask`, which makes an enum's member of each of the 62 signals that were blocked:
# 70 microseconds for each answer, and twice that beside other work.
_mask: Callable[[int, Any], set[int]] = _signal.pthread_sigmask
# The same for `signal.signal`: 3 microseconds, twice for each request.
handle: Callable[[int, Any], Any] = _signal.signal


def ignore(number: int, frame: FrameType | None) -> None:
    """SIGINT between cells: it was meant for a cell that has ended. (Children would inherit SIG_IGN.)"""


def undisturbed(step: Callable[[], _T]) -> _T:
    """Do a step; handlers of signals that come meanwhile run after it.

    Args:
        step: short, as an interrupt waits for it, too. It keeps what it has done where it is found again: what a
            handler raises comes out of here in place of the result.
    """
    # The call that blocks them also runs the handler of a signal that came just before. What that raises must find
    # the `try` entered, or the signals stay blocked.
    before = _mask(signal.SIG_BLOCK, ())
    try:
        _mask(signal.SIG_BLOCK, _ALL)
        return step()
    finally:
        _mask(signal.SIG_SETMASK, before)
