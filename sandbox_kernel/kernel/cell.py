"""What surrounds a cell: its error reply, what the sandbox refused to it, its line in the audit log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..audit import AuditError, AuditLog
from ..errors import LimitReached, PolicyRefusal, SandboxError
from ..report import traceback_lines
from ..session.denials import Denial
from ..session.ending import end_cell
from ..session.session import Plan, Session


def error_reply(error: SandboxError | tuple[str, str], execution_count: int) -> dict[str, Any]:
    """The content of ``execute_reply`` for an error of ours (or a name and a text); `execution_count` is the next."""
    name, text = (type(error).__name__, error.explain()) if isinstance(error, SandboxError) else error
    return {
        "status": "error", "ename": name, "evalue": text, "traceback": traceback_lines(name, text),
        "execution_count": max(execution_count - 1, 0), "user_expressions": {}, "payload": [],
    }  # fmt: skip


def level_line(level: str) -> str:
    """The banner's last line; "" for the level while the sandbox is starting."""
    return f"Isolation level {level or 'not known yet'}; `%sandbox` tells more."


def error_content(reply: Mapping[str, Any]) -> dict[str, Any]:
    """The content of the ``error`` message that belongs to an error reply."""
    return {name: reply[name] for name in ("ename", "evalue", "traceback")}


def plain_header(header: Mapping[str, Any]) -> dict[str, Any]:
    """A header or metadata for the worker: dates as text."""
    return {k: v.isoformat() if hasattr(v, "isoformat") else v for k, v in header.items()}


async def explanations(
    session: Session, plans: Sequence[Plan], denials: Sequence[Denial], reply: Mapping[str, Any]
) -> str:
    """What the sandbox refused to the cell that just ended, and which of its files were kept, in lines."""
    error = (str(reply.get("ename")), str(reply.get("evalue"))) if reply.get("status") == "error" else None
    return (await end_cell(session, plans, denials, error))[0]


class Audit:
    """The audit log that the policy asks for, if it does. A log that cannot be used stops all cells.

    Args:
        file: path out of the policy; "" for none.
        visible: folders that cells can see; the log must lie outside of them.
    """

    def __init__(self, file: str, visible: Sequence[str]) -> None:
        self._log: AuditLog | None = None
        self._broken: PolicyRefusal | None = None
        try:
            if file:
                self._log = AuditLog(file, visible=visible)
        except AuditError as error:
            self._broken = PolicyRefusal(f"The policy asks for an audit log, and it cannot be used: {error}", file=file)

    def refusal(self) -> PolicyRefusal | None:
        """Why no cell may run now; None when it may."""
        return self._broken or (self._log.refusal() if self._log is not None else None)

    def note(
        self, request_id: str, code: str, reply: Mapping[str, Any], *, error: SandboxError | None, level: str,
        denials: Sequence[Denial], seconds: float, removed: Mapping[str, int],
    ) -> None:  # fmt: skip
        """Note a cell that has ended."""
        if self._log is None:
            return
        outcome = str(reply.get("ename") or "error") if reply.get("status") == "error" else "ok"
        self._log.cell(
            request_id=request_id, code=code, outcome=outcome, level=level, seconds=seconds,
            limits=[type(error).__name__] if isinstance(error, LimitReached) else [],
            denials=[f"{d.call} {d.detail} x{d.count}" for d in denials],
            removed=[f"{kind} x{count}" for kind, count in removed.items()],
        )  # fmt: skip

    def close(self) -> None:
        """Write the final line."""
        if self._log is not None:
            self._log.close()
