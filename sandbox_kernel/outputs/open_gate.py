"""What stands in the gate's place when the operator turned it off: outputs pass as the stock kernel passes them.

What a message is stays bounded: which types there are, which fields they have, that ids and counts are such, which
comms exist. Sizes, rates and nesting are bounded before a message comes here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import replies
from .gate import COMM_TEXT_BYTES, Gate, Passed, text_of
from .settings import Removed, Settings


class OpenGate(Gate):
    """Nothing of an output's content is looked at, so script in it acts in the page of whoever opens it."""

    def bundle(self, data: dict[str, Any], metadata: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The same."""
        return data, metadata

    @staticmethod
    def text(text: str) -> str:
        """The same."""
        return text

    def opened_by_client(self, comm_id: str, target: str, data: object) -> None:
        """Nobody asks what a comm is for."""

    def _comm(
        self, msg_type: str, content: dict[str, Any], metadata: dict[str, Any], buffers: Sequence[bytes]
    ) -> Passed | None:
        comm_id, data = text_of(content, "comm_id", COMM_TEXT_BYTES), content.get("data")
        out = {"comm_id": comm_id, "data": {} if data is None else data}
        if msg_type == "comm_open":
            out["target_name"] = text_of(content, "target_name", COMM_TEXT_BYTES)
            module = content.get("target_module")
            if isinstance(module, str) and len(module) <= COMM_TEXT_BYTES:
                out["target_module"] = module
        elif comm_id not in self.comms:
            return None
        return Passed(out, metadata, list(buffers))

    def _payloads(
        self, found: list[dict[str, Any]], code: str, *, document: bool
    ) -> tuple[list[dict[str, Any]], str]:  # fmt: skip
        passed: list[dict[str, Any]] = []
        for payload in found:
            if payload.get("source") == "edit_magic":
                # A client may start an editor by way of a shell: a file's name is no output, and is still checked.
                passed += replies.payloads([payload], code, Removed())[0]
            elif isinstance(payload.get("source"), str):
                passed.append(payload)
        return passed, ""

    def inspect_reply(self, reply: dict[str, Any]) -> dict[str, Any]:
        """The same."""
        return reply

    def complete_reply(self, reply: dict[str, Any]) -> dict[str, Any]:
        """The same."""
        return reply


def make_gate(settings: Settings) -> Gate:
    """The gate that these settings ask for."""
    return OpenGate(settings) if settings.gate == "off" else Gate(settings)
