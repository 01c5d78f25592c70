"""The audit log that a policy asks for, as kernels, the Python API, `mcp` and `grade` write it.

A log has one writer. The sandboxes of one process that have the same ``audit.file`` share it: they are told apart by
their requests' ids. Another process is refused (see `audit`), so that a policy for several processes at a time needs
``{pid}`` in the name.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from .audit import AuditError, AuditLog
from .errors import CellError, LimitReached, PolicyRefusal


class Refused(Protocol):
    """What the sandbox refused, see `session.denials`."""

    @property
    def call(self) -> str: ...
    @property
    def detail(self) -> str: ...
    @property
    def count(self) -> int: ...


@dataclass(eq=False, repr=False)
class _Open:
    """A log of this process."""

    log: AuditLog
    pid: int
    users: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


_opened: dict[str, _Open] = {}
_lock = threading.Lock()


class Audit:
    """The log of one session. One that cannot be used stops all cells.

    Args:
        file: as the policy has it; "" for none.
        visible: folders that cells can see; the log must lie outside of them.
    """

    def __init__(self, file: str, visible: Sequence[str] = ()) -> None:
        self._file = file
        self._open: _Open | None = None
        self._broken: PolicyRefusal | None = None
        try:
            if file:
                self._open = _shared(file, visible)
        except AuditError as error:
            self._broken = PolicyRefusal(f"The policy asks for an audit log, and it cannot be used: {error}", file=file)

    @property
    def wanted(self) -> bool:
        """Whether the policy asks for one."""
        return bool(self._file)

    def refusal(self) -> PolicyRefusal | None:
        """Why no cell may run now; None when it may."""
        if self._open is None:
            return self._broken
        with self._open.lock:
            return self._open.log.refusal()

    def note(
        self, request_id: str, code: str, outcome: str, *, error: BaseException | None, level: str,
        denials: Sequence[Refused], seconds: float, removed: Mapping[str, int],
    ) -> None:  # fmt: skip
        """Note a cell that has ended.

        Args:
            request_id: of the client, or of the sandbox among those of this process.
            code: of the cell; of a call through the API the name of the function.
            outcome: "ok", or the name of the error.
            error: when it is the sandbox that says it.
        """
        if self._open is None:
            return
        with self._open.lock:
            self._open.log.cell(
                request_id=request_id, code=code, outcome=outcome, level=level, seconds=seconds,
                limits=[type(error).__name__] if isinstance(error, LimitReached) else [],
                denials=[f"{d.call} {d.detail} x{d.count}" for d in denials],
                removed=[f"{kind} x{count}" for kind, count in removed.items()],
            )  # fmt: skip

    def close(self) -> None:
        """The session has ended; the last one of the process writes the final line. Idempotent."""
        opened, self._open = self._open, None
        if opened is None:
            return
        with _lock:
            opened.users -= 1
            if opened.users == 0:
                _finish(opened)
                if _opened.get(self._file) is opened:
                    del _opened[self._file]
        self._broken = PolicyRefusal("The audit log of this session is closed, so no cell is run.", file=self._file)


def outcome_of(reply: Mapping[str, object]) -> str:
    """Of a reply to a request: "ok", or the name of the error."""
    return str(reply.get("ename") or "error") if reply.get("status") == "error" else "ok"


def outcome_of_error(error: BaseException | None) -> str:
    """The same of what a call raised."""
    if error is None:
        return "ok"
    return error.name if isinstance(error, CellError) else type(error).__name__


def _shared(file: str, visible: Sequence[str]) -> _Open:
    with _lock:
        opened = _opened.get(file)
        if opened is None or opened.pid != os.getpid():  # (a child has its parent's descriptor, and no right to write)
            opened = _opened[file] = _Open(AuditLog(file, visible=visible), os.getpid())
        opened.log.check_hidden(visible)
        opened.users += 1
        return opened


def _finish(opened: _Open) -> None:
    with opened.lock:
        if opened.pid == os.getpid():
            opened.log.close()


def _finish_all() -> None:
    """For a program that ends without closing its sandboxes: its log would else look like one that was cut."""
    for opened in _opened.values():
        _finish(opened)


atexit.register(_finish_all)
