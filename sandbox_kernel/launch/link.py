"""The front's side of the zygote: start it, ask it, hear from it. Nothing here blocks unless it says so."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Sequence
from typing import Any, Protocol

from .. import linux
from ..errors import IsolationUnavailable
from ..plan.model import Plan
from . import launcher
from .zygote import PACKET_BYTES, Entry

Event = dict[str, Any]
_CREDENTIALS = struct.Struct("3i")
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - inside the sandbox
_FDS_BYTES = socket.CMSG_SPACE(16 * 4) + socket.CMSG_SPACE(_CREDENTIALS.size)


class Listeners(Protocol):
    """Who answers the calls that the filter does not refuse by itself, see `seccomp.notify`."""

    def attach(self, fd: int, worker: int = 0, memory: int = -1) -> None:
        """Take a listener, and answer.

        Args:
            fd: the listener.
            worker: the only one that it concerns; 0: all.
            memory: the sandbox's own folder for shared memory, -1: none. It stays the caller's.
        """

    def share(self, worker: int, copy: int) -> None:
        """A copy of `worker` is under the same filter: its listener is needed until both have ended."""

    def detach(self, worker: int) -> None:
        """A worker has ended: its listener can be closed."""


def start_zygote(plans: Sequence[Plan], entry: Entry, listeners: Listeners | None = None) -> ZygoteLink:
    """Fork the launcher and return at once; "ready" or "failed" arrives through the link.

    Call it from the main thread of a process with one thread, before it reads any secret: the zygote is a
    fork and has all of its memory. This process becomes a subreaper, so that it adopts the zygote.

    Args:
        plans: to be tried in this order.
        entry: what workers run.
        listeners: gets the listeners of the filters, from within `ZygoteLink.receive`; None: the filters refuse
            everything by themselves, and nobody hears of it.
    """
    linux.set_child_subreaper()
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    mine.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    # What is still in these buffers would be written by every fork.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    pid = os.fork()
    if pid == 0:
        mine.detach()
        launcher.launch(list(plans), entry, theirs, listen=listeners is not None)
    theirs.close()
    mine.setblocking(False)
    return ZygoteLink(mine, pid, [plan.level for plan in plans], listeners)


class ZygoteLink:
    """The control socket with what is known about its other end.

    Attributes:
        ready: the "ready" event once it came.
        failures: the "failed" events so far.
    """

    def __init__(
        self, control: socket.socket, launcher: int, levels: list[str], listeners: Listeners | None = None
    ) -> None:
        self._control, self._launcher, self._levels, self._listeners = control, launcher, levels, listeners
        self._zygote_fd = -1
        self._dead: list[int] = []  # what failed plans left to this process, the subreaper
        self.ready: Event | None = None
        self.failures: list[Event] = []

    def fileno(self) -> int:
        """For an event loop: readable when `receive` has something."""
        return self._control.fileno()

    def receive(self) -> list[Event]:
        """All events that have arrived, each with "fds" (the receiver closes them).

        "failed" has "last" (no further plan is tried) and "remedy"; "ready" has "pid", the zygote's for this
        process.

        Raises:
            EOFError: the zygote (before "ready": the launcher) has ended, and all its events were received.
        """
        events: list[Event] = []
        while self._control.fileno() >= 0:
            try:
                packet, ancillary, _, _ = self._control.recvmsg(
                    PACKET_BYTES, _FDS_BYTES, socket.MSG_CMSG_CLOEXEC
                )
            except (BlockingIOError, InterruptedError):
                break
            except ConnectionResetError:
                packet, ancillary = b"", []
            fds, sender = _unpack(ancillary)
            if not packet:
                if events:
                    break
                self._reap_launcher()
                raise EOFError("the sandbox's first process has ended")
            try:
                event: Event = {**json.loads(packet), "fds": fds}
            except ValueError:  # cut off, because it was longer than a packet may be
                raise EOFError("the sandbox's first process sent something unreadable") from None
            if event.pop("listens", False) and fds:  # (none is left when this process has no descriptor free)
                listener, folders = fds.pop(), dict(zip(event.get("folders", ()), fds, strict=False))
                self._attach(listener, event.get("worker", 0), folders.get(_SHARED_MEMORY, -1))
            if event["event"] == "listener":
                continue
            if event["event"] == "ready":
                self._reap_launcher()
                self._zygote_fd = os.pidfd_open(sender)
                self.ready = event
                event["pid"] = sender  # the kernel's word, not the sandbox's
            elif event["event"] == "failed":
                self.failures.append(event)
                event["remedy"] = _remedy(event)
                self._dead.append(event["pid"])
            elif event["event"] == "forked" and "of" in event and self._listeners is not None:
                self._listeners.share(event["of"], event["worker"])
            elif event["event"] == "exit" and self._listeners is not None:
                self._listeners.detach(event["worker"])
            events.append(event)
        return events

    def wait(self, timeout_s: float = 60.0) -> Event:
        """Block until the zygote is ready and return that event. For callers without an event loop.

        Raises:
            IsolationUnavailable: no plan could be had; the link is closed.
        """
        deadline = time.monotonic() + timeout_s
        while self.ready is None:
            readable, _, _ = select.select([self._control], [], [], max(0.0, deadline - time.monotonic()))
            try:
                events = self.receive() if readable else []
                if self.ready is None and (not readable or any(e.get("last") for e in events)):
                    raise EOFError
            except EOFError:
                self.close()
                raise self.unavailable() from None
        return self.ready

    def unavailable(self) -> IsolationUnavailable:
        """The error that tells why no plan could be had, from the failures so far."""
        if not self.failures:
            return IsolationUnavailable(self._levels[0], "start", "the launcher ended or gave no answer")
        last = self.failures[-1]
        others = [f"{f['level']}: {f['step']}: {f['error']}" for f in self.failures[:-1]]
        saw = last["error"] + (f" (before that, {'; '.join(others)})" if others else "")
        return IsolationUnavailable(last["level"], last["step"], saw, _remedy(self.failures[0]))

    def fork(self, worker: int, fds: Sequence[int]) -> None:
        """Ask for a worker. ``fds``: channel, stdout, stderr (the caller closes its own copies)."""
        self._send({"op": "fork", "worker": worker}, fds)

    def adopt(self, worker: int, pid: int, original: int) -> None:
        """Take a sleeping copy of the worker `original` as `worker`; "forked" or "fork_failed" follows.

        Args:
            pid: as the zygote numbers it.
        """
        self._send({"op": "adopt", "worker": worker, "pid": pid, "of": original})

    def wake(self, worker: int) -> None:
        """A copy is to go on as an ordinary worker."""
        self._send({"op": "wake", "worker": worker})

    def signal(self, worker: int, number: int, *, group: bool = False) -> None:
        """Send a signal to a worker, or to its whole process group."""
        self._send({"op": "signal", "worker": worker, "signal": int(number), "group": group})

    def kill(self, worker: int) -> None:
        """Kill a worker and everything that it started; its "exit" follows."""
        self._send({"op": "kill", "worker": worker})

    def close(self, timeout_s: float = 2.0) -> None:
        """End the zygote and all below it, and collect it; idempotent. Blocks, usually a few milliseconds.

        Args:
            timeout_s: when it has not ended by then it is killed. It gets thirty times that where it has a folder to
                empty, in which cells may have left very much: nobody else may do that in its place, because what a
                killed zygote leaves running could play tricks with the names.
        """
        if self.ready is not None and self.ready.get("details", {}).get("scratch"):
            timeout_s *= 30
        with contextlib.suppress(OSError):
            self._control.shutdown(
                socket.SHUT_RDWR
            )  # closing is no end of file while a fork of this process lives
        self._control.close()
        if self._zygote_fd >= 0:
            poll = select.poll()
            poll.register(self._zygote_fd, select.POLLIN)
            if not poll.poll(timeout_s * 1000):
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._zygote_fd, signal.SIGKILL)
                poll.poll(timeout_s * 1000)
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PIDFD, self._zygote_fd, os.WEXITED | os.WNOHANG)
            os.close(self._zygote_fd)
            self._zygote_fd = -1
        self._reap_launcher(kill=True)

    def _send(self, request: dict[str, Any], fds: Sequence[int] = ()) -> None:
        # The zygote answers within milliseconds and requests are tiny: a full socket means that it is stuck.
        try:
            socket.send_fds(self._control, [json.dumps(request).encode()], fds)
        except (BrokenPipeError, ConnectionResetError):
            return  # "gone" is about to be received

    def _attach(self, fd: int, worker: int, memory: int) -> None:
        if self._listeners is None:
            os.close(fd)
        else:
            self._listeners.attach(fd, worker, memory)

    def _reap_launcher(self, *, kill: bool = False) -> None:
        if self._launcher:
            if kill:
                os.kill(self._launcher, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._launcher, 0)
            self._launcher = 0
        for pid in self._dead:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        self._dead = []


def _unpack(ancillary: list[tuple[int, int, bytes]]) -> tuple[list[int], int]:
    """Descriptors and the sender's pid."""
    fds: list[int] = []
    sender = 0
    for family, kind, data in ancillary:
        if (family, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds += struct.unpack(f"{len(data) // 4}i", data[: len(data) // 4 * 4])
        elif (family, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            sender = _CREDENTIALS.unpack(data[: _CREDENTIALS.size])[0]
    return fds, sender


def _remedy(failure: Event) -> str:
    """What the operator may change, for failures that have one well-known cause."""
    if failure["step"] == "unshare" and failure["errno"] in (errno.ENOSPC, errno.EPERM, errno.EUSERS):
        return (
            "Allow user namespaces (sysctl user.max_user_namespaces; "
            "kernel.apparmor_restrict_unprivileged_userns=0; in a container, a seccomp profile that permits "
            "unshare), or choose the level 'seccomp+landlock'."
        )
    if failure["step"] == "mount proc":
        return (
            "The container covers parts of /proc; start it with an uncovered /proc (Docker: --security-opt "
            "systempaths=unconfined), or choose the level 'seccomp+landlock'."
        )
    if failure["step"].startswith("landlock"):
        return "Use a kernel with Landlock (Linux 5.13, boot parameter lsm=landlock,...)."
    return ""
