"""The order of the steps that turn a process into the confined one. Each step is told by name before it is taken.

`enter` comes first: the process gets what it may have (namespaces, its own file tree, limits). `seal` takes away the
rest (capabilities, privileges, the launcher's environment, files by Landlock, system calls by seccomp) and cannot be
undone. Between the two the launcher does what only an unsealed process may. Every step that fails raises, and no cell
is run.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import tempfile
import time
from collections.abc import Callable

from .. import linux
from ..plan.model import Plan
from . import landlock, limits, mounts, namespaces, seccomp
from .layer import Layer

CANARY = "canary"  # a readable file that no Landlock rule grants

Step = Callable[[str], None]


def enter(plan: Plan, step: Step, forked: Callable[[int], None]) -> tuple[list[str], dict[str, Layer]]:
    """The first half. At level full it returns in pid 1 of the sandbox, a child of the process that called it.

    Args:
        plan: what to carry out.
        step: told the name of each step before it is taken.
        forked: told that child's pid, in the process that called this, which ends then.

    Returns:
        As `mounts.build`.

    Raises:
        OSError: the kernel refused a step.
        RuntimeError: this process still shares the front's mounts.
    """
    if "namespaces" in plan.layers:
        return _enter_namespaces(plan, step, forked)
    _enter_in_place(plan, step)
    return [], {}


def _enter_namespaces(
    plan: Plan, step: Step, forked: Callable[[int], None]
) -> tuple[list[str], dict[str, Layer]]:
    who = plan.identity
    host = namespaces.ids()
    maps: dict[tuple[int, int], int | OSError] = {}
    with_root = who.strategy in ("owner", "mapped")
    step("id maps")
    if with_root:
        maps = mounts.open_id_maps(plan)
    step("unshare")
    if with_root:
        namespaces.enter_as_root()
    else:
        namespaces.enter_as_user(who.uid, who.gid)
    step("fork pid 1")
    builder = os.pidfd_open(os.getpid())
    pid = os.fork()
    if pid:
        forked(pid)
        os._exit(0)
    built = mounts.build(plan, host["mnt"], maps, step)
    step("hostname")
    linux.sethostname("sandbox")
    step("loopback")
    namespaces.raise_loopback()
    if with_root:
        step("drop to the worker's uid")
        namespaces.drop_to(who.uid, who.gid)
    step("forbid nesting")
    namespaces.forbid_nesting()
    namespaces.bound_watches()
    step("mask proc")
    mounts.finish()
    step("limits")
    limits.apply(plan.rlimits)
    limits.apply_processes(plan.processes, private=True)
    step("parent")
    # The front adopts this process when the builder ends; a death signal set before would be the builder's, so that it
    # would end with it. However long that takes on a busy machine: the launcher has a time limit for it all.
    poll = select.poll()
    poll.register(builder, select.POLLIN)
    poll.poll()
    os.close(builder)
    return built


def _enter_in_place(plan: Plan, step: Step) -> None:
    """Without namespaces: a private folder, a session, another uid and limits."""
    who = plan.identity
    step("scratch folder")
    for folder in ("", "/tmp", "/home", *["/notebook"] * (plan.cwd == f"{plan.scratch}/notebook")):  # noqa: S108 - below the scratch folder
        os.mkdir(plan.scratch + folder, 0o700)
        if who.uid != os.geteuid():
            os.chown(plan.scratch + folder, who.uid, who.gid)
    os.close(os.open(f"{plan.scratch}/{CANARY}", os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o444))
    step("session")
    os.setsid()
    linux.set_child_subreaper()
    if os.geteuid() == 0:
        step("drop to the worker's uid")
        namespaces.become(who.uid, who.gid)
    step("limits")
    limits.apply(plan.rlimits)
    limits.apply_processes(plan.processes, private=False)


def seal(plan: Plan, step: Step, *, listen: bool) -> tuple[list[str], int]:
    """The second half. Without namespaces `restrict` is left to each worker: the zygote has to hunt leftovers.

    Args:
        plan: what to carry out.
        step: told the name of each step before it is taken.
        listen: as for `restrict`.

    Returns:
        As `restrict`.

    Raises:
        OSError: the kernel refused a step, or lacks Landlock.
    """
    step("give up rights")
    namespaces.give_up_rights()
    if "namespaces" in plan.layers:
        linux.set_pdeathsig(signal.SIGKILL)
    step("environment")
    os.environ.clear()
    os.environ.update(plan.environment)
    tempfile.tempdir = None  # what was remembered from the front's environment
    time.tzset()
    os.chdir(plan.cwd)
    if "landlock" in plan.layers and plan.landlock_abi < 1:
        step("landlock")
        raise OSError(errno.ENOSYS, "this kernel has no Landlock")
    if "namespaces" not in plan.layers:
        return [], -1
    step("landlock and seccomp")
    return restrict(plan, listen=listen)


def restrict(plan: Plan, *, listen: bool) -> tuple[list[str], int]:
    """Landlock and seccomp, as far as the plan has them: the last steps.

    Args:
        plan: what to apply.
        listen: whether somebody will answer the calls that `seccomp.table.TOLD` names.

    Returns:
        What is missing, in plain sentences, and the filter's listener (-1: there is none, see `seccomp.load_filter`).
    """
    lost: list[str] = []
    listener = -1
    if "landlock" in plan.layers:
        rules = landlock.Rules(tuple((grant.path, grant.access) for grant in plan.grants))
        lost = landlock.apply(rules, plan.landlock_abi)
    if "seccomp" in plan.layers:
        listener = seccomp.load_filter(plan.bpf, listen=listen)
        if listen and listener < 0:
            lost = [*lost, "Refused system calls are not explained at the end of a cell: this kernel or the "
                    "container around it gives no notice of them."]  # fmt: skip
    return lost, listener
