"""What a cell prints, noted in the history of its shell as IPython does it, in a third of the time.

IPython puts a function of its own in the place of the `write` of both streams while a cell runs (``%notebook`` writes
the outputs that it notes into a document). With each write that takes as long as all the rest.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Literal

from IPython.core import history

from .streams import OutStream


def note_quickly(shell: Any) -> None:
    """Have this shell do it so. An IPython that notes nothing goes on as it is."""
    if hasattr(shell, "_tee") and hasattr(history, "HistoryOutput"):
        shell._tee = partial(_noting, shell, shell._tee)


@contextmanager
def _noting(shell: Any, stock: Callable[..., AbstractContextManager[None]], channel: str) -> Iterator[None]:
    stream: Any = getattr(sys, channel)
    if type(stream) is not OutStream:  # somebody's own, with a `write` of its own
        with stock(channel):
            yield
        return
    write = stream.write
    count = shell.execution_count
    kind: Literal["out_stream", "err_stream"] = "out_stream" if channel == "stdout" else "err_stream"
    publisher, hook, noted = shell.display_pub, shell.displayhook, shell.history_manager.outputs

    def note(string: str) -> int:
        written = write(string)
        if string and not (shell.showing_traceback or publisher.is_publishing or hook.is_active):
            outputs = noted[count]
            if outputs and (newest := outputs[-1]).output_type == kind:
                newest.bundle["stream"].append(string)
            else:
                outputs.append(history.HistoryOutput(output_type=kind, bundle={"stream": [string]}))
        return written

    stream.write = note  # type: ignore[method-assign]
    try:
        yield
    finally:  # an interrupt may come after the cell's own code, where nothing catches it
        stream.write = write  # type: ignore[method-assign]
