"""Keeps what a running cell shows, and tells whoever listens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ..channel.schema import InputRequest, Publish
from ..errors import SandboxError
from ..outputs.gate import Gate
from .execution import Execution, Result

_PARTIAL_S = 0.02

Emit = Callable[[str, Any], None]  # "stdout" or "stderr" and a text, "result" and a Result


class Recorder:
    """The sink of a session in the API. One cell at a time; what comes between cells is kept for none.

    Args:
        gate: what every message passes.

    Attributes:
        tracebacks: of the errors that the cell has shown. The one that ended it is in its reply, too.
        losses: how many workers were lost so far.
        state: what became of the variables the last time: "restored" or "lost".
    """

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self._execution: Execution | None = None
        self._emit: Emit = _nothing
        self._by_id: dict[str, Result] = {}
        self._clear = False
        self._held: list[str] = []
        self._held_name = ""
        self._timer: asyncio.TimerHandle | None = None
        self.tracebacks: list[str] = []
        self.losses = 0
        self.state = "kept"
        self._loss: asyncio.Future[None] | None = None

    def begin(self, execution: Execution, emit: Emit) -> None:
        """From now on everything belongs to this cell."""
        self._execution, self._emit, self._by_id, self._clear = execution, emit, {}, False
        self.tracebacks = []

    def end(self) -> None:
        """The cell has ended."""
        self.flush()
        self._execution, self._emit = None, _nothing

    # ------------------------------------------------------------ session.Sink

    def stream(self, parent: str, name: str, text: str) -> None:
        """Text for standard output or error."""
        if self._execution is None or not text:
            return
        if name != self._held_name:
            self.flush()
        self._held_name = name
        self._held.append(text)
        if text.endswith("\n"):
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_PARTIAL_S, self.flush)

    def publish(self, message: Publish, buffers: list[bytes]) -> None:
        """A display, result or error. Comm messages have nobody to go to.

        Raises:
            ProtocolError: the message is not one that a worker may send.
        """
        execution = self._execution
        if message.msg_type.startswith("comm_"):
            return
        passed = self.gate.message(message.msg_type, message.content, message.metadata, buffers)
        if execution is None or passed is None:
            return
        content = passed.content
        self.flush()
        if message.msg_type in ("display_data", "execute_result"):
            self._begin_anew()
            result = Result.of(content["data"], main=message.msg_type == "execute_result")
            execution.results.append(result)
            name = content.get("transient", {}).get("display_id")
            if name is not None:
                self._by_id[name] = result
            self._emit("result", result)
        elif message.msg_type == "update_display_data":
            old = self._by_id.get(content["transient"].get("display_id", ""))
            if old is not None:
                vars(old).update(vars(Result.of(content["data"], main=old.is_main_result)))
                self._emit("result", old)
        elif message.msg_type == "clear_output":
            self._clear = True
            if not content["wait"]:
                self._begin_anew()
        elif message.msg_type == "error":
            self.tracebacks.append("\n".join([*content["traceback"], ""]))

    def _begin_anew(self) -> None:
        """What ``clear_output`` asked for: the cell replaces what it has shown so far."""
        if self._clear and self._execution is not None:
            self._clear = False
            self._execution.results.clear()
            self._execution.logs.stdout.clear()
            self._execution.logs.stderr.clear()
            self._by_id.clear()

    def ask(self, message: InputRequest) -> None:
        """There is nobody to ask: the worker has been told so, and raises."""

    def flush(self) -> None:
        """Hand on the text that was held back: ``print`` writes its parts one by one."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._held and self._execution is not None:
            text, self._held = self.gate.text("".join(self._held)), []
            self._begin_anew()
            logs = self._execution.logs
            (logs.stdout if self._held_name == "stdout" else logs.stderr).append(text)
            self._emit(self._held_name, text)

    def lost(self, error: SandboxError) -> None:
        """The worker is gone."""
        self.losses += 1
        self.state = error.state
        if self._loss is not None and not self._loss.done():
            self._loss.set_result(None)

    def next_loss(self) -> asyncio.Future[None]:
        """Done when the next worker is lost."""
        self._loss = asyncio.get_running_loop().create_future()
        return self._loss

    def pressed(self) -> bool:
        """Never: what a cell may send is bounded."""
        return False

    def pace(self, seconds: float) -> None:
        """Nothing is merged."""


def _nothing(kind: str, value: Any) -> None:
    """Nobody listens."""
