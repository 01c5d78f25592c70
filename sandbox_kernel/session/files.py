"""The file gate: new files of the cells go from their private layer to the disk, and nothing else does.

The layer is the upper folder of an overlay, in memory, full of whatever hostile code put there, and it goes on changing
while it is read. So it is walked by descriptors only, below its own top, following no link and crossing no mount; only
ordinary files are opened, their size is bounded while they are read, and what is written to the disk gets a new name or
replaces a file that this object wrote before and that nobody has touched since.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fnmatch
import os
import stat
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import linux
from ..plan.make import in_force
from ..plan.model import Plan
from ..plan.workspace import Patterns
from ..policy import Files
from ..report import unkept_text
from .lookups import Lookups
from .mirror import Mirror, Names, Seen, descend, spare_name

DEPTH = 8  # of folders
ENTRIES = 20_000  # of the layer, files and folders, that are looked at
KEPT_FILES = 1000  # of a session, with the folders that are made for them
KEPT_BYTES = 1 << 30  # of a session, and so of one file
_CHUNK = 1 << 20
_NAME_BYTES = 255
_NAME = "hidden or unprintable name"
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER = _OPEN | os.O_DIRECTORY


@dataclass
class Report:
    """What became of the files that a cell made or changed. Paths below the notebook's folder.

    Attributes:
        kept: written next to the notebook.
        inside: not written: path and why.
    """

    kept: list[str] = field(default_factory=list)
    inside: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Held:
    """A file in the layer.

    Attributes:
        name: its path below the notebook's folder.
        size: in bytes.
        why: why it is not next to the notebook; "" when it is.
    """

    name: str
    size: int
    why: str


class FileGate:
    """Keeps new files of one session.

    Args:
        layer: descriptor of the upper folder; this object owns it. -1: there is none, and nothing is ever kept.
        workspace: the notebook's folder.
        keep: patterns of file names.
        hide: patterns of names that cells do not see; nothing is kept by such a name or in such a folder.
        owner: user and group that new files get; None: those of this process.
        mirror: what the notebook's files appear by in the layer, when it is a folder of its own.
        lookups: of the layer, when it is an overlay.
    """

    def __init__(
        self, layer: int = -1, workspace: str = "", keep: Sequence[str] = (), *, hide: Sequence[str] = (),
        owner: tuple[int, int] | None = None, mirror: Mirror | None = None,
        lookups: Lookups | None = None,
    ) -> None:  # fmt: skip
        self._mirror, self.lookups = mirror, lookups
        self._lock = threading.Lock()  # cells on several shells may end at once
        self._layer, self._keep, self._owner, self._top = layer, tuple(keep), owner, -1
        self._hidden = Patterns(hide)
        if layer >= 0:
            self._top = os.open(workspace, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._known: dict[Names, tuple[Seen, int]] = {}  # of the layer, as they were when they were last dealt with
        self._states: dict[Names, str] = {}  # why each was not kept; "" when it was
        self._ours: dict[Names, Seen] = {}  # on the disk, as they were written
        self._bytes = self._folders = 0
        self._walked = False  # the last time to the end

    @classmethod
    def of(
        cls, plans: Sequence[Plan], files: Files, ready: Mapping[str, Any], folders: Sequence[int], context: int = -1
    ) -> FileGate:
        """The gate of a front; as root it gives new files to whoever owns the folder.

        Args:
            plans: those of which the zygote took one.
            files: of the policy.
            ready: the zygote's greeting.
            folders: descriptors of the sandbox's folders that have no path here; their paths in there are in `ready`.
            context: of the layer, when it is an overlay (see `Lookups`); the caller closes it.
        """
        details, places = ready.get("details", {}), dict(zip(ready.get("folders", ()), folders, strict=False))
        plan = in_force(plans, ready.get("level", ""), details)
        if plan is None or not (plan.layered or plan.mirror):
            return cls()
        inside = places.get(plan.mirror or plan.workspace)
        layer = os.dup(inside) if inside is not None else os.open(plan.mirror, _FOLDER)
        found, root = os.stat(plan.workspace), os.geteuid() == 0
        owner = (found.st_uid, found.st_gid) if root and found.st_uid else None
        cells = (details["uid"], details["gid"]) if root else None
        mirror = Mirror.of(os.dup(layer), plan, files.hide, cells) if plan.mirror else None
        lookups = Lookups.of(context, layer, plan.workspace, details) if context >= 0 else None
        return cls(layer, plan.workspace, files.keep, hide=files.hide, owner=owner, mirror=mirror, lookups=lookups)

    def beside(self) -> FileGate:
        """For another session in the same sandbox: it keeps nothing, and sees what this one's cells see."""
        return FileGate(lookups=self.lookups.copy() if self.lookups is not None else None)

    def close(self) -> None:
        """Release the descriptors; idempotent."""
        with self._lock:
            for fd in (self._layer, self._top):
                if fd >= 0:
                    os.close(fd)
            for part in (self._mirror, self.lookups):
                if part is not None:
                    part.close()
            self._layer = self._top = -1
            self._mirror = None

    async def refresh(self) -> None:
        """Let cells see what came into the notebook's folder, where that does not happen by itself."""
        if self._mirror is not None:
            await asyncio.to_thread(self._refresh)
        elif self.lookups is not None:
            await self.lookups.look_again()

    def _refresh(self) -> None:
        with self._lock:
            if self._mirror is not None:
                self._mirror.refresh()

    @property
    def layered(self) -> bool:
        """Whether there is a layer."""
        return self._layer >= 0

    def collect(self) -> Report:
        """Keep what is new or changed since the last time. Blocks while it copies; never raises for a file."""
        with self._lock:
            return self._collected() if self.layered else Report()

    def _collected(self) -> Report:
        report, there = Report(), set()  # type: Report, set[Names]
        for names, found, folder in self._walk():
            there.add(names)
            seen = Seen.of(found), found.st_ctime_ns  # (cells can set the other times)
            if self._known.get(names) == seen or (self._mirror is not None and self._mirror.made(names, found)):
                continue
            self._known[names] = seen
            shown = "/".join(names)
            why = self._states[names] = self._take(names, found, folder)
            if why:
                report.inside.append((shown, why))
            else:
                report.kept.append(shown)
        if self._walked or len(self._known) > ENTRIES:  # else names that are gone would add up
            self._known = {names: seen for names, seen in self._known.items() if names in there}
            self._states = {names: why for names, why in self._states.items() if names in there}
        return report

    def held(self) -> list[Held]:
        """The files in the layer, without those that only appear in it. Blocks while it looks."""
        with self._lock:
            if not self.layered:
                return []
            found = []
            for names, status, _ in self._walk():
                shown = "/".join(names)
                if stat.S_ISREG(status.st_mode) and not (self._mirror is not None and self._mirror.made(names, status)):
                    found.append(Held(shown, status.st_size, self._states.get(names, "new since the last cell")))
            return found

    def keep(self, name: str) -> str:
        """Keep one file because a person asks for it, whatever its kind; else all rules hold. Blocks while it copies.

        Args:
            name: its path below the notebook's folder.

        Returns:
            Why it was not kept; "" when it was.
        """
        names = tuple(name.split("/"))
        with self._lock:
            if not self.layered:
                return "there is no private layer: files.workspace is not \"overlay\""
            if not all(map(_plain, names)):
                return _NAME
            try:
                folder = descend(self._layer, names[:-1])
            except OSError as error:
                return unkept_text(error)
            try:
                found = os.stat(names[-1], dir_fd=folder, follow_symlinks=False)
                why = self._take(names, found, folder, asked=True)
            except OSError as error:
                return unkept_text(error)
            finally:
                os.close(folder)
            self._states[names] = why
            return why

    def _take(self, names: Names, found: os.stat_result, folder: int, *, asked: bool = False) -> str:
        """Write it to the disk, or say why not."""
        why = self._refusal(names, found, asked=asked)
        if not why:
            try:
                self._copy(names, folder)
            except OSError as error:
                why = unkept_text(error)
        return why

    # ------------------------------------------------------------ the layer

    def _walk(self) -> Iterator[tuple[Names, os.stat_result, int]]:
        """Every entry that is no folder, with its folder's descriptor, which is open until the next step."""
        left, self._walked = ENTRIES, False
        waiting: list[Names] = [()]
        for at in waiting:  # which grows meanwhile
            try:
                folder = descend(self._layer, at)
            except OSError:
                continue
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        left -= 1
                        if left < 0:
                            return
                        with contextlib.suppress(OSError):
                            found = os.stat(entry.name, dir_fd=folder, follow_symlinks=False)
                            names = (*at, entry.name)
                            if not stat.S_ISDIR(found.st_mode):
                                yield names, found, folder
                            elif len(names) < DEPTH:
                                waiting.append(names)
            finally:
                os.close(folder)
        self._walked = True
        if self.lookups is not None:
            self.lookups.folders = waiting[1:]

    def _refusal(self, names: Names, found: os.stat_result, *, asked: bool) -> str:
        """Why it stays inside; "" when it may be kept."""
        if stat.S_ISCHR(found.st_mode):
            return "removed, inside only"  # how overlayfs notes that a name is gone
        if not stat.S_ISREG(found.st_mode):
            return "no ordinary file"
        if any(not _plain(name) for name in names):
            return _NAME
        if any(map(self._hidden, names)):
            return "a name in its path is among files.hide"
        if not asked and not any(fnmatch.fnmatchcase(names[-1].lower(), pattern.lower()) for pattern in self._keep):
            return "not among files.keep"
        if found.st_size > KEPT_BYTES - self._bytes or len(self._ours) + self._folders >= KEPT_FILES:
            return "too much was kept already"
        return ""

    # ------------------------------------------------------------ the disk

    def _copy(self, names: Names, folder: int) -> None:
        """Write one file next to the notebook.

        Raises:
            OSError: EEXIST when there is a file of somebody else's; ESTALE when it changed while it was read.
        """
        source = os.open(names[-1], _OPEN, dir_fd=folder)
        try:
            found = os.fstat(source)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(errno.ESTALE, "replaced")
            if self._mirror is not None and found.st_uid != os.fstat(self._layer).st_uid:
                raise OSError(errno.EPERM, "somebody else's file")  # a hard link, where no Landlock forbids that
            made: list[Names] = []
            try:
                place = self._folder_on_disk(names[:-1], made)
                try:
                    self._write(names, source, place)
                finally:
                    os.close(place)
            except OSError:
                self._remove(made)
                raise
            finally:
                self._folders += len(made)
        finally:
            os.close(source)

    def _folder_on_disk(self, names: Names, made: list[Names]) -> int:
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
        if len(self._ours) + self._folders + len(made) + 1 >= KEPT_FILES:
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

    def _write(self, names: Names, source: int, place: int) -> None:
        name, ours = names[-1], self._ours.get(names)
        try:
            there = os.stat(name, dir_fd=place, follow_symlinks=False)
        except FileNotFoundError:
            ours = None
        else:
            if ours is None or Seen.of(there) != ours:
                raise FileExistsError(errno.EEXIST, "there is one already")
        spare = spare_name()  # hidden from those who list the folder meanwhile
        copy = os.open(spare, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=place)
        try:
            size, allowed = 0, KEPT_BYTES - self._bytes
            while chunk := os.read(source, _CHUNK):
                size += len(chunk)
                if size > allowed:
                    raise OSError(errno.EFBIG, "too large")
                _write_all(copy, chunk)
            if self._owner is not None:
                os.fchown(copy, *self._owner)
            written = Seen.of(os.fstat(copy))
            self._put(spare, name, place, ours)
            self._bytes += size
            self._ours[names] = written
        finally:
            os.close(copy)
            os.unlink(spare, dir_fd=place)

    @staticmethod
    def _put(spare: str, name: str, place: int, ours: Seen | None) -> None:
        """Give the finished file its name: it appears whole, and takes nobody else's."""
        if ours is None:
            os.link(spare, name, src_dir_fd=place, dst_dir_fd=place, follow_symlinks=False)
            return
        linux.exchange(place, spare, name)
        if Seen.of(os.stat(spare, dir_fd=place, follow_symlinks=False)) != ours:  # somebody else's since we looked
            linux.exchange(place, spare, name)
            raise FileExistsError(errno.EEXIST, "there is one already")


def _plain(name: str) -> bool:
    """Whether a name is visible text that means the same to every program."""
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        return False
    return name.isprintable() and name != "" and not name.startswith((".", "-", "~")) and len(encoded) <= _NAME_BYTES


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
