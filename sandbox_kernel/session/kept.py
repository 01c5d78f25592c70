"""What the file gate writes into the notebook's folder: whole files, by a new name or over one that it wrote itself.

The folder is the person's. Whatever is in there that no sandbox made, or that somebody has touched since, stays as it
is. What a sandbox made it knows again in a later session, too, by a mark in the file's extended attributes, where the
file system has them: else every notebook that is run again would find its own results in its way.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat

from .. import linux
from .mirror import Names, descend, spare_name
from .seen import OPEN, Seen

KEPT_FILES = 1000  # of a session, with the folders that are made for them
KEPT_BYTES = 1 << 30  # of a session, and so of one file
_CHUNK = 1 << 20
_FOLDER = OPEN | os.O_DIRECTORY
_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


def owner_in(workspace: str) -> tuple[int, int] | None:
    """Who is to own what is kept there: the folder's user and group, if this process may give files away."""
    found = os.stat(workspace)
    return (found.st_uid, found.st_gid) if os.geteuid() == 0 and found.st_uid else None


class KeptFiles:
    """The files that one session has kept.

    Args:
        workspace: the notebook's folder; "": none, and nothing is ever written.
        owner: user and group that new files get, see `owner_in`; None: those of this process.

    Attributes:
        written: by their path below the folder, as they were when they were written.
    """

    def __init__(self, workspace: str, owner: tuple[int, int] | None) -> None:
        self._top = os.open(workspace, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) if workspace else -1
        self._owner = owner
        self._bytes = self._folders = 0
        self.written: dict[Names, Seen] = {}

    def close(self) -> None:
        """Release the descriptor; idempotent."""
        if self._top >= 0:
            os.close(self._top)
        self._top = -1

    def has_room(self, names: Names, size: int) -> bool:
        """Whether a file of that size may be kept by that name."""
        return size <= self._room(names) and (names in self.written or self._count() < KEPT_FILES)

    def _room(self, names: Names) -> int:
        """Bytes; what a file had that is written anew counts no longer."""
        ours = self.written.get(names)
        return KEPT_BYTES - self._bytes + (ours.size if ours is not None else 0)

    def _count(self) -> int:
        return len(self.written) + self._folders

    def touched(self, names: Names) -> bool:
        """Whether somebody has changed or removed a file since it was written. Not where the disk gives no answer."""
        try:
            folder = descend(self._top, names[:-1])
            try:
                return Seen.of(os.stat(names[-1], dir_fd=folder, follow_symlinks=False)) != self.written[names]
            finally:
                os.close(folder)
        except FileNotFoundError:
            return True
        except OSError:
            return False

    def put(self, names: Names, source: int, *, over: bool = False) -> None:
        """Write one file.

        Args:
            names: of the folders and the file.
            source: descriptor of what it is to contain.
            over: in the place of an ordinary file that is somebody else's, too.

        Raises:
            OSError: EEXIST when there is a file of somebody else's; EFBIG when there is no more room.
        """
        made: list[Names] = []
        try:
            place = self._folder(names[:-1], made)
            try:
                self._write(names, source, place, over=over)
            finally:
                os.close(place)
        except OSError:
            self._remove(made)
            raise
        finally:
            self._folders += len(made)

    # ------------------------------------------------------------ folders

    def _folder(self, names: Names, made: list[Names]) -> int:
        """The folder below the workspace, made where it is missing and then added to `made`. Follows no link."""
        place = os.open(".", _FOLDER, dir_fd=self._top)
        for depth, name in enumerate(names, 1):
            try:
                self._make_folder(names[:depth], place, made)
                inner = os.open(name, _FOLDER, dir_fd=place)
            finally:
                os.close(place)
            place = inner
        return place

    def _make_folder(self, names: Names, place: int, made: list[Names]) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.stat(names[-1], dir_fd=place, follow_symlinks=False)
            return
        if self._count() + len(made) + 1 >= KEPT_FILES:
            raise OSError(errno.EFBIG, "too many folders")
        with contextlib.suppress(FileExistsError):
            os.mkdir(names[-1], 0o755, dir_fd=place)
            made.append(names)
            if self._owner is not None:
                os.chown(names[-1], *self._owner, dir_fd=place, follow_symlinks=False)

    def _remove(self, made: list[Names]) -> None:
        """Remove folders that were made for a file that could not be written; those that stay remain in `made`."""
        while made:
            try:
                outer = descend(self._top, made[-1][:-1])
                try:
                    os.rmdir(made[-1][-1], dir_fd=outer)
                finally:
                    os.close(outer)
            except OSError:
                return  # somebody has put something in there
            made.pop()

    # ------------------------------------------------------------ one file

    def _write(self, names: Names, source: int, place: int, *, over: bool) -> None:
        name, ours = names[-1], self.written.get(names)
        try:
            found = os.stat(name, dir_fd=place, follow_symlinks=False)
        except FileNotFoundError:
            replaced = None
        else:
            replaced = Seen.of(found)
            if not (replaced == ours or (stat.S_ISREG(found.st_mode) and (over or replaced.marked(name, place)))):
                raise FileExistsError(errno.EEXIST, "there is one already")
        spare = spare_name()  # hidden from those who list the folder meanwhile
        copy = os.open(spare, _NEW, 0o644, dir_fd=place)
        try:
            size = copy_content(source, copy, self._room(names))
            if self._owner is not None:
                os.fchown(copy, *self._owner)
            written = Seen.of(os.fstat(copy))
            written.mark(copy)
            _give_name(spare, name, place, replaced)
            self._bytes += size - (ours.size if ours is not None else 0)
            self.written[names] = written
        finally:
            os.close(copy)
            os.unlink(spare, dir_fd=place)


def _give_name(spare: str, name: str, place: int, replaced: Seen | None) -> None:
    """Give the finished file its name: it appears whole, and takes nobody else's."""
    if replaced is None:
        os.link(spare, name, src_dir_fd=place, dst_dir_fd=place, follow_symlinks=False)
        return
    linux.exchange(place, spare, name)
    if Seen.of(os.stat(spare, dir_fd=place, follow_symlinks=False)) != replaced:  # somebody else's since we looked
        linux.exchange(place, spare, name)
        raise FileExistsError(errno.EEXIST, "there is one already")


def copy_content(source: int, copy: int, room: int) -> int:
    """Copy what a file holds now; returns how many bytes that are.

    Nothing is written of what is too large: a file full of holes costs cells nothing, and its copy the disk all of it.
    For the same reason the copy ends where the file ended in the beginning, and not where cells have it grow to.

    Args:
        source: descriptor of an ordinary file in memory, which cells may change meanwhile.
        copy: descriptor of an empty file.
        room: bytes that it may have.

    Raises:
        OSError: EFBIG when it is larger; ENOSPC when the disk has no room for it.
    """
    size, disk = os.fstat(source).st_size, os.fstatvfs(copy)
    if size > room:
        raise OSError(errno.EFBIG, "too large")
    if disk.f_blocks and size > disk.f_bavail * disk.f_frsize:  # (no number of blocks: a disk that does not tell)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    left = size
    while left > 0 and (chunk := os.read(source, min(_CHUNK, left))):
        write_all(copy, chunk)
        left -= len(chunk)
    return size - left


def write_all(fd: int, data: bytes) -> None:
    """Write it, in as many steps as that takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
