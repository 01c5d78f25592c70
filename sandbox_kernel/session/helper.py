"""A thread for work that the machine's kernel may never let end."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

BRIEF_S = 0.002  # that the whole front waits for a thread: it has nothing else to do in most cases
_T = TypeVar("_T")


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
        if not self._begun:
            threading.Thread(target=self._serve, name="helper", daemon=True).start()
            self._begun = True
        if self._end is not None and not self._end.done():  # the thread may hear of the next one before it tells
            self._end.set_result(self._took_s)
        self._running, self._end = True, None
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
                if not (end.done() or self.busy):  # (else it was called for the time before)
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
            if not self.busy:  # (else it looks by itself when it is done)
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


class Errands:
    """Work that may block, done in another thread; what is done before that could be noticed waits for no loop."""

    def __init__(self) -> None:
        self._helper = Helper(self._do)
        self._errand: Callable[[], Any] = lambda: None

    def _do(self) -> float:
        began = time.perf_counter()
        self._errand()
        return time.perf_counter() - began

    async def run(self, work: Callable[[], _T]) -> _T:
        """As `asyncio.to_thread`.

        Raises:
            Exception: what `work` raises.
        """
        if self._helper.busy:
            return await asyncio.to_thread(work)
        found: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        outcome: list[Callable[[], None]] = []

        def errand() -> None:
            try:
                value = work()
                outcome.append(lambda: found.set_result(value))
            except BaseException as error:
                fault = error
                outcome.append(lambda: found.set_exception(fault))

        self._errand = errand
        self._helper.begin()
        if not self._helper.wait(BRIEF_S):
            await asyncio.wait([self._helper.end(asyncio.get_running_loop())])
        if not outcome:  # it was closed
            return await asyncio.to_thread(work)
        outcome[0]()
        return await found

    def close(self) -> None:
        """Let the thread end; what is run later is run in another one. Idempotent."""
        self._helper.close()
