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
        kept.close()
        return wide, near, held

    wide, near, held = asyncio.run(work())
    assert [code for _, _, code in wide] == [f"x = {line}" for line in range(3, 9)]
    assert [line for _, line, _ in wide] == list(range(3, 9))
    assert [code for _, _, code in near] == ["x = 18", "x = 19", "x = 20"]
    assert len({session for session, _, _ in wide + near}) == 1
    assert held == [f"x = {line}" for line in range(16, 21)]
