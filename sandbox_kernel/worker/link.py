"""The worker's end of the channel: whole frames out, requests in.

Cells may raise exceptions at any bytecode of this module (KeyboardInterrupt, a signal handler of theirs) and
may print from signal handlers that interrupt a send. So everything that must not be torn is one call into C.
"""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import ctypes
import errno
import json
import os
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

from ..channel.framing import PACKET_BYTES, Assembler
from ..errors import ProtocolError

_Packet = tuple[bytes, list[tuple[int, int, bytes]], int, Any]

_GONE = {errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN, errno.ESHUTDOWN, errno.EBADF}
BROKEN_PROTOCOL = 76  # exit status: the front sent what it must not send
_ANSWERS = {"input_reply", "input_refused", "room", "room_refused", "host_reply"}
_FDS_BYTES = socket.CMSG_SPACE(16 * 4)
_read_json = json.JSONDecoder().raw_decode  # `json.loads` looks for an encoding and for blanks first
_RECV_FLAGS = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
_QUICK_FLAGS = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
# What recvmsg() returns for ever once the front has closed its end; Linux echoes the flag.
_END: _Packet = (b"", [], socket.MSG_CMSG_CLOEXEC, None)


@dataclass(slots=True, eq=False, repr=False)
class Request:
    """One message of the front: `op`, the `id` to answer to, all its `fields`, and the buffers beside it.

    Attributes:
        fds: descriptors that came with it; whoever serves it owns them.
        owner: the shell that serves it, see `claim`.
        task: that serves it, once there is one.
        begun: the task runs; no second one may.
        replied: the reply is out, and nothing more is to be done.
        value: what it asked for, packed, when that goes with the reply.
        rest: what its answer has to wait for.
    """

    op: str
    id: str
    fields: dict[str, Any]
    buffers: list[memoryview]
    fds: list[int] = field(default_factory=list)
    task: asyncio.Task[None] | None = None
    begun: bool = False
    replied: bool = False
    value: bytes | None = None
    rest: Awaitable[dict[str, Any]] | None = None
    owner: dict[str, str] = field(default_factory=dict)

    def claim(self, shell: str) -> bool:
        """Whether this shell is the one that serves the request: the first to ask is (one call into C decides)."""
        return self.owner.setdefault("shell", shell) == shell


@dataclass(slots=True, eq=False, repr=False)
class Waiter:
    """Somebody who has asked the front: `answer` is filled when it has come, and a byte is written to `wake`.

    Attributes:
        thread: that waits.
        interrupted: it waits no longer.
    """

    wake: int
    answer: dict[str, Any] | None = None
    thread: int = field(default_factory=threading.get_ident)
    interrupted: bool = False


class _Inbox:
    def __init__(self) -> None:
        self.raw: deque[_Packet] = deque()
        self.requests: deque[Request] = deque()
        self.fds: list[int] = []  # of the frame that is being put together
        self.last_id = ""


def leave(status: int = 0) -> NoReturn:
    """Ends the process at once: no handlers, no waiting for threads."""
    os._exit(status)


class Link:
    """The socket, its two locks, and what has been received.

    Attributes:
        pid: of the worker; a process with another pid is a fork and must not touch the socket.
        waiters: by serial number, who waits for an answer of the person.
        notify: called, from any thread, before requests are taken in.
        aside: takes a request that is not for the main shell alone, and says so; called from any thread.
    """

    def __init__(self, descriptor: int) -> None:
        self.waiters: dict[int, Waiter] = {}
        self.notify: Callable[[], None] = lambda: None
        self.aside: Callable[[Request], bool] = lambda _request: False
        self._number = descriptor
        self._attach(descriptor)
        self._send_holding_gil = ctypes.PyDLL(None).send
        self._send_holding_gil.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int)
        self._send_holding_gil.restype = ctypes.c_ssize_t
        os.register_at_fork(after_in_child=self._disown)

    def _attach(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(True)
        self._socket.set_inheritable(False)
        self._send_one = self._socket.send
        self.pid = os.getpid()
        self._sending = threading.RLock()
        self._busy = False
        self._deferred: deque[list[bytes]] = deque()
        self._receiving = threading.RLock()
        self._assembler = Assembler()
        self._inbox = _Inbox()
        self._takers: dict[str, Callable[[Request], None]] = {}
        self._receive = partial(self._socket.recvmsg, PACKET_BYTES, _FDS_BYTES, _RECV_FLAGS)

    def renew(self, descriptor: int) -> None:
        """In a fork that is to go on as a worker of its own: take a copy of `descriptor` under the old number.

        Nothing that was received or half sent before is known any more, and nobody holds a lock.
        """
        os.dup2(descriptor, self._number, inheritable=False)
        self.waiters.clear()
        self._attach(self._number)

    def wait(self) -> None:
        """Sleep until the front says something; ends the process when it closes its end."""
        if not self._socket.recv(1, socket.MSG_PEEK):
            leave()

    def _disown(self) -> None:
        # A child that kept the socket would keep the worker looking alive, and could take its requests.
        with contextlib.suppress(OSError):
            self._socket.close()

    def fileno(self) -> int:
        """The descriptor, for selectors."""
        return self._socket.fileno()

    # -- out

    def send(self, packets: Iterable[bytes]) -> None:
        """Sends one frame; blocks while the front is behind.

        An exception may leave the frame unfinished: the front drops it when the next one begins. In a signal
        handler that interrupted another send of this thread the frame waits for that one's end, or it would
        cut it in two.
        """
        with self._sending:
            if self._busy:
                self._deferred.append(list(packets))
                return
            self._busy = True
            try:
                deque(map(self._socket.send, packets), maxlen=0)
                while self._deferred:
                    deque(map(self._socket.send, self._deferred.popleft()), maxlen=0)
            except OSError as error:
                if error.errno in _GONE:
                    leave()
                raise
            finally:
                self._busy = False

    def send_quickly(self, packet: bytes) -> None:
        """Sends a frame of one packet without giving up the interpreter's lock, unless the front is behind.

        `print` writes its text and the line's end apart. A send that lets other threads run would mix the lines
        of threads that print at the same time.
        """
        if not self._busy and not _thread._count():  # of threads besides the first: nobody is there to mix in
            try:
                self._send_one(packet)
            except OSError as error:
                if error.errno in _GONE:
                    leave()
                raise
            return
        with self._sending:
            if not self._busy and self._send_holding_gil(
                self._socket.fileno(), packet, len(packet), _QUICK_FLAGS
            ) == len(packet):
                return
        self.send((packet,))

    def send_surely(self, packets: list[bytes]) -> None:
        """Sends one frame exactly once, whatever is raised meanwhile. Only for the top of the main thread."""
        sent: list[int] = []
        while True:
            try:
                with self._sending:
                    self._busy = False
                    while len(sent) < len(packets):
                        # extend() records each packet in the C call that sent it: an exception cannot come
                        # between, so a frame that is out is never sent twice.
                        sent.clear()
                        sent.extend(map(self._socket.send, packets))
                return
            except OSError as error:
                if error.errno in _GONE:
                    leave()
                time.sleep(0.01)
            except BaseException:  # noqa: S112 - whatever it was meant for, the reply comes first
                continue

    # -- in

    def receive(self) -> None:
        """Takes in all that has come: answers go to their waiters, requests into the queue."""
        inbox = self._inbox
        self.notify()
        with self._receiving:
            try:
                # As above: what recv() returned is in the queue before an exception can be raised.
                inbox.raw.extend(iter(self._receive, _END))
            except BlockingIOError:
                pass
            except OSError as error:
                if error.errno in _GONE:
                    leave()
                raise
            else:
                leave()
        self.sort()
        # Again, for another thread than the main one: the main loop may have looked, and gone to sleep, between the
        # first call and the moment when this thread took the request away from it.
        if inbox.requests:
            self.notify()

    def sort(self) -> None:
        """The second half of `receive`, for when something was raised in its middle."""
        inbox = self._inbox
        with self._receiving:
            while inbox.raw:
                packet, ancillary, _, _ = inbox.raw[0]
                if ancillary:
                    inbox.fds = _descriptors(ancillary)
                try:
                    frame = self._assembler.feed(packet)
                except ProtocolError:
                    leave(BROKEN_PROTOCOL)
                if frame is not None:
                    self._sort_in(_read_json(frame.json.decode())[0], frame.buffers)
                    inbox.fds = []
                inbox.raw.popleft()

    def _sort_in(self, fields: dict[str, Any], buffers: list[memoryview]) -> None:
        if fields["op"] in _ANSWERS:
            waiter = self.waiters.get(fields["serial"])
            fds = self._inbox.fds
            if waiter is not None and waiter.answer is None:
                waiter.answer = {**fields, "buffers": buffers, "fds": fds}
                with contextlib.suppress(OSError):
                    os.write(waiter.wake, b"!")
            else:  # whoever asked was interrupted
                for fd in fds:
                    os.close(fd)
            return
        request = Request(fields["op"], fields.get("id") or "", fields, buffers, self._inbox.fds)
        # After an exception between this and the popleft() above, the same packet is read again.
        if request.id and request.id == self._inbox.last_id:
            return
        taker = self._takers.get(request.op)
        if taker is not None:
            taker(request)
        elif not self.aside(request):
            self._inbox.requests.append(request)
        self._inbox.last_id = request.id

    def take_over(self, op: str, taker: Callable[[Request], None]) -> None:
        """From now on requests `op` go to `taker`, which is called from any thread."""
        with self._receiving:
            self._takers[op] = taker

    def hand_back(self, op: str) -> None:
        """The end of `take_over`."""
        with self._receiving:
            self._takers.pop(op, None)

    @property
    def requests(self) -> deque[Request]:
        """Requests that are not done with, oldest first."""
        return self._inbox.requests


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    found: list[int] = []
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found += struct.unpack(f"{len(data) // 4}i", data[: len(data) // 4 * 4])
    return found
