"""One sandbox with the variables that live in it: requests in, messages out, life and death.

Runs on one asyncio loop and is not safe from other threads. It knows nothing of Jupyter: whoever uses it gives a
`Sink` for what the worker shows.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ..channel import schema
from ..confine.launch import ZygoteLink as Zygote
from ..confine.probes import outside_proofs
from ..errors import IsolationUnavailable, ProtocolError, SandboxError, WorkerLost
from ..policy import Policy
from ..report import describe_exit
from .link import WorkerLink
from .proofs import host_pid, judge, judge_outside

__all__ = ["Interrupted", "Session", "Sink", "Zygote"]

START_S = 60.0  # until the zygote is ready, and until a worker is ready
_EXIT_NEWS_S = 2.0  # between the end of a channel and the zygote's word why
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


class Interrupted(SandboxError):
    """The person interrupted before the cell could begin."""


class _Pending:
    def __init__(self, op: str, future: asyncio.Future[dict[str, Any]]) -> None:
        self.op, self.future = op, future


class Session:
    """A confined worker that is replaced when it is lost.

    Args:
        zygote: the running zygote's link, or the error that says why there is none.
        policy: limits and grace times.
        sink: receives what the worker shows.
    """

    def __init__(self, zygote: Zygote | SandboxError, policy: Policy, sink: Sink) -> None:
        self.policy = policy
        self.level = ""
        self.proofs: list[dict[str, Any]] = []
        self.details: dict[str, Any] = {}
        self.execution_count = 1
        self.finished: OrderedDict[str, None] = OrderedDict()
        self._zygote = zygote if not isinstance(zygote, SandboxError) else None
        self.failed: SandboxError | None = zygote if isinstance(zygote, SandboxError) else None
        self._sink = sink
        self._worker: WorkerLink | None = None
        self._greeting: schema.Ready | None = None
        self._number = 0
        self._pending: dict[str, _Pending] = {}
        self._executing = ""
        self._last_executed = ""
        self._interrupts = 0
        self._signal_sent: asyncio.Future[None] | None = None
        self._stop: asyncio.Future[None] | None = None
        self._escalation: asyncio.TimerHandle | None = None
        self._cause: SandboxError | None = None
        self._closing = False

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to listen to the zygote on this loop; returns at once."""
        self._loop = loop
        self._ready: asyncio.Future[WorkerLink] = self._loop.create_future()
        self._ready.add_done_callback(_quiet)
        if self._zygote is not None:
            self._loop.add_reader(self._zygote.fileno(), self._zygote_readable)
            self._start_timer = self._loop.call_later(
                START_S, self._fail, IsolationUnavailable("auto", "start", f"no sandbox within {START_S:g} s")
            )

    # ------------------------------------------------------------ requests

    async def request(
        self, op: str, request_id: str, fields: Mapping[str, Any], buffers: Sequence[bytes | memoryview] = ()
    ) -> dict[str, Any]:
        """Send one request and wait for its reply.

        Returns:
            the reply's content with known fields only (see `schema.check_reply`).

        Raises:
            Interrupted: interrupted while the sandbox was still starting.
            SandboxError: no sandbox, or the worker was lost before it replied.
        """
        if self._signal_sent is not None:
            # An interrupt of the cell before is on its way; it must land before this request does.
            await asyncio.wait([self._signal_sent], timeout=_EXIT_NEWS_S)
        if op == "execute":
            self._executing = self._last_executed = request_id
            self._interrupts = 0
        try:
            worker = await self._get_worker(stoppable=op == "execute")
            future: asyncio.Future[dict[str, Any]] = self._loop.create_future()
            self._pending[request_id] = _Pending(op, future)
            worker.send({"op": op, "id": request_id, **fields}, buffers)
            return await future
        finally:
            self._pending.pop(request_id, None)
            self.finished[request_id] = None
            while len(self.finished) > _REMEMBERED:
                self.finished.popitem(last=False)
            if op == "execute" and self._executing == request_id:
                self._executing = ""
                self._disarm()

    async def _get_worker(self, *, stoppable: bool) -> WorkerLink:
        if self.failed is not None:
            raise self.failed
        if self._worker is None and self.level:
            self._fork()  # the last attempt failed; try once for each request
        if not self._ready.done():
            ready, stop = self._ready, self._loop.create_future()
            if stoppable:
                self._stop = stop
            await asyncio.wait([ready, stop], return_when=asyncio.FIRST_COMPLETED)
            if not ready.done():
                raise Interrupted("The cell was interrupted while the sandbox was starting; it did not begin.")
            return ready.result()
        return self._ready.result()

    def send(self, message: dict[str, Any]) -> None:
        """Send a message that has no reply (an answer to `input()`)."""
        if self._worker is not None:
            self._worker.send(message)

    @property
    def busy(self) -> bool:
        """True while a request waits for its reply."""
        return bool(self._pending)

    def interrupt(self) -> None:
        """Interrupt the running cell; with nothing running this does nothing.

        The first interrupt is SIGINT for the worker and the children of its cell. After a second one the cell has
        `limits.interrupt_grace` seconds; then its process is replaced.
        """
        if not self._executing:
            return
        self._interrupts += 1
        if self._worker is None or not self._ready.done():
            if self._stop is not None and not self._stop.done():
                self._stop.set_result(None)
            return
        if self._zygote is not None and self._signal_sent is None:
            self._signal_sent = self._loop.create_future()
            self._zygote.signal(self._worker.number, signal.SIGINT, group=True)
        if self._interrupts >= 2 and self._escalation is None:
            self._escalation = self._loop.call_later(self.policy.limits.interrupt_grace, self._escalate)

    def _escalate(self) -> None:
        self._escalation = None
        if self._executing and self._worker is not None:
            grace = self.policy.limits.interrupt_grace
            self._kill(WorkerLost(f"the cell went on for {grace:g} s after a second interrupt, so it was ended"))

    def _disarm(self) -> None:
        if self._escalation is not None:
            self._escalation.cancel()
            self._escalation = None

    # ------------------------------------------------------------ the worker's life

    def _fork(self) -> None:
        if self._zygote is None:
            return
        self._number += 1
        number = self._number
        self._cause = self._greeting = None
        self._worker = WorkerLink(
            self._loop, number, on_message=self._message, on_raw=self._raw,
            on_broken=lambda error: self._broken(number, error), pressed=self._sink.pressed,
        )  # fmt: skip
        self._zygote.fork(number, self._worker.far_ends())
        self._worker.start()
        self._start_timer = self._loop.call_later(START_S, self._too_slow, number)

    def _too_slow(self, number: int) -> None:
        if self._worker is not None and self._worker.number == number:
            self._kill(WorkerLost(f"it was not ready within {START_S:g} s"))

    def _kill(self, cause: SandboxError) -> None:
        if self._worker is None or self._zygote is None:
            return
        if self._cause is None:
            self._cause = cause
        self._zygote.kill(self._worker.number)

    def _broken(self, number: int, error: ProtocolError | None) -> None:
        """The channel ended or carried nonsense."""
        if self._worker is None or self._worker.number != number:
            return
        if error is not None:
            self._kill(error)
            return
        # End of file: usually the worker died and the zygote says why in a moment. A worker that only closed
        # its channel is of no use any more.
        self._loop.call_later(
            _EXIT_NEWS_S, self._kill_number, number, WorkerLost("it closed its connection to the kernel")
        )

    def _kill_number(self, number: int, cause: SandboxError) -> None:
        if self._worker is not None and self._worker.number == number:
            self._kill(cause)

    def _exited(self, number: int, status: int) -> None:
        worker = self._worker
        if worker is None or worker.number != number or self._zygote is None:
            return
        self._start_timer.cancel()
        worker.drain()
        self._sink.flush()
        # Whatever the dead worker's cell started must not live on beside the next worker.
        self._zygote.kill(number)
        self._worker = None
        worker.close()
        error = self._cause or WorkerLost(describe_exit(status))
        self._cause = None
        self._lose(error)
        if not self._closing:
            self._fork()

    def _lose(self, error: SandboxError) -> None:
        self._disarm()
        self.execution_count = 1
        if self._signal_sent is not None and not self._signal_sent.done():
            self._signal_sent.set_result(None)
        self._signal_sent = None
        if not self._ready.done():
            self._ready.set_exception(error)
        self._ready = self._loop.create_future()
        self._ready.add_done_callback(_quiet)
        waiting, self._pending = self._pending, {}
        for pending in waiting.values():
            if not pending.future.done():
                pending.future.set_exception(error)
        if not self._closing:
            self._sink.lost(error)

    def _fail(self, error: SandboxError) -> None:
        """No sandbox: every request is refused from now on with this error."""
        if self.failed is None:
            self.failed = error
        self._start_timer.cancel()
        if self._zygote is not None:
            self._loop.remove_reader(self._zygote.fileno())
            self._zygote.close()
            self._zygote = None
        if self._worker is not None:
            self._worker.close()
            self._worker = None
        if not self._ready.done():
            self._ready.set_exception(self.failed)
        self._lose(self.failed)

    # ------------------------------------------------------------ news from the zygote

    def _zygote_readable(self) -> None:
        if self._zygote is None:
            return
        try:
            events = self._zygote.receive()
        except EOFError:
            self._fail(
                self.failed
                or WorkerLost("the sandbox's first process ended, and with it everything inside; restart the kernel")
            )
            return
        for event in events:
            self._event(event)

    def _event(self, event: dict[str, Any]) -> None:
        kind = event.get("event")
        if kind == "ready":
            self._start_timer.cancel()
            self.level, self.details = event["level"], event.get("details", {})
            # Below `full` the zygote supervises from outside the wall; its workers are checked in `_worker_ready`.
            seen = outside_proofs(event["pid"], self.level) if self.level == "full" else []
            self.proofs = [*event.get("proofs", ()), *seen]
            problem = judge(self.level, self.proofs)
            if problem is not None:
                self._fail(problem)
            else:
                self._fork()
        elif kind == "failed":
            if event["last"] and self._zygote is not None:
                self._fail(self._zygote.unavailable())
        elif kind == "forked":
            if self._worker is not None and self._worker.number == event["worker"]:
                self._worker.pidfd = event["fds"].pop()
                self._worker_ready(None)
            for fd in event["fds"]:
                os.close(fd)
        elif kind == "fork_failed":
            if self._worker is not None and self._worker.number == event["worker"]:
                self._worker.close()
                self._worker = None
                self._start_timer.cancel()
                self._lose(WorkerLost(f"no new process could be made for it ({event['error']})"))
        elif kind == "signalled":
            if self._signal_sent is not None and not self._signal_sent.done():
                self._signal_sent.set_result(None)
            self._signal_sent = None
        elif kind == "exit":
            self._exited(event["worker"], event["status"])

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
        elif isinstance(message, schema.InputRequest):
            if message.parent not in self._pending:
                return  # the cell that asked is over; nobody could be asked for it
            self._sink.ask(message)
        else:
            self._worker_ready(message)

    def _worker_ready(self, message: schema.Ready | None) -> None:
        """Called with the worker's greeting, and again when the zygote's word about the fork has come."""
        if self._worker is None or self._ready.done():
            if message is not None:
                raise ProtocolError("a second greeting")
            return
        self._greeting = message or self._greeting
        if self._greeting is None or self._worker.pidfd is None:
            return  # they come by two sockets, in any order
        greeting, self._greeting = self._greeting, None
        seen = outside_proofs(host_pid(self._worker.pidfd), self.level)
        problem = judge_outside(self.level, seen)
        if problem is not None:
            self._fail(problem)
            return
        if self._number == 1 and self.level != "full":
            self.proofs += seen
        self._start_timer.cancel()
        self.execution_count = greeting.execution_count
        self._ready.set_result(self._worker)

    def _reply(self, message: schema.Reply) -> None:
        pending = self._pending.get(message.id)
        if pending is None:
            if message.id in self.finished:
                return  # a reply can be sent twice when an exception hit the worker between sending and noting it
            raise ProtocolError("a reply to a request that was never made")
        content = schema.check_reply(pending.op, message.content)
        self.execution_count = message.execution_count
        if pending.op == "execute" and self._worker is not None:
            self._worker.drain_pipes()
        self._sink.flush()
        if not pending.future.done():
            pending.future.set_result(content)

    # ------------------------------------------------------------ the end

    async def shutdown(self, restart: bool, grace_s: float) -> None:
        """End the worker: softly while it is idle (its exit handlers run), at once when it is busy."""
        self._closing = True
        worker = self._worker
        if worker is not None and not self._pending and self._ready.done():
            future: asyncio.Future[dict[str, Any]] = self._loop.create_future()
            self._pending["shutdown"] = _Pending("shutdown", future)
            worker.send({"op": "shutdown", "id": "shutdown", "restart": restart})
            await asyncio.wait([future], timeout=grace_s)
            _quiet(future)
            worker.drain_pipes()
            self._sink.flush()
        self.close()

    def close(self) -> None:
        """Kill everything inside and release every descriptor; idempotent."""
        self._closing = True
        if self._zygote is not None:
            self._loop.remove_reader(self._zygote.fileno())
            self._zygote.close()
            self._zygote = None
        if self._worker is not None:
            self._worker.close()
            self._worker = None


def _quiet(future: asyncio.Future[Any]) -> None:
    """Mark a future's exception as seen (nobody may be waiting for it)."""
    if future.done() and not future.cancelled():
        future.exception()
