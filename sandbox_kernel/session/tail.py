"""The newest part of an output that has become too long, until it can be shown."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

import msgspec

from ..channel.schema import Publish
from .limits import Amount, sent_bytes, suffix

# Text is joined to pieces of this share of the tail, and pieces are given up as a whole.
_PIECES = 8
_PIECE_BYTES = 64 * 1024
_TEXTS = 500


class Held(msgspec.Struct):
    """Text of one stream, or a message.

    Attributes:
        key: request and stream of the text.
    """

    key: tuple[str, str] = ("", "")
    amount: Amount = msgspec.field(default_factory=Amount)
    texts: list[str] = msgspec.field(default_factory=list)
    message: Publish | None = None
    buffers: list[bytes] = msgspec.field(default_factory=list)

    @property
    def text(self) -> str:
        """All of the text."""
        return "".join(self.texts)


def display_id(message: Publish) -> str:
    """The name by which a display can be updated; "" when it has none."""
    transient = message.content.get("transient")
    found = transient.get("display_id") if isinstance(transient, dict) else None
    return found if isinstance(found, str) else ""


class Tail:
    """Holds no more than `most`; what is too much is given up, oldest first.

    Args:
        omit: called with each amount that is given up.

    Attributes:
        amount: what is held.
    """

    def __init__(self, most: Amount, omit: Callable[[Amount], None]) -> None:
        self._most, self._omit = most, omit
        self.clear()

    def clear(self) -> None:
        """Hold nothing."""
        self._held: deque[Held] = deque()
        self.amount = Amount()

    def __bool__(self) -> bool:
        return bool(self._held)

    def takes(self, amount: Amount) -> bool:
        """Whether something of this size can be held at all."""
        return not amount.beyond(self._most)

    def shows(self, name: str) -> bool:
        """Whether a display with this name is held."""
        return bool(name) and any(held.message and display_id(held.message) == name for held in self._held)

    def add(self, message: Publish, buffers: list[bytes], size: int) -> None:
        """Hold a message."""
        self._append(Held(amount=Amount(size, 0, 0, 1), message=message, buffers=buffers))

    def add_text(self, key: tuple[str, str], text: str) -> None:
        """Hold the end of a text."""
        most = self._most
        whole = sent_bytes(text)
        if text.count("\n") > most.lines:
            text = text[len(text.rsplit("\n", most.lines + 1)[0]) + 1 :]
        text = suffix(text, min(most.text, most.bytes))
        size, lines = sent_bytes(text), text.count("\n")
        if size < whole:
            self._omit(Amount(whole - size, whole - size))
        if not text:
            return
        last = self._held[-1] if self._held else None
        piece = max(1, min(_PIECE_BYTES, most.text // _PIECES))
        piece_lines = max(1, most.lines // _PIECES)
        if (
            last is None or last.message is not None or last.key != key
            or last.amount.bytes + size > piece or last.amount.lines + lines > piece_lines
        ):  # fmt: skip
            # One large text is several pieces, too: as a whole it would be given up for the next character.
            count = max(1, -(-size // piece), -(-lines // piece_lines))
            step = -(-len(text) // count)
            for at in range(0, len(text), step):
                part = text[at : at + step]
                part_size = sent_bytes(part)
                self._append(Held(key, Amount(part_size, part_size, part.count("\n"), int(at == 0)), [part]))
            return
        last.texts.append(text)
        if len(last.texts) > _TEXTS:
            last.texts = [last.text]
        more = Amount(size, size, lines)
        last.amount += more
        self.amount += more
        self._evict()

    def _append(self, held: Held) -> None:
        self._held.append(held)
        self.amount += held.amount
        self._evict()

    def _evict(self) -> None:
        while self.amount.beyond(self._most) and self._held:
            held = self._held.popleft()
            self.amount -= held.amount
            # A piece of text is no message of its own.
            self._omit(held.amount if held.message else Amount(held.amount.bytes, held.amount.text))

    def take(self, *, whole_lines: bool) -> Iterator[Held]:
        """Give out everything, oldest first.

        Args:
            whole_lines: something before it was given up, so that the first text may begin anywhere in a line.
        """
        held, self._held, self.amount = self._held, deque(), Amount()
        for one in held:
            if whole_lines and one.message is None:
                text = one.text
                one.texts = [text[text.find("\n", 0, -1) + 1 :]]
            whole_lines = False
            yield one
