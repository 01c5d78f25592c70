"""Really starts a sandbox, without any cell, and tells what was tried and what the kernel answered."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ..errors import IsolationUnavailable, SandboxError
from ..launch.link import ZygoteLink, start_zygote
from ..plan.model import STRATEGIES, Plan
from ..proof.probes import outside_proofs
from ..session.proofs import host_pid, judge

START_S = 20.0
FORK_S = 5.0


class Nobody:
    """The entry of a sandbox that is only looked at."""

    def prepare(self) -> None:
        """Nothing is needed."""

    def run(self, channel_fd: int, worker: int) -> NoReturn:
        """Say that the lockdown is complete, and wait until the doctor goes."""
        os.write(channel_fd, b"!")
        os.read(channel_fd, 1)
        os._exit(0)


@dataclass
class Trial:
    """One start.

    Attributes:
        asked: the level that was asked for.
        level: the level that was had; "" for none.
        proofs: every attempt: layer, tried, saw, ok.
        notes: what this level does not give, one sentence each.
        identity: who the worker is, in words.
        failures: plans that could not be had: level, step, error, errno, remedy.
        problem, advice: why there is no sandbox.
        cause: of that only the step and what it saw; "" where that is not known.
        start_ms: from the fork to "ready".
    """

    asked: str
    level: str = ""
    proofs: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    identity: str = ""
    failures: list[dict[str, Any]] = field(default_factory=list)
    problem: str = ""
    advice: str = ""
    cause: str = ""
    start_ms: float = 0.0

    @property
    def proven(self) -> bool:
        """Whether cells would be run."""
        return bool(self.level) and not self.problem


def start(asked: str, plans: Sequence[Plan]) -> Trial:
    """Try the plans in order, look at what came of it from inside and outside, and end it.

    For a process with one thread. Leaves nothing running.
    """
    trial = Trial(asked)
    began = time.perf_counter()
    link = start_zygote(plans, Nobody())
    try:
        ready = link.wait(START_S)
        for fd in ready["fds"]:  # of the sandbox's folders, for a watchdog
            os.close(fd)
        trial.start_ms = (time.perf_counter() - began) * 1000
        details = ready.get("details", {})
        trial.level, trial.notes = ready["level"], list(details.get("notes", ()))
        strategy = str(details.get("uid_strategy", ""))
        trial.identity = f"uid {details.get('uid', '?')}: {STRATEGIES.get(strategy, strategy)}"
        seen = outside_proofs(ready["pid"], trial.level) if trial.level == "full" else []
        trial.proofs = [*ready.get("proofs", ()), *seen, *_look_at_a_worker(link, trial.level)]
        if trial.level == "full":  # zygote and worker show the same
            trial.proofs = list({(p["layer"], p["tried"], p["saw"], p["ok"]): p for p in trial.proofs}.values())
        problem = judge(trial.level, trial.proofs)
        if problem is not None:
            raise problem
    except SandboxError as error:
        trial.problem, trial.advice = error.message, error.advice()
        if isinstance(error, IsolationUnavailable):
            trial.cause = f"{error.data.get('layer')}: {error.data.get('saw')}"
    finally:
        trial.failures = [_failure(event) for event in link.failures]
        link.close()
        _collect()
    return trial


def _collect() -> None:
    """Take in what failed plans leave: this process is a subreaper, and they come to it after their launcher's end."""
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.002)
        except ChildProcessError:
            return


def _look_at_a_worker(link: ZygoteLink, level: str) -> list[dict[str, Any]]:
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    try:
        link.fork(1, [theirs.fileno(), null, null])
        for event in _events(link):
            try:
                if event["event"] == "forked":
                    # Below `full` a worker locks itself down after the fork.
                    if not select.select([mine], [], [], FORK_S)[0] or mine.recv(1) != b"!":
                        raise IsolationUnavailable(level, "fork", "the worker ended before it was locked down")
                    return outside_proofs(host_pid(event["fds"][0]), level)
                if event["event"] == "fork_failed":
                    raise IsolationUnavailable(level, "fork", str(event.get("error")))
            finally:
                for fd in event["fds"]:
                    with contextlib.suppress(OSError):
                        os.close(fd)
        raise IsolationUnavailable(level, "fork", "no worker within the time")
    finally:
        os.close(null)
        theirs.close()
        mine.close()


def _events(link: ZygoteLink) -> Iterator[dict[str, Any]]:
    deadline = time.monotonic() + FORK_S
    while select.select([link], [], [], max(0.0, deadline - time.monotonic()))[0]:
        try:
            yield from link.receive()
        except EOFError:
            return


def _failure(event: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: event.get(name, "") for name in ("level", "step", "error", "errno", "remedy")}
    refused = (errno.EPERM, errno.EACCES, errno.ENOSYS)
    if not found["remedy"] and found["level"] == "full" and found["errno"] in refused:
        found["remedy"] = (
            "Something refuses mounts. In a container that is its seccomp or AppArmor profile (Docker: --security-opt "
            "seccomp=... and apparmor=..., with profiles that permit unshare, mount, pivot_root, open_tree, move_mount "
            "and mount_setattr); on a desktop a restriction of user namespaces (sysctl "
            "kernel.apparmor_restrict_unprivileged_userns=0)."
        )
    return found
