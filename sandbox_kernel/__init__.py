"""Sandboxed Python: a Jupyter kernel whose cells run in a process confined by the Linux kernel.

The Python API (`Sandbox`, `AsyncSandbox`, ...) is imported when it is asked for: the kernel starts without it.
"""

# (The module `typing` would cost the kernel's first stage as much as all the rest of it; checkers know this name.)
TYPE_CHECKING = False
if TYPE_CHECKING:
    from .api import (
        AsyncSandbox,
        AsyncSandboxPool,
        Execution,
        ExecutionError,
        ExecutionResult,
        Logs,
        Result,
        Sandbox,
        SandboxPool,
        execute_python,
    )
    from .policy import Policy

__version__ = "0.1.0"
__all__ = [
    "AsyncSandbox", "AsyncSandboxPool", "Execution", "ExecutionError", "ExecutionResult", "Logs", "Policy", "Result",
    "Sandbox", "SandboxPool", "execute_python",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(".policy" if name == "Policy" else ".api", __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
