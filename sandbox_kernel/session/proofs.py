"""Judging the probes: a layer counts only when an attempt showed that it holds."""

from __future__ import annotations

import select
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import IsolationUnavailable

_ALWAYS = frozenset({"capabilities", "no_new_privs", "dumpable", "rlimits", "descriptors", "environment"})
_NAMESPACES = frozenset(
    {"user namespace", "mount namespace", "pid namespace", "network namespace", "ipc namespace", "uts namespace"}
)
REQUIRED: dict[str, frozenset[str]] = {
    "full": _ALWAYS | _NAMESPACES | {"seccomp", "landlock"},
    "seccomp+landlock": _ALWAYS | {"seccomp", "landlock"},
    "seccomp": _ALWAYS | {"seccomp"},
    "landlock": _ALWAYS | {"landlock"},
    "subprocess": frozenset({"no_new_privs", "rlimits", "descriptors", "environment"}),
}


def judge(level: str, proofs: Sequence[Mapping[str, Any]]) -> IsolationUnavailable | None:
    """The error that names the first layer which is not proven, or None when all are."""
    failed = judge_outside(level, proofs)
    if failed is not None:
        return failed
    missing = REQUIRED.get(level, frozenset({"a known level"})) - {str(p.get("layer")) for p in proofs}
    if missing:
        layer = min(missing)
        return IsolationUnavailable(level, layer, "no probe showed that this layer holds")
    return None


def judge_outside(level: str, proofs: Sequence[Mapping[str, Any]]) -> IsolationUnavailable | None:
    """The error for the first failed proof, or None; says nothing about proofs that are missing."""
    for proof in proofs:
        if not proof.get("ok"):
            return IsolationUnavailable(
                level, str(proof.get("layer", "?")),
                f"the attempt ({proof.get('tried', '?')}) was not refused as it must be (saw: {proof.get('saw', '?')})",
                "Ask for another level in the policy, or repair what the layer needs.",
            )  # fmt: skip
    return None


def host_pid(pidfd: int | None) -> int:
    """The process id behind a pidfd in this process's own pid namespace, -1 when it is gone (proc_pid_fdinfo(5)).

    The worker's own idea of its pid is worthless here: it is a number in another namespace, and hostile.
    """
    if pidfd is None:
        return -1
    with open(f"/proc/self/fdinfo/{pidfd}", encoding="ascii") as lines:
        for line in lines:
            if line.startswith("Pid:"):
                return int(line.split()[1])
    return -1


def has_ended(pidfd: int) -> bool:
    """Whether the process behind a pidfd is dead: nothing that is read about it counts then."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))
