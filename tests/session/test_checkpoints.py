"""What copies may cost."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sandbox_kernel.session import checkpoints
from sandbox_kernel.session.budget import (
    LOOK_S,
    SHARE,
    Budget,
    first_look_s,
    fork_cost_s,
    gives_up,
    next_look_s,
    ran_s,
)
from sandbox_kernel.session.checkpoints import PAGE_COPY_S, Checkpoints
from sandbox_kernel.session.copies import Copies
from sandbox_kernel.session.proctree import PAGE, Process


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_budget_is_a_share_of_the_time() -> None:
    clock = Clock()
    budget = Budget(clock)
    first = budget.left
    budget.spend(first)
    assert budget.left == 0
    clock.now = 10.0
    assert abs(budget.left - 10 * SHARE) < 1e-9
    clock.now = 10_000.0
    assert budget.left < 10, "what was not used for hours is not spent on one cell"


def test_a_loss_makes_room_for_another_copy() -> None:
    budget = Budget(Clock())
    first = budget.left
    budget.spend(5.0)
    budget.refill()
    assert budget.left == first


def test_a_copy_that_the_next_cell_waits_for_is_paid_from_the_time_since_the_last_one() -> None:
    clock = Clock()
    budget = Budget(clock)
    budget.made(0.02)
    budget.expected_s = 0.01
    clock.now = 3600.0
    assert budget.allows_haste(1.0) and not budget.allows_haste(0.015)
    assert budget.left > 2 * budget.hasty > 0, "what an idle hour has saved is not spent while somebody waits"
    left = budget.left
    budget.hurried()
    assert budget.hasty == pytest.approx(0) and budget.left == left
    assert not budget.allows_haste(1.0)
    clock.now += 0.031 / SHARE
    assert not budget.allows_haste(1.0), "somebody waits for these"
    clock.now += 0.1 / SHARE
    assert budget.allows_haste(1.0)
    budget.made(9.0)
    assert not budget.allows_haste(100.0), "copies are dearer now"
    budget.refill()
    assert budget.allows_haste(100.0), "after a loss the next one is made"


def test_in_a_small_session_the_first_copies_are_made_in_any_case() -> None:
    budget, small, large = Budget(Clock()), 50 << 20, 200 << 20
    budget.made(0.02)
    made = 0
    while budget.allows_haste(1.0, small):
        assert budget.allows_haste(0.01, small), "on a slow machine, too"
        assert not budget.allows_haste(1.0, large)
        budget.hurried(small)
        made += 1
    assert 3 <= made <= 10


def test_after_a_rest_one_more_is_made_should_cells_come_all_at_once() -> None:
    budget = Budget(Clock())
    budget.made(0.04)
    assert not budget.allows_haste(1.0)
    budget.rested()
    assert budget.allows_haste(1.0)
    budget.hurried()
    assert not budget.allows_haste(1.0)


def test_a_copy_costs_what_all_its_processes_take() -> None:
    assert fork_cost_s(0.005, 0.002, waited_s=9.0) == pytest.approx(0.016), "a busy machine makes nothing dearer"
    assert fork_cost_s(0.0, 0.002, waited_s=0.03) == fork_cost_s(0.005, 0.0, waited_s=0.03) == 0.03


def test_the_processor_time_of_a_process_that_is_gone_is_nothing() -> None:
    assert ran_s(-1) == 0
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
        assert ran_s(process.pid) == 0


def test_a_cell_that_writes_little_keeps_its_copy_whatever_the_copy_has_cost() -> None:
    assert not gives_up(copied_s=0.002, lasted_s=1.0, left_s=-3.0)
    assert gives_up(copied_s=0.02, lasted_s=0.1, left_s=-3.0)
    assert not gives_up(copied_s=0.02, lasted_s=0.1, left_s=1.0)
    assert gives_up(copied_s=0.2, lasted_s=1.0, left_s=1.0)


def _process(faults: int, rss: int) -> Process:
    return Process(parent=1, started=1, threads=1, rss=rss * PAGE, cpu_s=0.0, faults=faults)


def test_new_memory_is_not_taken_for_copied_pages() -> None:
    before = _process(faults=100, rss=1000)
    assert _process(faults=600, rss=1500).copied_since(before) == 0, "500 new pages"
    assert _process(faults=600, rss=1000).copied_since(before) == 500 * PAGE, "500 pages written again"
    assert _process(faults=101, rss=1512).copied_since(before) == 0, "one huge page"


def test_a_cell_that_sweeps_through_its_memory_is_looked_at_when_it_will_have_copied_too_much() -> None:
    now = copied = 0.0
    pace = wait = 0.0
    while not gives_up(copied, now, left_s=1.0):
        wait = next_look_s(copied, now, pace)
        now += wait
        copied += 1.5 * wait  # as fast as memory is copied, and faster than what is reckoned for a page
        pace = 1.5
    assert copied < 1.1 * (0.06 + SHARE * now), "with looks at fixed times it was half as much again"


def test_only_in_a_large_session_a_cell_that_copies_from_its_start_gives_its_copy_up_early() -> None:
    assert gives_up(copied_s=0.04, lasted_s=0.01, left_s=1.0, held=1 << 30)
    assert next_look_s(0.02, 0.0, 1.0, held=1 << 30) < next_look_s(0.02, 0.0, 1.0, held=500 << 20)
    assert not gives_up(copied_s=0.055, lasted_s=0.01, left_s=1.0, held=500 << 20), "a session as most are"
    assert not gives_up(copied_s=0.055, lasted_s=0.1, left_s=1.0, held=1 << 30), "it does other things, too"
    assert gives_up(copied_s=0.4, lasted_s=1.0, left_s=1.0, held=1 << 30), "and no more than in any other"


def test_a_cell_that_sweeps_through_a_large_session_is_seen_before_it_has_copied_much() -> None:
    held = 1 << 30
    now = wait = first_look_s(held)
    copied, pace = 1.3 * now, 1.3
    while not gives_up(copied, now, left_s=1.0, held=held):
        wait = next_look_s(copied, now, pace, held)
        now += wait
        copied += 1.3 * wait
    assert copied < 0.018
    assert first_look_s(500 << 20) == LOOK_S, "a session as most are"


def test_a_cell_that_copies_little_is_not_looked_at_more_often() -> None:
    assert next_look_s(0.0, 0.0, 0.0) == LOOK_S
    assert next_look_s(0.059, 0.0, 0.0) == LOOK_S
    assert next_look_s(0.059, 0.0, 0.001) == LOOK_S
    assert 0 < next_look_s(0.5, 0.0, 1.0) < LOOK_S, "a look that comes late is not followed by one at once"


def test_memory_that_a_cell_takes_and_gives_back_is_not_taken_for_copied_pages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = [_process(0, 1000), _process(50_000, 51_000), _process(50_000, 1000), _process(50_200, 1000)]
    monkeypatch.setattr(checkpoints, "read_process", lambda _pid: looks[0])

    async def ask(_number: int, _fds: list[int]) -> dict[str, Any]:
        return {}

    supervisor = SimpleNamespace(worker=SimpleNamespace(pid=1))
    session = Checkpoints(True, 1 << 30, cast(Any, supervisor), ask=ask)
    session._before, session._whole = looks[0], looks[0].rss
    for _ in range(3):
        looks.pop(0)
        session._count()
    assert session._cell_s == pytest.approx(200 * PAGE_COPY_S)


def test_no_page_is_copied_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays that come and go between two looks cost faults, too."""
    looks = [_process(faults, 1000) for faults in range(0, 100_000, 900)]
    monkeypatch.setattr(checkpoints, "read_process", lambda _pid: looks[0])
    supervisor = SimpleNamespace(worker=SimpleNamespace(pid=1))
    session = Checkpoints(True, 1 << 30, cast(Any, supervisor), ask=cast(Any, None))
    session._before, session._whole = looks[0], looks[0].rss
    while len(looks) > 1:
        looks.pop(0)
        session._count()
    assert session._cell_s == pytest.approx(1000 * PAGE_COPY_S)


def test_a_cell_of_a_small_session_keeps_its_copy_whatever_it_seems_to_copy() -> None:
    assert not gives_up(copied_s=0.09, lasted_s=0.1, left_s=-1.0, held=90 << 20)
    assert gives_up(copied_s=0.09, lasted_s=0.1, left_s=1.0, held=110 << 20)


def test_small_requests_in_a_row_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    def look(_pid: int) -> Any:
        looks.append(1)
        return _process(100 * len(looks), 1000)

    monkeypatch.setattr(checkpoints, "read_process", look)

    async def scene() -> Checkpoints:
        copies = SimpleNamespace(sleeping=lambda: [SimpleNamespace(names=[])])
        supervisor = SimpleNamespace(worker=SimpleNamespace(pid=1), ready=True, execution_count=1, copies=copies)
        session = Checkpoints(True, 1 << 30, cast(Any, supervisor), ask=cast(Any, None))
        session.start(asyncio.get_running_loop())
        session._before, session._whole = _process(0, 1000), 1000 * PAGE
        session._budget.spend(1.0)  # there is nothing left for a further copy
        for _ in range(3):
            await session.hurry()
            session.began()
            session.changed()
            monkeypatch.setattr(checkpoints, "_UNCOUNTED_S", 3600.0)  # on a slow machine, too
        assert session._task is None, "a task found out that there is nothing to do"
        monkeypatch.setattr(checkpoints, "_UNCOUNTED_S", 0.0)
        session.changed()
        await session.close(0)
        return session

    session = asyncio.run(scene())
    assert len(looks) == 2
    assert session._counted_s == pytest.approx(200 * PAGE_COPY_S), "what was not counted at once is counted later"


def test_a_cell_does_not_pay_for_a_copy_that_is_there_already(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "read_process", lambda _pid: _process(0, 1000))

    async def scene() -> None:
        copies = SimpleNamespace(sleeping=lambda: [SimpleNamespace(names=["a"])])
        supervisor = SimpleNamespace(worker=SimpleNamespace(pid=1), ready=True, execution_count=1, copies=copies)
        session = Checkpoints(True, 1 << 30, cast(Any, supervisor), ask=cast(Any, None))
        session.start(asyncio.get_running_loop())
        session._arm(60.0)  # as after somebody asked for a copy with a name
        for _ in range(20):
            await session.hurry()
        assert session._task is None and session._budget._first > 0
        await session.close(0)

    asyncio.run(scene())


def test_of_cells_that_come_one_right_after_the_other_not_each_is_made_to_wait() -> None:
    clock = Clock()
    budget = Budget(clock)
    fork_s, budget.expected_s, cell_s = 0.016, 0.012, 0.05
    made = 0
    for _ in range(200):  # ten seconds
        clock.now += cell_s
        if budget.allows_haste(1.0):
            budget.made(fork_s)
            budget.hurried()
            made += 1
    assert 0.01 < made * (fork_s + budget.expected_s) / clock.now < SHARE


def test_a_copy_that_is_dropped_ends_at_once_whatever_the_zygote_does() -> None:
    async def drop() -> None:
        told: list[int] = []
        zygote = SimpleNamespace(kill=told.append)
        copies = Copies(asyncio.get_running_loop(), cast(Any, zygote), "full")
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
            copy = copies.open(7, 1, 3)
            copy.link.pidfd, copy.pid = os.pidfd_open(process.pid), process.pid
            copies.drop(copy)
            assert process.wait(30) == -signal.SIGKILL
        assert told == [7] and not copies.sleeping()

    asyncio.run(drop())
