"""What surrounds a cell: its error reply, what the sandbox refused to it, its line in the audit log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import SandboxError
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
    session: Session, plans: Sequence[Plan], denials: Sequence[Denial], reply: Mapping[str, Any], *, interactive: bool
) -> str:
    """What the sandbox refused to the cell that just ended, and what became of its files, in lines."""
    error = (str(reply.get("ename")), str(reply.get("evalue"))) if reply.get("status") == "error" else None
    return (await end_cell(session, plans, denials, error, kept_told=interactive))[0]
