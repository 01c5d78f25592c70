"""One sandbox with the variables that live in it: requests in, messages out, interrupts.

Runs on one asyncio loop and is not safe from other threads. It knows nothing of Jupyter: whoever uses it gives a
`Sink` for what the worker shows.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ..channel import schema
from ..confine.launch import ZygoteLink as Zygote
from ..errors import ProtocolError, SandboxError, WorkerLost
from ..policy import Policy
from .supervisor import Interrupted, Supervisor, quiet

__all__ = ["Interrupted", "Session", "Sink", "Zygote"]

_REMEMBERED = 1000


class Sink(Protocol):
    """What the session tells its user. The texts in it come from the worker: hostile until gated."""

    def stream(self, parent: str, name: str, text: str) -> None:
        """Text for standard output or error."""

    def publish(self, message: schema.Publish, buffers: list[bytes]) -> None:
        """A display, result, error or comm message."""

    def ask(self, message: schema.InputRequest) -> None:
        """Code of the cell waits for a line of input."""

    def flush(self) -> None:
        """Everything up to here must be on its way before the next reply."""

    def lost(self, error: SandboxError) -> None:
        """The worker is gone, and with it the variables."""

    def pressed(self) -> bool:
        """True while the client is too slow; the worker is made to wait."""


class _Pending:
    def __init__(self, op: str, future: asyncio.Future[dict[str, Any]]) -> None:
        self.op, self.future = op, future


class Session:
    """A confined worker that is replaced when it is lost.

    Args:
        zygote: the running zygote's link, or the error that says why there is none.
        policy: limits and grace times.
        sink: receives what the worker shows.

    Attributes:
        execution_count: the number that the next cell will have.
    """

    def __init__(self, zygote: Zygote | SandboxError, policy: Policy, sink: Sink) -> None:
        self.policy = policy
        self.supervisor = Supervisor(
            zygote, on_message=self._message, on_raw=self._raw, on_lost=self._lost, pressed=sink.pressed
        )
        self._sink = sink
        self._pending: dict[str, _Pending] = {}
        self._finished: OrderedDict[str, None] = OrderedDict()
        self._executing = ""
        self._last_executed = ""
        self._interrupts = 0
        self._escalation: asyncio.TimerHandle | None = None
        self._closing = False

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to serve on this loop; returns at once."""
        self._loop = loop
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
        self, op: str, request_id: str, fields: Mapping[str, Any], buffers: Sequence[bytes | memoryview] = ()
    ) -> dict[str, Any]:
        """Send one request and wait for its reply.

        Returns:
            the reply's content with known fields only (see `schema.check_reply`).

        Raises:
            Interrupted: the cell was interrupted while the sandbox was still starting.
            SandboxError: no sandbox, or the worker was lost before it replied.
        """
        if op == "execute":
            self._executing = self._last_executed = request_id
            self._interrupts = 0
        try:
            worker = await self.supervisor.get_worker(stoppable=op == "execute")
            future: asyncio.Future[dict[str, Any]] = self._loop.create_future()
            self._pending[request_id] = _Pending(op, future)
            worker.send({"op": op, "id": request_id, **fields}, buffers)
            return await future
        finally:
            self._pending.pop(request_id, None)
            self._finished[request_id] = None
            while len(self._finished) > _REMEMBERED:
                self._finished.popitem(last=False)
            if op == "execute" and self._executing == request_id:
                self._executing = ""
                self._disarm()

    def send(self, message: dict[str, Any]) -> None:
        """Send a message that has no reply (an answer to `input()`)."""
        if self.supervisor.worker is not None:
            self.supervisor.worker.send(message)

    def interrupt(self) -> None:
        """Interrupt the running cell; with nothing running this does nothing.

        The first interrupt is SIGINT for the worker and the children of its cell. After a second one the cell has
        `limits.interrupt_grace` seconds; then its process is replaced.
        """
        if not self._executing:
            return
        self._interrupts += 1
        self.supervisor.interrupt()
        if self._interrupts >= 2 and self._escalation is None and self.supervisor.ready:
            self._escalation = self._loop.call_later(self.policy.limits.interrupt_grace, self._escalate)

    def _escalate(self) -> None:
        self._escalation = None
        if self._executing:
            grace = self.policy.limits.interrupt_grace
            self.supervisor.kill(
                WorkerLost(f"the cell went on for {grace:g} s after a second interrupt, so it was ended")
            )

    def _disarm(self) -> None:
        if self._escalation is not None:
            self._escalation.cancel()
            self._escalation = None

    # ------------------------------------------------------------ news from the worker

    def _raw(self, name: str, text: str) -> None:
        self._sink.stream(self._executing or self._last_executed, name, text)

    def _message(self, message: schema.Message, buffers: list[bytes]) -> None:
        if isinstance(message, schema.Stream):
            self._sink.stream(message.parent, message.name, message.text)
        elif isinstance(message, schema.Publish):
            self._sink.publish(message, buffers)
        elif isinstance(message, schema.Reply):
            self._reply(message)
        elif isinstance(message, schema.InputRequest) and message.parent in self._pending:
            # (For a cell that is over there is nobody to ask.)
            self._sink.ask(message)

    def _reply(self, message: schema.Reply) -> None:
        pending = self._pending.get(message.id)
        if pending is None:
            if message.id in self._finished:
                return  # sent twice: an exception hit the worker between sending and noting it
            raise ProtocolError("a reply to a request that was never made")
        content = schema.check_reply(pending.op, message.content)
        self.supervisor.execution_count = message.execution_count
        if pending.op == "execute" and self.supervisor.worker is not None:
            self.supervisor.worker.drain_pipes()
        self._sink.flush()
        if not pending.future.done():
            pending.future.set_result(content)

    def _lost(self, error: SandboxError) -> None:
        self._disarm()
        self._sink.flush()
        waiting, self._pending = self._pending, {}
        for pending in waiting.values():
            if not pending.future.done():
                pending.future.set_exception(error)
        if not self._closing:
            self._sink.lost(error)

    # ------------------------------------------------------------ the end

    async def shutdown(self, restart: bool, grace_s: float) -> None:
        """End the worker: softly while it is idle (its exit handlers run), at once when it is busy."""
        self._closing = True
        worker = self.supervisor.worker
        if worker is not None and self.supervisor.ready and not self._pending:
            future: asyncio.Future[dict[str, Any]] = self._loop.create_future()
            future.add_done_callback(quiet)
            self._pending["shutdown"] = _Pending("shutdown", future)
            worker.send({"op": "shutdown", "id": "shutdown", "restart": restart})
            await asyncio.wait([future], timeout=grace_s)
            worker.drain_pipes()
            self._sink.flush()
        self.supervisor.close()
