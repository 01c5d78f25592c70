"""From the session to the client: gates every message, keeps the order, merges small writes.

The first line goes out at once, what follows within `MERGE_S` is merged: a loop of prints makes few messages and a
line is still visible at once. A piece that does not end a line waits `PARTIAL_S`: `print` writes its text and the
line's end apart, and they belong into one message.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ..channel.schema import InputRequest, Publish
from ..errors import SandboxError
from ..outputs.gate import Gate
from ..outputs.text import split_unfinished

MERGE_S = 0.01
PARTIAL_S = 0.02
MERGE_BYTES = 1 << 20
_PARENTS = 1000
_COMMS = 10_000
_UNFINISHED = 64


class Publisher:
    """The `Sink` of the kernel's session.

    Args:
        send: publishes one message: type, content, parent header, metadata, buffers.
        queued: how many messages wait because a client is behind.
        ask: forwards an input request to the client that asked for the cell.
        lost: called when the worker is gone.
        gate: what every message passes.
    """

    def __init__(
        self,
        send: Callable[[str, dict[str, Any], dict[str, Any], dict[str, Any], list[bytes]], None],
        *,
        queued: Callable[[], int],
        ask: Callable[[InputRequest], None],
        lost: Callable[[SandboxError], None],
        gate: Gate,
    ) -> None:
        self._send, self._queued, self.ask, self._lost = send, queued, ask, lost
        self._parents: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._results: dict[str, str | None] = {}  # of the cells that run
        self._text: list[str] = []
        self._text_bytes = 0
        self._text_key = ("", "")
        self._timer: asyncio.TimerHandle | None = None
        self._sent_at = 0.0
        self._merge_s = MERGE_S
        self.comms: OrderedDict[str, str] = OrderedDict()
        self.gate, gate.comms = gate, self.comms
        self._unfinished: OrderedDict[tuple[str, str], str] = OrderedDict()  # starts of control sequences

    def remember(self, parent: dict[str, Any]) -> None:
        """Note a request; the worker can only name messages by the ids noted here."""
        # The header alone: the code of a thousand cells would be kept with the rest.
        self._parents[parent["header"]["msg_id"]] = {"header": parent["header"]}
        # A cell may run for as long as it takes a thousand widget messages to come.
        while len(self._parents) > _PARENTS + len(self._results):
            oldest = next(request for request in self._parents if request not in self._results)
            del self._parents[oldest]

    def parent(self, request_id: str) -> dict[str, Any]:
        """The request with this id, its header only; empty when it is not (or no longer) known."""
        return self._parents.get(request_id, {})

    def begin(self, parent: dict[str, Any]) -> None:
        """Note a cell, and its result when it has one."""
        self._results[parent["header"]["msg_id"]] = None
        self.remember(parent)

    def end(self, request_id: str) -> str | None:
        """The cell has ended; the text of its last result."""
        return self._results.pop(request_id, None)

    # ------------------------------------------------------------ Sink

    def stream(self, parent: str, name: str, text: str) -> None:
        """Text for standard output or error."""
        if self._text and (parent, name) != self._text_key:
            self.flush()
        self._text_key = (parent, name)
        self._text.append(text)
        self._text_bytes += len(text)
        whole = text.endswith("\n")
        loop = asyncio.get_running_loop()
        since = loop.time() - self._sent_at
        if self._text_bytes >= MERGE_BYTES or (whole and since >= self._merge_s):
            self.flush()
        elif self._timer is None:
            wait_s = self._merge_s - since
            self._timer = loop.call_later(wait_s if whole else max(PARTIAL_S, wait_s), self.flush)

    def pace(self, seconds: float) -> None:
        """Merge text over this time from now on: a cell that has used up most of its messages prints in fewer."""
        self._merge_s = seconds

    def publish(self, message: Publish, buffers: list[bytes]) -> None:
        """A display, result, error or comm message.

        Raises:
            ProtocolError: the message is not one that a worker may send.
        """
        passed = self.gate.message(message.msg_type, message.content, message.metadata, buffers)
        if passed is None:
            return
        content = passed.content
        self.flush()
        if message.msg_type == "comm_open":
            self.opened(content["comm_id"], content["target_name"])
        elif message.msg_type == "comm_close":
            self.comms.pop(content["comm_id"], None)
        elif message.msg_type == "execute_result":
            plain = content["data"].get("text/plain")
            if message.parent in self._results:
                self._results[message.parent] = plain if isinstance(plain, str) else None
        self._send(message.msg_type, content, self.parent(message.parent), passed.metadata, passed.buffers)

    def opened(self, comm_id: str, target: str) -> None:
        """Note a comm that was opened, by either side."""
        self.comms[comm_id] = target
        while len(self.comms) > _COMMS:
            self.comms.popitem(last=False)

    def flush(self) -> None:
        """Send the text that was held back for merging."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._text:
            return
        text, self._text, self._text_bytes = "".join(self._text), [], 0
        parent, name = self._text_key
        text, rest = split_unfinished(self._unfinished.pop(self._text_key, "") + text)
        if rest:
            self._unfinished[self._text_key] = rest
            while len(self._unfinished) > _UNFINISHED:
                self._unfinished.popitem(last=False)
        text = self.gate.text(text)
        if not text:
            return
        self._sent_at = asyncio.get_running_loop().time()
        self._send("stream", {"name": name, "text": text}, self.parent(parent), {}, [])

    def lost(self, error: SandboxError) -> None:
        """The worker is gone; so are its comms."""
        self.comms.clear()
        self._lost(error)

    def pressed(self) -> bool:
        """True while a client has not kept up."""
        return self._queued() > 0
