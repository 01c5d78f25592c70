"""From a clean process to a running kernel: imports, the fork of the sandbox, and only then the secrets."""

from __future__ import annotations

import gc
import marshal
import os
import signal
import sys
from collections.abc import Sequence

from .. import linux
from ..errors import IsolationUnavailable, SandboxError
from ..launch.cgroup import Cgroup, make_group
from ..launch.link import ZygoteLink, start_zygote
from ..plan.make import make_plans
from ..plan.model import Plan
from ..policy import Resolved
from ..session.denials import Denials
from ..worker import entry
from .environment import RESOLVED_VARIABLE


def launch(secrets_fd: int, hidden: tuple[str, ...]) -> None:
    """Run the kernel; returns when it is shut down, and exits when another program has one of its ports.

    Args:
        secrets_fd: the sealed memory file with the launcher's environment and arguments.
        hidden: folders that must not show in the sandbox.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.set_inheritable(secrets_fd, False)
    denials = Denials()
    resolved, zygote, plans, group = _start_sandbox(hidden, denials)
    # What only the front needs is imported while the sandbox confines itself.
    from .app import PortTaken, SandboxApp

    # From here on secrets may enter: nothing is forked from this process any more.
    environ, argv = _read_back(secrets_fd)
    linux.set_dumpable(False)
    os.environ.clear()
    os.environ.update(environ)
    app = SandboxApp.instance(resolved=resolved, zygote=zygote, denials=denials, plans=plans, group=group)
    try:
        app.initialize(argv)
        gc.freeze()
        gc.enable()
        app.start()
    except PortTaken as error:
        sys.exit(f"sandbox-kernel: {error}.")
    finally:
        if isinstance(zygote, ZygoteLink):
            zygote.close()
        denials.close()
        if group is not None:
            group.close()


def _start_sandbox(
    hidden: tuple[str, ...], denials: Denials
) -> tuple[Resolved, ZygoteLink | SandboxError, Sequence[Plan], Cgroup | None]:
    """Fork the sandbox; a policy or a machine that does not allow it is told later, in each cell."""
    resolved, group = Resolved(), None
    try:
        resolved = Resolved.from_json(os.environ.pop(RESOLVED_VARIABLE, ""))
        group = make_group(resolved.policy.limits)  # now: a group with another process in it cannot be divided
        if resolved.policy.worker.python:
            from ..session.start import start

            zygote, started = start(
                resolved.policy, denials, launcher_env=os.environ, workspace=os.getcwd(), hidden=hidden
            )
            return resolved, zygote, started, group
        environment = {**os.environ, **resolved.policy.environment.set}
        plans = make_plans(resolved.policy, os.getcwd(), launcher_env=environment, hidden=hidden)
        gc.freeze()  # what is imported by now is shared with the sandbox as long as no collection writes to it
        return resolved, start_zygote(plans, entry, denials), plans, group
    except SandboxError as error:
        return resolved, error, [], group
    except OSError as error:  # the folder is gone, or cannot be entered
        gone = IsolationUnavailable(resolved.policy.isolation.level, "the notebook's folder", str(error))
        return resolved, gone, [], group


def _read_back(fd: int) -> tuple[dict[str, str], list[str]]:
    with open(fd, "rb", closefd=True) as memory:
        memory.seek(0)
        environ, argv = marshal.loads(memory.read())  # noqa: S302 - written by `__main__`, and sealed
    return environ, argv
