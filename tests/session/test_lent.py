"""What a session has of large values is counted for as long as it has it, and not longer."""

from __future__ import annotations

import asyncio
import os

import pytest

from sandbox_kernel.errors import FrameRefused
from sandbox_kernel.session.lent import Lent


def test_more_that_goes_at_once_than_linux_tells_of() -> None:
    lent, fds = Lent(1 << 40, lambda: None), []
    with open("/proc/sys/fs/inotify/max_queued_events") as told:
        count = int(told.read()) // 2 + 1000  # two events for each
    try:
        for _ in range(count):
            fds.append(os.memfd_create("value"))
            os.ftruncate(fds[-1], 100)
            number = lent.watch(fds[-1])
            if number < 0:
                pytest.skip("too few watches are left on this machine")
            lent._sizes[number] = 100
        assert lent.bytes == 100 * count
        while len(fds) > 3:
            os.close(fds.pop())
        assert lent.bytes == 300
    except OSError:
        pytest.skip("this test needs more descriptors than it may have here")
    finally:
        for fd in fds:
            os.close(fd)
    assert lent.bytes == 0


@pytest.mark.parametrize(("size", "asked"), [(60, 1), (200, 0)])
def test_copies_end_for_a_value_that_would_fit_only(size: int, asked: int) -> None:
    calls: list[int] = []
    lent = Lent(100, lambda: calls.append(1))
    held, more = os.memfd_create("held"), os.memfd_create("more")
    try:
        os.ftruncate(held, 50)
        os.ftruncate(more, size)
        asyncio.run(lent.add([held]))
        with pytest.raises(FrameRefused, match=r"50 bytes.*limits\.memory"):
            asyncio.run(lent.add([more]))
        assert len(calls) == asked
    finally:
        os.close(held)
        os.close(more)
