"""What a cell says about its own limits: ``# sandbox: timeout=30`` in its first lines. It may only tighten them.

The metadata of the request may say the same, as ``{"sandbox": {"timeout": 30}}``. It may not loosen anything either:
JupyterLab sends all metadata of the cell with each request (``CodeCell.execute`` puts it beside ``cellId``), so whoever
wrote a notebook that somebody downloads has written that, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import io
import re
import tokenize
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..quantities import parse_seconds, show_seconds

KEYS = ("timeout",)
NOTICE_S = 60.0  # the shortest limit whose half-time is told
_LINES = 20
_CHARS = 200_000  # of code that is looked through for comments in the wrong place
_MEANT = re.compile(r"#\s*sandbox:\s*\w+\s*=")
_TOO_LATE = "[`# sandbox:` was ignored: it must stand above the cell's first line of code]\n"
_COMMENT = re.compile(r"\s*#\s*sandbox:(?P<said>.{0,200})")


def cell_options(code: str, metadata: Mapping[str, Any]) -> tuple[float, list[str]]:
    """What a cell asks for.

    Args:
        code: of the cell; what stands above its first line of code counts, and a cell magic is none.
        metadata: of the request.

    Returns:
        Seconds that the cell may take at most (0: it says nothing), and what is wrong with what it says, in sentences.
    """
    said, code_begins = _in_comments(code)
    notes = [_TOO_LATE] if _comes_later(code, code_begins) else []
    own = metadata.get("sandbox")
    asked = [("timeout", own["timeout"])] if isinstance(own, Mapping) and "timeout" in own else []
    shortest = 0.0
    for key, value in [*said, *asked]:
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, n=1)
            hint = f" Did you mean {near[0]}?" if near else " It can say timeout=30."
            notes.append(f"[`# sandbox:` does not know {key[:40]!r}, so it was ignored.{hint}]\n")
            continue
        try:
            seconds = parse_seconds(value)
        except ValueError as error:
            notes.append(f"[`# sandbox: timeout=` was ignored: {str(value)[:40]!r} {error}]\n")
            continue
        shortest = min(shortest or seconds, seconds)
    return shortest, notes


def _in_comments(code: str) -> tuple[list[tuple[str, str]], int]:
    """What the comments above the code say, and the number of the first line of code, from 0."""
    said: list[tuple[str, str]] = []
    lines = code.split("\n", _LINES)[:_LINES]
    for number, line in enumerate(lines):
        magic = line.startswith("%%") and not any(before.strip() for before in lines[:number])
        if line.strip() and not line.lstrip().startswith("#") and not magic:
            return said, number
        match = _COMMENT.match(line)
        for word in re.split(r"[\s,]+", match["said"].strip()) if match is not None else ():
            key, _, value = word.partition("=")
            if word:
                said.append((key, value))
    return said, len(lines)


def _comes_later(code: str, line: int) -> bool:
    """Whether a comment in the code, or below it, is meant for the sandbox."""
    if len(code) > _CHARS or not _MEANT.search(code):
        return False
    rest = "\n".join(code.split("\n")[line:])
    if not _MEANT.search(rest):
        return False
    try:
        tokens = tokenize.generate_tokens(io.StringIO(rest).readline)
        return any(token.type == tokenize.COMMENT and _MEANT.match(token.string) for token in tokens)
    except (tokenize.TokenError, SyntaxError):  # it is no Python: IPython's own syntax, or it is wrong
        return False


def too_long_note(seconds: float, allowed: float) -> str:
    """For a cell that asks for more than there is."""
    return (f"[`# sandbox: timeout=` can only shorten: the limit stays {show_seconds(allowed)} (limits.cell_time), "
            f"not {show_seconds(seconds)}]\n")  # fmt: skip


@contextlib.contextmanager
def half_time(loop: asyncio.AbstractEventLoop, seconds: float, show: Callable[[str], None]) -> Iterator[None]:
    """While a cell runs: say so when half of its time is over.

    Args:
        loop: on which the cell is waited for.
        seconds: what the cell may take; 0, or less than `NOTICE_S`: nothing is said.
        show: called with the text.
    """
    timer = None
    if seconds >= NOTICE_S:
        text = f"[Half of this cell's time is over: it may run for {show_seconds(seconds)}]\n"
        timer = loop.call_later(seconds / 2, show, text)
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()
