"""Ending a process with everything that it has started."""

from __future__ import annotations

import contextlib
import os
import signal
import time

_HOLD_S = 5.0  # for all of them to stand still: one that waits for a disk does not before the disk answers
_LOOK_S = 0.01


def end_tree(root: int) -> None:
    """Kill a process and all that lives below it.

    Killed one after the other, some would get away: what loses its parent is found below nobody any more. So all are
    stopped first, until they stand still and nothing new is below them.

    Args:
        root: a child of this process, which nobody waits for meanwhile: its number cannot become another's.
    """
    held: dict[int, int] = {}  # by number: a handle that stays its own
    give_up = time.monotonic() + _HOLD_S
    try:
        _hold(root, held)
        while held and time.monotonic() < give_up:
            # In this order: what is born until they stand still is seen by the look that follows.
            still = all(_parent_and_state(pid)[1] in "TtZX" for pid in held)
            found = {int(name): _parent_and_state(int(name))[0] for name in os.listdir("/proc") if name.isdigit()}
            new = [pid for pid, parent in found.items() if parent in held and pid not in held]
            for pid in new:
                _hold(pid, held)
            if still and not new:
                break
            time.sleep(0 if new else _LOOK_S)
    finally:
        for handle in held.values():
            _send(handle, signal.SIGKILL)
            os.close(handle)


def _hold(pid: int, held: dict[int, int]) -> None:
    with contextlib.suppress(OSError):  # it has ended
        handle = os.pidfd_open(pid)
        if held and not _is_there(held.get(_parent_and_state(pid)[0], -1)):  # a number is another's already, or both
            os.close(handle)
            return
        held[pid] = handle
        _send(handle, signal.SIGSTOP)


def _is_there(handle: int) -> bool:
    """Whether a process has not been waited for yet: as long as that is so, its number is nobody else's."""
    if handle < 0:
        return False
    with contextlib.suppress(PermissionError):  # another user's
        try:
            signal.pidfd_send_signal(handle, 0)
        except ProcessLookupError:
            return False
    return True


def _send(handle: int, number: signal.Signals) -> None:
    with contextlib.suppress(OSError):  # it has ended, or is another user's
        signal.pidfd_send_signal(handle, number)


def _parent_and_state(pid: int) -> tuple[int, str]:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return int(fields[1]), fields[0].decode()
    except OSError:  # it has ended
        return 0, "X"
