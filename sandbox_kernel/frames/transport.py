"""A payload and its buffers as one piece of memory or one file.

Layout: the 8 bytes of `MAGIC`, the number of buffers, the length of the payload and of each buffer (64-bit,
little-endian), then payload and buffers, each at a multiple of 64 so that arrays can be used where they lie.
"""

from __future__ import annotations

import os
import secrets
import stat
import struct
from collections.abc import Sequence
from pathlib import Path

from ..errors import FrameRefused, size_text
from .grammar import DEFAULT_BUDGET, Budget
from .receiver import Bytes

MAGIC = b"\x93frame\r\n"
ALIGNMENT = 64
BUFFERS = 1_000_000

_COUNT = struct.Struct("<QQ")


def pack(payload: bytes, buffers: Sequence[memoryview]) -> list[Bytes]:
    """The pieces to write one after another; `packed_size` bytes together."""
    head = MAGIC + _COUNT.pack(len(buffers), len(payload)) + struct.pack(f"<{len(buffers)}Q", *map(len, buffers))
    pieces: list[Bytes] = [head]
    at = len(head)
    parts: list[Bytes] = [payload, *buffers]
    for part in parts:
        if -at % ALIGNMENT:
            pieces.append(bytes(-at % ALIGNMENT))
            at += -at % ALIGNMENT
        pieces.append(part)
        at += len(part)
    return pieces


def packed_size(pieces: Sequence[Bytes]) -> int:
    """Bytes of a packed frame."""
    return sum(map(len, pieces))


def unpack(memory: Bytes, *, budget: Budget = DEFAULT_BUDGET) -> tuple[bytes, list[memoryview]]:
    """Payload and buffers; the buffers are views of `memory`.

    Raises:
        FrameRefused: the memory does not hold exactly one packed frame, or one that is larger than the budget.
    """
    view = memoryview(memory).cast("B")
    if len(view) > budget.wire_bytes:
        raise FrameRefused(f"a frame of {size_text(len(view))} is larger than {size_text(budget.wire_bytes)}",
                           in_order=True)  # fmt: skip
    at = len(MAGIC) + _COUNT.size
    if len(view) < at or view[: len(MAGIC)] != MAGIC:
        raise FrameRefused("this is not a frame: it does not begin as one")
    count, payload_size = _COUNT.unpack_from(view, len(MAGIC))
    if count > BUFFERS or at + 8 * count > len(view):
        raise FrameRefused("this is not a frame: it is cut off")
    sizes = (payload_size, *struct.unpack_from(f"<{count}Q", view, at))
    at += 8 * count
    parts = []
    for size in sizes:
        at += -at % ALIGNMENT
        if size > len(view) - at:
            raise FrameRefused("this is not a frame: it is cut off")
        parts.append(view[at : at + size])
        at += size
    if at != len(view):
        raise FrameRefused("this is not a frame: something follows it")
    return bytes(parts[0]), parts[1:]


def write_file(path: str | Path, payload: bytes, buffers: Sequence[memoryview]) -> None:
    """Write a file next to its place and move it there when it is whole."""
    path = Path(path)
    temporary = path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}")
    try:
        with open(temporary, "xb", buffering=0) as file:
            for piece in pack(payload, buffers):
                rest = memoryview(piece)
                while len(rest):
                    rest = rest[file.write(rest) :]
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_file(path: str | Path, budget: Budget = DEFAULT_BUDGET) -> tuple[bytes, list[memoryview]]:
    """Read a whole file; a pipe or device is refused.

    The file is not mapped: whoever cuts a mapped file short kills the process that reads it.
    """
    with open(path, "rb", buffering=0, opener=_open_without_waiting) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise FrameRefused(f"this is not a frame: {Path(path).name!r} is no regular file")
        if found.st_size > budget.wire_bytes:
            raise FrameRefused(f"a frame of {size_text(found.st_size)} is larger than {size_text(budget.wire_bytes)}",
                           in_order=True)  # fmt: skip
        memory = bytearray(found.st_size)
        view, got = memoryview(memory), 0
        while got < len(view):
            size = file.readinto(view[got:])
            if not size:
                raise FrameRefused("this is not a frame: it was cut off while it was read")
            got += size
    return unpack(memory, budget=budget)


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
