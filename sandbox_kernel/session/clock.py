"""The wall time that a cell may take."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable

_SHORTEST_S = 0.001


class Clock:
    """Calls back when a cell has used up its time. What it waits for its host is not counted."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._on_end: Callable[[], None] = _nothing
        self._left_s = 0.0
        self._cell = self._pauses = 0

    def start(self, loop: asyncio.AbstractEventLoop, seconds: float, on_end: Callable[[], None]) -> None:
        """Begin to count; `on_end` is called once, unless `stop` comes before."""
        self.stop()
        self._loop, self._left_s, self._on_end = loop, seconds, on_end
        self._pauses = 0
        self._run()

    def stop(self) -> None:
        """Forget the cell; idempotent."""
        self._halt()
        self._left_s = 0.0
        self._cell += 1

    def pause(self) -> Callable[[], None]:
        """The cell waits, until what is returned is called. Several waits may overlap."""
        self._pauses += 1
        if self._timer is not None:
            self._left_s = max(_SHORTEST_S, self._timer.when() - self._loop.time())
            self._halt()
        return functools.partial(self._resume, self._cell)

    def _resume(self, cell: int) -> None:
        if cell == self._cell:  # else that cell has ended
            self._pauses -= 1
            if not self._pauses and self._left_s:
                self._run()

    def _run(self) -> None:
        self._timer = self._loop.call_later(self._left_s, self._end)

    def _halt(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        self.stop()
        self._on_end()


def _nothing() -> None:
    """Until a cell starts."""
