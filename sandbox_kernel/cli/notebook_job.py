"""Executing one notebook as a piece of work in a process of its own, see `jobs`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat

from .execute import Failed, execute

WORK = "sandbox_kernel.cli.notebook_job:work"


class _Steps:
    """Tells which cell runs."""

    def __init__(self, tell: Callable[[dict[str, Any]], None]) -> None:
        self._tell = tell
        self.cell_count = self.cells = self.errors = 0

    def notebook(self, path: Path, notebook: Any) -> None:
        self.cell_count = sum(_runs(cell) for cell in notebook.cells)
        self._tell({"at": 0, "of": self.cell_count})

    def cell(self, cell: Any) -> None:
        pass

    def output(self, out: Any, *, expected: bool) -> None:
        pass

    def cell_done(self, *, seconds: float, failed: bool, expected: bool) -> None:
        self.cells += 1
        self.errors += failed
        self._tell({"at": self.cells, "of": self.cell_count})

    def notebook_done(self) -> None:
        pass


def _runs(cell: Any) -> bool:
    return bool(cell.cell_type == "code" and cell.source.strip())


def given(
    path: Path, kernel: str, policy: str | None, policy_text: str | None, timeout_s: int | None, allow_errors: bool
) -> dict[str, Any]:
    """The argument of `work`.

    Args:
        path: of the notebook, as whoever does the work sees it.
        policy: a preset's name.
        policy_text: instead, the text of a policy: whoever does the work may have no such file.
    """
    return {
        "path": str(path.absolute()), "kernel": kernel, "policy": policy, "policy_text": policy_text,
        "timeout": timeout_s, "allow_errors": allow_errors,
    }  # fmt: skip


def work(given: dict[str, Any], tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """The executed notebook as text (None: it could not be read), why it failed (""), and how many cells ran."""
    steps, failed = _Steps(tell), ""
    notebook: nbformat.NotebookNode | None
    # (A folder of its own, which no cell sees: a policy that cells could write is refused.)
    with tempfile.TemporaryDirectory(prefix="sandbox-kernel-policy-") as folder:
        policy = given["policy"]
        if given["policy_text"] is not None:
            file = Path(folder, "policy.toml")
            file.write_text(given["policy_text"], encoding="utf-8")
            policy = str(file)
        try:
            notebook = execute(
                Path(given["path"]), steps, kernel=given["kernel"], timeout_s=given["timeout"],
                allow_errors=given["allow_errors"], policy=policy,
            )  # fmt: skip
        except Failed as error:
            notebook, failed = error.notebook, str(error).removeprefix(f"{given['path']}: ")
    text = None if notebook is None else nbformat.writes(notebook)
    return {"notebook": text, "failed": failed, "cells": steps.cells, "of": steps.cell_count, "errors": steps.errors}
