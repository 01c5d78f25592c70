"""Memory set aside for the worker itself: after a cell that has taken all there is, one must run that gives it back."""

from __future__ import annotations

import mmap

# Enough for a traceback, and for the next cell to be read and compiled. The limit counts it (RLIMIT_DATA counts what is
# mapped privately and may be written); as nothing is ever written to it, it takes none of the machine's memory. A
# `bytearray` would: it is filled with zeros.
_BYTES = 8 << 20

_held: mmap.mmap | None = None


def take() -> None:
    """Set it aside, if it can be had."""
    global _held
    if _held is None:
        try:
            _held = mmap.mmap(-1, _BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, MemoryError):
            return


def release() -> None:
    """There is no other memory left."""
    global _held
    if _held is not None:
        _held.close()
        _held = None
