"""Sandboxes that are started before they are needed."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from ..arguments import check_arguments
from .asked import PolicyLike, resolved
from .sync import Sandbox
from .tools import Modules


class SandboxPool:
    """Keeps a number of fresh sandboxes ready, for servers. May be used from several threads.

    ``with pool.acquire() as sandbox:`` takes one and ends it afterwards; nobody gets one that somebody has used. The
    arguments besides ``size`` are those of `Sandbox`.

    Args:
        size: how many wait.
    """

    @check_arguments
    def __init__(
        self, size: int = 2, policy: PolicyLike = "assistant", *, level: str | None = None,
        workspace: str | Path | None = None, timeout: float | None = None, modules: Modules | None = None,
    ) -> None:  # fmt: skip
        resolved(policy, level, workspace)  # what is wrong with it is told here, not when somebody waits
        self._options = (policy, level, workspace, timeout, modules)
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="sandbox-kernel-pool")
        self._waiting: deque[Future[Sandbox]] = deque(self._threads.submit(self._make) for _ in range(size))
        self._closed = False

    def _make(self) -> Sandbox:
        policy, level, workspace, timeout, modules = self._options
        return Sandbox(policy, level=level, workspace=workspace, timeout=timeout, modules=modules)

    def acquire(self) -> Sandbox:
        """The sandbox that has waited longest; another one is started in its place.

        Raises:
            RuntimeError: the pool is closed.
            SandboxError: it could not be started.
        """
        with self._lock:
            if self._closed:
                raise RuntimeError("this pool is closed")
            first = self._waiting.popleft()
            self._waiting.append(self._threads.submit(self._make))
        box = first.result()
        if box.closed:  # it ended while it waited: its first process was killed, for example
            return self.acquire()
        return box

    def close(self) -> None:
        """End the sandboxes that wait; those that were taken go on. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            waiting = list(self._waiting)
        for future in waiting:
            if not future.cancel() and future.exception() is None:
                future.result().close()
        self._threads.shutdown()

    def __enter__(self) -> SandboxPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
