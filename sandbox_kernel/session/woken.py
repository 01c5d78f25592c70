"""Which state the variables have, and which states are of no use any more."""

from __future__ import annotations

from ..errors import BROKEN_STATUS, SandboxError
from .supervisor import Supervisor


class Woken:
    """What is known of the copy that the worker goes on from.

    Args:
        supervisor: of the worker.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._woken_at: tuple[int, int] | None = None  # the copy's cell, and the number of the next cell then
        supervisor.before_wake = self._give_up

    def begin_at(self, cell: int) -> None:
        """The session begins with the state after this cell of another one."""
        self._woken_at = (cell, self._supervisor.execution_count)

    @property
    def cell(self) -> int:
        """Number of the last cell whose effects the variables have; 0: of none."""
        if self._woken_at is not None and self._is_as_woken:
            return self._woken_at[0]
        return self._supervisor.execution_count - 1

    @property
    def _is_as_woken(self) -> bool:
        """Whether no cell has ended since a copy was woken."""
        return self._woken_at is not None and self._woken_at[1] in (-1, self._supervisor.execution_count)

    def _give_up(self, error: SandboxError) -> None:
        """The worker is gone with this error. A state in which no cell can be run is not brought back again.

        The worker says itself when it cannot run cells. When they hang before their own code begins nobody can tell
        that from a cell that takes long; but a state that was brought back, and in which the first cell had to be ended
        by force as the one before, is taken for one. (So the same deaf cell, run twice, costs one cell more.)
        """
        copies = self._supervisor.copies
        broken = error.data.get("status") == BROKEN_STATUS
        if copies is not None and (broken or (self._is_as_woken and error.data.get("deaf"))):
            copies.give_up(self.cell)
