"""Cells of several shells at the same time: limits for each, and a worker that lies about them."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

from sandbox_kernel.errors import (
    LimitReached,
    MemoryLimit,
    OutputLimit,
    ProtocolError,
    SandboxError,
    TimeLimit,
    WorkerLost,
)
from sandbox_kernel.policy import Limits

from .test_session import ERROR, Run, Setting, run

__all__ = ["run"]

Task = asyncio.Task[dict[str, Any]]


async def begin(s: Setting, name: str, shell: str = "", op: str = "execute") -> Task:
    """A request that the worker has just received."""
    fields = {"content": {"code": "", "silent": False}, "msg_type": "comm_msg"}
    task = asyncio.create_task(s.session.request(op, name, fields, shell=shell))
    while not s.zygote.workers:
        await asyncio.sleep(0)
    while (await s.worker.receive()).get("id") != name:
        pass
    return task


def reply(s: Setting, name: str, **content: Any) -> None:
    whole = {"status": "ok", "execution_count": 1, "user_expressions": {}, "payload": [], **content}
    s.worker.send(type="reply", id=name, content=whole, execution_count=2)


def text(s: Setting, name: str, what: str) -> None:
    s.worker.send(type="stream", parent=name, name="stdout", text=what)


async def failed(task: Task) -> SandboxError:
    with pytest.raises(SandboxError) as caught:
        await task
    return caught.value


def test_replies_reach_their_requests_in_any_order(run: Run) -> None:
    async def test(s: Setting) -> None:
        tasks = {name: await begin(s, name, shell) for name, shell in (("m", ""), ("a", "A"), ("b", "B"))}
        for name in "bma":
            reply(s, name, user_expressions={name: {}})
        for name, task in tasks.items():
            assert list((await task)["user_expressions"]) == [name]

    run(Limits(), test)


def test_the_time_limit_holds_on_a_subshell_and_interrupts_nothing_else(run: Run) -> None:
    async def test(s: Setting) -> None:
        late = await begin(s, "a", "A")
        assert (await s.worker.receive()) == {"op": "interrupt", "shell": "A", "request": "a"}
        shown = {name: ERROR[name] for name in ("ename", "evalue", "traceback")}
        s.worker.send(type="publish", parent="a", msg_type="error", content=shown)
        reply(s, "a", **ERROR)
        error = await failed(late)
        assert isinstance(error, TimeLimit) and error.state == "kept"
        assert s.sink.of("error") == [] and signal.SIGINT not in s.zygote.signals and s.zygote.killed == []

    run(Limits(cell_time=0.1), test)


@pytest.mark.parametrize("op", ["execute", "comm"])
def test_what_goes_on_on_a_subshell_costs_the_worker_and_all_hear_why(run: Run, op: str) -> None:
    async def test(s: Setting) -> None:
        late = await begin(s, "a", "A", op)
        await asyncio.sleep(0.1)
        bystander = await begin(s, "m")
        error, other = await failed(late), await failed(bystander)
        assert isinstance(error, TimeLimit) and error.state == "lost"
        assert isinstance(other, WorkerLost) and "another cell" in str(other) and other.state == "lost"

    run(Limits(cell_time=0.3, interrupt_grace=0.1), test)


def test_the_memory_limit_is_everybody_s(run: Run) -> None:
    async def test(s: Setting) -> None:
        tasks = [await begin(s, "m"), await begin(s, "a", "A")]
        s.session._over(MemoryLimit(5 << 30, 4 << 30), False)
        for task in tasks:
            assert isinstance(await failed(task), MemoryLimit)

    run(Limits(), test)


def test_the_output_of_a_subshell_is_bounded_by_itself(run: Run) -> None:
    async def test(s: Setting) -> None:
        main, side = await begin(s, "m"), await begin(s, "a", "A")
        for _ in range(30):
            text(s, "a", "x" * 1000)
        text(s, "m", "mine")
        assert (await s.worker.receive())["op"] == "interrupt"
        reply(s, "a", **ERROR)
        assert isinstance(await failed(side), OutputLimit)
        reply(s, "m")
        assert (await main)["status"] == "ok"
        assert "mine" in s.sink.of("stdout")

    run(Limits(text=10_000, output=10_000, output_total=20_000), test)


def test_a_lie_about_the_cell_moves_the_charge_and_lifts_no_limit(run: Run) -> None:
    async def test(s: Setting) -> None:
        side = await begin(s, "a", "A")
        for name in ("nobody", "earlier", "", "a"):  # no cell of the main shell runs: all of it is the subshell's
            text(s, name, "x" * 10_000)
        assert (await s.worker.receive())["request"] == "a"
        reply(s, "a", **ERROR)
        assert isinstance(await failed(side), OutputLimit)

    run(Limits(text=10_000, output=10_000, output_total=30_000), test)


def test_processor_time_is_counted_from_each_cell_s_beginning(run: Run) -> None:
    async def test(s: Setting) -> None:
        dog = s.session.watchdog
        main, side = await begin(s, "m"), await begin(s, "a", "A")
        dog.culprits = frozenset({"a"})
        s.session._over(TimeLimit(2, 1, rule="limits.cell_cpu"), True)
        assert (await s.worker.receive())["request"] == "a"
        reply(s, "a", **ERROR)
        assert isinstance(await failed(side), LimitReached)
        reply(s, "m")
        assert (await main)["status"] == "ok"

    run(Limits(), test)


def test_an_interrupt_spares_subshells_until_it_is_the_second_and_nothing_else_runs(run: Run) -> None:
    async def test(s: Setting) -> None:
        main, side = await begin(s, "m"), await begin(s, "a", "A")
        s.session.interrupt()
        assert s.zygote.signals == [signal.SIGINT]
        reply(s, "m", **ERROR)
        await main
        s.session.interrupt()
        assert s.zygote.signals == [signal.SIGINT], "the main shell is idle"
        s.session.interrupt()
        assert (await s.worker.receive())["request"] == "a"
        error = await failed(side)
        assert isinstance(error, WorkerLost) and "second interrupt" in str(error)

    run(Limits(interrupt_grace=0.1), test)


def test_each_worker_is_told_of_the_subshells(run: Run) -> None:
    async def test(s: Setting) -> None:
        s.session.set_subshells(["A", "B"])
        task = asyncio.create_task(s.session.request("execute", "m", {"content": {}}))
        while not s.zygote.workers:
            await asyncio.sleep(0)
        assert (await s.worker.receive()) == {"op": "subshells", "ids": ["A", "B"]}
        assert signal.SIGURG in s.zygote.signals
        await s.worker.receive()
        s.session.set_subshells(["B"])
        assert (await s.worker.receive())["ids"] == ["B"]
        s.zygote.exit(9)
        assert isinstance(await failed(task), WorkerLost)
        task = asyncio.create_task(s.session.request("execute", "n", {"content": {}}, shell="B"))
        while len(s.zygote.workers) < 2:
            await asyncio.sleep(0)
        assert (await s.worker.receive())["ids"] == ["B"]
        assert (await s.worker.receive())["shell"] == "B"
        reply(s, "n")
        await task

    run(Limits(), test)


# ---------------------------------------------------------------- a worker that lies


def test_a_reply_to_nobody_ends_the_worker_for_all_shells(run: Run) -> None:
    async def test(s: Setting) -> None:
        tasks = [await begin(s, "m"), await begin(s, "a", "A")]
        reply(s, "never-asked")
        for task in tasks:
            error = await failed(task)
            assert isinstance(error, ProtocolError) and error.state == "lost"

    run(Limits(), test)


def test_a_reply_of_another_request_s_shape_is_refused(run: Run) -> None:
    async def test(s: Setting) -> None:
        tasks = [await begin(s, "c", "A", "complete"), await begin(s, "m")]
        reply(s, "c")  # what belongs to a cell
        for task in tasks:
            assert isinstance(await failed(task), ProtocolError)

    run(Limits(), test)


def test_a_second_reply_changes_nothing_and_many_are_an_attack(run: Run) -> None:
    async def test(s: Setting) -> None:
        first = await begin(s, "a", "A")
        other = await begin(s, "b", "B")
        reply(s, "a", user_expressions={"first": {}})
        reply(s, "a", user_expressions={"second": {}})
        assert list((await first)["user_expressions"]) == ["first"]
        for _ in range(20):
            reply(s, "a")
        assert isinstance(await failed(other), ProtocolError)

    run(Limits(), test)


def test_a_question_for_another_shell_s_finished_cell_is_not_asked(run: Run) -> None:
    async def test(s: Setting) -> None:
        done = await begin(s, "a", "A")
        reply(s, "a")
        await done
        task = await begin(s, "m")
        for parent in ("a", "nobody", "m"):
            s.worker.send(type="input_request", parent=parent, serial=1, prompt=parent, password=True)
        reply(s, "m")
        await task
        assert s.sink.of("ask") == ["m"]

    run(Limits(), test)


def test_thousands_of_messages_for_finished_requests_do_not_hold_up_a_cell(run: Run) -> None:
    async def test(s: Setting) -> None:
        done = await begin(s, "a", "A")
        reply(s, "a")
        await done
        task = await begin(s, "m")
        content = {"data": {"text/plain": "x"}, "metadata": {}, "transient": {}}
        for _ in range(1500):
            await s.worker.send_all(type="publish", parent="a", msg_type="display_data", content=content)
        await s.worker.send_all(
            type="reply", id="m", content={"status": "ok", "execution_count": 1, "user_expressions": {}, "payload": []},
            execution_count=2,
        )  # fmt: skip
        assert (await task)["status"] == "ok"
        assert len(s.sink.of("display_data")) <= 200

    run(Limits(messages=200), test)
