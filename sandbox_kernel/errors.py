"""Every error that a person can meet, as one tree.

Each class builds its own sentence from data, so that one situation has one wording; `advice()` says what to
do next; all of them survive pickling (an error crosses process borders in the API and in test runners).
In a notebook they appear as ordinary ``error`` outputs whose ``ename`` is the class name.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any

LOST = "The variables of this session are lost; run the cells that made them again."
KEPT = "The variables of this session are kept."


class SandboxError(Exception):
    """Base class.

    Attributes:
        state: ``"kept"``, ``"lost"``, or ``""`` where no session is concerned.
    """

    state: str = ""

    def __init__(self, message: str, **data: Any) -> None:
        super().__init__(message)
        self.message = message
        self.data = data

    def __reduce__(self) -> tuple[Callable[..., SandboxError], tuple[Any, ...]]:
        return _rebuild, (type(self), self.message, self.data, self.state)

    def __str__(self) -> str:
        return self.message

    def advice(self) -> str:
        """What the reader can do next, as one sentence; empty when there is nothing to say."""
        return ""

    def explain(self) -> str:
        """The whole text for a person: what happened, what to do, whether the variables survived."""
        state = {"kept": KEPT, "lost": LOST}.get(self.state, "")
        return " ".join(part for part in (self.message, self.advice(), state) if part)


def _rebuild(cls: type[SandboxError], message: str, data: dict[str, Any], state: str) -> SandboxError:
    # The subclasses' own __init__ build the message from data; calling them again would need the same
    # arguments in the same order, so the finished object is restored without them.
    error = cls.__new__(cls)
    SandboxError.__init__(error, message, **data)
    error.state = state
    return error


class PolicyError(SandboxError):
    """A policy that cannot be used: unknown key, wrong type, value out of range."""

    def __init__(self, where: str, problem: str, *, known: Iterable[str] = (), got: str = "") -> None:
        near = difflib.get_close_matches(got, list(known), n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        super().__init__(f"{where}: {problem}.{hint}", where=where, got=got)


class IsolationUnavailable(SandboxError):
    """The level that the policy asks for cannot be had (or could not be proven) on this machine."""

    def __init__(self, level: str, layer: str, saw: str, remedy: str = "") -> None:
        super().__init__(
            f"The isolation level {level!r} cannot be had here, so no cell is run: {layer}: {saw}.",
            level=level, layer=layer, saw=saw, remedy=remedy,
        )

    def advice(self) -> str:
        return str(self.data.get("remedy") or "")


class PolicyRefusal(SandboxError):
    """Something the policy does not allow was asked for."""


class LimitReached(SandboxError):
    """A limit of the policy ended the cell."""


class TimeLimit(LimitReached):
    """The cell ran longer than the policy allows."""


class MemoryLimit(LimitReached):
    """The session held more memory than the policy allows."""


class OutputLimit(LimitReached):
    """The cell produced more output than the policy allows."""


class ProcessLimit(LimitReached):
    """The session had more processes and threads than the policy allows."""


class DiskLimit(LimitReached):
    """The session wrote more than the policy allows."""


class WorkerLost(SandboxError):
    """The process that ran the cells is gone."""

    state = "lost"

    def __init__(self, cause: str) -> None:
        super().__init__(f"The process that ran this session's cells is gone: {cause}.", cause=cause)

    def advice(self) -> str:
        return "A fresh one is ready and the next cell will run."


class ProtocolError(SandboxError):
    """The worker sent something that is not in the protocol; it is replaced."""

    state = "lost"

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"The process that ran this session's cells sent data that breaks the protocol ({problem}) "
            "and was ended.", problem=problem,
        )

    def advice(self) -> str:
        return "A fresh one is ready and the next cell will run."


class FrameRefused(SandboxError):
    """A value could not pass the frame gate."""
