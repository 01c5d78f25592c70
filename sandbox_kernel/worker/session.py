"""A jupyter ``Session`` whose messages leave as frames of the channel. It holds no key: the front signs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jupyter_client.jsonutil import json_clean, json_default
from jupyter_client.session import Session

from ..channel.framing import FROM_WORKER, Bytes, FrameTooLarge, encode
from .link import Link

PUBLISHED = frozenset(
    {
        "display_data",
        "update_display_data",
        "clear_output",
        "execute_result",
        "error",
        "comm_open",
        "comm_msg",
        "comm_close",
    }
)
ID_CHARS = 200
COUNT_LIMIT = 2**31
ERROR_CHARS = 1_000_000  # of an error's value, and of all of its traceback


def request_id(header: Any) -> str:
    """The id of the request that a header belongs to; empty when there is none that the front could know."""
    name = header.get("msg_id") if isinstance(header, dict) else None
    return name if isinstance(name, str) and len(name) <= ID_CHARS else ""


def clip_count(count: Any) -> int:
    """A cell's number that the front takes; cells may set the counter to anything."""
    return min(max(int(count), 0), COUNT_LIMIT) if isinstance(count, int) else 0


def clip_error(content: dict[str, Any]) -> dict[str, Any]:
    """An error's three fields as texts of bearable length (hooks of users may leave anything there)."""
    trace = content.get("traceback")
    lines, left = [], ERROR_CHARS
    for line in trace if isinstance(trace, list | tuple) else [trace]:
        text = str(line)[: max(left, 0)]
        left -= len(text)
        lines.append(text)
        if left <= 0:
            lines.append("... (the traceback is cut here)")
            break
    texts = {"ename": str(content.get("ename"))[:1000], "evalue": str(content.get("evalue"))[:ERROR_CHARS]}
    return {**content, **texts, "traceback": lines}


def packets_of(message: dict[str, Any], buffers: Sequence[Bytes] = ()) -> Iterable[bytes]:
    """`message` as packets; values that JSON has no word for are translated as jupyter_client does.

    Raises:
        ValueError, TypeError: no translation helps; `FrameTooLarge`.
    """
    try:
        return encode(message, buffers, FROM_WORKER, default=json_default)
    except FrameTooLarge:
        raise
    except (TypeError, ValueError):
        return encode(json_clean(message), buffers, FROM_WORKER, default=json_default)


class ChannelSession(Session):
    """What kernel, display hook, publisher and comms call `send` on."""

    link: Link | None = None

    @classmethod
    def make(cls) -> ChannelSession:
        """A session without a key (with none from the start, ``Session`` warns about it)."""
        session = cls(key=b"-")
        session.key = b""
        return session

    def send(  # type: ignore[override]
        self,
        stream: Any,
        msg_or_type: Any,
        content: dict[str, Any] | None = None,
        parent: dict[str, Any] | None = None,
        ident: Any = None,
        buffers: Sequence[Bytes] | None = None,
        track: bool = False,
        header: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> dict[str, Any] | None:
        """Sends what the front publishes and drops the rest: ``status`` and the like are the front's own."""
        if isinstance(msg_or_type, str):
            message = self.msg(msg_or_type, content, parent, header, metadata)
        else:
            message = msg_or_type
            buffers = buffers or message.get("buffers") or ()
        link = self.link
        if link is None or os.getpid() != link.pid:
            self._from_fork(message)
            return None
        frame = frame_of(message)
        if frame is not None:
            link.send(packets_of(frame, buffers or ()))
        return message

    @staticmethod
    def _from_fork(message: dict[str, Any]) -> None:
        # The channel belongs to the worker; a forked child has the two pipes only.
        if message["msg_type"] == "error":
            text = "\n".join(clip_error(message["content"])["traceback"]) + "\n"
            write_raw(2, text)


def frame_of(message: dict[str, Any]) -> dict[str, Any] | None:
    """A jupyter message as one of the channel's; None for the types that a worker may not send.

    Raises:
        TypeError: content or metadata is no dictionary.
    """
    kind, content = message["msg_type"], message["content"]
    parent = request_id(message["parent_header"])
    if kind == "stream":
        name = "stderr" if content["name"] == "stderr" else "stdout"
        return {"type": "stream", "parent": parent, "name": name, "text": content["text"]}
    if kind not in PUBLISHED:
        return None
    metadata = message.get("metadata") or {}
    if not isinstance(content, dict) or not isinstance(metadata, dict):
        raise TypeError("the content and the metadata of a message must be dictionaries")
    if kind == "error":
        content = clip_error(content)
    elif kind == "execute_result":
        content = {**content, "execution_count": clip_count(content.get("execution_count"))}
    return {"type": "publish", "parent": parent, "msg_type": kind, "content": content, "metadata": metadata}


def write_raw(descriptor: int, text: str, write: Callable[[int, bytes], int] = os.write) -> None:
    """All of `text` to a pipe, as UTF-8."""
    data = text.encode("utf-8", "backslashreplace")
    while data:
        data = data[write(descriptor, data) :]
