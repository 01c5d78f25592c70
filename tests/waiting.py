"""What tests need that wait for processes: a machine may stall for seconds at any point."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def wait_for(condition: Callable[[], Any], seconds: float = 30.0) -> Any:
    """What it returns, once that is true."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "what was waited for did not come"
        time.sleep(0.01)
    return found


def children(pid: int = 0) -> set[int]:
    """Everything below a process (0: this one)."""
    found, rows = {pid or os.getpid()}, []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                rows.append((int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1]), int(name)))
    size = 0
    while size != len(found):  # a child may have a smaller number than its parent, and come first
        size = len(found)
        found |= {child for parent, child in rows if parent in found}
    return found - {pid or os.getpid()}
