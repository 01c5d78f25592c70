"""One sandbox with the variables that live in it: requests in, messages out, interrupts, limits.

Runs on one asyncio loop and is not safe from other threads. It knows nothing of Jupyter: whoever uses it gives a
`Sink` for what the worker shows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..channel import schema
from ..channel.framing import FrameTooLarge
from ..errors import LimitReached, ProcessLimit, RequestTooLarge, SandboxError, WorkerLost
from ..launch.link import ZygoteLink as Zygote
from ..plan.model import Plan
from ..policy import Policy
from ..report import leftovers_ended
from .aside import Aside
from .checkpoints import Checkpoints
from .debugging import Debugging
from .exchange import Exchange
from .family import Family, Seat
from .files import FileGate
from .incoming import Incoming
from .interrupts import Interrupts
from .link import WorkerLink
from .requests import STARTUP, Requests
from .run import Run, Runs
from .sink import Sink
from .supervisor import Interrupted, Supervisor, quiet
from .watchdog import Watchdog

__all__ = ["Interrupted", "Plan", "Session", "Sink", "Zygote"]

# Requests that limits hold for, one at a time: they run code of the cells, or the worker may say that they do.
CELLS = frozenset({"execute", *schema.VALUE_OPS})
_STIRRING = CELLS | {"comm"}  # what may change the variables


class Session:
    """A confined worker that is replaced when it is lost.

    Args:
        zygote: the running zygote's link, or the error that says why there is none; a seat for a branch.
        policy: limits and grace times.
        sink: receives what the worker shows.
        workspace: the folder that the cells may write to; "" where there is none.
        plans: those of which the zygote took one.
        record: called with all text of the running cell, shown or not.

    Attributes:
        execution_count: the number that the next cell will have.
        requests: those that the worker has.
        interrupts: how far those have come that were asked for.
        seat: its share of the zygote.
        watchdog: what the sandbox uses.
        files: takes new files out of the private layer.
        aside: is given what of them is not kept; None: that ends with the session. To be set before `start`.
        output, clock: of the main shell's cells: what is shown, and their time.
    """

    def __init__(
        self, zygote: Zygote | Seat | SandboxError, policy: Policy, sink: Sink, *, workspace: str = "",
        plans: Sequence[Plan] = (), record: Callable[[str], None] = lambda _text: None,
    ) -> None:  # fmt: skip
        self._plans = plans
        self.policy, self.debugging = policy, Debugging(self.request, policy.limits)
        self.seat = zygote if isinstance(zygote, Seat) else Family(zygote).founder
        self.supervisor = Supervisor(
            zygote if isinstance(zygote, SandboxError) else self.seat, on_lost=self._lost,
            on_message=self.debugging.before(self._message), on_raw=self._raw,
            pressed=self._pressed, on_zygote=self._watch,
        )  # fmt: skip
        self.requests = Requests()
        self.checkpoints = Checkpoints(
            policy.recovery.checkpoints == "on", policy.limits.memory, self.supervisor,
            ask=lambda number, fds: self.request("checkpoint", f"checkpoint-{number}", {}, fds=fds),
            made=lambda copy, pid: self.watchdog.copied(copy.pid, pid),
        )  # fmt: skip
        family = self.seat.family
        self.watchdog = Watchdog(
            policy.limits, on_breach=self._over, relieve=family.relieve, owners=family.processes,
            on_leftovers=self._leftovers_ended, spared=family.spared,
            others_cpu_s=lambda tree: family.others_cpu_s(self.seat, tree),
        )  # fmt: skip
        self.seat.relieve, self.seat.relieved = self.checkpoints.relieve, self.watchdog.renewed
        self.seat.over = lambda error: self._runs.over(error, (), gently=False)
        self._runs = Runs(policy.limits, self.supervisor, sink, record)
        self.output, self.clock = self._runs.main.output, self._runs.main.clock
        self._subshells: list[str] = []
        self._introduced: object = self  # the worker that knows of the subshells
        self.exchange = Exchange(policy.limits, self.clock, self.supervisor, self.checkpoints.drop)
        self._workspace, self._sink, self.files = workspace, sink, FileGate()
        self.aside: Aside | None = None
        self.interrupts = Interrupts(self._runs, self.requests, self.supervisor, policy.limits.interrupt_grace)
        self._incoming = Incoming(self._runs, self.requests, self.supervisor, self.exchange, sink)
        self._untold: SandboxError | None = None  # a loss that no cell was there to report
        self._news = ""  # what else the next cell begins with
        self._closing = False

    def run_first(self, files: Sequence[tuple[str, str]]) -> None:
        """Let each worker run these files (path and text) before its first cell; for before `start`."""
        self.supervisor.first_request = {"op": STARTUP, "id": STARTUP, "files": list(files)} if files else None

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
        return bool(self._runs.main.id)

    @property
    def turn(self) -> int:
        """Grows by one with each cell; says which one somebody wants to interrupt."""
        return self.interrupts.turn

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
        on_cancel: Callable[[asyncio.Future[Any]], None] | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Send one request and wait for its reply.

        Args:
            fds: descriptors that go with it; the caller closes them afterwards.
            time_s: what it may take, besides the limit of the policy; 0: no further limit.
            shell: one of the subshells; "" for the main shell.
            on_cancel: called when the caller is cancelled while the worker has the request; the call ends when that has
                answered. None: it ends at once, and the request goes on.

        Returns:
            the reply's content with known fields only (see `schema.check_reply`).

        Raises:
            Interrupted: the cell was interrupted while the sandbox was still starting.
            RequestTooLarge: it cannot be sent.
            SandboxError: no sandbox, or the worker was lost before it replied.
        """
        cell, main = op in CELLS, op in CELLS and not shell
        if main:
            self._incoming.last_executed = request_id
            self.interrupts.begin()
            self.exchange.begin(request_id)
        if cell:
            await self.checkpoints.hurry()
        if main and self.interrupts.count:
            raise Interrupted("The cell was interrupted before it began.")
        if op in _STIRRING:
            self.checkpoints.began()
        run = self._runs.begin(request_id, shell, cell=cell) if cell or shell else None
        try:
            worker = await self.supervisor.get_worker(stoppable=main)
            self._introduce(worker)
            replied = self.requests.open(self._loop, request_id, op, shell, on_cancel)
            if op == "execute" and main:
                self.supervisor.counting = bool(fields.get("content", {}).get("store_history", True))
                self._tell_loss(request_id, fields)
            where = {"shell": shell} if shell else {}
            try:
                sent_s = time.clock_gettime(time.CLOCK_BOOTTIME)  # the worker may be forking before `send` returns
                worker.send({"op": op, "id": request_id, **where, **fields}, buffers, fds)
            except FrameTooLarge as error:
                raise RequestTooLarge(str(error)) from error
            if run is not None:
                run.start_clock(self._loop, time_s)
            if cell:
                self.watchdog.cell_began(request_id, sent_s)
            return self._judged(run, await replied, cell=cell)
        except SandboxError as error:
            if main and error.state in ("lost", "restored"):
                self._untold = None  # this error tells it
            raise
        finally:
            self._ended(op, request_id, run, main=main)

    def _judged(self, run: Run | None, content: dict[str, Any], *, cell: bool) -> dict[str, Any]:
        """A reply's content, unless the cell ended because of a limit."""
        limit = run.limit if run is not None else None
        limit = limit or (self.watchdog.last_look() if cell else None)
        if limit is not None and run is not None and not run.ended_before(content):
            raise limit
        return content

    def _ended(self, op: str, request_id: str, run: Run | None, *, main: bool) -> None:
        """A request has its answer, whatever it is."""
        self.requests.close(request_id)
        if run is not None and run.id == request_id:
            self._runs.end(run)
            self.supervisor.counting = self.supervisor.counting and not main
        if main:
            self.exchange.end()
        if op in CELLS:
            self.watchdog.cell_ended(request_id)
        if main or not self.interrupts.busy:
            self.interrupts.end()
        if op in _STIRRING and not self.requests.any_of(_STIRRING):
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
        self.interrupts.press(turn)

    # ------------------------------------------------------------ limits

    def _watch(self, ready: dict[str, Any]) -> None:
        details = ready.get("details", {})
        workspace = [self._workspace] * (self.policy.files.workspace == "read-write")
        folders, memory_folders = [details.get("scratch", ""), *workspace], None
        if count := len(ready.get("folders", ())):
            memory_folders, ready["fds"] = ready["fds"][:count], ready["fds"][count:]
        context = ready["fds"][0] if ready.get("layers") else -1
        self._look_after(FileGate.of(self._plans, self.policy.files, ready, memory_folders or (), context))
        self.watchdog.start(
            self._loop, ready["pid"], folders=folders, uid=details.get("uid", -1), memory_folders=memory_folders
        )

    def _look_after(self, files: FileGate) -> None:
        self.files = files
        files.follow(self._loop, lambda: bool(self.requests.pending), self.aside)

    def _over(self, error: LimitReached, gently: bool) -> None:
        tree = self.watchdog.tree
        if gently or tree is None:
            self._runs.over(error, self.watchdog.culprits, gently=gently)
        else:
            by_count = isinstance(error, ProcessLimit)
            self.seat.family.over(self.seat, error, tree, lambda share: share.tasks if by_count else share.memory)

    def _leftovers_ended(self) -> None:
        text, main = leftovers_ended(self.policy.limits.memory), self._runs.main
        if main.id and main.cell:
            self._sink.stream(main.id, "stderr", text)
        else:
            self._news = text

    def _tell_loss(self, request_id: str, fields: Mapping[str, Any]) -> None:
        """Say at the beginning of a cell what has happened since the last one: that the variables were lost, say."""
        content = fields.get("content")
        if isinstance(content, Mapping) and content.get("silent"):
            return
        lost = f"{self._untold.explain()}\n" if self._untold is not None else ""
        if lost or self._news:
            self._sink.stream(request_id, "stderr", lost + self._news)
        self._untold, self._news = None, ""

    # ------------------------------------------------------------ the end

    # What the worker's channel brings; the objects that take it are made after the supervisor, which they need.

    def _pressed(self) -> bool:
        return self._incoming.pressed()

    def _raw(self, name: str, text: str) -> None:
        self._incoming.raw(name, text)

    def _message(self, message: schema.Message, buffers: list[memoryview], size: int) -> None:
        self._incoming.message(message, buffers, size)

    def _lost(self, error: SandboxError) -> None:
        self.interrupts.disarm()
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
        cell = self.requests.pending.get(self._runs.main.id)
        hears = cell is not None and not cell.future.done()  # else it has replied, or was not sent yet
        if not hears and self._incoming.last_executed and self.supervisor.failed is None:
            self._untold = told("")
        self.requests.lose(told)
        if not self._closing:
            self._sink.lost(told(""))

    def forget_loss(self) -> None:
        """The worker was lost on purpose: the next cell need not begin with the news."""
        self._untold = None

    async def fork(self, sink: Sink) -> Session:
        """A session of its own that begins with the variables of this one, which must be idle.

        The two share pages, folders and limits: memory and processes are counted together. Closing this one, if it is
        the first, ends all.

        Args:
            sink: receives what the branch shows.

        Raises:
            CopyRefused: it cannot be copied.
            SandboxError: the copy did not wake.
        """
        with self.watchdog.expecting(self.supervisor.worker):
            copy = await self.checkpoints.branch()
        branch = Session(self.seat.family.branch(), self.policy, sink, workspace=self._workspace)
        self.seat.hand(copy.number, branch.seat)
        branch.supervisor.first_request = self.supervisor.first_request
        branch.start(self._loop)
        branch._look_after(self.files.beside())
        branch.watchdog.join(self._loop, self.watchdog)
        branch.supervisor.begin_as(copy, self.supervisor)
        branch.checkpoints.begin_at(copy.cell)
        try:
            await branch.supervisor.get_worker(stoppable=False)
        except BaseException:
            branch.end(WorkerLost("the copy did not begin"))
            raise
        branch.checkpoints.changed()
        return branch

    async def adopt(self, branch: Session) -> None:
        """Go on from a branch's variables; this session's own are gone, and the branch is left as it is.

        Raises:
            CopyRefused: the branch cannot be copied.
            SandboxError: the copy did not wake, and with it all is lost.
        """
        with branch.watchdog.expecting(branch.supervisor.worker):
            copy = await branch.checkpoints.branch()
        branch.seat.hand(copy.number, self.seat)
        await self.checkpoints.adopt(copy)
        self.forget_loss()

    def end(self, error: SandboxError) -> None:
        """End it at once; who waits, or asks later, gets this error."""
        self.supervisor.abandon(error)
        self.watchdog.close()
        self.files.close()

    async def shutdown(self, restart: bool, grace_s: float) -> None:
        """End the worker: softly while it is idle (its exit handlers run), at once when it is busy."""
        self._closing = True
        self.interrupts.close()
        await self.checkpoints.close(grace_s)
        worker = self.supervisor.worker
        if worker is not None and self.supervisor.ready and not self.requests.pending:
            future = self.requests.open(self._loop, "shutdown", "shutdown")
            future.add_done_callback(quiet)
            worker.send({"op": "shutdown", "id": "shutdown", "restart": restart})
            await asyncio.wait([future], timeout=grace_s)
            worker.drain_pipes()
            self._sink.flush()
        await asyncio.wait([asyncio.ensure_future(asyncio.to_thread(self.files.finish))])  # exit handlers write, too
        self.watchdog.close()
        self.supervisor.close()
        self.files.close()
