"""Shows notebooks in a terminal. What they hold is untrusted: no control sequence of it gets through."""

from __future__ import annotations

import base64
import binascii
import os
import re
import struct
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Markdown
from rich.padding import Padding
from rich.segment import Segment
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from .tables import HtmlTable, read_table

_COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_].*?(?:\x1b\\|\x07|$)|[ -/]*[0-~])", re.DOTALL)
# C0 and C1 controls but tab and newline, and the marks that reorder text so that it reads as something else.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str, *, colours: bool = False) -> str:
    """Make text safe to print: escape sequences go, other control characters turn into U+FFFD.

    Args:
        text: anything.
        colours: keep the sequences that only set colours and weights.
    """
    text = text.replace("\r\n", "\n")
    parts = _COLOUR.split(text) if colours else [text]
    for index in range(0, len(parts), 2):
        parts[index] = _CONTROL.sub("\ufffd", _SEQUENCE.sub("", parts[index]))
    return "".join(parts)


def overwritten(text: str) -> str:
    """What is left of each line after its carriage returns, as for progress bars."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)


class _Rendered:
    """Markdown. Its addresses and entities become characters only when it is drawn: ``<http://a/%1b]0;title%07>``."""

    def __init__(self, text: str) -> None:
        self._drawn = Markdown(printable(text), hyperlinks=False)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._drawn, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


class Terminal:
    """Prints cells and their outputs as they come.

    Args:
        console: where to; None takes stdout, with colours when that is a terminal.
    """

    def __init__(self, console: Console | None = None) -> None:
        # Into a pipe or a log there is no width to respect, and the usual 80 breaks most tables.
        narrow = sys.stdout.isatty() or "COLUMNS" in os.environ
        self.console = console or Console(highlight=False, width=None if narrow else 110)
        self._line_open = False
        self._cells = self._cell = self._errors = 0
        self._began = 0.0

    def notebook(self, path: Path, notebook: Any) -> None:
        """Announce a notebook."""
        self._cells = sum(_runs(cell) for cell in notebook.cells)
        self._cell = self._errors = 0
        self._began = time.monotonic()
        self._print(Text(f"{printable(str(path))}: {_cells(self._cells)}", style="bold"))

    def cell(self, cell: Any) -> None:
        """Show a cell that is about to run, or a text cell."""
        if cell.cell_type == "markdown":
            self._print()
            self._print(_Rendered(cell.source))
        elif _runs(cell):
            self._cell += 1
            self._end_line()
            self.console.print()
            self.console.rule(Text(f"cell {self._cell} of {self._cells}"), align="left", style="cyan")
            code = printable(cell.source).strip("\n")
            self._print(Syntax(code, "python", theme="ansi_dark", background_color="default", word_wrap=True))

    def output(self, out: Any, *, expected: bool) -> None:
        """Show one output.

        Args:
            out: an nbformat output.
            expected: whether the cell may fail.
        """
        if out.output_type == "stream":
            self._stream(out.text, style="yellow" if out.name == "stderr" else "")
        elif out.output_type == "error":
            self._error(out, expected=expected)
        else:
            self._data(out.data)

    def cell_done(self, *, seconds: float, failed: bool, expected: bool) -> None:
        """Close a cell: its time, and whether a failure was expected."""
        self._end_line()
        self._errors += failed
        note = "" if not failed else "  failed, as it may" if expected else "  failed"
        self._print(Text(f"{seconds:.1f} s{note}", style="dim"))

    def notebook_done(self) -> None:
        """Sum a notebook up."""
        self._end_line()
        self.console.print()
        self.console.rule(style="cyan")
        count = {0: "no errors", 1: "1 error, expected"}.get(self._errors, f"{self._errors} errors, expected")
        seconds = time.monotonic() - self._began
        text = f"{self._cell} of {_cells(self._cells)} ran in {seconds:.1f} s, {count}"
        self._print(Text(text, style="bold green"))

    def failed(self, reason: str) -> None:
        """Say why a notebook ended early."""
        self._print()
        self._print(Text(printable(reason), style="bold red"))

    def wrote(self, paths: Iterable[Path]) -> None:
        """Name the files with the results."""
        for path in paths:
            self._print(Text(f"wrote {printable(str(path))}"))

    def _stream(self, text: str, style: str) -> None:
        if text.startswith("\r"):
            self._end_line()
        text = printable(overwritten(text), colours=True)
        # from_ansi keeps or drops a newline at the end by rich's version.
        body = text.removesuffix("\n")
        self.console.print(Text.from_ansi(body, style=style, end=""), end="", soft_wrap=True)
        self._line_open = body == text
        if not self._line_open:
            self.console.print()

    def _error(self, out: Any, *, expected: bool) -> None:
        name = printable(f"{out.ename}: {out.evalue}")
        trace = "\n".join(out.traceback)
        if not expected:
            self._print(Text.from_ansi(printable(trace, colours=True)))
        if expected or not printable(trace).rstrip().endswith(name.rstrip()):
            self._print(Text(name, style="yellow" if expected else "bold red"))

    def _data(self, data: dict[str, Any]) -> None:
        table = read_table(data["text/html"]) if "text/html" in data else None
        images = [mime for mime in data if mime.startswith("image/")]
        if table is not None and (drawn := self._fitting(table)) is not None:
            self._print(Padding(drawn, (0, 0, 0, 0), expand=False))
            for line in table.after:
                self._print(Text(printable(line), style="dim"))
        elif images:
            self._print(Text(describe_image(images[0], data[images[0]]), style="magenta"))
        elif "text/markdown" in data:
            self._print(_Rendered(data["text/markdown"]))
        elif "text/plain" in data:
            self._print(Text.from_ansi(printable(data["text/plain"], colours=True)), soft_wrap=True)
        else:
            self._print(Text(printable(", ".join(data) or "nothing"), style="magenta"))

    def _fitting(self, table: HtmlTable) -> Table | None:
        """Draw a table; None where the terminal is too narrow for it."""
        drawn = Table(box=None, header_style="bold", pad_edge=False)
        for index, title in enumerate(table.header):
            label = index < table.label_columns
            drawn.add_column(Text(printable(title)), justify="left" if label else "right", no_wrap=True,
                             style="bold" if label else "")  # fmt: skip
        for row in table.rows:
            drawn.add_row(*(Text(printable(value)) for value in row))
        needed = self.console.measure(drawn, options=self.console.options.update(max_width=10_000)).maximum
        return drawn if needed <= self.console.width else None

    def _print(self, what: Any = "", *, soft_wrap: bool = False) -> None:
        self._end_line()
        self.console.print(what, soft_wrap=soft_wrap)

    def _end_line(self) -> None:
        if self._line_open:
            self.console.print()
            self._line_open = False


def _cells(count: int) -> str:
    return f"{count} code cell{'s' * (count != 1)}"


def _runs(cell: Any) -> bool:
    return bool(cell.cell_type == "code" and cell.source.strip())


def describe_image(mime: str, content: Any) -> str:
    """Say what an image is: ``image (png, 640 x 480)``, without the size where that cannot be told."""
    kind = printable(mime.partition("/")[2].partition("+")[0])
    text = content if isinstance(content, str) else "".join(map(str, content))
    size = _svg_size(text) if kind == "svg" else _bitmap_size(kind, text)
    return f"image ({kind}, {size[0]} x {size[1]})" if size else f"image ({kind})"


def _svg_size(text: str) -> tuple[int, int] | None:
    tag = re.search(r"<svg\b[^>]{0,4000}", text)
    if tag is None:
        return None
    width = re.search(r'\bwidth="(\d{1,6}(?:\.\d{1,9})?)(?:pt|px)?"', tag[0])
    height = re.search(r'\bheight="(\d{1,6}(?:\.\d{1,9})?)(?:pt|px)?"', tag[0])
    return (round(float(width[1])), round(float(height[1]))) if width and height else None


def _bitmap_size(kind: str, text: str) -> tuple[int, int] | None:
    try:
        data = base64.b64decode(text)
        if kind == "png" and data.startswith(b"\x89PNG\r\n\x1a\n"):
            return struct.unpack(">II", data[16:24])
        if kind == "gif" and data.startswith(b"GIF8"):
            return struct.unpack("<HH", data[6:10])
        if kind == "jpeg" and data.startswith(b"\xff\xd8"):
            at = 2
            while data[at] == 0xFF:  # one segment after the other, up to the one that starts a frame
                if 0xC0 <= data[at + 1] <= 0xCF and data[at + 1] not in (0xC4, 0xC8, 0xCC):
                    height, width = struct.unpack(">HH", data[at + 5 : at + 9])
                    return width, height
                at += 2 + struct.unpack(">H", data[at + 2 : at + 4])[0]
    except (binascii.Error, struct.error, IndexError, ValueError):
        pass
    return None
