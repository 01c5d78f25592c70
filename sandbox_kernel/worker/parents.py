"""Requests as ipykernel's code, and code of the cells that asks the kernel for its parent, expect them."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Any

from .link import Request


def message_of(request: Request) -> dict[str, Any]:
    """The message that the front was sent."""
    fields = request.fields
    header = _header(fields.get("header"))
    return {
        "header": header,
        "msg_id": header.get("msg_id", ""),
        "msg_type": header.get("msg_type", fields.get("msg_type", "")),
        "parent_header": {},
        "metadata": fields.get("metadata") or {},
        "content": fields.get("content") or {},
        "buffers": request.buffers,
    }


def set_parent(kernel: Any, message: dict[str, Any]) -> None:
    """Make this message the parent of what follows."""
    kernel.set_parent(_ident(message["header"]), message, channel="shell")


def set_control_parent(kernel: Any, request: Request) -> None:
    """Note the latest message of the control channel, which is the front's, when the front has said which it was."""
    header = _header(request.fields.get("control"))
    if header:
        kernel.set_parent(_ident(header), {"header": header}, channel="control")


def _header(said: Any) -> dict[str, Any]:
    header = dict(said or {})
    if isinstance(header.get("date"), str):
        with suppress(ValueError):
            header["date"] = datetime.fromisoformat(header["date"])
    return header


def _ident(header: dict[str, Any]) -> list[bytes]:
    # Clients name their sockets by their session.
    return [str(header.get("session", "")).encode()]
