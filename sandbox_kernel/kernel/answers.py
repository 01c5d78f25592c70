"""Requests that the front answers by itself, also while the worker is busy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ipykernel.kernelbase import Kernel
from jupyter_client.session import Session as JupyterSession

from .history import History
from .publisher import Publisher

if TYPE_CHECKING:
    import psutil  # slow to import, and asked for by a resource monitor only


def place(code: object, position: object) -> int:
    """``cursor_pos`` of a request as a place in its text; where it is none, the text's end."""
    length = len(code) if isinstance(code, str) else 0
    return min(max(position, 0), length) if isinstance(position, int) else length


class Answers(Kernel):
    """What the front knows without asking the worker.

    Attributes:
        history: of this kernel and earlier ones.
        publisher: keeps the table of comms.
    """

    history: History
    publisher: Publisher

    @property
    def _wire(self) -> JupyterSession:
        if self.session is None:
            raise RuntimeError("the application makes the session before the kernel")
        return self.session

    async def history_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """Answer from the front's own history."""
        try:
            entries = self.history.request(parent["content"])
        except Exception:  # a corrupt or locked database must not leave the client without an answer
            self.log.warning("the history could not be read", exc_info=True)
            entries = []
        self._wire.send(stream, "history_reply", {"status": "ok", "history": entries}, parent, ident)

    async def comm_info_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """Answer from the front's table, also while the worker is busy."""
        wanted = parent["content"].get("target_name")
        comms = {k: {"target_name": t} for k, t in self.publisher.comms.items() if wanted in (None, t)}
        self._wire.send(stream, "comm_info_reply", {"status": "ok", "comms": comms}, parent, ident)

    def get_process_metric_value(self, process: psutil.Process, name: str, attribute: str | None = None) -> Any:
        """As in stock; a process that does not let itself be read counts with what everybody may see."""
        value = super().get_process_metric_value(process, name, attribute)
        if not value and name == "memory_full_info":
            value = super().get_process_metric_value(process, "memory_info", "rss")
        return value
