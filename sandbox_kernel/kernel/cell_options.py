"""What a cell says about its own limits: ``# sandbox: timeout=30`` in its first lines. It may only tighten them.

The metadata of the request may say the same, as ``{"sandbox": {"timeout": 30}}``. It may not loosen anything either:
JupyterLab sends all metadata of the cell with each request (``CodeCell.execute`` puts it beside ``cellId``), so whoever
wrote a notebook that somebody downloads has written that, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..quantities import parse_seconds, show_seconds

KEYS = ("timeout",)
NOTICE_S = 60.0  # the shortest limit whose half-time is told
_LINES = 20
_COMMENT = re.compile(r"\s*#\s*sandbox:(?P<said>.{0,200})")


def cell_options(code: str, metadata: Mapping[str, Any]) -> tuple[float, list[str]]:
    """What a cell asks for.

    Args:
        code: of the cell; its comments and blank lines before the first other line count.
        metadata: of the request.

    Returns:
        Seconds that the cell may take at most (0: it says nothing), and what is wrong with what it says, in sentences.
    """
    said, notes = dict(_in_comment(code)), []  # type: dict[str, str], list[str]
    own = metadata.get("sandbox")
    asked = [("timeout", own["timeout"])] if isinstance(own, Mapping) and "timeout" in own else []
    shortest = 0.0
    for key, value in [*said.items(), *asked]:
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


def _in_comment(code: str) -> Iterator[tuple[str, str]]:
    for line in code.split("\n", _LINES)[:_LINES]:
        if line.strip() and not line.lstrip().startswith("#"):
            return
        match = _COMMENT.match(line)
        if match is None:
            continue
        for word in re.split(r"[\s,]+", match["said"].strip()):
            key, _, value = word.partition("=")
            if word:
                yield key, value
        return


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
