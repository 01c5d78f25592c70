"""Telling a worker that can run no cell any more from one that was disturbed."""

from __future__ import annotations


def is_breakage(error: BaseException) -> bool:
    """Whether what runs the cells failed by itself, so that it would fail for the next cell, too.

    Not an interrupt, nor what a cell's own code raises there: a signal handler that was set by a cell runs in between,
    and so may raise anything anywhere. Want of memory passes.
    """
    if not isinstance(error, Exception) or isinstance(error, MemoryError):
        return False
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and last.tb_frame.f_globals.get("__name__") != "__main__"
