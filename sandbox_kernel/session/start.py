"""Starting the sandbox's first process as an interpreter of its own (the kernel forks it, see `kernel.launch`)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ..launch.interpreter import OWN_VARIABLES, StartedLink, start_interpreter
from ..launcher import passed
from ..plan.make import make_plans
from ..plan.model import Plan
from ..policy import Policy
from .denials import Denials

__all__ = ["StartedLink", "start"]


def start(
    policy: Policy,
    denials: Denials,
    *,
    launcher_env: Mapping[str, str],
    workspace: str | Path | None,
    hidden: Iterable[str] = (),
) -> tuple[StartedLink, Sequence[Plan]]:
    """Start ``[worker] python``, or this process's interpreter. Blocks for some 50 ms.

    Args:
        policy: what holds.
        denials: answers the refused system calls.
        launcher_env: the environment of this process; only what the policy lets through reaches the sandbox.
        workspace: the folder that cells see; None: a private one.
        hidden: further folders that must not show.

    Raises:
        IsolationUnavailable: no such level or interpreter. What fails later is told through the link.
        OSError: the workspace does not exist.
    """
    rules = policy.environment
    environment = {**passed(launcher_env, rules.allow, rules.deny), **rules.set}
    if policy.worker.python:
        environment = {k: v for k, v in environment.items() if k not in OWN_VARIABLES or k in rules.set}
    return start_interpreter(
        policy.worker.python or sys.executable or "/proc/self/exe", environment,
        lambda python: make_plans(
            policy, workspace, launcher_env={**environment, **_places(launcher_env)}, hidden=hidden, python=python
        ),
        denials,
    )  # fmt: skip


def _places(launcher_env: Mapping[str, str]) -> dict[str, str]:
    """The home, so that it is not shown, and where temporary folders are made. The plan replaces both."""
    return {name: launcher_env[name] for name in ("HOME", "TMPDIR") if os.path.isabs(launcher_env.get(name, ""))}
