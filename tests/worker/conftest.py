"""`k`: a fresh worker for a test; `shared`: one for all tests of a module that leave no trace."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .front import Front, front


@pytest.fixture
def k() -> Iterator[Front]:
    with front() as worker:
        yield worker


@pytest.fixture(scope="module")
def shared() -> Iterator[Front]:
    with front() as worker:
        yield worker
