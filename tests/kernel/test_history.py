"""The front's history in a session that lives long."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.kernel import history
from sandbox_kernel.kernel.history import History


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_old_cells_leave_memory_but_not_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(history, "_LATEST", 5)

    async def work() -> tuple[list[Any], list[Any], list[str]]:
        kept = History(str(tmp_path) if kind == "file" else "", logging.getLogger("test"))
        for line in range(1, 21):
            kept.store(line, f"x = {line}")
        wide = kept.request({"hist_access_type": "range", "session": 0, "start": 3, "stop": 9})
        near = kept.request({"hist_access_type": "range", "session": 0, "start": 18, "stop": 21})
        manager = kept._manager
        assert manager is not None
        held = [text for text in manager.input_hist_raw if text]
        for lines in (manager.input_hist_raw, manager.input_hist_parsed):
            assert (len(lines), list.__len__(lines)) == (21, 5), "no place is held for each cell that there was"
        kept.close()
        return wide, near, held

    wide, near, held = asyncio.run(work())
    assert [code for _, _, code in wide] == [f"x = {line}" for line in range(3, 9)]
    assert [line for _, line, _ in wide] == list(range(3, 9))
    assert [code for _, _, code in near] == ["x = 18", "x = 19", "x = 20"]
    assert len({session for session, _, _ in wide + near}) == 1
    assert held == [f"x = {line}" for line in range(16, 21)]


def test_lines_are_found_by_their_number_when_the_old_ones_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_LATEST", 3)
    lines: Any = history._Lines()
    for number in range(1, 7):
        lines.append(f"x = {number}")
    assert len(lines) == 7
    assert list(lines) == ["", "", "", "", "x = 4", "x = 5", "x = 6"]
    assert (lines[0], lines[3], lines[4], lines[-1], lines[4:6]) == ("", "", "x = 4", "x = 6", ["x = 4", "x = 5"])
    for outside in (7, -8):
        with pytest.raises(IndexError):
            lines[outside]
    lines[:] = [""]
    lines.append("y = 1")
    assert (len(lines), lines[1]) == (2, "y = 1")


def test_half_a_character_in_a_cell_does_not_end_the_history(tmp_path: Path) -> None:
    async def work() -> list[Any]:
        kept = History(str(tmp_path), logging.getLogger("test"))
        kept.store(1, "'\ud800'")
        kept.store(2, "x = 2")
        kept.request({"hist_access_type": "tail", "n": 2})
        kept.close()
        again = History(str(tmp_path), logging.getLogger("test"))
        found = again.request({"hist_access_type": "tail", "n": 2})
        again.close()
        return found

    assert [code for _, _, code in asyncio.run(work())] == ["'\\ud800'", "x = 2"]


def test_few_pages_of_the_database_are_kept_and_a_file_that_is_none_is_put_aside(tmp_path: Path) -> None:
    (tmp_path / "history.sqlite").write_bytes(b"no database" * 1000)

    async def work() -> Any:
        kept = History(str(tmp_path), logging.getLogger("test"))
        kept.store(1, "x = 1")
        found = kept.request({"hist_access_type": "tail", "n": 5})
        manager: Any = kept._manager
        pages = manager.db.execute("PRAGMA cache_size").fetchone()[0]
        kept.close()
        return found, pages

    found, pages = asyncio.run(work())
    assert [entry[1:] for entry in found] == [[1, "x = 1"]]
    assert pages == -history._PAGES_KIB
    assert len(list(tmp_path.glob("history*.sqlite"))) == 2
