"""Which requests the worker has, and which it has had."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ..channel import schema
from ..errors import ProtocolError, SandboxError

STARTUP = "startup"  # the request that runs a worker's start-up files; nobody waits for its reply
_REMEMBERED = 1000
_REPEATS = 10  # of one reply: what an exception in the worker, between sending and noting it, may cause


class Answer(asyncio.Future[dict[str, Any]]):
    """What a request waits for, where a cancelled caller must not leave its code running.

    To cancel it does not end it: `on_cancel` is called, once, and whoever waits is cancelled when the answer has come.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_cancel: Callable[[asyncio.Future[Any]], None]) -> None:
        super().__init__(loop=loop)
        self._on_cancel: Callable[[asyncio.Future[Any]], None] | None = on_cancel

    def cancel(self, msg: Any = None) -> bool:
        """Ask its code to end; never true."""
        on_cancel, self._on_cancel = self._on_cancel, None
        if on_cancel is not None and not self.done():
            on_cancel(self)
        return False


class Pending:
    """A request that the worker has and has not answered."""

    def __init__(self, op: str, future: asyncio.Future[dict[str, Any]], shell: str = "") -> None:
        self.op, self.future, self.shell = op, future, shell


class Requests:
    """The requests of one session.

    Attributes:
        pending: those that have no reply yet, by id.
    """

    def __init__(self) -> None:
        self.pending: dict[str, Pending] = {}
        self._finished: OrderedDict[str, int] = OrderedDict()

    def open(
        self, loop: asyncio.AbstractEventLoop, request_id: str, op: str, shell: str = "",
        on_cancel: Callable[[asyncio.Future[Any]], None] | None = None,
    ) -> asyncio.Future[dict[str, Any]]:  # fmt: skip
        """A request is about to be sent; what will have its reply's content.

        Args:
            on_cancel: see `Answer`; None: whoever waits just waits no longer.
        """
        future = loop.create_future() if on_cancel is None else Answer(loop, on_cancel)
        self.pending[request_id] = Pending(op, future, shell)
        return future

    def close(self, request_id: str) -> None:
        """Nobody waits for this one any more; a late reply to it is no fault."""
        self.pending.pop(request_id, None)
        self._finished[request_id] = 0
        while len(self._finished) > _REMEMBERED:
            self._finished.popitem(last=False)

    def any_of(self, ops: frozenset[str]) -> bool:
        """Whether one of these is pending."""
        return any(pending.op in ops for pending in self.pending.values())

    def answered(self, message: schema.Reply) -> Pending | None:
        """The request that this is the reply to; None for a reply that came twice.

        Raises:
            ProtocolError: there is no such request.
        """
        pending = self.pending.get(message.id)
        if pending is not None and not pending.future.done():
            return pending
        known = pending is not None or message.id == STARTUP
        repeats = self._finished.get(message.id, 0 if known else _REPEATS)
        if repeats >= _REPEATS:
            raise ProtocolError("a reply to a request that was never made, or that was answered long ago")
        self._finished[message.id] = repeats + 1
        return None  # sent twice: an exception hit the worker between sending and noting it

    def lose(self, told: Callable[[str], SandboxError]) -> None:
        """The worker is gone; `told` gives the error for each request."""
        self._finished.pop(STARTUP, None)
        waiting, self.pending = self.pending, {}
        for request_id, pending in waiting.items():
            if not pending.future.done():
                pending.future.set_exception(told(request_id))
