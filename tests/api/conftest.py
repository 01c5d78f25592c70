"""One sandbox for many tests, and what is needed to see what a process has left."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel import Sandbox

LEVELS = ("full", "seccomp+landlock")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """Shared by the tests of a module: none may count on its variables, or lose its process."""
    with Sandbox() as box:
        yield box


def children(pid: int = 0) -> set[int]:
    """Everything below a process."""
    found, rows = {pid or os.getpid()}, []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                rows.append((int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1]), int(name)))
    size = 0
    while size != len(found):
        size = len(found)
        found |= {child for parent, child in rows if parent in found}
    return found - {pid or os.getpid()}


def wait_for(condition: Callable[[], Any], seconds: float = 10.0) -> Any:
    """What it returns, once that is true."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return found
