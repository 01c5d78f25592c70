"""The file gate: new files of the cells go from their private layer to the disk, and nothing else does.

The layer is the upper folder of an overlay, in memory, full of whatever hostile code put there, and it goes on changing
while it is read. So it is walked by descriptors only, below its own top, following no link and crossing no mount; only
ordinary files are opened, and their size is bounded while they are read. `kept` writes them.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fnmatch
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..plan.make import in_force
from ..plan.model import Plan
from ..plan.workspace import Patterns
from ..policy import Files
from ..report import CAN_BE_KEPT, EARLIER, NOT_DATA, unkept_text
from .aside import Aside, Layer
from .held import Held, Report
from .helper import Errands
from .kept import KeptFiles, owner_in
from .lookups import BUSY_S, Lookups
from .mirror import Mirror, Names, descend
from .paced import Paced
from .seen import OPEN, Seen

DEPTH = 8  # of folders
ENTRIES = 20_000  # of the layer, files and folders, that are looked at
_NAME_BYTES = 255
_NAME = "hidden or unprintable name"
_REMOVED, _ODD = "removed, inside only", "no ordinary file"
_FOLDER = OPEN | os.O_DIRECTORY


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
        self._layer, self._keep, self._hidden = layer, tuple(keep), Patterns(hide)
        self._disk, self._workspace = KeptFiles(workspace, owner), workspace
        self._known: dict[Names, tuple[Seen, int]] = {}  # of the layer, as they were when they were last dealt with
        self._states: dict[Names, str] = {}  # why each was not kept; "" when it was
        self._walked = self._beyond = False  # the last time to the end; and whether there was more than was looked at
        self._told: set[tuple[str, str]] = set()  # what a person has read already: path and why
        self._paced: Paced | None = None
        self._cells: tuple[int, int] | None = None
        self._closed: frozenset[str] = frozenset()
        self._beginning: asyncio.Future[None] | None = None
        self._storing: asyncio.Future[None] | None = None
        self.aside: Aside | None = None
        self.errands = Errands()

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
        owner = owner_in(plan.workspace)
        cells = (details["uid"], details["gid"]) if os.geteuid() == 0 else None
        mirror = Mirror.of(os.dup(layer), plan, files.hide, cells) if plan.mirror else None
        lookups = Lookups.of(context, layer, plan.workspace, details, ready["pid"]) if context >= 0 else None
        gate = cls(layer, plan.workspace, files.keep, hide=files.hide, owner=owner, mirror=mirror, lookups=lookups)
        gate._cells = cells
        gate._closed = frozenset({*plan.protected, *(bind.path for bind in plan.binds)} - {plan.workspace})
        if lookups is not None:
            deque(gate._walk(), maxlen=0)  # the layer may begin with folders
        return gate

    def beside(self) -> FileGate:
        """For another session in the same sandbox: it keeps nothing, and sees what this one's cells see."""
        return FileGate(lookups=self.lookups.copy() if self.lookups is not None else None)

    def close(self) -> None:
        """Release the descriptors; idempotent."""
        if self._paced is not None:
            self._paced.stop()
        with self._lock:
            if self._layer >= 0:
                os.close(self._layer)
            for part in (self._mirror, self.lookups, self._disk, self.aside, self.errands):
                if part is not None:
                    part.close()
            self._layer, self._mirror = -1, None

    def follow(
        self, loop: asyncio.AbstractEventLoop, busy: Callable[[], bool], aside: Aside | None = None
    ) -> None:
        """Let cells see what comes into the notebook's folder while they run, until `close`; returns at once.

        Args:
            busy: whether cells run.
            aside: takes what is not kept, and gives back what earlier sessions have left.
        """
        if aside is not None and self.layered:
            self.aside = aside
            self._beginning = loop.run_in_executor(None, self._begin, aside)
        if self.lookups is not None:
            self.lookups.follow(loop, busy)
        elif self._mirror is not None:
            # (While none runs it can wait: before the next one it is done in any case.)
            look = lambda: loop.run_in_executor(None, self._refresh) if busy() else None  # noqa: E731
            self._paced = Paced(loop, look, lambda: BUSY_S)

    def _begin(self, aside: Aside) -> None:
        with self._lock:
            if not self.layered:
                return
            made = self._mirror.made if self._mirror is not None else lambda _names, _found: False
            layer = Layer(os.dup(self._layer), self._workspace, self._cells, self._closed, made, self._mirror is None)
            found = aside.begin(layer)
            self._known.update(found)
            self._states.update(dict.fromkeys(found, EARLIER))
            if found and self.lookups is not None:
                self.lookups.forget()
                deque(self._walk(), maxlen=0)

    async def refresh(self) -> None:
        """Before a cell: let it see what came into the notebook's folder, where that does not happen by itself."""
        if self._beginning is not None:
            await asyncio.wait([self._beginning])
            self._beginning = None
        if self._disk.written:
            await self.errands.run(self._give_way)
        if self._mirror is not None:
            await self.errands.run(self._refresh)
        elif self.lookups is not None:
            await self.lookups.look_again()

    def _refresh(self) -> float:
        """Returns how long it took, in seconds."""
        with self._lock:
            began = time.perf_counter()
            if self._mirror is not None:
                self._mirror.refresh()
            return time.perf_counter() - began

    def _give_way(self) -> None:
        """Remove from the layer what was kept and what the person has changed or removed on the disk since.

        Cells have the file on the disk then; a file that cells have changed since, too, stays theirs.
        """
        with self._lock:
            for names in self._disk.written:
                if self._states.get(names) or names not in self._known or not self._disk.touched(names):
                    continue
                with contextlib.suppress(OSError):
                    folder = descend(self._layer, names[:-1])
                    try:
                        found = os.stat(names[-1], dir_fd=folder, follow_symlinks=False)
                        if self._known[names] == (Seen.of(found), found.st_ctime_ns):
                            os.unlink(names[-1], dir_fd=folder)
                            del self._known[names], self._states[names]
                            if self._mirror is not None:
                                self._mirror.forget(names)
                    finally:
                        os.close(folder)

    @property
    def layered(self) -> bool:
        """Whether there is a layer."""
        return self._layer >= 0

    @property
    def changed(self) -> bool:
        """Whether there may be something to `collect`."""
        written = self.lookups is None or self.lookups.written
        # (What cells made and removed again leaves nothing written, but is still set aside.)
        return self.layered and (written or (self.aside is not None and self.aside.holds))

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
        if self.aside is not None:
            here = {names: self._known[names] for names, why in self._states.items()
                    if why not in ("", _REMOVED, _ODD) and names in there}  # fmt: skip
            self.aside.want(here, all_seen=self._walked, more=self._beyond)
        return report

    def set_aside(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to copy what did not fit in before the cell's answer; returns at once."""
        if self.aside is not None and self.aside.waiting and (self._storing is None or self._storing.done()):
            self._storing = loop.run_in_executor(None, self.aside.store)

    def finish(self) -> None:
        """Keep, and set aside, what there is at the end. Blocks while it copies."""
        self.collect()
        if self.aside is not None:
            self.aside.store()

    def news(self, report: Report) -> tuple[Report, bool]:
        """What of a report is to be told: each file once, as long as no more of it is to be said.

        Returns:
            Also whether it is the first time that a file stays inside which `keep` could take out.
        """
        if len(self._told) > ENTRIES:
            self._told.clear()
        inside = [(path, why) for path, why in report.inside if "/__pycache__/" not in f"/{path}"]
        before = any(why in CAN_BE_KEPT for _, why in self._told)
        fresh = Report([path for path in report.kept if (path, "") not in self._told],
                       [found for found in inside if found not in self._told])  # fmt: skip
        self._told |= {(path, "") for path in fresh.kept} | set(fresh.inside)
        return fresh, not before and any(why in CAN_BE_KEPT for _, why in fresh.inside)

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

    def keep(self, name: str, *, over: bool = False) -> str:
        """Keep one file because a person asks for it, whatever its kind; else all rules hold. Blocks while it copies.

        Args:
            name: its path below the notebook's folder.
            over: in the place of a file that no sandbox made, too.

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
                why = self._take(names, found, folder, asked=True, over=over)
                self._known[names] = Seen.of(found), found.st_ctime_ns
            except OSError as error:
                return unkept_text(error)
            finally:
                os.close(folder)
            self._states[names] = why
            if self.aside is not None and not why:
                self.aside.kept(names)
            return why

    def _take(
        self, names: Names, found: os.stat_result, folder: int, *, asked: bool = False, over: bool = False
    ) -> str:
        """Write it to the disk, or say why not."""
        why = self._refusal(names, found, asked=asked)
        if not why:
            try:
                self._copy(names, folder, over=over)
            except OSError as error:
                why = unkept_text(error)
        return why

    # ------------------------------------------------------------ the layer

    def _walk(self) -> Iterator[tuple[Names, os.stat_result, int]]:
        """Every entry that is no folder, with its folder's descriptor, which is open until the next step."""
        left, self._walked, self._beyond = ENTRIES, False, False
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
                            self._beyond = True
                            return
                        with contextlib.suppress(OSError):
                            found = os.stat(entry.name, dir_fd=folder, follow_symlinks=False)
                            names = (*at, entry.name)
                            if not stat.S_ISDIR(found.st_mode):
                                yield names, found, folder
                            elif len(names) < DEPTH:
                                waiting.append(names)
                            else:
                                self._beyond = True
            finally:
                os.close(folder)
        self._walked = True
        if self.lookups is not None:
            self.lookups.folders = waiting[1:]

    def _refusal(self, names: Names, found: os.stat_result, *, asked: bool) -> str:
        """Why it stays inside; "" when it may be kept."""
        if stat.S_ISCHR(found.st_mode):
            return _REMOVED  # how overlayfs notes that a name is gone
        if not stat.S_ISREG(found.st_mode):
            return _ODD
        if why := refused_name(names, self._hidden):
            return why
        if not asked and not any(fnmatch.fnmatchcase(names[-1].lower(), pattern.lower()) for pattern in self._keep):
            return NOT_DATA
        if not self._disk.has_room(names, found.st_size):
            return "too much was kept already"
        return ""

    def _copy(self, names: Names, folder: int, *, over: bool) -> None:
        """Write one file next to the notebook.

        Raises:
            OSError: EEXIST when there is a file of somebody else's; ESTALE when it changed while it was read.
        """
        source = os.open(names[-1], OPEN, dir_fd=folder)
        try:
            found = os.fstat(source)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(errno.ESTALE, "replaced")
            if self._mirror is not None and found.st_uid != os.fstat(self._layer).st_uid:
                raise OSError(errno.EPERM, "somebody else's file")  # a hard link, where no Landlock forbids that
            self._disk.put(names, source, over=over)
        finally:
            os.close(source)


def refused_name(names: Names, hidden: Patterns) -> str:
    """Why nothing may be kept by such a name; "" when it may."""
    if not all(map(_plain, names)):
        return _NAME
    return "a name in its path is among files.hide" if any(map(hidden, names)) else ""


def _plain(name: str) -> bool:
    """Whether a name is visible text that means the same to every program."""
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        return False
    return name.isprintable() and name != "" and not name.startswith((".", "-", "~")) and len(encoded) <= _NAME_BYTES
