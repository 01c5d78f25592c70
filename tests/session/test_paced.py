"""Looks that are taken again and again."""

from __future__ import annotations

import asyncio

import pytest

from sandbox_kernel.session.paced import SHARE, Paced


def test_each_look_is_followed_by_a_pause_that_its_length_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    async def follow() -> tuple[list[float], int]:
        loop, waits, looks = asyncio.get_running_loop(), list[float](), 0

        def wait(delay_s: float, call: object, *arguments: object) -> asyncio.Handle:
            waits.append(delay_s)
            return loop.call_soon(call, *arguments)  # type: ignore[arg-type]

        def look() -> asyncio.Future[float] | None:
            nonlocal looks
            looks += 1
            if looks == 1:
                return None
            done = loop.create_future()
            done.set_result({2: 0.001, 3: 0.2}.get(looks, 0.0))
            if looks == 4:
                paced.stop()
            return done

        monkeypatch.setattr(loop, "call_later", wait)
        paced = Paced(loop, look, lambda: 0.25)
        for _ in range(20):
            await asyncio.sleep(0)
        return waits, looks

    waits, looks = asyncio.run(follow())
    assert waits == [0.25, 0.25, 0.25, 0.2 / SHARE] and looks == 4
