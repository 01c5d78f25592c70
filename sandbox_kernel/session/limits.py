"""How much of what the worker sends reaches the client: `limits.output` and `limits.messages`.

Everything is charged to the cell that runs, whichever request the worker says it belongs to, or between cells to
the last one: names of requests are the worker's word, and a thread of an old cell goes on printing. Between cells the
budget grows again, so that widgets and background threads go on for as long as the kernel lives, at a pace.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from json.encoder import encode_basestring
from typing import Any

from ..errors import OutputLimit, size_text
from ..policy import Limits

# A cell that goes on beyond this many times its budget is ended.
EXCESS = 10
# Between cells: the time in which a used-up budget is whole again.
REFILL_S = 60.0
# As the share of the messages that is used up grows, printed text is merged over a longer time: a cell that prints
# for hours is shown to its end.
MERGE_S = 0.01
_PACES = ((0.98, 60.0), (0.9, 10.0), (0.75, 1.0), (0.5, 0.1))
_ERROR_CHARS = 100_000
_REPLY_BYTES = 1024 * 1024
_OWN_MESSAGES = 32


class OutputBudget:
    """What one cell may still send.

    Args:
        limits: `output` in bytes and `messages`.
        clock: seconds, monotonic.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._bytes_limit, self._messages_limit, self._clock = limits.output, limits.messages, clock
        self._idle_since: float | None = None
        self._stream: object = None
        self._streamed_at = 0.0
        # What the front adds by itself (busy, the cell's text, an error, idle, the lines about what was dropped)
        # is within the limit, too.
        self._messages_allowed = limits.messages - min(_OWN_MESSAGES, limits.messages // 10)
        self._reset()

    def _reset(self) -> None:
        self._bytes = self._messages = 0.0
        self.dropped_text = self.dropped_messages = self._dropped_bytes = 0
        self.rule = ""

    def begin(self) -> None:
        """A cell begins, with the whole budget."""
        self._reset()
        self._idle_since = None

    def end(self) -> None:
        """The cell has ended; from now on the budget grows again."""
        self._idle_since = self._clock()
        self.dropped_text = self.dropped_messages = self._dropped_bytes = 0
        self.rule = ""

    def admit_text(self, key: object, size: int, arrived: int = 0) -> bool:
        """Charge printed text; False when it must be dropped.

        Args:
            key: request and stream. Text of one key that comes within the merging time is one message.
            size: in bytes, as it will be sent.
            arrived: in bytes, with what is around it on the channel; that is what the front has to work for.
        """
        now = self._clock()
        fresh = key != self._stream or now - self._streamed_at >= self.pace_s
        # A stream that was cut stays cut: small pieces that would still fit are no help to anybody.
        if (self.dropped_text and self._idle_since is None) or not self._admit(size, int(fresh)):
            self.dropped_text += size
            self._dropped_bytes += max(size, arrived)
            return False
        if fresh:
            self._stream, self._streamed_at = key, now
        return True

    def admit_message(self, size: int) -> bool:
        """Charge a display, comm message or question; False when it must be dropped."""
        self._stream = None
        if not self._admit(size, 1):
            self.dropped_messages += 1
            self._dropped_bytes += size
            return False
        return True

    def _admit(self, size: int, messages: int) -> bool:
        self._grow()
        if self._bytes + size > self._bytes_limit:
            self.rule = self.rule or "limits.output"
        elif self._messages + messages > self._messages_allowed:
            self.rule = self.rule or "limits.messages"
        else:
            self._bytes += size
            self._messages += messages
            return True
        return False

    def _grow(self) -> None:
        if self._idle_since is None:
            return
        now = self._clock()
        share = (now - self._idle_since) / REFILL_S
        self._idle_since = now
        self._bytes = max(0.0, self._bytes - share * self._bytes_limit)
        self._messages = max(0.0, self._messages - share * self._messages_limit)

    def used_up(self) -> bool:
        """Between cells: whether the worker should wait until the budget has grown. During a cell always False."""
        if self._idle_since is None:
            return False
        self._grow()
        return self._bytes > 0.98 * self._bytes_limit or self._messages > self._messages_allowed - 2

    @property
    def pace_s(self) -> float:
        """Over which time printed text should be merged into one message."""
        used = self._messages / self._messages_allowed
        return next((pace for share, pace in _PACES if used >= share), MERGE_S)

    def excess(self) -> OutputLimit | None:
        """The error that ends the cell, once it sent `EXCESS` times its budget."""
        sent = int(self._bytes) + self._dropped_bytes
        if sent > EXCESS * self._bytes_limit:
            return OutputLimit(sent, self._bytes_limit)
        messages = int(self._messages) + self.dropped_messages
        if messages > EXCESS * self._messages_limit:
            return OutputLimit(messages, self._messages_limit, rule="limits.messages")
        return None

    def limit_text(self) -> str:
        """The rule that dropped something, with its value."""
        if self.rule == "limits.messages":
            return f"limits.messages = {self._messages_limit:,}"
        return f"limits.output = {size_text(self._bytes_limit)}"

    def room(self) -> int:
        """Bytes that are left."""
        return max(0, self._bytes_limit - int(self._bytes))


def sent_bytes(text: str) -> int:
    """How long a text is inside a message: JSON writes a control character as six."""
    written = encode_basestring(text)
    return (len(written) if written.isascii() else len(written.encode("utf-8", "surrogatepass"))) - 2


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


def short_reply(content: dict[str, Any], size: int, budget: OutputBudget) -> dict[str, Any]:
    """The reply to a cell, without its optional parts when they are larger than what is left of the budget.

    Args:
        size: of the whole reply, in bytes.
    """
    if size <= max(budget.room(), _REPLY_BYTES):
        return content
    problem = f"the reply to the cell was {size_text(size)} long and {budget.limit_text()}"
    refused = {"status": "error", "ename": "OutputLimit", "evalue": problem, "traceback": []}
    names = list(content.get("user_expressions") or {})[:100]
    content = {**content, "payload": [], "user_expressions": {name[:1000]: dict(refused) for name in names}}
    return {**content, **short_error(content)} if content.get("status") == "error" else content
