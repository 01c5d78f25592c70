"""What the file gate says about files in the private layer."""

from __future__ import annotations

from collections.abc import Iterable

from ..frozen import Frozen


class Report:
    """What became of the files that a cell made or changed. Paths below the notebook's folder.

    Attributes:
        kept: written next to the notebook.
        inside: not written: path and why.
    """

    def __init__(self, kept: Iterable[str] = (), inside: Iterable[tuple[str, str]] = ()) -> None:
        self.kept, self.inside = list(kept), list(inside)


class Held(Frozen):
    """A file in the layer.

    Attributes:
        name: its path below the notebook's folder.
        size: in bytes.
        why: why it is not next to the notebook; "" when it is.
    """

    name: str
    size: int
    why: str
