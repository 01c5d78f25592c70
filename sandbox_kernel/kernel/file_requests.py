"""``sandbox_files_request`` on the control channel: what `sandbox-kernel files` asks.

Whoever asks has the key of the connection file, which no cell can read, and has reached a port that no cell can reach.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ..session.session import Session
from .answers import Answers

REQUEST, REPLY = "sandbox_files_request", "sandbox_files_reply"
_SHOWN = 1000


class FileRequests(Answers):
    """The part of the front that hands files to the person."""

    sandbox: Session

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.control_handlers[REQUEST] = self._files_request

    async def _files_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """Keep the files that are named, and list what there is (on the control thread)."""
        names = parent["content"].get("keep", ())
        names = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
        gate = self.sandbox.files
        over = parent["content"].get("replace") is True
        kept = {name: await asyncio.to_thread(gate.keep, name, over=over) for name in names}
        held = await asyncio.to_thread(gate.held)
        files = [{"name": file.name, "size": file.size, "why": file.why} for file in held]
        content = {"status": "ok", "layered": gate.layered, "kept": kept, "files": files[:_SHOWN],
                   "more": len(files[_SHOWN:])}  # fmt: skip
        self._wire.send(stream, REPLY, content, parent, ident)
