"""How what a request has left behind is ended: tasks, text that was not written out yet, forks."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import suppress
from typing import Any, NoReturn

from .link import leave
from .signals import ignore


async def end_leftovers(loop: asyncio.AbstractEventLoop) -> None:
    """End a cell whose task was started when the interrupt came, but not waited for yet."""
    signal.signal(signal.SIGINT, ignore)
    tasks = asyncio.all_tasks(loop)
    cells = [task for task in tasks if getattr(task.get_coro(), "__name__", "") == "run_cell_async"]
    for task in cells:
        task.cancel()
    if cells:
        await asyncio.wait(cells, timeout=1)


def flush() -> None:
    """Write out what was printed; nothing that is raised meanwhile comes out of here."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        with suppress(Exception):
            stream.flush()  # type: ignore[union-attr]


def end_fork(content: dict[str, Any] | None) -> NoReturn:
    """A fork that came out of its cell: it must not go on as a second kernel."""
    flush()
    status = 0
    if content is not None and content.get("status") == "error":
        status, value = 1, str(content.get("evalue"))
        if content.get("ename") == "SystemExit":
            status = int(value) & 0xFF if value.isdecimal() else int(value not in ("", "None"))
    leave(status)
