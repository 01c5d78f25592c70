"""The Python API: a sandbox as an object. `core` is asyncio, `sync` drives it for ordinary code."""

from __future__ import annotations

from .async_pool import AsyncSandboxPool
from .core import AsyncSandbox
from .execution import Execution, ExecutionError, Logs, Result
from .oneshot import ExecutionResult, execute_python
from .pool import SandboxPool
from .sync import Sandbox

__all__ = [
    "AsyncSandbox", "AsyncSandboxPool", "Execution", "ExecutionError", "ExecutionResult", "Logs", "Result", "Sandbox",
    "SandboxPool", "execute_python",
]  # fmt: skip
