"""Telling a worker that can run no cell any more from one that was disturbed."""

from __future__ import annotations

import signal
from types import CodeType


def is_breakage(error: BaseException) -> bool:
    """Whether what runs the cells failed by itself, so that it would fail for the next cell, too.

    Not an interrupt, nor what a signal handler raises: one that was set by a cell runs in between, and so may raise
    anything anywhere. Want of memory passes.
    """
    if not isinstance(error, Exception) or isinstance(error, MemoryError):
        return False
    handlers, trace = _handlers(), error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return False
        trace = trace.tb_next
    return True


def _handlers() -> set[CodeType]:
    """The code of the signal handlers that are set now."""
    found = set()
    for number in signal.valid_signals():
        handler: object = signal.getsignal(number)
        if not callable(handler):  # SIG_DFL, say: an enum's member, and the call of an enum's type is none of a handler
            continue
        handler = getattr(handler, "func", handler)  # of a partial
        handler = getattr(handler, "__func__", handler)
        code = getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)
        if isinstance(code, CodeType):
            found.add(code)
    return found
