"""Amounts of output and their pace, and what of an answer is kept when there is no room for all of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from json.encoder import encode_basestring
from typing import Any

import msgspec

from ..errors import size_text

# The time in which used-up traffic is whole again.
REFILL_S = 30.0
# Beyond this many times its pace, what comes is dropped: from a worker that could not be made to wait, because somebody
# waits for its answer.
_DROP = 2
# As the share of the messages that is used up grows, printed text is merged over a longer time: a cell that prints for
# hours is never made to wait.
MERGE_S = 0.01
_PACES = ((0.9, 1.0), (0.5, 0.1))
_ERROR_CHARS = 100_000
_REPLY_BYTES = 1024 * 1024
_NAMES = {"bytes": "limits.output", "text": "limits.text", "lines": "limits.lines", "messages": "limits.messages"}


class Amount(msgspec.Struct):
    """Some output: bytes in all, bytes of text among them, lines, and messages."""

    bytes: int = 0
    text: int = 0
    lines: int = 0
    messages: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            self.bytes + other.bytes, self.text + other.text, self.lines + other.lines, self.messages + other.messages
        )

    def __sub__(self, other: Amount) -> Amount:
        return Amount(
            self.bytes - other.bytes, self.text - other.text, self.lines - other.lines, self.messages - other.messages
        )

    def beyond(self, most: Amount) -> str:
        """The limit of which this is too much; "" when it is not."""
        if self.text > most.text:
            return _NAMES["text"]
        if self.lines > most.lines:
            return _NAMES["lines"]
        if self.bytes > most.bytes:
            return _NAMES["bytes"]
        return _NAMES["messages"] if self.messages > most.messages else ""


class Traffic:
    """The pace of what is sent and adds nothing to a cell's output: a bucket that is emptied in `REFILL_S`.

    Args:
        size, messages: what may come at once.
        clock: seconds, monotonic.
    """

    def __init__(self, size: int, messages: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most_bytes, self._most_messages, self._clock = size, messages, clock
        self.reset()

    def reset(self) -> None:
        """Nothing was sent lately."""
        self._bytes = self._messages = 0.0
        self._at = self._clock()
        self._stream: object = None
        self._streamed_at = 0.0

    def charge(self, size: int, messages: int = 1) -> bool:
        """Note what is sent; False when it must be dropped."""
        self._drain()
        if messages:
            self._stream = None
        if self._bytes > _DROP * self._most_bytes or self._messages > _DROP * self._most_messages:
            return False
        self._bytes += min(size, self._most_bytes)  # (or one message could mean a wait of hours)
        self._messages += messages
        return True

    def charge_text(self, key: object, size: int, *, counted: bool = False) -> bool:
        """Note printed text. Text of one key (request and stream) that comes within the merging time is one message.

        Args:
            counted: the message is counted elsewhere.
        """
        now = self._clock()
        fresh = key != self._stream or now - self._streamed_at >= self.pace_s
        if not self.charge(size, int(fresh and not counted)):
            return False
        if fresh:
            self._stream, self._streamed_at = key, now
        return True

    def _drain(self) -> None:
        now = self._clock()
        share = (now - self._at) / REFILL_S
        self._at = now
        self._bytes = max(0.0, self._bytes - share * self._most_bytes)
        self._messages = max(0.0, self._messages - share * self._most_messages)

    def used_up(self) -> bool:
        """Whether the sender should wait."""
        if self._bytes < self._most_bytes and self._messages < self._most_messages:
            return False
        self._drain()
        return self._bytes > 0.98 * self._most_bytes or self._messages > 0.98 * self._most_messages

    @property
    def pace_s(self) -> float:
        """Over which time printed text should be merged into one message."""
        used = self._messages / self._most_messages
        return next((pace for share, pace in _PACES if used >= share), MERGE_S)


def sent_bytes(text: str) -> int:
    """How long a text is inside a message: JSON writes a control character as six."""
    written = encode_basestring(text)
    return (len(written) if written.isascii() else len(written.encode("utf-8", "surrogatepass"))) - 2


def prefix(text: str, room: int) -> str:
    """As much of the text's beginning as is sent in that many bytes."""
    part = text[: max(room, 0)]
    while part and (size := sent_bytes(part)) > room:
        part = part[: len(part) * room // size]
    return part


def suffix(text: str, room: int) -> str:
    """As much of the text's end as is sent in that many bytes."""
    part = text[max(0, len(text) - max(room, 0)) :]
    while part and (size := sent_bytes(part)) > room:
        part = part[len(part) - len(part) * room // size :]
    return part


def short_error(content: dict[str, Any]) -> dict[str, Any]:
    """The error of a cell that has no budget left: it must be seen, but need not be long."""
    lines, left = [], _ERROR_CHARS
    found = content.get("traceback")
    for line in found if isinstance(found, list) else ():
        text = str(line)[: max(left, 0)]
        left -= len(text)
        if text:
            lines.append(text)
    return {
        "ename": str(content.get("ename"))[:1000], "evalue": str(content.get("evalue"))[:_ERROR_CHARS],
        "traceback": lines,
    }  # fmt: skip


def short_reply(content: dict[str, Any], size: int, room: int, rule: str) -> dict[str, Any]:
    """The reply to a cell, without its optional parts when they are larger than what is left of the budget.

    Args:
        size: of the whole reply, in bytes.
        room: bytes that are left.
        rule: the limit, with its value.
    """
    if size <= max(room, _REPLY_BYTES):
        return content
    problem = f"the reply to the cell was {size_text(size)} long and {rule}"
    refused = {"status": "error", "ename": "OutputLimit", "evalue": problem, "traceback": []}
    names = list(content.get("user_expressions") or {})[:100]
    content = {**content, "payload": [], "user_expressions": {name[:1000]: dict(refused) for name in names}}
    return {**content, **short_error(content)} if content.get("status") == "error" else content
