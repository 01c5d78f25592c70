"""The kernel that a Jupyter client talks to: validates, relays, decides about life and death; runs no cell.

A bare subclass of ipykernel's base kernel is wrong for a front in eight ways (an interrupt kills it, a debug request
is never answered, ...); each remedy is a method below.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from ipykernel._version import kernel_protocol_version
from ipykernel.ipkernel import IPythonKernel
from IPython.core import release
from zmq.eventloop.zmqstream import ZMQStream

from .. import telemetry
from ..auditing import Audit, outcome_of
from ..channel.schema import InputRequest
from ..code_rules import CodeGate
from ..errors import SandboxError
from ..outputs.open_gate import make_gate
from ..outputs.settings import Settings
from ..policy import Resolved
from ..session.aside import Aside
from ..session.denials import Denials
from ..session.session import Interrupted, Plan, Session, Zygote
from . import cell, frame_comms, startup
from .answers import place
from .card import Card
from .cell_options import cell_options, half_time, too_long_note
from .commands import Commands, output_hint, words_of
from .control import ControlKernel
from .debugging import DebugRequests
from .file_requests import FileRequests
from .history import History
from .publisher import Publisher
from .questions import Questions
from .shells import COMM_TYPES
from .transcript import Transcript

_SOFT_EXIT_S = 1.0
_DEADLINE_S = 10.0  # for completion, inspection and the like


class SandboxedKernel(ControlKernel, DebugRequests, FileRequests):
    """The front. `attach` must be called before `start`."""

    implementation = "sandboxed-python"
    implementation_version = release.version
    language_info = IPythonKernel.language_info
    help_links = IPythonKernel.help_links
    banner = f"Python {sys.version.split()[0]} in a sandbox -- IPython {release.version}"
    _execute_sleep = 0.0  # our own ordering is sound: a reply is published after everything before it

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        for name in COMM_TYPES:
            self.shell_handlers[name] = self._comm_message
        self.history = History(self.profile_dir.location if self.profile_dir else "", self.log)
        self._topics: dict[str, bytes] = {}
        self._cells = 0  # that run, on all shells

    def attach(
        self, zygote: Zygote | SandboxError, resolved: Resolved, denials: Denials, plans: Sequence[Plan]
    ) -> None:
        """Take the sandbox that was forked before this object existed."""
        self.gate = make_gate(Settings(**msgspec.structs.asdict(resolved.policy.outputs)))
        self.publisher = Publisher(
            self._publish, queued=lambda: self.iopub_socket.backlog, ask=self._ask, lost=self._lost,
            gate=self.gate,
        )
        self.resolved, self.denials, self._plans = resolved, denials, plans
        workspace = plans[0].workspace if plans else ""
        self.transcript = Transcript(resolved.policy.limits.output_kept)
        self.sandbox = Session(
            zygote, resolved.policy, self.publisher, workspace=workspace, plans=plans,
            record=self.transcript.add,
        )  # fmt: skip
        self.sandbox.aside = Aside.of(resolved.policy, workspace, os.environ)
        profile = self.profile_dir.location if self.profile_dir else ""
        started = startup.prepare(self.sandbox, resolved.policy, profile, workspace, os.environ)
        self.commands = Commands(self.sandbox, resolved, self.transcript, self.gate.removed, started)
        self.card = Card(self.sandbox, resolved, self.gate.removed, self.commands, self.publisher, self._publish)
        self.frame_comms = frame_comms.FrameComms(self.sandbox, resolved.policy.limits.frame, self._publish)
        self.attach_debugging(self.sandbox.debugging)
        seen = [folder for folder in (workspace, *resolved.policy.files.read) if folder]
        self.code_gate = CodeGate(resolved.policy.code)
        self.audit = Audit(resolved.policy.audit.file, seen)

    def start(self) -> None:
        """Serve the sockets."""
        super().start()
        loop: asyncio.AbstractEventLoop = self.io_loop.asyncio_loop  # type: ignore[attr-defined]
        self._loop = loop
        self.iopub_socket.start_on(loop)
        self.sandbox.start(loop)
        # Stock's ends the front. asyncio's is late: when it is called the next cell may have begun.
        signal.signal(signal.SIGINT, self._interrupted)
        self.questions = Questions(
            self._wire, self.stdin_socket, parent=self.publisher.parent, answer=self.sandbox.answer
        )
        self._stdin_stream = ZMQStream(self.stdin_socket, self.io_loop)
        self._stdin_stream.on_recv(self.questions.answered, copy=False)
        self.serve_shells(loop, self.resolved.policy.limits.processes)
        telemetry.watch(loop, self.sandbox.supervisor, os.environ)

    def _ask(self, message: InputRequest) -> None:
        self.publisher.flush()
        self.questions.ask(message)

    def subshells_changed(self, names: list[str]) -> None:
        """Tell the worker."""
        self.sandbox.set_subshells(names)

    def _interrupted(self, *_: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.sandbox.interrupt, self.sandbox.turn)

    def pre_handler_hook(self) -> None:
        """Stock installs a SIGINT handler that raises; see `start`."""

    def post_handler_hook(self) -> None:
        """Nothing to undo."""

    # ------------------------------------------------------------ what clients are told

    @property
    def kernel_info(self) -> dict[str, Any]:
        """Answered without the worker, so that starting feels fast and a busy worker is no matter."""
        return {
            "protocol_version": kernel_protocol_version,
            "implementation": self.implementation,
            "implementation_version": self.implementation_version,
            "language_info": self.language_info,
            "banner": f"{self.banner}\n{cell.level_line(self.sandbox.supervisor.level)}",
            "help_links": self.help_links,
            "supported_features": ["kernel subshells", "debugger"],
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
        words, number = words_of(code), self.execution_count  # raises where the code is no text, before any trace of it
        parent = self.get_parent("shell")
        self.publisher.begin(parent)
        line, keep, began = self.execution_count, store_history and not silent, self._loop.time()
        if keep := keep and bool(code) and not code.isspace():  # the others are not counted: the next has their number
            line = self.history.store(line, code)
        request_id, on_main = parent["header"]["msg_id"], parent["header"].get("subshell_id") is None
        if on_main and words is None and not silent:
            self.transcript.begin(number)
        if not self._cells:
            self.denials.take()  # what came between the cells: of threads, comm messages, completions
        content = {
            "code": code if words is None else "pass", "silent": silent, "store_history": store_history,
            "user_expressions": user_expressions or {}, "allow_stdin": allow_stdin,
            **self.code_gate.at_run_time,
        }  # fmt: skip
        self._cells += 1
        await self.sandbox.files.refresh()
        time_s, notes = self._time_of(code, cell_meta or {})
        for note in notes if not silent else ():
            self.publisher.stream(request_id, "stderr", note)
        allowed_s = time_s or self.resolved.policy.limits.cell_time
        with (
            self.questions.allowed(request_id, self._parent_ident["shell"] if allow_stdin else None),
            # (Somebody sits at a front end that takes answers.)
            half_time(self._loop, allowed_s if allow_stdin and not silent else 0.0, self._teller(request_id)),
        ):
            reply, error = await self._run_cell(content, cell_meta or {}, time_s)
        self._cells -= 1
        denials = self.denials.take()
        if on_main:
            self.transcript.end()
        if error is not None and not silent:
            self._publish("error", cell.error_content(reply), parent, {}, [])
        # A client that names the cell has a document (JupyterLab, Notebook, VS Code); a console or a runner has none.
        reply, instead = self.gate.execute_reply(reply, code, document=cell_id is not None)
        if instead and not silent:
            self.publisher.stream(request_id, "stdout", instead)
        said = await cell.explanations(self.sandbox, self._plans, denials, reply, interactive=allow_stdin)
        said += self.sandbox.debugging.note(error)
        if on_main and self.sandbox.output.cut:
            said += output_hint(number)
        if said and not silent:
            self.publisher.stream(request_id, "stderr", said)
        seconds = self._loop.time() - began
        self.card.note(seconds, denials)
        await self.card.answer(words, number, parent, document=cell_id is not None)
        self.publisher.flush()
        self.audit.note(request_id, code, outcome_of(reply), error=error, level=self.sandbox.supervisor.level,
                        denials=denials, seconds=seconds, removed=self.gate.take_removed())  # fmt: skip
        self.iopub_socket.catch_up()  # where nothing was waited for: "busy" comes before the reply
        shown = self.publisher.end(request_id)
        if keep and shown is not None:
            self.history.store_output(line, shown)
        if any(p["source"] == "ask_exit" and not p.get("keepkernel") for p in reply["payload"]):
            self._loop.call_later(0.1, self._exit)
        return reply

    def _time_of(self, code: str, metadata: Mapping[str, Any]) -> tuple[float, list[str]]:
        """The time that a cell gives itself (0: none), and what there is to say about it."""
        asked_s, notes = cell_options(code, metadata)
        allowed_s = self.resolved.policy.limits.cell_time
        if asked_s > allowed_s > 0:
            return 0.0, [*notes, too_long_note(asked_s, allowed_s)]
        return asked_s, notes

    def _teller(self, request_id: str) -> Callable[[str], None]:
        def tell(text: str) -> None:
            self.publisher.stream(request_id, "stderr", text)
            self.publisher.flush()

        return tell

    async def _run_cell(
        self, content: Mapping[str, Any], metadata: Mapping[str, Any], time_s: float
    ) -> tuple[dict[str, Any], SandboxError | None]:
        """The reply, and the error when it is the sandbox that says it."""
        asked = content["user_expressions"]
        error: SandboxError | None = self.audit.refusal() or await self.code_gate.refusal(content["code"], asked)
        try:
            if error is None:
                return await self._ask_worker("execute", content, metadata=metadata, time_s=time_s), None
        except SandboxError as caught:
            error = caught
        said = ("KeyboardInterrupt", str(error)) if isinstance(error, Interrupted) else error
        return cell.error_reply(said, self.execution_count), error

    async def do_complete(self, code: str, cursor_pos: int) -> dict[str, Any]:
        """Complete in the worker."""
        cursor_pos = place(code, cursor_pos)
        try:
            reply = await self._ask_in_time("complete", {"code": code, "cursor_pos": cursor_pos})
            return self.gate.complete_reply(reply)
        except SandboxError:
            return {"status": "ok", "matches": [], "cursor_start": cursor_pos, "cursor_end": cursor_pos, "metadata": {}}

    async def do_inspect(
        self, code: str, cursor_pos: int, detail_level: int = 0, omit_sections: Any = ()
    ) -> dict[str, Any]:
        """Inspect in the worker."""
        fields = {"code": code, "cursor_pos": place(code, cursor_pos), "detail_level": detail_level,
                  "omit_sections": sorted(map(str, omit_sections))}  # fmt: skip
        try:
            return self.gate.inspect_reply(await self._ask_in_time("inspect", fields))
        except SandboxError:
            return {"status": "ok", "found": False, "data": {}, "metadata": {}}

    async def do_is_complete(self, code: str) -> dict[str, Any]:
        """Ask the worker, whose input transformers decide."""
        try:
            return self.gate.is_complete_reply(await self._ask_in_time("is_complete", {"code": code}))
        except SandboxError:
            return {"status": "unknown"}

    async def _ask_in_time(self, op: str, content: Mapping[str, Any]) -> dict[str, Any]:
        """As `_ask_worker`, for what runs code of the session without its being asked for: it may not hold up cells."""
        try:
            async with asyncio.timeout(_DEADLINE_S):
                return await self._ask_worker(op, content)
        except TimeoutError:
            if not self.sandbox.executing:
                self.sandbox.supervisor.interrupt()
            raise SandboxError(f"no answer within {_DEADLINE_S:g} s") from None

    async def _ask_worker(
        self, op: str, content: Mapping[str, Any], *, metadata: Mapping[str, Any] | None = None, buffers: Any = (),
        time_s: float = 0.0,
    ) -> dict[str, Any]:  # fmt: skip
        parent = self.get_parent("shell")
        self.publisher.remember(parent)
        header = parent["header"]
        plain = cell.plain_header
        fields = {"header": plain(header), "metadata": plain(metadata or {}), "content": content,
                  "control": plain(self.get_parent("control").get("header", {}))}  # fmt: skip
        return await self.sandbox.request(
            op, header["msg_id"], fields, buffers, shell=header.get("subshell_id") or "", time_s=time_s
        )  # fmt: skip

    # ------------------------------------------------------------ comms

    async def _comm_message(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        content = parent["content"]
        kind, comm_id = parent["header"]["msg_type"], content.get("comm_id")
        if kind == "comm_open" and content.get("target_name") == frame_comms.TARGET:
            await self.frame_comms.opened(parent, cell.plain_header(parent["header"]))
            return
        target = content.get("target_name")
        if kind == "comm_open" and isinstance(comm_id, str) and isinstance(target, str):  # else the worker opens none
            self.publisher.opened(comm_id, target)
            self.gate.opened_by_client(comm_id, target, content.get("data"))
        elif kind == "comm_close":
            self.publisher.comms.pop(str(comm_id), None)
        self.publisher.remember(parent)
        header = parent["header"]
        plain = cell.plain_header
        fields = {"msg_type": kind, "header": plain(header), "metadata": plain(parent.get("metadata") or {}),
                  "content": content}  # fmt: skip
        try:
            await self.sandbox.request(
                "comm", header["msg_id"], fields, parent.get("buffers", ()), shell=header.get("subshell_id") or ""
            )  # fmt: skip
        except SandboxError as error:
            self.log.info("comm message dropped: %s", error)


    # ------------------------------------------------------------ control

    async def interrupt_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """Interrupt the cell (stock would signal this process's own group)."""
        self._loop.call_soon_threadsafe(self.sandbox.interrupt, self.sandbox.turn)
        self._wire.send(stream, "interrupt_reply", {"status": "ok"}, parent, ident)

    async def do_shutdown(self, restart: bool) -> dict[str, Any]:
        """End the worker and everything it started (called on the control thread)."""
        ended = asyncio.run_coroutine_threadsafe(self.sandbox.shutdown(restart, _SOFT_EXIT_S), self._loop)
        await asyncio.wrap_future(ended)
        self._loop.call_soon_threadsafe(self._close_files)
        return {"status": "ok", "restart": restart}

    async def _progressively_terminate_all_children(self) -> None:
        """Leave out stock's hunt: the sandbox has ended. It would wait 14 s for the dead that nobody has collected."""

    def _close_files(self) -> None:
        self.history.close()
        self.audit.close()

    def _exit(self) -> None:
        """The cell asked the kernel to end (``exit``, ``quit``)."""

        async def leave() -> None:
            await self.sandbox.shutdown(False, _SOFT_EXIT_S)
            self._close_files()
            self.io_loop.stop()

        self._leaving = self._loop.create_task(leave())

    # ------------------------------------------------------------ sending

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
