"""Work for the loop's thread that another thread waits for, in as few rounds of the loop as there can be.

`asyncio.run_coroutine_threadsafe` takes two rounds before the work begins and two more after it has ended. For a small
value in or out they cost as much as the sandbox does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


def hand_over(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> Future[T]:
    """Have a coroutine run on the loop of another thread. To cancel what is returned cancels it.

    Its first step, up to where it has to wait, belongs to no task.

    Raises:
        RuntimeError: the loop is closed.
    """
    future: Future[T] = Future()
    try:
        loop.call_soon_threadsafe(_begin, loop, work, future)
    except BaseException:
        work.close()
        raise
    return future


def _begin(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], future: Future[T]) -> None:
    carried = _carried(work, future)
    try:
        waits_for = carried.send(None)
    except (StopIteration, asyncio.CancelledError):
        return
    task = loop.create_task(_Rest(carried, waits_for))

    def follow(done: Future[T]) -> None:
        if done.cancelled():
            loop.call_soon_threadsafe(task.cancel)

    future.add_done_callback(follow)


async def _carried(work: Coroutine[Any, Any, T], future: Future[T]) -> None:
    try:
        result = await work
    except asyncio.CancelledError:
        future.cancel()
        future.set_running_or_notify_cancel()
        raise
    except BaseException as error:
        if future.set_running_or_notify_cancel():
            future.set_exception(error)
        if isinstance(error, (SystemExit, KeyboardInterrupt)):
            raise
    else:
        if future.set_running_or_notify_cancel():
            future.set_result(result)
    finally:
        del work, future  # an error keeps this frame, and the future keeps the error


class _Rest(Coroutine[Any, Any, None]):
    """A coroutine after its first step, for a task to go on with; that has to hear first what is waited for."""

    def __init__(self, work: Coroutine[Any, Any, None], waits_for: Any) -> None:
        self._work, self._waits_for, self._told = work, waits_for, False

    def send(self, value: Any) -> Any:
        """Go on."""
        if self._told:
            return self._work.send(value)
        self._told = True
        return self._waits_for

    def throw(self, *error: Any) -> Any:
        """Go on with an error."""
        self._told = True
        return self._work.throw(*error)

    def close(self) -> None:
        """End it."""
        self._work.close()

    def __await__(self) -> Any:
        """It has been awaited: what is left is for a task only."""
        raise RuntimeError("only a task can go on with this")
