"""A thread for work that the machine's kernel may never let end."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable


class Helper:
    """Does the same work each time it is asked to, in a thread of its own that begins with the first time.

    A pool of threads takes twice as long until the work begins, and the loop as long again until it hears of the end.

    Args:
        work: returns how long it took, in seconds; must not raise.
    """

    def __init__(self, work: Callable[[], float]) -> None:
        self._work, self._took_s = work, 0.0
        self._asked, self._done = threading.Lock(), threading.Lock()
        self._asked.acquire()
        self._done.acquire()
        self._begun = self._running = self._closed = False
        self._told: Callable[[], None] = lambda: None
        self._end: asyncio.Future[float] | None = None

    # ------------------------------------------------------------ for the loop's thread

    def begin(self) -> None:
        """Let it work, unless it does; returns at once."""
        if self._closed or self.busy:
            return
        self._running, self._end = True, None
        if not self._begun:
            self._begun = True
            threading.Thread(target=self._serve, name="helper", daemon=True).start()
        self._asked.release()

    @property
    def busy(self) -> bool:
        """Whether it works."""
        return not self.wait(0.0)

    def wait(self, seconds: float) -> bool:
        """Block for so long at most; whether it has ended."""
        if self._running and self._done.acquire(timeout=seconds):
            self._running = False
        return not self._running

    def end(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[float]:
        """What will have how long it took. `begin` makes a new one."""
        if self._end is None:
            self._end = end = loop.create_future()

            def tell() -> None:
                if not end.done() and not (end is self._end and self.busy):
                    end.set_result(self._took_s)

            def told() -> None:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(tell)

            self._told = told
            tell()  # it may have ended before it knew whom to tell
        return self._end

    def close(self) -> None:
        """Let the thread end, as soon as it can; idempotent."""
        if not self._closed:
            self._closed = True
            if not self._running:
                self._asked.release()

    # ------------------------------------------------------------ the thread

    def _serve(self) -> None:
        while True:
            self._asked.acquire()
            if self._running:  # else it is asked to end
                self._took_s = self._work()
                self._done.release()
                self._told()
            if self._closed:
                return
