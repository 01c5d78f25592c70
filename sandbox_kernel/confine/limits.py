"""Setting resource limits. Which ones is said by `plan.limits`."""

from __future__ import annotations

import os
import resource


def effective(pairs: tuple[tuple[int, int], ...]) -> dict[int, tuple[int, int]]:
    """Soft and hard value by resource, as `apply` will set them: a lower hard limit of the launcher stays."""
    return {number: _lowered(number, value) for number, value in pairs}


def apply(pairs: tuple[tuple[int, int], ...]) -> None:
    """Set the limits."""
    for number, value in effective(pairs).items():
        resource.setrlimit(number, value)


def apply_processes(count: int, *, private: bool) -> None:
    """Bound processes and threads (RLIMIT_NPROC).

    Call it after ``unshare(CLONE_NEWUSER)`` with ``private``: only then the sandbox alone is counted.
    Otherwise every task of the uid counts, so those that exist now are added. Uid 0 is never bound, so its
    tasks are not even counted.
    """
    value = count
    if not private and os.getuid() != 0:
        value += _tasks_of(os.getuid())
    resource.setrlimit(resource.RLIMIT_NPROC, _lowered(resource.RLIMIT_NPROC, value))


def _lowered(number: int, value: int) -> tuple[int, int]:
    """Soft and hard limit alike; not above the hard limit that is there."""
    hard = resource.getrlimit(number)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    return value, value


def _tasks_of(uid: int) -> int:
    """Threads of all processes of ``uid`` that /proc shows.

    The owner of /proc/PID would miss non-dumpable processes, which belong to root there.
    """
    total = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/status", "rb") as file:
                    fields = dict(line.split(b":", 1) for line in file.read().splitlines() if b":" in line)
                if int(fields[b"Uid"].split()[0]) == uid:
                    total += int(fields[b"Threads"])
            except (OSError, KeyError):  # it ended meanwhile
                continue
    return total
