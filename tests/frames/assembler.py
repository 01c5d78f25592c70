"""Payloads by hand: whatever a hostile sender may write, honest or not."""

from __future__ import annotations

import struct
from typing import Any

NAMES = "sandbox_kernel.frames.names"
BUFFER = "the next buffer"


class Raw(bytes):
    """Opcodes that leave one value on the stack (or break the rules on purpose)."""


class Buffer:
    """The next of the buffers."""


def text(value: str) -> Raw:
    raw = value.encode("utf-8", "surrogatepass")
    if len(raw) < 256:
        return Raw(b"\x8c" + bytes([len(raw)]) + raw)
    return Raw(b"X" + struct.pack("<I", len(raw)) + raw)


def value(it: Any) -> Raw:
    """Opcodes for plain values; `Raw` pieces inside them stay as they are."""
    if isinstance(it, Raw):
        return it
    if it is None or isinstance(it, bool):
        return Raw({None: b"N", True: b"\x88", False: b"\x89"}[it])
    if isinstance(it, int):
        if -(2**31) <= it < 2**31:
            return Raw(b"J" + struct.pack("<i", it))
        raw = it.to_bytes(it.bit_length() // 8 + 1, "little", signed=True)
        if len(raw) < 256:
            return Raw(b"\x8a" + bytes([len(raw)]) + raw)
        return Raw(b"\x8b" + struct.pack("<i", len(raw)) + raw)
    if isinstance(it, float):
        return Raw(b"G" + struct.pack(">d", it))
    if isinstance(it, str):
        return text(it)
    if isinstance(it, bytes):
        return Raw(b"B" + struct.pack("<I", len(it)) + it)
    if isinstance(it, Buffer):
        return Raw(b"\x97")
    if isinstance(it, tuple):
        return Raw(b"(" + b"".join(map(value, it)) + b"t")
    if isinstance(it, list):
        return Raw(b"](" + b"".join(map(value, it)) + b"e")
    if isinstance(it, dict):
        return Raw(b"}(" + b"".join(value(key) + value(item) for key, item in it.items()) + b"u")
    raise TypeError(type(it))


def name(word: str, module: str = NAMES) -> Raw:
    return Raw(text(module) + text(word) + b"\x93")


def call(word: str | Raw, *arguments: Any) -> Raw:
    function = word if isinstance(word, Raw) else name(word)
    return Raw(function + value(arguments) + b"R")


def payload(it: Any) -> bytes:
    return b"\x80\x05" + value(it) + b"."


# --- honest pieces, for a lie at a time -----------------------------------------------------------------------


def int64(*numbers: int) -> Raw:
    return call("array", "<i8", (len(numbers),), "C", struct.pack(f"<{len(numbers)}q", *numbers))


def array(code: str, raw: bytes, *shape: int, order: str = "C") -> Raw:
    return call("array", code, shape, order, raw)


def strings(*words: str) -> tuple[Any, ...]:
    return ("s", len(words), "\0", "\0".join(words).encode())


def labels(length: int) -> Raw:
    return call("index", "range", (0, length, 1), None)


def words(*labels: str) -> Raw:
    return call("index", "array", (call("objects", "array", (len(labels),), strings(*labels)), None), None)


def numbers(*labels: int) -> Raw:
    return call("index", "array", (int64(*labels), None), None)


def series(data: Raw, length: int) -> Raw:
    return call("series", data, labels(length), None, None, True)
