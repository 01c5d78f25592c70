"""Sandboxes that are started before they are needed, for asyncio."""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import Path
from types import TracebackType

from ..arguments import check_arguments
from .asked import PolicyLike, resolved
from .core import AsyncSandbox
from .tools import Modules


class AsyncSandboxPool:
    """Keeps a number of fresh sandboxes ready, for servers. Belongs to the event loop on which it was entered.

    ``async with await pool.acquire() as sandbox:`` takes one and ends it afterwards; nobody gets one that somebody has
    used. The arguments besides ``size`` are those of `AsyncSandbox`.

    Args:
        size: how many wait.
    """

    @check_arguments
    def __init__(
        self, size: int = 2, policy: PolicyLike = "assistant", *, level: str | None = None,
        workspace: str | Path | None = None, timeout: float | None = None, modules: Modules | None = None,
    ) -> None:  # fmt: skip
        self._size = size
        resolved(policy, level, workspace)  # what is wrong with it is told here, not when somebody waits
        self._options = (policy, level, workspace, timeout, modules)
        self._waiting: deque[asyncio.Task[AsyncSandbox]] = deque()
        self._closed = False

    async def _make(self) -> AsyncSandbox:
        policy, level, workspace, timeout, modules = self._options
        box = AsyncSandbox(policy, level=level, workspace=workspace, timeout=timeout, modules=modules)
        try:
            await box.start()
        except BaseException:
            await box.close()
            raise
        return box

    def _fill(self) -> None:
        while len(self._waiting) < self._size:
            self._waiting.append(asyncio.get_running_loop().create_task(self._make()))

    async def acquire(self) -> AsyncSandbox:
        """The sandbox that has waited longest; another one is started in its place.

        Raises:
            RuntimeError: the pool is closed.
            SandboxError: it could not be started.
        """
        while True:
            if self._closed:
                raise RuntimeError("this pool is closed")
            self._fill()
            first = self._waiting.popleft()
            self._fill()
            try:
                box = await asyncio.shield(first)
            except asyncio.CancelledError:
                # Whoever asked does not wait any more; the sandbox does.
                self._waiting.appendleft(first)
                await self._drop_if_closed()
                raise
            if not box.closed:  # (it may have ended while it waited: its first process was killed, for example)
                return box

    async def close(self) -> None:
        """End the sandboxes that wait; those that were taken go on. Idempotent."""
        self._closed = True
        await self._drop_if_closed()

    async def _drop_if_closed(self) -> None:
        while self._closed and self._waiting:
            starting = self._waiting.popleft()
            await asyncio.wait([starting])
            if not starting.cancelled() and starting.exception() is None:
                await starting.result().close()

    async def __aenter__(self) -> AsyncSandboxPool:
        self._fill()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
