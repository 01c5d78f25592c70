"""One function that every message made from worker data passes before a client sees it.

It keeps each message to the fields and types of the Jupyter messaging specification. It does not clean HTML: a
client that trusts live output (JupyterLab does) still runs script in it, see SECURITY.md.
"""

from __future__ import annotations

from typing import Any

from ..errors import ProtocolError

# The only payloads of execute_reply that a front end knows how to act on, and their fields.
_PAYLOADS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "page": {"data": dict, "start": int},
    "set_next_input": {"text": str, "replace": bool},
    "edit_magic": {"filename": str, "line_number": (int, type(None))},
    "ask_exit": {"keepkernel": (bool, type(None))},
}
_COMM_TEXT_BYTES = 1000
_COUNT = 2**31


def gate(msg_type: str, content: dict[str, Any], buffers: list[bytes]) -> dict[str, Any]:
    """The content of an IOPub message with known fields of the right types.

    Raises:
        ProtocolError: a field is missing or has the wrong type.
    """
    if buffers and not msg_type.startswith("comm_"):
        raise ProtocolError(f"{msg_type} cannot carry buffers")
    if msg_type in ("display_data", "update_display_data", "execute_result"):
        return _display(msg_type, content)
    if msg_type == "clear_output":
        return {"wait": bool(content.get("wait", False))}
    if msg_type == "error":
        return {"ename": _text(content, "ename"), "evalue": _text(content, "evalue"), "traceback": _lines(content)}
    if msg_type in ("comm_open", "comm_msg", "comm_close"):
        return _comm(msg_type, content)
    raise ProtocolError(f"{msg_type!r} is not a message that a worker may send")


def _display(msg_type: str, content: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {"data": _mapping(content, "data"), "metadata": _mapping(content, "metadata")}
    if msg_type == "execute_result":
        count = content.get("execution_count")
        if isinstance(count, bool) or not isinstance(count, int):
            raise ProtocolError("execute_result: execution_count must be a number")
        out["execution_count"] = min(max(count, 0), _COUNT)
    else:
        transient = _mapping(content, "transient")
        display_id = transient.get("display_id")
        out["transient"] = {"display_id": display_id} if isinstance(display_id, str) else {}
    return out


def _comm(msg_type: str, content: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {"comm_id": _text(content, "comm_id", _COMM_TEXT_BYTES), "data": _mapping(content, "data")}
    if msg_type == "comm_open":
        out["target_name"] = _text(content, "target_name", _COMM_TEXT_BYTES)
    return out


def payloads(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The payloads of an execute reply that are passed on: known sources with fields of the right types."""
    passed = []
    for payload in found:
        fields = _PAYLOADS.get(str(payload.get("source")))
        if fields is None:
            continue
        if all(isinstance(payload.get(name), kind) for name, kind in fields.items() if name in payload):
            passed.append({"source": payload["source"], **{n: payload[n] for n in fields if n in payload}})
    return passed


def _mapping(content: dict[str, Any], name: str) -> dict[str, Any]:
    value = content.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ProtocolError(f"{name} must be an object")
    return value


def _text(content: dict[str, Any], name: str, limit: int = 10_000_000) -> str:
    value = content.get(name)
    if not isinstance(value, str) or len(value) > limit:
        raise ProtocolError(f"{name} must be a string of at most {limit} characters")
    return value


def _lines(content: dict[str, Any]) -> list[str]:
    value = content.get("traceback")
    if not isinstance(value, list) or not all(isinstance(line, str) for line in value):
        raise ProtocolError("traceback must be a list of strings")
    return value
