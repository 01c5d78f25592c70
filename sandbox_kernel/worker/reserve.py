"""Memory set aside for the worker itself: after a cell that has taken all there is, one must run that gives it back."""

from __future__ import annotations

# Enough for a traceback, and for the next cell to be read and compiled. It is never written to, so it takes none of
# the machine's memory; the limit counts it.
_BYTES = 8 << 20

_held: bytearray | None = None


def take() -> None:
    """Set it aside, if it can be had."""
    global _held
    if _held is None:
        try:
            _held = bytearray(_BYTES)
        except MemoryError:
            return


def release() -> None:
    """There is no other memory left."""
    global _held
    _held = None
