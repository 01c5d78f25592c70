"""Where files are set aside: a private folder of the person, in it one shelf for each session over a notebook's folder.

On a shelf files have numbers for names; what they are called, which hostile code has chosen, is in its index only. The
session that fills a shelf holds its lock as long as it lives, and nobody else touches it meanwhile. A later session
over the same folder takes over the shelves of those that have ended, however that was.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Iterator
from hashlib import sha256

import msgspec

from .kept import copy_content
from .mirror import Names
from .private import LOCK, alone, closing, locked, move, open_private
from .seen import OPEN

FILES = 1000  # on one shelf
FILE_BYTES = 1 << 30  # on one shelf, and so of one file
SHELVES = 100  # of all folders together, as are the bytes; the oldest go first
ALL_BYTES = 4 << 30
AGE_S = 30 * 86400  # since its session ended
_INDEX_BYTES = 32 << 20  # more than `FILES` of the longest names take
_WAIT_S = 2.0  # for another kernel that takes shelves over at this moment
_DEPTH, _NAME_BYTES = 16, 255
_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file that is set aside.

    Attributes:
        name: its path below the notebook's folder.
        number: its name on the shelf.
        size: in bytes.
        modified_ns: as cells saw it.
        below: what lay by that name in the notebook's folder then, see `Seen.words`; "": nothing.
        when: it was set aside, in seconds of the clock.
    """

    name: str
    number: int
    size: int
    modified_ns: int
    below: str
    when: float


class _Index(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    folder: str
    files: list[Entry]


class Shelf:
    """One shelf, open.

    Args:
        place: descriptor of the folder in which it lies; it is copied.
        name: its own.

    Attributes:
        entries: by the file's path.
        folder: the notebook's folder.
        readable: whether there is no index yet, or one that could be read: else nobody knows what lies here.

    Raises:
        OSError: there is none.
    """

    def __init__(self, place: int, name: str) -> None:
        self._folder = open_private(name, place)
        self._place, self._name, self._lock = os.dup(place), name, -1
        self._old: list[int] = []
        self.entries: dict[Names, Entry] = {}
        self.folder, self.readable = "", True
        self.read()

    def read(self) -> None:
        """Take the index as it is now; nothing of one that is none."""
        self.readable = True
        try:
            file = os.open("index", OPEN, dir_fd=self._folder)
            with open(file, "rb") as data:
                index = msgspec.json.decode(data.read(_INDEX_BYTES), type=_Index)
            found = {tuple(entry.name.split("/")): entry for entry in index.files}
            self.entries = {names: entry for names, entry in found.items() if _can_be(names)}
            self.folder = index.folder
        except FileNotFoundError:
            pass
        except (OSError, msgspec.MsgspecError, UnicodeError):
            self.readable = False

    def take(self) -> bool:
        """Lock it for this process; False: a session has it that lives."""
        if self._lock < 0:
            lock = os.open("lock", LOCK, 0o600, dir_fd=self._folder)
            if not locked(lock):
                os.close(lock)
                return False
            self._lock = lock
            self.read()
        return True

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(entry.size for entry in self.entries.values())

    @property
    def saved(self) -> float:
        """When its index was written last, in seconds of the clock."""
        with contextlib.suppress(OSError):
            return os.stat("index", dir_fd=self._folder, follow_symlinks=False).st_mtime
        return os.fstat(self._folder).st_mtime

    def open(self, entry: Entry) -> int:
        """A descriptor of a file's content.

        Raises:
            OSError: it is gone, or is no ordinary file.
        """
        file = os.open(str(entry.number), OPEN, dir_fd=self._folder)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise OSError(errno.ESTALE, "replaced")
        return file

    # ------------------------------------------------------------ for the one who has taken it

    def put(self, names: Names, source: int, modified_ns: int, below: str) -> None:
        """Set a file aside; `save` is still to be called.

        Raises:
            OSError: EFBIG when there is no more room.
        """
        replaced = self.entries.get(names)
        room = FILE_BYTES - self.size + (replaced.size if replaced is not None else 0)
        if (replaced is None and len(self.entries) >= FILES) or not _can_be(names):
            raise OSError(errno.EFBIG, "too many")
        number = self._number()
        copy = os.open(str(number), _NEW, 0o600, dir_fd=self._folder)
        try:
            size = copy_content(source, copy, room)
        except OSError:
            self._unlink(number)
            raise
        finally:
            os.close(copy)
        self._enter(names, Entry("/".join(names), number, size, modified_ns, below, time.time()))

    def take_over(self, other: Shelf) -> None:
        """Move here what lies on another shelf, which ends; of two files with one name the newer one is kept.

        Raises:
            OSError: not all could be moved, and the other one stays.
        """
        for names, entry in other.entries.items():
            own = self.entries.get(names)
            if own is not None and own.when >= entry.when:
                continue
            number = self._number()
            with contextlib.suppress(FileNotFoundError):  # its content is gone
                move(str(entry.number), other._folder, str(number), self._folder)
                self._enter(names, msgspec.structs.replace(entry, number=number))
        self._bound()
        self.save()
        other.remove()

    def drop(self, names: Names) -> None:
        """Let go of a file, if there is one; `save` is still to be called."""
        if (entry := self.entries.pop(names, None)) is not None:
            self._old.append(entry.number)

    def sweep(self) -> None:
        """Remove what is not in the index, as a process leaves it behind that was killed."""
        known = {str(entry.number) for entry in self.entries.values()} | {"index", "lock"}
        for name in set(os.listdir(self._folder)) - known:
            self._unlink(name)

    def save(self) -> None:
        """Write the index; only then what is not needed any more is removed.

        Raises:
            OSError: it could not be written, and the old one counts.
        """
        index = _Index(self.folder, list(self.entries.values()))
        self._unlink("index.new")
        file = os.open("index.new", _NEW, 0o600, dir_fd=self._folder)
        with open(file, "wb") as data:
            data.write(msgspec.json.encode(index))
        os.rename("index.new", "index", src_dir_fd=self._folder, dst_dir_fd=self._folder)
        while self._old:
            self._unlink(self._old.pop())

    def remove(self) -> None:
        """Remove it with all that is on it."""
        with contextlib.suppress(OSError):
            for name in os.listdir(self._folder):
                self._unlink(name)
            os.rmdir(self._name, dir_fd=self._place)

    def close(self) -> None:
        """Leave it to others; an empty one is removed. Idempotent."""
        if self._folder >= 0:
            if self._lock >= 0:
                if not self.entries and self.readable:
                    self.remove()
                os.close(self._lock)
            os.close(self._folder)
            os.close(self._place)
        self._folder = self._place = self._lock = -1

    def _number(self) -> int:
        used = [int(name) for name in os.listdir(self._folder) if name.isdecimal() and len(name) < 10]
        return max(used, default=0) + 1

    def _enter(self, names: Names, entry: Entry) -> None:
        self.drop(names)
        self.entries[names] = entry

    def _bound(self) -> None:
        for names in sorted(self.entries, key=lambda names: self.entries[names].when):
            if len(self.entries) <= FILES and self.size <= FILE_BYTES:
                return
            self.drop(names)

    def _unlink(self, name: str | int) -> None:
        with contextlib.suppress(OSError):
            os.unlink(str(name), dir_fd=self._folder)


class Shelves:
    """Those of one notebook's folder.

    Args:
        top: path of the private folder, which is made when it is needed.
        workspace: the notebook's folder.
    """

    def __init__(self, top: str, workspace: str) -> None:
        self._top, self._workspace = top, workspace
        self._key = sha256(os.fsencode(os.path.realpath(workspace))).hexdigest()[:32]

    def new(self) -> Shelf:
        """An empty one, taken.

        Raises:
            OSError: the private folder cannot be written, or is somebody else's.
        """
        with contextlib.suppress(FileNotFoundError):
            return self._new()
        return self._new()  # another kernel has just removed the empty place, see `prune`

    def _new(self) -> Shelf:
        os.makedirs(os.path.dirname(self._top), mode=0o700, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._top, 0o700)
        with closing(open_private(self._top)) as top:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._key, 0o700, dir_fd=top)
            with alone(self._key, top, _WAIT_S) as place:
                name = os.urandom(8).hex()
                os.mkdir(name, 0o700, dir_fd=place)
                shelf = Shelf(place, name)
                shelf.folder = os.fsencode(self._workspace).decode(errors="replace")  # (only for people to read)
                shelf.take()
                return shelf

    def begin(self) -> tuple[Shelf | None, list[Shelf]]:
        """For a session that begins: what those before it have left, taken over, and what those have that live.

        Nothing where there is no such folder, or it cannot be used.
        """
        with (
            contextlib.suppress(OSError), closing(open_private(self._top)) as top,
            alone(self._key, top, _WAIT_S) as place,
        ):  # fmt: skip
            shelves = sorted(_shelves_in(place), key=lambda shelf: shelf.saved)
            ended = [shelf for shelf in shelves if shelf.readable and _taken(shelf)]
            others = [shelf for shelf in shelves if shelf not in ended]
            if not ended:
                return None, others
            own = ended.pop()
            for shelf in ended:
                with contextlib.suppress(OSError):  # then it stays for the next one
                    own.take_over(shelf)
                shelf.close()
            with contextlib.suppress(OSError):
                own.save()  # it is in use, and so not old
                own.sweep()
            return own, others
        return None, []

    def all(self) -> list[Shelf]:
        """As they are now, without taking them."""
        with (
            contextlib.suppress(OSError), closing(open_private(self._top)) as top,
            closing(open_private(self._key, top)) as place,
        ):  # fmt: skip
            return list(_shelves_in(place))
        return []

    def prune(self) -> None:
        """Remove what is too old or too much, of all folders; not what belongs to a session that lives."""
        with contextlib.suppress(OSError), closing(open_private(self._top)) as top:
            rows = []
            for key in os.listdir(top):
                with contextlib.suppress(OSError), alone(key, top, 0) as place:
                    found = [(shelf.saved, shelf.size, shelf) for shelf in _shelves_in(place)]
                    rows += found
                    if not found:
                        os.unlink("lock", dir_fd=place)
                        os.rmdir(key, dir_fd=top)
            count, total = len(rows), sum(size for _, size, _ in rows)
            for saved, size, shelf in sorted(rows, key=lambda row: row[:2]):
                with contextlib.suppress(OSError):
                    old = time.time() - saved > AGE_S
                    if (old or count > SHELVES or total > ALL_BYTES) and shelf.take():
                        shelf.remove()
                        count, total = count - 1, total - size
            for *_, shelf in rows:
                shelf.close()


def _taken(shelf: Shelf) -> bool:
    with contextlib.suppress(OSError):  # its session ends at this moment, and has removed it
        return shelf.take()
    return False


def _shelves_in(place: int) -> Iterator[Shelf]:
    for name in os.listdir(place):
        if name != "lock":
            with contextlib.suppress(OSError):
                yield Shelf(place, name)


def _can_be(names: Names) -> bool:
    """Whether these can be the names of folders and a file in it; not whether a person would want them."""
    try:
        lengths = [len(name.encode()) for name in names]
    except UnicodeEncodeError:
        return False
    return 0 < len(names) <= _DEPTH and max(lengths) <= _NAME_BYTES and not any(
        name in ("", ".", "..") or "\0" in name or "/" in name for name in names
    )  # fmt: skip
