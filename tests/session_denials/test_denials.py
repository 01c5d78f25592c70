"""The thread that answers refused calls: what it counts, and that neither floods nor deaths harm it."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sandbox_kernel import linux
from sandbox_kernel.confine.seccomp import load_filter
from sandbox_kernel.seccomp.program import compile_filter
from sandbox_kernel.session import denials as module
from sandbox_kernel.session.denials import Denial, Denials
from tests.waiting import wait_for

PROGRAM = compile_filter(level="full", landlock_abi=7, told=True)
SOCKET = {"x86_64": 41, "aarch64": 198}[linux.MACHINE]
INET = Denial("socket", "AF_INET", 1, "network", "network.mode")


class Caller:
    """A process under the filter that does what it is told to; its listener is ours."""

    def __init__(self) -> None:
        self._mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.dup2(theirs.detach(), 3)
                self._mine.detach()
                linux.close_range(4)  # among them the listeners of earlier callers
                self._serve(socket.socket(fileno=3))
            finally:
                os._exit(0)
        theirs.close()
        _, (self.listener,), _, _ = socket.recv_fds(self._mine, 9, 1)

    def _serve(self, channel: socket.socket) -> None:
        signal.alarm(50)
        linux.set_no_new_privs()
        listener = load_filter(PROGRAM, listen=True)
        socket.send_fds(channel, [b"listener"], [listener])
        linux.close_range(4)
        call = ctypes.CDLL(None, use_errno=True).syscall
        while request := channel.recv(99):
            family, count = map(int, request.split())
            for at in range(count):
                call(SOCKET, family if family >= 0 else 1000 + at, 1, 6)
            channel.send(str(ctypes.get_errno()).encode())

    def begin(self, family: int = socket.AF_INET, count: int = 1) -> None:
        self._mine.send(f"{family} {count}".encode())

    def end(self) -> int:
        """The errno of the last call."""
        return int(self._mine.recv(99) or -1)

    def call(self, family: int = socket.AF_INET, count: int = 1) -> int:
        self.begin(family, count)
        return self.end()

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self._mine.close()


@pytest.fixture
def denials() -> Iterator[Denials]:
    made = Denials()
    yield made
    made.close()


@pytest.fixture
def make() -> Iterator[Callable[[], Caller]]:
    made: list[Caller] = []

    def begin() -> Caller:
        made.append(Caller())
        return made[-1]

    yield begin
    for caller in made:
        caller.close()


def _open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def test_nothing_starts_before_the_first_listener() -> None:
    """The front makes one before it forks the zygote, with one thread."""
    before = threading.active_count()
    quiet = Denials()
    assert quiet.take() == []
    assert threading.active_count() == before
    quiet.close()


def test_calls_are_counted_by_family_since_the_last_look(denials: Denials, make: Callable[[], Caller]) -> None:
    caller = make()
    denials.attach(caller.listener)
    assert caller.call(count=3) == errno.EPERM
    assert caller.call(socket.AF_PACKET) == errno.EPERM
    assert denials.take() == [
        Denial("socket", "AF_INET", 3, "network", "network.mode"),
        Denial("socket", "AF_PACKET", 1, "network", "network.mode"),
    ]
    assert denials.take() == []
    caller.call()
    assert denials.take() == [INET]


def test_a_call_is_counted_before_its_answer(denials: Denials, make: Callable[[], Caller]) -> None:
    """Else the end of the cell could come before the count."""
    caller = make()
    denials.attach(caller.listener)
    for _ in range(200):
        caller.call()
        assert denials.take() == [INET]


def test_several_listeners(denials: Denials, make: Callable[[], Caller]) -> None:
    callers = [make() for _ in range(5)]
    for number, caller in enumerate(callers, 1):
        denials.attach(caller.listener, number)
    for caller in callers:
        caller.begin(count=100)
    assert {caller.end() for caller in callers} == {errno.EPERM}
    assert [d.count for d in denials.take()] == [500]


def test_invented_families_do_not_fill_the_table(denials: Denials, make: Callable[[], Caller]) -> None:
    caller = make()
    denials.attach(caller.listener)
    assert caller.call(-1, 5000) == errno.EPERM
    found = denials.take()
    assert len(found) <= module._ROWS + 1
    assert sum(d.count for d in found) == 5000
    assert found[0] == Denial("socket", "", 5000 - module._ROWS, "network", "isolation.level")


def test_a_lost_worker_takes_its_listener_along(denials: Denials, make: Callable[[], Caller]) -> None:
    one, other = make(), make()
    denials.attach(one.listener, 1)
    denials.attach(other.listener, 2)
    one.call()
    denials.detach(1)
    wait_for(lambda: not _open(one.listener))
    assert one.call() == errno.ENOSYS
    assert other.call() == errno.EPERM
    denials.detach(1)
    denials.detach(3)
    assert other.call() == errno.EPERM


def test_a_listener_of_all_workers_outlives_each(denials: Denials, make: Callable[[], Caller]) -> None:
    caller = make()
    denials.attach(caller.listener)
    denials.detach(1)
    denials.detach(0)
    assert caller.call() == errno.EPERM


def test_a_listener_without_processes_is_closed(denials: Denials) -> None:
    caller = Caller()
    denials.attach(caller.listener)
    assert caller.call() == errno.EPERM
    caller.close()
    wait_for(lambda: not _open(caller.listener))


def test_callers_that_die_while_they_wait(denials: Denials, make: Callable[[], Caller]) -> None:
    """Killed before the call is taken up, and at any other moment."""
    for _ in range(20):
        caller = Caller()
        caller.begin()
        poll = select.poll()
        poll.register(caller.listener, select.POLLIN)
        poll.poll(2000)
        caller.close()
        denials.attach(caller.listener)
    for wait_s in (0.0, 0.0005, 0.001, 0.002) * 5:
        caller = Caller()
        denials.attach(caller.listener)
        caller.begin(count=1_000_000)
        time.sleep(wait_s)
        caller.close()
    denials.take()
    last = make()
    denials.attach(last.listener)
    assert last.call() == errno.EPERM
    assert INET in denials.take()


def test_after_the_end_calls_fail_and_nothing_stays_open(make: Callable[[], Caller]) -> None:
    threads = threading.active_count()
    before = set(os.listdir("/proc/self/fd"))
    ended = Denials()
    one, late = make(), make()
    ended.attach(one.listener)
    assert one.call() == errno.EPERM
    ended.close()
    ended.close()
    assert one.call() == errno.ENOSYS
    ended.attach(late.listener, 4)
    assert late.call() == errno.ENOSYS
    ended.detach(4)
    assert ended.take() == [INET]
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) == len(before) + 2  # the channels of the two callers


def test_the_first_call_finds_what_it_may_be_given(
    denials: Denials, make: Callable[[], Caller], monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, seen = make(), []

    class Files:
        def close(self) -> None:
            seen.append("closed")

    class Full:
        def register(self, fd: int, events: int) -> None:
            seen.append(type(denials._memory.get(fd)).__name__)
            raise OSError(errno.ENOSPC, "no more of them")

    denials.attach(make().listener)
    monkeypatch.setattr(module.MemoryFiles, "of", lambda folder: Files())
    monkeypatch.setattr(denials, "_poll", Full())
    denials.attach(caller.listener, 3, memory=0)
    assert seen == ["Files", "closed"]
    assert not _open(caller.listener)
    assert caller.call() == errno.ENOSYS, "it does not wait for ever"


def test_when_the_thread_fails_callers_do_not_wait(
    denials: Denials, make: Callable[[], Caller], monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = make()
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    denials.attach(caller.listener)
    denials._look = None  # type: ignore[assignment]
    assert caller.call() == errno.ENOSYS
    denials.attach(make().listener)
    denials.close()


def test_looking_while_calls_come_loses_none(denials: Denials, make: Callable[[], Caller]) -> None:
    caller = make()
    denials.attach(caller.listener)
    caller.begin(count=5000)
    seen = 0
    while seen < 5000:
        seen += sum(d.count for d in denials.take())
    assert caller.end() == errno.EPERM
    assert denials.take() == []


def test_a_flood_is_slowed_down(
    denials: Denials, make: Callable[[], Caller], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BURST", 1000)
    caller = make()
    denials.attach(caller.listener)
    caller.call()
    for _ in range(5):  # (a machine that stalls makes the first part slow, too)
        denials._tokens = 1000.0
        since = time.monotonic()
        caller.call(count=900)
        quick = time.monotonic() - since
        since = time.monotonic()
        caller.call(count=3000)
        slow = time.monotonic() - since
        assert slow > 0.2  # 3000 calls at 10,000 a second
        if quick / 900 < slow / 3000:
            break
    assert quick / 900 < slow / 3000


def test_a_flood_does_not_keep_the_front_from_its_work(denials: Denials, make: Callable[[], Caller]) -> None:
    """Turns of a loop that wants one each 2 ms, beside a loop of refused calls that does not end."""

    def turns() -> list[float]:
        late = []
        end = time.monotonic() + 1.2
        while (now := time.monotonic()) < end:
            time.sleep(0.002)
            late.append(time.monotonic() - now - 0.002)
        return sorted(late)

    quiet = turns()
    caller = make()
    denials.attach(caller.listener)
    caller.begin(count=1_000_000)
    before = time.process_time()
    late = turns()
    spent = time.process_time() - before
    count = sum(d.count for d in denials.take())
    assert count > 1000
    assert count < module._BURST + 4 * module._PER_SECOND
    # Half the turns are on time, nine of ten within a few of the interpreter's switches (5 ms), beyond what the machine
    # itself is late.
    for share, allowed_s in ((0.5, 0.01), (0.9, 0.05)):
        assert late[int(len(late) * share)] < allowed_s + 3 * quiet[int(len(quiet) * share)], (share, len(late))
    assert spent < 1.2


def test_details_of_other_calls() -> None:
    made = Denials()
    made._names = {1: "unshare", 2: "clone", 3: "setns", 4: "socketpair", 5: "ptrace", 6: "connect"}
    rows: dict[Any, Any] = {
        (1, linux.CLONE_NEWUSER | linux.CLONE_NEWNS, 0): 1, (2, linux.CLONE_NEWPID, 0): 2,
        (3, 0, linux.CLONE_NEWNET): 3, (4, 1, 2): 4, (5, 0, 0): 5, (6, 0, 0): 6, (7, 0, 0): 7, (4, 77, 9): 8,
    }  # fmt: skip
    made._counts = rows
    assert [(d.call, d.detail, d.count, d.kind) for d in made.take()] == [
        ("socketpair", "family 77 type 9", 8, "network"),
        ("system call 7", "", 7, "kernel interfaces"),
        ("connect", "", 6, "network"),
        ("ptrace", "", 5, "other processes"),
        ("socketpair", "AF_UNIX SOCK_DGRAM", 4, "network"),
        ("setns", "CLONE_NEWNET", 3, "namespaces"),
        ("clone", "CLONE_NEWPID", 2, "namespaces"),
        ("unshare", "CLONE_NEWNS CLONE_NEWUSER", 1, "namespaces"),
    ]
