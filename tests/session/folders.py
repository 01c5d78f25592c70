"""What the tests of the file gate look at: what it kept, and what is on the disk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel.session.files import FileGate


class Folders:
    """The notebook's folder, and a folder beside it that no cell may reach."""

    work: Path
    outside: Path
    gate: FileGate

    def collect(self) -> tuple[set[str], dict[str, str]]:
        report = self.gate.collect()
        return set(report.kept), dict(report.inside)

    def tree(self) -> dict[str, str]:
        """Every path below the two, with what it is."""
        found = {}
        for top in (self.work, self.outside):
            for path in sorted(top.rglob("*")):
                text = os.readlink(path) if path.is_symlink() else ""
                found[str(path.relative_to(top.parent))] = text or ("folder" if path.is_dir() else path.read_text())
        return found


@contextlib.contextmanager
def counted_writes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many bytes each `os.write` of this process has written meanwhile."""
    real, written = os.write, list[int]()

    def write(fd: int, data: bytes) -> int:
        written.append(real(fd, data))
        return written[-1]

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        yield written
