"""Requests that stand behind a running cell: answered aside where that is safe, or after a short wait in vain.

Stock lets all of them wait for the cell, so that a console or an editor that asks for completions stands still with it
(microsoft/vscode-jupyter#1300). The front knows by itself who the kernel is, its history and its comms, and whether a
text is a whole statement. Completion and inspection would run code of the session beside its cell: they get a moment
for the cell to end, then an empty answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from IPython.core.inputtransformer2 import TransformerManager

from .answers import Answers, place
from .shells import Request, Shell, ShellsKernel

WAIT_S = 1.0  # a cell that ends by then is waited for, as in stock, so that the replies come in the requests' order
SHORT_S = 0.1  # consoles ask these at each line, and some give up after a second
_CODE_CHARS = 20_000
_IN_VAIN: dict[str, dict[str, Any]] = {
    "complete_request": {"status": "ok", "matches": [], "metadata": {}},
    "inspect_request": {"status": "ok", "found": False, "data": {}, "metadata": {}},
}
_DELAYS = {
    **dict.fromkeys(("history_request", "is_complete_request"), SHORT_S),
    **dict.fromkeys(("kernel_info_request", "comm_info_request", *_IN_VAIN), WAIT_S),
}


class AsidesKernel(ShellsKernel, Answers):
    """The part of the front that answers beside a running cell."""

    _statements: TransformerManager | None = None

    def must_wait(self, shell: Shell, request: Request) -> None:
        """A request was put into the queue."""
        delay_s = _DELAYS.get(request.kind)
        if delay_s is not None:
            self._shells_loop.call_later(delay_s, self._pass, shell, request, delay_s)

    def _pass(self, shell: Shell, request: Request, delay_s: float) -> None:
        if request not in shell.waiting or shell.closed:
            return
        if shell.active is not None and shell.active.kind != "execute_request":
            # No cell stands before it any more, but a completion, say, whose answer does not take for ever.
            self._shells_loop.call_later(delay_s, self._pass, shell, request, delay_s)
            return
        shell.waiting.remove(request)
        self._start(self._answer_aside(shell, request))

    async def _answer_aside(self, shell: Shell, request: Request) -> None:
        # The parent is not set: it is also what a thread's output belongs to, and that is the cell.
        parent, idents, stream = request.message, request.idents, request.reply_to or self.shell_stream
        if request.reply_to is None:
            self.tell_status("busy", parent)
        try:
            if request.kind == "kernel_info_request":
                await self.kernel_info_request(stream, idents, parent)
            elif request.kind == "history_request":
                await self.history_request(stream, idents, parent)
            elif request.kind == "comm_info_request":
                await self.comm_info_request(stream, idents, parent)
            else:
                content = self._content(request.kind, parent["content"])
                self._wire.send(stream, request.kind.replace("_request", "_reply"), content, parent, idents)
        finally:
            self.tell_status("idle", parent)
            if shell.active is not None:
                self.still_busy(parent, shell.active.message)

    def _content(self, kind: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        if kind == "is_complete_request":
            return self._is_complete(asked.get("code"))
        content = dict(_IN_VAIN[kind])
        if kind == "complete_request":
            content["cursor_start"] = content["cursor_end"] = place(asked.get("code"), asked.get("cursor_pos"))
        return content

    def _is_complete(self, code: object) -> dict[str, Any]:
        """By the rules of IPython; what the session changed about them only its worker knows."""
        if not isinstance(code, str) or len(code) > _CODE_CHARS:
            return {"status": "unknown"}
        if self._statements is None:
            self._statements = TransformerManager()
        try:
            status, indent = self._statements.check_complete(code)
        except Exception:  # text that its tokenizer cannot read
            return {"status": "unknown"}
        return {"status": status, "indent": " " * (indent or 0)} if status == "incomplete" else {"status": status}
