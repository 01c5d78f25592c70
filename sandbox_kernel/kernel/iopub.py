"""IOPub on the main loop: no thread to hand messages to, and nothing lost when a client lags.

Stock sends from a thread of its own and lets ZeroMQ drop what a slow client has not taken. Here the socket says when
it is full (``XPUB_NODROP``, zmq_setsockopt(3)), what does not fit waits in a queue, and while there is a queue nothing
is read from the worker. A client that takes nothing for `STALL_S` must not hold up the others for ever: then it loses
messages.

The first client connects its sockets one by one, each again every 0.1 s until the kernel is there. So it may have sent
a cell before its subscription arrives, which a kernel that is quick to answer would answer to nobody: the client then
waits for ever. What there is to say before the first subscription is held, for `HOLD_S` from the first request on.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import zmq
from jupyter_client.session import Session

RETRY_S = 0.005
STALL_S = 30.0
HOLD_S = 5.0
_HELD = 200  # messages that are held without making the worker wait: a client may not want to hear them
_STALL_AGAIN_S = 1.0  # for a client that was found stalled a short time ago
_FORGIVEN_S = 60.0
# As plain numbers: to join members of an enum takes as long as the call that they are for.
_LAST, _MORE, _POLLIN = int(zmq.DONTWAIT), int(zmq.DONTWAIT | zmq.SNDMORE), int(zmq.POLLIN)


class IOPub:
    """Stands where ipykernel has its IOPub thread and that thread's socket.

    Args:
        socket: a bound XPUB socket; owned from now on.
        session: signs the welcome message (JEP 65).
    """

    def __init__(self, socket: zmq.Socket[bytes], session: Session) -> None:
        self._socket, self._session = socket, session
        self._socket.setsockopt(zmq.XPUB_NODROP, 1)
        self._main = threading.get_ident()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queue: deque[Sequence[Any]] = deque()
        self._due: deque[Callable[[], None]] = deque()
        self._holding = True
        self._hold: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._full_since = 0.0
        self._dropped_at = float("-inf")

    def start_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Serve subscriptions from this loop."""
        self._loop = loop
        loop.add_reader(self._socket, self._subscriptions)
        self._subscriptions()

    @property
    def backlog(self) -> int:
        """How many messages wait because a client is behind."""
        return max(0, len(self._queue) - _HELD * self._holding)

    def send_multipart(self, frames: Sequence[Any], *_args: Any, **_kwargs: Any) -> None:
        """Send one message; from any thread."""
        if threading.get_ident() == self._main:
            self._send(frames)
        elif self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._send, frames)

    def soon(self, send: Callable[[], None]) -> None:
        """Have `send`, which sends something, called before anything else is, and in the next turn at the latest.

        For what a client need not hear before the worker has its cell.
        """
        if self._loop is None:
            send()
            return
        if not self._due:
            self._loop.call_soon(self.catch_up)
        self._due.append(send)

    def catch_up(self) -> None:
        """Send what is to be sent `soon`."""
        due, self._due = self._due, deque()  # (sending asks for this again)
        for send in due:
            try:
                send()
            except Exception as error:  # what cannot be written; it is no fault of what comes after it
                if self._loop is not None:
                    self._loop.call_exception_handler({"message": "a message was not sent", "exception": error})

    def _send(self, frames: Sequence[Any]) -> None:
        self.catch_up()
        # A client that has just come is greeted before anything else reaches it. Sending alone would take its
        # subscription up, too, and the greeting would come second.
        self._subscriptions()
        if self._holding:
            self._queue.append(frames)
            if self._hold is None and self._loop is not None:
                self._hold = self._loop.call_later(HOLD_S, self._release)
        elif self._queue or not self._try(frames):
            self._queue.append(frames)
            self._arm()
        self._subscriptions()

    def _release(self) -> None:
        """Somebody listens, or nobody wants to."""
        self._holding = False
        if self._hold is not None:
            self._hold.cancel()
        self.stop()
        if self._queue:
            self._arm()

    def _try(self, frames: Sequence[Any]) -> bool:
        try:
            send = self._socket.send
            for frame in frames[:-1]:
                send(frame, _MORE)
            last = frames[-1]
            send(last, _LAST, copy=type(last) is not memoryview)  # a value of a client's: to copy a gigabyte takes long
        except zmq.Again:
            return False
        except zmq.ZMQError:
            if not self._socket.closed:
                raise
        return True

    def _arm(self) -> None:
        if self._retry is None and self._loop is not None:
            self._full_since = self._loop.time()
            self._retry = self._loop.call_later(RETRY_S, self._drain)

    def _drain(self) -> None:
        loop = self._loop
        if loop is None or self._socket.closed:
            return
        now = loop.time()
        lately = now - self._dropped_at < _FORGIVEN_S
        stalled = now - self._full_since > (_STALL_AGAIN_S if lately else STALL_S)
        if stalled:
            self._dropped_at = now
            self._socket.setsockopt(zmq.XPUB_NODROP, 0)
        while self._queue and self._try(self._queue[0]):
            self._queue.popleft()
            self._full_since = now
        if stalled:
            self._socket.setsockopt(zmq.XPUB_NODROP, 1)
        self._retry = loop.call_later(RETRY_S, self._drain) if self._queue else None

    def _subscriptions(self) -> None:
        """Greet new subscribers. The descriptor is edge-triggered, so this is asked after each send as well."""
        if self._socket.closed:
            return
        # (Not `poll`, which makes a poller each time.)
        while int(self._socket.getsockopt(zmq.EVENTS)) & _POLLIN:
            frame = self._socket.recv(zmq.DONTWAIT)
            if frame[:1] == b"\x01":
                self._welcome(frame[1:])

    def _welcome(self, topic: bytes) -> None:
        try:
            subscription = topic.decode()
        except UnicodeDecodeError:
            return
        message = self._session.msg("iopub_welcome", {"subscription": subscription})
        frames = self._session.serialize(message)
        if topic:
            frames = [topic, *frames]
        if self._holding:
            self._queue.appendleft(frames)
            self._release()
        else:
            self._send(frames)

    # ---- what ipykernel's application calls on its thread

    def start(self) -> None:
        """Nothing to start."""

    def stop(self) -> None:
        """Send what still waits, as far as the clients take it at once."""
        self.catch_up()
        while self._queue and self._try(self._queue[0]):
            self._queue.popleft()

    def close(self) -> None:
        """Close the socket."""
        if self._loop is not None and not self._loop.is_closed() and not self._socket.closed:
            self._loop.remove_reader(self._socket)
        self._socket.close()
