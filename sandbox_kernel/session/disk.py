"""How much the sandbox has written to folders of the host that have no quota of their own.

The notebook's folder, and below level full the scratch folder, are folders of an ordinary file system. How much
space is gone tells also of what other programs wrote; which files changed tells also of what was in them before. The
smaller of the two is close to the truth, and the files are only looked at when space is really going.

A file that was removed takes space as long as a process has it open. Which processes have, only a front that runs as
root may see: a worker's descriptors are closed to other users, its own included.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
import time
from collections.abc import Callable, Collection, Iterator, Sequence

_WORTH_COUNTING = 8 * 1024**2
_ENTRIES = 5_000
_DESCRIPTORS = 4_000  # of all processes, that one count looks at: 15 ms, in which the front serves nobody
# What a file, folder or link counts at least: the entries of a file system can be used up as well as its bytes.
_ENTRY_BYTES = 1024
# In a folder that cells have put out of sight, by its depth or its mode: then the space that is gone tells alone.
_UNKNOWN = 1 << 60


class DiskUse:
    """Bytes that the cells of a session added, deletions taken off.

    Args:
        folders: that the cells may write to.
        processes: the ids of the sandbox's processes.
    """

    def __init__(self, folders: Sequence[str], processes: Callable[[], Collection[int]] = lambda: ()) -> None:
        self._folders = [os.path.realpath(folder) for folder in folders if folder and os.path.isdir(folder)]
        self._processes = processes
        self._before = self._cells = 0
        self._held = 0  # of `_before`: in files that were removed and were open at the end of the last cell
        self._free: int | None = None
        self._since = 0.0
        self._looked: tuple[int, int] = (0, 0)
        self._start_walk()

    def begin(self) -> None:
        """A cell begins."""
        self._cells += 1
        if self._cells > 1:  # of a session and of its branches, at the same time
            return
        if self._held and 0 <= (held := self._held_bytes()) < self._held:
            # What had them open has ended since, with the worker say: nobody has seen the space come back.
            self._before, self._held = self._before - self._held + held, held
        self._free, self._since, self._looked = self._free_bytes(), time.time(), (0, 0)
        self._start_walk()

    def _start_walk(self) -> None:
        self._walk: Iterator[int] | None = None
        self._whole = self._part = 0
        self._found_held = False

    def end(self) -> None:
        """The cell has ended."""
        self._cells = max(0, self._cells - 1)
        if self._cells:
            return
        self._before, self._free = self.used(), None
        if self._held or self._found_held:
            self._held = max(0, min(self._before, self._held_bytes()))
        self._start_walk()

    def used(self, interest: int = 0) -> int:
        """Bytes, by all cells so far. Walks the folders, `_ENTRIES` at a time, when the disk got much fuller.

        Args:
            interest: below it the answer may be too large, and nothing is walked.
        """
        if self._free is None:
            return self._before
        gone = self._free - self._free_bytes()
        if self._before + gone <= interest:
            return max(0, self._before + gone)
        if gone < _WORTH_COUNTING:
            return max(0, self._before + min(gone, 0))
        at, changed = self._looked
        if abs(gone - at) > _WORTH_COUNTING or self._walk is not None:
            changed = self._changed_bytes()
            self._looked = (gone, changed)
        return self._before + min(gone, changed)

    def _free_bytes(self) -> int:
        seen: dict[int, int] = {}
        for folder in self._folders:
            with contextlib.suppress(OSError):
                found = os.statvfs(folder)
                seen[os.stat(folder).st_dev] = found.f_bfree * found.f_frsize + found.f_ffree * _ENTRY_BYTES
        return sum(seen.values())

    def _changed_bytes(self) -> int:
        """Of all files whose content or size changed since the cell began.

        Looks at `_ENTRIES` at a time and goes on from there the next time, so that no number of files can hide one.
        The last complete sum stands until more than that was found again.
        """
        self._walk = self._walk or self._sizes()
        for size in itertools.islice(self._walk, _ENTRIES):
            if size < 0:
                self._whole, self._part, self._walk = self._part, 0, None
                return self._whole
            self._part += size
        return max(self._whole, self._part)

    def _sizes(self) -> Iterator[int]:
        """What each file or folder counts; -1 at the end."""
        todo = [(folder, False) for folder in self._folders]
        while todo:
            path, changed = todo.pop()
            try:
                folder = self._open(path)
            except OSError as error:
                if error.errno == errno.ENAMETOOLONG or (error.errno == errno.EACCES and changed):
                    yield _UNKNOWN
                continue
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        size = 0
                        with contextlib.suppress(OSError):
                            size = self._size(found := entry.stat(follow_symlinks=False))
                            if stat.S_ISDIR(found.st_mode):
                                todo.append((os.path.join(path, entry.name), size > 0))
                        yield size
            finally:
                os.close(folder)
        for removed in self._removed():
            size = 0 if removed is None else self._size(removed)
            self._found_held = self._found_held or size > 0
            yield size
        yield -1

    def _size(self, found: os.stat_result) -> int:
        """What an entry counts: nothing if it is as it was when the cell began."""
        # (The clock that files are stamped with may be some milliseconds behind.)
        return max(found.st_blocks * 512, _ENTRY_BYTES) if found.st_ctime >= self._since - 0.05 else 0

    def _held_bytes(self) -> int:
        """In files that were removed and are still open; -1 when there are too many descriptors to say.

        (Then nothing is given back: to hide a file behind many others gains nothing.)
        """
        total = 0
        for count, found in enumerate(self._removed()):
            if count > _DESCRIPTORS:
                return -1
            total += 0 if found is None else found.st_blocks * 512
        return total

    def _removed(self) -> Iterator[os.stat_result | None]:
        """Files without a name that a process has open, each once; None for each process and each other descriptor."""
        places = set()
        for folder in self._folders:
            with contextlib.suppress(OSError):
                places.add(os.stat(folder).st_dev)
        seen = set()
        for pid in self._processes():
            yield None
            # (Not listed at once: a process may have a million.)
            with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:  # it may have ended
                for entry in entries:
                    file = None
                    with contextlib.suppress(OSError):
                        # (The link first: stat could wait for a server that does not answer.)
                        if os.readlink(entry.path).endswith(" (deleted)"):
                            found = os.stat(entry.path)
                            if found.st_nlink == 0 and stat.S_ISREG(found.st_mode) and found.st_dev in places:
                                file = None if (found.st_dev, found.st_ino) in seen else found
                                seen.add((found.st_dev, found.st_ino))
                    yield file

    def _open(self, path: str) -> int:
        """A folder that was seen before. Cells may have put a link in its place, or in that of one above it.

        Raises:
            OSError: it is not there any more, or lies elsewhere.
        """
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        where = os.readlink(f"/proc/self/fd/{folder}")
        if not any(where == own or where.startswith(own.rstrip("/") + "/") for own in self._folders):
            os.close(folder)
            raise OSError(errno.EXDEV, "it lies elsewhere")
        return folder
