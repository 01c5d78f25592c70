"""Debug requests to the worker and events from it. What they say is the worker's word; here is what it may say when."""

from __future__ import annotations

import itertools
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from ..channel import schema
from ..errors import ProtocolError, SandboxError, TimeLimit
from ..policy import Limits
from ..report import debug_answer_cut, debug_events_cut, time_at_breakpoints
from .limits import Traffic

# What a client must hear of to go on. The rest may be many, and nobody waits for it.
_STEPS = frozenset({"initialized", "stopped", "continued", "exited", "terminated"})


Handler = Callable[[schema.Message, list[memoryview], int], None]


class Ask(Protocol):
    """`Session.request`."""

    def __call__(self, op: str, request_id: str, fields: Mapping[str, Any]) -> Awaitable[dict[str, Any]]:
        """Send one request and wait for its reply."""


class Debugging:
    """The debug session of a sandbox, if there is one.

    It begins when a client asks to initialize it and ends with the client's ``disconnect`` or with the worker. Only
    then may the worker send events.

    Args:
        ask: sends a request to the worker.
        limits: `output` and `messages` bound the pace of the events, and `output` each answer.

    Attributes:
        publish: called with each event for the client.
        open: whether a session has begun.
    """

    def __init__(self, ask: Ask, limits: Limits) -> None:
        self._ask, self._limits = ask, limits
        self.publish: Callable[[dict[str, Any]], None] = lambda _event: None
        self.open = False
        self._serial = itertools.count(1)
        self._opened = 0  # the request that opened the session
        self._stopped: list[int] = []
        self._steps, self._rest = (Traffic(limits.output, limits.messages) for _ in range(2))
        self._seq = itertools.count(1)
        self._cut = False

    async def request(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Relay a client's request; the answer to it, always.

        Args:
            message: a request of the Debug Adapter Protocol.
        """
        command, serial = str(message.get("command", "")), next(self._serial)
        if command == "initialize":
            self._open(serial)
        try:
            answer = await self._ask("debug", f"debug-{serial}", {"content": dict(message)})
        except SandboxError as error:
            answer = _refusal(error.explain())
        if self._opened <= serial and (command == "disconnect" or (command == "initialize" and not answer["success"])):
            self.open = False
        size = len(json.dumps(answer["body"], ensure_ascii=False))
        if size > self._limits.output:
            answer = _refusal(debug_answer_cut(size, self._limits.output))
        return {**_head(message), "seq": next(self._seq), **answer}

    def _open(self, serial: int) -> None:
        self._opened = serial
        if not self.open:
            self.open, self._cut = True, False
            self._stopped.clear()

    def before(self, handler: Handler) -> Handler:
        """What handles the messages of the worker: events here, all others by `handler`."""

        def handle(message: schema.Message, buffers: list[memoryview], size: int) -> None:
            if isinstance(message, schema.DebugEvent):
                self.event(message, size)
            else:
                handler(message, buffers, size)

        return handle

    def event(self, message: schema.DebugEvent, size: int) -> None:
        """Pass an event on, as long as there are not too many of them.

        Raises:
            ProtocolError: there is no debug session.
        """
        if not self.open:
            raise ProtocolError("a debug event without a debug session")
        traffic = self._steps if message.event in _STEPS else self._rest
        if not traffic.charge(size):
            if not self._cut:
                self._cut = True
                self._publish("output", {"category": "important", "output": debug_events_cut()})
            return
        thread = message.body.get("threadId")
        if message.event == "stopped" and isinstance(thread, int):
            self._stopped = [*self._stopped[-100:], thread]
        elif message.event == "continued":
            self._stopped.clear()
        self._publish(message.event, message.body)

    def _publish(self, event: str, body: dict[str, Any]) -> None:
        self.publish({"type": "event", "seq": next(self._seq), "event": event, "body": body})

    def lost(self) -> None:
        """The worker is gone; with it the session: the client must not wait at a breakpoint that is no more."""
        if self.open:
            self.open = False
            for thread in dict.fromkeys(self._stopped):
                self._publish("continued", {"threadId": thread, "allThreadsContinued": True})
            self._publish("terminated", {})

    def note(self, error: SandboxError | None) -> str:
        """What a person who debugs should hear besides when this error ended the cell; "" for nothing."""
        return time_at_breakpoints() if self.open and isinstance(error, TimeLimit) else ""


def _refusal(text: str) -> dict[str, Any]:
    return {"success": False, "message": text, "body": {}}


def _head(message: Mapping[str, Any]) -> dict[str, Any]:
    seq, command = message.get("seq"), str(message.get("command", ""))
    return {"type": "response", "request_seq": seq if isinstance(seq, int) else 0, "command": command}


def refused(message: Mapping[str, Any], text: str) -> dict[str, Any]:
    """The answer to a client's request that was not relayed."""
    return {**_head(message), "seq": 0, **_refusal(text)}
