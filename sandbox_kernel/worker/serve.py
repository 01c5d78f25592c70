"""Takes requests one at a time and answers each of them exactly once."""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import inspect
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

from ..channel.framing import encode
from ..errors import BROKEN_STATUS
from . import parents, reserve, startup
from .breakage import is_breakage
from .checkpoint import CannotCopy, Copier
from .debugging import Debugging
from .ending import end_fork, end_leftovers, flush
from .guard_rails import guard
from .kernel import WorkerKernel
from .link import Link, Request, leave
from .nothing import nothing_found
from .per_shell import MAIN
from .session import clip_count, clip_error, packets_of
from .signals import handle, ignore, undisturbed
from .values import AT_ONCE, Values, beside
from .wakeup import Bell, Wakeup

COMM_TYPES = {"comm_open", "comm_msg", "comm_close"}


def greeting(shell: Any) -> dict[str, Any]:
    """The first message of a worker."""
    return {
        "type": "ready", "python": sys.version.split()[0], "banner": shell.banner,
        "execution_count": shell.execution_count,
    }  # fmt: skip


class Server:
    """The dispatcher. `run` is the worker's main loop.

    Cells never overlap. Comm messages are handled while a cell awaits, as in ipykernel; everything else waits
    for its turn.
    """

    def __init__(
        self, kernel: WorkerKernel, link: Link, loop: asyncio.AbstractEventLoop, wakeup: Wakeup, *,
        reattach: Callable[[], None],
    ) -> None:  # fmt: skip
        self._kernel: Any = kernel  # most of ipykernel's methods have no annotations
        self._link, self._loop, self._wakeup = link, loop, wakeup
        assert kernel.questions is not None  # noqa: S101 - set when the channel was attached
        self._values = Values(kernel, link, kernel.questions)
        # One context for all cells: what a cell sets in a context variable the next one sees.
        self._context = contextvars.copy_context()
        self._active: Request | None = None
        self._message: dict[str, Any] = {}
        self._bell = Bell()
        self._copier = Copier(link, loop, wakeup, self._bell, reattach=reattach, wake=self._wake)
        self._debugging = Debugging(kernel, link, loop)
        self._broken = 0  # cells in a row that failed before or after their own code
        self.deaf = False  # what another shell has offered was not taken in time

    @property
    def kernel(self) -> Any:
        """The kernel that runs the cells."""
        return self._kernel

    @property
    def active_id(self) -> str:
        """The request that the main shell serves; "" when there is none."""
        active = self._active
        return "" if active is None or active.replied else active.id

    @property
    def busy(self) -> bool:
        """Whether the main shell serves a request."""
        return bool(self.active_id)

    def run(self) -> NoReturn:
        """Serves until the channel ends. Nothing that is raised in the loop ends it."""
        self._link.notify = self._bell.ring
        self._loop.set_exception_handler(self._loop_error)
        self._loop.add_reader(self._link.fileno(), self._readable)
        self._loop.add_reader(self._bell.fileno(), self._attend)
        self._loop.add_reader(self._wakeup.fileno(), self._wakeup.drain)
        while True:
            # Twice, because an exception can also be raised at the jump back.
            with suppress(BaseException):
                while True:
                    with suppress(BaseException):
                        self._revive()
                        self._loop.run_forever()

    def _loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if isinstance(context.get("exception"), MemoryError):
            reserve.release()
        loop.default_exception_handler(context)
        self._revive()

    def _revive(self) -> None:
        """Begin again what an exception in the loop's own code has lost.

        A handler of the cells can raise between the moment when the loop takes a step from its queue and the step
        itself; then the step never comes. What has begun is not begun twice (`Request.begun`).
        """
        for request in tuple(self._link.requests):
            if request.task is None or request.replied:
                continue
            if not request.begun:
                request.task = None
            elif request.task.done():
                self._finish(request, None)
        self._bell.ring()

    def _readable(self) -> None:
        if os.getpid() != self._link.pid:
            leave(1)  # a fork that came back to the loop from an awaiting cell
        self._link.receive()
        self._attend()

    def _attend(self) -> None:
        """Starts what can be started. Can be broken off anywhere and done again from the beginning."""
        self.deaf = False
        self._start()
        self._bell.hush()
        self._start()  # what another thread took in before the bell was hushed

    def _start(self) -> None:
        self._link.sort()
        queue = self._link.requests
        while queue and (queue[0].replied or not queue[0].claim(MAIN)):
            queue.popleft()
        for request in tuple(queue):
            if request.op == "shutdown":
                self._shut_down(request)
            if request.replied or (request.op == "comm" and not request.claim(MAIN)):
                continue
            if self._active is None or self._active.replied:
                self._active = request
            if request.task is not None:
                continue
            if request is self._active and request.op == "checkpoint":
                undisturbed(partial(self._leave_copy, request))
                return  # in a copy that was woken this queue is another worker's
            if request is self._active and request.op in AT_ONCE:
                self._serve_at_once(request)
            elif request is self._active:
                request.task = self._loop.create_task(self._serve(request), context=self._context)
            elif request.op in ("comm", "debug"):
                context = self._context.copy()
                request.task = self._loop.create_task(self._serve_aside(request), context=context)
            if request.task is not None:
                request.task.add_done_callback(partial(self._served, request))

    def _leave_copy(self, request: Request) -> None:
        if request.begun:
            self._reply(request, self._failure(request, CannotCopy()))
            return
        request.begun = True
        try:
            if self._broken:
                raise CannotCopy("the last cell could not be run")
            lost = self._copier.copy(request)
        except CannotCopy as error:
            self._reply(request, {"status": "refused", "reason": str(error)})
            return
        if lost is not None:
            self._reply(request, {"status": "ok", "lost": lost})
        request.replied = True  # in a copy that was woken nobody waits for it
        self._bell.ring()

    def _wake(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Go on in place of the worker; returns the greeting."""
        shell = self._kernel.shell
        shell.execution_count = max(shell.execution_count, fields["execution_count"])
        return greeting(shell)

    async def _serve(self, request: Request) -> None:
        if request.begun:
            return
        request.begun = True
        content: dict[str, Any] | None = None
        try:
            self._wakeup.arm()
            handle(signal.SIGINT, signal.default_int_handler)
            content = await self._answer(request)
        except BaseException as error:  # an interrupt just before or after the cell, among others
            content = self._failure(request, error)
            self._broken += request.op == "execute" and is_breakage(error)
            await end_leftovers(self._loop)
        self._finish(request, content)
        if self._broken > 1:  # cells have changed what runs them so that no other cell can be run
            leave(BROKEN_STATUS)

    def _serve_at_once(self, request: Request) -> None:
        """As `_serve`, without a task and the rounds of the loop that one needs, unless there is something to await."""
        content: dict[str, Any] | None = None
        try:
            if not request.begun and request.rest is None:  # else it was broken off
                request.begun = True
                self._wakeup.arm()
                handle(signal.SIGINT, signal.default_int_handler)
                answer = self._context.run(self._answer_at_once, request)
                content, request.rest = (answer, None) if isinstance(answer, dict) else (None, answer)
            if request.rest is not None:
                request.begun = False  # as for any task: its first step may be lost
                request.task = self._loop.create_task(self._serve_rest(request, request.rest), context=self._context)
                return
        except BaseException as error:
            content = self._failure(request, error)
        self._finish(request, content)

    async def _serve_rest(self, request: Request, answer: Awaitable[dict[str, Any]]) -> None:
        if request.begun:
            return
        request.begun = True
        try:
            content = await answer
        except BaseException as error:
            content = self._failure(request, error)
        self._finish(request, content)

    def _served(self, request: Request, task: asyncio.Task[None]) -> None:
        if task.cancelled() or task.exception() is not None:
            self._finish(request, None)
        self._bell.ring()

    async def _serve_aside(self, request: Request) -> None:
        if request.begun:
            return
        request.begun = True
        content: dict[str, Any] = {}
        try:
            with suppress(Exception):
                content = await self._answer(request)
        finally:
            # The parent of the cell is also a process-wide fallback, which the comm message has replaced.
            with suppress(Exception):
                self._context.run(parents.set_parent, self._kernel, self._message)
            self._reply(request, content)

    def _finish(self, request: Request, content: dict[str, Any] | None) -> None:
        """Ends a request; repeats itself until it got through, whatever is raised in between."""
        if request.replied:
            return
        while True:
            try:
                handle(signal.SIGINT, ignore)
                break
            except BaseException:  # noqa: S112 - an interrupt that came too late: it hits nothing
                continue
        if os.getpid() != self._link.pid:
            end_fork(content)
        while not request.replied:
            with suppress(BaseException):
                if request.op in ("execute", "call"):
                    flush()
                self._reply(request, content or self._failure(request, RuntimeError("there is no answer")))

    async def respond(self, request: Request, before_reply: Callable[[], None]) -> None:
        """Serves a request on the thread of another shell, where no signal arrives.

        Args:
            before_reply: called once the request's code has ended.
        """
        content: dict[str, Any] | None = None
        try:
            content = await self._answer(request)
        except BaseException as error:
            content = self._failure(request, error)
        while not request.replied:
            with suppress(BaseException):
                before_reply()
                if os.getpid() != self._link.pid:
                    end_fork(content)
                if request.op == "execute":
                    flush()
                self._reply(request, content or self._failure(request, RuntimeError("there is no answer")))

    def refuse(self, request: Request, error: Exception) -> None:
        """Answers without running anything, from any thread."""
        self._reply(request, self._failure(request, error, publish=False))

    # -- answers

    def _begin(self, request: Request) -> dict[str, Any]:
        message = parents.message_of(request)
        parents.set_parent(self._kernel, message)
        if request is self._active:
            self._message = message
        return message

    def _answer_at_once(self, request: Request) -> dict[str, Any] | Awaitable[dict[str, Any]]:
        if request.fields.get("header"):  # there is somebody whom a warning is for
            self._begin(request)
        return self._values.answer(request)

    async def _answer(self, request: Request) -> dict[str, Any]:
        fields, kernel = request.fields, self._kernel
        content = fields.get("content") or {}
        message = self._begin(request)
        parents.set_control_parent(kernel, request)
        answer: Any
        if request.op == "execute":
            silent = bool(content.get("silent", False))
            metadata = message["metadata"]
            if content.get("code_rules"):
                guard(kernel.shell, content["code_rules"])
            answer = kernel.do_execute(
                content["code"], silent, content.get("store_history", not silent),
                content.get("user_expressions") or {}, bool(content.get("allow_stdin", False)),
                cell_meta=metadata, cell_id=metadata.get("cellId"),
            )  # fmt: skip
        elif request.op == "complete":
            answer = kernel.do_complete(content["code"], content.get("cursor_pos"))
        elif request.op == "inspect":
            code, position = content["code"], content.get("cursor_pos")
            position = len(code) if position is None else position
            omitted = set(content.get("omit_sections") or ())
            answer = kernel.do_inspect(code, position, content.get("detail_level", 0), omitted)
        elif request.op == "is_complete":
            answer = kernel.do_is_complete(content["code"])
        elif request.op == "startup":
            answer = None
            startup.run(kernel.shell, fields["files"])
        elif request.op == "comm" and fields["msg_type"] in COMM_TYPES:
            answer = kernel.shell_handlers[fields["msg_type"]](None, [b""], message)
        elif request.op in self._values.handlers:
            answer = self._values.answer(request)
        elif request.op == "debug":
            answer = self._debugging.answer(content)
        else:
            raise ValueError(f"unknown request {request.op!r}")
        if inspect.isawaitable(answer):
            answer = await answer
        if request.op == "execute":
            self._broken = 0
            out_of_memory = isinstance(answer, dict) and answer.get("ename") == "MemoryError"
            if out_of_memory:
                reserve.release()
            else:
                reserve.take()
        return answer if isinstance(answer, dict) else {}

    def _failure(self, request: Request, error: BaseException, *, publish: bool = True) -> dict[str, Any]:
        """The answer when there is none: an error for a cell, nothing found for the small requests."""
        if request.op in self._values.handlers:
            return {"status": "error", "ename": type(error).__name__, "evalue": str(error)}
        if request.op != "execute":
            return nothing_found(request.op, request.fields.get("content") or {})
        name, value = type(error).__name__, str(error)
        lines = [f"{name}: {value}" if value else name]
        facts: dict[str, Any] = {"ename": name, "evalue": value, "traceback": lines}
        if publish:
            with suppress(Exception):
                self._kernel.send_response(self._kernel.iopub_socket, "error", dict(facts))
        count = (self._kernel.execution_count or 1) - 1
        facts.update(execution_count=max(count, 0), user_expressions={}, payload=[])
        return {"status": "error", **facts}

    # -- ends

    def _reply(self, request: Request, content: dict[str, Any]) -> None:
        if request.replied:
            return
        count = clip_count(self._kernel.execution_count)
        if "execution_count" in content:
            content = {**content, "execution_count": clip_count(content["execution_count"])}
        if content.get("status") == "error":
            content = clip_error(content)
        reply = {"type": "reply", "id": request.id, "content": content, "execution_count": count}
        if self._broken > 1 and request is self._active:
            reply["last"] = True  # or the front, which hears of the end later, sends the next cell after it
        self._link.send_surely(undisturbed(partial(self._packets, request, reply)))
        request.replied = True
        self._bell.ring()

    def _packets(self, request: Request, reply: dict[str, Any]) -> list[Any]:
        try:
            return list(packets_of(reply, beside(request, reply)))
        except Exception as error:
            failure = self._failure(request, ValueError(f"the answer cannot be sent: {error}"))
            reply |= {"content": failure, "value": False}
            return list(encode(reply))

    def _shut_down(self, request: Request) -> NoReturn:
        with suppress(BaseException):
            atexit._run_exitfuncs()
        flush()
        self._reply(request, {})
        leave()
