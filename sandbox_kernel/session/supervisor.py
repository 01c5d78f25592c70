"""The life of the workers: fork, greeting, proofs, death, replacement. Talks to the zygote.

Runs on one asyncio loop and is not safe from other threads.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from typing import Any

from ..channel import schema
from ..errors import IsolationUnavailable, ProtocolError, SandboxError, WorkerLost
from ..launch.cgroup import Cgroup
from ..proof.probes import outside_proofs
from ..report import describe_exit
from .copies import Copies, Copy
from .family import Event, Seat
from .link import WorkerLink
from .proofs import has_ended, judge, judge_outside

WAKE_S = 5.0  # until a copy that is woken is ready
START_S = 60.0  # until the zygote is ready, and until a worker is ready
EXIT_NEWS_S = 2.0  # between the end of a channel and the zygote's word why


class Interrupted(SandboxError):
    """The person interrupted before the cell could begin."""


class Supervisor:
    """Keeps one worker alive.

    Args:
        zygote: this session's share of the zygote, or the error that says why there is none.
        on_message: called with each message of the worker but its greeting, its buffers and its size in bytes.
        on_raw: called with ``("stdout" | "stderr", text)`` for what came by the pipes.
        on_lost: called when the worker is gone, after everything that it sent was handed on.
        pressed: while it is true nothing is read from the worker.
        on_zygote: called with the zygote's greeting once the sandbox is proven, before the first worker is forked;
            what it takes out of the greeting's "fds" it must close.

    Attributes:
        failed: set when there will never be a worker (again); the error for every request.
        level, proofs, details: what the zygote reported, judged.
        worker: the worker's link; it takes requests once `ready`.
        counting: whether a cell runs that has the next number for itself, whatever becomes of it.
        copies: sleeping copies of the worker; there once the sandbox is. before_wake: called before one is chosen.
        first_request: sent to each new worker before anything else.
        group: that the sandbox is put into once it is proven, and that ends with it; None: there is none.
    """

    def __init__(
        self, zygote: Seat | SandboxError, *,
        on_message: Callable[[schema.Message, list[memoryview], int], None],
        on_raw: Callable[[str, str], None],
        on_lost: Callable[[SandboxError], None],
        pressed: Callable[[], bool],
        on_zygote: Callable[[dict[str, Any]], None] = lambda _ready: None,
    ) -> None:  # fmt: skip
        self.failed = zygote if isinstance(zygote, SandboxError) else None
        self.level = ""
        self.proofs: list[dict[str, Any]] = []
        self.details: dict[str, Any] = {}
        self.execution_count = 1
        self.counting = self._closing = False
        self.first_request: dict[str, Any] | None = None
        self.group: Cgroup | None = None
        self.worker: WorkerLink | None = None
        self._zygote = None if isinstance(zygote, SandboxError) else zygote
        self._on_message, self._on_raw, self._on_lost, self._pressed = on_message, on_raw, on_lost, pressed
        self._on_zygote = on_zygote
        self.before_wake: Callable[[SandboxError], None] = lambda _error: None  # that cost the worker
        self.copies: Copies | None = None
        self._waking: tuple[Copy, SandboxError] | None = None  # and the error that cost the last worker
        self._greeting: schema.Ready | None = None
        self._cause: SandboxError | None = None
        self._chosen: Copy | None = None  # that is to go on in the worker's place
        self._signal_sent: asyncio.Future[None] | None = None
        self._stop: asyncio.Future[None] | None = None
        self._dying: asyncio.Future[None] | None = None  # done when the worker that was killed is gone
        self._start_timer: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to listen to the zygote on this loop; returns at once."""
        self._loop = loop
        self._new_ready()
        if self._zygote is not None:
            self._zygote.listen(loop, self._event, self._fail)
            error = IsolationUnavailable("auto", "start", f"no sandbox within {START_S:g} s")
            self._start_timer = loop.call_later(START_S, self._fail, error)

    def _new_ready(self) -> None:
        self._ready: asyncio.Future[WorkerLink] = self._loop.create_future()
        self._ready.add_done_callback(quiet)

    @property
    def ready(self) -> bool:
        """Whether the worker takes requests."""
        return self.worker is not None and self._ready.done() and not self.doomed

    @property
    def doomed(self) -> bool:
        """Whether the worker was killed and is not gone yet: what it says now comes too late."""
        return self._dying is not None

    def counted(self, op: str, count: int) -> None:
        """Note the number of the next cell, out of a reply. Debug requests are answered beside the cells: no news."""
        if op != "debug":
            self.execution_count = count

    async def get_worker(self, *, stoppable: bool) -> WorkerLink:
        """The worker, once it is ready.

        Args:
            stoppable: whether `stop_waiting` ends this wait.

        Raises:
            Interrupted: by `stop_waiting`.
            SandboxError: there is no sandbox, or the worker was lost before it was ready.
        """
        if self._signal_sent is not None:
            # An interrupt of the cell before is on its way; it must land before the next request does.
            await asyncio.wait([self._signal_sent], timeout=EXIT_NEWS_S)
        if self._dying is not None:
            # It is killed for a request that it has answered meanwhile: the next must not be lost with it.
            await self._wait(self._dying, stoppable=stoppable)
        if self.failed is not None:
            raise self.failed
        if self.worker is None and self.level:
            self._fork()  # the last attempt failed; try once for each request
        ready = self._ready
        await self._wait(ready, stoppable=stoppable)
        return ready.result()

    async def _wait(self, news: asyncio.Future[Any], *, stoppable: bool) -> None:
        if news.done():
            return
        stop = self._loop.create_future()
        if stoppable:
            self._stop = stop
        await asyncio.wait([news, stop], return_when=asyncio.FIRST_COMPLETED)
        if not news.done():
            raise Interrupted("The cell was interrupted while the sandbox was starting; it did not begin.")

    def _gone(self) -> None:
        """There is no worker any more."""
        self.worker = None
        if self._dying is not None and not self._dying.done():
            self._dying.set_result(None)
        self._dying = None

    def interrupt(self) -> None:
        """SIGINT for the worker and the children of its cell; before the worker is ready, end the wait for it."""
        if not self.ready:
            if self._stop is not None and not self._stop.done():
                self._stop.set_result(None)
        elif self._zygote is not None and self.worker is not None and self._signal_sent is None:
            self._signal_sent = self._loop.create_future()
            self._zygote.signal(self.worker.number, signal.SIGINT, group=True)

    def urge(self) -> None:
        """Have the channel read even while a cell holds the worker's main thread (SIGURG, see the worker)."""
        if self._zygote is not None and self.worker is not None:
            self._zygote.signal(self.worker.number, signal.SIGURG)

    def kill(self, cause: SandboxError, number: int | None = None, *, wake: Copy | None = None) -> None:
        """Kill the worker (only if it is still this one); `cause` is what its user is told.

        Args:
            wake: the copy that goes on in its place, when that is not to be the newest.
        """
        if self.worker is None or self._zygote is None or number not in (None, self.worker.number):
            return
        if self._cause is None:
            self._cause = cause
        if self._dying is None:
            self._dying = self._loop.create_future()
        self._chosen = wake
        self._zygote.kill(self.worker.number)

    def abandon(self, error: SandboxError) -> None:
        """As `close`; who waits for a worker, or asks for one later, gets this error."""
        self._fail(error)

    def next_number(self) -> int:
        """A number for a new worker."""
        assert self._zygote is not None  # noqa: S101
        return self._zygote.next_number()

    def close(self) -> None:
        """Kill everything inside and release every descriptor; idempotent."""
        self._closing = True
        self._cancel_timer()
        if self.copies is not None:
            self.copies.close()
        if self._zygote is not None:
            zygote, self._zygote = self._zygote, None
            zygote.close()
        if self.group is not None:
            self.group.close()
        if self.worker is not None:
            self.worker.close()
        self._gone()

    # ------------------------------------------------------------ birth

    def _fork(self) -> None:
        if self._zygote is None or self._closing:
            return
        number = self.next_number()
        self._cause = self._greeting = None
        self.worker = WorkerLink(
            self._loop, number, on_message=self._message, on_raw=self._on_raw,
            on_broken=lambda error: self._broken(number, error), pressed=self._pressed,
        )  # fmt: skip
        self._zygote.worker = number
        self._zygote.fork(number, self.worker.far_ends())
        self.worker.start()
        if self.first_request is not None:
            self.worker.send(self.first_request)
        error = WorkerLost(f"it was not ready within {START_S:g} s")
        self._start_timer = self._loop.call_later(START_S, self.kill, error, number)

    def _message(self, message: schema.Message, buffers: list[memoryview], size: int) -> None:
        if isinstance(message, schema.Reply) and self.doomed:
            return  # its request hears of the loss instead, once it is known what is lost
        if not isinstance(message, schema.Ready):
            self._on_message(message, buffers, size)
        elif self._ready.done() or self._greeting is not None:
            raise ProtocolError("a second greeting")
        else:
            self._greeting = message
            self._meet()

    def _meet(self) -> None:
        """Take the worker into service once its greeting and the zygote's word about the fork have come.

        They come by two sockets, in any order. Before the first request the front looks at it from outside.
        """
        if self.worker is None or self._greeting is None or self.worker.pidfd is None or self._ready.done():
            return
        seen = outside_proofs(self.worker.pid, self.level)
        problem = judge_outside(self.level, seen)
        if problem is not None:
            if not has_ended(self.worker.pidfd):  # (else the zygote says so in a moment)
                self._fail(problem)
            return
        if self.worker.number == 1 and self.level != "full":
            self.proofs += seen
        self._cancel_timer()
        if self._waking is not None:
            copy, error = self._waking
            self._waking = None
            error.restore(copy.cell, time.monotonic() - copy.made, copy.lost, names=copy.names)
            self._signalled()
            self._on_lost(error)
        self.execution_count = max(self.execution_count, self._greeting.execution_count)
        self._ready.set_result(self.worker)

    # ------------------------------------------------------------ death

    def _broken(self, number: int, error: ProtocolError | None) -> None:
        """The channel ended or carried nonsense."""
        if error is not None:
            self.kill(error, number)
            return
        # End of file: usually the worker died and the zygote says why in a moment. A worker that only closed its
        # channel is of no use any more.
        cause = WorkerLost("it closed its connection to the kernel")
        self._loop.call_later(EXIT_NEWS_S, self.kill, cause, number)

    def _exited(self, number: int, status: int) -> None:
        worker = self.worker
        if worker is None or worker.number != number or self._zygote is None:
            return
        worker.drain()
        self._zygote.kill(number)  # what the dead worker's cells started must not live on beside the next worker
        self._gone()
        worker.close()
        error = self._cause or self._zygote.family.breach(status) or WorkerLost(describe_exit(status))
        error.data.setdefault("status", os.waitstatus_to_exitcode(status))
        self._cause = None
        if self._waking is not None:  # what was to replace it did not wake either
            error, self._waking = self._waking[1], None
        chosen, self._chosen = self._chosen, None
        self.before_wake(error)
        copy = self.copies.take(chosen) if self.copies is not None else None
        if copy is not None:
            self._wake(copy, error)
        else:
            self._lose(error)
            self._fork()

    def _wake(self, copy: Copy, error: SandboxError) -> None:
        """Let a copy go on in the lost worker's place; `error` is told once it does, or there is none left."""
        self._waking = (copy, error)
        self._go_on(copy, error)

    def begin_as(self, copy: Copy, parent: Supervisor) -> None:
        """Begin with a copy of another session's worker in place of a fresh one; after `start`."""
        assert self._zygote is not None  # noqa: S101
        self.level, self.details, self.proofs = parent.level, parent.details, parent.proofs
        self.execution_count = parent.execution_count
        self.copies = Copies(self._loop, self._zygote, self.level)
        self._go_on(copy, WorkerLost(f"the copy that it was to begin with was not ready within {WAKE_S:g} s"))

    def _go_on(self, copy: Copy, error: SandboxError) -> None:
        assert self._zygote is not None  # noqa: S101
        self._cancel_timer()
        if self._ready.done():
            self._new_ready()
        self._greeting, self.worker, self._zygote.worker = None, copy.link, copy.number
        number = copy.number
        copy.link.hand_over(
            on_message=self._message, on_raw=self._on_raw, pressed=self._pressed,
            on_broken=lambda error: self._broken(number, error),
        )  # fmt: skip
        self._zygote.wake(number)
        copy.link.send({"op": "wake", "id": f"wake-{number}", "execution_count": self.execution_count + self.counting})
        self._start_timer = self._loop.call_later(WAKE_S, self.kill, error, number)

    def _lose(self, error: SandboxError) -> None:
        self._cancel_timer()
        self._signalled()
        self.execution_count = 1
        if not self._ready.done():
            self._ready.set_exception(error)
        self._new_ready()
        self._on_lost(error)

    def _fail(self, error: SandboxError) -> None:
        """No sandbox: every request is refused from now on with this error."""
        if self.failed is None:
            self.failed = error
        self.close()
        self._lose(self.failed)

    def _cancel_timer(self) -> None:
        if self._start_timer is not None:
            self._start_timer.cancel()
            self._start_timer = None

    # ------------------------------------------------------------ news from the zygote

    def _event(self, event: Event) -> None:
        kind = event["event"]
        if kind == "ready":
            self._zygote_ready(event)
        elif kind == "failed":
            if event["last"] and self._zygote is not None:
                self._fail(self._zygote.unavailable())
        elif kind == "signalled":
            if event["signal"] == signal.SIGINT:
                self._signalled()
        elif (self.copies is not None and self.copies.event(event)) or (
            self.worker is None or self.worker.number != event["worker"]
        ):
            return
        elif kind == "forked":
            self.worker.pidfd, self.worker.pid = event["fds"].pop(), event["host_pid"]
            self._meet()
        elif kind == "fork_failed":
            self.worker.close()
            self._gone()
            self._lose(WorkerLost(f"no new process could be made for it ({event['error']})"))
        elif kind == "exit":
            self._exited(event["worker"], event["status"])

    def _zygote_ready(self, event: dict[str, Any]) -> None:
        self._cancel_timer()
        self.level, self.details = event["level"], event.get("details", {})
        # Below `full` the zygote supervises from outside the wall; its workers are looked at when they are met.
        seen = outside_proofs(event["pid"], self.level) if self.level == "full" else []
        self.proofs = [*event.get("proofs", ()), *seen]
        problem = judge(self.level, self.proofs)
        if problem is not None:
            self._fail(problem)
        else:
            assert self._zygote is not None  # noqa: S101
            self.copies = Copies(self._loop, self._zygote, self.level)
            self._on_zygote(event)
            if self.group is not None:
                self._zygote.family.group = self.group
                self.details = {**self.details, "notes": [*self.details.get("notes", ()), self.group.add(event["pid"])]}
            self._fork()

    def _signalled(self) -> None:
        if self._signal_sent is not None and not self._signal_sent.done():
            self._signal_sent.set_result(None)
        self._signal_sent = None


def quiet(future: asyncio.Future[Any]) -> None:
    """Mark a future's exception as seen (nobody may be waiting for it)."""
    if future.done() and not future.cancelled():
        future.exception()
