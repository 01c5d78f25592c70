"""Takes requests one at a time and answers each of them exactly once."""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import inspect
import os
import signal
import sys
from contextlib import suppress
from datetime import datetime
from types import FrameType
from typing import Any, NoReturn

from ..channel.framing import encode
from .kernel import WorkerKernel
from .link import Link, Request, leave
from .session import clip_error, packets_of
from .wakeup import Wakeup

COUNT_LIMIT = 2**31
COMM_TYPES = {"comm_open", "comm_msg", "comm_close"}


def ignore(number: int, frame: FrameType | None) -> None:
    """SIGINT between cells: it was meant for a cell that has ended. (Children would inherit SIG_IGN.)"""


class Server:
    """The dispatcher. `run` is the worker's main loop.

    Cells never overlap. Comm messages are handled while a cell awaits, as in ipykernel; everything else waits
    for its turn.
    """

    def __init__(
        self, kernel: WorkerKernel, link: Link, loop: asyncio.AbstractEventLoop, wakeup: Wakeup
    ) -> None:
        self._kernel: Any = kernel  # most of ipykernel's methods have no annotations
        self._link = link
        self._loop = loop
        self._wakeup = wakeup
        # One context for all cells: what a cell sets in a context variable the next one sees.
        self._context = contextvars.copy_context()
        self._active: Request | None = None
        self._task: asyncio.Task[None] | None = None
        self._message: dict[str, Any] = {}
        self._asides: set[asyncio.Task[None]] = set()

    def run(self) -> NoReturn:
        """Serves until the channel ends. Nothing that is raised in the loop ends it."""
        self._link.notify = self._notify
        self._loop.add_reader(self._link.fileno(), self._readable)
        self._loop.add_reader(self._wakeup.fileno(), self._wakeup.drain)
        while True:
            # Twice, because an exception can also be raised at the jump back.
            with suppress(BaseException):
                while True:
                    with suppress(BaseException):
                        self._loop.call_soon(self._recover)
                        self._loop.run_forever()

    def _notify(self) -> None:
        self._loop.call_soon_threadsafe(self._pump)

    def _readable(self) -> None:
        if os.getpid() != self._link.pid:
            leave(1)  # a fork that came back to the loop from an awaiting cell
        self._link.receive()
        self._pump()

    def _pump(self) -> None:
        """Starts what can be started now."""
        queue, later = self._link.requests, []
        while queue:
            # Taken from the queue last: what is raised in between must not lose it.
            request = queue[0]
            if request.op == "shutdown":
                self._shut_down(request)
            if request.replied or request is self._active:
                pass
            elif self._active is None:
                self._active, self._task = request, None
                self._task = self._loop.create_task(self._serve(request), context=self._context)
                self._task.add_done_callback(self._served)
            elif request.op == "comm":
                aside = self._loop.create_task(self._serve_aside(request), context=self._context.copy())
                self._asides.add(aside)
                aside.add_done_callback(self._asides.discard)
            else:
                later.append(request)
            queue.popleft()
        queue.extendleft(reversed(later))

    async def _serve(self, request: Request) -> None:
        content: dict[str, Any] | None = None
        try:
            self._wakeup.arm()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            content = await self._answer(request)
        except BaseException as error:  # an interrupt just after the cell's end, among others
            content = self._failure(request, error)
        self._finish(request, content)

    def _served(self, task: asyncio.Task[None]) -> None:
        if task is not self._task or self._active is None:
            return
        if not task.cancelled():
            task.exception()  # looked at, so that asyncio does not complain
        self._finish(self._active, None)
        self._active = self._task = None
        self._pump()

    def _recover(self) -> None:
        """Goes on after something was raised in the loop itself, which may have cost it a callback."""
        if self._active is not None and self._task is not None and self._task.done():
            self._served(self._task)
        elif self._active is not None and self._task is None:
            self._finish(self._active, None)
            self._active = None
        self._pump()

    async def _serve_aside(self, request: Request) -> None:
        message = self._message
        try:
            with suppress(Exception):
                await self._answer(request)
        finally:
            # The parent of the cell is also a process-wide fallback, which the comm message has replaced.
            with suppress(Exception):
                self._context.run(self._set_parent, message)
            self._reply(request, {})

    def _finish(self, request: Request, content: dict[str, Any] | None) -> None:
        """Ends a request; repeats itself until it got through, whatever is raised in between."""
        if request.replied:
            return
        while True:
            try:
                signal.signal(signal.SIGINT, ignore)
                break
            except BaseException:  # noqa: S112 - an interrupt that came too late: it hits nothing
                continue
        if os.getpid() != self._link.pid:
            self._end_fork(content)
        while not request.replied:
            with suppress(BaseException):
                if request.op == "execute":
                    self._flush()
                self._reply(request, content or self._failure(request, RuntimeError("there is no answer")))

    # -- answers

    async def _answer(self, request: Request) -> dict[str, Any]:
        fields, kernel = request.fields, self._kernel
        content = fields.get("content") or {}
        message = self._message_of(request)
        self._set_parent(message)
        if request is self._active:
            self._message = message
        answer: Any
        if request.op == "execute":
            silent = bool(content.get("silent", False))
            metadata = message["metadata"]
            answer = kernel.do_execute(
                content["code"],
                silent,
                content.get("store_history", not silent),
                content.get("user_expressions") or {},
                bool(content.get("allow_stdin", False)),
                cell_meta=metadata,
                cell_id=metadata.get("cellId"),
            )
        elif request.op == "complete":
            answer = kernel.do_complete(content["code"], content.get("cursor_pos"))
        elif request.op == "inspect":
            code, position = content["code"], content.get("cursor_pos")
            position = len(code) if position is None else position
            omitted = set(content.get("omit_sections") or ())
            answer = kernel.do_inspect(code, position, content.get("detail_level", 0), omitted)
        elif request.op == "is_complete":
            answer = kernel.do_is_complete(content["code"])
        elif request.op == "comm" and fields["msg_type"] in COMM_TYPES:
            answer = kernel.shell_handlers[fields["msg_type"]](None, [b""], message)
        else:
            raise ValueError(f"unknown request {request.op!r}")
        if inspect.isawaitable(answer):
            answer = await answer
        return answer if isinstance(answer, dict) else {}

    def _message_of(self, request: Request) -> dict[str, Any]:
        fields = request.fields
        header = dict(fields.get("header") or {})
        if isinstance(header.get("date"), str):
            with suppress(ValueError):
                header["date"] = datetime.fromisoformat(header["date"])
        return {
            "header": header,
            "msg_id": header.get("msg_id", ""),
            "msg_type": header.get("msg_type", fields.get("msg_type", "")),
            "parent_header": {},
            "metadata": fields.get("metadata") or {},
            "content": fields.get("content") or {},
            "buffers": request.buffers,
        }

    def _set_parent(self, message: dict[str, Any]) -> None:
        self._kernel.set_parent([b""], message, channel="shell")

    def _failure(self, request: Request, error: BaseException) -> dict[str, Any]:
        """The answer when there is none: an error for a cell, nothing found for the small requests."""
        if request.op == "complete":
            position = (request.fields.get("content") or {}).get("cursor_pos") or 0
            ends = {"cursor_start": position, "cursor_end": position}
            return {"status": "ok", "matches": [], "metadata": {}, **ends}
        if request.op == "inspect":
            return {"status": "ok", "found": False, "data": {}, "metadata": {}}
        if request.op == "is_complete":
            return {"status": "unknown"}
        if request.op != "execute":
            return {}
        name, value = type(error).__name__, str(error)
        lines = [f"{name}: {value}" if value else name]
        facts: dict[str, Any] = {"ename": name, "evalue": value, "traceback": lines}
        with suppress(Exception):
            self._kernel.send_response(self._kernel.iopub_socket, "error", dict(facts))
        count = (self._kernel.execution_count or 1) - 1
        facts.update(execution_count=max(count, 0), user_expressions={}, payload=[])
        return {"status": "error", **facts}

    # -- ends

    def _reply(self, request: Request, content: dict[str, Any]) -> None:
        if request.replied:
            return
        count = self._kernel.execution_count
        count = min(max(count, 0), COUNT_LIMIT) if isinstance(count, int) else 0
        if content.get("status") == "error":
            content = clip_error(content)
        reply = {"type": "reply", "id": request.id, "content": content, "execution_count": count}
        try:
            packets = list(packets_of(reply))
        except Exception as error:
            reply["content"] = self._failure(request, ValueError(f"the answer cannot be sent: {error}"))
            packets = list(encode(reply))
        self._link.send_surely(packets)
        request.replied = True

    @staticmethod
    def _flush() -> None:
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            with suppress(Exception):
                stream.flush()  # type: ignore[union-attr]

    def _end_fork(self, content: dict[str, Any] | None) -> NoReturn:
        """A fork that came out of its cell: it must not go on as a second kernel."""
        self._flush()
        status = 0
        if content is not None and content.get("status") == "error":
            status, value = 1, str(content.get("evalue"))
            if content.get("ename") == "SystemExit":
                status = int(value) & 0xFF if value.isdecimal() else int(value != "None")
        leave(status)

    def _shut_down(self, request: Request) -> NoReturn:
        with suppress(BaseException):
            atexit._run_exitfuncs()
        self._flush()
        self._reply(request, {})
        leave()
