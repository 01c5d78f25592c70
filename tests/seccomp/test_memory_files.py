"""memfd_create gives a file out of the sandbox's own folder for shared memory, whose size holds."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.confine.seccomp import load_filter
from sandbox_kernel.seccomp import notify
from sandbox_kernel.seccomp.program import compile_filter
from sandbox_kernel.session.denials import Denials
from sandbox_kernel.session.memory_files import MemoryFiles
from tests.confined_child import attempt
from tests.launch.test_launch import UIDS, Front, _front
from tests.waiting import wait_for

SIZE = 4 * 1024**2  # of the sandbox's folder, see test_launch.SMALL


@pytest.fixture(scope="module", params=UIDS, ids=str)
def heard(request: pytest.FixtureRequest) -> Iterator[Front]:
    """A front that answers, with one worker at level full."""
    with _front(request.param, "full", denials=True) as front:
        ready = front.start()
        assert ready.get("event") == "ready", ready
        front.worker()
        yield front


def test_it_is_a_file_like_the_kernels_own(heard: Front) -> None:
    code = """
import fcntl, mmap
fd, open_at_execve = os.memfd_create('x'), os.memfd_create('y', 0)
os.write(fd, b'abcd'); os.ftruncate(fd, 8192)
with mmap.mmap(fd, 8192) as memory: memory[4096:4100] = b'efgh'
found = os.fstat(fd)
pid = os.fork()
if pid == 0: os.pwrite(fd, b'X', 1); os._exit(0)
os.waitpid(pid, 0)
result = [os.pread(fd, 4, 0).decode(), os.pread(fd, 4, 4096).decode(), found.st_nlink, found.st_size,
          found.st_uid == os.getuid(), found.st_gid == os.getgid(), os.listdir('/dev/shm'),
          [fcntl.fcntl(each, fcntl.F_GETFD) for each in (fd, open_at_execve)],
          fcntl.fcntl(fd, fcntl.F_GETFL) & (os.O_ACCMODE | os.O_APPEND) == os.O_RDWR, fcntl.fcntl(fd, 1034)]
os.close(fd), os.close(open_at_execve)"""
    # (1034 asks for the seals; 1: none can be set.)
    wanted = ["aXcd", "efgh", 0, 8192, True, True, [], [1, 0], True, 1]
    assert heard("plain", code.replace("os.listdir('/dev/shm')", "[]"), {}) == wanted
    heard("denials")
    assert heard.ask(code) == wanted
    assert heard("denials") == []  # nothing was refused


# The bytes that they got are the answer. Each process may hold as much as it likes of private memory.
HOARDS = {
    "in one file": """
fd = os.memfd_create('x')
try:
    while result < 3 * SIZE: result += os.write(fd, bytes(65536))
except OSError as error: number = error.errno
os.close(fd)""",
    "in many": """
fds = []
try:
    while result < 3 * SIZE:
        fds.append(os.memfd_create('x'))
        result += os.write(fds[-1], bytes(65536))
except OSError as error: number = error.errno
for fd in fds: os.close(fd)""",
    "in many processes": """
pids, (go_r, go), (told, tell) = [], os.pipe(), os.pipe()
for _ in range(3):
    if (pid := os.fork()) == 0:
        fd, held = os.memfd_create('x'), 0
        try:
            while held < SIZE: held += os.write(fd, bytes(65536))
        except OSError: pass
        os.write(tell, held.to_bytes(8, 'little'))
        os.close(go)
        os.read(go_r, 1)
        os._exit(0)
    pids.append(pid)
result = sum(int.from_bytes(os.read(told, 8), 'little') for _ in pids)
os.close(go)
for pid in pids: os.waitpid(pid, 0)
number = errno.ENOSPC
for fd in (go_r, told, tell): os.close(fd)""",
    "passed on": """
one, other = socket.socketpair()
try:
    while result < 3 * SIZE:
        fd = os.memfd_create('x')
        try: result += os.write(fd, bytes(1 << 20))
        finally:
            socket.send_fds(one, [b'x'], [fd])
            os.close(fd)
except OSError as error: number = error.errno
one.close(), other.close()""",
}


@pytest.mark.parametrize("way", HOARDS)
def test_memory_ends_at_the_size_of_the_folder(heard: Front, way: str) -> None:
    code = f"import errno\nresult, number = 0, 0\n{HOARDS[way]}\nresult = [result, number]"
    without = heard("plain", code, {"SIZE": SIZE})
    assert without[0] >= 3 * SIZE, without
    held, number = heard.ask(code, SIZE=SIZE)
    assert 0 < held <= SIZE and number == errno.ENOSPC, "the folder's size did not hold"
    # What was given up can be had again, and files with a name count against the same.
    again = f"open('/dev/shm/x', 'wb').write(bytes(SIZE // 2))\nimport errno\nresult, number = 0, 0\n{HOARDS[way]}\n"
    held, _ = heard.ask(f"{again}os.unlink('/dev/shm/x')\nresult = [result, number]", SIZE=SIZE)
    assert 0 < held <= SIZE // 2


def test_their_number_is_bounded_too(heard: Front) -> None:
    """Each costs the machine some memory, even an empty one."""
    code = """
import errno
pids, (go_r, go), (told, tell) = [], os.pipe(), os.pipe()
for _ in range(3):
    if (pid := os.fork()) == 0:
        held, number = 0, 0
        try:
            while held < 600: os.memfd_create('x'); held += 1
        except OSError as error: number = error.errno
        os.write(tell, held.to_bytes(8, 'little') + number.to_bytes(8, 'little'))
        os.close(go)
        os.read(go_r, 1)
        os._exit(0)
    pids.append(pid)
answers = [os.read(told, 16) for _ in pids]
os.close(go)
for pid in pids: os.waitpid(pid, 0)
for fd in (go_r, told, tell): os.close(fd)
result = [sum(int.from_bytes(a[:8], 'little') for a in answers), max(int.from_bytes(a[8:], 'little') for a in answers)]
"""
    assert heard("plain", code, {}) == [1800, 0]
    held, number = heard.ask(code)
    assert held < 1024 and number == errno.ENOSPC


def test_a_process_without_a_free_number_is_told_so(heard: Front) -> None:
    code = """
import errno
fds = []
try:
    while len(fds) < 5000: fds.append(os.memfd_create('x'))
except OSError as error: result = [error.errno == errno.EMFILE, len(fds) > 100]
for fd in fds: os.close(fd)"""
    before = heard("descriptors")
    assert heard.ask(code) == [True, True]
    assert heard.ask("os.close(os.memfd_create('x'))") == "open"
    wait_for(lambda: heard("descriptors") <= before)  # none stays with the front; the last is closed after the answer


PROGRAM = """
import subprocess
fd = os.memfd_create('x')
os.write(fd, open('/bin/echo', 'rb').read())
os.chmod(fd, 0o700)
try: result = subprocess.run([f'/proc/self/fd/{fd}', 'ran'], pass_fds=[fd], capture_output=True, text=True).stdout
finally: os.close(fd)"""
MAPPED = """
import mmap
fd = os.memfd_create('x')
os.ftruncate(fd, 4096)
try: mmap.mmap(fd, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC).close()
finally: os.close(fd)"""


def test_it_is_no_program(heard: Front) -> None:
    assert heard("plain", PROGRAM, {}) == "ran\n" and heard("plain", MAPPED, {}) == "open"
    assert heard.ask(PROGRAM) == "EACCES" and heard.ask(MAPPED) == "EPERM"


NAMED = """
import ctypes
fd = os.open('/dev/shm', os.O_TMPFILE | os.O_RDWR) if KIND == 'tmpfile' else os.memfd_create('x')
old, new = f'/proc/self/fd/{fd}'.encode(), b'/dev/shm/test-of-a-name'
if ctypes.CDLL(None, use_errno=True).linkat(-100, old, -100, new, 0x400):
    raise OSError(ctypes.get_errno(), 'linkat')
os.unlink(new)
os.close(fd)"""


def test_it_never_gets_a_name(heard: Front) -> None:
    assert heard.ask(NAMED, KIND="tmpfile") == "open"
    assert heard.ask(NAMED, KIND="memory file") == "ENOENT"


@pytest.mark.parametrize(("flags", "told"), [(2, "MFD_ALLOW_SEALING"), (1 | 4, "MFD_HUGETLB"), (8, "MFD_NOEXEC_SEAL"),
                                             (16, "MFD_EXEC"), (1 << 30, "")])  # fmt: skip
def test_what_only_the_kernels_own_can_do_stays_refused(heard: Front, flags: int, told: str) -> None:
    heard("denials")
    assert heard.ask(f"os.memfd_create('x', {flags})") == "EPERM"
    assert heard("denials") == [["memfd_create", told, 1, "memory files", "isolation.level"]]


def test_every_worker_and_its_children_get_them(heard: Front) -> None:
    code = """
import subprocess, sys
result = subprocess.run([sys.executable, '-c', 'import os; print(os.write(os.memfd_create("x"), b"abc"))'],
                        capture_output=True, text=True).stdout"""
    heard.worker(2)
    assert heard.ask(code, 2) == heard.ask(code) == "3\n"
    heard("kill", 2)
    assert heard.ask("os.close(os.memfd_create('x'))") == "open"


# -- without a sandbox ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", ["as mounted", "as a sandbox mounts it"])
def test_only_a_sandboxs_own_folder_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str) -> None:
    """What the zygote sends could be any folder that it can open."""
    if flags != "as mounted":
        monkeypatch.setattr("sandbox_kernel.session.memory_files._CONFINED", 0)
    places = {"/dev/shm", "/proc", "/sys", "/run", "/", tempfile.gettempdir(), str(tmp_path)}
    for place in filter(os.path.isdir, places):
        folder = os.open(place, os.O_PATH | os.O_DIRECTORY)
        assert MemoryFiles.of(folder) is None, place
        os.close(folder)
    reader, writer = os.pipe()
    assert MemoryFiles.of(reader) is None
    os.close(reader), os.close(writer)


class _Anywhere(MemoryFiles):
    """In a folder of this machine."""

    @classmethod
    def of(cls, folder: int) -> MemoryFiles:
        return cls(os.dup(folder))


def _answered(monkeypatch: pytest.MonkeyPatch, place: str | Path, act: Any) -> tuple[Any, list[Any]]:
    """What a child under the filter gets, and what was counted."""
    monkeypatch.setattr("sandbox_kernel.session.denials.MemoryFiles", _Anywhere)
    program, denials = compile_filter(level="full", landlock_abi=7, told=True), Denials()
    mine, theirs = socket.socketpair()
    folder = os.open(place, os.O_PATH | os.O_DIRECTORY)

    def layer() -> None:
        listener = load_filter(program, listen=True)
        socket.send_fds(theirs, [b"x"], [listener])
        os.close(listener)

    def attach() -> None:
        _, fds, _, _ = socket.recv_fds(mine, 1, 1)
        denials.attach(fds[0], memory=folder)

    thread = threading.Thread(target=attach)
    thread.start()
    outcome = attempt(act, layer)
    thread.join()
    counted = denials.take()
    denials.close()
    mine.close(), theirs.close(), os.close(folder)
    return outcome, counted


def _write() -> int:
    return os.write(os.memfd_create("x"), b"abc")


def test_a_kernel_that_cannot_hand_over_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Linux 5.14 there is no such flag."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:  # not every disk has files without a name
        outcome, counted = _answered(monkeypatch, folder, _write)
        assert (outcome.value, counted) == (3, [])
        monkeypatch.setattr(notify, "_ADD_AND_SEND", 1 << 20)
        outcome, counted = _answered(monkeypatch, folder, _write)
    assert outcome.errno == errno.EPERM and [(d.call, d.count) for d in counted] == [("memfd_create", 1)]


def test_a_folder_in_which_nothing_can_be_made_refuses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()

    def vanish(folder: int) -> MemoryFiles:
        gone.rmdir()
        return _Anywhere(os.dup(folder))

    monkeypatch.setattr(_Anywhere, "of", vanish)
    outcome, counted = _answered(monkeypatch, gone, _write)
    assert outcome.errno == errno.EPERM and [(d.call, d.count) for d in counted] == [("memfd_create", 1)]


def test_nothing_is_given_to_a_caller_who_is_gone() -> None:
    """Its pid may be somebody else's by then, so it is never looked at."""
    program = compile_filter(level="full", landlock_abi=7, told=True)
    mine, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        socket.send_fds(theirs, [b"x"], [load_filter_of(program)])
        os.memfd_create("x")
        os._exit(0)
    _, (listener,), _, _ = socket.recv_fds(mine, 1, 1)
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    assert poll.poll(20_000)
    responder = notify.Responder()
    call = responder.receive(listener)
    assert call is not None
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    responder.give(listener, call[0], mine.fileno(), cloexec=True)
    for fd in (listener, mine.detach(), theirs.detach()):
        os.close(fd)


def load_filter_of(program: bytes) -> int:
    """The listener of this process's new filter."""
    from sandbox_kernel import linux

    linux.set_no_new_privs()
    return load_filter(program, listen=True)
