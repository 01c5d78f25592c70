"""How a cell ended, for its `Execution`."""

from __future__ import annotations

import re

from ..errors import LimitReached, SandboxError, TimeLimit
from ..session.session import Interrupted
from .execution import Execution, ExecutionError


def failed(execution: Execution, error: SandboxError) -> None:
    """Note an error of the sandbox itself, unless there is one of the cell already."""
    name = "KeyboardInterrupt" if isinstance(error, Interrupted) else type(error).__name__
    text = error.explain()
    execution.error = execution.error or ExecutionError(name, text, f"{name}: {text}")
    execution.timed_out = execution.timed_out or isinstance(error, TimeLimit)
    execution.exit_code = -9 if isinstance(error, LimitReached) else int(error.data.get("status") or 1)
    for violation in error.data.get("violations", ()):
        if "imports" in violation["rule"]:
            execution.blocked_imports += re.findall(r"(?:`|module )([\w.]+)", violation["message"])[:1]


def exit_code(error: ExecutionError) -> int:
    """What a program that ended with this exception would have told its parent."""
    if error.name != "SystemExit":
        return 1
    text = error.value.strip()
    return int(text) & 0xFF if text.isascii() and text.isdecimal() and len(text) < 10 else int(text not in ("", "None"))
