"""Writes executed notebooks and their pages, which hold what an untrusted cell produced."""

from __future__ import annotations

import copy
import os
import secrets
import stat
from pathlib import Path
from types import TracebackType

import nbformat
import nh3
from nbconvert import HTMLExporter

from .stop import Stop

# First thing in the page's head. It forbids every script and every request, so what a cell displayed cannot
# act in the reader's browser even where the cleaning of HTML missed something.
CONTENT_POLICY = (
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
    "style-src 'unsafe-inline'; font-src data:; form-action 'none'; base-uri 'none'\">"
)

# What a page shows of an output, besides images. nbconvert's templates write some other kinds unescaped.
SHOWN_TYPES = {"text/plain", "text/html", "text/markdown", "text/latex", "application/json"}
# Style sheets are kept: tables and diagrams need them, and with the policy above they can load nothing.
TAGS = nh3.ALLOWED_TAGS | {"style", "input", "label"}
ATTRIBUTES = {**nh3.ALLOWED_ATTRIBUTES, "*": {"class", "id", "style", "title"}, "input": {"type", "checked"},
              "label": {"for"}, "table": {"border"}}  # fmt: skip


class OutputFolder:
    """The folder that results go to, held open from before the first cell runs.

    A cell may write its notebook's folder, and the output folder often lies in it. By path, a symbolic link
    that a cell left in the way would send our writing anywhere; by the descriptor, and with a rename into
    place, it cannot.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1

    def __enter__(self) -> OutputFolder:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self.path, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            reason = "it is a symbolic link" if self.path.is_symlink() else error.strerror
            raise Stop(f"The output folder {self.path} cannot be used: {reason}.") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)

    def holds(self, notebook: Path) -> bool:
        """Whether this notebook's own folder is the output folder."""
        try:
            return os.path.samestat(os.stat(notebook.parent), os.fstat(self._fd))
        except OSError:
            return False  # no such folder; reading the notebook will say so

    def write_notebook(self, stem: str, notebook: nbformat.NotebookNode) -> Path:
        """Write STEM.ipynb and return its path.

        Raises:
            Stop: it cannot be written.
        """
        return self._write(f"{stem}.ipynb", nbformat.writes(notebook))

    def write_page(self, stem: str, notebook: nbformat.NotebookNode) -> Path:
        """Write STEM.html and return its path.

        Raises:
            Stop: it cannot be written.
        """
        return self._write(f"{stem}.html", page(notebook, title=stem))

    def read(self, name: str, most: int) -> str | None:
        """The text of a file in the folder that has at most so many bytes; None where there is none to be had."""
        try:
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._fd)
        except OSError:
            return None
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode) or os.fstat(fd).st_size > most:
                return None
            with open(fd, encoding="utf-8", closefd=False) as file:
                return file.read(most)
        except (OSError, UnicodeDecodeError):
            return None
        finally:
            os.close(fd)

    def _write(self, name: str, text: str) -> Path:
        partial = f".{name}.{secrets.token_hex(8)}"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(partial, flags, 0o666, dir_fd=self._fd)
            with open(fd, "w", encoding="utf-8", errors="surrogatepass") as file:
                file.write(text)
            os.replace(partial, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        except OSError as error:
            raise Stop(f"{self.path / name} could not be written: {error.strerror}.") from error
        return self.path / name


def page(notebook: nbformat.NotebookNode, *, title: str) -> str:
    """Make an HTML page of a notebook: one file, which loads nothing and runs no script.

    Args:
        notebook: executed; not changed.
        title: the page's title.
    """
    plain = copy.deepcopy(notebook)
    plain.metadata.pop("widgets", None)  # it makes the template load code from elsewhere
    for cell in plain.cells:
        for out in cell.get("outputs", []):
            for mime in set(out.get("data", {})):
                if mime not in SHOWN_TYPES and not mime.startswith("image/"):
                    del out.data[mime]
            if "metadata" in out:
                out.metadata = _sizes(out.metadata)
    exporter = HTMLExporter(sanitize_html=True)
    # nbconvert's own filter takes tables apart (it knows no <th>) and shows style sheets as text.
    exporter.register_filter("clean_html", clean)
    html, _ = exporter.from_notebook_node(plain, resources={"metadata": {"name": title}})
    head = "<head>"
    before, found, after = html.partition(head)
    if not found or "<script" in before.lower():
        raise Stop("The HTML page could not be made safe: nbconvert's template has no head; omit --html.")
    return f"{before}{head}{CONTENT_POLICY}{after}"


def _sizes(metadata: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Width and height of pictures: nbconvert's templates write them without quotes, so other texts add attributes."""
    kept = nbformat.NotebookNode()
    for mime, found in metadata.items():
        if isinstance(found, dict):
            sizes = {name: found[name] for name in ("width", "height") if type(found.get(name)) in (int, float)}
            kept[mime] = nbformat.NotebookNode(sizes)
        elif mime in ("width", "height") and type(found) in (int, float):
            kept[mime] = found
    return kept


def clean(html: object) -> str:
    """Clean HTML that a cell displayed or a text cell holds: no script, no frame, no form, nothing loaded."""
    text = html.decode("utf-8", "replace") if isinstance(html, bytes) else str(html)
    return nh3.clean(
        text,
        tags=TAGS,
        attributes=ATTRIBUTES,
        clean_content_tags={"script"},
        attribute_filter=_only_harmless,
        url_schemes={"http", "https", "mailto", "data"},
    )


def _only_harmless(tag: str, name: str, value: str) -> str | None:
    if value.lstrip().lower().startswith("data:") and (tag, name) != ("img", "src"):
        return None
    if (tag, name) == ("input", "type") and value != "checkbox":
        return None
    return value
