"""Entering namespaces, uid maps, and giving up every right that came with them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import socket
import struct

from .. import linux

NAMES = ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")
_ALL_BUT_USER = (
    linux.CLONE_NEWNS | linux.CLONE_NEWPID | linux.CLONE_NEWNET | linux.CLONE_NEWIPC | linux.CLONE_NEWUTS
    | linux.CLONE_NEWCGROUP
)  # fmt: skip
# How many files and folders the sandbox may watch: what it takes is missing for the user's other programs (an editor,
# the Jupyter server), whose own limit is 128 instances on most machines.
_WATCHES = {"inotify_instances": 32, "inotify_watches": 8192}
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1


def ids() -> dict[str, int]:
    """Inode numbers of this process's namespaces, by name."""
    return {name: os.stat(f"/proc/self/ns/{name}").st_ino for name in NAMES}


def enter_as_user(uid: int, gid: int) -> None:
    """All namespaces at once for a user without rights; the ids stay the same numbers inside."""
    linux.unshare(linux.CLONE_NEWUSER | _ALL_BUT_USER)
    _map_self(uid, gid)


def enter_as_root() -> None:
    """All namespaces but the user's: real root can map ids of mounts. `drop_to` follows after the mounts."""
    linux.unshare(_ALL_BUT_USER)


def drop_to(uid: int, gid: int) -> None:
    """Become an unprivileged host uid, then enter a user namespace as that uid.

    In this order, because RLIMIT_NPROC binds neither host uid 0 nor a uid mapped from it.
    """
    become(uid, gid)
    linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNS)
    _map_self(uid, gid)


def become(uid: int, gid: int) -> None:
    """Take these host ids for good, and no group besides. Groups first: without uid 0 they cannot be changed."""
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def _map_self(uid: int, gid: int) -> None:
    # A process that changed its uid or is non-dumpable does not own its /proc/self/uid_map.
    linux.set_dumpable(True)
    try:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1\n")
        _write("/proc/self/gid_map", f"{gid} {gid} 1\n")
    finally:
        linux.set_dumpable(False)


def _write(path: str, text: str) -> None:
    """One write(2). A buffered file would report a refused map only when it is closed, or not at all."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    except OSError as error:
        raise OSError(error.errno, f"write {text.strip()!r} to {path}: {error.strerror}") from None
    finally:
        os.close(fd)


def id_map(owner: tuple[int, int], worker: tuple[int, int]) -> int:
    """Descriptor of a user namespace whose map shows ``owner``'s (uid, gid) as ``worker``'s and the reverse.

    For MOUNT_ATTR_IDMAP. All other ids stay themselves, as far as this process may map them: an id without a
    map makes a file read-only even where its mode would allow more. A short-lived child holds the namespace.
    """
    ready_r, ready_w = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        try:
            linux.unshare(linux.CLONE_NEWUSER)
            os.write(ready_w, b"+")
            signal.pause()
        except OSError as error:
            os.write(ready_w, str(error.errno).encode())
        finally:
            os._exit(1)
    try:
        os.close(ready_w)
        answer = os.read(ready_r, 16)
        if answer != b"+":
            number = int(answer or errno.EIO)
            raise OSError(number, f"unshare(CLONE_NEWUSER): {os.strerror(number)}")
        for file, a, b in (("uid_map", owner[0], worker[0]), ("gid_map", owner[1], worker[1])):
            try:
                _write(f"/proc/{pid}/{file}", _swap(a, b))
            except OSError:
                _write(f"/proc/{pid}/{file}", f"{a} {b} 1\n")
        return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(ready_r)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _swap(a: int, b: int) -> str:
    """A map of all ids to themselves, with ``a`` and ``b`` exchanged."""
    low, high = sorted((a, b))
    last = 2**32 - 2
    spans = [
        (0, 0, low),
        (low, high, 1),
        (low + 1, low + 1, high - low - 1),
        (high, low, 1),
        (high + 1, high + 1, last - high),
    ]
    if low == high:
        spans = [(0, 0, last + 1)]
    return "".join(f"{inner} {outer} {count}\n" for inner, outer, count in spans if count > 0)


def raise_loopback() -> None:
    """Set the interface lo up: servers of the session's own (multiprocessing, dask) listen on 127.0.0.1."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", _IFF_UP))


def forbid_nesting() -> None:
    """No further namespaces below this user namespace: a second lock behind the system call filter."""
    for name in (*NAMES, "time"):
        try:
            _write(f"/proc/sys/user/max_{name}_namespaces", "0")
        except FileNotFoundError:  # this kernel has no such namespaces
            continue


def bound_watches() -> None:
    """Bound what inotify takes of the user's share (user namespaces count per owner as well)."""
    for name, count in _WATCHES.items():
        with contextlib.suppress(FileNotFoundError):  # a kernel without inotify
            _write(f"/proc/sys/user/max_{name}", str(count))


def give_up_rights() -> None:
    """No capability, none to be had by execve, no new privileges, not dumpable."""
    try:
        linux.lock_securebits()
        linux.drop_bounding_set()
    except PermissionError:
        # A user without CAP_SETPCAP (no namespace): no_new_privs keeps execve from giving anything.
        if os.geteuid() == 0:
            raise
    linux.drop_capabilities()
    linux.set_no_new_privs()
    linux.set_dumpable(False)
