"""The zygote: confined once, forks workers, reaps, and tells the front how they ended. It runs no cell code.

It is pid 1 of the sandbox (level full) or a supervisor that adopts every orphan below it. Its life hangs on
the control socket: on end of file it kills everything below it and ends, so nothing outlives the front.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from typing import Any, NoReturn, Protocol

from .. import linux
from ..confine.lockdown import restrict
from ..plan.model import Plan
from . import scratch

CHANNEL_FD = 3  # what a worker has besides 0, 1 and 2
CONTROL_FD = 4  # only until its entry runs
PACKET_BYTES = 65536
_OOM_EXTRA = 300  # on a scale of 1000: when memory runs out the kernel takes a worker, never its zygote


class Entry(Protocol):
    """What the zygote hosts; it comes from the front, with its imports done."""

    def prepare(self) -> None:
        """Called once in the zygote, after its lockdown."""

    def run(self, channel_fd: int, worker: int) -> NoReturn:
        """Called in each worker; SIGINT is ignored until it sets a handler."""


class Zygote:
    """The loop. `serve` never returns.

    Args:
        plan: what this process is confined by.
        entry: what workers run.
        control: the zygote's end of the control socket.
        front_fd: pidfd of the front. The control socket alone would not tell of its end while a child that it
            forked keeps a copy.
        oom_fd: /proc/self/oom_score_adj, opened while that was allowed; -1 when it was not.
        listen: whether the front answers the calls that notify.
    """

    def __init__(
        self, plan: Plan, entry: Entry, control: socket.socket, front_fd: int, oom_fd: int, *, listen: bool = False
    ) -> None:
        self._plan, self._entry, self._control, self._listen = plan, entry, control, listen
        self._front_fd, self._oom_fd = front_fd, oom_fd
        self._namespaces = "namespaces" in plan.layers
        self._oom = int(os.pread(oom_fd, 16, 0)) if oom_fd >= 0 else 0
        self._workers: dict[int, int] = {}  # number -> pid
        self._asleep: set[int] = set()  # those of them that are copies, see `_adopt`
        self._ended: list[tuple[int, int, float, int]] = []  # number, status, CPU seconds, peak KiB
        self._null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        self._pid = os.getpid()
        self._wake, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGCHLD, _nothing)
        # As pid 1 it is immune to SIGTERM from inside as long as it has no handler, and must stay so.
        signal.signal(signal.SIGTERM, signal.SIG_DFL if self._namespaces else _nothing)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def send(self, event: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        """One event to the front; a front that is gone ends everything."""
        try:
            socket.send_fds(self._control, [json.dumps(event).encode()], fds)
        except (BrokenPipeError, ConnectionResetError):
            self._end()

    def serve(self) -> NoReturn:
        """Answer the front until it goes away."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        poll.register(self._front_fd, select.POLLIN)
        while True:
            self._reap()
            ready = {fd for fd, _ in poll.poll()}
            terminated = self._wake in ready and signal.SIGTERM in os.read(self._wake, 4096)
            if terminated or self._front_fd in ready:
                self._end()
            if self._control.fileno() in ready:
                try:
                    flags = socket.MSG_CMSG_CLOEXEC
                    packet, fds, _, _ = socket.recv_fds(self._control, PACKET_BYTES, 8, flags)
                except ConnectionResetError:
                    packet, fds = b"", []
                if not packet:
                    self._end()
                self._answer(json.loads(packet), fds)

    def _answer(self, request: dict[str, Any], fds: list[int]) -> None:
        number = request["worker"]
        match request["op"]:
            case "fork":
                self._fork(number, fds)
            case "signal":
                pid = self._workers.get(number)
                if pid is not None:
                    _signal(pid, request["signal"], group=request["group"])
                    self.send({"event": "signalled", "worker": number, "signal": request["signal"]})
            case "adopt":
                self._adopt(number, request["pid"], request["of"])
            case "wake":
                self._asleep.discard(number)
            case "kill":
                if number in self._workers:
                    self._clear(number)
                    self._reap()

    def _fork(self, number: int, fds: list[int]) -> None:
        error = None
        self._set_oom(min(1000, self._oom + _OOM_EXTRA))  # before the fork: a worker may not write that file
        try:
            pid = os.fork()
            if pid == 0:
                self._become_worker(number, fds)
        except OSError as caught:
            error = caught
        finally:
            self._set_oom(self._oom)
            for fd in fds:
                os.close(fd)
        if error is not None:
            self.send({"event": "fork_failed", "worker": number, "error": str(error), "errno": error.errno})
            return
        self._workers[number] = pid
        self._tell_forked(number, pid)

    def _tell_forked(self, number: int, pid: int, **more: int) -> None:
        pidfd = os.pidfd_open(pid)
        try:
            self.send({"event": "forked", "worker": number, "pid": pid, **more}, (pidfd,))
        except OSError as error:
            # ETOOMANYREFS: by their sockets cells have as many descriptors on their way as one user's programs may.
            _signal(pid, signal.SIGKILL, group=False)
            del self._workers[number]
            self._asleep.discard(number)
            self.send({"event": "fork_failed", "worker": number, "error": str(error), "errno": error.errno})
        finally:
            os.close(pidfd)

    def _adopt(self, number: int, pid: int, original: int) -> None:
        """Take a copy that a worker has left of itself as a worker that sleeps.

        The pid is a word of the sandbox. It must be a child of this process, and not a worker yet; so what a lie
        could bring about is that a process of the cells is watched as if it were the copy.
        """
        try:
            if pid in self._workers.values():
                raise ChildProcessError
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            self.send({"event": "fork_failed", "worker": number, "error": "no such child", "errno": errno.ECHILD})
            return
        self._workers[number] = pid
        self._asleep.add(number)
        self._tell_forked(number, pid, of=original)

    def _become_worker(self, number: int, fds: list[int]) -> NoReturn:
        status = 70  # EX_SOFTWARE
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.setsid()
            # All numbers are about to be used again.
            control, channel, out, err = (
                fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 16) for fd in (self._control.detach(), *fds)
            )
            for fd, target in ((self._null, 0), (out, 1), (err, 2)):
                os.dup2(fd, target)
            os.dup2(channel, CHANNEL_FD, inheritable=False)
            os.dup2(control, CONTROL_FD, inheritable=False)
            linux.close_range(CONTROL_FD + 1)
            if not self._namespaces:
                linux.set_pdeathsig(signal.SIGKILL)
                if os.getppid() != self._pid:  # the zygote ended before the line above
                    os._exit(status)
                _, listener = restrict(self._plan, listen=self._listen)
                if listener >= 0:
                    told = {"event": "listener", "worker": number, "listens": True}
                    with socket.socket(fileno=CONTROL_FD) as front, contextlib.suppress(OSError):  # see `_tell_forked`
                        socket.send_fds(front, [json.dumps(told).encode()], [listener])
            # The listener with it: who has one can let calls through.
            linux.close_range(CHANNEL_FD + 1)
            self._entry.run(CHANNEL_FD, number)
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else int(error.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)

    def _set_oom(self, value: int) -> None:
        if self._oom_fd >= 0:
            with contextlib.suppress(OSError):
                os.pwrite(self._oom_fd, str(value).encode(), 0)

    def _reap(self) -> None:
        """Collect all that ended; for a worker, end what it left behind, then report it."""
        self._collect()
        while self._ended:
            number, status, cpu_s, peak_kib = self._ended.pop(0)
            pid = self._workers[number]
            self._clear(number)
            # A kill that came in between is already in the list as the same worker's end.
            self._workers.pop(number, None)
            self._asleep.discard(number)
            self.send({"event": "exit", "worker": number, "pid": pid, "status": status,
                       "cpu_s": round(cpu_s, 3), "peak_bytes": peak_kib * 1024})  # fmt: skip

    def _collect(self) -> None:
        numbers = {pid: number for number, pid in self._workers.items()}
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in numbers:
                self._ended.append((numbers[pid], status, used.ru_utime + used.ru_stime, used.ru_maxrss))

    def _clear(self, number: int | None) -> None:
        """Kill a worker (None: all) with everything that it started, and collect it; about 5 s at most.

        Stopped first, then killed: what is stopped cannot fork away from the hunter. Repeated until none is
        left.
        """
        alone = number is None or set(self._workers) <= {number}
        give_up = time.monotonic() + 5.0
        while time.monotonic() < give_up:
            if self._namespaces and alone:
                # One call that no fork can escape. From pid 1 it reaches all of the sandbox and nothing else.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(-1, signal.SIGKILL)
                self._collect()
                if not _has_children():
                    return
            else:
                for _ in range(8):
                    found = self._below(None if alone else number)
                    running = [p for p in found if p[2] != "T"]
                    self._strike(running, signal.SIGSTOP)
                    if not running:
                        break
                self._strike(self._below(None if alone else number), signal.SIGKILL)
                self._collect()
                if not self._below(None if alone else number):
                    return
            time.sleep(0.001)

    def _strike(self, processes: list[tuple[int, int, str]], number: signal.Signals) -> None:
        # A group is hit in one step, which no fork inside it survives. All of a group are in one session, and
        # sessions other than the zygote's were made below it, so no stranger is hit.
        spared = {os.getpgrp()} | set(self._workers.values())
        mine = {pid for pid, _, _ in processes}
        for group in {group for _, group, _ in processes} - (spared - mine):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)
        for pid in mine:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def _below(self, number: int | None) -> list[tuple[int, int, str]]:
        """(pid, group, state) of the living processes below the zygote, or of one worker's only."""
        table: dict[int, tuple[int, int, int, str]] = {}
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
                    # A process whose first thread has ended looks like a zombie; the others go on.
                    alive = int(fields[17]) > 1 and fields[0] in b"ZX"
                    state = "R" if alive else fields[0].decode()
                    table[int(name)] = (int(fields[1]), int(fields[2]), int(fields[3]), state)
        wanted = self._pid if number is None else self._workers[number]
        spared = {self._pid}
        others = set(self._workers) - {number}
        if number is not None and number not in self._asleep and others <= self._asleep:
            # Copies sleep and have nothing below them: all else is what the worker started, daemons too.
            wanted = self._pid
            spared |= {self._workers[other] for other in others}
        found = []
        for pid, (_, group, session, state) in table.items():
            above = pid
            while above in table and above not in (wanted, self._pid):
                above = table[above][0]
            below = above == wanted
            if (
                below or (number is not None and session == wanted and above == self._pid)
            ) and state not in "ZX" and pid not in spared:
                found.append((pid, group, state))
        return found

    def _end(self) -> NoReturn:
        self._clear(None)
        if self._plan.scratch:
            scratch.remove(self._plan.scratch)
        os._exit(0)


def _nothing(*_: object) -> None:
    """A handler, so that the signal reaches the wake-up descriptor."""


def _signal(pid: int, number: int, *, group: bool) -> None:
    with contextlib.suppress(ProcessLookupError):
        if group:
            try:
                os.killpg(pid, number)
                return
            except ProcessLookupError:  # a worker that was just forked is not yet the head of its group
                pass
        os.kill(pid, number)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
