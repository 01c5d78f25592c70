"""Variables in and out of a running kernel, from any program that talks to it through ``jupyter_client``.

::

    from sandbox_kernel.client import pull, push

    push(client, "df", df)              # client: a connected BlockingKernelClient
    df = pull(client, "df")
    await push_async(client, "df", df)  # client: an AsyncKernelClient
    df = await pull_async(client, "df")

The kernel's front answers while no cell runs. Values are copied by the frame gate: what comes from the kernel can be
read safely, whoever wrote it. Messages of the kernel about something else that arrive meanwhile are dropped.
"""

from __future__ import annotations

import queue
import time
import uuid
from collections.abc import Mapping
from typing import Any

from . import frames
from .arguments import check_arguments
from .errors import FrameRefused, SandboxError
from .frames import transport

TARGET = "sandbox_kernel.frames"
TIMEOUT_S = 60.0


@check_arguments
def push(client: Any, name: str, value: Any, *, timeout: float = TIMEOUT_S) -> None:
    """Set a variable of the kernel's session to a copy of a value.

    Args:
        client: a connected ``BlockingKernelClient``.
        timeout: seconds.

    Raises:
        FrameRefused: the value is of a type that cannot pass, or too large for the kernel's policy.
        ValueError: the name cannot be a variable's.
        SandboxError: a cell runs, or the kernel is not one of this package.
        TimeoutError: no answer.
    """
    ask = _Question("push", name, value)
    client.shell_channel.send(ask.message(client))
    _receive(client, ask, timeout)


@check_arguments
def pull(client: Any, name: str, *, timeout: float = TIMEOUT_S) -> Any:
    """A copy of a variable of the kernel's session.

    Raises:
        KeyError: there is none of that name.
        FrameRefused, ValueError, SandboxError, TimeoutError: as `push`.
    """
    ask = _Question("pull", name)
    client.shell_channel.send(ask.message(client))
    return _receive(client, ask, timeout)


@check_arguments
async def push_async(client: Any, name: str, value: Any, *, timeout: float = TIMEOUT_S) -> None:
    """`push` for an ``AsyncKernelClient``."""
    ask = _Question("push", name, value)
    client.shell_channel.send(ask.message(client))
    await _receive_async(client, ask, timeout)


@check_arguments
async def pull_async(client: Any, name: str, *, timeout: float = TIMEOUT_S) -> Any:
    """`pull` for an ``AsyncKernelClient``."""
    ask = _Question("pull", name)
    client.shell_channel.send(ask.message(client))
    return await _receive_async(client, ask, timeout)


_NOTHING = object()


class _Question:
    """One comm, from its opening to the answer."""

    def __init__(self, op: str, name: str, value: Any = _NOTHING) -> None:
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(f"{name!r} cannot be the name of a variable")
        self._content = {"comm_id": uuid.uuid4().hex, "target_name": TARGET, "data": {"op": op, "name": name}}
        self._buffers = [] if value is _NOTHING else [b"".join(transport.pack(*frames.dumps(value)))]
        self._id = ""
        self.done = False
        self.value: Any = None

    def message(self, client: Any) -> dict[str, Any]:
        """What to send."""
        message: dict[str, Any] = client.session.msg("comm_open", self._content)
        self._id = message["header"]["msg_id"]
        message["buffers"] = self._buffers
        return message

    def hear(self, message: Mapping[str, Any]) -> None:
        """A message on the kernel's IOPub channel; `done` once it was the answer."""
        content = message["content"]
        if message["parent_header"].get("msg_id") != self._id:
            return
        if message["msg_type"] == "comm_msg" and content.get("comm_id") == self._content["comm_id"]:
            self._answered(content.get("data") or {}, message.get("buffers") or [])
            self.done = True
        elif message["msg_type"] == "comm_close" or content.get("execution_state") == "idle":
            raise SandboxError("This kernel does not answer requests for variables; it is no sandboxed kernel.")

    def _answered(self, data: Mapping[str, Any], buffers: Any) -> None:
        if data.get("status") == "ok":
            if buffers:
                self.value = frames.loads(*transport.unpack(bytearray(buffers[0])))
            return
        name, text = str(data.get("ename", "")), str(data.get("evalue", ""))
        if name == "KeyError":
            raise KeyError(text)
        if name == "FrameRefused":
            raise FrameRefused(text.removesuffix("."))
        raise SandboxError(f"{name}: {text}")


def _receive(client: Any, ask: _Question, timeout: float) -> Any:
    deadline = time.monotonic() + timeout
    while not ask.done:
        try:
            ask.hear(client.get_iopub_msg(timeout=max(0.0, deadline - time.monotonic())))
        except queue.Empty:
            raise TimeoutError(f"the kernel has not answered within {timeout:g} s") from None
    return ask.value


async def _receive_async(client: Any, ask: _Question, timeout: float) -> Any:
    deadline = time.monotonic() + timeout
    while not ask.done:
        try:
            ask.hear(await client.get_iopub_msg(timeout=max(0.0, deadline - time.monotonic())))
        except queue.Empty:
            raise TimeoutError(f"the kernel has not answered within {timeout:g} s") from None
    return ask.value
