"""Requests of the shell channel that come on the control channel, where the protocol allows them too.

The control thread hands them to the main shell and goes on: what it waited for itself would keep interrupts waiting,
and the session belongs to the main loop.
"""

from __future__ import annotations

from typing import Any

from .asides import AsidesKernel
from .shells import Request

SHELL_TYPES = ("execute_request", "complete_request", "inspect_request", "is_complete_request", "history_request")


class ControlReply:
    """Where the main loop sends the reply to: the control stream, which belongs to the control thread."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def send_multipart(self, frames: list[Any], **_: Any) -> None:
        """Have the control thread send it."""
        self._stream.io_loop.add_callback(self._stream.send_multipart, [bytes(frame) for frame in frames])


class ControlKernel(AsidesKernel):
    """Lets the main shell answer them, in the order of its requests."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._handed_over = False
        for name in SHELL_TYPES:
            self.control_handlers[name] = self._hand_over

    async def _hand_over(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        self._handed_over = True
        request = Request(ident, parent, ControlReply(stream))
        self._shells_loop.call_soon_threadsafe(self.put, request)

    def _publish_status_and_flush(self, status: str, channel: str, stream: Any, parent: Any = None) -> None:
        """Not "idle" for what was handed over: the main shell says so when it is done."""
        if channel == "control" and self._handed_over:
            self._handed_over = False
            return
        super()._publish_status_and_flush(status, channel, stream, parent)
