"""All text of the latest cells, also what was not shown, up to a bound: what ``%sandbox output N`` answers from."""

from __future__ import annotations

from collections import OrderedDict, deque

from ..errors import size_text

_CELLS = 200
_CHUNK_BYTES = 64 * 1024


class _Text:
    """Bytes of one cell's text: their beginning, and the newest of what follows.

    Args:
        most: bytes that may be kept.
    """

    def __init__(self, most: int) -> None:
        self._most = max(most, 2)
        self._chunk = max(1, min(_CHUNK_BYTES, most // 16))
        self.head = bytearray()
        self._tail: deque[bytearray] = deque()
        self._tail_size = 0
        self.lost = 0

    @property
    def size(self) -> int:
        return len(self.head) + self._tail_size

    def add(self, data: bytes) -> None:
        room = self._most // 2 - len(self.head)
        if room > 0:
            self.head += data[:room]
            data = data[room:]
        view = memoryview(data)
        for at in range(0, len(data), self._chunk):
            part = view[at : at + self._chunk]
            if not self._tail or len(self._tail[-1]) + len(part) > self._chunk:
                self._tail.append(bytearray())
            self._tail[-1] += part
            self._tail_size += len(part)
            while self._tail_size > self._most // 2:
                gone = len(self._tail.popleft())
                self._tail_size -= gone
                self.lost += gone

    def whole(self, rule: str) -> bytes:
        gap = f"\n[... {size_text(self.lost)} are missing here, {rule}]\n".encode() if self.lost else b""
        return b"".join([self.head, gap, *self._tail])


class Transcript:
    """Keeps text by the cell's number.

    Args:
        most: bytes of all cells together (`limits.output_kept`); the oldest cells give way.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._rule = f"limits.output_kept = {size_text(most)}"
        self._cells: OrderedDict[int, _Text] = OrderedDict()
        self._size = 0
        self._current: _Text | None = None

    def begin(self, number: int) -> None:
        """What is added from now on belongs to the cell with this number."""
        self._size -= before.size if (before := self._cells.pop(number, None)) else 0
        self._current = self._cells[number] = _Text(self._most)
        while len(self._cells) > _CELLS:
            self._give_up()

    def add(self, text: str) -> None:
        """More text of the running cell."""
        current = self._current
        if current is None:
            return
        before = current.size
        current.add(text.encode("utf-8", "surrogatepass"))
        self._size += current.size - before
        while self._size > self._most and next(iter(self._cells.values())) is not current:
            self._give_up()

    def end(self) -> None:
        """The cell has ended."""
        self._current = None

    def _give_up(self) -> None:
        _, oldest = self._cells.popitem(last=False)
        self._size -= oldest.size

    def page(self, number: int, page: int, size: int) -> tuple[str, int] | None:
        """One page of a cell's text, and how many there are.

        Args:
            number: the cell's.
            page: from 1 on; 0 is the last one.
            size: of a page in bytes; it ends with a line if it can, and may be up to twice as long.

        Returns:
            None when nothing of that cell is kept; an empty text when there is no such page.
        """
        found = self._cells.get(number)
        if found is None:
            return None
        data = found.whole(self._rule)
        pages = max(1, -(-len(data) // size))
        page = page or pages

        def start(index: int) -> int:
            at = index * size
            return at if index == 0 or at >= len(data) else data.find(b"\n", at - 1, at + size - 1) + 1 or at

        return data[start(page - 1) : start(page)].decode("utf-8", "ignore"), pages
