"""``debug_request`` on the control channel: relayed to the worker without making anything else wait."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

from ipykernel.kernelbase import Kernel

from ..auditing import Audit, outcome_of
from ..code_rules.gate import CodeGate
from ..errors import SandboxError
from ..outputs.gate import Gate
from ..outputs.settings import Removed
from ..session.debugging import Debugging, refused
from ..session.session import Session
from .cell import error_reply

# Debug requests come one after the other, but one that waits for code of the cells (`evaluate`) must not keep those
# from coming through that could end it.
PATIENCE_S = 5.0

# Requests with code in them, and where it is. Breakpoints have some, too.
_CODE = {"evaluate": ("expression",), "setExpression": ("expression", "value"), "setVariable": ("name", "value")}
_COUNTED = re.compile(r"[\s\d<>=%]*")
_BRACES = re.compile(r"\{([^{}]*)\}")


class DebugRequests(Kernel):
    """The part of the front that a debugger's client talks to.

    The base class handles one control message after the other. A debug request can take as long as a cell, and an
    interrupt must not stand behind it. So debug requests wait for each other only.
    """

    _loop: asyncio.AbstractEventLoop
    audit: Audit
    code_gate: CodeGate
    gate: Gate
    sandbox: Session

    def attach_debugging(self, debugging: Debugging) -> None:
        """Take the debugger's side of the sandbox."""
        self._debugging = debugging
        debugging.publish = self._publish_event
        self._debug_parent: dict[str, Any] = {}
        self._debug_turn = asyncio.Lock()

    async def dispatch_control(self, msg: list[Any]) -> None:
        """Handle one control message (on the control thread)."""
        if self._is_debug_request(msg):
            async with self._in_turn():
                await self._debug_request(msg)
        else:
            await super().dispatch_control(msg)

    def _is_debug_request(self, frames: list[Any]) -> bool:
        # Its signature is checked later, and may be checked once only.
        try:
            _idents, rest = self._signer.feed_identities(frames, copy=False)
            return bool(self._signer.unpack(rest[1].bytes)["msg_type"] == "debug_request")
        except Exception:
            return False

    @contextlib.asynccontextmanager
    async def _in_turn(self) -> AsyncIterator[None]:
        try:
            await asyncio.wait_for(self._debug_turn.acquire(), PATIENCE_S)
        except TimeoutError:
            yield
            return
        try:
            yield
        finally:
            self._debug_turn.release()

    async def _debug_request(self, frames: list[Any]) -> None:
        idents, rest = self._signer.feed_identities(frames, copy=False)
        try:
            parent = self._signer.deserialize(rest, content=True, copy=False)
        except Exception:
            self.log.warning("an invalid message on the control channel was dropped")
            return
        self._debug_parent = {"header": parent["header"]}
        self._publish_status("busy", "control", parent)
        try:
            asked = self._relay(parent["header"]["msg_id"], parent["content"])
            answer = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asked, self._loop))
            self._signer.send(self.control_stream, "debug_reply", gate_answer(self.gate, answer), parent, idents)
        finally:
            self._publish_status_and_flush("idle", "control", self.control_stream, parent)

    async def _relay(self, request_id: str, message: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the worker (on the main loop). Code of the person is held to the rules for cells, and noted."""
        texts = code_of(message)
        if not texts:
            return await self._debugging.request(message)
        error: SandboxError | None = self.audit.refusal() or await self.code_gate.refusal_of_expressions(texts)
        began = self._loop.time()
        answer = await self._debugging.request(message) if error is None else refused(message, error.explain())
        reply = {} if answer["success"] else error_reply(error or ("error", str(answer.get("message"))), 0)
        self.audit.note(request_id, "\n".join(texts), outcome_of(reply), error=error,
                        level=self.sandbox.supervisor.level, denials=[],
                        seconds=self._loop.time() - began, removed=Removed())  # fmt: skip
        return answer

    def _lost(self, _error: SandboxError) -> None:
        """The worker is gone."""
        self._debugging.lost()

    def _publish_event(self, event: dict[str, Any]) -> None:
        self._signer.send(self.iopub_socket, "debug_event", event, self._debug_parent, self._topic("debug_event"))

    @property
    def _signer(self) -> Any:
        return self.session


def code_of(message: Mapping[str, Any]) -> list[str]:
    """The pieces of code in a debug request: what is evaluated, now or when a breakpoint is reached."""
    command, arguments = message.get("command"), message.get("arguments")
    if not isinstance(arguments, Mapping):
        return []
    found = [arguments.get(name) for name in _CODE.get(str(command), ())]
    for kind in ("breakpoints", "filterOptions", "exceptionOptions"):
        points = arguments.get(kind)
        for point in points if isinstance(points, list) else ():
            if isinstance(point, Mapping):
                found += [point.get("condition"), _counted(point.get("hitCondition"))]
                found += _logged(point.get("logMessage"))
    if arguments.get("guiEventLoop") not in (None, "none"):
        found.append(f"import {arguments['guiEventLoop']}")
    return [str(text) for text in found if text]


def _counted(condition: object) -> str:
    """A condition on how often a breakpoint was reached: a comparison ("> 5"), or an expression of that number."""
    text = str(condition or "")
    return "" if _COUNTED.fullmatch(text) else text.replace("@HIT@", "0")


def _logged(message: object) -> list[str]:
    """The expressions in the message of a breakpoint that prints; all of it when they cannot be told apart."""
    text = str(message or "")
    return [text] if set("{}") & set(_BRACES.sub("", text)) else _BRACES.findall(text)


def gate_answer(gate: Gate, answer: Mapping[str, Any]) -> dict[str, Any]:
    """An answer of the debugger as it may reach a client, which renders what `richInspectVariables` says.

    The rest is shown as text.
    """
    if answer["command"] != "richInspectVariables":
        return dict(answer)
    found = [answer["body"].get(name) for name in ("data", "metadata")]
    data, metadata = gate.bundle(*(value if isinstance(value, dict) else {} for value in found))
    return {**answer, "body": {"data": data, "metadata": metadata}}
