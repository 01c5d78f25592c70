"""One gate that every message made from worker data passes before a client sees it.

A client that trusts live output (JupyterLab does) runs what it is given. So each message is made anew here from what
the worker said: the fields and types of the Jupyter messaging specification, and in them only what cannot act in a
page. What each module takes out is said in docs/outputs.md.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from ..errors import ProtocolError
from . import markup, replies, specs
from .bundles import clean_bundle
from .settings import Removed, Settings
from .text import clean_text
from .widget_table import PROTOCOL
from .widgets import CONTROL, TARGET, Widgets

COMM_TEXT_BYTES = 1000
_COUNT = 2**31
_DISPLAY_ID = 200
_LINES = 10_000  # of a traceback that are looked at one by one
_EXPRESSIONS = 1000
_TARGET = re.compile(r"[\w.:/@-]{1,200}")
# Front-end extensions that open what they are told by messages of these targets.
_ACTING_TARGETS = {"dash", "hv-extension-comm", "ipylab", "jupyter.ml"}


class Passed(NamedTuple):
    """A message for IOPub, made here."""

    content: dict[str, Any]
    metadata: dict[str, Any]
    buffers: list[bytes]


class Gate:
    """The gate of one session.

    Args:
        settings: what the operator decided.
        comms: comm id -> target of the comms that are open; the caller keeps it.
    """

    def __init__(self, settings: Settings | None = None, comms: MutableMapping[str, str] | None = None) -> None:
        markup.require()
        self.settings = settings or Settings()
        self.comms: MutableMapping[str, str] = comms if comms is not None else {}
        self.removed = Removed()  # since the session began
        self._taken = Removed()
        self._widgets = Widgets(self.settings, self._output)

    # ------------------------------------------------------------ messages

    def message(
        self, msg_type: str, content: dict[str, Any], metadata: dict[str, Any] | None = None,
        buffers: Sequence[bytes] = (),
    ) -> Passed | None:  # fmt: skip
        """The message as a client may see it; None when there is nothing to see.

        Raises:
            ProtocolError: a field is missing or has the wrong type, or a worker may not send such a message.
        """
        if msg_type.startswith("comm_"):
            try:
                return self._comm(msg_type, content, metadata or {}, buffers)
            except ProtocolError:
                raise
            except Exception:  # as in `bundle`
                self.removed["a message that could not be checked"] += 1
                return None
        if buffers:
            raise ProtocolError(f"{msg_type} cannot carry buffers")
        if msg_type in ("display_data", "update_display_data", "execute_result"):
            made = self._display(msg_type, content)
            # Nothing is left that could be seen or could later be replaced.
            empty = content.get("data") and not made["data"] and not made.get("transient")
            return None if empty and msg_type == "display_data" else Passed(made, {}, [])
        if msg_type == "clear_output":
            return Passed({"wait": bool(content.get("wait", False))}, {}, [])
        if msg_type == "error":
            return Passed(self._error(content), {}, [])
        raise ProtocolError(f"{msg_type!r} is not a message that a worker may send")

    def _display(self, msg_type: str, content: dict[str, Any]) -> dict[str, Any]:
        data, metadata = self.bundle(_mapping(content, "data"), _mapping(content, "metadata"))
        out: dict[str, Any] = {"data": data, "metadata": metadata}
        if msg_type == "execute_result":
            count = content.get("execution_count")
            if isinstance(count, bool) or not isinstance(count, int):
                raise ProtocolError("execute_result: execution_count must be a number")
            out["execution_count"] = min(max(count, 0), _COUNT)
        else:
            display_id = _mapping(content, "transient").get("display_id")
            known = isinstance(display_id, str) and len(display_id) <= _DISPLAY_ID
            out["transient"] = {"display_id": display_id} if known else {}
        return out

    def bundle(self, data: dict[str, Any], metadata: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """A mime bundle and its metadata. What a rule stumbles over is not shown, whatever it is."""
        try:
            return clean_bundle(data, metadata, self.settings, self.removed, self._widgets.shown)
        except Exception:  # a fault of ours must neither pass anything nor cost the cell its reply
            failed = Removed({"an output that could not be checked": 1})
            self.removed.add(failed)
            return {"text/plain": failed.note()}, {}

    def _output(self, output: dict[str, Any]) -> dict[str, Any] | None:
        """One output of an Output widget, as a notebook's file holds it."""
        kind = output.get("output_type")
        try:
            if kind == "stream":
                name, text = output.get("name"), output.get("text")
                text = "".join(text) if isinstance(text, list) and all(isinstance(t, str) for t in text) else text
                if name not in ("stdout", "stderr") or not isinstance(text, str):
                    return None
                return {"output_type": kind, "name": name, "text": self.text(text)}
            if kind == "error":
                return {"output_type": kind, **self._error(output)}
            if kind in ("display_data", "execute_result"):
                data, metadata = self.bundle(_mapping(output, "data"), _mapping(output, "metadata"))
                count = output.get("execution_count")
                more = {"execution_count": count if type(count) is int else None} if kind == "execute_result" else {}
                return {"output_type": kind, "data": data, "metadata": metadata, **more}
        except ProtocolError:
            return None
        return None

    def take_removed(self) -> Removed:
        """What was removed since this was last asked for."""
        new = Removed(self.removed - self._taken)
        self._taken = Removed(self.removed)
        return new

    # ------------------------------------------------------------ comms

    def opened_by_client(self, comm_id: str, target: str, data: object) -> None:
        """A client opened a comm; what the worker says on it is judged by its target."""
        if target == TARGET:
            self._widgets.opened_by_client(comm_id, data)

    def _comm(
        self, msg_type: str, content: dict[str, Any], metadata: dict[str, Any], buffers: Sequence[bytes]
    ) -> Passed | None:
        comm_id, said = text_of(content, "comm_id", COMM_TEXT_BYTES), content.get("data")
        # A widget's data is an object; on a comm of their own libraries and people send any value.
        data = said if isinstance(said, dict) else {}
        said = {} if said is None else said
        if msg_type == "comm_open":
            target = text_of(content, "target_name", COMM_TEXT_BYTES)
            if target == TARGET:
                found = self._widgets.open(comm_id, data, buffers, self.removed)
                if found is None:
                    return None
                fields = {"comm_id": comm_id, "target_name": TARGET, "data": found.data}
                return Passed(fields, {"version": PROTOCOL}, found.buffers)
            if not self._may_talk(target):
                self.removed["a comm of an unknown target"] += 1
                return None
            return Passed({"comm_id": comm_id, "target_name": target, "data": _plain(said)}, _plain(metadata),
                          list(buffers))  # fmt: skip
        target = self.comms.get(comm_id, "")
        if msg_type == "comm_close":
            if comm_id not in self.comms:
                return None
            self._widgets.closed(comm_id)
            return Passed({"comm_id": comm_id, "data": {} if target == TARGET else _plain(said)}, {}, list(buffers))
        if target in (TARGET, CONTROL):
            handle = self._widgets.update if target == TARGET else None
            found = handle(comm_id, data, buffers, self.removed) if handle else self._widgets.states(
                data, buffers, self.removed)  # fmt: skip
            return Passed({"comm_id": comm_id, "data": found.data}, {}, found.buffers) if found else None
        if comm_id not in self.comms or (self.settings.comms != "any"):
            return None
        return Passed({"comm_id": comm_id, "data": _plain(said)}, _plain(metadata), list(buffers))

    def _may_talk(self, target: str) -> bool:
        known = target in _ACTING_TARGETS or target.startswith("jupyter.widget")
        return self.settings.comms == "any" and not known and _TARGET.fullmatch(target) is not None

    # ------------------------------------------------------------ replies

    def execute_reply(
        self, reply: dict[str, Any], code: str, *, document: bool = True
    ) -> tuple[dict[str, Any], str]:
        """The content of an ``execute_reply``, and text that is shown instead of a payload that was dropped.

        Args:
            code: the cell.
            document: see `replies.payloads`.
        """
        out = dict(reply)
        found = reply.get("payload", [])
        out["payload"], shown = self._payloads(found, code, document=document)
        expressions = {}
        for name, value in islice(reply.get("user_expressions", {}).items(), _EXPRESSIONS):
            if value.get("status") == "ok":
                data, metadata = self.bundle(_dict(value.get("data")), _dict(value.get("metadata")))
                expressions[name] = {"status": "ok", "data": data, "metadata": metadata}
            else:
                lines = value.get("traceback")
                lines = [self.text(line) for line in lines if isinstance(line, str)] if isinstance(lines, list) else []
                expressions[name] = {"status": "error", "ename": self.text(str(value.get("ename"))),
                                     "evalue": self.text(str(value.get("evalue"))), "traceback": lines}  # fmt: skip
        out["user_expressions"] = expressions
        if out.get("status") == "error":
            out.update(self._error(out))
        return out, shown

    def _payloads(
        self, found: list[dict[str, Any]], code: str, *, document: bool
    ) -> tuple[list[dict[str, Any]], str]:  # fmt: skip
        return replies.payloads(found, code, self.removed, document=document)

    def _error(self, content: dict[str, Any]) -> dict[str, Any]:
        lines = _lines(content)
        if len(lines) > _LINES:
            lines = ["\n".join(lines)]
        lines = [self.text(line) for line in lines]
        return {"ename": self.text(text_of(content, "ename")), "evalue": self.text(text_of(content, "evalue")),
                "traceback": lines}  # fmt: skip

    @staticmethod
    def text(text: str) -> str:
        """Plain text as it may reach a terminal or a page."""
        return clean_text(text)

    @staticmethod
    def is_complete_reply(reply: dict[str, Any]) -> dict[str, Any]:
        """The content of an ``is_complete_reply``: clients write its indent into the next line."""
        return {k: v for k, v in reply.items() if k != "indent" or (v.isspace() or not v)}

    def inspect_reply(self, reply: dict[str, Any]) -> dict[str, Any]:
        """The content of an ``inspect_reply``."""
        return replies.inspect_reply(reply)

    def complete_reply(self, reply: dict[str, Any]) -> dict[str, Any]:
        """The content of a ``complete_reply``."""
        return replies.complete_reply(reply)


def gate(
    msg_type: str, content: dict[str, Any], buffers: Sequence[bytes] = (), settings: Settings | None = None
) -> dict[str, Any] | None:
    """The content of one message by itself, for callers without widgets; None when nothing of it may be shown.

    Raises:
        ProtocolError: see `Gate.message`.
    """
    passed = Gate(settings).message(msg_type, content, None, buffers)
    return None if passed is None else passed.content


def _plain(value: Any) -> Any:
    try:
        return specs.clean_any(value)
    except specs.Unfit as error:
        raise ProtocolError(f"a comm message holds {error}") from error


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _mapping(content: dict[str, Any], name: str) -> dict[str, Any]:
    value = content.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ProtocolError(f"{name} must be an object")
    return value


def text_of(content: dict[str, Any], name: str, limit: int = 10_000_000) -> str:
    """A field that must be a text.

    Raises:
        ProtocolError: it is none, or longer than `limit` characters.
    """
    value = content.get(name)
    if not isinstance(value, str) or len(value) > limit:
        raise ProtocolError(f"{name} must be a string of at most {limit} characters")
    return value


def _lines(content: dict[str, Any]) -> list[str]:
    value = content.get("traceback")
    if not isinstance(value, list) or not all(isinstance(line, str) for line in value):
        raise ProtocolError("traceback must be a list of strings")
    return value
