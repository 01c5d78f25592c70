"""One sandbox for many tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox_kernel import Sandbox

LEVELS = ("full", "seccomp+landlock")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """Shared by the tests of a module: none may count on its variables, or lose its process."""
    with Sandbox() as box:
        yield box
