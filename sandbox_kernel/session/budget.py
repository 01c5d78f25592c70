"""What copies of the worker may cost."""

from __future__ import annotations

import time
from collections.abc import Callable

SHARE = 0.05  # of the session's time
FIRST_S, MOST_S = 0.1, 2.0  # at first, and at most
_CELL_S = 0.06  # which one cell may take however much there is
_SLIGHT_S = 0.01
_LARGE = 600 << 20  # a session, in bytes, in which a cell that does little but copy at first may take less:
_SWEEP_S = 0.03
LOOK_S, _SOON_S = 0.02, 0.002  # between two looks at what a running cell copies, at most and at least


def _allowed_s(lasted_s: float, held: int) -> float:
    """What a cell may spend on pages that it writes to first.

    In a large session one that at first does little else most likely goes through all of an array, and loses its copy
    in any case. What it copied until then is lost, too, and the huge pages stay split: each further pass takes longer.
    """
    allowed_s = _CELL_S + SHARE * lasted_s
    return allowed_s if held < _LARGE else min(allowed_s, _SWEEP_S + lasted_s / 2)


def gives_up(copied_s: float, lasted_s: float, left_s: float, held: int = 0) -> bool:
    """Whether a cell costs so much that the copy beside it goes.

    A budget that is overdrawn is no reason by itself: on a busy machine the fork alone may have taken it all, and to
    end the copy that it has made saves nothing.

    Args:
        copied_s: what the cell has spent on pages that it wrote to first, in seconds.
        lasted_s: processor time of the cell so far.
        left_s: of the budget.
        held: by the session, in bytes.
    """
    return copied_s > _allowed_s(lasted_s, held) or (left_s < -_CELL_S and copied_s > _SLIGHT_S)


def next_look_s(copied_s: float, lasted_s: float, pace: float, held: int = 0) -> float:
    """How long until the next look at what a cell copies: until it will have copied too much, should it go on so.

    A cell that sweeps through its memory copies 10 MB in a hundredth of a second, so looks at fixed times would let it
    have half as much again as it may.

    Args:
        copied_s, lasted_s, held: as for `gives_up`.
        pace: seconds of copying for each second that went by since the last look.
    """
    room_s = _allowed_s(lasted_s, held) - copied_s
    return min(LOOK_S, max(_SOON_S, room_s / pace)) if pace > 0 else LOOK_S


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
