"""The watchdog on trees that are made up, and on a real process."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from sandbox_kernel.errors import DiskLimit, LimitReached, MemoryLimit, ProcessLimit, TimeLimit
from sandbox_kernel.policy import Limits
from sandbox_kernel.session import watchdog
from sandbox_kernel.session.proctree import Usage
from sandbox_kernel.session.watchdog import Watchdog

MIB = 1024**2


class Clock:
    """Stands for the event loop and for the module `time`: time passes only when a test says so."""

    CLOCK_BOOTTIME = time.CLOCK_BOOTTIME

    def __init__(self) -> None:
        self.now = 1000.0
        self._timers: list[tuple[float, Callable[[], None], asyncio.Handle]] = []

    def perf_counter(self) -> float:
        return self.now

    def clock_gettime(self, _clock: int) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    def call_later(self, delay_s: float, call: Callable[[], None]) -> asyncio.Handle:
        handle = Mock()
        handle.when.return_value = self.now + delay_s
        self._timers.append((self.now + delay_s, call, handle))
        handle.cancel = lambda: setattr(self, "_timers", [timer for timer in self._timers if timer[2] is not handle])
        return handle

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [timer for timer in self._timers if timer[0] <= end]:
            timer = min(due, key=lambda timer: timer[0])
            self._timers.remove(timer)
            self.now = max(self.now, timer[0])
            timer[1]()
        self.now = max(self.now, end)


@dataclass
class Tree:
    """Says what the test wants."""

    clock: Clock
    usage: Usage = field(default_factory=lambda: Usage(1, 1, 50 * MIB, 0.0))
    really: int = 50 * MIB
    looks: int = 0
    counts: int = 0
    cost_s: float = 0.0
    struck: bool = False
    struck_alone: list[int] = field(default_factory=list)
    left: dict[int, int] = field(default_factory=dict)  # what earlier cells left running: pid, bytes

    def pids(self) -> list[int]:
        return []

    def look(self) -> Usage:
        self.looks += 1
        return self.usage

    def held(self) -> int:
        self.counts += 1
        self.clock.now += self.cost_s
        return self.really

    def others(self, spared: Collection[int], _before_s: float) -> list[int]:
        return [pid for pid in self.left if pid not in spared]

    def without(self, pids: Collection[int]) -> int:
        return self.really - sum(self.left[pid] for pid in pids)

    def strike(self, pids: Collection[int] | None = None) -> None:
        if pids is None:
            self.struck = True
            return
        self.struck_alone += pids
        self.really = self.without(pids)
        self.left = {pid: size for pid, size in self.left.items() if pid not in pids}
        self.usage = replace(self.usage, memory=self.really)


@dataclass
class Setting:
    tree: Tree
    dog: Watchdog
    clock: Clock
    told: list[tuple[LimitReached, bool]]
    owners: list[int] = field(default_factory=lambda: [1])
    cleared: list[int] = field(default_factory=list)
    copies: list[int] = field(default_factory=list)

    def relieve(self) -> list[int]:
        dropped, self.copies = self.copies, []
        return dropped

    def start(self) -> None:
        self.dog.start(self.clock, 1, memory_folders=[])  # type: ignore[arg-type]

    def run(self, seconds: float, first: Callable[[], None] = lambda: None) -> None:
        self.start()
        first()
        self.clock.advance(seconds)
        self.dog.close()


@pytest.fixture
def setting(monkeypatch: pytest.MonkeyPatch) -> Callable[[Limits], Setting]:
    def make(limits: Limits) -> Setting:
        clock = Clock()
        tree = Tree(clock)
        monkeypatch.setattr(watchdog, "ProcessTree", lambda _pid: tree)
        monkeypatch.setattr(watchdog, "time", clock)
        told: list[tuple[LimitReached, bool]] = []
        dog = Watchdog(
            limits, on_breach=lambda error, gently: told.append((error, gently)), relieve=lambda: made.relieve(),
            owners=lambda: made.owners, on_leftovers=lambda: made.cleared.append(1),
        )  # fmt: skip
        made = Setting(tree, dog, clock, told)
        return made

    return make


Make = Callable[[Limits], Setting]


def test_it_looks_often_while_a_cell_runs_and_rarely_otherwise(setting: Make) -> None:
    made = setting(Limits())
    made.run(0.6, made.dog.cell_began)
    assert 11 <= made.tree.looks <= 13
    made.tree.looks = 0
    made.dog.cell_ended()
    made.run(0.6)
    assert 5 <= made.tree.looks <= 7


def test_cells_that_follow_each_other_fast_do_not_keep_it_from_looking(setting: Make) -> None:
    made = setting(Limits())

    def cells(count: int) -> None:
        for _ in range(count):
            made.dog.cell_began()
            made.clock.advance(0.01)
            made.dog.cell_ended()

    made.start()
    cells(60)
    assert 6 <= made.tree.looks <= 13
    made.tree.usage = Usage(4, 4000, 0, 0.0)
    cells(10)
    made.dog.close()
    assert made.told


def test_too_much_memory_kills_once(setting: Make) -> None:
    made = setting(Limits(memory=100 * MIB))
    made.tree.usage, made.tree.really = Usage(4, 4, 300 * MIB, 0.0), 120 * MIB
    made.run(0.3, made.dog.cell_began)
    ((error, gently),) = made.told
    assert isinstance(error, MemoryLimit) and not gently
    assert "120 MiB of memory in 4 processes" in str(error) and "limits.memory = 100 MiB" in str(error)


def test_pages_that_are_shared_do_not_kill(setting: Make) -> None:
    made = setting(Limits(memory=100 * MIB))
    made.tree.usage, made.tree.really = Usage(8, 8, 500 * MIB, 0.0), 80 * MIB
    made.run(1.0, made.dog.cell_began)
    assert not made.told
    assert made.dog.memory == 80 * MIB
    assert made.tree.counts <= 6, "the exact count is dear"


def test_pages_that_seem_to_be_shared_kill_when_they_are_not(setting: Make) -> None:
    made = setting(Limits(memory=100 * MIB))
    made.tree.usage, made.tree.really = Usage(8, 8, 60 * MIB, 0.0, resident=500 * MIB), 60 * MIB
    made.start()
    made.dog.cell_began()
    made.clock.advance(0.3)
    assert not made.told and made.dog.memory == 60 * MIB
    made.tree.really = 300 * MIB
    made.clock.advance(0.5)
    made.dog.close()
    assert [type(error) for error, _ in made.told] == [MemoryLimit]


def test_far_from_the_limit_nothing_is_counted_exactly(setting: Make) -> None:
    made = setting(Limits(memory=1000 * MIB))
    made.run(0.3, made.dog.cell_began)
    assert made.tree.counts == 0


def test_memory_counts_between_cells_too(setting: Make) -> None:
    made = setting(Limits(memory=100 * MIB))
    made.tree.usage, made.tree.really = Usage(1, 1, 300 * MIB, 0.0), 300 * MIB
    made.run(1.2)
    assert len(made.told) == 1


def test_too_many_tasks_kill(setting: Make) -> None:
    made = setting(Limits(processes=20))
    made.tree.usage = Usage(5, 21, MIB, 0.0)
    made.run(0.2, made.dog.cell_began)
    ((error, gently),) = made.told
    assert isinstance(error, ProcessLimit) and not gently and "limits.processes = 20" in str(error)
    assert made.tree.struck


def test_pages_that_are_no_longer_shared_are_noticed_at_once(setting: Make) -> None:
    made = setting(Limits(memory=100 * MIB))
    made.tree.usage, made.tree.really, made.tree.cost_s = Usage(4, 4, 400 * MIB, 0.0), 60 * MIB, 0.01

    made.start()
    made.dog.cell_began()
    made.clock.advance(0.15)
    assert made.tree.counts == 1 and not made.told
    made.tree.usage, made.tree.really = Usage(4, 4, 460 * MIB, 0.0), 98 * MIB
    made.clock.advance(0.1)
    made.dog.close()
    assert [type(error) for error, _ in made.told] == [MemoryLimit]


def test_processor_time_is_that_of_the_cell(setting: Make) -> None:
    made = setting(Limits(cell_cpu=1.0))
    made.tree.usage = Usage(1, 1, MIB, 500.0)
    made.run(0.2, made.dog.cell_began)
    assert not made.told

    def burn() -> None:
        made.dog.cell_began()
        made.tree.usage = Usage(1, 1, MIB, 501.5)

    made.run(0.2, burn)
    ((error, gently),) = made.told
    assert isinstance(error, TimeLimit) and gently
    assert "1.5 s of processor time" in str(error) and "limits.cell_cpu = 1 s" in str(error)


@pytest.mark.parametrize(("cell_cpu", "between_s", "looks"), [(60.0, 0.001, 1), (60.0, 0.051, 10), (1.0, 0.001, 10)])
def test_cells_that_follow_each_other_fast_share_a_look(
    setting: Make, cell_cpu: float, between_s: float, looks: int
) -> None:
    made = setting(Limits(cell_cpu=cell_cpu))
    made.start()
    before = made.tree.looks
    for _ in range(10):
        made.dog.cell_began()
        made.dog.cell_ended()
        made.clock.now += between_s  # no timer is served meanwhile
    made.dog.close()
    assert made.tree.looks - before == looks


@pytest.mark.parametrize("limits", [Limits(cell_cpu=1.0), Limits(cell_time=1.0)])
@pytest.mark.parametrize(("step_s", "ended"), [(0.5, True), (0.001, False)])
def test_what_is_left_running_has_as_much_again_and_a_tenth_of_a_core(
    setting: Make, limits: Limits, step_s: float, ended: bool
) -> None:
    made = setting(limits)
    made.tree.usage = Usage(1, 1, MIB, 500.0)

    made.start()
    made.dog.cell_began()
    made.dog.cell_ended()
    for step in range(6):
        made.tree.usage = Usage(1, 1, MIB, 500 + step * step_s)
        made.clock.advance(0.12)
    made.dog.close()
    if ended:
        ((error, gently),) = made.told
        assert isinstance(error, TimeLimit) and not gently and "left running" in str(error)
        assert ("limits.cell_cpu" if limits.cell_cpu else "limits.cell_time") in str(error)
    else:
        assert not made.told


def test_time_that_vanishes_with_a_process_is_not_given_back(setting: Make) -> None:
    made = setting(Limits(cell_cpu=1.0))

    made.start()
    made.dog.cell_began()
    for cpu in (0.6, 0.0, 0.6):
        made.tree.usage = Usage(1, 1, MIB, cpu)
        made.clock.advance(0.12)
    made.dog.close()
    assert len(made.told) == 1


def test_a_kill_still_comes_after_an_interrupt(setting: Make) -> None:
    made = setting(Limits(cell_cpu=1.0, memory=100 * MIB))

    made.start()
    made.dog.cell_began()
    made.tree.usage = Usage(1, 1, MIB, 2.0)
    made.clock.advance(0.12)
    made.tree.usage, made.tree.really = Usage(1, 1, 300 * MIB, 2.0), 300 * MIB
    made.clock.advance(0.12)
    made.dog.close()
    assert [type(error) for error, _ in made.told] == [TimeLimit, MemoryLimit]


def test_looks_come_faster_near_the_limit(setting: Make) -> None:
    made = setting(Limits(memory=100 * MIB))
    made.tree.usage, made.tree.really = Usage(1, 1, 92 * MIB, 0.0), 92 * MIB
    made.run(0.4, made.dog.cell_began)
    assert made.tree.looks > 25 and not made.told


def test_disk_is_only_charged_to_cells_that_write(setting: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made = setting(Limits())

    class Disk:
        now = 0

        def used(self, interest: int = 0) -> int:
            return self.now

        def begin(self) -> None: ...

        def end(self) -> None: ...

    disk = Disk()
    monkeypatch.setattr(watchdog, "DiskUse", lambda *_args: disk)
    limit = watchdog.disk_limit(Limits())

    def write() -> None:
        made.dog.cell_began()
        disk.now = limit + MIB

    made.run(0.2, write)
    assert [type(error) for error, _ in made.told] == [DiskLimit] and made.told[0][1]
    made.told.clear()
    made.dog.cell_ended()
    made.run(0.2, made.dog.cell_began)
    assert not made.told, "a cell that makes room must be able to run"
    disk.now += MIB
    assert isinstance(made.dog.last_look(), DiskLimit)


def test_what_earlier_cells_left_running_is_ended_first(setting: Make) -> None:
    made = setting(Limits(memory=100 * MIB))
    made.tree.usage, made.tree.really = Usage(3, 3, 120 * MIB, 0.0), 120 * MIB
    made.tree.left = {1: 60 * MIB, 7: 40 * MIB}
    made.run(0.3, made.dog.cell_began)
    assert (made.tree.struck_alone, made.cleared, made.told) == ([7], [1], [])


@pytest.mark.parametrize("why", ["not enough", "worker unknown", "again"])
def test_it_is_not_ended_in_the_worker_s_place(setting: Make, why: str) -> None:
    made = setting(Limits(memory=100 * MIB))
    made.tree.usage, made.tree.really, made.tree.left = Usage(3, 3, 120 * MIB, 0.0), 120 * MIB, {7: 40 * MIB}
    made.start()
    made.dog.cell_began()
    if why == "not enough":
        made.tree.left = {7: 20 * MIB}
    elif why == "worker unknown":
        made.owners = []
    else:
        made.clock.advance(0.3)
        assert made.cleared and not made.told
        made.tree.usage, made.tree.really, made.tree.left = Usage(3, 3, 120 * MIB, 0.0), 120 * MIB, {8: 40 * MIB}
    made.clock.advance(0.3)
    assert [type(error) for error, _ in made.told] == [MemoryLimit]


def test_copies_that_are_given_up_are_ended_at_once(setting: Make) -> None:
    made = setting(Limits(memory=100 * MIB))
    made.tree.usage, made.tree.really, made.tree.left = Usage(3, 3, 120 * MIB, 0.0), 120 * MIB, {7: 40 * MIB}
    made.copies = [7]
    made.run(0.3, made.dog.cell_began)
    assert (made.tree.struck_alone, made.cleared, made.told) == ([7], [], [])


# ---------------------------------------------------------------- on a real process


@pytest.fixture
def hog() -> Iterator[int]:
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            time.sleep(0.3)
            kept = []
            for _ in range(4):
                if os.fork() == 0:
                    for _ in range(40):
                        kept.append(bytearray(b"x") * (8 * MIB))
                        time.sleep(0.005)
                    time.sleep(60)
            time.sleep(60)
        finally:
            os._exit(0)
    yield pid
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_children_are_counted_together(hog: int) -> None:
    told: list[LimitReached] = []

    async def main() -> None:
        dog = Watchdog(Limits(memory=700 * MIB), on_breach=lambda error, _gently: told.append(error))
        dog.start(asyncio.get_running_loop(), hog, memory_folders=[])
        dog.cell_began()
        end = time.monotonic() + 40
        while not told and time.monotonic() < end:
            await asyncio.sleep(0.01)
        dog.close()

    asyncio.run(main())
    # (How far they get beyond the limit before anybody looks depends on the machine.)
    assert isinstance(told[0], MemoryLimit), "each of them holds less than half of the limit"


def test_watching_costs_little(hog: int) -> None:
    async def main(cell: bool) -> float:
        # (All of them inherit what this process holds, which is much after many tests: near the limit they would be
        # counted exactly, which costs more, by a rule of its own.)
        dog = Watchdog(Limits(memory=64 * 1024 * MIB), on_breach=lambda _error, _gently: None)
        dog.start(asyncio.get_running_loop(), hog, memory_folders=[])
        if cell:
            dog.cell_began()
        began = time.thread_time()
        await asyncio.sleep(1.5)
        dog.close()
        return (time.thread_time() - began) / 1.5

    # (Where nothing else runs: less than 1 %.)
    assert asyncio.run(main(cell=True)) < 0.08
    assert asyncio.run(main(cell=False)) < 0.04
