"""The frame gate: DataFrames, arrays and plain values as bytes that are safe to read, whoever wrote them.

::

    payload, buffers = frames.dumps(df)
    df = frames.loads(payload, buffers)

    frames.dump_file(df, "prices.frame")
    df = frames.load_file("prices.frame")

Nothing that is read can run code, name a function, or describe memory that it does not have. The grammar is in
`columns` and `names`, what is refused in docs/frames.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..errors import FrameRefused
from .decode import loads as _loads
from .grammar import DEFAULT_BUDGET, Budget, FrameWarning
from .receiver import Bytes
from .reduce import dumps as _dumps
from .transport import read_file, write_file

__all__ = [
    "DEFAULT_BUDGET", "Budget", "FrameRefused", "FrameWarning", "dump_file", "dumps", "load_file", "loads",
]  # fmt: skip


def dumps(obj: Any) -> tuple[bytes, list[memoryview]]:
    """A value as a payload and the buffers that belong to it.

    The buffers are flat views of the value's own memory where that is possible: write or copy them before the
    value is changed.

    Raises:
        FrameRefused: the value, or one inside it, is of a type that does not cross.
    """
    return _dumps(obj)


def loads(payload: Bytes, buffers: Iterable[Bytes] = (), *, budget: Budget = DEFAULT_BUDGET) -> Any:
    """The value of a payload from anybody.

    Arrays use writable buffers in place, and copies of others. Nobody else may be able to write into the buffers.

    Raises:
        FrameRefused: this is not a frame, it would cost more than the budget, or it needs a package that is not here.
    """
    return _loads(payload, buffers, budget=budget)


def dump_file(obj: Any, path: str | Path) -> None:
    """Write a value as a file (by custom ``.frame``), at once or not at all.

    Raises:
        FrameRefused: as `dumps`.
        OSError: the file cannot be written.
    """
    write_file(path, *_dumps(obj))


def load_file(path: str | Path, *, budget: Budget = DEFAULT_BUDGET) -> Any:
    """The value in a file from anybody.

    Raises:
        FrameRefused: as `loads`.
        OSError: the file cannot be read.
    """
    return _loads(*read_file(path, budget), budget=budget)
