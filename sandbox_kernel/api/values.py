"""Values in and out of a session, for `core`: packing, asking, and the exceptions that stand for a refusal."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from .. import frames
from ..arguments import shown
from ..errors import CellError, FrameRefused, ProtocolError
from ..frames import transport
from ..outputs.text import clean_text
from ..session.exchange import Outgoing

# Built-in errors that a request about a file may raise here; what else the sandbox says is text.
_FILE_ERRORS = (
    "FileNotFoundError", "FileExistsError", "IsADirectoryError", "NotADirectoryError", "PermissionError", "OSError",
)  # fmt: skip

def pack(value: Any, most: int) -> Outgoing:
    """A value on its way in.

    Raises:
        FrameRefused: it is of a type that does not cross, or too large.
    """
    try:
        return Outgoing.of(*frames.dumps(value), most)
    except FrameRefused as refused:
        refused.data["outgoing"] = True  # it is the caller's value, and nothing was asked
        raise


def close_all(values: Mapping[str, Any]) -> None:
    """Give up the memory of those among these variables that are packed; again, unless they were never sent."""
    for value in values.values():
        if isinstance(value, Outgoing):
            value.close()


def unpack(memory: memoryview, most: int) -> Any:
    """A value from the worker.

    Raises:
        FrameRefused: it cannot be read here.
        ProtocolError: it is no frame; whoever sent it means harm.
    """
    budget = _budget(most, len(memory))
    try:
        return frames.loads(*transport.unpack(memory, budget=budget), budget=budget)
    except FrameRefused as error:
        if error.in_order:
            raise
        raise ProtocolError(f"a value that is no frame: {error}") from error


@lru_cache(maxsize=64)
def _budget(most: int, size: int) -> frames.Budget:
    """Objects take more than their bytes on the way; but a small value has no business to become a large one."""
    return frames.Budget(wire_bytes=most, memory_bytes=min(8 * most, 64 * size + (16 << 20)),
                         unfolded_bytes=min(8 * most, frames.DEFAULT_BUDGET.unfolded_bytes))  # fmt: skip


def variable(name: str) -> str:
    """The name, if it can be a variable's.

    Raises:
        ValueError: it cannot.
    """
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        near = re.sub(r"\W+", "_", name).strip("_") if isinstance(name, str) else ""
        hint = f"; did you mean {near!r}?" if near.isidentifier() and near != name else ""
        raise ValueError(f"{shown(name)} cannot be the name of a variable{hint}")
    return name


def refusal(reply: Mapping[str, Any], *, call: bool = False) -> Exception | None:
    """The exception that a reply to a request about values stands for; None when there is none.

    Args:
        reply: of the worker.
        call: the request was a call; what the function raises is a `CellError`, whatever its name.
    """
    if reply.get("status") != "error":
        return None
    # A host that prints the exception prints it to a terminal.
    name, text = clean_text(str(reply.get("ename", ""))), clean_text(str(reply.get("evalue", "")))
    if name == "FrameRefused":
        error = FrameRefused("-")
        error.message, error.args = text, (text,)
        if "cannot pass" in text:  # (the worker's own advice does not cross)
            error.add_note("Frames hold DataFrames, Series, arrays and plain values; convert it in a cell first.")
        return error
    if name == "KeyError" and not call:
        return KeyError(text)
    if name in _FILE_ERRORS and not call:
        kind: type[Exception] = getattr(builtins, name)
        return kind(text)
    bases = map(clean_text, reply.get("bases") or ())
    return CellError(name, text, clean_text("\n".join(map(str, reply.get("traceback") or ()))), bases)
