"""Printed text, read quickly: of a packet that is like the one before it, only the text is looked at.

`print` writes twice, and each write is a packet, so that nothing is lost when the worker dies. A loop of prints makes
thousands of them, all with the same beginning.
"""

from __future__ import annotations

import msgspec

from ..channel.framing import lone_text, stream_head
from ..channel.schema import Stream

_text_of = msgspec.json.Decoder(str).decode


class TextPackets:
    """Knows how the packets of one cell and stream begin: those whose text was read last, in full and by the schema."""

    def __init__(self) -> None:
        self._head = b""
        self.key = ("", "")

    def learn(self, message: Stream) -> None:
        """This is what text comes for at the moment."""
        key = (message.parent, message.name)
        if key != self.key:
            self._head, self.key = stream_head(*key), key

    def read(self, packet: bytes) -> str | None:
        """The text for `key`, if the packet is a whole frame that differs from the last one's in its text only.

        None for every other packet, and for one that is not in order: then the ordinary way has to look at it.
        """
        text = lone_text(packet, self._head)
        if text is None:
            return None
        try:
            return _text_of(text)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
