"""The session against a zygote and a worker that are made up: who ends a cell, and what its user is told."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.channel.framing import PACKET_BYTES, Assembler, encode
from sandbox_kernel.channel.schema import InputRequest, Publish
from sandbox_kernel.errors import (
    IsolationUnavailable,
    MemoryLimit,
    OutputLimit,
    RequestTooLarge,
    SandboxError,
    TimeLimit,
    WorkerLost,
)
from sandbox_kernel.launch.cgroup import Cgroup
from sandbox_kernel.policy import Limits, Policy, Recovery
from sandbox_kernel.session import supervisor
from sandbox_kernel.session.session import Interrupted, Session

ERROR = {"status": "error", "ename": "KeyboardInterrupt", "evalue": "", "traceback": []}


class Sink:
    """Keeps what it gets, in order."""

    def __init__(self) -> None:
        self.got: list[tuple[str, Any]] = []
        self.full = False

    def stream(self, parent: str, name: str, text: str) -> None:
        self.got.append((name, text))

    def publish(self, message: Publish, buffers: list[bytes]) -> None:
        self.got.append((message.msg_type, message.content))

    def ask(self, message: InputRequest) -> None:
        self.got.append(("ask", message.prompt))

    def flush(self) -> None: ...

    def lost(self, error: SandboxError) -> None:
        self.got.append(("lost", error))

    def pressed(self) -> bool:
        return self.full

    def pace(self, seconds: float) -> None: ...

    def of(self, kind: str) -> list[Any]:
        return [what for name, what in self.got if name == kind]


class Worker:
    """Its end of the channel. `number` is the zygote's."""

    def __init__(self, number: int, fds: list[int]) -> None:
        self.number = number
        self.socket = socket.socket(fileno=fds[0])
        self.socket.setblocking(False)
        self.pipes = fds[1:]
        self.request: dict[str, Any] = {}

    def send(self, **message: Any) -> None:
        for packet in encode(message):
            self.socket.send(packet)

    async def send_all(self, **message: Any) -> None:
        for packet in encode(message):
            await asyncio.get_running_loop().sock_sendall(self.socket, packet)

    def text(self, text: str) -> None:
        self.send(type="stream", parent=self.request.get("id", ""), name="stdout", text=text)

    def publish(self, kind: str, content: dict[str, Any]) -> None:
        self.send(type="publish", parent=self.request["id"], msg_type=kind, content=content)

    async def receive(self) -> dict[str, Any]:
        assembler = Assembler()
        while True:
            packet = await asyncio.get_running_loop().sock_recv(self.socket, PACKET_BYTES)
            frame = assembler.feed(packet)
            if frame is not None:
                self.request = json.loads(frame.json)
                return self.request

    def reply(self, **content: Any) -> None:
        whole = {"status": "ok", "execution_count": 1, "user_expressions": {}, "payload": [], **content}
        self.send(type="reply", id=self.request["id"], content=whole, execution_count=2)

    def close(self) -> None:
        self.socket.close()
        for fd in self.pipes:
            os.close(fd)


class Zygote:
    """Forks nothing; remembers what it was asked."""

    def __init__(self) -> None:
        self._ring = os.eventfd(0, os.EFD_NONBLOCK)
        self._events: list[dict[str, Any]] = []
        self.workers: list[Worker] = []
        self.signals: list[int] = []
        self.killed: list[int] = []
        self.dead: list[int] = []
        self.slow = False  # whether what it kills lives on until the test lets it exit
        self.interrupted = asyncio.Event()
        self.process = os.getpid()  # behind the workers' pidfds
        self.tell(event="ready", level="full", pid=os.getpid(), proofs=[], details={}, fds=[])

    def tell(self, **event: Any) -> None:
        self._events.append({"fds": [], **event})
        os.eventfd_write(self._ring, 1)

    def fileno(self) -> int:
        return self._ring

    def receive(self) -> list[dict[str, Any]]:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._ring)
        events, self._events = self._events, []
        return events

    def fork(self, number: int, fds: list[int]) -> None:
        worker = Worker(number, [os.dup(fd) for fd in fds])
        self.workers.append(worker)
        self.tell(event="forked", worker=number, pid=1, fds=[os.pidfd_open(self.process)])
        worker.send(type="ready", python="3", banner="", execution_count=1)

    def signal(self, number: int, what: int, *, group: bool = False) -> None:
        self.signals.append(what)
        self.interrupted.set()
        self.tell(event="signalled", worker=number, signal=what)

    def kill(self, number: int) -> None:
        if number not in self.dead:
            self.killed.append(number)
            if not self.slow:
                self.exit(signal.SIGKILL)

    def exit(self, status: int) -> None:
        self.dead.append(self.workers[-1].number)
        self.workers[-1].close()
        self.tell(event="exit", worker=self.workers[-1].number, status=status)

    def close(self) -> None:
        for worker in self.workers:
            if worker.socket.fileno() >= 0:
                worker.close()
        os.close(self._ring)


class Setting:
    """A session with one running cell."""

    def __init__(self, limits: Limits) -> None:
        self.zygote, self.sink = Zygote(), Sink()
        self.session = Session(self.zygote, Policy(limits=limits, recovery=Recovery(checkpoints="off")), self.sink)  # type: ignore[arg-type]

    @property
    def worker(self) -> Worker:
        return self.zygote.workers[-1]

    async def cell(self, name: str = "cell") -> asyncio.Task[dict[str, Any]]:
        """A cell that the worker has just received."""
        fields = {"content": {"code": "", "silent": False}}
        task = asyncio.create_task(self.session.request("execute", name, fields))
        while not self.zygote.workers:
            await asyncio.sleep(0)
        await self.worker.receive()
        return task


Test = Callable[[Setting], Awaitable[None]]
Run = Callable[[Limits, Test], None]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(supervisor, "outside_proofs", lambda *_args: [])
    monkeypatch.setattr(supervisor, "judge", lambda *_args: None)

    def go(limits: Limits, test: Test) -> None:
        async def main() -> None:
            setting = Setting(limits)
            setting.session.start(asyncio.get_running_loop())
            try:
                await asyncio.wait_for(test(setting), 20)
            finally:
                setting.session.watchdog.close()
                setting.session.supervisor.close()

        asyncio.run(main())

    return go


def test_an_interrupt_at_the_time_limit_becomes_the_limit_s_error(run: Run) -> None:
    async def test(s: Setting) -> None:
        task = await s.cell()
        await s.zygote.interrupted.wait()
        s.worker.publish("error", {"ename": "KeyboardInterrupt", "evalue": "", "traceback": []})
        s.worker.reply(**ERROR)
        with pytest.raises(TimeLimit, match=r"limits.cell_time = 0.1 s") as caught:
            await task
        assert caught.value.state == "kept" and "kept" in caught.value.explain()
        assert s.sink.of("error") == [], "the KeyboardInterrupt is not shown beside it"
        assert s.zygote.killed == []

    run(Limits(cell_time=0.1), test)


def test_a_cell_that_swallows_the_interrupt_and_ends_is_still_over_its_limit(run: Run) -> None:
    async def test(s: Setting) -> None:
        task = await s.cell()
        await s.zygote.interrupted.wait()
        s.worker.reply()
        with pytest.raises(TimeLimit) as caught:
            await task
        assert caught.value.state == "kept"

    run(Limits(cell_time=0.1), test)


def test_a_cell_that_goes_on_is_replaced(run: Run) -> None:
    async def test(s: Setting) -> None:
        task = await s.cell()
        with pytest.raises(TimeLimit, match=r"did not end within 0.1 s of an interrupt") as caught:
            await task
        assert caught.value.state == "lost" and s.zygote.killed == [1]
        task = await s.cell("next")
        s.worker.reply()
        assert (await task)["status"] == "ok" and s.worker.number == 2

    run(Limits(cell_time=0.1, interrupt_grace=0.1), test)


def test_an_error_of_the_cell_itself_stays_what_it_was(run: Run) -> None:
    async def test(s: Setting) -> None:
        task = await s.cell()
        s.worker.publish("error", {"ename": "ValueError", "evalue": "mine", "traceback": []})
        await s.zygote.interrupted.wait()
        s.worker.reply(status="error", ename="ValueError", evalue="mine", traceback=[])
        assert (await task)["ename"] == "ValueError"
        assert len(s.sink.of("error")) == 1

    run(Limits(cell_time=0.1), test)


def test_a_worker_that_dies_of_the_interrupt_was_over_its_limit(run: Run) -> None:
    async def test(s: Setting) -> None:
        task = await s.cell()
        await s.zygote.interrupted.wait()
        s.zygote.exit(signal.SIGINT)
        with pytest.raises(TimeLimit) as caught:
            await task
        assert caught.value.state == "lost"

    run(Limits(cell_time=0.1), test)


def test_the_clock_is_the_cell_s_own(run: Run) -> None:
    async def test(s: Setting) -> None:
        for name in "abcd":
            task = await s.cell(name)
            await asyncio.sleep(0.3)
            s.worker.reply()
            assert (await task)["status"] == "ok"
        await asyncio.sleep(0.3)
        assert s.zygote.signals == []

    run(Limits(cell_time=1.0), test)


def test_memory_kills_at_once_also_during_the_grace(run: Run) -> None:
    async def test(s: Setting) -> None:
        task = await s.cell()
        await s.zygote.interrupted.wait()
        s.session._over(MemoryLimit(5 << 30, 4 << 30), False)
        with pytest.raises(MemoryLimit, match=r"5 GiB.*limits.memory = 4 GiB") as caught:
            await task
        assert caught.value.state == "lost"

    run(Limits(cell_time=0.1, interrupt_grace=5), test)


def test_a_worker_that_is_being_killed_gets_no_more_cells(run: Run) -> None:
    """It answers while its end is under way: the cell that is lost is that one, and only that one."""

    async def test(s: Setting) -> None:
        s.zygote.slow = True
        task = await s.cell("a")
        s.session._over(MemoryLimit(5 << 30, 4 << 30), False)
        s.worker.reply(status="error", ename="MemoryError", evalue="", traceback=[])
        following = asyncio.create_task(s.session.request("complete", "b", {"content": {"code": "", "cursor_pos": 0}}))
        await asyncio.sleep(0.1)
        assert not task.done() and not following.done()
        s.zygote.exit(signal.SIGKILL)
        with pytest.raises(MemoryLimit) as caught:
            await task
        assert caught.value.state == "lost"
        while s.worker.number == 1:
            await asyncio.sleep(0)
        assert (await s.worker.receive())["id"] == "b"
        s.worker.reply(matches=[], cursor_start=0, cursor_end=0, metadata={})
        assert (await following)["status"] == "ok"

    run(Limits(), test)


def test_leftovers_that_were_ended_are_told_in_the_cell_or_by_the_next(run: Run) -> None:
    async def test(s: Setting) -> None:
        for name, between in (("a", False), ("b", True), ("c", None)):
            if between is True:
                s.session._leftovers_ended()
            task = await s.cell(name)
            if between is False:
                s.session._leftovers_ended()
            s.worker.reply()
            await task
            assert len(s.sink.of("stderr")) == {"a": 1, "b": 2, "c": 2}[name], name
        assert "limits.memory = 1 GiB" in s.sink.of("stderr")[1] and "are kept" in s.sink.of("stderr")[1]

    run(Limits(memory=1 << 30), test)


def test_a_loss_between_cells_is_told_by_the_next(run: Run) -> None:
    async def test(s: Setting) -> None:
        task = await s.cell("a")
        s.worker.reply()
        await task
        s.session._over(MemoryLimit(5 << 30, 4 << 30), False)
        while s.worker.number == 1:
            await asyncio.sleep(0.001)
        task = await s.cell("b")
        s.worker.reply()
        await task
        assert "limits.memory" in s.sink.of("stderr")[0] and "lost" in s.sink.of("stderr")[0]
        task = await s.cell("c")
        s.worker.reply()
        await task
        assert len(s.sink.of("stderr")) == 1, "told once"

    run(Limits(), test)


def test_a_loss_right_after_the_reply_is_told_by_the_next(run: Run) -> None:
    async def test(s: Setting) -> None:
        task = await s.cell("a")
        s.worker.reply()
        s.zygote.exit(9 << 8)  # both are read in one turn of the loop, as when a slow client held up the reading
        assert (await task)["status"] == "ok"
        task = await s.cell("b")
        s.worker.reply()
        await task
        assert len(s.sink.of("stderr")) == 1 and "lost" in s.sink.of("stderr")[0]

    run(Limits(), test)


def test_a_loss_that_the_cell_s_error_tells_is_not_told_again(run: Run) -> None:
    async def test(s: Setting) -> None:
        task = await s.cell("a")
        s.zygote.exit(9 << 8)
        with pytest.raises(WorkerLost):
            await task
        task = await s.cell("b")
        s.worker.reply()
        await task
        assert s.sink.of("stderr") == []

    run(Limits(), test)


def test_an_interrupt_while_a_copy_is_made_ends_the_cell_behind_it(run: Run) -> None:
    async def test(s: Setting) -> None:
        made, loop = asyncio.Event(), asyncio.get_running_loop()

        async def hurry() -> None:
            s.session.requests.open(loop, "checkpoint-1", "checkpoint")
            await made.wait()
            s.session.requests.close("checkpoint-1")

        s.session.checkpoints.hurry = hurry  # type: ignore[method-assign]
        task = asyncio.ensure_future(s.session.request("execute", "a", {"content": {}}))
        await asyncio.sleep(0)
        s.session.interrupt(s.session.turn)
        made.set()
        with pytest.raises(Interrupted, match="before it began"):
            await task
        assert not s.session.executing

    run(Limits(), test)


def test_an_interrupt_meant_for_the_cell_before_hits_nothing(run: Run) -> None:
    async def test(s: Setting) -> None:
        task = await s.cell("a")
        meant = s.session.turn
        s.worker.reply()
        await task
        task = await s.cell("b")
        s.session.interrupt(meant)
        assert s.zygote.signals == []
        s.session.interrupt(s.session.turn)
        assert s.zygote.signals == [signal.SIGINT]
        s.worker.reply()
        await task

    run(Limits(), test)


def test_what_cannot_be_sent_is_an_error_and_costs_nothing(run: Run) -> None:
    async def test(s: Setting) -> None:
        task = await s.cell("a")
        s.worker.reply()
        await task
        with pytest.raises(RequestTooLarge, match=r"33,554,432") as caught:
            await s.session.request("execute", "b", {"content": {"code": "x" * (33 << 20)}})
        assert "kept" in caught.value.explain()
        task = await s.cell("c")
        s.session.answer(7, "y" * (33 << 20))
        assert (await s.worker.receive())["op"] == "input_refused"
        s.worker.request = {"id": "c"}
        s.worker.reply()
        assert (await task)["status"] == "ok"

    run(Limits(), test)


def test_the_stream_is_cut_with_its_rule_and_the_amount(run: Run) -> None:
    async def test(s: Setting) -> None:
        task = await s.cell()
        for _ in range(30):
            s.worker.text("x" * 1000)
            await asyncio.sleep(0)
        s.worker.reply()
        assert (await task)["status"] == "ok", "the cell itself goes on"
        assert 8_000 < len("".join(s.sink.of("stdout"))) <= 10_000
        first, last = s.sink.of("stderr")
        assert "limits.output = 9.77 KiB" in first and "KiB of text" in last
        before = s.sink.got[: s.sink.got.index(("stderr", last))]
        assert sum(len(text) for name, text in before if name == "stdout") == 7500, "the head; then the tail"

    run(Limits(output=10_000), test)


def test_displays_beyond_the_limit_are_counted(run: Run) -> None:
    async def test(s: Setting) -> None:
        task = await s.cell()
        for at in range(60):
            s.worker.publish("display_data", {"data": {"text/plain": str(at)}, "metadata": {}})
            await asyncio.sleep(0)
        s.worker.reply()
        await task
        shown = [d["data"]["text/plain"] for d in s.sink.of("display_data")]
        assert shown == [*map(str, range(41)), "56", "57", "58", "59"]
        assert "15 displays" in s.sink.of("stderr")[1]

    run(Limits(messages=50), test)


def test_an_endless_flood_ends_the_cell(run: Run) -> None:
    async def test(s: Setting) -> None:
        task = await s.cell()
        while not s.zygote.signals:
            await s.worker.send_all(type="stream", parent="cell", name="stdout", text="x" * 10_000)
        s.worker.reply(**ERROR)
        with pytest.raises(OutputLimit, match=r"limits.output_total") as caught:
            await task
        assert caught.value.state == "kept"
        assert sum(map(len, s.sink.of("stdout"))) <= 100_000

    run(Limits(output=100_000, output_total=1_000_000), test)


def test_a_flood_that_names_other_requests_is_charged_to_the_cell(run: Run) -> None:
    async def test(s: Setting) -> None:
        task = await s.cell()
        for at in range(100):
            await s.worker.send_all(type="stream", parent=f"made-up-{at}", name="stderr", text="x" * 1000)
        s.worker.reply()
        await task
        assert len("".join(s.sink.of("stderr"))) < 20_500

    run(Limits(output=20_000), test)


def test_one_error_passes_when_the_budget_is_gone_and_only_one(run: Run) -> None:
    async def test(s: Setting) -> None:
        task = await s.cell()
        for _ in range(5):
            error = {"ename": "ValueError", "evalue": "e" * 300_000, "traceback": ["t" * 300_000]}
            await s.worker.send_all(type="publish", parent="cell", msg_type="error", content=error)
        await s.worker.send_all(
            type="reply", id="cell", execution_count=2,
            content={"status": "error", "execution_count": 1, "ename": "ValueError", "evalue": "e" * 3_000_000,
                     "traceback": ["t" * 3_000_000], "user_expressions": {"a": {"x": "y" * 2_000_000}}},
        )  # fmt: skip
        reply = await task
        assert len(s.sink.of("error")) == 1 and len(str(s.sink.of("error")[0])) < 250_000
        assert len(str(reply)) < 250_000 and reply["ename"] == "ValueError"

    run(Limits(output=100_000), test)


def test_questions_beyond_the_pace_make_the_worker_wait(run: Run) -> None:
    async def test(s: Setting) -> None:
        task = await s.cell()

        async def ask() -> None:
            for serial in range(2000):
                await s.worker.send_all(type="input_request", parent="cell", serial=serial, prompt="?", password=False)

        asking = asyncio.create_task(ask())
        await asyncio.sleep(0.5)
        assert 45 <= len(s.sink.of("ask")) < 60
        asking.cancel()
        s.zygote.exit(signal.SIGKILL)
        with pytest.raises(WorkerLost):
            await task

    run(Limits(messages=50), test)


def test_between_cells_a_flood_is_made_to_wait_not_read(run: Run) -> None:
    async def test(s: Setting) -> None:
        task = await s.cell()
        s.worker.reply()
        await task
        sent = 0

        async def flood() -> None:
            nonlocal sent
            while True:
                await s.worker.send_all(type="stream", parent="cell", name="stdout", text="x" * 10_000)
                sent += 1

        flooding = asyncio.create_task(flood())
        await asyncio.sleep(0.5)
        before = sent
        await asyncio.sleep(0.5)
        assert sent - before <= 20, "it waits"
        assert sum(map(len, s.sink.of("stdout"))) <= 300_000  # (100,000 each second)
        # A request must not stand behind it.
        flooding.cancel()
        task = asyncio.create_task(s.session.request("complete", "c", {}))
        await s.worker.receive()
        await s.worker.send_all(
            type="reply", id="c", execution_count=2,
            content={"status": "ok", "matches": [], "cursor_start": 0, "cursor_end": 0},
        )  # fmt: skip
        await asyncio.wait_for(task, 5)

    run(Limits(output=100_000), test)


def test_nothing_below_the_budget_is_lost(run: Run) -> None:
    async def test(s: Setting) -> None:
        task = await s.cell()
        for at in range(900):
            await s.worker.send_all(type="stream", parent="cell", name="stdout", text=f"{at:06}\n" * 10)
        os.write(s.worker.pipes[0], b"by the pipe\n")
        s.worker.reply()
        await task
        text = "".join(s.sink.of("stdout"))
        assert text.startswith("".join(f"{at:06}\n" * 10 for at in range(900))) and text.endswith("by the pipe\n")
        assert s.sink.of("stderr") == []

    run(Limits(output=200_000, messages=2000), test)


def test_a_worker_that_dies_alone_is_a_worker_lost(run: Run) -> None:
    async def test(s: Setting) -> None:
        task = await s.cell()
        s.zygote.exit(signal.SIGSEGV)
        with pytest.raises(WorkerLost, match="SIGSEGV"):
            await task

    run(Limits(cell_time=10), test)


def test_a_completion_that_hangs_can_be_interrupted_and_ended(run: Run) -> None:
    async def test(s: Setting) -> None:
        task = await s.cell()
        s.worker.reply()
        await task
        s.session.interrupt()
        assert s.zygote.signals == [], "nothing runs"
        hanging = asyncio.create_task(s.session.request("complete", "c", {}))
        await s.worker.receive()
        s.session.interrupt()
        await asyncio.sleep(0.05)
        assert s.zygote.signals == [signal.SIGINT] and not hanging.done()
        s.session.interrupt()
        with pytest.raises(WorkerLost):
            await hanging
        task = await s.cell("next")
        s.worker.reply()
        assert (await task)["status"] == "ok"

    run(Limits(interrupt_grace=0.1), test)


@pytest.mark.parametrize("dead", [True, False])
def test_what_is_read_about_a_worker_that_has_died_does_not_count(
    run: Run, monkeypatch: pytest.MonkeyPatch, dead: bool
) -> None:
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)

    async def test(s: Setting) -> None:
        seen = {"layer": "seccomp", "tried": "filter seen from outside", "saw": "filters 0", "ok": False}
        monkeypatch.setattr(supervisor, "outside_proofs", lambda *_args: [seen] if len(s.zygote.workers) == 1 else [])
        s.zygote.process = process.pid
        request = s.session.request("execute", "cell", {"content": {"code": "", "silent": False}})
        task = asyncio.create_task(request)
        if not dead:
            with pytest.raises(IsolationUnavailable, match="filters 0"):
                await task
            return
        assert process.stdin is not None
        process.stdin.close()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        while not s.zygote.workers:
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)  # it is met
        assert s.session.supervisor.failed is None
        s.zygote.process = os.getpid()
        s.zygote.exit(signal.SIGKILL)
        with pytest.raises(WorkerLost):
            await task
        task = await s.cell("next")
        s.worker.reply()
        assert (await task)["status"] == "ok"

    run(Limits(), test)
    process.communicate()


def test_a_zygote_that_ends_ends_the_watch(run: Run) -> None:
    async def test(s: Setting) -> None:
        task = await s.cell()
        s.session.supervisor._fail(WorkerLost("the sandbox's first process ended"))
        with pytest.raises(WorkerLost):
            await task
        assert s.session.watchdog._tree is None

    run(Limits(), test)


def test_what_the_control_group_killed_is_told(run: Run, tmp_path: Path) -> None:
    group = Cgroup(tmp_path, tmp_path, tmp_path / "front", 1024**3)

    async def test(s: Setting) -> None:
        s.session.supervisor.group = group
        task = await s.cell()
        assert (tmp_path / "cgroup.procs").read_text() == str(os.getpid())  # (the zygote's, here)
        (tmp_path / "memory.events").write_text("oom_kill 1\n")
        s.zygote.exit(signal.SIGKILL)
        with pytest.raises(MemoryLimit, match="1 GiB"):
            await task
        task = await s.cell("next")
        s.zygote.exit(signal.SIGKILL)
        with pytest.raises(WorkerLost):
            await task

    run(Limits(), test)
    assert (tmp_path / "cgroup.kill").read_text() == "1"
