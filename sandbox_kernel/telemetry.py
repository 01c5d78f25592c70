"""What an operator may ask to be told of each process that has started a sandbox. Without being asked: nothing.

`SANDBOX_KERNEL_TELEMETRY_URL` in the environment of whoever starts a kernel, or of a program that uses the Python API,
is where to. No policy can set it, cells cannot, and the sandboxed processes neither have the variable nor this module.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Mapping
from typing import Any, Protocol

from . import __version__

URL_VARIABLE = "SANDBOX_KERNEL_TELEMETRY_URL"
TIMEOUT_S = 5.0

_lock = threading.Lock()
_told: set[int] = set()  # processes; a fork is one of its own
_tasks: set[asyncio.Task[None]] = set()


class Starting(Protocol):
    """A sandbox that may not be there yet, see `session.supervisor.Supervisor`."""

    level: str

    async def get_worker(self, *, stoppable: bool) -> Any:
        """Returns when it takes cells; raises when it never will."""


def watch(loop: asyncio.AbstractEventLoop, sandbox: Starting, environment: Mapping[str, str]) -> None:
    """Call `tell` when the sandbox is there, or when it is clear that it will not be."""
    if not environment.get(URL_VARIABLE):
        return

    async def wait() -> None:
        level = "none"
        try:
            await sandbox.get_worker(stoppable=False)
            level = sandbox.level
        except Exception:  # noqa: S110 - whoever runs a cell is told
            pass
        tell(level, environment)

    task = loop.create_task(wait())
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


def tell(level: str, environment: Mapping[str, str]) -> threading.Thread | None:
    """Send the version and the level, once in the life of a process; return at once.

    A thread does it, for which nothing waits, and what goes wrong in it is nobody's concern.

    Args:
        level: that was had; "none" where there is no sandbox.
        environment: of whoever started this.

    Returns:
        the thread, if there is one.
    """
    url = environment.get(URL_VARIABLE, "")
    if not url.startswith(("http://", "https://")):
        return None
    with _lock:
        if os.getpid() in _told:
            return None
        _told.add(os.getpid())
    thread = threading.Thread(target=_post, args=(url, level), name="telemetry", daemon=True)
    thread.start()
    return thread


def _post(url: str, level: str) -> None:
    try:
        from urllib.request import HTTPRedirectHandler, Request, build_opener

        class Stay(HTTPRedirectHandler):
            """Whoever was named is told, and nobody else."""

            def redirect_request(self, *_: object) -> None:
                """None."""

        body = json.dumps({"version": __version__, "level": level}).encode("ascii")
        headers = {"Content-Type": "application/json", "User-Agent": "sandbox-kernel"}
        request = Request(url, data=body, headers=headers, method="POST")  # noqa: S310 - see `tell`
        with build_opener(Stay).open(request, timeout=TIMEOUT_S):
            pass
    except Exception:  # noqa: S110 - a kernel has better things to say
        pass
