"""The history of the running session, in memory: no sqlite file, no writer thread, nothing to fork badly.

What the person typed in earlier sessions is the front's to keep; a cell must not be able to read it.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from IPython.core import history


class HistoryManager(history.HistoryManager):
    """Answers ``%history``, ``%recall``, ``%rerun`` and ``%macro`` from the lists of the running session."""

    def __init__(self, shell: Any, **traits: Any) -> None:
        super().__init__(shell=shell, enabled=False, hist_file=":memory:", **traits)

    def store_inputs(self, line_num: int, source: str, source_raw: str | None = None) -> None:
        """As the base class; the lines that wait for a database are dropped."""
        super().store_inputs(line_num, source, source_raw)
        self.db_input_cache = []

    def get_tail(
        self, n: int | None = 10, raw: bool = True, output: bool = False, include_latest: bool = False
    ) -> Iterable[tuple[int, int, Any]]:
        """The last `n` lines, oldest first; without the running cell unless `include_latest`."""
        lines = list(self._get_range_session(1, None, raw, output))
        if not include_latest:
            lines = lines[:-1]
        count = 10 if n is None else n
        return lines[max(len(lines) - count, 0) :]

    def search(
        self,
        pattern: str = "*",
        raw: bool = True,
        search_raw: bool = True,
        output: bool = False,
        n: int | None = None,
        unique: bool = False,
    ) -> Iterable[tuple[int, int, Any]]:
        """Lines that match the glob `pattern`, oldest first; of equal ones the latest when `unique`."""
        searched = self.input_hist_raw if search_raw else self.input_hist_parsed
        found: dict[Any, tuple[int, int, Any]] = {}
        for entry in self._get_range_session(1, None, raw, output):
            source = searched[entry[1]]
            if fnmatchcase(source, pattern):
                key = source if unique else entry[1]
                found.pop(key, None)
                found[key] = entry
        entries = list(found.values())
        return entries if n is None else entries[max(len(entries) - n, 0) :]
