"""Whose session it is, how many there may be, and when one ends. With sandboxes that are none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sandbox_kernel.errors import IsolationUnavailable, PolicyRefusal
from sandbox_kernel.mcp.sessions import Caller, Sessions

ANN, BOB = Caller("token 0", "connection of Ann"), Caller("token 0", "connection of Bob")
KEEPS_NOTHING = Caller("token 0")


class Box:
    def __init__(self, fails: bool = False) -> None:
        self.started = self.closed = False
        self.fails = fails

    async def start(self) -> None:
        await asyncio.sleep(0)
        if self.fails:
            raise IsolationUnavailable("full", "namespaces", "none")
        self.started = True

    async def close(self) -> None:
        self.closed = True

    async def fork(self) -> Box:
        twin = Box()
        await twin.start()
        return twin


def with_sessions(work: Callable[[Sessions, list[Any]], Awaitable[None]], fails: int = 0, **options: Any) -> None:
    """Runs it with the sessions, and the sandboxes that they make."""
    boxes: list[Any] = []

    def make() -> Any:
        boxes.append(Box(fails=len(boxes) < fails))
        return boxes[-1]

    async def main() -> None:
        sessions = Sessions(make, **options)
        await work(sessions, boxes)
        await sessions.close()
        assert all(box.closed for box in boxes if not box.fails)

    asyncio.run(main())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def test_a_connection_has_a_session_of_its_own() -> None:
    async def work(sessions: Sessions, boxes: list[Any]) -> None:
        async with sessions.use(ANN) as first, sessions.use(ANN) as again, sessions.use(BOB) as other:
            assert first is again
            assert first.sandbox is not other.sandbox
            async with sessions.use(ANN, first.handle) as named:
                assert named is first
        assert len(boxes) == 2

    with_sessions(work)


def test_who_keeps_nothing_names_the_session_or_gets_another() -> None:
    async def work(sessions: Sessions, boxes: list[Any]) -> None:
        async with sessions.use(KEEPS_NOTHING) as first, sessions.use(KEEPS_NOTHING) as other:
            assert first is not other
        async with sessions.use(KEEPS_NOTHING, first.handle) as again:
            assert again is first

    with_sessions(work)


@pytest.mark.parametrize("stranger", [BOB, Caller("token 1", ANN.connection), KEEPS_NOTHING, Caller("token 1")])
def test_nobody_else_has_it_though_the_name_is_known(stranger: Caller) -> None:
    async def work(sessions: Sessions, boxes: list[Any]) -> None:
        async with sessions.use(ANN) as place:
            handle = place.handle
        with pytest.raises(PolicyRefusal, match="There is no session") as known:
            await sessions.use(stranger, handle).__aenter__()
        with pytest.raises(PolicyRefusal) as unknown:
            await sessions.use(stranger, "x").__aenter__()
        assert str(known.value).replace(handle, "x") == str(unknown.value)  # not even that it exists

    with_sessions(work)


def test_there_are_no_more_than_allowed() -> None:
    async def work(sessions: Sessions, boxes: list[Any]) -> None:
        async with sessions.use(ANN), sessions.use(BOB) as place:
            with pytest.raises(PolicyRefusal, match="All 2 sessions"):
                await sessions.use(KEEPS_NOTHING).__aenter__()
            assert len(boxes) == 2
            sessions.end(place, "it was ended")
            async with sessions.use(KEEPS_NOTHING):
                assert len(sessions) == 2

    with_sessions(work, most=2)


def test_forks_that_are_on_their_way_count() -> None:
    async def work(sessions: Sessions, boxes: list[Any]) -> None:
        async with sessions.use(ANN) as place:
            done = await asyncio.gather(*(sessions.fork(place) for _ in range(8)), return_exceptions=True)
        assert len(sessions) == 3
        assert sum(isinstance(outcome, PolicyRefusal) for outcome in done) == 6

    with_sessions(work, most=3)


def test_one_that_nobody_uses_ends_and_its_client_is_told() -> None:
    async def work(sessions: Sessions, boxes: list[Any]) -> None:
        async with sessions.use(ANN) as place:
            handle = place.handle
        await until(lambda: len(sessions) == 0)
        await until(lambda: bool(boxes[0].closed))
        with pytest.raises(PolicyRefusal, match="It has ended: nobody used it"):
            await sessions.use(ANN, handle).__aenter__()
        async with sessions.use(ANN) as fresh:
            assert "has ended: nobody used it" in fresh.note
            assert "lost" in fresh.note

    with_sessions(work, idle_s=0.02)


def test_one_that_is_used_does_not_end() -> None:
    async def work(sessions: Sessions, boxes: list[Any]) -> None:
        async with sessions.use(ANN):
            async with sessions.use(ANN):
                pass
            async with sessions.use(BOB):
                pass
            await until(lambda: bool(boxes[1].closed))  # whose time began later
            assert not boxes[0].closed

    with_sessions(work, idle_s=0.02)


def test_a_client_that_leaves_takes_its_sessions_with_it() -> None:
    async def work(sessions: Sessions, boxes: list[Any]) -> None:
        async with sessions.use(ANN), sessions.use(BOB):
            sessions.leave(ANN)
        await until(lambda: bool(boxes[0].closed))
        assert not boxes[1].closed

    with_sessions(work)


def test_a_sandbox_that_cannot_start_takes_no_place() -> None:
    async def work(sessions: Sessions, boxes: list[Any]) -> None:
        with pytest.raises(IsolationUnavailable):
            await sessions.use(ANN).__aenter__()
        async with sessions.use(ANN):
            assert boxes[1].started

    with_sessions(work, fails=1, most=1)


def test_the_first_one_is_started_before_anybody_calls() -> None:
    async def work(sessions: Sessions, boxes: list[Any]) -> None:
        await sessions.prepare()
        assert boxes[0].started
        async with sessions.use(ANN) as place:
            assert place.sandbox is boxes[0]
        async with sessions.use(BOB) as place:
            assert place.sandbox is boxes[1]

    with_sessions(work)


def test_a_fork_is_a_session_of_its_caller_and_keeps_the_first_one_alive() -> None:
    async def work(sessions: Sessions, boxes: list[Any]) -> None:
        async with sessions.use(ANN) as place:
            branch = await sessions.fork(place)
            with pytest.raises(PolicyRefusal, match="All 2 sessions"):
                await sessions.fork(place)
        with pytest.raises(PolicyRefusal, match="There is no session"):
            await sessions.use(BOB, branch.handle).__aenter__()
        async with sessions.use(ANN, branch.handle) as again:
            assert again is branch
            await asyncio.sleep(0.05)
            assert len(sessions) == 2, "the first one's time does not run"
        await until(lambda: len(sessions) == 0)
        with pytest.raises(PolicyRefusal, match="has ended"):
            await sessions.use(ANN, branch.handle).__aenter__()
        assert branch.sandbox.closed

    with_sessions(work, most=2, idle_s=0.02)


def test_forks_end_with_the_session_that_was_there_first() -> None:
    async def work(sessions: Sessions, boxes: list[Any]) -> None:
        async with sessions.use(ANN) as place:
            branch = await sessions.fork(await sessions.fork(place))
            sessions.end(place, "you have ended it")
        assert len(sessions) == 0
        with pytest.raises(PolicyRefusal, match="forked from has ended"):
            await sessions.use(ANN, branch.handle).__aenter__()

    with_sessions(work)
