"""What a student handed in, as cells. The file is hostile: it is bounded, and only its text is looked at."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from ..code_rules.cells import MOST_BYTES, code_cells

SUFFIXES = (".ipynb", ".py")


class Unusable(ValueError):
    """There is nothing in it that could be run; the message says why, for the student."""


@dataclass(frozen=True)
class Submission:
    """A notebook or a Python file.

    Attributes:
        name: for reports.
        cells: (number from 1, source) of each code cell; a Python file is one cell.
    """

    name: str
    cells: tuple[tuple[int, str], ...]

    @classmethod
    def parse(cls, name: str, data: bytes) -> Submission:
        """A file's content.

        Args:
            name: its ending says what it is.

        Raises:
            Unusable: too large, not text, or not a notebook.
        """
        if len(data) > MOST_BYTES:
            raise Unusable(f"the file is larger than {MOST_BYTES // 1024**2} MiB")
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise Unusable(f"the file is not UTF-8 text (line {line})") from error
        if not name.endswith(".ipynb"):
            return cls(name, ((1, text),))
        try:
            return cls(name, tuple(code_cells(text)))
        except ValueError as error:
            raise Unusable(f"the file cannot be used: {error}") from error


def read_file(path: Path) -> bytes:
    """The content of a file that was handed in, which must be one: a link could lead anywhere on this machine.

    Raises:
        Unusable: it is no ordinary file, or too large.
        OSError: it cannot be read.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise Unusable("it is no ordinary file") from error
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise Unusable("it is no ordinary file")
    with open(fd, "rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise Unusable(f"the file is larger than {MOST_BYTES // 1024**2} MiB")
    return data
