"""Files that live only in memory, for memfd_create: out of the sandbox's own folder for shared memory.

What the kernel makes for that call is counted by no limit, so the filter never lets it through. A file without a name
in a folder in memory does the same for the caller, and counts against the size of that folder (`limits.shm`), as well
as in the watchdog's sum. It cannot be run as a program either, because the folder is mounted so.

The folder comes from the zygote. It is taken only where a mistake, or a lie of something that was imported in there,
could not open more than the sandbox has anyway: a file system in memory, of a fixed size, without programs and devices,
and none that this process has mounted itself.
"""

from __future__ import annotations

import contextlib
import os

from .. import linux

_CONFINED = os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC
_NAMELESS = os.O_TMPFILE | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC  # EXCL: it never gets a name


class MemoryFiles:
    """Makes them in one folder. Nothing here waits: only memory is asked for.

    Args:
        folder: its descriptor, which this object owns.
    """

    def __init__(self, folder: int) -> None:
        self._folder = folder
        found = os.fstat(folder)  # of the worker, who cannot change it
        owner = (found.st_uid, found.st_gid)
        self._owner = None if owner == (os.geteuid(), os.getegid()) else owner

    @classmethod
    def of(cls, folder: int) -> MemoryFiles | None:
        """With a copy of the descriptor; None where nothing may be made in this folder, or no copy is to be had."""
        with contextlib.suppress(OSError):
            if _belongs_to_a_sandbox(folder):
                return cls(os.dup(folder))
        return None

    def open(self) -> int:
        """A new empty file, which the worker owns; the caller closes it.

        Raises:
            OSError: ENOSPC: the folder has no room for another one.
        """
        file = os.open(".", _NAMELESS, 0o600, dir_fd=self._folder)
        try:
            if self._owner is not None:  # the front is root
                os.fchown(file, *self._owner)
        except OSError:
            os.close(file)
            raise
        return file

    def close(self) -> None:
        """Release the descriptor."""
        os.close(self._folder)


def _belongs_to_a_sandbox(folder: int) -> bool:
    device, system = os.fstat(folder).st_dev, os.fstatvfs(folder)
    if linux.fs_type(folder) != linux.TMPFS_MAGIC or not system.f_blocks or system.f_flag & _CONFINED != _CONFINED:
        return False
    mine = f"{os.major(device)}:{os.minor(device)}"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
        return all(line.split(" ", 3)[2] != mine for line in mounts)
