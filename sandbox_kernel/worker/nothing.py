"""Answers to the small requests when their code could not end: that there is nothing is true, and breaks no client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def nothing_found(op: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """The reply's content; an empty one for an operation whose reply has none."""
    if op == "complete":
        position = content.get("cursor_pos") or 0
        return {"status": "ok", "matches": [], "metadata": {}, "cursor_start": position, "cursor_end": position}
    if op == "inspect":
        return {"status": "ok", "found": False, "data": {}, "metadata": {}}
    if op == "is_complete":
        return {"status": "unknown"}
    if op == "checkpoint":
        return {"status": "refused", "reason": "it was broken off"}
    return {}
