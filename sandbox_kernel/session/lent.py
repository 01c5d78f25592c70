"""Memory of large values that the sandbox was given, counted for as long as anything in there has it.

The worker uses such a value where it lies. As with rooms no limit counts it while no process has it mapped: code that
calls a function of the host again and again, and keeps the descriptors of what that returned, would have more than all
of the machine's memory. Linux tells when the last descriptor and the last mapping of it are gone (IN_DELETE_SELF, for
it has no name), so the front need not keep a descriptor for each.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
from collections.abc import Callable, Sequence

from .. import linux
from ..errors import FrameRefused, size_text

_IN_DELETE_SELF = 0x400
_EVENT = struct.Struct("iIII")
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
            self._relieve()
            end = asyncio.get_running_loop().time() + _COPIES_END_S
            while not self._fits(sum(sizes)):
                if asyncio.get_running_loop().time() > end:
                    raise FrameRefused(
                        f"the session has {size_text(self.bytes)} in large values that it was given, and with "
                        f"{size_text(sum(sizes))} more would have more than limits.memory = {size_text(self._most)}",
                        remedy="Delete variables with large values, or restart the session.",
                    )
                await asyncio.sleep(_LOOK_S)
        with contextlib.suppress(OSError):  # too many such watches on this machine: then it is not counted
            if self._watch < 0:
                self._watch = linux.inotify()
            for fd, size in zip(fds, sizes, strict=True):
                number = linux.inotify_add_watch(self._watch, f"/proc/self/fd/{fd}", _IN_DELETE_SELF)
                self._sizes[number] = size

    def _fits(self, size: int) -> bool:
        return self.bytes + size <= self._most

    @property
    def bytes(self) -> int:
        """What it has now."""
        if self._watch >= 0:
            with contextlib.suppress(BlockingIOError):
                while events := os.read(self._watch, 4096):
                    for number, *_ in _EVENT.iter_unpack(events):  # (the events of a file without a name have none)
                        self._sizes.pop(number, None)
        return sum(self._sizes.values())

    def __del__(self) -> None:
        if self._watch >= 0:
            os.close(self._watch)
