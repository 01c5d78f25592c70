"""Reads the table out of a cell's HTML, so that a terminal can draw it."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

LARGEST = 200_000  # characters of HTML; pandas shows at most 60 rows, which is far below


@dataclass
class HtmlTable:
    """A plain table.

    Attributes:
        header: one title for each column.
        rows: the body, each row as wide as the header.
        label_columns: how many columns at the left are labels (``<th>``).
        after: lines of text that follow, such as "5 rows x 3 columns".
    """

    header: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    label_columns: int = 0
    after: list[str] = field(default_factory=list)


def read_table(html: str) -> HtmlTable | None:
    """Read the only table of an HTML text.

    Returns:
        None where the text is no table, or one with merged cells or several headings, which a terminal shows
        better as the plain text that comes with it.
    """
    if len(html) > LARGEST or "<table" not in html:
        return None
    reader = _Reader()
    reader.feed(html)
    reader.close()
    # (Only now: one text may come in several parts, with a tag between them and the blank on either side of it.)
    for row in (*reader.head, *reader.body, reader.after):
        row[:] = (" ".join(text.split()) for text in row)
    head = _one_heading(reader.head)
    if not reader.plain or reader.tables != 1 or head is None or not reader.body:
        return None
    if any(len(row) != len(head) for row in reader.body):
        return None
    return HtmlTable(head, reader.body, max(reader.labels), [line for line in reader.after if line])


def _one_heading(rows: list[list[str]]) -> list[str] | None:
    """Join heading rows that complete each other: pandas puts the index's name on a row of its own."""
    if not rows or any(len(row) != len(rows[0]) for row in rows):
        return None
    joined = []
    for titles in zip(*rows, strict=True):
        filled = [title for title in titles if title]
        if len(filled) > 1:
            return None
        joined.append(filled[0] if filled else "")
    return joined


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.head: list[list[str]] = []
        self.body: list[list[str]] = []
        self.labels: list[int] = []
        self.after: list[str] = []
        self.tables = 0
        self.plain = True
        self._in_head = self._in_cell = self._in_style = self._done = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.tables += 1
        elif tag == "style":
            self._in_style = True
        elif tag == "thead":
            self._in_head = True
        elif tag == "tr":
            (self.head if self._in_head else self.body).append([])
            if not self._in_head:
                self.labels.append(0)
        elif tag in ("td", "th"):
            rows = self.head if self._in_head else self.body
            if not rows or any(name in ("rowspan", "colspan") and value != "1" for name, value in attrs):
                self.plain = False
                return
            rows[-1].append("")
            self._in_cell = True
            if tag == "th" and not self._in_head:
                self.labels[-1] += 1
        elif tag == "p" and self._done:
            self.after.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self._done = True
        elif tag == "style":
            self._in_style = False
        elif tag == "thead":
            self._in_head = False
        elif tag in ("td", "th"):
            self._in_cell = False

    def handle_data(self, data: str) -> None:
        if self._in_style:
            return
        if self._in_cell:
            (self.head if self._in_head else self.body)[-1][-1] += data
        elif self._done and self.after:
            self.after[-1] += data
