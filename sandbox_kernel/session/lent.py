"""Memory of large values that the sandbox was given, counted for as long as anything in there has it.

The worker uses such a value where it lies. As with rooms no limit counts it while no process has it mapped: code that
calls a function of the host again and again, and keeps the descriptors of what that returned, would have more than all
of the machine's memory. Linux tells when the last descriptor and the last mapping of it are gone (IN_DELETE_SELF, for
it has no name), so the front need not keep a descriptor for each.

The same holds for a value that came from there and that the front uses where it lies: an honest worker has nothing of
it any more, so it is counted once the front has dropped it, if it is there still.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import re
import struct
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from .. import linux
from ..errors import FrameRefused, size_text

_IN_DELETE_SELF = 0x400
_EVENT = struct.Struct("iIII")
_WATCHED = re.compile(r"^inotify wd:([0-9a-f]+)", re.M)
_COPIES_END_S, _LOOK_S = 1.0, 0.02


class Lent:
    """What one session has.

    Args:
        most: bytes; 0: no bound.
        relieve: called when there is too much, to end copies of the session: they have values that it has no more.
    """

    def __init__(self, most: int, relieve: Callable[[], None]) -> None:
        self._most, self._relieve = most, relieve
        self._sizes: dict[int, int] = {}  # by the number of the watch
        self._taken: dict[int, weakref.ref[mmap.mmap]] = {}  # values that came from there: the front's mappings
        self._watch = -1

    async def add(self, fds: Sequence[int]) -> None:
        """These are about to be sent.

        Raises:
            FrameRefused: with them it would have too much.
        """
        sizes = [os.fstat(fd).st_size for fd in fds]
        if not sizes or not self._most:
            return
        if not self._fits(sum(sizes)):
            end = asyncio.get_running_loop().time()
            if sum(sizes) <= self._most:  # else no copy's end makes room for it
                self._relieve()
                end += _COPIES_END_S
            while not self._fits(sum(sizes)):
                if asyncio.get_running_loop().time() > end:
                    raise FrameRefused(
                        f"the session has {size_text(self.bytes)} in large values that it was given, and with "
                        f"{size_text(sum(sizes))} more would have more than limits.memory = {size_text(self._most)}",
                        remedy="Delete variables with large values, or restart the session.",
                    )
                await asyncio.sleep(_LOOK_S)
        for fd, size in zip(fds, sizes, strict=True):
            if (number := self.watch(fd)) >= 0:  # else it is not counted
                self._sizes[number] = size

    def watch(self, fd: int) -> int:
        """Number of the watch over this memory; -1 where there are too many such watches on this machine."""
        try:
            if self._watch < 0:
                self._watch = linux.inotify()
            return linux.inotify_add_watch(self._watch, f"/proc/self/fd/{fd}", _IN_DELETE_SELF)
        except OSError:
            return -1

    def taken(self, number: int, size: int, mapping: mmap.mmap) -> None:
        """This memory, which is watched, came from the sandbox and is the front's from now on."""
        self._sizes[number], self._taken[number] = size, weakref.ref(mapping)

    def has_kept(self, more: int) -> bool:
        """Whether it keeps so much of values that came from there that with that much more it would be too much."""
        self._look()
        kept = sum(self._sizes[number] for number, mapping in self._taken.items() if mapping() is None)
        return 0 < self._most < kept + more and kept > 0

    def _fits(self, size: int) -> bool:
        return self.bytes + size <= self._most

    @property
    def bytes(self) -> int:
        """What it has now."""
        self._look()
        held = {number for number, mapping in self._taken.items() if mapping() is not None}
        return sum(size for number, size in self._sizes.items() if number not in held)

    def _look(self) -> None:
        if self._watch >= 0:
            with contextlib.suppress(BlockingIOError):
                while events := os.read(self._watch, 4096):
                    for number, *_ in _EVENT.iter_unpack(events):  # (the events of a file without a name have none)
                        self._forget((number,) if number >= 0 else self._sizes.keys() - self._watched())

    def _forget(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._sizes.pop(number, None)
            self._taken.pop(number, None)

    def _watched(self) -> set[int]:
        """What there still is. Thousands that went at once were more events than Linux keeps: the rest is lost."""
        text = Path(f"/proc/self/fdinfo/{self._watch}").read_text()
        return {int(number, 16) for number in _WATCHED.findall(text)}

    def __del__(self) -> None:
        if self._watch >= 0:
            os.close(self._watch)
