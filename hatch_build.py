"""Compiles the package where it is installed as editable: an installer does that for what it copies, and only then.

Where Python may not write bytecode (PYTHONDONTWRITEBYTECODE) each start of a kernel would compile a hundred modules.
"""

from __future__ import annotations

import compileall
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Compile(BuildHookInterface[Any]):
    """Called by hatchling before it builds a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, for the interpreter that builds, which is the one that installs."""
        del build_data
        if version == "editable":
            compileall.compile_dir(str(Path(self.root, "sandbox_kernel")), quiet=2)
