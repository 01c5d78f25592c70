"""Folders that nobody but this user can enter, and locks in them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator

from .seen import OPEN

LOCK = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = OPEN | os.O_DIRECTORY


def open_private(path: str, folder: int | None = None) -> int:
    """A folder that nobody but this user can enter.

    Raises:
        OSError: there is none, or others can.
    """
    found = os.open(path, _FOLDER, dir_fd=folder)
    status = os.fstat(found)
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        os.close(found)
        raise OSError(errno.EPERM, "not this user's alone")
    return found


@contextlib.contextmanager
def closing(file: int) -> Iterator[int]:
    """Close a descriptor in the end."""
    try:
        yield file
    finally:
        os.close(file)


@contextlib.contextmanager
def alone(key: str, top: int, wait_s: float) -> Iterator[int]:
    """The place of one notebook's folder, in which no other process makes or takes over shelves meanwhile.

    Raises:
        OSError: there is none, or another process did not leave it in time.
    """
    with closing(open_private(key, top)) as place, closing(os.open("lock", LOCK, 0o600, dir_fd=place)) as lock:
        give_up = time.monotonic() + wait_s
        while not locked(lock):
            if time.monotonic() >= give_up:
                raise OSError(errno.EAGAIN, "another kernel is at it")
            time.sleep(0.01)
        yield place


def locked(file: int) -> bool:
    """Whether this process has the lock now."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def move(name: str, folder: int, new_name: str, new_folder: int) -> None:
    """Move a file, by a link first: whoever is killed before the new name is noted leaves the old one.

    Raises:
        OSError: it is gone, or cannot be moved.
    """
    try:
        os.link(name, new_name, src_dir_fd=folder, dst_dir_fd=new_folder, follow_symlinks=False)
    except FileNotFoundError:
        raise
    except OSError:  # a file system without
        os.rename(name, new_name, src_dir_fd=folder, dst_dir_fd=new_folder)
