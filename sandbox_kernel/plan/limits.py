"""Which resource limits a policy means."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the process that is confined may have no msgspec
    from ..policy import Limits

SIGNALS = 1024


def planned(limits: Limits, private: Sequence[int] = ()) -> tuple[tuple[int, int], ...]:
    """(resource, value) pairs, soft and hard alike.

    DATA and not AS bounds memory: it counts what is really private, and a refusal is a MemoryError that the
    session survives, while AS also counts reservations (threads' stacks, mapped files) that cost nothing.

    Args:
        limits: of the policy.
        private: sizes of the folders in memory that cells can write to, in bytes.
    """
    return (
        # No core file: the host would write it. 1 and not 0: only this value also keeps the kernel from starting a
        # crash reporter (core_pattern with a pipe), which would run outside as root on memory that cells have made.
        # Source: core(5) and the kernel's fs/coredump.c.
        (resource.RLIMIT_CORE, 1),
        # A little less than the watchdog's limit of all together: one process gets a MemoryError and lives on.
        (resource.RLIMIT_DATA, limits.memory * 7 // 8),
        (resource.RLIMIT_FSIZE, _largest_file(limits, private)),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_MSGQUEUE, 0),
        # Queued signals and timers are counted for the user, over all of their programs: one that has used them up
        # gets no timer anywhere. Ordinary signals need no place in the queue.
        (resource.RLIMIT_SIGPENDING, SIGNALS),
    )


def _largest_file(limits: Limits, private: Sequence[int]) -> int:
    """The watchdog looks at the disk from time to time, in which one call can reserve gigabytes: the kernel alone
    refuses that at once. What is larger than any folder may hold is no use anyway."""
    return min(limits.file_size, max((limits.disk, *private))) if limits.disk else limits.file_size
