"""The main shell and the subshells (JEP 91): each serves its requests in order, all of them at the same time.

The front needs no threads for it. Every shell is a queue on the main loop, and every request a task with a context of
its own, in which the base class keeps the request's header. The threads are the worker's.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
import uuid
from collections import deque
from collections.abc import Coroutine
from functools import partial
from typing import Any

import zmq
from ipykernel.kernelbase import Kernel

from .wire import Wire

COMM_TYPES = ("comm_open", "comm_msg", "comm_close")
MOST_SUBSHELLS = 64  # each is a thread of the worker
# JupyterLab and its server do not take the states of these for the kernel's (`untracked_message_types`).
_UNTRACKED = {"kernel_info_request", "comm_info_request", "debug_request", "interrupt_request", "shutdown_request"}
UNUSED_S = 600.0  # after this a subshell may go when another one is wanted and there are too many
_SHARE = 4  # of the processes and threads that the policy allows, one in so many may be a subshell's


class Request:
    """One message on the shell channel.

    Attributes:
        reply_to: where its reply goes; None for the shell channel. Whoever gives another one has published "busy".
        aborted: it stood behind a cell that failed.
    """

    def __init__(self, idents: list[bytes], message: dict[str, Any], reply_to: Any = None) -> None:
        self.idents, self.message, self.reply_to = idents, message, reply_to
        self.kind: str = message["header"]["msg_type"]
        self.aborted = False


class Shell:
    """One queue. `closed`: what comes late is refused. `used`: when it last had something to do, on the clock."""

    def __init__(self) -> None:
        self.waiting: deque[Request] = deque()
        self.active: Request | None = None
        self.comm: Request | None = None  # that passes the active cell
        self.closed = False
        self.used = time.monotonic()

    def next(self) -> Request | None:
        """The request that can be started now. Comm messages pass a running cell, but not each other."""
        if self.active is None:
            self.active = self.waiting.popleft() if self.waiting else None
            return self.active
        if self.active.kind == "execute_request" and self.comm is None:
            self.comm = next((request for request in self.waiting if request.kind in COMM_TYPES), None)
            if self.comm is not None:
                self.waiting.remove(self.comm)
            return self.comm
        return None

    def done(self, request: Request) -> None:
        """It was answered."""
        self.used = time.monotonic()
        if request is self.active:
            self.active = None
        else:
            self.comm = None


class ShellsKernel(Kernel):
    """Takes requests off the shell channel, and answers the three about subshells."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._main_shell = Shell()
        self._shells: dict[str, Shell] = {}
        self._serving: set[asyncio.Task[None]] = set()
        self._most_subshells = MOST_SUBSHELLS

    def serve_shells(self, loop: asyncio.AbstractEventLoop, processes: int) -> None:
        """Begin.

        Args:
            processes: how many processes and threads the worker may have.
        """
        self._shells_loop = loop
        self._most_subshells = max(1, min(MOST_SUBSHELLS, processes // _SHARE))
        if self.shell_stream is not None:
            self.shell_stream.on_recv(self._arrived, copy=False)
            if isinstance(self.session, Wire):
                self.session.direct = self.shell_stream

    def subshells_changed(self, names: list[str]) -> None:
        """There are these subshells from now on, oldest first."""

    def must_wait(self, shell: Shell, request: Request) -> None:
        """A request stands behind another one on its shell."""

    # ------------------------------------------------------------ the shell channel

    def _arrived(self, frames: list[Any]) -> None:
        if self.session is None:
            return
        try:
            idents, rest = self.session.feed_identities(frames, copy=False)
            request = Request(idents, self.session.deserialize(rest, content=True, copy=False))
        except Exception:
            self.log.warning("an invalid message on the shell channel was dropped", exc_info=True)
            return
        self.put(request)

    def put(self, request: Request) -> None:
        """Queue a request on its shell."""
        name = request.message["header"].get("subshell_id")
        shell = self._main_shell if name is None else self._shells.get(name) if isinstance(name, str) else None
        if shell is None:
            self._start(self._refuse(request))
            return
        shell.waiting.append(request)
        self._advance(shell)
        if request in shell.waiting:
            self.must_wait(shell, request)

    def _advance(self, shell: Shell) -> None:
        while (request := shell.next()) is not None:
            self._start(self._serve(shell, request))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._shells_loop.create_task(work, context=contextvars.copy_context())
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, shell: Shell, request: Request) -> None:
        try:
            if shell.closed:
                await self._refuse(request)
            else:
                await self._handle(request)
        finally:
            shell.done(request)
            self._advance(shell)

    async def _handle(self, request: Request) -> None:
        message, idents, stream = request.message, request.idents, request.reply_to or self.shell_stream
        self.set_parent(idents, message, channel="shell")
        if request.reply_to is None:
            busy = partial(self._publish_status, "busy", "shell", message)
            if request.kind == "execute_request" and not request.aborted:
                self.iopub_socket.soon(busy)
            else:
                busy()
        handler = self.shell_handlers.get(request.kind)
        if request.aborted:
            self._send_abort_reply(stream, message, idents)
        elif handler is None:
            self.log.warning("unknown message type %r", request.kind)
        else:
            try:
                await handler(stream, idents, message)
            except Exception:
                self.log.exception("a request was not answered")
        self._finish("idle")

    def _finish(self, status: str) -> None:
        self._publish_status(status, "shell")
        if self.shell_stream is not None and self.shell_stream.sending():
            self.shell_stream.flush(zmq.POLLOUT)  # the reply must not wait for the loop's next turn

    def _publish_execute_input(self, code: str, parent: dict[str, Any], execution_count: int) -> None:
        self.iopub_socket.soon(partial(super()._publish_execute_input, code, parent, execution_count))

    def _publish_status(self, status: str, channel: str, parent: dict[str, Any] | None = None) -> None:
        super()._publish_status(status, channel, parent)
        running = self._main_shell.active
        ended = parent if parent is not None else self.get_parent(channel)
        if status == "idle" and running is not None and running.message is not ended:
            self.still_busy(ended, running.message)

    def tell_status(self, state: str, parent: dict[str, Any]) -> None:
        """Publish a state without making this message the parent of what the kernel publishes next."""
        if self.session is not None:
            self.session.send(
                self.iopub_socket, "status", {"execution_state": state}, {"header": parent["header"]},
                ident=self._topic("status"),
            )  # fmt: skip

    def still_busy(self, ended: dict[str, Any], running: dict[str, Any]) -> None:
        """Say that a cell still runs, after another request was "idle".

        Clients take the last word, whosever it is, for the state of the kernel. It belongs to no request that anybody
        sent, so that each of those is busy once and idle once, as in stock.
        """
        if ended.get("header", {}).get("msg_type") not in _UNTRACKED:
            self.tell_status("busy", {"header": {**running["header"], "msg_id": uuid.uuid4().hex}})

    async def _refuse(self, request: Request) -> None:
        """Answer a request for a subshell that is not there; its idle is all that some clients wait for."""
        message = request.message
        name = str(message["header"].get("subshell_id"))[:100]
        self.set_parent(request.idents, message, channel="shell")
        if request.reply_to is None:
            self._publish_status("busy", "shell")
        content = {
            "status": "error", "ename": "UnknownSubshellError", "evalue": f"Unknown subshell_id {name!r}",
            "traceback": [],
        }  # fmt: skip
        if self.session is not None and request.kind not in COMM_TYPES:
            kind = request.kind.removesuffix("_request") + "_reply"
            self.session.send(request.reply_to or self.shell_stream, kind, content, message, request.idents)
        self._finish("idle")

    def _abort_queues(self, subshell_id: str | None = None) -> None:
        """Abort the cells that stand behind a failed one, on its shell, those in the socket's buffer included."""
        if self.shell_stream is not None:
            self.shell_stream.flush(zmq.POLLIN)
        shell = self._main_shell if subshell_id is None else self._shells.get(subshell_id)
        for request in shell.waiting if shell is not None else ():
            request.aborted = request.kind == "execute_request"

    # ------------------------------------------------------------ the control channel (a thread of its own)

    async def create_subshell_request(self, socket: Any, ident: Any, parent: dict[str, Any]) -> None:
        """Open one more, up to a maximum."""
        await self._answer_control(socket, ident, parent, self._create())

    async def delete_subshell_request(self, socket: Any, ident: Any, parent: dict[str, Any]) -> None:
        """Close one. What runs on it goes on to its end."""
        await self._answer_control(socket, ident, parent, self._delete(parent["content"].get("subshell_id")))

    async def list_subshell_request(self, socket: Any, ident: Any, parent: dict[str, Any]) -> None:
        """Name all."""
        await self._answer_control(socket, ident, parent, self._list())

    async def _answer_control(
        self, socket: Any, ident: Any, parent: dict[str, Any], work: Coroutine[Any, Any, dict[str, Any]]
    ) -> None:
        content = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._shells_loop))
        kind = parent["header"]["msg_type"].removesuffix("_request") + "_reply"
        if self.session is not None:
            self.session.send(socket, kind, content, parent, ident)

    async def _create(self) -> dict[str, Any]:
        if len(self._shells) >= self._most_subshells and not self._make_room():
            return _error("TooManySubshells", f"This kernel has {self._most_subshells} subshells and may have no more.")
        name = str(uuid.uuid4())
        self._shells[name] = Shell()
        self.subshells_changed(list(self._shells))
        return {"status": "ok", "subshell_id": name}

    def _make_room(self) -> bool:
        """Close the subshell that was not used for longest: a page that is loaded anew leaves its own behind."""
        free = [(shell.used, name) for name, shell in self._shells.items()
                if shell.active is None and shell.comm is None and not shell.waiting]  # fmt: skip
        used, name = min(free, default=(time.monotonic(), ""))
        if time.monotonic() - used < UNUSED_S:
            return False
        self._shells.pop(name).closed = True
        return True

    async def _delete(self, name: object) -> dict[str, Any]:
        shell = self._shells.pop(name, None) if isinstance(name, str) else None
        if shell is None:
            return _error("UnknownSubshellError", f"Unknown subshell_id {str(name)[:100]!r}")
        shell.closed = True
        self.subshells_changed(list(self._shells))
        return {"status": "ok"}

    async def _list(self) -> dict[str, Any]:
        return {"status": "ok", "subshell_id": list(self._shells)}


def _error(name: str, text: str) -> dict[str, Any]:
    return {"status": "error", "ename": name, "evalue": text, "traceback": []}
