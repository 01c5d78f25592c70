"""Run one attempt in a forked child of an ordinary uid, with or without a layer."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sandbox_kernel import linux
from sandbox_kernel.confine import seccomp
from sandbox_kernel.seccomp import program

NOBODY = 65534
# Run before something: from then on it finds a machine without user namespaces. UID stands for the ordinary user.
NO_NAMESPACES = """
from sandbox_kernel import linux
from sandbox_kernel.confine import namespaces
linux.unshare(linux.CLONE_NEWUSER)
namespaces._map_self(UID, UID)
namespaces.forbid_nesting()
namespaces.give_up_rights()
linux.set_dumpable(True)
"""
# Asked of a worker: which descriptors it has.
DESCRIPTORS = """
result = []
for fd in range(1024):
    try: os.fstat(fd)
    except OSError: continue
    result.append(fd)"""
ANSWER_FDS: list[int] = []  # in a child: where it and those around it write their answers


@dataclass
class Outcome:
    """What became of it: ``value``, or ``errno`` of an OSError, or the ``signal`` that ended the child."""

    value: Any = None
    errno: int | None = None
    error: str = ""
    signal: int | None = None

    @property
    def succeeded(self) -> bool:
        return self.errno is None and not self.error and self.signal is None


def become_ordinary() -> None:
    """An attempt that succeeds must not act on the machine: leave uid 0 for good."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    linux.drop_capabilities()
    linux.set_no_new_privs()


def attempt(act: Callable[[], Any], *layers: Callable[[], Any], ordinary: bool = True) -> Outcome:
    """Fork, put on ``layers`` in turn, then ``act``."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(20)
            os.close(reader)
            ANSWER_FDS.append(writer)
            if ordinary:
                become_ordinary()
            for layer in layers:
                layer()
            try:
                outcome = Outcome(value=act())
            except OSError as error:
                outcome = Outcome(errno=error.errno, error=str(error))
            with os.fdopen(writer, "wb") as file:
                pickle.dump(outcome, file)
        except BaseException as error:
            os.write(writer, pickle.dumps(Outcome(error=f"{type(error).__name__}: {error}")))
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        told = file.read()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return Outcome(signal=os.WTERMSIG(status))
    outcome = pickle.loads(told)
    assert isinstance(outcome, Outcome)
    return outcome


def filtered(level: str = "full", abi: int = 7) -> Callable[[], None]:
    """A layer: the filter of ``level``."""
    bpf = program.compile_filter(level=level, landlock_abi=abi)
    return lambda: seccomp.load_filter(bpf)
