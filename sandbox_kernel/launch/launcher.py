"""From a fork of the front to a zygote: the launcher that tries plans in order, and the builder of each.

Processes: the front forks the launcher; the launcher forks a builder for each plan; at level full the builder
enters the namespaces and forks the zygote, pid 1 in there, otherwise it becomes the zygote itself. The
launcher ends when a zygote is ready, which then belongs to the front (a subreaper). None of them holds a
secret: they are forked before the front reads any.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import socket
import time
import traceback
from typing import Any, NoReturn

from .. import linux
from ..confine import limits, lockdown, namespaces
from ..plan.model import STRATEGIES, Plan
from ..proof import mounts, probes
from ..seccomp import notify
from . import scratch
from .zygote import Entry, Zygote

START_S = 60.0  # imports of `Entry.prepare` included
PROBES_S = 30.0  # they take 50 ms; a busy machine must not cost the level


class _Steps:
    """Names the step that is under way, for a failure's report, and times each."""

    def __init__(self) -> None:
        self.name = "fork"
        self.spent_ms: dict[str, float] = {}
        self._since = time.perf_counter()

    def __call__(self, name: str) -> None:
        now = time.perf_counter()
        # Without the paths: cells can make any number of names that are to be hidden, and a packet has an end.
        done = self.name.partition(" /")[0]
        self.spent_ms[done] = round(self.spent_ms.get(done, 0) + (now - self._since) * 1000, 2)
        self.name, self._since = name, now


class _ProbeFailed(Exception):
    """A forbidden act was not refused."""


def launch(
    plans: list[Plan], entry: Entry, control: socket.socket, *, listen: bool = False, stays: bool = False
) -> NoReturn:
    """The launcher: try the plans in order, in a child each. For a fork of the front; never returns.

    Sends ``{"event": "failed", ...}`` for each plan that cannot be had; "last" tells whether
    that was the last one. With ``listen`` "ready" brings the filter's listener at level full (``"listens": True``);
    below, each worker sends its own in an event "listener".

    With ``stays`` this is no fork of the front but a child of its own program, and a subreaper: it ends after the
    zygote. (It gets no death signal: the front's thread that started it may end at any time.)
    """
    status = 1
    try:
        front = os.getppid()
        if not stays:
            linux.set_pdeathsig(signal.SIGKILL)
        _default_signals()
        control = _only_descriptor(control)
        failures: list[str] = []
        for at, plan in enumerate(plans):
            failure = _try(plan, entry, control, failures, front, listen)
            if failure is None:
                status = 0
                if stays:
                    _collect_all()
                break
            final = at + 1 == len(plans) or failure.pop("final", False)
            failure["last"] = final
            control.send(json.dumps(failure).encode())
            if final:
                break
            failures.append(f"{plan.level} ({STRATEGIES[plan.identity.strategy]}) cannot be had here: "
                            f"{failure['step']}: {failure['error']}.")  # fmt: skip
    finally:
        os._exit(status)


def _collect_all() -> None:
    """Keep nothing open, and collect whatever ends until there is no child left."""
    linux.close_range(3)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def _only_descriptor(control: socket.socket) -> socket.socket:
    """Close everything but the control socket, which becomes 3; nothing of the front's stays open."""
    null = os.open("/dev/null", os.O_RDWR)
    fd = control.detach()
    if fd != 3:
        if null == 3:
            null = os.dup(null)
        os.dup2(fd, 3, inheritable=False)
    for target in (0, 1, 2):
        os.dup2(null, target)
    linux.close_range(4)
    return socket.socket(fileno=3)


def _default_signals() -> None:
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        # SIGPIPE and SIGXFSZ as in any Python process; SIGINT until a worker's entry sets a handler.
        ignored = number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGHUP)
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN if ignored else signal.SIG_DFL)


def _try(
    plan: Plan, entry: Entry, control: socket.socket, failures: list[str], front: int, listen: bool
) -> dict[str, Any] | None:
    """Build one sandbox. None when its zygote is ready, else the event that tells what failed."""
    mine, report = socket.socketpair()
    builder = os.fork()
    if builder == 0:
        mine.detach()
        _build(plan, entry, control, failures, front, report, listen)
    report.close()
    failure: dict[str, Any] = {
        "event": "failed",
        "level": plan.level,
        "step": "start",
        "errno": 0,
        "error": "",
        "pid": builder,
    }
    said, deadline = b"", time.monotonic() + START_S
    hearing = notify.Hearing(mine)
    while (piece := hearing.wait(deadline)) is not None:
        said += piece
        lines = said.splitlines()
        pids = [int(line[4:]) for line in lines if line.startswith(b"pid ")]
        failure["pid"] = pids[0] if pids else builder
        if not piece:
            told = [json.loads(line) for line in lines if line.startswith(b"{")]
            failure.update(told[0] if told else {"error": "it ended without a word"})
            break
        if b"ready" in lines:
            if pids:
                os.waitpid(builder, 0)
            return None
    else:
        failure.update(errno=errno.ETIMEDOUT, error=f"no answer within {START_S:.0f} s")
        os.kill(failure["pid"], signal.SIGKILL)
    hearing.close()
    os.waitpid(builder, 0)
    if plan.scratch:  # the builder may have become a user who has no right to do so
        scratch.remove(plan.scratch)
    return failure


def _build(
    plan: Plan,
    entry: Entry,
    control: socket.socket,
    failures: list[str],
    front: int,
    report: socket.socket,
    listen: bool,
) -> NoReturn:
    """The builder: lock down and become the zygote, or say what failed."""
    steps, final, served, listener = _Steps(), False, False, -1
    try:
        linux.set_pdeathsig(0)
        front_fd = os.pidfd_open(front)
        expected = probes.Expected(
            # Still the front's own. Those of the front itself can be read only until it makes itself non-dumpable.
            namespaces=probes.namespace_ids(), environment=plan.environment,
            rlimits=limits.effective(plan.rlimits), fds=frozenset({0, 1, 2, 3}),
            canary=f"{plan.scratch}/{lockdown.CANARY}" if "landlock" in plan.layers else "", front_pid=front,
            landlock_abi=plan.landlock_abi if "landlock" in plan.layers else 0, root_group=probes.in_root_group(),
        )  # fmt: skip
        notes = [*failures, *plan.notes]
        lost, layers = lockdown.enter(plan, steps, lambda pid: report.sendall(f"pid {pid}\n".encode()))
        notes += lost
        oom_fd = _open_oom()
        if "namespaces" in plan.layers:
            steps("read the mounts")
            expected = expected.replace(mounts=mounts.expected(plan))
        details = {
            "uid": os.getuid(), "gid": os.getgid(), "uid_strategy": plan.identity.strategy,
            "landlock_abi": plan.landlock_abi, "namespaces": namespaces.ids(), "notes": notes,
            "scratch": plan.scratch, "layered": plan.layered,
        }  # fmt: skip
        lost, listener = lockdown.seal(plan, steps, listen=listen)
        notes += lost
        if listener >= 0:
            socket.send_fds(report, [b"listener\n"], [listener])
        steps("prepare")
        final = True  # what fails in there fails on every level
        entry.prepare()
        final = False
        steps("probes")
        proofs = _probe(plan, expected, notes, listen)
        steps("")
        zygote = Zygote(plan, entry, control, front_fd, oom_fd, listen=listen)
        # In this order: the launcher has stopped to answer before the front begins to.
        report.send(b"ready\n")
        report.close()
        ready: dict[str, Any] = {"event": "ready", "level": plan.level, "proofs": proofs, "layers": len(layers),
                 "details": {**details, "timings_ms": steps.spent_ms}}  # fmt: skip
        # An ordinary user's front cannot open these by /proc, which is the zygote's own and so closed.
        folders = [os.open(t.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) for t in plan.tmpfs]
        folders += [layer.upper for layer in layers.values()]
        ready["folders"] = [*(t.path for t in plan.tmpfs), *layers]
        # The front alone gets what a layer can be reconfigured by: see `session.lookups`.
        folders += [layer.context for layer in layers.values()]
        if listener >= 0:
            zygote.send({**ready, "listens": True}, (*folders, listener))
            os.close(listener)  # no worker may inherit it: who has it can let calls through
        else:
            zygote.send(ready, tuple(folders))
        for folder in folders:
            os.close(folder)
        served = True
        zygote.serve()
    except BaseException as error:
        if plan.scratch:
            scratch.remove(plan.scratch)
        number = error.errno if isinstance(error, OSError) else 0
        text = (error.strerror if isinstance(error, OSError) else str(error)) or repr(error)
        told = {"step": steps.name, "error": text, "errno": number or 0, "final": final}
        if served:  # nobody listens to the report any more
            event = {**told, "event": "failed", "level": plan.level, "step": "serve", "pid": os.getpid(), "last": True}
            event["error"] = f"{text} ({traceback.format_exc()[-1500:]})"
            with contextlib.suppress(OSError):
                control.send(json.dumps(event).encode())
        if final or not isinstance(error, (OSError, _ProbeFailed)):
            told["traceback"] = traceback.format_exc()[-4000:]
        with contextlib.suppress(OSError):
            report.sendall(json.dumps(told).encode() + b"\n")
    finally:
        os._exit(1)


def _open_oom() -> int:
    """This process's oom_score_adj for later: a non-dumpable process may not open it."""
    linux.set_dumpable(True)
    try:
        return os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return -1
    finally:
        linux.set_dumpable(False)


def _probe(
    plan: Plan, expected: probes.Expected, notes: list[str], listen: bool
) -> list[dict[str, object]]:
    """Try the forbidden in a child that is confined as a worker is. Raises _ProbeFailed."""
    mine, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(theirs.detach(), 3, inheritable=False)
            mine.detach()
            linux.close_range(4)
            lost, listener = ([], -1) if "namespaces" in plan.layers else lockdown.restrict(plan, listen=listen)
            if listener >= 0:
                with socket.socket(fileno=os.dup(3)) as answer_to:
                    socket.send_fds(answer_to, [b" "], [listener])  # blank: JSON follows
                linux.close_range(4)
            answer: dict[str, Any] = {"proofs": probes.run_probes(plan.level, expected), "lost": lost}
        except BaseException as error:
            answer = {
                "proofs": [{"layer": "probes", "tried": "run them", "saw": repr(error), "ok": False}],
                "lost": [],
            }
        try:
            with os.fdopen(3, "wb") as file:
                file.write(json.dumps(answer).encode())
        finally:
            os._exit(0)
    theirs.close()
    text, deadline, hearing = b"", time.monotonic() + PROBES_S, notify.Hearing(mine)
    while piece := hearing.wait(deadline):
        text += piece
    hearing.close()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    try:
        said = json.loads(text)
    except ValueError:
        raise _ProbeFailed("the probes gave no answer") from None
    notes += said["lost"]
    for proof in said["proofs"]:
        if not proof["ok"]:
            raise _ProbeFailed(f"{proof['layer']}: {proof['tried']}: {proof['saw']}")
    return list(said["proofs"])
