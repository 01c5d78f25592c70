"""What of a cell's output is shown: all of it, or its head and its tail.

Printed text and displays add up, to `limits.text`, `limits.lines`, `limits.output` and `limits.messages`. Three
quarters of each are shown as they come; of what follows the newest is kept back, up to the last quarter, and shown when
the cell has ended, after a line that says how much was omitted. A cell that goes on to `limits.output_total` is ended.

What replaces something does not add up: a carriage return, `clear_output`, an update of a display, a message to a
widget. It is paced (`Traffic`): beyond the pace the worker is made to wait and nothing is lost, so that a progress bar
or a live plot runs for hours.

Everything is charged to the cell that runs, whichever request the worker says it belongs to: names of requests are the
worker's word, and a thread of an old cell goes on printing. Between cells all of it is traffic.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..channel.schema import Publish
from ..errors import OutputLimit, size_text
from ..policy import Limits
from ..report import omitted_here, omitted_in_line, omitted_total
from .limits import MERGE_S, Amount, Traffic, prefix, sent_bytes
from .tail import Tail, display_id

if TYPE_CHECKING:
    from .sink import Sink

# A cell that goes on beyond this many times its messages is ended.
EXCESS = 10
# One line may take up this share of the text: a client can neither fold nor scroll it.
_LINE_SHARE = 5
_ADDING = ("display_data", "execute_result", "error")
# What the front adds by itself (busy, the cell's text, an error, idle, the lines about what was omitted) is within
# the limit, too.
_OWN_MESSAGES = 32


class Output:
    """Between the session and its sink.

    Args:
        limits: of the policy.
        sink: gets what is shown.
        record: called with all text of the running cell, shown or not.
        clock: seconds, monotonic.

    Attributes:
        cut: something of the last cell was omitted.
    """

    def __init__(
        self, limits: Limits, sink: Sink, *, record: Callable[[str], None] = lambda _text: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._limits, self._sink, self._record = limits, sink, record
        messages = limits.messages - min(_OWN_MESSAGES, limits.messages // 10)
        most = Amount(limits.output, limits.text, limits.lines, messages)
        end = Amount(most.bytes // 4, most.text // 4, most.lines // 4, most.messages // 10)
        self._head = most - end
        self._tail = Tail(end, self._omit)
        self._traffic = Traffic(limits.output, messages, clock)
        self._line_limit = max(limits.text // _LINE_SHARE, 100)
        self._long_line = re.compile(rf"[^\r\n]{{{self._line_limit + 1},}}")
        self._pace_s = MERGE_S
        self._running = self._hurried = self.cut = False
        self._request = ""
        self._reset()

    def _reset(self) -> None:
        self._shown = Amount()
        self._omitted = Amount()
        self._lost_bytes = 0  # of what was omitted, as the front had to read it
        self._block = ""  # the stream that is on the screen last: clients join what follows in the same one
        # Of the unfinished line of each stream: its characters, bytes on the screen, and characters it has lost.
        self._columns = {"stdout": 0, "stderr": 0}
        self._line_bytes = {"stdout": 0, "stderr": 0}
        self._line_cut = {"stdout": 0, "stderr": 0}
        self._holding = False  # nothing more is shown for now
        self._limit_name = ""  # why
        self._told = False
        self._said = Amount()
        self._tail.clear()

    # ------------------------------------------------------------ the cell

    def begin(self, request: str) -> None:
        """A cell begins, with the whole budget."""
        self._reset()
        self._traffic.reset()
        self._running, self._request, self.cut = True, request, False

    def hurry(self) -> None:
        """The cell is being interrupted: its end must not stand behind what it wrote too fast; that is dropped."""
        self._hurried = self._running

    def end(self) -> None:
        """The cell has ended."""
        self._reset()
        self._running = self._hurried = False

    def release(self) -> None:
        """Say what was omitted and show the tail: the cell has ended, or failed."""
        for name, lost in self._line_cut.items():
            if lost:
                self._sink.stream(self._request, name, omitted_in_line(lost) + "\n")
                self._line_cut[name] = 0
        omitted, self._said = self._omitted - self._said, self._omitted
        if self._told and (omitted.text or omitted.messages):
            self.notice(omitted_total(omitted.text, omitted.messages, self.rule))
        for held in self._tail.take(whole_lines=self._told):
            self._shown += held.amount
            if held.message is None:
                self._sink.stream(*held.key, held.text)
            else:
                self._sink.publish(held.message, held.buffers)

    def excess(self) -> OutputLimit | None:
        """The error that ends a cell that writes beyond all bounds."""
        written = self._shown.bytes + self._tail.amount.bytes + self._lost_bytes
        if written > self._limits.output_total:
            return OutputLimit(written, self._limits.output_total)
        if self._omitted.messages > EXCESS * self._limits.messages:
            return OutputLimit(self._omitted.messages, self._limits.messages, rule="limits.messages")
        return None

    def must_wait(self) -> bool:
        """Whether the worker should write nothing more for a moment."""
        return not self._hurried and self._traffic.used_up()

    def room(self) -> int:
        """Bytes that may still be shown."""
        return max(0, self._limits.output - self._shown.bytes - self._tail.amount.bytes)

    def charge(self, size: int) -> None:
        """Note something that is sent and adds nothing to the screen."""
        self._traffic.charge(size)

    def notice(self, text: str) -> None:
        """A line of the sandbox itself in the cell."""
        self._sink.stream(self._request, "stderr", text)

    @property
    def rule(self) -> str:
        """The limit that omits something, with its value."""
        limits = self._limits
        return {
            "limits.output": f"limits.output = {size_text(limits.output)}",
            "limits.lines": f"limits.lines = {limits.lines:,}",
            "limits.messages": f"limits.messages = {limits.messages:,}",
        }.get(self._limit_name, f"limits.text = {size_text(limits.text)}")

    def _omit(self, amount: Amount) -> None:
        if not self._told:
            self._told = self.cut = True
            self.notice(omitted_here(self.rule))
        self._omitted = self._omitted + amount
        self._lost_bytes += amount.bytes

    # ------------------------------------------------------------ text

    def text(self, parent: str, name: str, text: str, arrived: int) -> None:
        """Text for standard output or error.

        Args:
            arrived: in bytes, with what is around it on the channel; that is what the front has to work for.
        """
        if not self._running:
            if self._traffic.charge_text((parent, name), sent_bytes(text)):
                self._show(parent, name, text)
            return
        self._record(text)
        if self._line_cut[name] or self._columns[name] + len(text) > self._line_limit:
            text = self._shorten(name, text)
            self._lost_bytes += max(0, arrived - len(text))
        else:
            end = max(text.rfind("\n"), text.rfind("\r")) + 1
            self._columns[name] = len(text) - end if end else self._columns[name] + len(text)
        end = text.rfind("\n") + 1
        if text.find("\r", end) < 0:
            self._add(parent, name, text, end)
        else:
            if end:
                self._add(parent, name, text[:end], end)
            self._overwrite(parent, name, text[end:])

    def _add(self, parent: str, name: str, text: str, end: int) -> None:
        """Text that goes under what is shown; its last line begins at `end`."""
        size = sent_bytes(text)
        amount = Amount(size, size, text.count("\n") if end else 0, int(name != self._block))
        if not self._holding and not self._fits(amount):
            text = self._show_head(parent, name, text)
        if self._holding:
            if text:
                self._tail.add_text((parent, name), text)
            return
        self._line_bytes[name] = sent_bytes(text[end:]) if end else self._line_bytes[name] + size
        self._note(parent, name, amount)
        self._show(parent, name, text)

    def _overwrite(self, parent: str, name: str, line: str) -> None:
        """Text that writes its line over itself: only what comes last is on the screen then."""
        size, kept = sent_bytes(line), sent_bytes(line[line.rfind("\r") + 1 :])
        change = kept - self._line_bytes[name]
        amount = Amount(change, change, 0, int(name != self._block))
        if self._holding or not self._fits(amount):
            self._tail.add_text((parent, name), line)
            return
        self._line_bytes[name] = kept
        self._note(parent, name, amount)
        if self._traffic.charge(size - kept, 0) or not self._hurried:
            self._show(parent, name, line)

    def _note(self, parent: str, name: str, amount: Amount) -> None:
        self._shown += amount
        self._block = name
        self._traffic.charge_text((parent, name), 0, counted=amount.messages > 0)

    def _show(self, parent: str, name: str, text: str) -> None:
        pace_s = self._traffic.pace_s
        if pace_s != self._pace_s:
            self._pace_s = pace_s
            self._sink.pace(pace_s)
        self._sink.stream(parent, name, text)

    def _fits(self, amount: Amount) -> bool:
        beyond = (self._shown + amount).beyond(self._head)
        if beyond:
            self._holding, self._limit_name = True, beyond
        return not beyond

    def _show_head(self, parent: str, name: str, text: str) -> str:
        """Shows as much of the text as fits, in whole lines if it can be; returns the rest."""
        left = self._head - self._shown
        head = text
        if head.count("\n") > left.lines:
            head = head[: len(head) - len(head.split("\n", left.lines)[-1])]
        head = prefix(head, min(left.text, left.bytes) if left.messages or name == self._block else 0)
        if len(head) < len(text):
            head = head[: head.rfind("\n") + 1] or head
        if head:
            size = sent_bytes(head)
            self._note(parent, name, Amount(size, size, head.count("\n"), int(name != self._block)))
            self._show(parent, name, head)
        return text[len(head) :]

    def _shorten(self, name: str, text: str) -> str:
        """The text without the ends of lines that are too long."""
        ends = [at for at in (text.find("\n"), text.find("\r")) if at >= 0]
        first = min(ends) + 1 if ends else len(text)
        last = max(text.rfind("\n"), text.rfind("\r")) + 1
        parts = [self._shorten_line(name, text[:first])]
        if last > first:
            parts.append(self._long_line.sub(self._shorten_match, text[first:last]))
        if len(text) > last >= first:
            parts.append(self._shorten_line(name, text[last:]))
        return "".join(parts)

    def _shorten_line(self, name: str, part: str) -> str:
        """Part of one line, or its end."""
        ended = part[-1] in "\r\n"
        line = part[:-1] if ended else part
        kept = line[: max(0, self._line_limit - self._columns[name])]
        lost = len(line) - len(kept)
        self._columns[name] += len(line)
        self._line_cut[name] += lost
        self._omitted = self._omitted + Amount(0, lost)
        if ended:
            if self._line_cut[name]:
                kept += omitted_in_line(self._line_cut[name])
                self.cut = True
            self._columns[name] = self._line_cut[name] = 0
            kept += part[-1]
        return kept

    def _shorten_match(self, match: re.Match[str]) -> str:
        line = match[0]
        lost = len(line) - self._line_limit
        self._omitted = self._omitted + Amount(0, lost)
        self.cut = True
        return line[: self._line_limit] + omitted_in_line(lost)

    # ------------------------------------------------------------ everything else

    def message(self, message: Publish, buffers: list[bytes], size: int) -> None:
        """A display, a result, a comm message, or an error that is not the cell's last word."""
        kind = message.msg_type
        if not self._running:
            if self._traffic.charge(size):
                self._sink.publish(message, buffers)
        elif kind in _ADDING:
            self._message_that_adds(message, buffers, size)
        elif kind == "update_display_data" and self._tail.shows(display_id(message)):
            self._tail.add(message, buffers, size)
        else:
            if kind == "clear_output" and message.parent == self._request:
                self._clear()
            if self._traffic.charge(size) or not self._hurried:
                self._sink.publish(message, buffers)

    def _message_that_adds(self, message: Publish, buffers: list[bytes], size: int) -> None:
        amount = Amount(size, 0, 0, 1)
        if not self._holding and self._fits(amount):
            self._shown += amount
            self._block = ""
            self._sink.publish(message, buffers)
        elif self._tail.takes(amount):
            self._tail.add(message, buffers, size)
        else:
            self._omit(amount)
            if not self._tail:
                self._holding = False  # one huge display does not silence the rest

    def _clear(self) -> None:
        """What was shown is gone from the screen, and what waited to be shown would be."""
        shown = self._shown
        self._reset()
        self._traffic.charge(shown.bytes, shown.messages)
