"""What copies of the worker may cost."""

from __future__ import annotations

import time
from collections.abc import Callable

SHARE = 0.05  # of the session's time
FIRST_S, MOST_S = 0.1, 2.0  # at first, and at most


class Budget:
    """What copies may cost, in seconds: `SHARE` of the time that goes by.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at, self._left = clock(), FIRST_S

    @property
    def left(self) -> float:
        """May be negative."""
        now = self._clock()
        self._left = min(MOST_S, self._left + (now - self._at) * SHARE)
        self._at = now
        return self._left

    def spend(self, seconds: float) -> None:
        """Take this much of it."""
        self._left = self.left - seconds

    def refill(self) -> None:
        """Have at least as much as at first."""
        self._left = max(self.left, FIRST_S)
