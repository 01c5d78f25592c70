"""`AsyncSandbox`: on the caller's loop, with coroutine functions and cancellation."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sandbox_kernel import AsyncSandbox, AsyncSandboxPool
from sandbox_kernel.errors import IsolationUnavailable

Test = Callable[[AsyncSandbox], Awaitable[None]]


def run(test: Test) -> None:
    async def main() -> None:
        async with AsyncSandbox() as box:
            await test(box)

    asyncio.run(asyncio.wait_for(main(), 55))


def test_calls_wait_for_each_other() -> None:
    async def test(box: AsyncSandbox) -> None:
        await box.put("xs", [])
        await asyncio.gather(*(box.run_code(f"xs.append({n})") for n in range(5)))
        assert sorted(await box.get("xs")) == [0, 1, 2, 3, 4]

    run(test)


def test_callbacks_may_be_coroutine_functions_and_are_called_in_order() -> None:
    async def test(box: AsyncSandbox) -> None:
        heard: list[str] = []

        async def hear(text: str) -> None:
            await asyncio.sleep(0.01)
            heard.append(text)

        ex = await box.run_code("for i in range(5): print(i)", on_stdout=hear)
        assert "".join(heard) == ex.stdout == "0\n1\n2\n3\n4\n"
        with pytest.raises(ZeroDivisionError):
            await box.run_code("x = 5; print(1); import time; time.sleep(60)", on_stdout=lambda _: 1 / 0)
        assert await box.get("x") == 5

    run(test)


def test_a_cancelled_call_leaves_no_cell_behind() -> None:
    async def test(box: AsyncSandbox) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await box.run_code("x = 1\nimport time; time.sleep(60)")
        assert box.status()["state"] == "idle"
        assert (await box.run_code("x")).results[0].text == "1"
        stubborn = "import time\nwhile True:\n    try: time.sleep(60)\n    except BaseException: pass"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await box.run_code(stubborn)
        assert (await box.run_code("6 * 7")).results[0].text == "42"

    run(test)


def test_a_large_value_whose_sender_is_cancelled_leaves_no_descriptor() -> None:
    big = bytes(2 << 20)

    def packed() -> int:
        found = 0
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(FileNotFoundError):
                found += os.readlink(f"/proc/self/fd/{name}").startswith("/memfd:")
        return found

    async def test(box: AsyncSandbox) -> None:
        await box.run_code("def f(x): pass")
        before = packed()
        sends: list[Callable[[], Awaitable[object]]] = [
            lambda: box.put("x", big), lambda: box.call("f", big), lambda: box.run_code("", inputs={"x": big}),
            lambda: box.put_file("x.bin", big),
        ]  # fmt: skip
        for number in range(30):
            task = asyncio.ensure_future(sends[number % 4]())
            for _ in range(1 + number % 3):  # in the first of these it goes to a thread that packs it
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
        await asyncio.sleep(0.5)
        assert packed() == before

    run(test)


def test_cells_run_in_the_order_of_their_calls() -> None:
    async def test(box: AsyncSandbox) -> None:
        await box.run_code("seen = []")
        await asyncio.gather(
            box.run_code("seen.append(x)", inputs={"x": 1}), box.run_code("seen.append(2)"), box.put("last", 3)
        )
        assert await box.get("seen") == [1, 2]

    run(test)


@pytest.mark.parametrize("late", [False, True])
def test_a_fork_that_is_cancelled_leaves_no_copy_behind(late: bool) -> None:
    async def test(box: AsyncSandbox) -> None:
        session = await box._started()
        checkpoints, loop = session.checkpoints, asyncio.get_running_loop()
        task = asyncio.ensure_future(asyncio.sleep(0))
        ask, copy = checkpoints._ask, checkpoints._copy

        async def asked(*request: Any) -> Any:
            answer = await ask(*request)
            if not late:
                loop.call_soon(task.cancel)  # it waits for the copy to be adopted
            return answer

        async def copied(**options: Any) -> Any:
            made = await copy(**options)
            if late:
                task.cancel()  # it is made, and nobody has it yet
            return made

        checkpoints._ask, checkpoints._copy = asked, copied  # type: ignore[method-assign]
        task = asyncio.ensure_future(box.fork())  # type: ignore[arg-type]
        await asyncio.wait([task])
        assert task.cancelled()
        assert not [copy for copy in checkpoints._copies._all.values() if copy.branch]

    run(test)


def test_an_adoption_that_is_cancelled_leaves_no_copy_behind() -> None:
    async def test(box: AsyncSandbox) -> None:
        await box.run_code("x = 1")
        branch = await box.fork()
        await branch.run_code("x = 2")
        here, there = (await box._started()).checkpoints, (await branch._started()).checkpoints
        pids, take, settle = [], there._copies.take, here.settle

        def taken(copy: Any = None) -> Any:
            pids.append(copy.pid)
            return take(copy)

        async def settled() -> None:
            task.cancel()  # while it waits for a copy of its own that is being made
            await settle()
            await asyncio.sleep(0)

        there._copies.take, here.settle = taken, settled  # type: ignore[method-assign]
        task = asyncio.ensure_future(box.adopt(branch))
        await asyncio.wait([task])
        here.settle = settle  # type: ignore[method-assign]
        assert task.cancelled() and len(pids) == 1
        for _ in range(50):
            if not os.path.exists(f"/proc/{pids[0]}"):
                break
            await asyncio.sleep(0.1)
        else:
            raise AssertionError("the copy is there still")
        assert (await box.get("x"), await branch.get("x")) == (1, 2)

    run(test)


def test_the_loop_goes_on_meanwhile() -> None:
    async def test(box: AsyncSandbox) -> None:
        cell = asyncio.create_task(box.run_code("import time; time.sleep(0.5); x = 1"))
        ticks = 0
        while not cell.done():
            await asyncio.sleep(0.02)
            ticks += 1
        assert ticks > 10

    run(test)


def test_a_start_that_fails_is_told_again() -> None:
    async def main() -> None:
        box = AsyncSandbox(level="in-process")
        for _ in range(2):
            with pytest.raises(IsolationUnavailable):
                await box.run_code("1")
        await box.close()

    asyncio.run(main())


class TestPool:
    def test_everybody_gets_a_fresh_one(self) -> None:
        taken: list[AsyncSandbox] = []

        async def work(pool: AsyncSandboxPool, number: int) -> str | None:
            async with await pool.acquire() as box:
                taken.append(box)
                ex = await box.run_code("'x' in globals()")
                await box.run_code(f"x = {number}")
                return ex.results[0].text

        async def main() -> None:
            async with AsyncSandboxPool(2, modules={"host": {"N": 4}}) as pool:
                waits = asyncio.create_task(pool.acquire())
                await asyncio.sleep(0)
                waits.cancel()  # whoever gives up loses no sandbox
                with pytest.raises(asyncio.CancelledError):
                    await waits
                assert await asyncio.gather(*(work(pool, number) for number in range(3))) == ["False"] * 3
                assert all(box.closed for box in taken) and len(set(taken)) == 3
                box = await pool.acquire()
            with pytest.raises(RuntimeError, match="closed"):
                await pool.acquire()
            async with box:
                assert (await box.run_code("import host\nhost.N")).results[0].text == "4", "it outlives the pool"

        asyncio.run(asyncio.wait_for(main(), 55))

    def test_what_cannot_start_is_an_error_for_who_asks(self) -> None:
        async def main() -> None:
            async with AsyncSandboxPool(1, level="in-process") as pool:
                with pytest.raises(IsolationUnavailable):
                    await pool.acquire()

        asyncio.run(main())
        with pytest.raises(ValueError, match="size"):
            AsyncSandboxPool(0)
