"""Answers `sandbox_kernel.client`: variables in and out of the session, by comm messages with one packed frame.

The frames are passed on unread: what a client sends the worker reads, and the other way round, with the frame gate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import FrameRefused, SandboxError, size_text
from ..outputs.text import clean_text
from ..session.exchange import Outgoing
from ..session.session import Session

TARGET = "sandbox_kernel.frames"
_NAME_CHARS = 1000

Send = Callable[[str, dict[str, Any], dict[str, Any], dict[str, Any], list[Any]], None]


class FrameComms:
    """The comm target.

    Args:
        sandbox: whose variables they are.
        most: bytes of one frame.
        send: publishes a message: type, content, parent header, metadata, buffers.
    """

    def __init__(self, sandbox: Session, most: int, send: Send) -> None:
        self._sandbox, self._most, self._send = sandbox, most, send

    async def opened(self, parent: Mapping[str, Any], header: Mapping[str, Any]) -> None:
        """Answer a ``comm_open`` for the target, and close the comm.

        Args:
            parent: the message.
            header: its header as plain values, for the worker.
        """
        comm_id = str(parent["content"].get("comm_id"))
        about = {"header": parent["header"]}
        buffers: list[memoryview] = []
        data: dict[str, Any] = {"status": "ok"}
        try:
            buffers = await self._answer(parent, header)
        except (SandboxError, KeyError, ValueError) as error:
            text = error.explain() if isinstance(error, SandboxError) else str(error.args[0])
            data = {"status": "error", "ename": type(error).__name__, "evalue": text}
        self._send("comm_msg", {"comm_id": comm_id, "data": data}, about, {}, buffers)
        self._send("comm_close", {"comm_id": comm_id, "data": {}}, about, {}, [])

    async def _answer(self, parent: Mapping[str, Any], header: Mapping[str, Any]) -> list[memoryview]:
        asked = parent["content"].get("data")
        op, name = (asked.get("op"), asked.get("name")) if isinstance(asked, Mapping) else (None, None)
        if op not in ("push", "pull") or not isinstance(name, str) or not name[:_NAME_CHARS].isidentifier():
            raise ValueError("a request for a variable needs an 'op', 'push' or 'pull', and a 'name'")
        if self._sandbox.executing:
            raise SandboxError("A cell runs; variables can be read and set when it has ended.")
        fields = {"header": header, "metadata": {}, "content": {}, "name": name}
        if op == "pull":
            reply = await self._sandbox.request("get", header["msg_id"], fields)
            _check(reply)
            value = self._sandbox.exchange.take()
            return [] if value is None else [value]
        frame = list(parent.get("buffers") or ())
        if len(frame) != 1:
            raise ValueError("a variable is pushed as one buffer")
        outgoing = _packed(bytes(frame[0]), self._most)
        try:
            await self._sandbox.exchange.lend(outgoing)
            _check(await self._sandbox.request("put", header["msg_id"], fields, outgoing.buffers, fds=outgoing.fds))
        finally:
            outgoing.close()
        return []


def _packed(frame: bytes, most: int) -> Outgoing:
    if len(frame) > most:
        raise FrameRefused(f"a value of {size_text(len(frame))} is larger than limits.frame = {size_text(most)}")
    return Outgoing.packed([frame])


def _check(reply: Mapping[str, Any]) -> None:
    if reply.get("status") == "error":
        name, text = clean_text(str(reply.get("ename", ""))), clean_text(str(reply.get("evalue", "")))
        if name == "KeyError":
            raise KeyError(text)
        if name == "FrameRefused":
            raise FrameRefused(text.removesuffix("."))
        raise SandboxError(f"{name}: {text}")
