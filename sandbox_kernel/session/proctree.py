"""The processes of one sandbox, as the front sees them in /proc, and what they use.

The tree below the zygote is everything: at level full it is a whole pid namespace, below that the zygote adopts
orphans. Nothing here needs a right over the processes: a worker is not dumpable, and of such a process an ordinary
user may read `stat` and `status`, but not `smaps_rollup`, `io`, `root` or `fd`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection

import msgspec

PAGE = os.sysconf("SC_PAGE_SIZE")
_COUNT_S = 0.1
_DYING_S = 10.0  # a process that was killed gives its memory back a little later, on a busy machine much later
_TICKS = os.sysconf("SC_CLK_TCK")


class Process(msgspec.Struct):
    """What the last look saw. Sizes in bytes, times in seconds.

    Attributes:
        started: in clock ticks; tells apart two processes that had the same id one after the other.
        threads: 1 or more; a process that is dead but not yet collected counts as 1, as it does for the kernel.
        rss: resident memory, shared pages included.
        cpu_s: used by it and by its children that it has waited for.
        faults: pages that it has made its own one by one.
        inherited: at most this much of `rss` was its parent's when it was forked, and still is.
        session: the id of its session: a worker's own, and of what it starts, unless that begins another one.
        waited_s: of `cpu_s`, by its children that it has waited for.
    """

    parent: int
    started: int
    threads: int
    rss: int
    cpu_s: float
    faults: int
    inherited: int = 0
    session: int = 0
    waited_s: float = 0.0

    @property
    def own(self) -> int:
        """Not less than what would be free without it: what it did not inherit, and what it has written to since.

        A fork that writes to what it shares with its parent makes pages of its own, by one fault each. (Not so one that
        hides it: with huge pages, which take one fault for five hundred, with pages that are collapsed to one without
        any, or when another process writes that shares all its memory. `Usage.resident` tells that there may be some.)
        """
        return min(self.rss, max(0, self.rss - self.inherited) + self.faults * PAGE)

    def copied_since(self, before: Process) -> int:
        """About how many bytes it has made its own by writing to pages that it shares with a copy of itself.

        Each cost a fault, and unlike the first touch of new memory did not make the process larger.
        """
        return max(0, (self.faults - before.faults) * PAGE - max(0, self.rss - before.rss))


class Usage(msgspec.Struct, frozen=True):
    """One look at the whole tree.

    Attributes:
        processes, tasks: how many, and with all threads; the zygote is left out here only.
        memory: not less than what the tree holds, in bytes: nothing that a fork shares with its parent is counted
            twice, but other shared pages are.
        cpu_s: processor time so far.
        resident: more than the tree holds, in bytes: shared pages are counted for each process, but not for copies that
            have done nothing since they were made.
    """

    processes: int
    tasks: int
    memory: int
    cpu_s: float
    resident: int = 0


class Share(msgspec.Struct, frozen=True):
    """What a part of the tree uses; as in `Usage`."""

    tasks: int
    memory: int
    cpu_s: float


class ProcessTree:
    """The living processes below `root`, the zygote.

    Attributes:
        allowance: bytes that a look leaves out: of a copy that is being made, which is not known as one yet.
    """

    def __init__(self, root: int, *, proc: str = "/proc") -> None:
        self._root, self._proc = root, proc
        self._members: dict[int, Process] = {}
        self._foreign: set[int] = set()
        self._newest = b""
        # By pid: whose, that one when it was made, and how many bytes more may differ.
        self._copies: dict[int, tuple[int, Process, int]] = {}
        self._asleep: dict[int, Process] = {}  # copies, as they were when they were made
        self.allowance = 0
        self._lost_s = 0.0  # used by processes that nobody has waited for
        self._doubtful_s = 0.0  # of that, by those that were gone in the last look
        self._struck: dict[int, tuple[int, float]] = {}  # by pid: when it was started, and until when it may be dying

    def copied(self, copy: int, original: int) -> None:
        """`copy` was just forked from `original`, whose child it may not be any more: they share what they hold."""
        before = self._read(original)
        if before is not None:
            self._copies[copy] = original, before, 0
        made = self._read(copy)
        if made is not None:
            self._asleep[copy] = made

    def _own(self, pid: int, process: Process) -> int:
        if self._is_dying(pid, process):
            return 0
        original, before, more = self._copies.get(pid, (0, process, 0))
        now = self._members.get(original)
        if now is None or now.started != before.started:
            return process.own
        return min(process.own, now.copied_since(before) + more + process.faults * PAGE)

    def _renew_copies(self) -> None:
        """Forget what is gone. Copies of a process that is gone still share what it held with each other."""
        members = self._members
        self._copies = {pid: record for pid, record in self._copies.items() if pid in members}
        for original in {record[0] for record in self._copies.values()}:
            copies = {pid: record for pid, record in self._copies.items() if record[0] == original}
            now = members.get(original)
            if now is not None and all(now.started == before.started for _, before, _ in copies.values()):
                continue
            heir = min(copies, key=lambda pid: copies[pid][1].faults)  # the oldest: it counts in full from now on
            _, first, first_more = copies.pop(heir)
            del self._copies[heir]
            process = members[heir]
            born = msgspec.structs.replace(process, faults=0, rss=first.rss)
            for pid, (_, before, more) in copies.items():
                self._copies[pid] = heir, born, first_more + more + before.copied_since(first)

    def pids(self) -> list[int]:
        """The process ids that the last look saw."""
        return list(self._members)

    def below(self, pid: int) -> Share:
        """What a worker and all that it started use, as the last look saw it; without daemons."""
        return self._share(lambda one, process: process.session == pid or self._is_below(one, (pid,)))

    def strays(self, pids: Collection[int]) -> Share:
        """What is below none of these, nor in their sessions."""
        known = {*pids, self._root}
        return self._share(lambda one, process: process.session not in known and not self._is_below(one, pids))

    def _is_below(self, pid: int, tops: Collection[int]) -> bool:
        while pid in self._members and pid != self._root:
            if pid in tops:
                return True
            pid = self._members[pid].parent
        return False

    def _share(self, among: Callable[[int, Process], bool]) -> Share:
        found = {pid: p for pid, p in self._members.items() if pid != self._root and among(pid, p)}
        return Share(
            tasks=sum(p.threads for p in found.values()), memory=sum(self._own(pid, p) for pid, p in found.items()),
            cpu_s=sum(p.cpu_s for p in found.values()),
        )  # fmt: skip

    def look(self) -> Usage:
        """Read all again. Takes about 5 us for each process, and 40 us a hundred on the machine if any is new."""
        before = dict(self._members)
        newest = self._newest_pid()
        if newest is None or newest != self._newest or self._root not in self._members:
            # Nothing was forked or cloned anywhere since the last look otherwise, so nobody can be new.
            complete = self._find()
            self._newest = newest if complete and newest else b""
        for pid, process in list(self._members.items()):
            self._refresh(pid, process)
        if self._copies:
            self._renew_copies()
        self._keep_lost(before)
        members = self._members
        root = members.get(self._root)
        return Usage(
            processes=len(members) - (root is not None),
            tasks=sum(p.threads for p in members.values()) - (root.threads if root else 0),
            memory=max(0, sum(self._own(pid, p) for pid, p in members.items()) - self.allowance),
            cpu_s=sum(p.cpu_s for p in members.values()) + self._lost_s,
            resident=sum(p.rss for pid, p in members.items() if not self._rests(pid, p)),
        )

    def _keep_lost(self, before: dict[int, Process]) -> None:
        """Keep the time of those that are gone and whose parent did not get it, because it ignores SIGCHLD.

        A parent that was read before it waited for its child gets the time in the next look.
        """
        gone_s = waited_s = 0.0
        for pid, old in before.items():
            now = self._members.get(pid)
            if now is None or now.started != old.started:
                gone_s += old.cpu_s
            else:
                waited_s += max(0.0, now.waited_s - old.waited_s)
        lost_s = max(-self._doubtful_s, gone_s - waited_s)
        self._lost_s += lost_s
        self._doubtful_s = max(0.0, lost_s)

    def _rests(self, pid: int, process: Process) -> bool:
        """Whether it is a copy that has done nothing yet, and so holds no more than it was made with."""
        made = self._asleep.get(pid)
        if made is None:
            return False
        if (made.started, made.cpu_s, made.faults) == (process.started, process.cpu_s, process.faults):
            return True
        del self._asleep[pid]
        return False

    def held(self) -> int:
        """Bytes of private and shared memory that the tree holds, each page counted once as far as that can be known.

        With the right to read `smaps_rollup` (a front that runs as root) the kernel does the counting. Without it,
        shared memory counts for each process that uses it. The dear reading ends after `_COUNT_S`; what is left then
        (many small processes) counts by `Process.own`.
        """
        total, give_up = 0, time.perf_counter() + _COUNT_S
        for pid, process in sorted(self._members.items(), key=lambda item: -item[1].rss):
            if self._is_dying(pid, process):
                continue
            if time.perf_counter() > give_up:
                total += self._own(pid, process)
                continue
            fields = self._fields(pid, "smaps_rollup")
            if "Pss_Anon" in fields:
                total += fields["Pss_Anon"] + fields.get("Pss_Shmem", 0)
            else:
                fields = self._fields(pid, "status")
                shared = fields.get("RssShmem", 0)
                # (What is its own tells of shared memory, too: by that much less of what it inherited can be.)
                total += max(shared, min(fields.get("RssAnon", 0) + shared, self._own(pid, process)))
        return total

    def not_below(self, pids: Collection[int]) -> list[int]:
        """The members, but for the zygote, these, and what is below them."""
        return [pid for pid in self._members if pid != self._root and not self._is_below(pid, pids)]

    def others(self, spared: Collection[int], before_s: float) -> list[int]:
        """The members, but for the zygote and these, that were started before that time.

        Args:
            before_s: seconds on the clock CLOCK_BOOTTIME. Start times are whole ticks, rounded down: what was started
                in the tick of this time may be younger, and is none of them.
        """
        before = before_s * _TICKS
        return [
            pid for pid, process in self._members.items()
            if pid != self._root and pid not in spared and process.started + 1 <= before
        ]  # fmt: skip

    def without(self, pids: Collection[int]) -> int:
        """What `held` would be, were these gone."""
        kept, self._members = self._members, {pid: p for pid, p in self._members.items() if pid not in pids}
        try:
            return self.held()
        finally:
            self._members = kept

    def strike(self, pids: Collection[int] | None = None) -> None:
        """Kill these members (None: all but the zygote), as the last look saw them; what was forked since goes on.

        What they hold does not count any more: it is about to be given back, and they take nothing anew.
        """
        for pid, process in self._members.items():
            if pid == self._root or (pids is not None and pid not in pids):
                continue
            with contextlib.suppress(OSError):
                fd = os.pidfd_open(pid)
                try:
                    now = self._read(pid)  # after the pidfd: the number cannot have been given to another since
                    if now is not None and now.started == process.started:
                        signal.pidfd_send_signal(fd, signal.SIGKILL)
                        self._struck[pid] = process.started, time.monotonic() + _DYING_S
                finally:
                    os.close(fd)

    def _is_dying(self, pid: int, process: Process) -> bool:
        started, until = self._struck.get(pid, (-1, 0.0))
        if started == process.started and time.monotonic() < until:
            return True
        self._struck.pop(pid, None)
        return False

    # ------------------------------------------------------------ who

    def _find(self) -> bool:
        """Find new members and forget dead ones; False when some could not be placed yet."""
        try:
            pids = {int(name) for name in os.listdir(self._proc) if name.isdigit()}
        except OSError:
            return False
        self._foreign &= pids
        self._members = {pid: p for pid, p in self._members.items() if pid in pids}
        self._asleep = {pid: p for pid, p in self._asleep.items() if pid in pids}
        new = {}
        for pid in pids - self._foreign - self._members.keys():
            process = self._read(pid)
            if process is not None:
                new[pid] = process
        # A process is one of the tree when its parent is; parents may be as new as their children.
        placed = True
        while new and placed:
            placed = False
            for pid, process in list(new.items()):
                if pid == self._root or process.parent in self._members:
                    parent = self._members.get(process.parent)
                    process.inherited = 0 if parent is None else min(process.rss, parent.rss)
                    self._members[pid] = process
                elif process.parent in new:
                    continue
                elif process.parent in self._foreign or process.parent not in pids:
                    self._foreign.add(pid)
                else:
                    continue
                del new[pid]
                placed = True
        return not new

    def _refresh(self, pid: int, old: Process) -> None:
        process = self._read(pid)
        if process is None:
            del self._members[pid]
        elif process.started != old.started:  # another one took its number
            del self._members[pid]
            self._newest = b""
        else:
            # What has been given back since cannot be the parent's any more.
            process.inherited = min(old.inherited, process.rss)
            self._members[pid] = process

    # ------------------------------------------------------------ /proc

    def _newest_pid(self) -> bytes | None:
        """The last id given to any process or thread."""
        text = _text(f"{self._proc}/loadavg")
        return text.split()[-1] if text else None

    def _read(self, pid: int) -> Process | None:
        return read_process(pid, self._proc)

    def _fields(self, pid: int, name: str) -> dict[str, int]:
        """The lines ``Name: 12 kB`` of a file, in bytes; empty when it may not be read."""
        found = {}
        for line in _text(f"{self._proc}/{pid}/{name}").splitlines():
            words = line.split()
            if len(words) == 3 and words[2] == b"kB":
                found[words[0].rstrip(b":").decode()] = int(words[1]) * 1024
        return found


def read_process(pid: int, proc: str = "/proc") -> Process | None:
    """One process as it is now; None when it is gone."""
    text = _text(f"{proc}/{pid}/stat")
    if not text:
        return None
    # The name in parentheses is the process's own choice and may hold anything, ")" included.
    fields = text.rpartition(b")")[2].split()
    return Process(
        parent=int(fields[1]), started=int(fields[19]), threads=max(1, int(fields[17])),
        rss=max(0, int(fields[21])) * PAGE, cpu_s=sum(map(int, fields[11:15])) / _TICKS, faults=int(fields[7]),
        session=int(fields[3]), waited_s=sum(map(int, fields[13:15])) / _TICKS,
    )  # fmt: skip


def _text(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, 8192)
    except OSError:  # it ended meanwhile, or only its owner may read
        return b""
    finally:
        os.close(fd)
