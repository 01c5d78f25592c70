"""``%sandbox export NAME``: a variable as a ``.frame`` file, which is safe to read anywhere (`frames.load_file`).

The worker writes it, so the rules for files hold for it as for any file that a cell writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import SandboxError
from ..outputs.text import clean_text
from ..report import files_text
from ..session.session import Session

USAGE = "It is `%sandbox export NAME`, or `%sandbox export NAME FILE`, where NAME is a variable's.\n"
_CHARS = 1000


async def export(session: Session, words: Sequence[str], header: Mapping[str, Any]) -> str:
    """Do it, and say in a line what was done.

    Args:
        words: the variable, and the file if it is not ``NAME.frame``.
        header: of the request, as plain values.
    """
    if not 1 <= len(words) <= 2 or not words[0][:_CHARS].isidentifier():
        return USAGE
    name, path = words[0], words[1] if len(words) > 1 else f"{words[0]}.frame"
    if len(path) > _CHARS:
        return USAGE
    fields = {"header": header, "metadata": {}, "content": {}, "name": name, "path": path}
    try:
        # (The request itself had the message's own id, in the worker too.)
        reply = await session.request("export", f"export-{header['msg_id']}"[:200], fields)
    except SandboxError as error:
        return f"{error.explain()}\n"
    if reply.get("status") == "error":
        said = clean_text(str(reply.get("evalue", "")))
        return f"Nothing was written: {said.rstrip('.')}.\n"
    kept = ""
    if session.files.layered:
        report = await asyncio.to_thread(session.files.collect)
        kept = files_text(report.kept, report.inside)  # (always: it was asked for)
        session.files.news(report)
    return f"{name} was written to {path}; `sandbox_kernel.frames.load_file` reads it, safely, wherever it is.\n{kept}"
