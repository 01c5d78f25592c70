"""`sandbox-kernel run` for many notebooks, some at a time, here or on a cluster."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .. import __version__
from ..jobs.local import Job, Told, in_processes
from ..jobs.process import JobFailed
from . import notebook_job
from .packages import on_cluster
from .progress import Work, width
from .records import key_of
from .results import OutputFolder
from .show import printable
from .signing import is_ours, sign, user_key

_MOST_BYTES = 1 << 30  # of an earlier result that is looked at


@dataclass
class Batch:
    """What is to be executed, and how.

    Attributes:
        policy: a preset's name; ``policy_text``: instead, a policy's text.
        depends: a name for all but the notebook that a result depends on.
        kernelspec: what executed notebooks say in their metadata.
    """

    args: argparse.Namespace
    policy: str | None
    policy_text: str | None
    depends: str
    kernelspec: dict[str, str]
    output: OutputFolder

    def depends_on(self, path: Path) -> str:
        """A name for all that the results of this notebook depend on."""
        try:
            return key_of(__version__, self.depends, str(path.absolute()), path.read_bytes())
        except OSError:
            return ""


def run(batch: Batch) -> int:
    """Execute them: 0 when every cell of every notebook did as expected, else 1.

    Raises:
        Stop: a result cannot be written.
    """
    args, key = batch.args, user_key()
    paths = {str(path): path for path in args.notebooks}
    depends = {name: batch.depends_on(path) for name, path in paths.items()}
    rows: dict[str, tuple[str, str]] = {}
    for name, path in paths.items():
        if args.resume and depends[name] and _is_done(batch, path, depends[name], key):
            rows[name] = ("done before", "")
    waiting = [name for name in paths if name not in rows]
    jobs = [_job(batch, name, paths[name]) for name in waiting]
    failures = 0
    with Work("notebooks", len(paths), len(rows)) as work, contextlib.closing(_told(args, jobs)) as told:
        if rows:
            work.say(f"{len(rows)} of {len(paths)} are done already")
        for kind, name, what in told:
            if kind == "began":
                work.began(name)
            elif kind == "event":
                work.step(name, what["at"], what["of"])
            else:
                reason, note = _ended(batch, paths[name], what, depends[name], key)
                failures += bool(reason)
                rows[name] = (note, reason)
                work.ended(name, reason or note)
    _show(rows, paths)
    return int(failures > 0)


def _job(batch: Batch, name: str, path: Path) -> Job:
    args = batch.args
    given = notebook_job.given(
        path, args.kernel, batch.policy, batch.policy_text, args.timeout, args.allow_errors
    )  # fmt: skip
    return Job(name, lambda: given, float("inf"))


def _told(args: argparse.Namespace, jobs: Sequence[Job]) -> Generator[Told, None, None]:
    if args.scheduler:
        yield from on_cluster(args.scheduler, notebook_job.WORK, jobs)
    elif jobs:
        at_once = min(args.jobs or 1, len(jobs))
        with contextlib.closing(in_processes(notebook_job.WORK, jobs, at_once=at_once)) as told:
            yield from told


def _ended(batch: Batch, path: Path, what: Any, depends: str, key: bytes) -> tuple[str, str]:
    """Write what came of a notebook; why it failed ("" when it did not), and how far it came."""
    if isinstance(what, JobFailed):
        return f"it could not be run: {what}", "0 cells"
    note = f"{what['cells']} of {what['of']} cells"
    if what["errors"]:
        note += f", {what['errors']} errors" if what["errors"] > 1 else ", 1 error"
    if what["notebook"] is not None:
        notebook = nbformat.reads(what["notebook"], as_version=4)
        notebook.metadata["kernelspec"] = batch.kernelspec
        notebook.metadata.pop("sandbox_kernel", None)
        if not what["failed"] and depends:
            sign(notebook, depends, key)
        batch.output.write_notebook(path.stem, notebook)
        if batch.args.html:
            batch.output.write_page(path.stem, notebook)
    return str(what["failed"]), note


def _is_done(batch: Batch, path: Path, depends: str, key: bytes) -> bool:
    text = batch.output.read(f"{path.stem}.ipynb", _MOST_BYTES)
    if text is None:
        return False
    try:
        notebook = nbformat.reads(text, as_version=4)
        done = is_ours(notebook, depends, key)
    except Exception:  # whatever it is, it is not ours
        return False
    if done and batch.args.html:
        batch.output.write_page(path.stem, notebook)
    return done


def _show(rows: dict[str, tuple[str, str]], paths: dict[str, Path]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("notebook", "cells", "result"):
        table.add_column(title, no_wrap=title != "result")
    for name in paths:
        note, reason = rows[name]
        result = Text(printable(reason), style="red") if reason else Text("ok", style="green")
        table.add_row(Text(printable(name)), note, result)
    Console(highlight=False, width=width()).print(table)

