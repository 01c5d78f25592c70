"""Letting a private layer look again, when the machine's kernel takes long for it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel import linux
from sandbox_kernel.session.lookups import PATIENCE_S, Lookups


@pytest.fixture
def lookups(tmp_path: Path) -> Iterator[Lookups]:
    context, layer = (os.open(tmp_path, os.O_PATH | os.O_DIRECTORY) for _ in range(2))
    found = Lookups(context, layer, str(tmp_path))
    yield found
    found.close()


def test_cells_that_keep_the_kernel_at_it_hold_up_nobody(lookups: Lookups, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, over = [], threading.Event()

    def reconfigure(_context: int) -> None:
        begun.append(threading.get_ident())
        over.wait(60)

    monkeypatch.setattr(linux, "fs_reconfigure", reconfigure)

    async def cells() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await lookups.look_again()
            assert PATIENCE_S / 2 < loop.time() - began < 30
            await asyncio.gather(lookups.look_again(), lookups.look_again())
            assert len(begun) == 1, "one at a time"
        finally:
            over.set()
        await lookups.look_again()
        assert len(begun) == 2, "and again, once that is over"

    asyncio.run(cells())


def test_never_in_the_thread_that_serves_the_client(lookups: Lookups, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    monkeypatch.setattr(linux, "fs_reconfigure", lambda _context: threads.append(threading.get_ident()))

    async def cells() -> None:
        for _ in range(3):
            await lookups.look_again()

    asyncio.run(cells())
    assert len(threads) == 3 and threading.get_ident() not in threads


def test_what_began_earlier_is_not_taken_for_ones_own(lookups: Lookups, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, over = [], threading.Event()

    def reconfigure(_context: int) -> None:
        begun.append(threading.get_ident())
        if len(begun) == 1:
            over.wait(60)

    monkeypatch.setattr(linux, "fs_reconfigure", reconfigure)

    async def cells() -> None:
        earlier, later = (asyncio.ensure_future(lookups.look_again()) for _ in range(2))
        await asyncio.sleep(0.01)
        over.set()
        await asyncio.gather(earlier, later)

    asyncio.run(cells())
    assert len(begun) == 2
