"""Several sessions over one zygote: the first one and its branches.

They share one sandbox: its pages, its folders, its limits. Each has workers and copies of its own, which the zygote
knows by number; a `Seat` is what one session sees of the zygote. What a limit of the whole sandbox takes away is taken
from the member that holds most.
"""

from __future__ import annotations

import asyncio
import copy
import os
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import LimitReached, SandboxError, WorkerLost
from ..launch.cgroup import Cgroup
from ..launch.link import ZygoteLink as Zygote
from .proctree import ProcessTree, Share
from .proofs import host_pid

Event = dict[str, Any]

ENDED = "the sandbox's first process ended, and with it everything inside; restart the kernel"
PARENT_CLOSED = "the sandbox that it was forked from was closed"


class Seat:
    """One session's share of the zygote: what it asks of it, and the news of its own workers.

    Attributes:
        family: whose it is.
        worker: number of the worker that runs this session's cells.
        over: called with the error when this session must give way to a limit.
        relieve: called when memory is short; the processes that were given up.
        relieved: called when what was over a limit is gone.
    """

    def __init__(self, family: Family) -> None:
        self.family = family
        self.worker = 0
        self.over: Callable[[LimitReached], None] = lambda _error: None
        self.relieve: Callable[[], Sequence[int]] = lambda: ()
        self.relieved: Callable[[], None] = lambda: None
        self.closed = False
        self.pids: dict[int, int] = {}  # of its living workers and copies, by number, as this process counts
        self._seen_s: dict[int, float] = {}  # processor time of each
        self._dead_s = 0.0
        self.on_event: Callable[[Event], None] = lambda _event: None
        self.on_end: Callable[[SandboxError], None] = lambda _error: None

    def listen(
        self, loop: asyncio.AbstractEventLoop, on_event: Callable[[Event], None],
        on_end: Callable[[SandboxError], None],
    ) -> None:  # fmt: skip
        """Hand on this session's news from now on; `on_end` is for the end of everything."""
        self.on_event, self.on_end = on_event, on_end
        self.family.listen(loop)

    def next_number(self) -> int:
        """A number for a new worker."""
        return self.family.next_number(self)

    def hand(self, number: int, seat: Seat) -> None:
        """A copy belongs to another session from now on."""
        self.family.owners[number] = seat
        if number in self.pids:
            seat.pids[number] = self.pids.pop(number)
            self._seen_s.pop(number, None)

    def fork(self, worker: int, fds: Sequence[int]) -> None:
        """See `ZygoteLink.fork`; that it cannot be asked comes as news, too."""
        if not self.family.closed:
            try:
                self.family.zygote.fork(worker, fds)
            except OSError as error:  # ETOOMANYREFS, see `WorkerLink`
                self.family.refused(worker, error)

    def adopt(self, worker: int, pid: int, original: int) -> None:
        """See `ZygoteLink.adopt`."""
        if not self.family.closed:
            self.family.zygote.adopt(worker, pid, original)

    def wake(self, worker: int) -> None:
        """See `ZygoteLink.wake`."""
        if not self.family.closed:
            self.family.zygote.wake(worker)

    def signal(self, worker: int, number: int, *, group: bool = False) -> None:
        """See `ZygoteLink.signal`."""
        if not self.family.closed:
            self.family.zygote.signal(worker, number, group=group)

    def kill(self, worker: int) -> None:
        """See `ZygoteLink.kill`."""
        if not self.family.closed:
            self.family.zygote.kill(worker)

    def unavailable(self) -> SandboxError:
        """See `ZygoteLink.unavailable`."""
        return self.family.zygote.unavailable()

    def close(self) -> None:
        """End this session's processes; the first session's end everything. Idempotent."""
        if not self.closed:
            self.closed = True
            self.family.left(self)

    # ------------------------------------------------------------ what its workers use

    def born(self, number: int, pid: int) -> None:
        """The zygote has this worker or copy now."""
        self.pids[number] = pid

    def died(self, number: int, cpu_s: float) -> None:
        """It has not any more; it used so much processor time, with its children."""
        if self.pids.pop(number, None) is not None:
            self._seen_s.pop(number, None)
            self._dead_s += cpu_s

    def cpu_s(self, tree: ProcessTree) -> float:
        """Processor time of all its workers.

        What a worker that has just ended used is in the zygote's count before its end is told; until then what was
        seen last stands for it.
        """
        for number, pid in self.pids.items():
            self._seen_s[number] = max(self._seen_s.get(number, 0.0), tree.below(pid).cpu_s)
        return self._dead_s + sum(self._seen_s.values())


class Family:
    """The sessions of one zygote.

    Args:
        zygote: its link, or the error that says why there is none.

    Attributes:
        founder: the first session's seat.
        owners: which seat a worker's number belongs to.
        closed: whether the zygote is gone.
        group: the control group that all are in; None: there is none.
    """

    def __init__(self, zygote: Zygote | SandboxError) -> None:
        self._zygote = zygote
        self.group: Cgroup | None = None
        self.owners: dict[int, Seat] = {}
        self.founder = Seat(self)
        self._seats = [self.founder]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._number, self.closed = 0, False
        self._condemned: set[int] = set()  # workers that are being ended because of a limit
        self._gone_s = 0.0  # processor time of branches that were closed

    @property
    def zygote(self) -> Zygote:
        """Its link."""
        if isinstance(self._zygote, SandboxError):
            raise self._zygote
        return self._zygote

    @property
    def size(self) -> int:
        """How many sessions there are."""
        return sum(not seat.closed for seat in self._seats)

    def branch(self) -> Seat:
        """A seat for one more session."""
        seat = Seat(self)
        self._seats.append(seat)
        return seat

    def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to read what the zygote says."""
        if self._loop is None:
            self._loop = loop
            loop.add_reader(self.zygote.fileno(), self._readable)

    def next_number(self, seat: Seat) -> int:
        """A number for a new worker of this seat."""
        self._number += 1
        self.owners[self._number] = seat
        return self._number

    def left(self, seat: Seat) -> None:
        """A seat was closed."""
        if seat is not self.founder:
            for number in seat.pids:
                seat.kill(number)
            self._forget()
            return
        self.closed = True
        if self._loop is not None:
            self._loop.remove_reader(self.zygote.fileno())
        self.zygote.close()
        self._end(WorkerLost(PARENT_CLOSED))

    def _end(self, error: SandboxError) -> None:
        for seat in list(self._seats):
            if not seat.closed:
                seat.on_end(error)

    def _forget(self) -> None:
        """Seats that are closed and have no process left."""
        for seat in [seat for seat in self._seats if seat.closed and not seat.pids]:
            self._seats.remove(seat)
            self._gone_s += seat._dead_s

    # ------------------------------------------------------------ news

    def _readable(self) -> None:
        try:
            events = self.zygote.receive()
        except EOFError:
            self._end(WorkerLost(ENDED))
            return
        for event in events:
            self._dispatch(event)
            for fd in event["fds"]:
                os.close(fd)

    def refused(self, number: int, error: OSError) -> None:
        """The zygote could not be asked for a worker."""
        assert self._loop is not None  # noqa: S101 - nobody asks before
        event = {"event": "fork_failed", "worker": number, "error": str(error), "errno": error.errno, "fds": []}
        self._loop.call_soon(self._dispatch, event)

    def _dispatch(self, event: Event) -> None:
        number, kind = event.get("worker", 0), event["event"]
        seat = self.owners.get(number, self.founder)
        if kind == "forked":
            event["host_pid"] = host_pid(event["fds"][-1])
            seat.born(number, event["host_pid"])
        elif kind == "exit":
            seat.died(number, event.get("cpu_s", 0.0))
            self._pardon(number)
        if not seat.closed:
            seat.on_event(event)
        elif kind == "forked":
            self.zygote.kill(number)  # it came when nobody was there any more
        if kind in ("exit", "fork_failed"):
            self.owners.pop(number, None)
            self._forget()

    # ------------------------------------------------------------ limits of the whole sandbox

    def breach(self, status: int) -> LimitReached | None:
        """The limit because of which the kernel has ended a process, by its wait status."""
        return self.group.breach(status) if self.group is not None else None

    def others_cpu_s(self, seat: Seat, tree: ProcessTree) -> float:
        """Processor time that is not this session's."""
        if len(self._seats) == 1:
            return self._gone_s
        return self._gone_s + sum(other.cpu_s(tree) for other in self._seats if other is not seat)

    def relieve(self) -> list[int]:
        """Give up what nobody needs at the moment: the copies of all; their process ids."""
        return [pid for seat in self._seats if not seat.closed for pid in seat.relieve()]

    def processes(self) -> list[int]:
        """The process ids of worker and copies, where there is one session and its worker is there; else empty.

        (Of several sessions nobody knows which one's cells have left a process running.)
        """
        seat = self.founder
        return list(seat.pids.values()) if self.size == 1 and seat.worker in seat.pids else []

    def over(self, reporter: Seat, error: LimitReached, tree: ProcessTree, size: Callable[[Share], float]) -> None:
        """A limit of the whole sandbox is passed, and processes must be ended at once.

        Args:
            reporter: who saw it; whoever holds most pays.
            size: of a share of the sandbox, which is what the limit is about.
        """
        present = [seat for seat in self._seats if not seat.closed and seat.worker in seat.pids]
        if len(present) < 2:
            reporter.over(error)
            return
        if self._condemned:
            return  # what one holds comes back in a moment
        held = {seat: size(tree.below(seat.pids[seat.worker])) for seat in present}
        worst = max(present, key=lambda seat: held[seat])
        strays = size(tree.strays([pid for seat in self._seats for pid in seat.pids.values()]))
        # What no session can be charged with, such as a daemon, ends with the last of them.
        for seat in present if strays > held[worst] else [worst]:
            self._condemned.add(seat.worker)
            own = copy.copy(error)
            own.data = dict(error.data)
            seat.over(own)

    def spared(self) -> set[int]:
        """Process ids of the workers that go on when a limit ends processes at once; none where one is alone."""
        innocent = [seat for seat in self._seats if seat.worker in seat.pids and seat.worker not in self._condemned]
        return {seat.pids[seat.worker] for seat in innocent} if self._condemned else set()

    def _pardon(self, number: int) -> None:
        if number in self._condemned:
            self._condemned.discard(number)
            if not self._condemned:
                for seat in self._seats:
                    if not seat.closed:
                        seat.relieved()
