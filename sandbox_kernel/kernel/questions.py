"""``input_request`` and ``input_reply``: questions of cells, several of which may run at the same time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from jupyter_client.session import Session
from traitlets.log import get_logger

from ..channel.schema import InputRequest
from ..outputs.text import clean_text

_MOST = 32  # questions that wait, of all cells together


class Questions:
    """Asks the client that a cell came from.

    Args:
        wire: signs and sends.
        socket: of the stdin channel.
        parent: the request with an id, for the parent header.
        answer: takes the answer to the question with a serial number.
    """

    def __init__(
        self, wire: Session, socket: Any, *, parent: Callable[[str], dict[str, Any]], answer: Callable[[int, str], None]
    ) -> None:
        self._wire, self._socket, self._parent, self._answer = wire, socket, parent, answer
        self._clients: dict[str, Any] = {}
        self._waiting: OrderedDict[int, tuple[str, str]] = OrderedDict()  # serial -> request, and the question's own id

    @contextmanager
    def allowed(self, request_id: str, client: Any) -> Iterator[None]:
        """For the time of a cell its client may be asked.

        Args:
            client: its identity; None: it said that it cannot be asked.
        """
        if client is not None:
            self._clients[request_id] = client
        try:
            yield
        finally:
            self._clients.pop(request_id, None)
            for serial in [serial for serial, (asker, _) in self._waiting.items() if asker == request_id]:
                del self._waiting[serial]

    def ask(self, message: InputRequest) -> None:
        """Put one question, unless the worker was told that this client cannot be asked."""
        client = self._clients.get(message.parent)
        if client is None:
            return
        content = {"prompt": clean_text(message.prompt), "password": message.password}
        sent = self._wire.send(self._socket, "input_request", content, self._parent(message.parent), ident=client)
        self._waiting[message.serial] = (message.parent, str(sent["header"]["msg_id"]) if sent else "")
        self._waiting.move_to_end(message.serial)
        while len(self._waiting) > _MOST:
            self._waiting.popitem(last=False)

    def answered(self, frames: list[Any]) -> None:
        """An ``input_reply``; one that nobody waits for (the cell was interrupted) is dropped."""
        try:
            _idents, rest = self._wire.feed_identities(frames, copy=False)
            message = self._wire.deserialize(rest, content=True, copy=False)
            value = message["content"]["value"]
            named = (message.get("parent_header") or {}).get("msg_id")
        except Exception:
            get_logger().warning("an invalid message on the stdin channel was dropped")
            return
        if not self._waiting or not isinstance(value, str):
            return
        # A client that does not say which question it answers means the latest one.
        found = [serial for serial, ids in self._waiting.items() if not named or named in ids]
        if found:
            del self._waiting[found[-1]]
            self._answer(found[-1], value)
