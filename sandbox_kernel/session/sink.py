"""Who uses a session: what it tells."""

from __future__ import annotations

from typing import Protocol

from ..channel import schema
from ..errors import SandboxError


class Sink(Protocol):
    """What the session tells its user. The texts in it come from the worker: hostile until gated."""

    def stream(self, parent: str, name: str, text: str) -> None:
        """Text for standard output or error."""

    def publish(self, message: schema.Publish, buffers: list[bytes]) -> None:
        """A display, result, error or comm message."""

    def ask(self, message: schema.InputRequest) -> None:
        """Code of the cell waits for a line of input."""

    def flush(self) -> None:
        """Everything up to here must be on its way before the next reply."""

    def lost(self, error: SandboxError) -> None:
        """The worker is gone, and with it the variables."""

    def pressed(self) -> bool:
        """True while the client is too slow; the worker is made to wait."""

    def pace(self, seconds: float) -> None:
        """From now on printed text should be merged into messages over this time (10 ms at first)."""
