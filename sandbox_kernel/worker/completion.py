"""Completion that stays quick in a long session.

Jedi looks at every name there is before it looks at what was typed. IPython keeps two names for each cell (``_i7``
and, of a result, ``_7``), and shows jedi the same variables twice, as globals and as locals: after some thousand
cells one completion took half a second.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import re
from collections.abc import Iterator
from typing import Any

from IPython.core import completer

_OF_A_CELL = re.compile(r"_i?\d+")
_LAST_WORD = re.compile(r"\w*\Z")


class IPCompleter(completer.IPCompleter):
    """Stock's; jedi is shown the names of old cells only where they are asked for.

    ``%config`` finds it by the name of its class, which is the stock one's.
    """

    def _jedi_matches(self, cursor_column: int, cursor_line: int, text: str) -> Iterator[Any]:
        kept = self.namespace, self.global_namespace
        lines = text.split("\n")[: cursor_line + 1]
        before = "\n".join([*lines[:-1], lines[-1][:cursor_column]])
        _keep_no_files()
        collects = gc.isenabled()
        try:
            gc.disable()  # the trees of what is read live on, and each collection would look at all of them
            self.namespace = names_shown(kept[0], before)
            self.global_namespace = {} if kept[0] is kept[1] else names_shown(kept[1], before)
            matches: Iterator[Any] = super()._jedi_matches(cursor_column, cursor_line, text)
            return matches
        finally:
            self.namespace, self.global_namespace = kept
            if collects:
                gc.enable()


@functools.cache
def _keep_no_files() -> None:
    """Let jedi keep what it has read in memory alone.

    It also writes all of it to files, for the process that comes next. Those of a sandbox end with it, and writing
    takes half as long as reading.
    """
    with contextlib.suppress(ImportError):
        cache: Any = importlib.import_module("parso.cache")
        cache._save_to_file_system = lambda *_args, **_kwargs: None


def names_shown(variables: dict[str, Any], before: str) -> dict[str, Any]:
    """The variables that matter for what is typed before the cursor.

    Args:
        variables: all that there are.
        before: the text.

    Returns:
        all when a name with an underscore is being typed; otherwise without those of cells that the text does not name.
    """
    word = _LAST_WORD.search(before)
    if word is not None and word[0].startswith("_"):
        return variables
    named = set(_OF_A_CELL.findall(before))
    return {
        name: value for name, value in variables.items()
        if name[:1] != "_" or name in named or not _OF_A_CELL.fullmatch(name)
    }  # fmt: skip
