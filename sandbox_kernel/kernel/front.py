"""The kernel that a Jupyter client talks to: validates, relays, decides about life and death; runs no cell.

A bare subclass of ipykernel's base kernel is wrong for a front in eight ways (an interrupt kills it, a debug request
is never answered, ...); each remedy is a method below.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import psutil
from ipykernel._version import kernel_protocol_version
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelbase import Kernel
from IPython.core import release
from jupyter_client.session import Session as JupyterSession
from zmq.eventloop.zmqstream import ZMQStream

from ..channel.schema import InputRequest
from ..errors import SandboxError
from ..outputs.gate import payloads
from ..policy import BUILT_IN, Resolved
from ..report import status_text, traceback_lines
from ..session.denial_text import PlanFacts, denial_line, file_hint
from ..session.denials import Denials
from ..session.session import Interrupted, Plan, Session, Zygote
from .history import History
from .publisher import Publisher

_SOFT_EXIT_S = 1.0
_COMM_TYPES = ("comm_open", "comm_msg", "comm_close")


class SandboxedKernel(Kernel):
    """The front. `attach` must be called before `start`."""

    implementation = "sandboxed-python"
    implementation_version = release.version
    language_info = IPythonKernel.language_info
    help_links = IPythonKernel.help_links
    banner = f"Python {sys.version.split()[0]} in a sandbox -- IPython {release.version}"
    _execute_sleep = 0.0  # our own ordering is sound: a reply is published after everything before it

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        for name in _COMM_TYPES:
            self.shell_handlers[name] = self._comm_message
        self.history = History(self.profile_dir.location if self.profile_dir else "", self.log)
        self._asked: tuple[int, str] | None = None

    def attach(
        self, zygote: Zygote | SandboxError, resolved: Resolved, denials: Denials, plans: Sequence[Plan]
    ) -> None:
        """Take the sandbox that was forked before this object existed."""
        self.publisher = Publisher(
            self._publish, queued=lambda: self.iopub_socket.backlog, ask=self._ask, lost=lambda _error: None
        )
        self.resolved, self.denials, self._plans = resolved, denials, plans
        workspace = plans[0].workspace if plans else ""
        self.sandbox = Session(zygote, resolved.policy, self.publisher, workspace=workspace)

    def start(self) -> None:
        """Serve the sockets."""
        super().start()
        loop: asyncio.AbstractEventLoop = self.io_loop.asyncio_loop  # type: ignore[attr-defined]
        self._loop = loop
        self.iopub_socket.start_on(loop)
        self.sandbox.start(loop)
        # The stock handler raises KeyboardInterrupt inside the event loop, which ends the front.
        loop.add_signal_handler(signal.SIGINT, self.sandbox.interrupt)
        self._stdin_stream = ZMQStream(self.stdin_socket, self.io_loop)
        self._stdin_stream.on_recv(self._answered, copy=False)

    def pre_handler_hook(self) -> None:
        """Stock installs a SIGINT handler that raises; see `start`."""

    def post_handler_hook(self) -> None:
        """Nothing to undo."""

    async def shell_main(self, subshell_id: str | None, msg: Any) -> None:
        """One request after the other; comm messages pass a running cell, but not each other.

        The base class lets comm messages pass whenever its lock is held, without their busy and idle. Here it is
        held, too, while one comm message waits for the worker.
        """
        if self.sandbox.executing:
            await super().shell_main(subshell_id, msg)
        else:
            async with self._main_asyncio_lock:
                await self.dispatch_shell(msg, subshell_id=subshell_id)

    def _abort_queues(self, subshell_id: str | None = None) -> None:
        """Abort the cells that are queued behind a failed one.

        Without a thread for subshells the base class stops aborting in the loop's next turn, which comes before the
        queued requests get the lock that they wait for. The lock is fair: who asks for it last gets it last.
        """
        self._aborting = True
        if self.shell_stream is not None:
            self.shell_stream.flush()

        async def stop_aborting() -> None:
            async with self._main_asyncio_lock:
                self._aborting = False

        self._stopping = self._loop.create_task(stop_aborting())

    # ------------------------------------------------------------ what clients are told

    @property
    def kernel_info(self) -> dict[str, Any]:
        """Answered without the worker, so that starting feels fast and a busy worker is no matter."""
        return {
            "protocol_version": kernel_protocol_version,
            "implementation": self.implementation,
            "implementation_version": self.implementation_version,
            "language_info": self.language_info,
            "banner": self.banner,
            "help_links": self.help_links,
            "supported_features": [],
        }

    @property
    def execution_count(self) -> int:
        """The number of the next cell, as the worker counts."""
        return self.sandbox.execution_count

    @execution_count.setter
    def execution_count(self, value: int) -> None:
        # The base class adds one before each cell; the worker's counter is the truth.
        del value

    def init_metadata(self, parent: dict[str, Any]) -> dict[str, Any]:
        """As stock's IPython kernel has it."""
        metadata: dict[str, Any] = super().init_metadata(parent)
        metadata.update(dependencies_met=True, engine=self.ident)
        return metadata

    def finish_metadata(
        self, parent: dict[str, Any], metadata: dict[str, Any], reply_content: dict[str, Any]
    ) -> dict[str, Any]:
        """As stock's IPython kernel has it."""
        metadata["status"] = reply_content["status"]
        return metadata

    # ------------------------------------------------------------ shell requests

    async def do_execute(
        self,
        code: str,
        silent: bool,
        store_history: bool = True,
        user_expressions: dict[str, str] | None = None,
        allow_stdin: bool = False,
        *,
        cell_meta: dict[str, Any] | None = None,
        cell_id: str | None = None,
    ) -> dict[str, Any]:
        """Run a cell in the worker."""
        parent = self.get_parent("shell")
        self.publisher.remember(parent)
        line = self.execution_count
        keep = store_history and not silent
        if keep:
            self.history.store(line, code)
        magic = code.strip().split()
        status = magic if magic[:1] == ["%sandbox"] and "\n" not in code.strip() else None
        self.publisher.take_result()
        content = {
            "code": "pass" if status else code, "silent": silent, "store_history": store_history,
            "user_expressions": user_expressions or {}, "allow_stdin": allow_stdin,
        }  # fmt: skip
        request_id = parent["header"]["msg_id"]
        self._ident = self._parent_ident["shell"]
        self.denials.take()  # what came between the cells: of threads, comm messages, completions
        try:
            reply = await self._ask_worker("execute", content, metadata=cell_meta or {})
        except Interrupted as error:
            reply = self._error_reply("KeyboardInterrupt", str(error))
            self._publish("error", _only_error(reply), parent, {}, [])
        except SandboxError as error:
            reply = self._error_reply(type(error).__name__, error.explain())
            if not silent:
                self._publish("error", _only_error(reply), parent, {}, [])
        finally:
            self._asked = None
        for line_of_text in self._explanations(reply):
            if not silent:
                self.publisher.stream(request_id, "stderr", line_of_text + "\n")
                self.publisher.flush()
        if status:
            self.publisher.stream(request_id, "stdout", self._status(status[1:]))
            self.publisher.flush()
        reply["payload"] = payloads(reply.get("payload", []))
        shown = self.publisher.take_result()
        if keep and shown is not None:
            self.history.store_output(line, shown)
        if any(p["source"] == "ask_exit" and not p.get("keepkernel") for p in reply["payload"]):
            self._loop.call_later(0.1, self._exit)
        return reply

    async def do_complete(self, code: str, cursor_pos: int) -> dict[str, Any]:
        """Complete in the worker."""
        try:
            return await self._ask_worker("complete", {"code": code, "cursor_pos": cursor_pos})
        except SandboxError:
            return {"status": "ok", "matches": [], "cursor_start": cursor_pos, "cursor_end": cursor_pos, "metadata": {}}

    async def do_inspect(
        self, code: str, cursor_pos: int, detail_level: int = 0, omit_sections: Any = ()
    ) -> dict[str, Any]:
        """Inspect in the worker."""
        fields = {"code": code, "cursor_pos": cursor_pos, "detail_level": detail_level,
                  "omit_sections": sorted(map(str, omit_sections))}  # fmt: skip
        try:
            return await self._ask_worker("inspect", fields)
        except SandboxError:
            return {"status": "ok", "found": False, "data": {}, "metadata": {}}

    async def do_is_complete(self, code: str) -> dict[str, Any]:
        """Ask the worker, whose input transformers decide."""
        try:
            return await self._ask_worker("is_complete", {"code": code})
        except SandboxError:
            return {"status": "unknown"}

    async def history_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """Answer from the front's own history."""
        try:
            entries = self.history.request(parent["content"])
        except Exception:  # a corrupt or locked database must not leave the client without an answer
            self.log.warning("the history could not be read", exc_info=True)
            entries = []
        self._wire.send(stream, "history_reply", {"status": "ok", "history": entries}, parent, ident)

    async def _ask_worker(
        self, op: str, content: Mapping[str, Any], *, metadata: Mapping[str, Any] | None = None, buffers: Any = ()
    ) -> dict[str, Any]:
        parent = self.get_parent("shell")
        self.publisher.remember(parent)
        header = parent["header"]
        fields = {"header": _plain(header), "metadata": _plain(metadata or {}), "content": content}
        return await self.sandbox.request(op, header["msg_id"], fields, buffers)

    def _explanations(self, reply: Mapping[str, Any]) -> list[str]:
        """What the sandbox refused to the cell that just ended, in words."""
        box = self.sandbox.supervisor
        facts = PlanFacts.in_force(self._plans, box.level, box.details)
        found = [denial_line(self.denials.take())]
        if reply.get("status") == "error" and facts is not None:
            found.append(file_hint(str(reply.get("ename")), str(reply.get("evalue")), facts))
        return [text for text in found if text]

    def _error_reply(self, name: str, text: str) -> dict[str, Any]:
        return {
            "status": "error", "ename": name, "evalue": text, "traceback": traceback_lines(name, text),
            "execution_count": max(self.execution_count - 1, 0), "user_expressions": {}, "payload": [],
        }  # fmt: skip

    def _status(self, words: list[str]) -> str:
        if words not in ([], ["status"]):
            return "%sandbox takes no arguments yet: it prints the isolation level and what each probe saw.\n"
        box = self.sandbox.supervisor
        if box.failed is not None:
            return f"There is no sandbox, so no cell is run. {box.failed.explain()}\n"
        rows = [(key, value if origin == BUILT_IN else f"{value}  ({origin})")
                for key, value, origin in self.resolved.rows()]  # fmt: skip
        return status_text(level=box.level, proofs=box.proofs, details=box.details, policy=rows)

    # ------------------------------------------------------------ comms

    async def _comm_message(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        content = parent["content"]
        kind, comm_id = parent["header"]["msg_type"], content.get("comm_id")
        if kind == "comm_open":
            self.publisher.comms[str(comm_id)] = str(content.get("target_name"))
        elif kind == "comm_close":
            self.publisher.comms.pop(str(comm_id), None)
        self.publisher.remember(parent)
        header = parent["header"]
        fields = {"msg_type": kind, "header": _plain(header), "metadata": _plain(parent.get("metadata") or {}),
                  "content": content}  # fmt: skip
        try:
            await self.sandbox.request("comm", header["msg_id"], fields, parent.get("buffers", ()))
        except SandboxError as error:
            self.log.info("comm message dropped: %s", error)

    async def comm_info_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """Answer from the front's table, also while the worker is busy."""
        wanted = parent["content"].get("target_name")
        comms = {k: {"target_name": t} for k, t in self.publisher.comms.items() if wanted in (None, t)}
        self._wire.send(stream, "comm_info_reply", {"status": "ok", "comms": comms}, parent, ident)

    # ------------------------------------------------------------ standard input

    def _ask(self, message: InputRequest) -> None:
        self.publisher.flush()
        self._asked = (message.serial, message.parent)
        self._wire.send(
            self.stdin_socket, "input_request", {"prompt": message.prompt, "password": message.password},
            self.publisher.parent(message.parent), ident=self._ident,
        )  # fmt: skip

    def _answered(self, frames: list[Any]) -> None:
        """An ``input_reply``; one that nobody waits for (the cell was interrupted) is dropped."""
        try:
            _idents, rest = self._wire.feed_identities(frames, copy=False)
            message = self._wire.deserialize(rest, content=True, copy=False)
            value = message["content"]["value"]
        except Exception:
            self.log.warning("an invalid message on the stdin channel was dropped")
            return
        if self._asked is not None and isinstance(value, str):
            serial, self._asked = self._asked[0], None
            self.sandbox.send({"op": "input_reply", "serial": serial, "value": value})

    # ------------------------------------------------------------ control

    async def interrupt_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """Interrupt the cell (stock would signal this process's own group)."""
        self._loop.call_soon_threadsafe(self.sandbox.interrupt)
        self._wire.send(stream, "interrupt_reply", {"status": "ok"}, parent, ident)

    async def do_debug_request(self, msg: dict[str, Any]) -> dict[str, Any]:
        """Refuse: the debugger is not offered (without an answer a debugger panel hangs)."""
        return {
            "type": "response", "request_seq": msg.get("seq", 0), "success": False, "command": msg.get("command", ""),
            "message": "The debugger is not available in Sandboxed Python.",
        }  # fmt: skip

    async def do_shutdown(self, restart: bool) -> dict[str, Any]:
        """End the worker and everything it started (called on the control thread)."""
        ended = asyncio.run_coroutine_threadsafe(self.sandbox.shutdown(restart, _SOFT_EXIT_S), self._loop)
        await asyncio.wrap_future(ended)
        self._loop.call_soon_threadsafe(self.history.close)
        return {"status": "ok", "restart": restart}

    def _exit(self) -> None:
        """The cell asked the kernel to end (``exit``, ``quit``)."""

        async def leave() -> None:
            await self.sandbox.shutdown(False, _SOFT_EXIT_S)
            self.history.close()
            self.io_loop.stop()

        self._leaving = self._loop.create_task(leave())

    # ------------------------------------------------------------ sending

    @property
    def _wire(self) -> JupyterSession:
        if self.session is None:
            raise RuntimeError("the application makes the session before the kernel")
        return self.session

    @cached_property
    def _topics(self) -> dict[str, bytes]:
        return {}

    def _publish(
        self,
        msg_type: str,
        content: dict[str, Any],
        parent: dict[str, Any],
        metadata: dict[str, Any],
        buffers: list[bytes],
    ) -> None:
        topic = self._topics.get(msg_type) or self._topics.setdefault(msg_type, self._topic(msg_type))
        self._wire.send(
            self.iopub_socket, msg_type, content, parent, ident=topic, metadata=metadata, buffers=list(buffers) or None
        )

    def get_process_metric_value(self, process: psutil.Process, name: str, attribute: str | None = None) -> Any:
        """As in stock; a process that does not let itself be read counts with what everybody may see."""
        value = super().get_process_metric_value(process, name, attribute)
        if not value and name == "memory_full_info":
            value = super().get_process_metric_value(process, "memory_info", "rss")
        return value


def _only_error(reply: Mapping[str, Any]) -> dict[str, Any]:
    return {name: reply[name] for name in ("ename", "evalue", "traceback")}


def _plain(header: Mapping[str, Any]) -> dict[str, Any]:
    """A header for the worker: dates as text."""
    return {k: v.isoformat() if hasattr(v, "isoformat") else v for k, v in header.items()}
