"""When to leave a copy of the worker, and what that may cost.

A copy costs twice. The fork itself copies page tables (about 20 ms a gigabyte); and afterwards each page that a side
writes to for the first time is copied (3.5 us), on the way of the cell that writes it. So copies are made while nothing
runs, and both costs come out of one budget: a share of the session's time. A cell that rewrites a great deal is told
from one that only takes more memory by its page faults: those of the second make it larger.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any

from ..errors import CopyRefused, NoCheckpoint, RolledBack, SandboxError
from .budget import SHARE, Budget, first_look_s, fork_cost_s, gives_up, next_look_s, ran_s
from .copies import Copies, Copy, in_time
from .proctree import PAGE, Process, read_process
from .supervisor import Supervisor
from .woken import Woken

KEPT = 3  # besides those with names
NAMED = 8
IDLE_S = 0.1  # between the end of a cell and a copy
PAGE_COPY_S = 3.5e-6
_HASTY_S = 0.03  # between queued cells only a copy that is cheaper than that is made
_UNCOUNTED_S = 0.005  # cells that end within it are counted together: a look takes as long as many a value does
_SETTLE_S = 5.0
_ROOM = 15 / 16  # of the memory limit; worker and copy must fit when all pages are rewritten
_ALONE = 0.8  # of the memory limit; a worker that holds more is the cause by itself
_NO_ROOM = "the session holds so much memory that a copy has no room"


class Checkpoints(Woken):
    """Decides over the copies of one session.

    Args:
        wanted: whether there are to be any.
        memory: the limit for the whole session, in bytes.
        supervisor: of the worker.
        ask: asks the worker for the copy with this number and these descriptors; gives its answer.
        made: called with a new copy and the worker's process id.

    Attributes:
        reason: why the newest state of the session has no copy, as a clause; "" when nothing stands against one.
        names: of the copies that somebody asked for; why there is none any more, or "".
    """

    def __init__(
        self, wanted: bool, memory: int, supervisor: Supervisor, *,
        ask: Callable[[int, list[int]], Awaitable[dict[str, Any]]],
        made: Callable[[Copy, int], None] = lambda _copy, _pid: None,
    ) -> None:  # fmt: skip
        super().__init__(supervisor)
        self._wanted, self._memory = wanted, memory
        self._ask, self._made = ask, made
        self._budget = Budget()
        self._timer: asyncio.TimerHandle | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._replaced: asyncio.Future[SandboxError] | None = None
        self._dirty = False  # something may have changed since the newest copy
        self._before: Process | None = None  # the worker at the last look, if it has a copy
        self._held = 0  # by the worker, in bytes, when that was last asked for
        self._whole, self._counted_s = 0, 0.0  # what it held when the newest copy was made; of copying since then
        self._cell_s = 0.0  # of that, in the running cell
        self._looked = self._counted_at = 0.0  # when a cell's, and when at all, on the monotonic clock
        self._cell_began = 0.0  # the worker's processor time then; the wall clock counts others, too
        self._owed: list[str] = []  # names of the copy that was woken, for the next one
        self.reason = ""
        self.names: dict[str, str] = {}

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
        return [] if self._supervisor.copies is None else self._supervisor.copies.sleeping()

    def listed(self) -> list[dict[str, Any]]:
        """The copies that could be woken, the oldest first: cell, names, and age in seconds."""
        now = time.monotonic()
        return [{"cell": c.cell, "names": list(c.names), "age_s": now - c.made} for c in self.sleeping()]

    async def rollback(self, to: int | str) -> None:
        """Go on from the copy that was made after this cell, or has this name. Newer ones without names are given up.

        Raises:
            NoCheckpoint: there is none.
            SandboxError: it did not wake, and with it all is lost.
        """
        await self.settle()
        found = self.sleeping()
        fits = [copy for copy in found if to in copy.names or copy.cell == to]
        if not fits and isinstance(to, str):
            reason = self.names.get(to, "") or "its process has ended" * (to in self.names)
            raise NoCheckpoint(to, [name for copy in found for name in copy.names], reason)
        if not fits:
            raise NoCheckpoint(to, (copy.cell for copy in found), self.reason)
        for copy in found[found.index(fits[-1]) + 1 :]:
            if copy.names:
                copy.aside = True
            else:
                self._copies.drop(copy)
        await self._go_on(fits[-1])

    async def _go_on(self, copy: Copy) -> None:
        copy.aside = False
        self._replaced = self._loop.create_future()
        self._supervisor.kill(RolledBack(), wake=copy)
        error = await self._replaced
        if error.state != "restored" or (error.data["cell"], error.data["names"]) != (copy.cell, (*copy.names,)):
            raise error  # it did not wake; another one may have
        await self._supervisor.get_worker(stoppable=False)
        await asyncio.sleep(0)  # `changed` comes first
        if self._owed:
            self._cancel_timer()
            await self._make()

    async def name(self, name: str) -> None:
        """Leave a copy now and keep it under this name, which an older one loses. For an idle session.

        Raises:
            CopyRefused: it cannot be made, or there are too many with names.
        """
        held = [name for copy in self.sleeping() for name in copy.names]
        if name not in held and len(held) >= NAMED:
            text = f"there are {NAMED} checkpoints with names already"
            raise CopyRefused(text, f"Use one of these names again: {', '.join(held)}.")
        copy = await self._demand(branch=False)
        self._give(copy, [name])

    async def branch(self) -> Copy:
        """Leave a copy that is to become a session of its own. For an idle session.

        Raises:
            CopyRefused: it cannot be made, or would lack something.
        """
        copy = await self._demand(branch=True)
        if copy.lost:
            self._copies.drop(copy)
            raise CopyRefused(
                f"it would lack {', '.join(copy.lost)}", "End these first, or fork the session before they are started."
            )
        self._copies.take(copy)
        return copy

    async def adopt(self, copy: Copy) -> None:
        """Go on from a copy of another session's worker, in place of this session's.

        Raises:
            SandboxError: it did not wake, and with it all is lost.
        """
        with self._copies.receiving(copy):
            await self.settle()
        await self._go_on(copy)

    async def _demand(self, *, branch: bool) -> Copy:
        await self.settle()
        self._cancel_timer()
        await self._supervisor.get_worker(stoppable=False)
        worker = read_process(self._pid)
        if worker is not None and worker.rss > _ROOM * self._memory and not branch:
            raise CopyRefused(_NO_ROOM)
        copy, reason = await in_time(self._copy(branch=branch), self._copies.drop)
        if not branch:
            self._dirty = copy is None
        self._arm(IDLE_S)
        if copy is None:
            raise CopyRefused(reason)
        return copy

    def _give(self, copy: Copy, names: list[str]) -> None:
        for name in names:
            self.names[name] = ""
            for old in self.sleeping():
                if old is not copy and name in old.names:
                    old.names.remove(name)
                    if not old.names and old.aside:
                        self._copies.drop(old)
            copy.names.append(name)

    async def settle(self) -> None:
        """Wait for a copy that is being made, or is owed to a name: no cell may change what that stands for."""
        if self._owed and (self._task is None or self._task.done()):
            await asyncio.sleep(0)  # `changed` comes first
            self._cancel_timer()
            self._idle()
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task], timeout=_SETTLE_S)

    # ------------------------------------------------------------ what the session says

    def began(self) -> None:
        """A request that may change the variables begins."""
        self._cancel_timer()
        self._cell_s = 0.0
        if self._before is not None and self.sleeping():
            self._cell_began = self._before.cpu_s
            if self._watch is None:
                self._looked = self._loop.time()
                self._watch = self._loop.call_later(first_look_s(self._before.rss), self._look)

    def changed(self) -> None:
        """Such a request has ended, and none is left."""
        worker = self._supervisor.worker
        if not self._wanted or worker is None or not self._supervisor.ready:
            return
        self._dirty = True
        if self._woken_at is not None and self._woken_at[1] < 0:
            self._woken_at = self._woken_at[0], self._supervisor.execution_count
        self._disarm()
        if self.sleeping() and time.monotonic() - self._counted_at > _UNCOUNTED_S:
            self._count()
        self._arm(IDLE_S)

    async def hurry(self) -> None:
        """The next cell is there before the session was idle: leave a copy now if that is cheap, or there is none.

        Waits until the copy is adopted: a cell that ends the worker before that would take it along.
        """
        held = 0 if self._before is None else self._before.rss
        cheap = not self.sleeping() or self._budget.allows_haste(_HASTY_S, held)
        # (A task that finds out that there is too little takes longer than a small value does.)
        hasty = self._timer is not None and self._dirty and cheap and self._affordable(again=False)
        if self._owed or hasty:  # names are of the state before that cell
            self._cancel_timer()
            self._idle()
        await self.settle()
        if hasty:
            self._budget.hurried(held)

    def renewed(self, error: SandboxError) -> None:
        """The worker was lost with this error, and replaced, by a fresh one or by a copy that was woken."""
        if self._replaced is not None and not self._replaced.done():
            self._replaced.set_result(error)
        self._disarm()
        self._budget.refill()  # whatever cost the last worker may come again, and one copy fewer is left
        self._before, self._dirty, self._woken_at, self._held = None, False, None, 0
        self.names.update(dict.fromkeys(self._owed, "the session was lost before a new copy was made"))
        self._owed = []
        if error.state == "restored":
            self._woken_at, self._owed = (error.data["cell"], -1), list(error.data["names"])
            self._dirty = bool(self._owed)
        else:
            self.names = {name: why or "it was lost with the session" for name, why in self.names.items()}

    def relieve(self) -> list[int]:
        """The session is about to hold too much memory: the process ids of its copies, if it does without them now."""
        pids = [copy.pid for copy in self.sleeping()]
        worker = read_process(self._pid) if pids else None
        if worker is None or worker.rss > _ALONE * self._memory:
            return []
        self.drop(_NO_ROOM)
        return pids

    def drop(self, reason: str, *, named: bool = True) -> None:
        """End all copies, or all that have no name."""
        for copy in self.sleeping():
            if named or not copy.names:
                self._copies.drop(copy)
                self.names.update(dict.fromkeys(copy.names, reason))
        self.reason, self._before = reason, None

    @property
    def _pid(self) -> int:
        return -1 if self._supervisor.worker is None else self._supervisor.worker.pid

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
        self._timer, self._task = None, self._loop.create_task(self._make())

    async def _make(self) -> None:
        if not (self._dirty and self._supervisor.ready) or not (self._owed or self._affordable()):
            return
        self._dirty = False
        copy, reason = await self._copy()
        names, self._owed = self._owed, []
        if copy is None:
            self.reason = reason
            self.names.update(dict.fromkeys(names, reason))
            return
        self._budget.rested()
        self._give(copy, names)
        for old in [copy for copy in self.sleeping() if not copy.names][:-KEPT]:
            self._copies.drop(old)

    async def _copy(self, *, branch: bool = False) -> tuple[Copy | None, str]:
        """A copy that sleeps; or None, and why."""
        worker = self._supervisor.worker
        if worker is None:
            return None, "the worker was lost"
        self._count()
        copies, number, pid = self._copies, self._supervisor.next_number(), worker.pid
        began, ran = time.monotonic(), ran_s(pid)
        copy = copies.open(number, worker.number, self.cell, branch=branch)
        answer: dict[str, Any] = {"reason": "the worker was lost"}
        with contextlib.suppress(SandboxError):
            try:
                answer = await self._ask(number, copy.link.far_ends())
            finally:
                copy.link.start()
                if answer.get("status") != "ok":
                    copies.drop(copy)
        if answer.get("status") != "ok":
            return None, str(answer.get("reason") or "the worker gave no reason")
        copy.lost, waited, ran = answer["lost"], time.monotonic() - began, ran_s(pid) - ran
        adopted = await copies.adopted(copy, _SETTLE_S)
        self._budget.made(fork_cost_s(ran, ran_s(copy.pid), waited))
        if not adopted:
            return None, "it ended while it was made"
        self.reason = ""
        self._budget.expected_s = (self._budget.expected_s + self._counted_s) / 2
        self._before, self._counted_s = read_process(pid), 0.0
        self._whole = self._before.rss if self._before else 0
        self._made(copy, pid)
        return copy, ""

    def _affordable(self, *, again: bool = True) -> bool:
        # (The size costs a look at the process. What it was at the last one is near enough to say no.)
        if not self._wanted or self._lacks(self._held, again) or (worker := read_process(self._pid)) is None:
            return False
        self._held = worker.rss
        if 2 * worker.rss > _ROOM * self._memory:
            self.drop(_NO_ROOM)
            return False
        return not self._lacks(worker.rss, again)

    def _lacks(self, held: int, again: bool) -> bool:
        """Whether the budget has too little yet for a copy of so many bytes; `again`: look again when it has enough."""
        missing = self._budget.missing_s(held)
        if missing > 0:
            self.reason = "copies of it would cost too much of the session's time so far"
            if again:
                self._arm(missing / SHARE)
        return missing > 0

    # ------------------------------------------------------------ what cells copy

    def _look(self) -> None:
        self._watch = None
        if not self.sleeping():
            return
        looked, copied_s = self._looked, self._cell_s
        lasted, self._looked = max(0.0, self._count() - self._cell_began), self._loop.time()
        if gives_up(self._cell_s, lasted, self._budget.left, self._whole):
            self._budget.expected_s = max(self._budget.expected_s, 3 * self._cell_s)
            self.drop("the cell rewrote so much memory that keeping copies would have slowed it down", named=False)
        else:
            pace = (self._cell_s - copied_s) / max(1e-6, self._looked - looked)
            self._watch = self._loop.call_later(next_look_s(self._cell_s, lasted, pace, self._whole), self._look)

    def _count(self) -> float:
        """Take from the budget what was copied since the last count; the worker's processor time so far."""
        worker, self._counted_at = read_process(self._pid), time.monotonic()
        if worker is None or self._before is None:
            return 0.0
        # From look to look: over a whole cell, memory that was taken and given back would look like pages copied.
        # And no page is copied twice: what is more than the copy has was taken and given back between two looks.
        most_s = max(0.0, self._whole // PAGE * PAGE_COPY_S - self._counted_s)
        seconds = min(most_s, worker.copied_since(self._before) // PAGE * PAGE_COPY_S)
        self._before = worker
        self._counted_s += seconds
        self._cell_s += seconds
        self._budget.spend(seconds)
        return worker.cpu_s
