"""Replies: payloads, user expressions, what help and completion show."""

from __future__ import annotations

import re
from itertools import islice
from typing import Any

from .settings import Removed
from .text import clean_text, joined

# An editor is started with this by some clients, by way of a shell.
_FILE = re.compile(r"[\w./~+ -]{1,400}")
_KIND = re.compile(r"[\w ,<>-]{0,30}")
MATCHES, MATCH_CHARS = 2000, 300
PAGE_CHARS = 2_000_000
# Magics whose purpose is to put text into the cell in which they stand; the person typed nothing else there.
_ASKS_FOR_TEXT = re.compile(r"\s*%(?:load|loadpy|recall|rep|run_input|hist_input)\b[^\n]*\s*")


def payloads(
    found: list[dict[str, Any]], code: str, removed: Removed, *, document: bool = True
) -> tuple[list[dict[str, Any]], str]:
    """The payloads of an ``execute_reply`` that are passed on, and text that is shown in the place of others.

    Args:
        found: of the worker's reply.
        code: the cell. Only one that is nothing but ``%load`` or its like may put text into the notebook.
        document: whether the client shows a document that would be changed. To a console the text is only what it
            proposes as the next line.
    """
    passed: list[dict[str, Any]] = []
    shown: list[str] = []
    for payload in found[:100]:
        source = payload.get("source")
        if source == "page":
            passed.extend(_page(payload))
        elif source == "set_next_input" and isinstance(payload.get("text"), str):
            text = clean_text(payload["text"])
            if not document or _ASKS_FOR_TEXT.fullmatch(code):
                passed.append({"source": source, "text": text, "replace": payload.get("replace") is True})
            else:
                removed["text for a new cell"] += 1
                shown.append(f"[This cell wants to put the following into a cell of the notebook:]\n{text}\n")
        elif source == "edit_magic":
            file, line = payload.get("filename"), payload.get("line_number")
            if isinstance(file, str) and _FILE.fullmatch(file):
                passed.append({"source": source, "filename": file, "line_number": line if type(line) is int else None})
        elif source == "ask_exit":
            keep = payload.get("keepkernel")
            passed.append({"source": source, **({"keepkernel": keep} if isinstance(keep, bool) else {})})
    return passed, "".join(shown)


def _page(payload: dict[str, Any]) -> list[dict[str, Any]]:
    """Help in a page's pager, which front ends show as they show trusted output: plain text only."""
    data, start = payload.get("data"), payload.get("start", 0)
    text = joined(data.get("text/plain")) if isinstance(data, dict) else None
    if text is None:
        return []
    plain = {"text/plain": clean_text(text[:PAGE_CHARS])}
    return [{"source": "page", "data": plain, "start": start if type(start) is int and start >= 0 else 0}]


def inspect_reply(content: dict[str, Any]) -> dict[str, Any]:
    """Help as plain text."""
    text = joined(content.get("data", {}).get("text/plain"))
    data = {"text/plain": clean_text(text[:PAGE_CHARS])} if text is not None else {}
    return {"status": "ok", "found": bool(content.get("found")) and bool(data), "data": data, "metadata": {}}


def complete_reply(content: dict[str, Any]) -> dict[str, Any]:
    """Completions: short texts, and for each what kind of thing it is."""
    short = (match for match in content["matches"] if len(match) <= MATCH_CHARS)
    matches = [clean_text(match) for match in islice(short, MATCHES)]
    types: list[dict[str, Any]] = []
    said = content.get("metadata", {}).get("_jupyter_types_experimental")
    for entry in said[:MATCHES] if isinstance(said, list) else []:
        if not isinstance(entry, dict) or not isinstance(entry.get("text"), str) or len(entry["text"]) > MATCH_CHARS:
            continue
        kept: dict[str, Any] = {"text": clean_text(entry["text"])}
        for name in ("start", "end"):
            if type(entry.get(name)) is int:
                kept[name] = entry[name]
        if isinstance(entry.get("type"), str):
            kept["type"] = entry["type"] if _KIND.fullmatch(entry["type"]) else "<unknown>"
        if isinstance(entry.get("signature"), str):
            kept["signature"] = clean_text(entry["signature"][:MATCH_CHARS])
        types.append(kept)
    metadata = {"_jupyter_types_experimental": types} if said is not None else {}
    return {**content, "matches": matches, "metadata": metadata}
