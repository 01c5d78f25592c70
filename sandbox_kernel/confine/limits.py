"""Resource limits: which are set, and when."""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the process that is confined may have no msgspec
    from ..policy import Limits


SIGNALS = 1024


def planned(limits: Limits) -> tuple[tuple[int, int], ...]:
    """(resource, value) pairs, soft and hard alike.

    DATA and not AS bounds memory: it counts what is really private, and a refusal is a MemoryError that the
    session survives, while AS also counts reservations (threads' stacks, mapped files) that cost nothing.
    """
    return (
        # No core file: the host would write it. 1 and not 0: only this value also keeps the kernel from starting a
        # crash reporter (core_pattern with a pipe), which would run outside as root on memory that cells have made.
        # Source: core(5) and the kernel's fs/coredump.c.
        (resource.RLIMIT_CORE, 1),
        # A little less than the watchdog's limit of all together: one process gets a MemoryError and lives on.
        (resource.RLIMIT_DATA, limits.memory * 7 // 8),
        (resource.RLIMIT_FSIZE, limits.file_size),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_MSGQUEUE, 0),
        # Queued signals and timers are counted for the user, over all of their programs: one that has used them up
        # gets no timer anywhere. Ordinary signals need no place in the queue.
        (resource.RLIMIT_SIGPENDING, SIGNALS),
    )


def effective(pairs: tuple[tuple[int, int], ...]) -> dict[int, tuple[int, int]]:
    """Soft and hard value by resource, as `apply` will set them: a lower hard limit of the launcher stays."""
    values = {}
    for number, value in pairs:
        hard = resource.getrlimit(number)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        values[number] = (value, value)
    return values


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
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(resource.RLIMIT_NPROC, (value, value))


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
