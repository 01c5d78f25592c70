"""Looks that are taken again and again while a session lives, and that cells can make long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

SHARE = 1 / 50  # of a core that they may take: cells can make millions of names, and each is looked at


class Paced:
    """Takes them until `stop`, with pauses. For the loop's thread.

    Args:
        loop: where it waits.
        look: begins one elsewhere, and has how many seconds it took in the end; None: there is nothing to look at now.
        pause_s: until the next one, at least.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, look: Callable[[], asyncio.Future[float] | None],
        pause_s: Callable[[], float],
    ) -> None:  # fmt: skip
        self._loop, self._look, self._pause_s, self._stopped = loop, look, pause_s, False
        self._wait(0.0)

    def stop(self) -> None:
        """Take no more; idempotent."""
        self._stopped = True
        self._timer.cancel()

    def _wait(self, took_s: float) -> None:
        if not self._stopped:
            self._timer = self._loop.call_later(max(self._pause_s(), took_s / SHARE), self._tick)

    def _tick(self) -> None:
        look = self._look()
        if look is None:
            self._wait(0.0)
        else:
            look.add_done_callback(self._done)

    def _done(self, look: asyncio.Future[float]) -> None:
        if not look.cancelled():
            self._wait(look.result())
