"""What cells made and what was not kept is set aside when a cell ends, and is there again for later sessions.

Else work by names that are not data's (a model, a module) would end with each restart of the kernel. It never lies in
the notebook's folder: from a shelf of the person's (see `shelves`) it goes into the private layer of the next session
over the same folder, as something that cells have made. Both ways it is read and written as what is kept is: ordinary
files only, by descriptors, following no link, within bounds.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
import time
from collections.abc import Callable, Mapping

from ..frozen import Frozen
from ..launcher import home_folder
from ..plan.paths import inside
from ..plan.workspace import Patterns
from ..policy import Policy
from ..report import unkept_text
from .kept import write_all
from .mirror import Names, descend, spare_name
from .private import closing
from .seen import OPEN, Seen
from .shelves import AGE_S, Entry, Shelf, Shelves

AT_ONCE_BYTES = 16 << 20  # that are set aside before a cell's answer; what is more is copied after it
SHOWN_BYTES = 256 << 20  # that come into a new layer
_CHUNK = 1 << 20
_WITHOUT = "__pycache__"
_FOLDER = OPEN | os.O_DIRECTORY
_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC

State = tuple[Seen, int]  # of a file in the layer: with when its status changed, which cells cannot set


class Layer(Frozen):
    """The private layer, or the private folder in its place.

    Attributes:
        top: descriptor; whoever gets this object owns it.
        workspace: the notebook's folder.
        cells: user and group of the cells; None: those of this process.
        closed: paths in the notebook's folder that no layer lies over.
        made: whether a file appears in it and is not the cells' work.
        merged: whether the folders of the notebook's folder shine through.
    """

    top: int
    workspace: str
    cells: tuple[int, int] | None
    closed: frozenset[str]
    made: Callable[[Names, os.stat_result], bool]
    merged: bool


class Aside:
    """What one session sets aside.

    Args:
        shelves: of the notebook's folder.
        mode: `files.aside` of the policy.
        most: bytes of it that come into the layer.

    Attributes:
        again: paths of the files that cells see again.
        unseen: and of those that stay where they are.
    """

    def __init__(self, shelves: Shelves, *, mode: str = "shown", most: int = SHOWN_BYTES) -> None:
        self._shelves, self.mode, self._most = shelves, mode, most
        self._lock = threading.Lock()
        self._layer: Layer | None = None
        self._own: Shelf | None = None
        self._stored: dict[Names, State] = {}  # as they were when they were copied, one way or the other
        self._waiting: dict[Names, State] = {}
        self._lost: dict[str, str] = {}  # why a file could not be set aside
        self._telling = threading.Lock()  # of that: `news` must not wait until a gigabyte is copied
        self._ended = self._more = False
        self.again: list[str] = []
        self.unseen: list[str] = []

    @classmethod
    def of(cls, policy: Policy, workspace: str, environ: Mapping[str, str]) -> Aside | None:
        """What a policy and a person's environment ask for; None: nothing is set aside."""
        top = aside_folder(environ)
        files = policy.files
        if files.aside == "none" or files.workspace != "overlay" or not workspace or not top:
            return None
        place = os.path.realpath(top)
        names = os.path.relpath(place, workspace).split("/")
        if inside(place, workspace) and not any(map(Patterns(files.hide), names)):
            return None  # cells could read there what others have left
        room = policy.limits.disk // 2 or SHOWN_BYTES
        return cls(Shelves(top, workspace), mode=files.aside, most=min(SHOWN_BYTES, room))

    # ------------------------------------------------------------ the beginning

    def begin(self, layer: Layer) -> dict[Names, State]:
        """Take this layer, and put into it what cells are to see again; returns what that is.

        Blocks while it copies; never raises for a file.
        """
        with self._lock:
            self._layer = layer
            self._own, others = self._shelves.begin()
            shelves = [self._own, *others] if self._own is not None else others
            newest: dict[Names, tuple[Shelf, Entry]] = {}
            for shelf in shelves:
                for names, entry in shelf.entries.items():
                    if names not in newest or newest[names][1].when < entry.when:
                        newest[names] = shelf, entry
            free = os.fstatvfs(layer.top)
            self._most = min(self._most, free.f_bavail * free.f_frsize // 2)
            for names, (shelf, entry) in sorted(newest.items()):
                try:
                    self._stored[names] = self._give(names, entry, shelf, layer)
                    self.again.append(entry.name)
                except OSError:
                    if shelf is self._own and time.time() - entry.when > AGE_S:
                        self._drop(names)
                    else:
                        self.unseen.append(entry.name)
            for shelf in others:
                shelf.close()
            self._shelves.prune()
            return dict(self._stored)

    def _give(self, names: Names, entry: Entry, shelf: Shelf, layer: Layer) -> State:
        """Copy one file into the layer.

        Raises:
            OSError: also when it is not to be shown.
        """
        if self.mode != "shown" or entry.size > self._most or entry.below != _below(layer.workspace, names):
            raise OSError(errno.EPERM, "not to be shown")
        with contextlib.ExitStack() as stack:
            source = stack.enter_context(closing(shelf.open(entry)))
            folder = stack.enter_context(closing(_folder(names[:-1], layer)))
            with contextlib.suppress(FileNotFoundError):
                found = os.stat(names[-1], dir_fd=folder, follow_symlinks=False)
                if not layer.made(names, found):
                    raise FileExistsError(errno.EEXIST, "a start-up file was quicker")
            spare = spare_name()
            copy = stack.enter_context(closing(os.open(spare, _NEW, 0o644, dir_fd=folder)))
            try:
                left = entry.size
                while left > 0 and (chunk := os.read(source, min(_CHUNK, left))):
                    write_all(copy, chunk)
                    left -= len(chunk)
                if layer.cells is not None:
                    os.fchown(copy, *layer.cells)
                os.utime(copy, ns=(entry.modified_ns, entry.modified_ns))
                os.rename(spare, names[-1], src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                os.unlink(spare, dir_fd=folder)
                raise
            self._most -= entry.size
            status = os.fstat(copy)
            return Seen.of(status), status.st_ctime_ns

    # ------------------------------------------------------------ the end of a cell

    def want(self, unkept: Mapping[Names, State], *, all_seen: bool, more: bool = False) -> None:
        """Name what is in the layer and nowhere else; what is small is set aside at once.

        Args:
            unkept: ordinary files that were not kept.
            all_seen: whether no file of the layer is missing in it, unless that was kept.
            more: whether there are others that nobody has looked at.
        """
        if more and not self._more:
            with self._telling:
                self._lost["others"] = "there are too many, or their folders lie too deep"
        self._more = more
        with self._lock:
            self._waiting = {
                names: state for names, state in unkept.items()
                if self._stored.get(names) != state and _WITHOUT not in names
            }  # fmt: skip
            gone = [names for names in self._stored if all_seen and names not in unkept]
            for names in gone:
                self._drop(names)
            if gone:
                self._save()
        self.store(AT_ONCE_BYTES)

    def kept(self, names: Names) -> None:
        """A person has had this file kept."""
        with self._lock:
            if names in self._stored:
                self._drop(names)
                self._save()

    @property
    def holds(self) -> bool:
        """Whether something is set aside, which cells may have removed."""
        return bool(self._stored)

    @property
    def waiting(self) -> bool:
        """Whether there is something to `store`."""
        return bool(self._waiting)

    def store(self, most: int = 0) -> None:
        """Set aside what waits for it. Blocks while it copies; never raises for a file.

        Args:
            most: bytes; 0: all.
        """
        with self._lock:
            if self._layer is None or self._ended or not self._waiting:
                return
            left = most
            for names, state in list(self._waiting.items()):
                if most and state[0].size > left:
                    continue
                left -= state[0].size
                del self._waiting[names]
                self._stored[names] = state
                try:
                    self._take(names, self._layer)
                except FileNotFoundError:
                    self._drop(names)  # cells have removed it since
                except OSError as error:
                    self._drop(names)
                    self._stored[names] = state  # it is the same the next time
                    self._lose("/".join(names), error)
            self._save()

    def _take(self, names: Names, layer: Layer) -> None:
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(closing(descend(layer.top, names[:-1])))
            source = stack.enter_context(closing(os.open(names[-1], OPEN, dir_fd=folder)))
            found = os.fstat(source)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(errno.ESTALE, "replaced")
            if not layer.merged and found.st_uid != os.fstat(layer.top).st_uid:
                raise OSError(errno.EPERM, "somebody else's file")  # a hard link, where no Landlock forbids that
            try:
                if self._own is None:
                    self._own = self._shelves.new()
                self._own.put(names, source, found.st_mtime_ns, _below(layer.workspace, names))
            except FileNotFoundError as error:  # it is not the file that is gone
                raise OSError(errno.ESTALE, "there is no folder for that") from error

    def _drop(self, names: Names) -> None:
        self._stored.pop(names, None)
        if self._own is not None:
            self._own.drop(names)

    def _save(self) -> None:
        if self._own is not None:
            try:
                self._own.save()
            except OSError as error:
                self._lose("all", error)

    def _lose(self, what: str, error: OSError) -> None:
        with self._telling:
            self._lost[what] = unkept_text(error)

    def news(self) -> tuple[list[str], list[str], dict[str, str]]:
        """What a person has not been told yet: what cells see again, what not, and what could not be set aside."""
        with self._telling:
            told = self.again, self.unseen, self._lost
            self.again, self.unseen, self._lost = [], [], {}
            return told

    def close(self) -> None:
        """Leave all to later sessions; idempotent."""
        self._ended = True
        with self._lock:
            if self._layer is not None:
                os.close(self._layer.top)
            if self._own is not None:
                self._own.close()
            self._layer = self._own = None


def aside_folder(environ: Mapping[str, str]) -> str:
    """The private folder of whoever has this environment; "" when there can be none (XDG base directories)."""
    folder = environ.get("XDG_DATA_HOME", "")
    if not os.path.isabs(folder):
        home = home_folder(environ)
        # (A home that is not there is not made: what an account's entry names need not be anybody's.)
        there = os.path.isabs(home) and os.path.isdir(home)
        folder = os.path.join(home, ".local", "share") if there else ""
    return os.path.join(folder, "sandbox-kernel", "aside") if folder else ""


def _folder(names: Names, layer: Layer) -> int:
    """A folder of the layer, made where it is missing; a descriptor. Follows no link."""
    place = os.open(".", _FOLDER, dir_fd=layer.top)
    for depth in range(1, len(names) + 1):
        try:
            inner = _inner(names[:depth], place, layer)
        finally:
            os.close(place)
        place = inner
    return place


def _inner(names: Names, place: int, layer: Layer) -> int:
    """The last of these folders.

    Where one shines through, one in the layer takes over its owner and mode: it is made only where cells see the same.

    Raises:
        OSError: also when it may not be made.
    """
    path = os.path.join(layer.workspace, *names)
    if path in layer.closed:
        raise OSError(errno.EPERM, "no layer there")
    with contextlib.suppress(FileNotFoundError):
        return os.open(names[-1], _FOLDER, dir_fd=place)
    mode = 0o755
    if layer.merged and (below := _status(path)) is not None:
        if not stat.S_ISDIR(below.st_mode) or below.st_uid != os.stat(layer.workspace).st_uid:
            raise OSError(errno.EPERM, "somebody else's folder")
        mode = stat.S_IMODE(below.st_mode)
    os.mkdir(names[-1], 0o700, dir_fd=place)
    inner = os.open(names[-1], _FOLDER, dir_fd=place)
    if layer.cells is not None:
        os.fchown(inner, *layer.cells)
    os.fchmod(inner, mode)
    return inner


def _status(path: str) -> os.stat_result | None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return os.stat(path, follow_symlinks=False)
    return None


def _below(workspace: str, names: Names) -> str:
    """What is on the disk by this name now, in words; "" for nothing."""
    found = _status(os.path.join(workspace, *names))
    return "" if found is None else Seen.of(found).words().decode()
