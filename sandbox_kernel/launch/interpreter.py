"""A zygote that is an interpreter of its own, started with a clean environment, and not a fork of this process.

For fronts whose process has threads and secrets of its own (the Python API), and for policies that name another
interpreter. Nothing of this process is inherited but one socket.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import IsolationUnavailable
from ..plan import text
from ..plan.model import Plan
from ..plan.paths import Python, libraries
from .link import Listeners, ZygoteLink

OLDEST = (3, 11)
FACTS_S = 30.0
_FACTS_BYTES = 1 << 16
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_SCRIPT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "fresh.py")
# Of the interpreter that runs this process; another one would look for its modules in the wrong place.
OWN_VARIABLES = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "LD_LIBRARY_PATH")


def start_interpreter(
    executable: str,
    environment: Mapping[str, str],
    plan: Callable[[Python], Sequence[Plan]],
    listeners: Listeners | None = None,
) -> tuple[StartedLink, Sequence[Plan]]:
    """Start an interpreter that confines itself. Blocks until it has said what it is, about as long as it takes to
    start one; "ready" or "failed" arrives through the link.

    May be called from any thread of any process. The interpreter stays as the parent of the zygote and collects what
    the sandbox leaves; it ends after the zygote, which ends when this process does.

    Args:
        executable: its path.
        environment: all that it gets.
        plan: makes the plans to be tried in this order, for that interpreter.
        listeners: as for `link.start_zygote`.

    Raises:
        IsolationUnavailable: it cannot be started, or is too old.
        SandboxError, OSError: what ``plan`` raises.
    """
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    mine.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    complaints = os.memfd_create("stderr", os.MFD_CLOEXEC)
    process: subprocess.Popen[bytes] | None = None
    try:
        # A session of its own: Ctrl-C in this process's terminal is not meant for it.
        process = subprocess.Popen(
            [executable, "-P", _SCRIPT, str(theirs.fileno())], env=dict(environment), cwd="/", start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=complaints, pass_fds=[theirs.fileno()],
        )  # fmt: skip
        theirs.close()
        python = _facts(mine, complaints, process.pid)
        plans = plan(python)
        link = StartedLink(mine, process, [plan.level for plan in plans], listeners)
        _send_plans(mine, plans, listen=listeners is not None)
        mine.setblocking(False)
    except BaseException as error:
        mine.close()
        if process is not None:
            process.kill()
            process.wait()
        if process is None and isinstance(error, OSError):
            raise IsolationUnavailable("auto", "worker.python", f"{executable} cannot be started: {error}") from error
        raise
    finally:
        theirs.close()
        os.close(complaints)
    return link, plans


def _facts(control: socket.socket, complaints: int, pid: int) -> Python:
    readable, _, _ = select.select([control], [], [], FACTS_S)
    packet = control.recv(_FACTS_BYTES) if readable else b""
    try:
        facts: dict[str, Any] = json.loads(packet)
    except ValueError:
        said = os.pread(complaints, 4000, 0).decode("utf-8", "replace").strip().splitlines()
        raise IsolationUnavailable(
            "auto", "worker.python", said[-1] if said else f"it did not start within {FACTS_S:g} s"
        ) from None
    if tuple(facts["version"]) < OLDEST:
        version = ".".join(map(str, facts["version"]))
        raise IsolationUnavailable("auto", "worker.python", f"{facts['executable']} is Python {version}",
                                   f"It must be {OLDEST[0]}.{OLDEST[1]} or newer.")  # fmt: skip
    return Python(facts["executable"], tuple(facts["prefixes"]), tuple(facts["path"]), libraries(pid))


def _send_plans(control: socket.socket, plans: Sequence[Plan], *, listen: bool) -> None:
    # They may be longer than a packet.
    memory = os.memfd_create("plans", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with open(memory, "wb", closefd=False) as file:
            file.write(text.dumps(plans))
        os.lseek(memory, 0, os.SEEK_SET)
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, _SEALS)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # then end-of-file is about to be received
            socket.send_fds(control, [json.dumps({"listen": listen}).encode()], [memory])
    finally:
        os.close(memory)


class StartedLink(ZygoteLink):
    """The control socket of a zygote whose launcher is an interpreter that stays.

    Attributes:
        patient: whether `close` waits for the end. An event loop that others use has no time for it, see `collect`.
    """

    def __init__(
        self, control: socket.socket, process: subprocess.Popen[bytes], levels: list[str], listeners: Listeners | None
    ) -> None:
        super().__init__(control, 0, levels, listeners)
        self._process = process
        self.patient = True

    def close(self, timeout_s: float = 2.0) -> None:
        """As the base class's; returns at once when not ``patient``."""
        if self.patient:
            self.collect(timeout_s)
        else:
            with contextlib.suppress(OSError):
                self._control.shutdown(socket.SHUT_RDWR)
            self._control.close()

    def collect(self, timeout_s: float = 2.0) -> None:
        """Close, and wait until all processes have ended; then they are killed. For any thread."""
        super().close(timeout_s)

    def _reap_launcher(self, *, kill: bool = False) -> None:
        self._dead = []  # the interpreter collects them
        if not kill or self._process.returncode is not None:
            return
        deadline = time.monotonic() + 2.0
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
