"""Frames over an ``AF_UNIX`` ``SOCK_SEQPACKET`` socket pair.

A frame is one JSON object and zero or more raw buffers. It travels in packets of at most `PACKET_BYTES`::

    packet  = flags (1 byte: FIRST | LAST)  payload (at least 1 byte)
    first   = "!I" json bytes, "!H" buffer count, one "!I" for each buffer's size, then the body starts
    body    = json (UTF-8) followed by the buffers

Why packets and not a byte stream: in the worker an exception can be raised at any bytecode (KeyboardInterrupt
or a user's SIGALRM handler). The kernel takes a packet as a whole or not at all, so such an exception can end
a frame early but never tear a packet; the receiver drops a frame that is followed by another's FIRST packet.
A byte stream would be out of step for good.

Every packet but a frame's last is full. A sender that could choose tiny packets could make the receiver work
for hours on one frame that is within all bounds.
"""

from __future__ import annotations

import codecs
import json
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

from ..errors import ProtocolError
from ..frozen import Frozen

PACKET_BYTES = 64 * 1024
FIRST = 1
LAST = 2

Bytes = bytes | bytearray | memoryview

_HEAD = struct.Struct("!IH")
_WHOLE = struct.Struct("!BIH")  # a packet that is all of a frame without buffers begins so
HEAD_BYTES = _WHOLE.size
_BRACE = ord("}")
_PAYLOAD_BYTES = PACKET_BYTES - 1
_FLAGS = tuple(bytes((flags,)) for flags in range(4))

MIB = 1024 * 1024


class Bounds(Frozen):
    """What one frame may hold. The receiver enforces them; a sender checks them to fail early and in words.

    Attributes:
        json_bytes: of the JSON part.
        buffers: how many raw buffers.
        frame_bytes: of JSON and buffers together.
        depth: how deep arrays and objects may be nested in the JSON part.
        values: how many values and keys the JSON part may have. Each becomes an object of the receiver's, of 30 times
            its size at worst.
    """

    json_bytes: int = 32 * MIB
    buffers: int = 256
    frame_bytes: int = 256 * MIB
    depth: int = 64
    values: int = 3_000_000


DEFAULT_BOUNDS = Bounds()
# What a worker may send. It may also leave a frame unfinished for as long as it lives, so this is what one worker can
# make the front hold.
FROM_WORKER = Bounds(frame_bytes=64 * MIB)


class Frame:
    """One received frame: the JSON text, not parsed yet, and read-only views of the buffers."""

    __slots__ = ("buffers", "json")

    def __init__(self, json: bytes, buffers: list[memoryview]) -> None:
        self.json, self.buffers = json, buffers


class FrameTooLarge(ValueError):
    """A frame that is about to be sent would break the receiver's bounds."""


# --- JSON ---------------------------------------------------------------------------------------------------


def _escape_surrogates(error: UnicodeError) -> tuple[str, int]:
    """Codec error handler for JSON text: a lone surrogate becomes the six visible characters ``\\udc80``.

    UTF-8 has no lone surrogates and strict decoders refuse their JSON escapes, so the text shows the escape.
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(f"\\\\u{ord(character):04x}" for character in text), error.end


SURROGATES = "sandbox-kernel-json"
codecs.register_error(SURROGATES, _escape_surrogates)


@lru_cache(maxsize=8)
def _encoder(default: Callable[[Any], Any] | None) -> json.JSONEncoder:
    return json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=default)


def dumps(obj: Any, default: Callable[[Any], Any] | None = None) -> bytes:
    """JSON as strict UTF-8: no NaN, no infinities, no lone surrogates.

    Raises:
        ValueError: NaN or infinity, or a cycle.
        TypeError: a value that JSON has no word for and that `default` does not translate.
    """
    return _encoder(default).encode(obj).encode("utf-8", SURROGATES)


# A string ends at its closing quote or, in text that is no JSON, at the end: without the `?` an unclosed
# string would be tried again from each of its escaped quotes, which takes quadratic time.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_BRACKETS = b"[]{}"
_OTHERS = bytes(byte for byte in range(256) if byte not in _BRACKETS)
_STEPS = bytes.maketrans(_BRACKETS, b"\x01\xff\x01\xff")  # one down, one up (-1 as a signed byte)


def deeper_than(text: bytes, depth: int) -> bool:
    """Whether the JSON `text` nests arrays and objects more than `depth` deep.

    Takes linear time, in C, and never recurses: it is asked before a parser sees the text.
    """
    if text.count(b"[") + text.count(b"{") <= depth:
        return False
    steps = memoryview(_STRING.sub(b"", text).translate(_STEPS, _OTHERS)).cast("b")
    return max(accumulate(steps), default=0) > depth


def more_values_than(text: bytes, values: int) -> bool:
    """Whether the JSON `text` has more values and keys than that, give or take one. In C, as `deeper_than`."""
    return (
        len(text) > values and _marks(text) > values and _marks(_STRING.sub(b"", text)) > values
    )  # most text with many marks has them in few and long strings


def _marks(text: bytes) -> int:
    """Each value but the first comes after one of these."""
    return sum(map(text.count, (b",", b":", b"[", b"{")))


# --- sending ------------------------------------------------------------------------------------------------


def flat(buffer: Bytes) -> memoryview:
    """A view of `buffer` as plain bytes.

    Raises:
        ValueError: the buffer is not contiguous in memory.
    """
    view = memoryview(buffer)
    if not view.c_contiguous:
        raise ValueError(f"the buffer {buffer!r} is not contiguous")
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


def check(text: bytes, buffers: Sequence[memoryview], bounds: Bounds = DEFAULT_BOUNDS) -> None:
    """Raises `FrameTooLarge` when the receiver would refuse this frame."""
    if len(text) > bounds.json_bytes:
        raise FrameTooLarge(f"the message is {len(text):,} bytes long and may have {bounds.json_bytes:,}")
    if len(buffers) > bounds.buffers:
        raise FrameTooLarge(f"the message has {len(buffers)} buffers and may have {bounds.buffers}")
    total = len(text) + sum(len(view) for view in buffers)
    if total > bounds.frame_bytes:
        raise FrameTooLarge(f"the message is {total:,} bytes long and may have {bounds.frame_bytes:,}")
    if more_values_than(text, bounds.values):
        raise FrameTooLarge(f"the message has more than {bounds.values:,} values")
    if deeper_than(text, bounds.depth):
        raise FrameTooLarge(f"the message is nested deeper than {bounds.depth} levels")


def packet_of(text: bytes) -> bytes:
    """A short frame without buffers, which is one packet."""
    return _WHOLE.pack(FIRST | LAST, len(text), 0) + text


def stream_head(parent: str, name: str) -> bytes:
    """How the JSON of a message with printed text begins, up to the text itself."""
    return dumps({"type": "stream", "parent": parent, "name": name})[:-1] + b',"text":'


def lone_text(packet: bytes, head: bytes) -> bytes | None:
    """What stands between `head` and the last brace of a frame's JSON; None when `packet` is not all of such a frame.

    It may be anything that the sender likes, also more than one value.
    """
    size = len(packet)
    if (
        head and packet.startswith(head, HEAD_BYTES) and packet[-1] == _BRACE and size <= PACKET_BYTES
        and _WHOLE.unpack_from(packet) == (FIRST | LAST, size - HEAD_BYTES, 0)
    ):  # fmt: skip
        return packet[HEAD_BYTES + len(head) : -1]
    return None


def split(text: bytes, buffers: Sequence[Bytes] = ()) -> Iterator[bytes]:
    """Cuts a frame into packets, without checking any bound."""
    if not buffers and len(text) <= _PAYLOAD_BYTES - _HEAD.size:
        return iter((packet_of(text),))
    parts = [memoryview(text), *map(flat, buffers)]
    sizes = [len(part) for part in parts]
    head = _HEAD.pack(sizes[0], len(sizes) - 1) + struct.pack(f"!{len(sizes) - 1}I", *sizes[1:])
    left = len(head) + sum(sizes)
    if left <= _PAYLOAD_BYTES:
        return iter((b"".join((_FLAGS[FIRST | LAST], head, *parts)),))
    return _split([memoryview(head), *parts], left)


def _split(parts: list[memoryview], left: int) -> Iterator[bytes]:
    flags = FIRST
    pending: list[memoryview] = []
    room = _PAYLOAD_BYTES
    for part in parts:
        at = 0
        while at < len(part):
            piece = part[at : at + room]
            pending.append(piece)
            at += len(piece)
            room -= len(piece)
            left -= len(piece)
            if not room or not left:
                yield b"".join((_FLAGS[flags if left else flags | LAST], *pending))
                pending, room, flags = [], _PAYLOAD_BYTES, 0


def encode(
    obj: Any,
    buffers: Sequence[Bytes] = (),
    bounds: Bounds = DEFAULT_BOUNDS,
    default: Callable[[Any], Any] | None = None,
) -> Iterator[bytes]:
    """`obj` and `buffers` as packets.

    Raises:
        ValueError, TypeError: as `dumps`; `FrameTooLarge` when the receiver would refuse the frame.
    """
    text = dumps(obj, default)
    views = [flat(buffer) for buffer in buffers]
    check(text, views, bounds)
    return split(text, views)


# --- receiving ----------------------------------------------------------------------------------------------


class Assembler:
    """Turns packets back into frames and refuses whatever is not in the protocol.

    Nothing is kept before the FIRST packet's sizes have passed the bounds, and never more than was really
    sent.
    """

    def __init__(self, bounds: Bounds = DEFAULT_BOUNDS) -> None:
        self.bounds = bounds
        self._body: bytearray | None = None
        self._sizes: tuple[int, ...] = ()
        self._due = 0

    def drop(self) -> None:
        """Forget an unfinished frame: another one has begun."""
        self._body = None

    def feed(self, packet: bytes) -> Frame | None:
        """Takes one packet and returns a frame when it was the frame's last.

        Raises:
            ProtocolError: the packet is malformed, out of place or beyond the bounds.
        """
        if len(packet) < 2:
            raise ProtocolError("a packet without payload")
        if len(packet) > PACKET_BYTES:
            raise ProtocolError("a packet that is too long")
        flags = packet[0]
        if flags > FIRST | LAST:
            raise ProtocolError("a packet with unknown flags")
        last = bool(flags & LAST)
        if not last and len(packet) != PACKET_BYTES:
            raise ProtocolError("a short packet inside a frame")
        if flags & FIRST:
            at = self._open(packet)
            if last and len(packet) - at == self._due:
                self._body = None
                cut = at + self._sizes[0]
                return self._frame(packet[at:cut], self._buffers(memoryview(packet)[cut:]) if self._sizes[1:] else [])
            self._body = bytearray()
        elif self._body is None:
            raise ProtocolError("a packet that belongs to no frame")
        else:
            at = 1
        body = self._body
        body += memoryview(packet)[at:]
        if len(body) > self._due or last != (len(body) == self._due):
            raise ProtocolError("a frame whose length is not the one it announced")
        if not last:
            return None
        self._body = None
        view = memoryview(body).toreadonly()
        cut = self._sizes[0]
        return self._frame(bytes(view[:cut]), self._buffers(view[cut:]))

    def _buffers(self, view: memoryview) -> list[memoryview]:
        """What follows the JSON, cut up."""
        buffers, at = [], 0
        for size in self._sizes[1:]:
            buffers.append(view[at : at + size])
            at += size
        return buffers

    def _open(self, packet: bytes) -> int:
        """Reads a FIRST packet's sizes; returns where its share of the body starts."""
        self._body = None
        try:
            text_bytes, count = _HEAD.unpack_from(packet, 1)
            if count > self.bounds.buffers:
                raise ProtocolError("a frame with too many buffers")
            sizes = struct.unpack_from(f"!{count}I", packet, 1 + _HEAD.size)
        except struct.error:
            raise ProtocolError("a frame without sizes") from None
        if not 2 <= text_bytes <= self.bounds.json_bytes:
            raise ProtocolError("a frame whose JSON part is too short or too long")
        self._due = int(text_bytes) + sum(sizes)
        if self._due > self.bounds.frame_bytes:
            raise ProtocolError("a frame that is too long")
        self._sizes = (text_bytes, *sizes)
        return 1 + _HEAD.size + 4 * int(count)

    def _frame(self, text: bytes, buffers: list[memoryview]) -> Frame:
        if more_values_than(text, self.bounds.values):
            raise ProtocolError("a frame whose JSON part has too many values")
        if deeper_than(text, self.bounds.depth):
            raise ProtocolError("a frame whose JSON part is nested too deep")
        return Frame(text, buffers)
