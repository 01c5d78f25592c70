"""Progress of many pieces of work, on standard error; results go to standard output."""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from .show import printable

_NAME_CHARS = 50


class Work:
    """A bar for all of it, and a line for each piece that runs. Into a pipe or a log: a line for each that ends.

    Args:
        what: of what there are many, such as ``"submissions"``.
        total: how many.
        done: of them before the start.
    """

    def __init__(self, what: str, total: int, done: int = 0, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._live = self._console.is_terminal
        columns = (TextColumn("{task.fields[name]}", markup=False), BarColumn(), MofNCompleteColumn(),
                   TimeElapsedColumn(), TextColumn("{task.fields[note]}", markup=False))  # fmt: skip
        self._progress = Progress(*columns, console=self._console, transient=True, disable=not self._live)
        self._total, self._done = total, done
        self._all = self._progress.add_task("", total=total, completed=done, name=what, note="")
        self._running: dict[str, TaskID] = {}

    def __enter__(self) -> Work:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def began(self, name: str, total: int | None = None) -> None:
        """A piece begins; ``total``: its steps."""
        self.forget(name)
        self._running[name] = self._progress.add_task("", total=total, name=f"  {_cut(name)}", note="")

    def step(self, name: str, at: int, total: int) -> None:
        """It is at this step."""
        if name in self._running:
            self._progress.update(self._running[name], completed=at, total=total)

    def forget(self, name: str) -> None:
        """Its line goes."""
        if (task := self._running.pop(name, None)) is not None:
            self._progress.remove_task(task)

    def ended(self, name: str, how: str) -> None:
        """It has ended."""
        self.forget(name)
        self._done += 1
        self._progress.update(self._all, completed=self._done, note=f"{_cut(name)}: {_cut(how)}")
        if not self._live:
            self._console.print(Text(f"{self._done}/{self._total} {printable(name)}: {printable(how)}"), soft_wrap=True)

    def say(self, text: str) -> None:
        """A line that stays."""
        self._console.print(Text(printable(text)), soft_wrap=True)


def _cut(text: str) -> str:
    text = printable(text).replace("\n", " ")
    return text if len(text) <= _NAME_CHARS else f"{text[: _NAME_CHARS - 3]}..."


def width() -> int | None:
    """Of a console on standard output: a pipe or a log has none to respect, and the usual 80 breaks tables."""
    return None if sys.stdout.isatty() else 120
