"""The wall time of a cell, and what of it does not count."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from sandbox_kernel.session.clock import Clock


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 10))


def test_calls_back_once() -> None:
    async def test() -> None:
        ended = asyncio.Event()
        Clock().start(asyncio.get_running_loop(), 0.01, ended.set)
        await ended.wait()

    run(test())


def test_a_pause_does_not_count_and_pauses_may_overlap() -> None:
    async def test() -> None:
        loop, clock, ended = asyncio.get_running_loop(), Clock(), asyncio.Event()
        clock.start(loop, 0.05, ended.set)
        first, second = clock.pause(), clock.pause()
        first()
        await asyncio.sleep(0.1)
        assert not ended.is_set()
        second()
        before = loop.time()
        await ended.wait()
        assert loop.time() - before > 0.02

    run(test())


def test_what_an_old_cell_waited_for_is_nothing_to_the_next_one() -> None:
    async def test() -> None:
        loop, clock, ended = asyncio.get_running_loop(), Clock(), asyncio.Event()
        clock.start(loop, 5, ended.set)
        resume = clock.pause()
        clock.stop()
        clock.start(loop, 0.01, ended.set)
        hold = clock.pause()
        resume()
        await asyncio.sleep(0.05)
        assert not ended.is_set()
        hold()
        await ended.wait()

    run(test())


def test_nothing_happens_after_the_end() -> None:
    async def test() -> None:
        clock, ended = Clock(), asyncio.Event()
        clock.start(asyncio.get_running_loop(), 0.01, ended.set)
        resume = clock.pause()
        clock.stop()
        resume()
        await asyncio.sleep(0.05)
        assert not ended.is_set()

    run(test())
