"""Work that is handed to the loop of another thread."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from typing import Any

import pytest

from sandbox_kernel.api.handover import hand_over
from sandbox_kernel.session.requests import Answer


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """One that runs in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


async def after(rounds: int, value: Any) -> Any:
    for _ in range(rounds):
        await asyncio.sleep(0)
    if isinstance(value, BaseException):
        raise value
    return value


@pytest.mark.parametrize("rounds", [0, 1, 5])
def test_the_result_or_the_error_comes_back(loop: asyncio.AbstractEventLoop, rounds: int) -> None:
    assert hand_over(after(rounds, 42), loop).result(30) == 42
    with pytest.raises(KeyError, match="x"):
        hand_over(after(rounds, KeyError("x")), loop).result(30)


def test_what_is_waited_for_may_take_long_and_fail(loop: asyncio.AbstractEventLoop) -> None:
    async def work(begun: Future[None]) -> str:
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_exception, KeyError("y"))
        begun.set_result(None)
        try:
            await future
        except KeyError:
            return str(await asyncio.to_thread(lambda: "a thread's"))
        return ""

    begun: Future[None] = Future()
    assert hand_over(work(begun), loop).result(30) == "a thread's"


def test_to_cancel_the_future_cancels_the_work(loop: asyncio.AbstractEventLoop) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.sleep(600)
        finally:
            ended.set()

    future = hand_over(work(), loop)
    begun.wait(30)
    assert future.cancel()
    assert ended.wait(30)
    with pytest.raises(CancelledError):
        future.result(30)


@pytest.mark.parametrize("rounds", [0, 1])
def test_work_that_is_cancelled_on_the_loop_ends_the_wait(loop: asyncio.AbstractEventLoop, rounds: int) -> None:
    said: list[object] = []
    loop.set_exception_handler(lambda _loop, context: said.append(context))
    with pytest.raises(CancelledError):
        hand_over(after(rounds, asyncio.CancelledError()), loop).result(30)
    hand_over(after(1, None), loop).result(30)
    assert said == []


def test_a_loop_that_is_closed_is_an_error_and_the_work_never_begins() -> None:
    closed = asyncio.new_event_loop()
    closed.close()
    work = after(0, 1)
    with pytest.raises(RuntimeError, match="closed"):
        hand_over(work, closed)
    with pytest.raises(RuntimeError, match="already awaited"):  # it was closed: nothing warns of it
        work.send(None)


def test_an_error_that_nobody_keeps_is_gone(loop: asyncio.AbstractEventLoop) -> None:
    error = KeyError("z")
    seen = weakref.ref(hand_over(after(1, error), loop))
    hand_over(after(3, None), loop).result(30)
    del error
    gc.disable()
    try:
        hand_over(after(3, None), loop).result(30)
        assert seen() is None
    finally:
        gc.enable()


def test_an_answer_is_waited_for_by_who_is_cancelled() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        asked: list[Any] = []
        answer = Answer(loop, asked.append)

        async def wait() -> dict[str, Any]:
            return await answer

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        task.cancel()
        await asyncio.sleep(0)
        assert asked == [answer] and not task.done()
        answer.set_result({})
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
