"""A frozen copy of the worker: made by fork while nothing runs, woken when the worker is lost.

The child is the copy and the worker goes on, because only the thread that forks lives on in a child. Between the
two there is a process that ends at once: so the copy becomes the zygote's child, no code of the cells meets it as
one of their own (``os.wait()``), and it outlives the worker.

What a fork does not copy: threads, child processes (they stay the worker's), and the positions in open files,
which worker and copy share; these are noted, and set again on waking.

Below level full a copy may not read its own folder in /proc: Landlock lets the worker read the one that was its own
when the rules were made. So nothing here depends on it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import ctypes
import fcntl
import os
import random
import resource
import selectors
import signal
import socket
import stat
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ..channel.framing import encode
from .link import BROKEN_PROTOCOL, Link, Request, leave
from .per_shell import SUBSHELL
from .wakeup import Bell, Wakeup

_ADOPTED_S = 5.0  # within which the zygote becomes the copy's parent
_PR_SET_PDEATHSIG = 1
_OMP_PAUSE_HARD = 2
_FDS = 4096  # looked at where nobody says which there are
_TOLD = 8  # lost threads and processes, by name
# Threads of libraries that cannot start theirs again in a fork: whatever needs them would wait for ever.
_FATAL_THREADS = {"polars-": "polars"}

_openmp: tuple[int, list[str]] = (0, [])  # how many modules there were when it was looked for, the libraries


class CannotCopy(Exception):
    """No copy of this session would work; the text says why."""


def survey() -> list[str]:
    """What a copy of this process would lack, in words.

    Raises:
        CannotCopy: it would be of no use.
    """
    if "polars" in sys.modules:
        try:
            names = list(_task_names())
        except OSError:
            raise CannotCopy("polars may have started its threads") from None
        for name in names:
            for start, library in _FATAL_THREADS.items():
                if name.startswith(start):
                    raise CannotCopy(f"{library} has started its threads")
    pooled = set(concurrent.futures.thread._threads_queues)  # these are made anew, see `_revive_pools`
    threads = [t.name for t in threading.enumerate() if t is not threading.main_thread() and t not in pooled]
    threads = [name for name in threads if not name.startswith(SUBSHELL)]  # the front asks for them again
    lost = [f"thread {name!r}"[:100] for name in threads if name != "tqdm_monitor"]
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            lost += [f"child process {pid}" for pid in file.read().split() if not _ended(pid)]
    except OSError:
        with suppress(ChildProcessError):
            if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                lost.append("child processes")
    return lost if len(lost) <= _TOLD else [*lost[:_TOLD], f"{len(lost) - _TOLD} more"]


def _ended(pid: str) -> bool:
    with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0] == b"Z"
    return False


def _task_names() -> Iterator[str]:
    for task in os.listdir("/proc/self/task"):
        with suppress(OSError), open(f"/proc/self/task/{task}/comm", encoding="utf-8", errors="replace") as file:
            yield file.read()


class Copier:
    """Makes copies of this process and sleeps in them.

    Args:
        link: the channel, which a copy gets a new one for.
        loop: of the worker.
        wakeup, bell: their descriptors are shared after a fork, too.
        reattach: called in a copy once the link is its own.
        wake: called in a copy that is to go on, with the front's request; returns the greeting.
    """

    def __init__(
        self, link: Link, loop: asyncio.AbstractEventLoop, wakeup: Wakeup, bell: Bell, *,
        reattach: Callable[[], None], wake: Callable[[dict[str, Any]], dict[str, Any]],
    ) -> None:  # fmt: skip
        self._link, self._loop, self._wakeup, self._bell = link, loop, wakeup, bell
        self._reattach, self._wake = reattach, wake

    def copy(self, request: Request) -> list[str] | None:
        """Leave a copy.

        Args:
            request: with three descriptors for the copy: channel, standard output, standard error.

        Returns:
            in the worker what the copy lacks; None in the copy, after it was woken.

        Raises:
            CannotCopy: there is none.
        """
        fds = request.fds
        try:
            if len(fds) != 3:
                raise CannotCopy("there are too many open files")
            lost = survey()
            if not self._fork(fds):
                return lost
        finally:
            while fds:
                os.close(fds.pop())
        return None

    def _fork(self, fds: list[int]) -> bool:
        """False in the worker; True in the copy, once it was woken."""
        _pause_openmp()
        ctypes.CDLL(None).fflush(None)  # what C code has not written yet would be written by both
        offsets, chance, zygote = _file_offsets(), random.getstate(), os.getppid()
        try:
            with _quiet_forks():
                middle = os.fork()
                if middle == 0:
                    _fork_on()
        except OSError as error:
            raise CannotCopy(f"no process could be made ({error.strerror})") from error
        if middle:
            with suppress(ChildProcessError):
                if os.waitpid(middle, 0)[1]:
                    raise CannotCopy("no process could be made")
            return False
        try:
            self._sleep(fds, zygote)
            random.setstate(chance)  # Python seeds it anew in each child
            for fd, offset in offsets.items():
                with suppress(OSError):
                    _open_anew(fd)
                with suppress(OSError):
                    os.lseek(fd, offset, os.SEEK_SET)
        except BaseException:
            leave(1)
        return True

    def _sleep(self, fds: list[int], zygote: int) -> None:
        link = self._link
        os.setsid()
        channel, out, err = fds
        os.dup2(out, 1)
        os.dup2(err, 2)
        link.renew(channel)
        while fds:
            os.close(fds.pop())
        give_up = time.monotonic() + _ADOPTED_S
        while os.getppid() != zygote:
            if time.monotonic() > give_up:
                leave(1)
            time.sleep(0.0002)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # Linux forgets it in each child
        link.send(encode({"type": "asleep", "pid": os.getpid()}))
        link.wait()
        link.receive()
        request = link.requests.popleft() if link.requests else None
        if request is None or request.op != "wake":
            leave(BROKEN_PROTOCOL)
        self._wakeup.renew()
        self._bell.renew()
        _renew_loop(self._loop)
        self._wakeup.arm()
        _revive_pools()
        self._reattach()
        link.send(encode(self._wake(request.fields)))


def _fork_on() -> None:
    """Between worker and copy: fork again, and end. Returns in the copy."""
    try:
        copy = os.fork()
    except OSError:
        os._exit(1)
    if copy:
        os._exit(0)


@contextmanager
def _quiet_forks() -> Iterator[None]:
    # Since 3.12 Python warns of forks beside threads; those of numerical libraries are enough. (What `catch_warnings`
    # and `simplefilter` do besides: every module forgets of what it has warned, and warns again after each copy.)
    filters: list[Any] = warnings.filters  # type: ignore[assignment]
    ours = ("ignore", None, DeprecationWarning, None, 0)
    filters.insert(0, ours)
    try:
        yield
    finally:
        with suppress(ValueError):
            filters.remove(ours)


def _file_offsets() -> dict[int, int]:
    try:
        fds = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        fds = list(range(min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], _FDS)))
    found = {}
    for fd in fds:
        with suppress(OSError):
            if stat.S_ISREG(os.fstat(fd).st_mode):
                found[fd] = os.lseek(fd, 0, os.SEEK_CUR)
    return found


def _open_anew(fd: int) -> None:
    """Give the descriptor a position of its own: the session that this one is a branch of goes on using its own."""
    flags = fcntl.fcntl(fd, fcntl.F_GETFL) & (os.O_ACCMODE | os.O_APPEND | os.O_NONBLOCK)
    new = os.open(f"/proc/self/fd/{fd}", flags | os.O_CLOEXEC)
    os.dup2(new, fd, inheritable=os.get_inheritable(fd))
    os.close(new)


def _pause_openmp() -> None:
    """End the idle threads of OpenMP: in a fork its runtime would wait for them for ever. It starts them again."""
    global _openmp
    modules, libraries = _openmp
    if modules != len(sys.modules):
        libraries = [path for path in _loaded() if os.path.basename(path).startswith(("libgomp", "libomp", "libiomp"))]
        _openmp = len(sys.modules), libraries
    for path in libraries:
        with suppress(OSError, AttributeError):
            ctypes.CDLL(path).omp_pause_resource_all(_OMP_PAUSE_HARD)


class _Library(ctypes.Structure):
    _fields_ = (("address", ctypes.c_void_p), ("name", ctypes.c_char_p))  # and more, see dl_iterate_phdr(3)


def _loaded() -> set[str]:
    """The files of all shared libraries in this process."""
    found: set[str] = set()

    def note(library: Any, _size: int, _data: Any) -> int:
        found.add(os.fsdecode(library.contents.name or b""))
        return 0

    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Library), ctypes.c_size_t, ctypes.c_void_p)
    ctypes.CDLL(None).dl_iterate_phdr(kind(note), None)
    return found


def _renew_loop(loop: Any) -> None:
    """Give the running event loop descriptors of its own in place of those that it shares with the worker."""
    for old, new in zip((loop._ssock, loop._csock), socket.socketpair(), strict=True):
        new.setblocking(False)
        os.dup2(new.fileno(), old.fileno(), inheritable=False)
        new.close()
    selector = selectors.DefaultSelector()
    for key in list(loop._selector.get_map().values()):
        with suppress(OSError):
            selector.register(key.fileobj, key.events, key.data)
    loop._selector.close()
    loop._selector = selector
    # Python forgets in a child which loop runs.
    asyncio.set_event_loop(loop)
    asyncio._set_running_loop(loop)


def _revive_pools() -> None:
    """Let thread pools start threads again: they count on those that the fork has lost."""
    lost: Any = concurrent.futures.thread._threads_queues
    for thread in list(lost):
        arguments = getattr(thread, "_args", None) or (None,)
        pool: Any = arguments[0]() if callable(arguments[0]) else None
        if isinstance(pool, concurrent.futures.ThreadPoolExecutor):
            pool._threads = set()
            pool._idle_semaphore = threading.Semaphore(0)
    lost.clear()
