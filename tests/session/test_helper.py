"""The thread that does what may never end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from sandbox_kernel.session.helper import Errands, Helper


class Work:
    def __init__(self) -> None:
        self.done, self.held = 0, threading.Event()
        self.threads: set[int] = set()
        self.held.set()

    def __call__(self) -> float:
        self.held.wait(60)
        self.threads.add(threading.get_ident())
        self.done += 1
        return float(self.done)


@pytest.fixture
def work() -> Iterator[Work]:
    work = Work()
    yield work
    work.held.set()


def test_one_thread_for_all_times(work: Work) -> None:
    helper = Helper(work)
    assert not helper.busy and helper.wait(0)
    for done in range(1, 4):
        helper.begin()
        assert helper.wait(60) and not helper.busy and work.done == done
    assert len(work.threads) == 1 and threading.get_ident() not in work.threads
    helper.close()


def test_one_at_a_time(work: Work) -> None:
    work.held.clear()
    helper = Helper(work)
    helper.begin()
    helper.begin()
    assert helper.busy and not helper.wait(0.001)
    work.held.set()
    assert helper.wait(60) and work.done == 1
    helper.close()


def test_the_loop_hears_of_the_end(work: Work) -> None:
    async def listen() -> None:
        loop, helper = asyncio.get_running_loop(), Helper(work)
        assert await helper.end(loop) == 0.0, "nothing was begun"
        for done in (1.0, 2.0, 3.0):
            work.held.clear()
            helper.begin()
            end = helper.end(loop)
            assert helper.end(loop) is end
            await asyncio.sleep(0)
            assert not end.done()
            work.held.set()
            assert await asyncio.wait_for(end, 60) == done and not helper.busy
        helper.begin()
        assert helper.wait(60)
        assert await helper.end(loop) == 4.0, "it had ended already"
        helper.close()

    asyncio.run(listen())


def test_who_ends_it_waits_for_nothing(work: Work) -> None:
    def thread() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.ident in work.threads]

    helper = Helper(work)
    helper.begin()
    assert helper.wait(60)
    (idle,) = thread()
    helper.close()
    helper.close()
    idle.join(60)
    assert not idle.is_alive()
    helper.begin()
    assert not helper.busy and work.done == 1

    busy = Helper(work)
    work.held.clear()
    busy.begin()
    busy.close()
    work.held.set()
    assert busy.wait(60)


class Late:
    """A lock; whoever has released it stands still until it may go on."""

    def __init__(self, lock: Any) -> None:
        self.acquire, self._lock, self.go_on = lock.acquire, lock, threading.Event()

    def release(self) -> None:
        self._lock.release()
        self.go_on.wait(60)


def test_the_loop_hears_of_each_end_however_late_the_thread_tells(work: Work) -> None:
    async def listen() -> None:
        loop, helper = asyncio.get_running_loop(), Helper(work)
        late = Late(helper._done)
        helper._done = late  # type: ignore[assignment]
        helper.begin()
        first = helper.end(loop)
        assert helper.wait(60), "the work is done, but the thread has not told"
        helper.begin()
        second = helper.end(loop)
        late.go_on.set()
        assert [await asyncio.wait_for(end, 60) for end in (first, second)] == [1.0, 2.0]
        helper.close()

    asyncio.run(listen())


def test_it_ends_too_when_nobody_has_asked_whether_the_work_was_done(work: Work) -> None:
    helper, again = Helper(work), threading.Event()
    asked = helper._asked

    class Asked:
        release = asked.release

        def acquire(self) -> bool:
            if work.done:
                again.set()
            return asked.acquire()

    helper._asked = Asked()  # type: ignore[assignment]
    helper.begin()
    assert again.wait(60), "the thread waits for more"
    (idle,) = [thread for thread in threading.enumerate() if thread.ident in work.threads]
    helper.close()
    idle.join(60)
    assert not idle.is_alive()


def test_errands_give_what_the_work_gives_in_another_thread() -> None:
    def wrong() -> None:
        raise ValueError("wrong")

    async def run() -> None:
        errands, here = Errands(), threading.get_ident()
        threads = {await errands.run(threading.get_ident) for _ in range(3)}
        assert len(threads) == 1 and here not in threads
        with pytest.raises(ValueError, match="wrong"):
            await errands.run(wrong)
        errands.close()
        assert await errands.run(lambda: 5) == 5

    asyncio.run(run())


def test_a_long_errand_holds_up_neither_the_loop_nor_another_one() -> None:
    over = threading.Event()

    async def run() -> None:
        errands = Errands()
        first = asyncio.ensure_future(errands.run(lambda: over.wait(60)))
        while not errands._helper.busy:
            await asyncio.sleep(0)
        try:
            assert await errands.run(lambda: 2) == 2 and not first.done()
            broken_off = asyncio.ensure_future(errands.run(lambda: over.wait(60)))
            await asyncio.sleep(0.01)
            broken_off.cancel()
        finally:
            over.set()
        assert await first is True
        assert await errands.run(lambda: 3) == 3
        errands.close()

    asyncio.run(run())
