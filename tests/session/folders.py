"""What the tests of the file gate look at: what it kept, and what is on the disk."""

from __future__ import annotations

import os
from pathlib import Path

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
