"""The profile's start-up files, whose texts the front sends, before the first cell."""

from __future__ import annotations

import linecache
import sys
import traceback
from collections.abc import Sequence
from typing import Any


def run(shell: Any, files: Sequence[Sequence[str]]) -> None:
    """Runs each file in the namespace of the cells, as IPython does; a failure is told in the first cell.

    Args:
        shell: the shell of the cells.
        files: path and text of each.

    Raises:
        KeyboardInterrupt: the rest is not run.
    """
    failures = []
    names = shell.user_ns
    try:
        for path, text in files:
            # Nothing lies at the path in here; tracebacks and `inspect` look at the lines.
            linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
            names["__file__"] = path
            try:
                source = shell.transform_cell(text) if path.endswith(".ipy") else text
                exec(compile(source, path, "exec"), names)  # noqa: S102 - this is the side that runs code
            except SystemExit:
                continue
            except Exception:
                kind, error, trace = sys.exc_info()
                lines = traceback.format_exception(kind, error, trace.tb_next if trace else None)
                failures.append(f"The start-up file {path} failed:\n{''.join(lines)}")
    finally:
        names.pop("__file__", None)
        shell.user_ns_hidden.update(names)  # not the cells' own: %who and %reset leave them out
        if failures:
            _tell_later(shell, "".join(failures))


def _tell_later(shell: Any, text: str) -> None:
    def tell() -> None:
        shell.events.unregister("pre_execute", tell)
        sys.stderr.write(text)

    shell.events.register("pre_execute", tell)
