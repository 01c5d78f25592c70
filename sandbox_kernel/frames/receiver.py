"""What the constructors of one payload share: its budget, and the buffers that are in use."""

from __future__ import annotations

from typing import Any

from .grammar import Budget
from .hashing import HashGuard

Bytes = bytes | bytearray | memoryview


class Malformed(Exception):
    """The payload is not one that `dumps` writes. The text says why."""


class TooMuch(Malformed):
    """The payload costs more than its budget. An honest sender can write such a one."""


class Buffer:
    """Raw memory on the stack: only a constructor can take it, once."""

    __slots__ = ("view",)

    def __init__(self, view: memoryview) -> None:
        self.view: memoryview | None = view


class Receiver:
    """What the constructors of one payload share: its budget, and the buffers that are in use."""

    __slots__ = ("_left", "hashing", "taken", "zones")

    def __init__(self, budget: Budget) -> None:
        self._left = budget.memory_bytes
        self.taken = 0
        self.hashing = HashGuard()
        self.zones: dict[tuple[Any, ...], Any] = {}

    def charge(self, size: int) -> None:
        """Account for `size` bytes that are about to be allocated.

        Raises:
            TooMuch: that is more than the budget has left.
        """
        self._left -= size
        if self._left < 0:
            raise TooMuch("it would take more memory than one frame may")

    def take(self, data: Any) -> Bytes:
        """Raw data out of an argument: bytes, or a buffer, which is then used up.

        Raises:
            Malformed: it is neither.
        """
        if type(data) is bytes:
            return data
        if type(data) is not Buffer or data.view is None:
            raise Malformed("something else stands where raw data belongs")
        view, data.view = data.view, None
        self.taken += 1
        return view
