"""Loading the system-call filter that `seccomp.program` has compiled."""

from __future__ import annotations

import errno
import os

from .. import linux
from ..seccomp.program import fill_own_pid, silent


def load_filter(bpf: bytes, *, listen: bool = False) -> int:
    """Put the filter on this process and everything it starts, for good. The last step of the lockdown.

    Args:
        bpf: from `program.compile_filter`.
        listen: hand the told refusals to a listener. Only one filter of a process and its ancestors can have one.

    Returns:
        The listener's descriptor, which must go to somebody who answers: a notifying call waits for it, and fails with
        ENOSYS once all copies are closed. -1 without ``listen``, and where there can be no listener (Linux before
        5.0; a container whose own filter has one): then the filter refuses everything by itself.

    Raises:
        PermissionError: no_new_privs is not set (the kernel would ask for CAP_SYS_ADMIN).
        RuntimeError: the process has a second thread, which would stay outside.
        OSError: the kernel refused the program.
    """
    if not linux.has_no_new_privs():
        raise PermissionError(errno.EPERM, "the filter needs no_new_privs")
    threads = os.stat("/proc/self/task").st_nlink - 2  # stat: Landlock may already forbid listing it
    if threads != 1:
        raise RuntimeError(f"the filter must be loaded with one thread, there are {threads}")
    program = fill_own_pid(bpf, os.getpid())
    # Once a listener has taken up a call, only a fatal signal ends the wait for its answer: else a profiler's timer
    # turns the refusal into EINTR.
    flags = linux.SECCOMP_FILTER_FLAG_NEW_LISTENER
    for choice in (flags | linux.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, flags) if listen else ():
        try:
            return linux.seccomp_set_filter(program, choice)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EBUSY):
                raise
    linux.seccomp_set_filter(silent(program))
    return -1
