"""When to leave a copy of the worker, and what that may cost.

A copy costs twice. The fork itself copies page tables (about 20 ms a gigabyte); and afterwards each page that either
side writes to for the first time is copied (3.5 us), on the way of the cell that writes it. So copies are made while
the session is idle, and both costs come out of one budget: a share of the time that the session has lasted. A cell
that rewrites a great deal is told from one that only takes more memory by its page faults: those of the second make
it larger.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from ..errors import NoCheckpoint, RolledBack, SandboxError
from .copies import Copies, Copy
from .proctree import PAGE, Process, read_process
from .proofs import host_pid
from .supervisor import Supervisor

KEPT = 3
SHARE = 0.05  # of the session's time
IDLE_S = 0.1  # between the end of a cell and a copy
LOOK_S = 0.05  # between two looks at what a running cell copies
PAGE_COPY_S = 3.5e-6
# The budget: at first, at most, and what one cell may take of it however much there is.
_FIRST_S, _MOST_S, _CELL_S = 0.1, 2.0, 0.25
_HASTY_S = 0.03  # between queued cells only a copy that is cheaper than that is made
_SETTLE_S = 5.0
_FORK_S, _FORK_S_PER_BYTE = 0.002, 0.02 / 2**30
_ROOM = 15 / 16  # of the memory limit; worker and copy must fit when all pages are rewritten
_ALONE = 0.8  # of the memory limit; a worker that holds more is the cause by itself
_NO_ROOM = "the session holds so much memory that a copy has no room"


class Budget:
    """What copies may cost, in seconds: `SHARE` of the time that goes by.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at, self._left = clock(), _FIRST_S

    @property
    def left(self) -> float:
        """May be negative."""
        now = self._clock()
        self._left = min(_MOST_S, self._left + (now - self._at) * SHARE)
        self._at = now
        return self._left

    def spend(self, seconds: float) -> None:
        """Take this much of it."""
        self._left = self.left - seconds

    def refill(self) -> None:
        """Have at least as much as at first."""
        self._left = max(self.left, _FIRST_S)


class Checkpoints:
    """Decides over the copies of one session.

    Args:
        wanted: whether there are to be any.
        memory: the limit for the whole session, in bytes.
        supervisor: of the worker.
        ask: asks the worker for the copy with this number and these descriptors; gives its answer.
        made: called with a new copy and the worker's process id.

    Attributes:
        reason: why the newest state of the session has no copy, as a clause; "" when nothing stands against one.
    """

    def __init__(
        self, wanted: bool, memory: int, supervisor: Supervisor, *,
        ask: Callable[[int, list[int]], Awaitable[dict[str, Any]]],
        made: Callable[[Copy, int], None] = lambda _copy, _pid: None,
    ) -> None:  # fmt: skip
        self._wanted, self._memory, self._supervisor = wanted, memory, supervisor
        self._ask, self._made = ask, made
        self._budget = Budget()
        self._timer: asyncio.TimerHandle | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._replaced: asyncio.Future[SandboxError] | None = None
        self._pid = -1  # of the worker, for this process
        self._dirty = False  # something may have changed since the newest copy
        self._costs = deque([0.0], maxlen=4)  # of the last copies, in seconds
        self._expected_s = 0.0  # what the cells after a copy will have to copy
        self._before: Process | None = None  # the worker when its newest copy was made
        self._counted_s = 0.0  # of the copying since then, already taken from the budget
        self._cell_s, self._cell_began = 0.0, 0.0  # of that, in the running cell; when it began
        self.reason = ""

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the timers on this loop from now on."""
        self._loop = loop

    async def close(self, grace_s: float) -> None:
        """Make no more copies; waits for one that is being made."""
        self._wanted = False
        self._disarm()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=grace_s)

    @property
    def _copies(self) -> Copies:
        copies = self._supervisor.copies
        assert copies is not None  # noqa: S101 - there is a worker, so there is a zygote
        return copies

    def sleeping(self) -> list[Copy]:
        """The copies that there are, the oldest first."""
        copies = self._supervisor.copies
        return [] if copies is None else copies.sleeping()

    async def rollback(self, cell: int) -> None:
        """Go on from the copy that was made after this cell; newer ones are given up.

        Raises:
            NoCheckpoint: there is none.
            SandboxError: it did not wake, and with it all is lost.
        """
        await self.settle()
        found = self.sleeping()
        if cell not in (copy.cell for copy in found):
            raise NoCheckpoint(cell, (copy.cell for copy in found), self.reason)
        for copy in found:
            if copy.cell > cell:
                self._copies.drop(copy)
        self._replaced = self._loop.create_future()
        self._supervisor.kill(RolledBack())
        error = await self._replaced
        if error.state != "restored":
            raise error
        await self._supervisor.get_worker(stoppable=False)

    async def settle(self) -> None:
        """Wait for a copy that is being made."""
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task], timeout=_SETTLE_S)

    # ------------------------------------------------------------ what the session says

    def began(self) -> None:
        """A request that may change the variables begins."""
        self._cancel_timer()
        self._cell_s, self._cell_began = 0.0, time.monotonic()
        if self._watch is None and self.sleeping():
            self._watch = self._loop.call_later(LOOK_S, self._look)

    def changed(self) -> None:
        """Such a request has ended, and none is left."""
        worker = self._supervisor.worker
        if not self._wanted or worker is None or not self._supervisor.ready:
            return
        if self._pid < 0:
            self._pid = host_pid(worker.pidfd)
        self._dirty = True
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if self.sleeping():
            self._count()
        self._arm(IDLE_S)

    async def hurry(self) -> None:
        """The next cell is there before the session was idle: leave a copy now if that is cheap, or there is none.

        Waits until the copy is adopted: a cell that ends the worker before that would take it along.
        """
        if self._timer is not None and (min(self._costs) < _HASTY_S or not self.sleeping()):
            self._cancel_timer()
            self._idle()
        await self.settle()

    def renewed(self, error: SandboxError) -> None:
        """The worker was lost with this error, and replaced, by a fresh one or by a copy that was woken."""
        if self._replaced is not None and not self._replaced.done():
            self._replaced.set_result(error)
        self._disarm()
        self._budget.refill()  # whatever cost the last worker may come again, and one copy fewer is left
        self._before, self._pid, self._dirty = None, -1, False

    def owners(self) -> list[int]:
        """The process ids of worker and copies; empty while there is no worker in service."""
        worker = self._supervisor.worker
        if worker is None or not self._supervisor.ready:
            return []
        return [host_pid(worker.pidfd), *(copy.pid for copy in self.sleeping())]

    def relieve(self) -> list[int]:
        """The session is about to hold too much memory: the process ids of its copies, if it does without them now."""
        pids = [copy.pid for copy in self.sleeping()]
        worker = read_process(self._pid) if pids else None
        if worker is None or worker.rss > _ALONE * self._memory:
            return []
        self.drop(_NO_ROOM)
        return pids

    def drop(self, reason: str) -> None:
        """End all copies."""
        for copy in self.sleeping():
            self._copies.drop(copy)
        self.reason, self._before = reason, None

    # ------------------------------------------------------------ making

    def _arm(self, delay_s: float) -> None:
        self._cancel_timer()
        if self._wanted:
            self._timer = self._loop.call_later(delay_s, self._idle)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _disarm(self) -> None:
        self._cancel_timer()
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _idle(self) -> None:
        self._timer = None
        self._task = self._loop.create_task(self._make())

    async def _make(self) -> None:
        worker = self._supervisor.worker
        if not self._dirty or worker is None or not self._supervisor.ready or not self._affordable():
            return
        copies, number = self._copies, self._supervisor.next_number()
        self._dirty = False
        began = time.monotonic()
        copy = copies.open(number, worker.number, self._supervisor.execution_count - 1)
        try:
            answer = await self._ask(number, copy.link.far_ends())
        except SandboxError:
            answer = {"reason": "the worker was lost"}
        finally:
            copy.link.start()
        if answer.get("status") != "ok":
            copies.drop(copy)
            self.reason = str(answer.get("reason") or "the worker gave no reason")
            return
        self._costs.append(time.monotonic() - began)
        self._budget.spend(self._costs[-1])
        copy.lost = answer["lost"]
        await asyncio.wait([copy.settled], timeout=_SETTLE_S)
        if not (copy.settled.done() and copy.settled.result()):
            copies.drop(copy)
            return
        self.reason = ""
        self._expected_s = (self._expected_s + self._counted_s) / 2
        self._before, self._counted_s = read_process(self._pid), 0.0
        self._made(copy, self._pid)
        for old in copies.sleeping()[:-KEPT]:
            copies.drop(old)

    def _affordable(self) -> bool:
        worker = read_process(self._pid)
        if worker is None or not self._wanted:
            return False
        if 2 * worker.rss > _ROOM * self._memory:
            self.drop(_NO_ROOM)
            return False
        expected = min(_MOST_S, _FORK_S + worker.rss * _FORK_S_PER_BYTE + self._expected_s)
        missing = expected - self._budget.left
        if missing > 0:
            self.reason = "copies of it would cost too much of the session's time so far"
            self._arm(missing / SHARE)
        return missing <= 0

    # ------------------------------------------------------------ what cells copy

    def _look(self) -> None:
        self._watch = None
        if not self.sleeping():
            return
        self._count()
        lasted = time.monotonic() - self._cell_began
        if self._cell_s > _CELL_S + SHARE * lasted or self._budget.left < -_CELL_S:
            self._expected_s = max(self._expected_s, 2 * self._cell_s)
            self.drop("the cell rewrote so much memory that keeping copies would have slowed it down")
        else:
            self._watch = self._loop.call_later(LOOK_S, self._look)

    def _count(self) -> None:
        """Take from the budget what was copied since the last count."""
        worker = read_process(self._pid)
        if worker is None or self._before is None:
            return
        seconds = worker.copied_since(self._before) // PAGE * PAGE_COPY_S - self._counted_s
        if seconds > 0:
            self._counted_s += seconds
            self._cell_s += seconds
            self._budget.spend(seconds)
