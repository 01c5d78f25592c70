"""The history that `history_request` answers from, kept by the front and out of the worker's reach.

Stock keeps one database for all notebooks; in the worker's hands it would show one notebook's cells to another.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import operator
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.history import HistoryAccessor, HistoryManager
from IPython.core.inputtransformer2 import TransformerManager
from IPython.core.interactiveshell import InteractiveShellABC

if TYPE_CHECKING:
    import sqlite3

_OUTPUT_CHARS = 100_000
# IPython commits each cell to the disk, which costs more than all the rest of a small cell.
_WRITE_AFTER_S = 1.0
_SLICE_S = 0.02  # that the front is kept from other work at a time
_CELLS_HELD = 10_000
# Texts of this session's cells in memory; older ones are asked of the database. A kernel may live for months.
_LATEST = 2000
_PAGES_KIB = 256  # of the database, in memory
# The count is the worker's word, and a cell may set it to anything.
_GAP = 1000
# Each magic in a cell makes IPython read all of it again, up to 500 times: that could hold up the front for minutes.
_TRANSFORMED_CHARS = 8_000
_TRANSFORMS = 20


class _Transformer(TransformerManager):
    def do_token_transforms(self, lines: list[str]) -> list[str]:
        for _ in range(_TRANSFORMS):
            changed, lines = self.do_one_token_transform(lines)
            if not changed:
                return lines
        raise RuntimeError("too many magics")


class _NoShell:
    """Stands where IPython's history manager wants a shell; it only asks for the profile's folder."""

    def push(self, *_args: Any, **_kwargs: Any) -> None:
        """Leave out the ``_i`` variables: they are the worker's."""


InteractiveShellABC.register(_NoShell)


def _connection(*arguments: Any, **options: Any) -> sqlite3.Connection:
    """One that keeps few pages of the file in memory. As many as sqlite likes, 2 MB, are there after a long day."""
    import sqlite3  # not at the start of the kernel, which has no history yet

    made = sqlite3.Connection(*arguments, **options)
    with contextlib.suppress(sqlite3.Error):  # IPython has its own way with a file that is no database
        made.execute(f"PRAGMA cache_size = -{_PAGES_KIB}")
    return made


class _Lines(list[str]):
    """Texts by their cell's number, from 1 on. Only the latest are here, and "" stands for the older ones.

    IPython's own list has a place for each cell that there ever was.
    """

    def __init__(self) -> None:
        super().__init__([""])
        self._gone = 0

    def __len__(self) -> int:
        return self._gone + super().__len__()

    def __iter__(self) -> Iterator[str]:
        return chain(repeat("", self._gone), super().__iter__())

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return list(self)[at]
        place = operator.index(at)
        place += len(self) if place < 0 else 0
        if not 0 <= place < len(self):
            raise IndexError(at)
        return super().__getitem__(place - self._gone) if place >= self._gone else ""

    def __setitem__(self, at: Any, value: Any) -> None:
        """Begin anew with these lines, as IPython does for a new session: ``lines[:] = [""]``."""
        if at != slice(None):
            raise TypeError("lines are added, and never changed")
        self._gone = 0
        super().__setitem__(at, value)

    def append(self, text: str) -> None:
        """One more; the oldest goes."""
        super().append(text)
        if super().__len__() > _LATEST:
            super().__delitem__(0)
            self._gone += 1


class History:
    """Inputs and outputs of this kernel, and the inputs of earlier ones.

    Args:
        profile: the folder of the IPython profile; its ``history.sqlite`` is used, as in stock.
    """

    def __init__(self, profile: str, log: logging.Logger) -> None:
        self._profile, self._log = profile, log
        self._manager: HistoryManager | None = None
        self._transformer = _Transformer()
        self._timer: asyncio.TimerHandle | None = None
        # What is yet to be told to the manager. It is not kept waiting for: to open the database and to read a cell's
        # magics takes longer than a small cell.
        self._later: deque[Callable[[HistoryManager], None]] = deque()
        self._length = 1  # of the manager's lists when that is done

    def _settled(self, seconds: float = math.inf) -> HistoryManager:
        manager = self._open()
        end = time.monotonic() + seconds
        while self._later and time.monotonic() < end:
            self._later.popleft()(manager)
        return manager

    def _open(self) -> HistoryManager:
        if self._manager is None:
            # (A path, not a text: IPython could not put a file aside that is no database.)
            file: Any = Path(self._profile) / "history.sqlite" if self._profile else ":memory:"
            shell: Any = _NoShell()
            options = {"check_same_thread": False, "factory": _connection}
            self._manager = HistoryManager(shell=shell, hist_file=file, connection_options=options)
            self._manager.db_cache_size = _CELLS_HELD
            self._manager.input_hist_parsed, self._manager.input_hist_raw = _Lines(), _Lines()
        return self._manager

    def store(self, line: int, code: str) -> int:
        """Note a cell that is about to run as number `line`.

        Returns:
            the number that it has in here: another one when the count leapt, for what is skipped takes room.
        """
        if line < self._length:  # a fresh worker counts from 1 again
            self._later.append(lambda manager: manager.reset(new_session=True))
            self._length = 1
        if line - self._length > _GAP:
            line = self._length
        self._length = line + 1
        self._later.append(lambda manager: self._store(manager, line, code))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_WRITE_AFTER_S, self._write)
        return line

    def _store(self, manager: HistoryManager, line: int, code: str) -> None:
        # The database takes no lone surrogate: the thread that writes would end, and with it the whole history.
        code = cooked = code.encode("utf-8", "backslashreplace").decode()
        if len(code) <= _TRANSFORMED_CHARS:
            # A transformer fails on text that is not Python; the text itself is the history.
            with contextlib.suppress(Exception):
                cooked = self._transformer.transform_cell(code)
        while len(manager.input_hist_raw) < line:
            manager.input_hist_parsed.append("")
            manager.input_hist_raw.append("")
        manager.store_inputs(line, cooked, code)
        manager.output_hist_reprs.pop(line - _LATEST, None)

    def _write(self) -> None:
        """Tell the manager, and wake its thread that writes."""
        self._timer = None
        try:
            manager = self._settled(_SLICE_S)
        except Exception:  # as in `close`
            self._log.warning("the history could not be kept", exc_info=True)
            return
        if self._later:
            self._timer = asyncio.get_running_loop().call_later(_SLICE_S, self._write)
        if manager.save_flag is not None:
            manager.save_flag.set()

    def store_output(self, line: int, text: str) -> None:
        """Note the text of the result of cell `line`."""
        kept = text[:_OUTPUT_CHARS]
        self._later.append(lambda manager: manager.output_hist_reprs.__setitem__(line, kept))

    def request(self, content: dict[str, Any]) -> list[Any]:
        """The entries for one ``history_request``; empty for an unknown kind."""
        manager = self._settled()
        kind, raw, output = content.get("hist_access_type"), bool(content.get("raw", True)), bool(content.get("output"))
        if kind == "tail":
            found = manager.get_tail(content.get("n"), raw=raw, output=output, include_latest=True)
        elif kind == "range":
            session, start = int(content.get("session") or 0), int(content.get("start") or 0)
            stop = content.get("stop")
            if session in (0, manager.session_number) and start <= len(manager.input_hist_raw) - 1 - _LATEST:
                manager.writeout_cache()
                own = manager.session_number
                found = HistoryAccessor.get_range(manager, own, start, stop, raw=raw, output=output)
            else:
                found = manager.get_range(session, start, stop, raw=raw, output=output)
        elif kind == "search":
            found = manager.search(
                content.get("pattern") or "*", raw=raw, output=output, n=content.get("n"),
                unique=bool(content.get("unique")),
            )  # fmt: skip
        else:
            return []
        # IPython calls the running session 0 in a range; clients cannot match that with what the tail says.
        entries = [(session or manager.session_number, line, entry) for session, line, entry in found]
        return [self._with_output(entry) if output else list(entry) for entry in entries]

    def _with_output(self, entry: Any) -> list[Any]:
        session, line, (code, stored) = entry
        manager = self._open()
        if session == manager.session_number:
            stored = manager.output_hist_reprs.get(line, stored)
        return [session, line, [code, stored]]

    def close(self) -> None:
        """Write what is cached and close the database."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._manager is not None or self._later:
            try:
                manager = self._settled()
                manager.end_session()
                manager.close()
            except Exception:  # a locked or full disk must not keep the kernel from ending
                self._log.warning("the history could not be written", exc_info=True)
            self._manager = None
