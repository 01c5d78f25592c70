"""The front's messages, made as jupyter_client makes them in a quarter of the time: a small cell takes five.

What is on the wire is the same JSON, but for spaces, of all that the front sends. (Values that it never sends differ:
NaN is null, a bytearray base64, a Decimal a text.) What msgspec cannot write, or reads otherwise than the standard
library, goes the stock way.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec
import zmq
from jupyter_client.jsonutil import json_default
from jupyter_client.session import DELIM, DONE, Session, extract_header, json_packer, json_unpacker
from zmq.eventloop.zmqstream import ZMQStream

from ..channel.framing import dumps

_POLLIN = int(zmq.POLLIN)
_write = msgspec.json.Encoder(enc_hook=json_default).encode
_read = msgspec.json.Decoder().decode


def pack(value: Any) -> bytes:
    """JSON of a part of a message."""
    try:
        return _write(value)
    except Exception:  # a number of more than 64 bits, say
        try:
            return json_packer(value)
        except UnicodeEncodeError:  # half an emoji, in a cell: stock never answers such a one
            return dumps(value, json_default)


def unpack(text: bytes | str) -> Any:
    """The part of a message that is in this JSON."""
    try:
        return _read(text)
    except Exception:  # NaN, a lone surrogate, or no JSON at all
        return json_unpacker(text)


class Wire(Session):
    """The session of the front's application. Whoever configures other packers gets these, by stock's own way.

    Attributes:
        direct: a stream over a ROUTER socket, which takes all at once, that is used by its loop's thread alone: what is
            sent there does not go through its queue, which takes two turns of the loop.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.direct: ZMQStream | None = None
        self._lean = self.pack is json_packer and not (self.adapt_version or self.debug)
        if self._lean:
            self.pack, self.unpack = pack, unpack

    def send(
        self, stream: Any, msg_or_type: Any, content: dict[str, Any] | None = None,
        parent: dict[str, Any] | None = None, ident: Any = None, buffers: Any = None, track: bool = False,
        header: dict[str, Any] | None = None, metadata: dict[str, Any] | None = None,
    ) -> dict[str, Any] | None:  # fmt: skip
        """As stock's, without its many looks at the session's traits."""
        if (
            not self._lean or not isinstance(msg_or_type, str) or header is not None or buffers or track
            or stream is None or isinstance(stream, zmq.Socket) or os.getpid() != self.pid
        ):  # fmt: skip
            return super().send(stream, msg_or_type, content, parent, ident, buffers, track, header, metadata)
        own = self.msg_header(msg_or_type)
        message = {
            "header": own, "msg_id": own["msg_id"], "msg_type": own["msg_type"],
            "parent_header": {} if parent is None else extract_header(parent),
            "content": {} if content is None else content, "metadata": {**self.metadata, **(metadata or {})},
            "tracker": DONE,
        }  # fmt: skip
        parts = [pack(message[name]) for name in ("header", "parent_header", "metadata", "content")]
        to = ident if isinstance(ident, list) else [] if ident is None else [ident]
        frames = [*to, DELIM, self.sign(parts), *parts]
        copy = max(map(len, parts)) < self.copy_threshold
        direct = self.direct
        # (What stands behind a cell that failed is aborted after its reply was given here. Whoever had that already
        # could ask for more, and would have it aborted.)
        if stream is direct and direct is not None and message["content"].get("status") != "error" \
                and direct.socket is not None and not direct.sending():  # fmt: skip
            _send(direct, frames, copy=copy)
        else:
            stream.send_multipart(frames, copy=copy)
        return message


def _send(stream: ZMQStream, frames: list[bytes], *, copy: bool) -> None:
    try:
        stream.socket.send_multipart(frames, zmq.DONTWAIT, copy=copy)
    except zmq.ZMQError:  # the stream tells of it in its own way
        stream.send_multipart(frames, copy=copy)
        return
    # What has arrived meanwhile is not told again: the descriptor is edge-triggered, and sending has looked.
    if int(stream.socket.getsockopt(zmq.EVENTS)) & _POLLIN:
        stream.io_loop.add_callback(_look_again, stream)


def _look_again(stream: ZMQStream) -> None:
    if stream.socket is not None:
        stream._handle_events(stream.socket, 0)
