"""The notebook's folder as it appears in a private one, where no layer can be laid over it.

Folders appear as folders, so that cells can make files in them; files as links to the read-only originals. A file that
the cells could not read by a link (a Landlock rule means one inode, and this one came or was replaced after the rules
were set) comes in as a copy. Cells own the private folder and may do anything to it: so it is entered by descriptors
only, no link in it is followed, and what they removed or changed is not made again.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterable, Iterator

from ..plan.model import Plan
from ..plan.workspace import Patterns
from .seen import Seen

DEPTH = 4  # of folders that appear as folders; what is deeper is reached by a link to its folder
ENTRIES = 5000
_SHARE = 4  # a folder that would take more than this part of what is left of them is reached by a link, too
COPY_BYTES = 64 << 20  # one file that is copied
COPIES_BYTES = 256 << 20  # all of them
_CHUNK = 1 << 20
SETTLED_NS = 100_000_000  # what changed a moment ago may change again without that its time tells
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC

Names = tuple[str, ...]  # of folders and a file, below the top


class Mirror:
    """Keeps the private folder in step with the notebook's.

    Args:
        place: descriptor of the private folder; this object owns it.
        workspace: the notebook's folder.
        hide: names that do not appear.
        granted: paths that the cells' Landlock rules name; None: links can be read wherever they lead.
        hidden: paths that do not appear.
        whole: folders that appear as links.
        owner: user and group of the cells; None: those of this process.
    """

    def __init__(
        self, place: int, workspace: str, hide: Iterable[str], *, granted: Iterable[str] | None = None,
        hidden: Iterable[str] = (), whole: Iterable[str] = (), owner: tuple[int, int] | None = None,
    ) -> None:  # fmt: skip
        self._whole = frozenset(whole)
        self._place, self._workspace, self._owner = place, workspace, owner
        self._hide, self._hidden = Patterns(hide), frozenset(hidden)
        self._rules = None if granted is None else dict(_identities(granted))
        self._made: dict[Names, tuple[Seen, Seen | None]] = {}  # what was made, and of a copy its original
        # When a folder had changed last when it was listed, and the folders in it.
        self._listed: dict[Names, tuple[int, list[Names]]] = {}
        self._folders: set[Names] = set()
        self._copied = 0

    @classmethod
    def of(cls, place: int, plan: Plan, hide: Iterable[str], owner: tuple[int, int] | None) -> Mirror:
        """The one that a plan asks for, filled."""
        landlock = "landlock" in plan.layers and "namespaces" not in plan.layers
        granted = [grant.path for grant in plan.grants if grant.access.startswith("read")] if landlock else None
        mirror = cls(place, plan.workspace, hide, granted=granted, hidden=plan.hidden, whole=plan.protected,
                     owner=owner)  # fmt: skip
        mirror.refresh()
        return mirror

    def close(self) -> None:
        """Release the descriptor."""
        os.close(self._place)

    def made(self, names: Names, found: os.stat_result) -> bool:
        """Whether a file in the private folder is as this object made it."""
        known = self._made.get(names)
        return known is not None and known[0] == Seen.of(found)

    def refresh(self) -> None:
        """Let appear what is new. Blocks while it copies; never raises for a file."""
        for names, (_, original) in list(self._made.items()):
            if original is not None:
                self._make(names)
                self._remove(names)
        waiting: list[Names] = [()]
        while waiting and len(self._made) < ENTRIES:
            at = waiting.pop(0)
            path = os.path.join(self._workspace, *at)
            try:
                changed = os.stat(path, follow_symlinks=False).st_mtime_ns
            except OSError:
                continue
            known, folders = self._listed.get(at, (0, []))
            if known != changed:
                folders = self._list(at, path)
                settled = time.time_ns() - changed > SETTLED_NS
                self._listed[at] = changed if settled else 0, folders
            waiting += folders

    # ------------------------------------------------------------ one folder

    def _list(self, at: Names, path: str) -> list[Names]:
        """Make the entries of one folder; the folders among them."""
        folders: list[Names] = []
        gone = {names for names in self._made if names[:-1] == at and names not in self._folders}
        with contextlib.suppress(OSError), os.scandir(path) as entries:
            for entry in entries:
                names = (*at, entry.name)
                gone.discard(names)
                if self._hide(entry.name) or entry.path in self._hidden or len(self._made) >= ENTRIES:
                    continue
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False) and self._opens(names, entry.path):
                        self._make_folder(names)
                        folders.append(names)
                    else:
                        self._make(names)
        for names in gone:
            self._remove(names)
        return folders

    def _opens(self, names: Names, path: str) -> bool:
        """Whether a folder appears as a folder."""
        if names in self._made:
            return names in self._folders
        room = (ENTRIES - len(self._made)) // _SHARE
        if len(names) < DEPTH and path not in self._whole and len(os.listdir(path)) <= room:
            self._folders.add(names)
        return names in self._folders

    def _make_folder(self, names: Names) -> None:
        if names not in self._made:
            with self._inner(names[:-1]) as folder:
                os.mkdir(names[-1], 0o755, dir_fd=folder)
                self._note(names, folder, None)

    def _make(self, names: Names) -> None:
        """A link or, where a link could not be read, a copy. What the cells have changed stays."""
        path = os.path.join(self._workspace, *names)
        known = self._made.get(names)
        with contextlib.suppress(OSError), self._inner(names[:-1]) as folder:
            found = os.stat(path, follow_symlinks=False)
            linked = not stat.S_ISREG(found.st_mode) or self._readable(path)
            if linked and self._fits(found) and Seen.of(found).marked(path):
                linked = False  # made by cells, and so to be made anew by them
            if known is None:
                if linked:
                    os.symlink(path, names[-1], dir_fd=folder)
                    self._note(names, folder, None)
                else:
                    self._copy(names, path, folder, new=True)
            elif not linked and known[1] != Seen.of(found) and self.made(names, _look(names[-1], folder)):
                self._copy(names, path, folder, new=False)

    def forget(self, names: Names) -> None:
        """What was made by this name is gone; let it appear anew."""
        self._made.pop(names, None)
        self._listed.pop(names[:-1], None)

    def _remove(self, names: Names) -> None:
        """Remove a link or a copy whose original is gone, unless it is the cells' own by now."""
        if not os.path.lexists(os.path.join(self._workspace, *names)):
            with contextlib.suppress(OSError), self._inner(names[:-1]) as folder:
                if self.made(names, _look(names[-1], folder)):
                    os.unlink(names[-1], dir_fd=folder)
                    del self._made[names]

    def _copy(self, names: Names, path: str, folder: int, *, new: bool) -> None:
        source = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = os.fstat(source)
            if not self._fits(found) or not self._allowed(found):
                return
            spare = spare_name()
            copy = os.open(spare, _NEW, 0o644, dir_fd=folder)
            try:
                left = found.st_size
                while left > 0 and (chunk := os.read(source, min(_CHUNK, left))):
                    left -= os.write(copy, chunk)
                    self._copied += len(chunk)
                if self._owner is not None:
                    os.fchown(copy, *self._owner)
                os.utime(copy, ns=(found.st_atime_ns, found.st_mtime_ns))
                written = Seen.of(os.fstat(copy))
                if new:
                    os.link(spare, names[-1], src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
                else:
                    os.rename(spare, names[-1], src_dir_fd=folder, dst_dir_fd=folder)
                self._made[names] = written, Seen.of(found)
            finally:
                os.close(copy)
                with contextlib.suppress(OSError):
                    os.unlink(spare, dir_fd=folder)
        finally:
            os.close(source)

    def _fits(self, found: os.stat_result) -> bool:
        return stat.S_ISREG(found.st_mode) and found.st_size <= min(COPY_BYTES, COPIES_BYTES - self._copied)

    def _allowed(self, found: os.stat_result) -> bool:
        """Whether the cells' user may read the file; this process may be root."""
        return self._owner is None or found.st_uid == self._owner[0] or bool(found.st_mode & 0o004)

    def _note(self, names: Names, folder: int, original: Seen | None) -> None:
        if self._owner is not None:
            os.chown(names[-1], *self._owner, dir_fd=folder, follow_symlinks=False)
        self._made[names] = Seen.of(_look(names[-1], folder)), original

    @contextlib.contextmanager
    def _inner(self, names: Names) -> Iterator[int]:
        folder = descend(self._place, names)
        try:
            yield folder
        finally:
            os.close(folder)

    def _readable(self, path: str) -> bool:
        """Whether a rule of the cells covers the file as it is now."""
        if self._rules is None:
            return True
        while path != "/":
            if path in self._rules and self._rules[path] == _identity(path):
                return True
            path = os.path.dirname(path)
        return False


def descend(top: int, names: Names) -> int:
    """A descriptor of a folder below `top`; no link is followed."""
    folder = os.open(".", _FOLDER | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=top)
    for name in names:
        try:
            inner = os.open(name, _FOLDER | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=folder)
        finally:
            os.close(folder)
        folder = inner
    return folder


def spare_name() -> str:
    """A name for a file that is not finished. Nothing of the final name: that may be as long as a name can be."""
    return f".{os.urandom(12).hex()}"


def _look(name: str, folder: int) -> os.stat_result:
    return os.stat(name, dir_fd=folder, follow_symlinks=False)


def _identities(paths: Iterable[str]) -> Iterator[tuple[str, tuple[int, int]]]:
    for path in paths:
        with contextlib.suppress(OSError):
            yield path, _identity(path)


def _identity(path: str) -> tuple[int, int]:
    found = os.stat(path, follow_symlinks=False)
    return found.st_dev, found.st_ino
