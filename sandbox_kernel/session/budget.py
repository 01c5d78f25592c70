"""What copies of the worker may cost."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

SHARE = 0.05  # of the session's time
FIRST_S, MOST_S = 0.1, 2.0  # at first, and at most
# For copies that the next cell waits for. It stands there ready, so the time is its cells' own; and of what was saved
# up while nobody waited there is enough for one of them.
_HASTY_SHARE = 0.02
# In a session that holds no more than this the first ones are made in any case: a script that tries something out and
# takes it back again has done no work yet that would pay for them.
_SMALL, _FIRST_ONES = 100 << 20, 6
_CELL_S = 0.06  # which one cell may take however much there is
_SLIGHT_S = 0.01
_LARGE = 600 << 20  # a session, in bytes, in which a cell that does little but copy at first may take less:
_SWEEP_S, _SWEEP_SHARE = 0.006, 0.5
LOOK_S, _SOON_S = 0.02, 0.002  # between two looks at what a running cell copies, at most and at least
_FIRST_LOOK_S = 0.004  # after the cell's start in a large session
_FORK_S, _FORK_S_PER_BYTE = 0.006, 0.02 / 2**30
_EXPECTED_S = 0.01  # that cells copy because of the first one
_OTHERS_S = 0.002  # what a copy takes of the front and the zygote


def _allowed_s(lasted_s: float, held: int) -> float:
    """What a cell may spend on pages that it writes to first.

    In a large session one that at first does little else most likely goes through all of an array, and loses its copy
    in any case. What it copied until then is lost, too, and the huge pages stay split: each further pass takes longer.
    """
    allowed_s = _CELL_S + SHARE * lasted_s
    return allowed_s if held < _LARGE else min(allowed_s, _SWEEP_S + _SWEEP_SHARE * lasted_s)


def gives_up(copied_s: float, lasted_s: float, left_s: float, held: int = 0) -> bool:
    """Whether a cell costs so much that the copy beside it goes.

    A budget that is overdrawn is no reason by itself: on a busy machine the fork alone may have taken it all, and to
    end the copy that it has made saves nothing. Nor is a cell that seems to copy all of a small session: that takes a
    tenth of a second at most, once, and what looks like it is most often memory that was taken and given back.

    Args:
        copied_s: what the cell has spent on pages that it wrote to first, in seconds.
        lasted_s: processor time of the cell so far.
        left_s: of the budget.
        held: by the session when the copy was made, in bytes.
    """
    if 0 < held < _SMALL:
        return False
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


def first_look_s(held: int) -> float:
    """How long from a cell's start to the first look at what it copies; `held` by the session, in bytes."""
    return LOOK_S if held < _LARGE else _FIRST_LOOK_S


def fork_cost_s(worker_s: float, copy_s: float, waited_s: float) -> float:
    """Processor time that a copy takes, its end included.

    Two forks make it, and the process between them takes what the worker does; giving memory back takes what the copy's
    beginning did. On a busy machine the time that was waited tells of others more than of the copy.

    Args:
        worker_s, copy_s: of the worker while it was made, and of the copy until it slept; 0 where Linux does not say.
        waited_s: until the worker had made it.
    """
    return 2 * (worker_s + copy_s) + _OTHERS_S if worker_s > 0 and copy_s > 0 else waited_s


def ran_s(pid: int) -> float:
    """Processor time of a process's first thread so far, in seconds, far more exact than in /proc/PID/stat.

    0 when it has ended, or Linux was built without these counts.
    """
    try:
        with open(f"/proc/{pid}/schedstat", "rb") as file:
            return int(file.read().split()[0]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


class Budget:
    """What copies may cost, in seconds: `SHARE` of the time that goes by.

    Args:
        clock: seconds, monotonic.

    Attributes:
        expected_s: what the cells after a copy will most likely have to copy.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at, self._left, self._hasty = clock(), FIRST_S, 0.0
        self._first = _FIRST_ONES
        self._costs = deque[float](maxlen=4)  # of the last copies, without what cells copied because of them
        self.expected_s = _EXPECTED_S

    @property
    def left(self) -> float:
        """May be negative."""
        self._earn()
        return self._left

    @property
    def hasty(self) -> float:
        """What copies that the next cell waits for may cost; may be negative."""
        self._earn()
        return self._hasty

    def _earn(self) -> None:
        now = self._clock()
        gone_by, self._at = now - self._at, now
        self._left = min(MOST_S, self._left + gone_by * SHARE)
        self._hasty = min(self._last_s, self._hasty + gone_by * _HASTY_SHARE)

    def spend(self, seconds: float) -> None:
        """Take this much of it."""
        self._left = self.left - seconds

    def made(self, seconds: float) -> None:
        """A copy took this much."""
        self._costs.append(seconds)
        self.spend(seconds)

    def missing_s(self, held: int) -> float:
        """What there is too little of for a copy of a session that holds so many bytes; 0 or less: nothing."""
        fork_s = max(min(self._costs, default=0.0), _FORK_S + held * _FORK_S_PER_BYTE)
        return min(MOST_S, fork_s + self.expected_s) - self.left

    def allows_haste(self, limit_s: float, held: int = _SMALL) -> bool:
        """Whether the next cell may wait for a copy that is like the last one.

        Args:
            limit_s: it may not for one that takes as long, but for the first ones of a small session: on a slow machine
                each takes longer.
            held: by the session, in bytes.
        """
        if self._first > 0 and held < _SMALL:
            return True
        return self._last_s - self.expected_s < limit_s and self._last_s <= self.hasty

    def hurried(self, held: int = _SMALL) -> None:
        """The next cell waited for the last copy; it pays for what cells will copy because of it, too."""
        if self._first > 0 and held < _SMALL:
            self._first -= 1
        else:
            self._hasty = self.hasty - self._last_s

    def rested(self) -> None:
        """A copy was made; have enough for one more, should cells come all at once now."""
        self._hasty = self._last_s

    @property
    def _last_s(self) -> float:
        return (self._costs[-1] if self._costs else _FORK_S) + self.expected_s

    def refill(self) -> None:
        """Have at least as much as at first, and enough for a copy that the next cell waits for."""
        self._left, self._hasty = max(self.left, FIRST_S), self._last_s
