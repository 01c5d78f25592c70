"""Memory, processes, processor time and disk of the whole sandbox, watched from the front.

Limits that the kernel enforces are for one process each (RLIMIT_DATA, RLIMIT_FSIZE) or not for uid 0 (RLIMIT_NPROC);
shared memory escapes them altogether, and children each get a limit of their own. So the front looks at the whole
tree, often while a cell runs and rarely otherwise, from timers of its loop: there is no thread.

Control groups do this without a gap, but are seldom delegated to whoever starts a notebook; where
they are, see `launch.cgroup`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence

import msgspec

from ..errors import DiskLimit, LimitReached, MemoryLimit, ProcessLimit, TimeLimit
from ..policy import Limits
from .disk import DiskUse
from .link import WorkerLink
from .proctree import ProcessTree, Usage, read_process

CELL_S = 0.05  # between two looks while a cell runs
IDLE_S = 0.1  # between cells: threads and tasks that a cell left behind can take memory, too
NEAR_S = 0.02  # never longer than that when memory is nearly used up
SHORTEST_S = 0.005
# A look may take this share of a core (256 processes: 3 ms), but the pause is never longer than that.
_SHARE = 1 / 50
_LONGEST_S = 0.25
# What is taken between two looks is not seen, so the limit is acted on a little early, and looks come faster as it is
# approached: as if the next bytes came at this rate (a fill from C was seen at 3 GB/s).
_EARLY = 15 / 16
_FASTEST_BYTES_S = 4e9  # the disk's cache takes them as fast as memory does
# Forks of a small process that two cores were seen to make, twice.
_FASTEST_TASKS_S = 10_000.0
# The exact count walks page tables: 20 ms for some hundred MB.
_RECOUNT_S = 0.25
# A cell that has written so much more than it may is killed, not interrupted.
_DISK_EXCESS = 17 / 16
# What cells leave running may use this share of a core for ever. Beyond it, it has once what a cell has: else a thread,
# or a reply that a cell forges while it goes on, would be a way around the limits of cells.
_LEFT_RUNNING = 0.1
# A cell's time is counted from a look that is older than its beginning by at most this share of what it may take, or by
# CELL_S: a look takes a tenth of what a small value in or out does.
_OLD = 1 / 2000
MEMORY_FOLDERS = ("/tmp", "/dev/shm", "/home/sandbox")  # noqa: S108 - inside the sandbox


class Watchdog:
    """Watches one sandbox from its zygote's start to its end.

    Args:
        limits: of the policy.
        on_breach: called with the error, and whether the cell may be ended gently (else all is killed at once).
            Called once for a gentle end and once for a kill; then nothing is reported until the next cell or worker.
        relieve: called before a MemoryLimit is reported: the processes that are ended instead, when there are any.
        owners: the worker and its copies, by process id; empty while that is not known.
        on_leftovers: called when processes are ended instead of the worker that cells which are over had left running.
        others_cpu_s: processor time of the tree that is not this session's.
        spared: processes that go on when too many are ended at once.

    Attributes:
        usage: what the last look saw.
        memory: what the sandbox held then, in bytes; shared pages may be counted more than once while it is far
            below the limit.
        peak: the largest `memory` since the cell began.
        written: to the host's disk, in bytes; may be too large while it is below the limit.
        culprits: the cells that the breach is about.
    """

    def __init__(
        self, limits: Limits, *, on_breach: Callable[[LimitReached, bool], None],
        relieve: Callable[[], Collection[int]] = lambda: (), owners: Callable[[], Collection[int]] = lambda: (),
        on_leftovers: Callable[[], None] = lambda: None, spared: Callable[[], Collection[int]] = lambda: (),
        others_cpu_s: Callable[[ProcessTree], float] = lambda _tree: 0.0,
    ) -> None:  # fmt: skip
        self._limits, self._on_breach, self._relieve = limits, on_breach, relieve
        self._owners, self._on_leftovers = owners, on_leftovers
        self._others_cpu_s, self._spared = others_cpu_s, spared
        self._began = 0.0  # when the first of the running cells began, on the clock of /proc
        self._cleared = False  # whether leftovers were ended since
        self._tree: ProcessTree | None = None
        self._disk = DiskUse(())
        self._folders: list[int] = []
        self._timer: asyncio.TimerHandle | None = None
        self._cells: dict[str, float] = {}  # that run -> processor time, as counted when they began
        self.culprits: frozenset[str] = frozenset()
        self._told: frozenset[str] = frozenset()
        self._killed = False
        self._cpu_before: float | None = None
        self._cpu_used = 0.0
        self._judged_at = 0.0
        # Of the usage: counted more than once, or not memory that can run out. Negative: what forks have hidden.
        self._double = 0
        self._counted_at = float("-inf")
        self._count_cost_s = 0.0
        self._unbounded_forks = False
        self._renewed = False
        self._left = 0  # bytes in files when the worker was forked
        self.usage = Usage(0, 0, 0, 0.0)
        self._seen_at = float("-inf")
        self.memory = self.peak = self.written = self._written_before = 0

    def start(
        self, loop: asyncio.AbstractEventLoop, zygote: int, *, folders: Sequence[str] = (), uid: int = -1,
        memory_folders: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        """Begin to watch; returns at once.

        Args:
            zygote: its process id.
            folders: of the host, that the cells may write to.
            uid: of the workers; for 0 the kernel does not bound the processes.
            memory_folders: descriptors of the sandbox's folders that are kept in memory; closed here in the end.
                None: they are looked for through /proc, which only a front that runs as root may do.
        """
        self._loop = loop
        self._tree = ProcessTree(zygote)
        self._disk = DiskUse(folders, self._tree.pids)
        self._unbounded_forks = uid == 0
        self._seen_at = float("-inf")
        self._folders = list(memory_folders) if memory_folders is not None else _open_folders(zygote)
        self._arm(IDLE_S)

    def join(self, loop: asyncio.AbstractEventLoop, other: Watchdog) -> None:
        """Begin to watch the sandbox that `other` watches, for another session in it."""
        self._loop, self._tree, self._disk = loop, other._tree, other._disk
        self._unbounded_forks = other._unbounded_forks
        self._folders = [os.dup(fd) for fd in other._folders]
        self._arm(IDLE_S)

    @contextlib.contextmanager
    def expecting(self, worker: WorkerLink | None) -> Iterator[None]:
        """Meanwhile a copy of the worker is made: until it is known as one it seems to hold as much again."""
        process = read_process(worker.pid) if worker is not None else None
        if self._tree is None or process is None:
            yield
            return
        tree, extra = self._tree, process.rss
        tree.allowance += extra
        try:
            yield
        finally:
            tree.allowance -= extra

    @property
    def tree(self) -> ProcessTree | None:
        """The processes; None before the start and after the end."""
        return self._tree

    def close(self) -> None:
        """Stop; idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._tree = None
        for fd in self._folders:
            os.close(fd)
        self._folders = []

    def measure(self) -> Usage:
        """Look now, without judging; what was seen last when it is closed."""
        if self._tree is not None:
            self.usage = self._see(self._tree)
        return self.usage

    def _see(self, tree: ProcessTree) -> Usage:
        self._seen_at, usage = time.perf_counter(), tree.look()
        others_s = self._others_cpu_s(tree)
        return msgspec.structs.replace(usage, cpu_s=max(0.0, usage.cpu_s - others_s)) if others_s else usage

    def cell_began(self, cell: str = "", sent_s: float | None = None) -> None:
        """A cell was sent to the worker. Others may run already, on other shells.

        Args:
            sent_s: from when on processes may be the cell's own, in seconds of CLOCK_BOOTTIME; None: from now on.
        """
        first = not self._cells
        self._told -= {cell}
        if first:
            self._cpu_before, self._cpu_used, self.peak = None, 0.0, 0
            self._began, self._cleared = time.clock_gettime(time.CLOCK_BOOTTIME) if sent_s is None else sent_s, False
        self._cells[cell] = 0.0
        if self._tree is None:
            return
        if self._limits.cell_cpu:
            if time.perf_counter() - self._seen_at > min(CELL_S, self._limits.cell_cpu * _OLD):
                self.usage = self._see(self._tree)
            self._cells[cell] = self._count_cpu()
        if first and disk_limit(self._limits):
            # A session that is over its limit may still run cells that write nothing, to make room.
            self._written_before = self._disk.used()
            self._disk.begin()
        self._arm(CELL_S, at_latest=True)

    def cell_ended(self, cell: str = "") -> None:
        """The cell replied or was lost."""
        if self._cells.pop(cell, None) is None or self._cells:
            return
        if self._tree is not None:
            if disk_limit(self._limits):
                self._disk.end()
            self._arm(IDLE_S, at_latest=True)
        self._cpu_used, self._judged_at, self._cleared = 0.0, time.perf_counter(), False

    @property
    def _running(self) -> bool:
        return bool(self._cells)

    def last_look(self) -> LimitReached | None:
        """The error for a cell that has just replied, but was over the disk's limit before anybody looked."""
        allowed = disk_limit(self._limits)
        if not allowed or not self._running:
            return None
        self.written = self._disk.used(allowed)
        return DiskLimit(self.written, allowed) if self.written > max(allowed, self._written_before) else None

    def copied(self, copy: int, original: int) -> None:
        """See `ProcessTree.copied`."""
        if self._tree is not None:
            self._tree.copied(copy, original)

    def renewed(self) -> None:
        """The worker was replaced."""
        self._told, self._killed = frozenset(), False
        self._renewed = True
        self._double = 0

    # ------------------------------------------------------------ looking

    def _arm(self, delay_s: float, *, at_latest: bool = False) -> None:
        """Look then. `at_latest`: a look that is due before stays, or cells that follow each other fast prevent all."""
        if self._timer is not None:
            if at_latest and self._timer.when() <= self._loop.time() + delay_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_s, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._tree is None:
            return
        began = time.perf_counter()
        self.usage = self._see(self._tree)
        error, gently = self._judge(began)
        if isinstance(error, MemoryLimit) and self._make_room():
            error = None
        # (A recount spares the processor by its own rule.)
        recounted_s = self._count_cost_s if self._counted_at == began else 0.0
        pause_s = self._pause(time.perf_counter() - began - recounted_s)
        if error is not None and not self._killed and not (gently and self.culprits <= self._told):
            self._told |= self.culprits
            self._killed = not gently
            self._on_breach(error, gently)
            if isinstance(error, ProcessLimit) and self._tree is not None:
                # The zygote hunts them all down, but a bomb goes off while it is being woken.
                spared = self._spared()
                self._tree.strike(self._tree.not_below(spared) if spared else None)
        if self._tree is not None:
            self._arm(pause_s)

    def _make_room(self) -> bool:
        """End processes that the session can do without; true when there were any."""
        assert self._tree is not None  # noqa: S101
        ended: Collection[int] = self._relieve()
        owners = [] if ended or self._cleared else self._owners()
        if owners:
            # Forks of a cell that has failed, say. They must not cost the next one its variables. Once for each cell:
            # a thread that makes ever new ones is ended with its worker.
            left = self._tree.others(owners, self._began if self._running else float("inf"))
            files = self._countable(self._files())
            if left and self._tree.without(left) + files <= self._limits.memory * _EARLY:
                ended, self._cleared = left, True
                self._on_leftovers()
        if ended:
            self._tree.strike(ended)
            self._double = 0
        return bool(ended)

    def _judge(self, now: float) -> tuple[LimitReached | None, bool]:
        limits = self._limits
        self.culprits = frozenset(self._cells)
        if self.usage.tasks > limits.processes:
            return ProcessLimit(self.usage.tasks, limits.processes), False
        files = self._countable(self._files())
        if self._memory(now, files) > limits.memory * _EARLY:
            return MemoryLimit(self.memory, limits.memory, files=files, processes=self.usage.processes), False
        if self._running:
            used = self._count_cpu() if limits.cell_cpu else 0.0
            over = {cell: used - before for cell, before in self._cells.items() if used - before > limits.cell_cpu}
            if limits.cell_cpu and over:
                self.culprits = frozenset(over)
                return TimeLimit(max(over.values()), limits.cell_cpu, rule="limits.cell_cpu"), True
            allowed = disk_limit(limits)
            self.written = self._disk.used(allowed) if allowed else 0
            if self.written > max(allowed, self._written_before) > 0:
                return DiskLimit(self.written, allowed), self.written < allowed * _DISK_EXCESS
        elif limit := limits.cell_cpu or limits.cell_time:
            self._cpu_used = max(0.0, self._count_cpu() - _LEFT_RUNNING * (now - self._judged_at))
            self._judged_at = now
            if self._cpu_used > limit:
                rule = "limits.cell_cpu" if limits.cell_cpu else "limits.cell_time"
                return TimeLimit(self._cpu_used, limit, rule=rule, left_running=True), False
        return None, False

    def _memory(self, now: float, files: int) -> int:
        """Bytes in use. They are counted exactly once they may be too many, and again when that may have changed."""
        assert self._tree is not None  # noqa: S101
        allowed = self._limits.memory * _EARLY
        seen = self.usage.memory + files
        most = max(seen, self.usage.resident + files)
        if most <= allowed:
            self._double = 0
        total = seen - self._double
        due = now - self._counted_at > max(_RECOUNT_S, self._count_cost_s / _SHARE)
        if most > allowed and (due or total > allowed):
            begun = time.perf_counter()
            total = self._tree.held() + files
            self._double = seen - total
            self._counted_at, self._count_cost_s = now, time.perf_counter() - begun
        self.memory = max(0, total)
        self.peak = max(self.peak, self.memory)
        return self.memory

    def _files(self) -> int:
        used = 0
        for fd in self._folders:
            with contextlib.suppress(OSError):
                found = os.fstatvfs(fd)
                used += (found.f_blocks - found.f_bfree) * found.f_frsize
        return used

    def _countable(self, files: int) -> int:
        """What a dead worker left in files outlives it: were it enough for a breach, each new one would be killed."""
        if self._renewed:
            self._left, self._renewed = files, False
        half = self._limits.memory // 2
        return files if files <= half else max(half, files - self._left)

    def _count_cpu(self) -> float:
        """Of the whole tree, the dead included, since the first of the cells that run now began, or the last ended.

        Of cells on several shells each counts what the tree used since it began: which thread of the worker used it
        is not known for sure.

        A process that ends moves its time to whoever waits for it, in the end to the zygote; of children whose parent
        ignores SIGCHLD only what they used since the last look is lost. So the total never falls by much, and what it
        falls is not given back.
        """
        if self._cpu_before is not None:
            self._cpu_used += max(0.0, self.usage.cpu_s - self._cpu_before)
        self._cpu_before = self.usage.cpu_s
        return self._cpu_used

    def _pause(self, cost_s: float) -> float:
        pause, shortest = (CELL_S, SHORTEST_S) if self._running else (IDLE_S, NEAR_S)
        left = self._limits.memory * _EARLY - self.memory
        if self._running and (allowed := disk_limit(self._limits)):
            left = min(left, allowed - self.written)
        wanted = left / (2 * _FASTEST_BYTES_S)
        if self._unbounded_forks:
            wanted = min(wanted, (self._limits.processes - self.usage.tasks) / (2 * _FASTEST_TASKS_S))
        if wanted >= pause:
            return max(pause, min(cost_s / _SHARE, _LONGEST_S))
        return max(wanted, shortest, min(cost_s / _SHARE, NEAR_S))


def disk_limit(limits: Limits) -> int:
    """Bytes that the session may add to the host's disk; 0: no limit."""
    return limits.disk


def _open_folders(zygote: int) -> list[int]:
    """The sandbox's own folders that are kept in memory; empty where they may not be seen."""
    found = []
    for path in MEMORY_FOLDERS:
        with contextlib.suppress(OSError):
            fd = os.open(f"/proc/{zygote}/root{path}", os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            outside = os.stat(path) if os.path.exists(path) else None
            if outside is not None and outside.st_dev == os.fstat(fd).st_dev:
                os.close(fd)  # the host's own: there is no private one at this level
            else:
                found.append(fd)
    return found
