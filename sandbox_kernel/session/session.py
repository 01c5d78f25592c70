"""One sandbox with the variables that live in it: requests in, messages out, interrupts, limits.

Runs on one asyncio loop and is not safe from other threads. It knows nothing of Jupyter: whoever uses it gives a
`Sink` for what the worker shows.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..channel import schema
from ..channel.framing import FrameTooLarge
from ..confine.launch import ZygoteLink as Zygote
from ..confine.plan import Plan
from ..errors import LimitReached, ProtocolError, RequestTooLarge, SandboxError, TimeLimit, WorkerLost
from ..policy import Policy
from .checkpoints import Checkpoints
from .clock import Clock
from .limits import short_error, short_reply
from .output import Output
from .sink import Sink
from .supervisor import Interrupted, Supervisor, quiet
from .watchdog import Watchdog

__all__ = ["Interrupted", "Plan", "Session", "Sink", "Zygote"]

_REMEMBERED = 1000
_STARTUP = "startup"
# Requests that limits hold for, one at a time: they run code of the cells, or the worker may say that they do.
CELLS = frozenset({"execute"})
_STIRRING = CELLS | {"comm"}  # what may change the variables


class _Pending:
    def __init__(self, op: str, future: asyncio.Future[dict[str, Any]]) -> None:
        self.op, self.future = op, future


class Session:
    """A confined worker that is replaced when it is lost.

    Args:
        zygote: the running zygote's link, or the error that says why there is none.
        policy: limits and grace times.
        sink: receives what the worker shows.
        workspace: the folder that the cells may write to; "" where there is none.
        record: called with all text of the running cell, shown or not.

    Attributes:
        execution_count: the number that the next cell will have.
        turn: grows by one with each cell; says which one somebody wants to interrupt.
        watchdog: what the sandbox uses.
        output: what of the cells' output is shown.
    """

    def __init__(
        self, zygote: Zygote | SandboxError, policy: Policy, sink: Sink, *, workspace: str = "",
        record: Callable[[str], None] = lambda _text: None,
    ) -> None:  # fmt: skip
        self.policy = policy
        self.supervisor = Supervisor(
            zygote, on_message=self._message, on_raw=self._raw, on_lost=self._lost, pressed=self._pressed,
            on_zygote=self._watch,
        )  # fmt: skip
        self.checkpoints = Checkpoints(
            policy.recovery.checkpoints == "on", policy.limits.memory, self.supervisor,
            ask=lambda number, fds: self.request("checkpoint", f"checkpoint-{number}", {}, fds=fds),
            made=lambda copy, pid: self.watchdog.copied(copy.pid, pid),
        )  # fmt: skip
        self.watchdog = Watchdog(policy.limits, on_breach=self._breach, relieve=self.checkpoints.relieve)
        self.output = Output(policy.limits, sink, record=record)
        self._workspace = workspace
        self._sink = sink
        self._limit: LimitReached | None = None  # that is ending the running cell
        self._limit_timer: asyncio.TimerHandle | None = None
        self.clock = Clock()
        self._error_shown: tuple[object, object] | None = None
        self._untold: SandboxError | None = None  # a loss that no cell was there to report
        self._pending: dict[str, _Pending] = {}
        self._finished: OrderedDict[str, None] = OrderedDict()
        self._executing = ""
        self._last_executed = ""
        self.turn = 0
        self._interrupts = 0
        self._escalation: asyncio.TimerHandle | None = None
        self._closing = False

    def run_first(self, files: Sequence[tuple[str, str]]) -> None:
        """Let each worker run these files (path and text) before its first cell; for before `start`."""
        self.supervisor.first_request = {"op": _STARTUP, "id": _STARTUP, "files": list(files)} if files else None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to serve on this loop; returns at once."""
        self._loop = loop
        self.checkpoints.start(loop)
        self.supervisor.start(loop)

    @property
    def execution_count(self) -> int:
        """The number that the next cell will have."""
        return self.supervisor.execution_count

    @property
    def executing(self) -> bool:
        """Whether a cell runs."""
        return bool(self._executing)

    # ------------------------------------------------------------ requests

    async def request(
        self, op: str, request_id: str, fields: Mapping[str, Any], buffers: Sequence[bytes | memoryview] = (), *,
        fds: Sequence[int] = (), time_s: float = 0.0,
    ) -> dict[str, Any]:  # fmt: skip
        """Send one request and wait for its reply.

        Args:
            fds: descriptors that go with it; the caller closes them afterwards.
            time_s: what it may take, besides the limit of the policy; 0: no further limit.

        Returns:
            the reply's content with known fields only (see `schema.check_reply`).

        Raises:
            Interrupted: the cell was interrupted while the sandbox was still starting.
            RequestTooLarge: it cannot be sent.
            SandboxError: no sandbox, or the worker was lost before it replied.
        """
        cell = op in CELLS
        if cell:
            await self.checkpoints.hurry()
        if op in _STIRRING:
            self.checkpoints.began()
        if cell:
            self.turn += 1
            self._executing = self._last_executed = request_id
            self._interrupts = 0
            self._limit = self._error_shown = None
            self.output.begin(request_id)
        try:
            worker = await self.supervisor.get_worker(stoppable=cell)
            future: asyncio.Future[dict[str, Any]] = self._loop.create_future()
            self._pending[request_id] = _Pending(op, future)
            if op == "execute":
                self.supervisor.counting = bool(fields.get("content", {}).get("store_history", True))
                self._tell_loss(request_id, fields)
            try:
                worker.send({"op": op, "id": request_id, **fields}, buffers, fds)
            except FrameTooLarge as error:
                raise RequestTooLarge(str(error)) from error
            if cell:
                self._start_clocks(time_s)
            content = await future
            limit = (self._limit or self.watchdog.last_look()) if cell else None
            if limit is not None and not self._ended_before(content):
                raise limit
            return content
        except SandboxError as error:
            if cell and error.state in ("lost", "restored"):
                self._untold = None  # this error tells it
            raise
        finally:
            self._pending.pop(request_id, None)
            self._finished[request_id] = None
            while len(self._finished) > _REMEMBERED:
                self._finished.popitem(last=False)
            if cell and self._executing == request_id:
                self._executing = ""
                self._limit, self.supervisor.counting = None, False
                self.output.end()
                self.watchdog.cell_ended()
                self._disarm()
            elif not self._busy:
                self._interrupts = 0
                self._disarm()
            if op in _STIRRING and not any(p.op in _STIRRING for p in self._pending.values()):
                self.checkpoints.changed()

    def answer(self, serial: int, value: str) -> None:
        """Send the person's answer to question `serial`."""
        worker = self.supervisor.worker
        if worker is not None:
            try:
                worker.send({"op": "input_reply", "serial": serial, "value": value})
            except FrameTooLarge as error:
                worker.send({"op": "input_refused", "serial": serial, "reason": str(error)})

    def interrupt(self, turn: int | None = None) -> None:
        """Interrupt what the worker is asked to do; with nothing running this does nothing.

        Args:
            turn: the value of `turn` when the person asked for it. Another cell than that one is not hit.

        The first interrupt is SIGINT for the worker and the children of its cell. After a second one the cell has
        `limits.interrupt_grace` seconds; then its process is replaced. The same for a completion or the callback of a
        widget, which run code of the cells, too.
        """
        if not self._busy or turn not in (None, self.turn):
            return
        self._interrupts += 1
        self.output.hurry()
        self.supervisor.interrupt()
        if self._interrupts >= 2 and self._escalation is None and self.supervisor.ready:
            self._escalation = self._loop.call_later(self.policy.limits.interrupt_grace, self._escalate)

    @property
    def _busy(self) -> bool:
        return bool(self._executing or self._pending) and not self._closing

    def _escalate(self) -> None:
        self._escalation = None
        if self._busy:
            grace = self.policy.limits.interrupt_grace
            self.supervisor.kill(
                WorkerLost(f"the cell went on for {grace:g} s after a second interrupt, so it was ended")
            )

    def _disarm(self) -> None:
        self.clock.stop()
        for timer in (self._escalation, self._limit_timer):
            if timer is not None:
                timer.cancel()
        self._escalation = self._limit_timer = None

    # ------------------------------------------------------------ limits

    def _watch(self, ready: dict[str, Any]) -> None:
        details = ready.get("details", {})
        folders = [details.get("scratch", "")]
        if self.policy.files.workspace == "read-write":
            folders.append(self._workspace)
        memory_folders = None
        if count := len(ready.get("folders", ())):
            memory_folders, ready["fds"] = ready["fds"][:count], ready["fds"][count:]
        self.watchdog.start(
            self._loop, ready["pid"], folders=folders, uid=details.get("uid", -1), memory_folders=memory_folders
        )

    def _start_clocks(self, time_s: float) -> None:
        allowed, rule = self.policy.limits.cell_time, "limits.cell_time"
        if time_s and (not allowed or time_s < allowed):
            allowed, rule = time_s, "timeout"
        if allowed:
            self.clock.start(self._loop, allowed, lambda: self._breach(TimeLimit(allowed, allowed, rule=rule), True))
        self.watchdog.cell_began()

    def _breach(self, error: LimitReached, gently: bool) -> None:
        """End the cell because of a limit: by an interrupt and, after a grace time, by replacing its process.

        Args:
            gently: begin with the interrupt; else the process is killed at once.
        """
        if not gently or not (self._executing and self.supervisor.ready):
            error.lose()
            self._limit = error if self._executing else None
            self.supervisor.kill(error)
        elif self._limit is None:
            self._limit = error
            self.output.hurry()
            self.supervisor.interrupt()
            self._limit_timer = self._loop.call_later(self.policy.limits.interrupt_grace, self._end_hard, error)

    def _end_hard(self, error: LimitReached) -> None:
        self._limit_timer = None
        if self._executing and self._limit is error:
            error.lose(self.policy.limits.interrupt_grace)
            self.supervisor.kill(error)

    def _ended_before(self, content: Mapping[str, Any]) -> bool:
        """Whether the cell had failed by itself when the limit came: its error is already shown."""
        return (content.get("ename"), content.get("evalue")) == self._error_shown

    def _tell_loss(self, request_id: str, fields: Mapping[str, Any]) -> None:
        """Say at the beginning of a cell that the variables were lost since the last one."""
        content = fields.get("content")
        if self._untold is not None and not (isinstance(content, Mapping) and content.get("silent")):
            self._sink.stream(request_id, "stderr", f"{self._untold.explain()}\n")
            self._untold = None

    def _pressed(self) -> bool:
        # A worker that goes beyond its pace is made to wait. Between cells, while somebody waits for a reply, it may
        # not: the reply stands behind what it writes.
        return self._sink.pressed() or ((bool(self._executing) or not self._pending) and self.output.must_wait())

    # ------------------------------------------------------------ news from the worker

    def _raw(self, name: str, text: str) -> None:
        self._text(self._executing or self._last_executed, name, text, len(text))

    def _message(self, message: schema.Message, buffers: list[memoryview], size: int) -> None:
        if isinstance(message, schema.Stream):
            self._text(message.parent, message.name, message.text, size)
        elif isinstance(message, schema.Publish):
            self._publish(message, buffers, size)
        elif isinstance(message, schema.Reply):
            self._reply(message, size)
        elif isinstance(message, schema.InputRequest) and message.parent in self._pending:
            # (For a cell that is over there is nobody to ask.)
            self.output.charge(size)
            self._sink.ask(message)

    def _text(self, parent: str, name: str, text: str, size: int) -> None:
        self.output.text(parent, name, text, size)
        self._judge_output()

    def _judge_output(self) -> None:
        error = self.output.excess() if self._executing and self._limit is None else None
        if error is not None:
            self._breach(error, True)

    def _publish(self, message: schema.Publish, buffers: list[memoryview], size: int) -> None:
        copies = [bytes(b) for b in buffers]
        if message.msg_type != "error" or message.parent != self._executing or self._error_shown is not None:
            self.output.message(message, copies, size)
            self._judge_output()
            return
        # The cell's last word.
        if self._limit is not None:
            return  # the KeyboardInterrupt that the limit caused; the limit's own error is told instead
        self.output.release()
        if size > self.output.room():
            message.content = short_error(message.content)
        self._error_shown = (message.content.get("ename"), message.content.get("evalue"))
        self._sink.publish(message, copies)

    def _reply(self, message: schema.Reply, size: int) -> None:
        pending = self._pending.get(message.id)
        if pending is None:
            if message.id in self._finished or message.id == _STARTUP:
                return  # sent twice: an exception hit the worker between sending and noting it
            raise ProtocolError("a reply to a request that was never made")
        content = schema.check_reply(pending.op, message.content)
        self.supervisor.execution_count = message.execution_count
        if pending.op == "execute":
            if self.supervisor.worker is not None:
                self.supervisor.worker.drain_pipes()
            content = short_reply(content, size, self.output.room(), self.output.rule)
            self.output.release()
        self._sink.flush()
        if not pending.future.done():
            pending.future.set_result(content)

    def _lost(self, error: SandboxError) -> None:
        self._disarm()
        if self._executing:
            self.output.release()
        self._sink.flush()
        if error.state == "lost" and self.checkpoints.reason:
            error.data["why_lost"] = f"There was no copy to bring them back from: {self.checkpoints.reason}."
        self.checkpoints.renewed(error)
        self._loop.call_soon(self.checkpoints.changed)
        if self.supervisor.failed is None:
            self.watchdog.renewed()
        else:
            self.watchdog.close()
        if self._limit is not None and not isinstance(error, LimitReached):
            # The interrupt for the limit ended the whole process: it was another program by then, for example.
            self._limit.lose()
            if error.state == "restored":
                self._limit.state, self._limit.data["restored"] = error.state, error.data["restored"]
            error = self._limit
        cell = self._pending.get(self._executing)
        hears = cell is not None and not cell.future.done()  # else it has replied, or was not sent yet
        if not hears and self._last_executed and self.supervisor.failed is None:
            self._untold = error
        waiting, self._pending = self._pending, {}
        for pending in waiting.values():
            if not pending.future.done():
                pending.future.set_exception(error)
        if not self._closing:
            self._sink.lost(error)

    # ------------------------------------------------------------ the end

    def forget_loss(self) -> None:
        """The worker was lost on purpose: the next cell need not begin with the news."""
        self._untold = None

    def abandon(self, error: SandboxError) -> None:
        """End everything at once; whoever waits for a reply gets this error."""
        self._closing = True
        self.supervisor.abandon(error)

    async def shutdown(self, restart: bool, grace_s: float) -> None:
        """End the worker: softly while it is idle (its exit handlers run), at once when it is busy."""
        self._closing = True
        await self.checkpoints.close(grace_s)
        worker = self.supervisor.worker
        if worker is not None and self.supervisor.ready and not self._pending:
            future: asyncio.Future[dict[str, Any]] = self._loop.create_future()
            future.add_done_callback(quiet)
            self._pending["shutdown"] = _Pending("shutdown", future)
            worker.send({"op": "shutdown", "id": "shutdown", "restart": restart})
            await asyncio.wait([future], timeout=grace_s)
            worker.drain_pipes()
            self._sink.flush()
        self.watchdog.close()
        self.supervisor.close()
