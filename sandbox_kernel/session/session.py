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
from ..errors import LimitReached, ProtocolError, RequestTooLarge, SandboxError, WorkerLost
from ..policy import Policy
from .checkpoints import Checkpoints
from .debugging import Debugging
from .exchange import Exchange
from .files import FileGate
from .limits import short_error, short_reply
from .link import WorkerLink
from .run import Pending, Run, Runs
from .sink import Sink
from .supervisor import Interrupted, Supervisor, quiet
from .watchdog import Watchdog

__all__ = ["Interrupted", "Plan", "Session", "Sink", "Zygote"]

_REMEMBERED, _STARTUP = 1000, "startup"
_REPEATS = 10  # of one reply: what an exception in the worker, between sending and noting it, may cause
# Requests that limits hold for, one at a time: they run code of the cells, or the worker may say that they do.
CELLS = frozenset({"execute", *schema.VALUE_OPS})
_STIRRING = CELLS | {"comm"}  # what may change the variables


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
        files: takes new files out of the private layer.
        output, clock: of the main shell's cells: what is shown, and their time.
    """

    def __init__(
        self, zygote: Zygote | SandboxError, policy: Policy, sink: Sink, *, workspace: str = "",
        record: Callable[[str], None] = lambda _text: None,
    ) -> None:  # fmt: skip
        self.policy, self.debugging = policy, Debugging(self.request, policy.limits)
        self.supervisor = Supervisor(
            zygote, on_message=self.debugging.before(self._message), on_raw=self._raw, on_lost=self._lost,
            pressed=self._pressed, on_zygote=self._watch,
        )  # fmt: skip
        self.checkpoints = Checkpoints(
            policy.recovery.checkpoints == "on", policy.limits.memory, self.supervisor,
            ask=lambda number, fds: self.request("checkpoint", f"checkpoint-{number}", {}, fds=fds),
            made=lambda copy, pid: self.watchdog.copied(copy.pid, pid),
        )  # fmt: skip
        self.watchdog = Watchdog(policy.limits, on_breach=self._over, relieve=self.checkpoints.relieve)
        self._runs = Runs(policy.limits, self.supervisor, sink, record)
        self.output, self.clock = self._runs.main.output, self._runs.main.clock
        self._subshells: list[str] = []
        self._introduced: object = self  # the worker that knows of the subshells
        self.exchange = Exchange(policy.limits.frame, self.clock, self.supervisor)
        self._workspace, self._sink, self.files = workspace, sink, FileGate()
        self._untold: SandboxError | None = None  # a loss that no cell was there to report
        self._pending: dict[str, Pending] = {}
        self._finished: OrderedDict[str, int] = OrderedDict()
        self._last_executed = ""
        self.turn = self._interrupts = 0
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
        """Whether a cell runs on the main shell."""
        return bool(self._executing)

    @property
    def _executing(self) -> str:
        return self._runs.main.id

    def set_subshells(self, names: Sequence[str]) -> None:
        """From now on the worker, and each that comes after it, has these subshells."""
        self._subshells, worker = list(names), self.supervisor.worker
        if worker is not None and self.supervisor.ready:
            self._introduced = None
            self._introduce(worker)

    def _introduce(self, worker: WorkerLink) -> None:
        """Name the subshells to a worker that does not know of them."""
        if self._introduced is None or (self._introduced is not worker and self._subshells):
            worker.send({"op": "subshells", "ids": self._subshells})
            self.supervisor.urge()
        self._introduced = worker

    # ------------------------------------------------------------ requests

    async def request(
        self, op: str, request_id: str, fields: Mapping[str, Any], buffers: Sequence[bytes | memoryview] = (), *,
        fds: Sequence[int] = (), time_s: float = 0.0, shell: str = "",
    ) -> dict[str, Any]:  # fmt: skip
        """Send one request and wait for its reply.

        Args:
            fds: descriptors that go with it; the caller closes them afterwards.
            time_s: what it may take, besides the limit of the policy; 0: no further limit.
            shell: one of the subshells; "" for the main shell.

        Returns:
            the reply's content with known fields only (see `schema.check_reply`).

        Raises:
            Interrupted: the cell was interrupted while the sandbox was still starting.
            RequestTooLarge: it cannot be sent.
            SandboxError: no sandbox, or the worker was lost before it replied.
        """
        cell, main = op in CELLS, op in CELLS and not shell
        if main:
            self.turn, self._interrupts, self._last_executed = self.turn + 1, 0, request_id
            self.exchange.begin(request_id)
        if cell:
            await self.checkpoints.hurry()
        if main and self._interrupts:
            raise Interrupted("The cell was interrupted before it began.")
        if op in _STIRRING:
            self.checkpoints.began()
        run = self._runs.begin(request_id, shell, cell=cell) if cell or shell else None
        try:
            worker = await self.supervisor.get_worker(stoppable=main)
            self._introduce(worker)
            future: asyncio.Future[dict[str, Any]] = self._loop.create_future()
            self._pending[request_id] = Pending(op, future, shell)
            if op == "execute" and main:
                self.supervisor.counting = bool(fields.get("content", {}).get("store_history", True))
                self._tell_loss(request_id, fields)
            where = {"shell": shell} if shell else {}
            try:
                worker.send({"op": op, "id": request_id, **where, **fields}, buffers, fds)
            except FrameTooLarge as error:
                raise RequestTooLarge(str(error)) from error
            if run is not None:
                run.start_clock(self._loop, time_s)
            if cell:
                self.watchdog.cell_began(request_id)
            content = await future
            limit = run.limit if run is not None else None
            limit = limit or (self.watchdog.last_look() if cell else None)
            if limit is not None and run is not None and not run.ended_before(content):
                raise limit
            return content
        except SandboxError as error:
            if main and error.state in ("lost", "restored"):
                self._untold = None  # this error tells it
            raise
        finally:
            self._pending.pop(request_id, None)
            self._finished[request_id] = 0
            while len(self._finished) > _REMEMBERED:
                self._finished.popitem(last=False)
            if run is not None and run.id == request_id:
                self._runs.end(run)
                self.supervisor.counting = self.supervisor.counting and not main
            if main:
                self.exchange.end()
            if cell:
                self.watchdog.cell_ended(request_id)
            if main or not self._busy:
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
        widget, which run code of the cells, too. Subshells are spared (JEP 91), unless nothing runs on the main shell
        and it is the second interrupt.
        """
        if not self._busy or turn not in (None, self.turn):
            return
        self._interrupts += 1
        if self._executing or not all(pending.shell for pending in self._pending.values()):
            self.output.hurry()
            self.supervisor.interrupt()
        elif self._interrupts >= 2:
            for run in self._runs.beside.values():
                run.output.hurry()
                self._runs.interrupt(run)
        if self._interrupts >= 2 and self._escalation is None and self.supervisor.ready:
            self._escalation = self._loop.call_later(self.policy.limits.interrupt_grace, self._escalate)

    @property
    def _busy(self) -> bool:
        return bool(self._executing or self._pending) and not self._closing

    def _escalate(self) -> None:
        self._escalation = None
        if self._busy:
            grace = self.policy.limits.interrupt_grace
            self._runs.culprit = self._runs.main if self._executing else None
            self.supervisor.kill(
                WorkerLost(f"the cell went on for {grace:g} s after a second interrupt, so it was ended")
            )

    def _disarm(self) -> None:
        if self._escalation is not None:
            self._escalation.cancel()
            self._escalation = None

    # ------------------------------------------------------------ limits

    def _watch(self, ready: dict[str, Any]) -> None:
        details = ready.get("details", {})
        workspace = [self._workspace] * (self.policy.files.workspace == "read-write")
        folders, memory_folders = [details.get("scratch", ""), *workspace], None
        if count := len(ready.get("folders", ())):
            memory_folders, ready["fds"] = ready["fds"][:count], ready["fds"][count:]
            if ready.get("layers"):
                self.files = FileGate.open(memory_folders[-1], self._workspace, self.policy.files.keep)
        self.watchdog.start(
            self._loop, ready["pid"], folders=folders, uid=details.get("uid", -1), memory_folders=memory_folders
        )

    def _over(self, error: LimitReached, gently: bool) -> None:
        self._runs.over(error, self.watchdog.culprits, gently=gently)

    def _tell_loss(self, request_id: str, fields: Mapping[str, Any]) -> None:
        """Say at the beginning of a cell that the variables were lost since the last one."""
        content = fields.get("content")
        if self._untold is not None and not (isinstance(content, Mapping) and content.get("silent")):
            self._sink.stream(request_id, "stderr", f"{self._untold.explain()}\n")
            self._untold = None

    def _pressed(self) -> bool:
        # A worker that goes beyond its pace is made to wait. Between cells, while somebody waits for a reply, it may
        # not: the reply stands behind what it writes. (For that of a comm message nobody waits.)
        cells = self._runs.cells()
        paced = bool(cells) or all(pending.op == "comm" for pending in self._pending.values())
        return self._sink.pressed() or (paced and any(run.output.must_wait() for run in cells or [self._runs.main]))

    # ------------------------------------------------------------ news from the worker

    def _raw(self, name: str, text: str) -> None:
        self._text(self._runs.charged(self._executing).id or self._last_executed, name, text, len(text))

    def _message(self, message: schema.Message, buffers: list[memoryview], size: int) -> None:
        if isinstance(message, schema.Stream):
            self._text(message.parent, message.name, message.text, size)
        elif isinstance(message, schema.Publish):
            self._publish(message, buffers, size)
        elif isinstance(message, schema.Reply):
            self._reply(message, size)
        elif isinstance(message, schema.InputRequest) and message.parent in self._pending:
            # (For a cell that is over there is nobody to ask.)
            self._runs.charged(message.parent).output.charge(size)
            self._sink.ask(message)
        elif isinstance(message, (schema.Room, schema.Value, schema.HostCall)):
            self.output.charge(0 if isinstance(message, schema.Value) else size)
            self.exchange.receive(message, buffers)

    def _text(self, parent: str, name: str, text: str, size: int) -> None:
        run = self._runs.charged(parent)
        run.output.text(parent, name, text, size)
        self._judge_output(run)

    def _judge_output(self, run: Run) -> None:
        error = run.output.excess() if run.id and run.limit is None else None
        if error is not None:
            self._runs.over(error, (run.id,), gently=True)

    def _publish(self, message: schema.Publish, buffers: list[memoryview], size: int) -> None:
        copies = [bytes(b) for b in buffers]
        run = self._runs.charged(message.parent)
        if message.msg_type != "error" or message.parent != run.id or run.error_shown is not None:
            run.output.message(message, copies, size)
            self._judge_output(run)
            return
        # The cell's last word.
        if run.limit is not None:
            return  # the KeyboardInterrupt that the limit caused; the limit's own error is told instead
        run.output.release()
        if size > run.output.room():
            message.content = short_error(message.content)
        run.error_shown = (message.content.get("ename"), message.content.get("evalue"))
        self._sink.publish(message, copies)

    def _reply(self, message: schema.Reply, size: int) -> None:
        pending = self._pending.get(message.id)
        if pending is None or pending.future.done():
            known = pending is not None or message.id == _STARTUP
            repeats = self._finished.get(message.id, 0 if known else _REPEATS)
            if repeats < _REPEATS:
                self._finished[message.id] = repeats + 1
                return  # sent twice: an exception hit the worker between sending and noting it
            raise ProtocolError("a reply to a request that was never made, or that was answered long ago")
        content = schema.check_reply(pending.op, message.content)
        self.supervisor.counted(pending.op, message.execution_count)
        if pending.op in ("execute", "call") and self.supervisor.worker is not None:
            self.supervisor.worker.drain_pipes()
        if pending.op == "execute":
            output = self._runs.charged(message.id).output
            content = short_reply(content, size, output.room(), output.rule)
            output.release()
        self._sink.flush()
        pending.future.set_result(content)

    def _lost(self, error: SandboxError) -> None:
        self._disarm()
        for run in self._runs.running():
            run.disarm()
            if run.cell:
                run.output.release()
        self.exchange.end()
        self._sink.flush()
        if error.state == "lost" and self.checkpoints.reason:
            error.data["why_lost"] = f"There was no copy to bring them back from: {self.checkpoints.reason}."
        self.checkpoints.renewed(error)
        self._loop.call_soon(self.checkpoints.changed)
        if self.supervisor.failed is None:
            self.watchdog.renewed()
        else:
            self.watchdog.close()
        told = self._runs.lost(error)
        cell = self._pending.get(self._executing)
        hears = cell is not None and not cell.future.done()  # else it has replied, or was not sent yet
        if not hears and self._last_executed and self.supervisor.failed is None:
            self._untold = told("")
        self._finished.pop(_STARTUP, None)
        waiting, self._pending = self._pending, {}
        for request_id, pending in waiting.items():
            if not pending.future.done():
                pending.future.set_exception(told(request_id))
        if not self._closing:
            self._sink.lost(told(""))

    # ------------------------------------------------------------ the end

    def forget_loss(self) -> None:
        """The worker was lost on purpose: the next cell need not begin with the news."""
        self._untold = None

    async def shutdown(self, restart: bool, grace_s: float) -> None:
        """End the worker: softly while it is idle (its exit handlers run), at once when it is busy."""
        self._closing = True
        await self.checkpoints.close(grace_s)
        worker = self.supervisor.worker
        if worker is not None and self.supervisor.ready and not self._pending:
            future: asyncio.Future[dict[str, Any]] = self._loop.create_future()
            future.add_done_callback(quiet)
            self._pending["shutdown"] = Pending("shutdown", future)
            worker.send({"op": "shutdown", "id": "shutdown", "restart": restart})
            await asyncio.wait([future], timeout=grace_s)
            worker.drain_pipes()
            self._sink.flush()
        self.watchdog.close()
        self.supervisor.close()
        self.files.close()
