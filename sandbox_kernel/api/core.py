"""The sandbox as an object, for asyncio. `sync` drives it from ordinary code."""

from __future__ import annotations

import asyncio
import itertools
import os
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from .. import telemetry
from ..arguments import check_arguments
from ..auditing import Audit
from ..code_rules import CodeGate
from ..errors import FrameRefused, SandboxError, WorkerLost
from ..outputs.open_gate import make_gate
from ..outputs.settings import Settings
from ..session.denials import Denial, Denials
from ..session.exchange import Outgoing
from ..session.session import Plan, Session
from ..session.start import StartedLink, start
from .asked import PolicyLike, resolved
from .branches import Branches
from .cells import Cells
from .execution import Execution
from .outcome import failed
from .recorder import Emit, Recorder
from .tools import Modules, Tools, checked, in_tool
from .values import close_all, pack, variable

_MOVING_S = 30.0  # at least, for a value on its way in or out beside a cell
Callback = Callable[[Any], Awaitable[None] | None]


class _Turn(AbstractAsyncContextManager[Session]):
    """The session, for the only request at a time. A class, as a generator takes longer than a small value may."""

    def __init__(self, box: AsyncSandbox) -> None:
        self._box = box

    async def __aenter__(self) -> Session:
        box = self._box
        if in_tool.get() is box:
            raise RuntimeError("a function of the host cannot use the sandbox whose cell waits for it")
        started = box._starting is not None and box._starting.done() and not box._closed
        session = box._session if started and box._session is not None else await box._started()
        await box._lock.acquire()
        try:
            if box._closed:
                raise RuntimeError("this sandbox is closed")
            await box._install(session)
        except BaseException:
            box._lock.release()
            raise
        return session

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._box._lock.release()


class AsyncSandbox(Cells, Branches):
    """A confined session whose variables live from one `run_code` to the next. For one asyncio loop.

    ``async with AsyncSandbox() as sandbox:`` starts and ends it; so do `start` and `close`. Calls wait for each
    other: one cell runs at a time.

    Args:
        policy: a preset's name, a path of a TOML file, tables as such a file has them, or a `Policy`. What the
            machine's administrator and the user have fixed holds, too.
        level: the isolation level, when it is not to be the policy's. One that cannot be had is an error.
        workspace: a folder that the cells see, as the policy's ``files.workspace`` says; None: a private one, which
            is gone with the sandbox.
        timeout: seconds that code may take when the call does not say; None: the policy's ``limits.cell_time``, which
            always holds.
        modules: functions and values of this process that the cells can import, by the name of the module and their
            own: ``{"host": {"query": function, "VERSION": 3}}``. Arguments and values are copied by the frame gate.
            Coroutine functions are awaited, others run in a thread. An exception arrives as one of Python's own kinds
            with its text only. What a call takes here is not counted as the cell's time.

    Raises:
        PolicyError: the policy cannot be used.
        ValueError: a name in ``modules`` cannot be used.
    """

    @check_arguments
    def __init__(
        self, policy: PolicyLike = "assistant", *, level: str | None = None, workspace: str | Path | None = None,
        timeout: float | None = None, modules: Modules | None = None,
    ) -> None:  # fmt: skip
        self.resolved = resolved(policy, level, workspace)
        self._workspace, self._timeout = workspace, timeout
        self._denials = Denials()
        self._link: StartedLink | None = None
        self._plans: list[Plan] = []
        self._branches: weakref.WeakSet[AsyncSandbox] = weakref.WeakSet()
        self._set_up(modules or {})

    def _set_up(self, modules: Modules) -> None:
        self._recorder = Recorder(make_gate(Settings(**msgspec.structs.asdict(self.resolved.policy.outputs))))
        self._code_gate = CodeGate(self.resolved.policy.code)
        self._session: Session | None = None
        self._ids = itertools.count(1)
        self._closed = False
        self._audit, self._audit_name, self._lines = Audit(""), "", 0
        self._untold: list[Denial] = []
        self._lock = asyncio.Lock()
        self._most = self.resolved.policy.limits.frame
        self._modules = checked(modules)
        self._tools = Tools(self, self._most)
        self._tools.push(self._modules)
        self._installed = 0  # the number of the worker that has the modules
        self._stale: set[str] = set()
        self._starting: asyncio.Future[None] | None = None

    def _twin(self) -> Self:
        twin = object.__new__(type(self))
        twin.resolved, twin._workspace, twin._timeout = self.resolved, self._workspace, self._timeout
        twin._denials, twin._plans, twin._link = self._denials, self._plans, None
        twin._set_up(self._modules)
        return twin

    # ------------------------------------------------------------ life

    async def start(self) -> None:
        """Start it and wait until it takes cells; does nothing when it has been started.

        Raises:
            IsolationUnavailable: the level cannot be had here, or an attempt showed that it does not hold.
            RuntimeError: it is closed.
        """
        if self._starting is None and not self._closed:
            self._starting = asyncio.ensure_future(self._start())
        if self._starting is not None:
            await asyncio.shield(self._starting)
        if self._closed:
            raise RuntimeError("this sandbox is closed")

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        policy = self.resolved.policy
        try:
            link, plans = await asyncio.to_thread(
                start, policy, self._denials, launcher_env=dict(os.environ), workspace=self._workspace
            )
            link.patient = False
            self._link, self._plans = link, list(plans)
            session = Session(link, policy, self._recorder, workspace=self._plans[0].workspace, plans=self._plans)
            session.exchange.on_call = self._tools.call
            session.start(loop)
            self._session = session
            self._open_audit()
            await session.supervisor.get_worker(stoppable=False)
            telemetry.tell(session.supervisor.level, os.environ)
        except BaseException:
            await self._end()
            raise

    async def close(self) -> None:
        """End it with everything inside, branches too; idempotent. A cell that runs ends with `WorkerLost`."""
        if self._closed:
            return
        self._closed = True
        if self._link is not None:
            await self._close_branches()
        if self._starting is not None:
            await asyncio.wait([self._starting])
            if not self._starting.cancelled():
                self._starting.exception()
        await self._end()

    async def _end(self) -> None:
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.checkpoints.close(0)
            await asyncio.to_thread(session.files.collect)
            session.end(WorkerLost("the sandbox was closed"))
        self._audit.close()
        self._tools.close()
        self._branches.discard(self)
        if self._link is not None:
            await asyncio.to_thread(self._link.collect)
        if self._link is not None or session is None:
            await asyncio.to_thread(self._denials.close)

    async def __aenter__(self) -> AsyncSandbox:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def closed(self) -> bool:
        """Whether `close` was called, or the start failed."""
        return self._closed

    async def restart(self) -> None:
        """Replace the process of the session: all its variables are gone. A cell that runs ends with `WorkerLost`."""
        session = await self._started()
        await session.supervisor.get_worker(stoppable=False)
        session.checkpoints.drop("the session was restarted")
        await self._end_worker(WorkerLost("the session was restarted"))
        await session.supervisor.get_worker(stoppable=False)

    async def _end_worker(self, cause: SandboxError) -> None:
        session = self._session
        if session is not None and session.supervisor.ready:
            gone = self._recorder.next_loss()
            session.supervisor.kill(cause)
            await gone
            session.forget_loss()

    async def interrupt(self) -> None:
        """Interrupt the cell that runs, as Ctrl-C does; a second time its process is ended after a grace time."""
        if self._session is not None:
            self._session.interrupt()

    async def _started(self) -> Session:
        await self.start()
        assert self._session is not None  # noqa: S101
        return self._session

    def status(self) -> dict[str, Any]:
        """The level, what proves it, the limits, and what is used now. Sizes in bytes."""
        session, policy = self._session, self.resolved.policy
        values = policy.values()
        found: dict[str, Any] = {
            "state": self._state(),
            "limits": {k.partition(".")[2]: v for k, v in values.items() if k.startswith("limits.")},
            "policy": values,
        }  # fmt: skip
        if session is not None:
            box, dog = session.supervisor, session.watchdog
            found |= {
                "level": box.level, "proofs": [dict(p) for p in box.proofs],
                "notes": list(box.details.get("notes", ())), "execution_count": session.execution_count,
                "workers_lost": self._recorder.losses, "checkpoints": session.checkpoints.listed(),
                "use": {"memory": dog.memory, "processes": dog.usage.processes, "cpu_s": dog.usage.cpu_s},
            }  # fmt: skip
        return found

    def _state(self) -> str:
        if self._closed or self._session is None:
            return "closed" if self._closed else "new"
        return "busy" if self._session.executing else "idle"

    # ------------------------------------------------------------ cells

    @check_arguments
    async def run_code(
        self, code: str, *, timeout: float | None = None, inputs: Mapping[str, Any] | None = None,
        returns: Iterable[str] = (), modules: Modules | None = None,
        on_stdout: Callback | None = None, on_stderr: Callback | None = None, on_result: Callback | None = None,
    ) -> Execution:  # fmt: skip
        """Run a cell and wait for its end. What goes wrong in it or with it is in the `Execution`, not raised.

        Args:
            code: as in a notebook: magics, top-level ``await`` and a last expression that is shown.
            timeout: seconds, when it is not to be the sandbox's.
            inputs: variables to set before, as `put` does.
            returns: variables to fetch afterwards, into ``Execution.returned``.
            modules: further modules of this process, for this cell only.
            on_stdout: called with each piece of text as it comes.
            on_stderr: the same for what goes there.
            on_result: called with each `Result`. A callback may be a coroutine function; what it raises ends the cell
                and is raised here.

        Raises:
            FrameRefused: one of the ``inputs`` cannot pass; nothing was run.
            ValueError: a name cannot be used.
        """
        calls = {"stdout": on_stdout, "stderr": on_stderr, "result": on_result}
        queue: asyncio.Queue[tuple[str, Any] | None] = asyncio.Queue()

        async def deliver() -> None:
            while (item := await queue.get()) is not None:
                callback = calls[item[0]]
                answer = callback(item[1]) if callback is not None else None
                if answer is not None:
                    await answer

        options = (timeout, inputs or {}, tuple(returns), modules or {})
        if not any(calls.values()):
            return await self._run(code, *options, lambda kind, value: None)
        delivery = asyncio.ensure_future(deliver())
        run = asyncio.ensure_future(self._run(code, *options, lambda kind, value: queue.put_nowait((kind, value))))
        run.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            await asyncio.wait([delivery, run], return_when=asyncio.FIRST_EXCEPTION)
            if delivery.done():
                delivery.result()
            execution = await run
            await delivery
            return execution
        finally:
            run.cancel()
            delivery.cancel()
            await asyncio.wait([run, delivery])

    async def _run(
        self, code: str, timeout: float | None, inputs: Mapping[str, Any], returns: Sequence[str], modules: Modules,
        emit: Emit,
    ) -> Execution:  # fmt: skip
        packed = dict(inputs)
        try:
            extra = checked(modules)
            for name in (*inputs, *returns):
                variable(name)
            async with self._turn() as session:
                for name, value in packed.items():  # all of them before one is sent: where one is refused, none is set
                    if not isinstance(value, Outgoing):
                        packed[name] = await asyncio.to_thread(pack, value, self._most)
                return await self._run_in_turn(session, code, timeout, packed, returns, extra, emit)
        finally:
            close_all(packed)

    async def _run_in_turn(
        self, session: Session, code: str, timeout: float | None, inputs: Mapping[str, Outgoing],
        returns: Sequence[str], extra: Mapping[str, Mapping[str, Any]], emit: Emit,
    ) -> Execution:  # fmt: skip
        execution = Execution(execution_count=session.execution_count)
        allowed_s = self._timeout if timeout is None else timeout
        # The first frame makes the sandbox import pandas, which is no fault of the code.
        moving_s = max(allowed_s, _MOVING_S) if allowed_s else None
        try:
            for name, value in inputs.items():
                await self._put(name, value, moving_s)
            async with self._more_modules(extra):
                await self._execute(session, execution, code, timeout, emit)
            if execution.state == "kept":
                await self._fetch(execution, returns, moving_s)
        except FrameRefused:
            raise
        except SandboxError as error:  # the worker was lost before the cell, or after it
            failed(execution, error)
            execution.state = error.state or execution.state
        for name in returns:
            if name not in execution.returned:
                execution.dropped.setdefault(name, "the process that held it is gone")
        return execution

    def _turn(self) -> AbstractAsyncContextManager[Session]:
        return _Turn(self)

    async def _ask(
        self, op: str, fields: Mapping[str, Any], timeout: float | None, value: Outgoing | None = None
    ) -> dict[str, Any]:
        assert self._session is not None  # noqa: S101
        session = self._session
        seconds = self._timeout if timeout is None else timeout
        if seconds and timeout is None and op not in ("execute", "call"):
            seconds = max(seconds, _MOVING_S)
        name = f"api-{next(self._ids)}"
        if op not in ("put", "get"):  # these run no code, so nothing is theirs that names its cell
            header = {"msg_id": name, "msg_type": f"{op}_request", "session": "api", "username": "api",
                      "version": "5.4"}  # fmt: skip
            fields = {"header": header, "metadata": {}, **fields}
        value = value or Outgoing()
        try:
            await session.exchange.lend(value)
            return await session.request(
                op, name, fields, value.buffers, fds=value.fds, time_s=seconds or 0.0, on_cancel=self._give_up
            )
        finally:
            value.close()

    def _give_up(self, answer: asyncio.Future[Any]) -> None:
        """A caller that is cancelled leaves no cell behind: it is interrupted, then ended."""
        session = self._session
        if session is None:
            return
        session.interrupt()
        cause = WorkerLost("the call that ran the cell was cancelled")
        grace_s = self.resolved.policy.limits.interrupt_grace
        timer = asyncio.get_running_loop().call_later(grace_s, session.supervisor.kill, cause)
        answer.add_done_callback(lambda _: timer.cancel())
