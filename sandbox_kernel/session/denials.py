"""The front's answers to refused system calls, and the count of them.

A thread of its own answers: the callers wait for it, and the event loop may be busy. It reads the call's number and at
most two of its arguments, never anything that they point to. One call it grants, where there is a place for what it
makes: memfd_create, see `memory_files`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import threading
import time

import msgspec

from .. import linux
from ..seccomp import notify, program
from ..seccomp.table import TOLD
from .memory_files import MemoryFiles

KINDS = {name: kind for kind, names in TOLD.items() for name in names.split()}
NETWORK_RULE, LEVEL_RULE = "network.mode", "isolation.level"

_ROWS = 64  # of the count; what is new beyond them is counted without its detail
# A caller in a loop is made to wait when it has used these up. The first is the store, the second what is added.
_BURST, _PER_SECOND = 20_000, 10_000
_STEP = 200  # calls between two looks at the clock
_GRANT_STEPS = 4  # what granting a call counts: it costs so much more

_WORD = 0xFFFFFFFF
_SPACES = {
    "CLONE_NEWNS": linux.CLONE_NEWNS, "CLONE_NEWCGROUP": linux.CLONE_NEWCGROUP, "CLONE_NEWUTS": linux.CLONE_NEWUTS,
    "CLONE_NEWIPC": linux.CLONE_NEWIPC, "CLONE_NEWUSER": linux.CLONE_NEWUSER, "CLONE_NEWPID": linux.CLONE_NEWPID,
    "CLONE_NEWNET": linux.CLONE_NEWNET,
}  # fmt: skip
_FLAGS = sum(_SPACES.values())
# What of the first two arguments is looked at, by call.
_LOOK = {
    "socket": (_WORD, 0), "socketpair": (_WORD, 0xF), "unshare": (_FLAGS, 0), "clone": (_FLAGS, 0),
    "setns": (0, _FLAGS), "memfd_create": (0, _WORD ^ os.MFD_CLOEXEC),
}  # fmt: skip
_MEMORY = {"MFD_ALLOW_SEALING": 2, "MFD_HUGETLB": 4, "MFD_NOEXEC_SEAL": 8, "MFD_EXEC": 16}
_FAMILIES = {int(value): name for name, value in vars(socket).items() if name.startswith("AF_")}
_TYPES = {int(value): name for name, value in vars(socket).items() if name.startswith("SOCK_")}

_Row = tuple[int, int, int]  # number, masked arguments; (number, -1, -1): without detail


class Denial(msgspec.Struct, frozen=True):
    """Refused calls of one sort.

    Attributes:
        call: its name, such as ``"socket"``.
        detail: what was asked for, such as ``"AF_INET"``; "" when the name says it all.
        count: attempts.
        kind: of `seccomp_table.TOLD`.
        rule: the policy's key that an operator may look at.
    """

    call: str
    detail: str
    count: int
    kind: str
    rule: str


class Denials:
    """Answers listeners and counts; `attach`, `take` and `close` may be called from any thread.

    It starts its thread with the first listener, so a process that still forks may make one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[_Row, int] = {}
        self._listeners: dict[int, set[int]] = {}  # descriptor -> workers, 0: all
        self._memory: dict[int, MemoryFiles] = {}  # by listener
        self._retired: list[int] = []
        self._names: dict[int, str] = {}
        self._look: dict[int, tuple[int, int]] = {}
        self._thread: threading.Thread | None = None
        self._closed = False
        self._tokens, self._since, self._steps = float(_BURST), time.monotonic(), 0

    def attach(self, fd: int, worker: int = 0, memory: int = -1) -> None:
        """Take a listener (and its descriptor) into service.

        Args:
            fd: from `launch.Listeners`.
            worker: for `detach`; 0 for a listener that serves all workers.
            memory: folder in which files that live only in memory can be made, -1: none. It stays the caller's.

        When it cannot be served it is closed, so that calls under it fail instead of waiting for ever.
        """
        notify.prefer_fast_wake_up(fd)
        with self._lock:
            try:
                if self._closed:
                    raise RuntimeError("closed")
                if self._thread is None:
                    self._start()
                # Before the poll knows it: the first call may come at once.
                if memory >= 0 and (files := MemoryFiles.of(memory)) is not None:
                    self._memory[fd] = files
                self._listeners[fd] = {worker}
                self._poll.register(fd, select.EPOLLIN)
            except (OSError, RuntimeError):  # no descriptor or no thread is to be had
                self._listeners.pop(fd, None)
                if (made := self._memory.pop(fd, None)) is not None:
                    made.close()
                os.close(fd)

    def share(self, worker: int, copy: int) -> None:
        """Keep the listeners of `worker` until `copy` is detached, too."""
        with self._lock:
            for owners in self._listeners.values():
                if worker in owners:
                    owners.add(copy)

    def detach(self, worker: int) -> None:
        """Give up the listeners of this worker alone: calls under them fail from now on."""
        with self._lock:
            mine = []
            for fd, owners in self._listeners.items():
                if worker and worker in owners:
                    owners.discard(worker)
                    if not owners:
                        mine.append(fd)
            self._retired += mine
            if mine and not self._closed:
                os.eventfd_write(self._wake, 1)

    def take(self) -> list[Denial]:
        """What was refused since the last call of this, most frequent first."""
        with self._lock:
            counts, self._counts = self._counts, {}
        return sorted((self._denial(row, n) for row, n in counts.items()), key=lambda d: (-d.count, d.call, d.detail))

    def close(self) -> None:
        """Give up all listeners and end the thread; idempotent."""
        with self._lock:
            self._closed = True
            thread, self._thread = self._thread, None
            if thread is not None:
                os.eventfd_write(self._wake, 1)
        if thread is not None:
            thread.join(2.0)

    def _denial(self, row: _Row, count: int) -> Denial:
        number, first, second = row
        call, detail, rule = self._names.get(number, f"system call {number}"), "", LEVEL_RULE
        if (first, second) != (-1, -1):
            if call in ("socket", "socketpair"):
                detail = _FAMILIES.get(first, f"family {first}")
                if call == "socket" and detail != "AF_UNIX":
                    rule = NETWORK_RULE
                elif call == "socketpair":
                    detail += " " + _TYPES.get(second, f"type {second}")
            elif call == "memfd_create":
                detail = " ".join(name for name, bit in _MEMORY.items() if second & bit)
            elif call in _LOOK:
                detail = " ".join(name for name, bit in _SPACES.items() if (first | second) & bit)
        return Denial(call, detail, count, KINDS.get(call, "kernel interfaces"), rule)

    # ------------------------------------------------------------ the thread

    def _start(self) -> None:
        self._names = program.told_numbers()
        self._memory_call = next((number for number, name in self._names.items() if name == "memfd_create"), -1)
        self._look = {number: _LOOK.get(name, (0, 0)) for number, name in self._names.items()}
        self._responder = notify.Responder()
        self._poll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll.register(self._wake, select.EPOLLIN)
        self._thread = threading.Thread(target=self._serve, name="denials", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # see `Responder.give`; other threads get them
        try:
            while not self._closed:
                for fd, events in self._poll.poll():
                    if fd == self._wake:
                        os.eventfd_read(fd)
                    elif not events & select.EPOLLIN or not self._answer(fd):
                        self._retire(fd)  # nobody is left under that filter
                # Not before: a number that is closed may be another listener's the next moment, and the list is old.
                self._close_retired()
        finally:
            # Whatever ended this, callers must not wait for it.
            with self._lock:
                self._closed, self._thread = True, None
                self._retired += self._listeners
            self._close_retired()
            self._poll.close()
            os.close(self._wake)

    def _answer(self, fd: int) -> bool:
        try:
            call = self._responder.receive(fd)
            if call is not None:
                ident, number, first, second = call
                if number == self._memory_call and self._grant(fd, ident, second):
                    self._steps += _GRANT_STEPS
                else:
                    self._refuse(fd, ident, number, first, second)
                    self._steps += 1
                if self._steps >= _STEP:
                    self._pace()
        except OSError:
            return False
        return True

    def _refuse(self, fd: int, ident: int, number: int, first: int, second: int) -> None:
        one, two = self._look.get(number, (0, 0))
        row = (number, first & one, second & two)
        with self._lock:  # before the answer: then the cell cannot end before it is counted
            counts = self._counts
            if row not in counts and len(counts) >= _ROWS:
                row = (number, -1, -1)
            counts[row] = counts.get(row, 0) + 1
        self._responder.refuse(fd, ident)

    def _grant(self, fd: int, ident: int, flags: int) -> bool:
        """Answer memfd_create; False: it is to be refused.

        Seals, huge pages and programs are for the kernel's own files alone. (It knows 32 bits of the flags.) To be
        given something the caller must run for a moment: cells that leave it no time delay further answers to
        themselves, and nobody else's.
        """
        files = self._memory.get(fd)
        if files is None or flags & _WORD not in (0, os.MFD_CLOEXEC):
            return False
        try:
            file = files.open()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.ENOMEM):
                return False
            self._responder.refuse(fd, ident, error.errno)
            return True
        try:
            self._responder.give(fd, ident, file, cloexec=flags & _WORD != 0)
        except OSError as error:
            if error.errno != errno.EMFILE:
                return False
            self._responder.refuse(fd, ident, error.errno)
        finally:
            os.close(file)
        return True

    def _pace(self) -> None:
        """Slow down callers in a loop, who would else take a third of a processor and the interpreter lock."""
        now = time.monotonic()
        self._tokens = min(_BURST, self._tokens + (now - self._since) * _PER_SECOND) - self._steps
        self._since, self._steps = now, 0
        if self._tokens < 0:
            time.sleep(-self._tokens / _PER_SECOND)

    def _retire(self, fd: int) -> None:
        with self._lock:
            self._retired.append(fd)

    def _close_retired(self) -> None:
        with self._lock:
            retired, self._retired = self._retired, []
            for fd in retired:
                if (files := self._memory.pop(fd, None)) is not None:
                    files.close()
                if self._listeners.pop(fd, None) is not None:
                    with contextlib.suppress(OSError):
                        self._poll.unregister(fd)
                    os.close(fd)
