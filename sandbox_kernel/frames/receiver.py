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

    __slots__ = ("_left", "_longest", "_unfolded", "hashing", "taken", "zones")

    def __init__(self, budget: Budget) -> None:
        self._left = budget.memory_bytes
        self._unfolded = budget.unfolded_bytes
        self._longest = 0
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

    def promise(self, size: int) -> None:
        """Account for `size` bytes that nothing takes now, but whatever uses the value. Negative to take it back.

        A range of 2**31 labels has twenty bytes on the wire, and 16 GiB as soon as somebody prints a table with it.
        `settle` compares the sum with the budget: whether data stands behind the labels is known later than they are.
        """
        self._unfolded -= size

    def promise_sparse(self, length: int) -> None:
        """Account for a sparse column. They are made dense one at a time, so only the longest of them counts."""
        self.promise(8 * max(0, length - self._longest))
        self._longest = max(length, self._longest)

    def settle(self) -> None:
        """Raises: TooMuch: what was promised and not taken back is more than the budget has."""
        if self._unfolded < 0:
            raise TooMuch("what it describes without data would take more memory than one frame may, once it is used")

    def check_labels(self, index: Any) -> None:
        """`HashGuard.check_labels`, with the memory of the tables that pandas is going to make.

        Raises:
            TooMuch: that is more than the budget has left.
            ValueError: the labels collide.
        """
        self.charge(32 * len(index))
        self.hashing.check_labels(index)

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
