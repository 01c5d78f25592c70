"""Values that cross between front and worker, and the worker's calls of host functions.

A value is a packed frame (`frames.transport`). A small one travels in a message. A large one is written into memory
that the front makes, sizes and seals, whichever way it goes: the worker may make none of its own, and what it made
could be cut short under the reader, or changed after it was checked. Descriptors go from the front to the worker only.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from ..channel import schema
from ..channel.framing import Bytes
from ..errors import FrameRefused, ProtocolError, size_text
from ..policy import Limits
from .clock import Clock
from .lent import Lent
from .rooms import Room, filled
from .supervisor import Supervisor

INLINE_BYTES = 256 * 1024
_ROOMS = 8  # that the worker may have at a time
_CALLS = 64  # of host functions that may be under way, or have an answer that was not taken yet
_UNREAD_PACKETS = 128  # no more answers while so many packets wait for the worker to take them


class Outgoing(msgspec.Struct):
    """A value on its way to the worker: the buffers of its message, or the descriptor of its memory."""

    buffers: list[bytes] = msgspec.field(default_factory=list)
    fds: list[int] = msgspec.field(default_factory=list)

    @classmethod
    def of(cls, payload: bytes, buffers: Sequence[memoryview], most: int) -> Outgoing:
        """Pack a value; call it from a thread when it may be large.

        Args:
            payload, buffers: of `frames.dumps`.
            most: bytes that it may have.

        Raises:
            FrameRefused: it is larger, or there is no memory for it.
        """
        from ..frames import transport  # a kernel that passes no values need not have it

        pieces = transport.pack(payload, buffers)
        size = transport.packed_size(pieces)
        if size > most:
            raise FrameRefused(f"a value of {size_text(size)} is larger than limits.frame = {size_text(most)}")
        return cls.packed(pieces)

    @classmethod
    def packed(cls, pieces: Sequence[Bytes]) -> Outgoing:
        """A value that is packed already, in pieces.

        Raises:
            FrameRefused: there is no memory for it.
        """
        size = sum(map(len, pieces))
        if size <= INLINE_BYTES:
            return cls(buffers=[b"".join(pieces)])
        try:
            return cls(fds=[filled(pieces)])
        except OSError as error:
            raise FrameRefused(f"no memory could be made for a value of {size_text(size)}: {error}") from error

    def close(self) -> None:
        """Give up this process's descriptor; the worker has its own. Idempotent."""
        fds, self.fds = self.fds, []
        for fd in fds:
            os.close(fd)

    # Values are packed in threads. Who waits for one may be cancelled meanwhile, and then nobody ever has it.
    __del__ = close


Answer = Outgoing | tuple[str, str]  # a value, or the name and text of an exception
Answerer = Callable[[str, str, memoryview], Awaitable[Answer]]


class Exchange:
    """The front's side, for one session.

    Args:
        limits: `frame` for one value, `memory` for all large ones that the session has been given.
        clock: of the running cell; stands still while host functions work.
        supervisor: of the worker.
        drop: ends copies of the session, for a reason; with ``named=False`` those without a name.

    Attributes:
        on_call: answers calls of host functions: module, name and arguments, which are hostile. None: there are none.
            It raises ProtocolError when the arguments are no frame.
    """

    def __init__(self, limits: Limits, clock: Clock, supervisor: Supervisor, drop: Callable[..., None]) -> None:
        self._most, self._clock, self._supervisor = limits.frame, clock, supervisor
        no_room = "values that the session was given left a copy no room"
        self._lent = Lent(limits.memory, lambda: drop(no_room, named=False))
        self.on_call: Answerer | None = None
        self._request = ""
        self._value: memoryview | None = None
        self._rooms: dict[int, Room] = {}  # by serial number
        self._room_bytes = 0
        self._calls: set[asyncio.Task[None]] = set()
        self._call_bytes = 0  # of the arguments of these

    def begin(self, request_id: str) -> None:
        """A request that limits hold for is about to be sent."""
        self.end()
        self._request, self._value = request_id, None

    def end(self) -> None:
        """It has its reply, or the worker is lost: nothing is owed to it any more."""
        self._request = ""
        rooms, self._rooms, self._room_bytes = self._rooms, {}, 0
        for room in rooms.values():
            try:
                room.close()
            except ProtocolError as error:
                self._supervisor.kill(error, room.worker)
        for task in self._calls:
            task.cancel()

    async def lend(self, value: Outgoing) -> None:
        """This value is about to be sent.

        Raises:
            FrameRefused: with it the session would have too much.
        """
        if value.fds:
            await self._lent.add(value.fds)

    def take(self) -> memoryview | None:
        """The value that the last request has brought, once. Hostile until it has passed `frames.loads`."""
        value, self._value = self._value, None
        return value

    def receive(self, message: schema.Room | schema.Value | schema.HostCall, buffers: list[memoryview]) -> None:
        """A message of the worker about values.

        Raises:
            ProtocolError: it is not in order.
        """
        if isinstance(message, schema.Room):
            self._open(message)
            return
        memory = self._content(message.room, buffers)
        if isinstance(message, schema.HostCall):
            self._call(message, memory)
        elif message.id == self._request:  # (else it was interrupted)
            if self._value is not None:
                raise ProtocolError("a second value for one request")
            self._value = memory

    def _content(self, serial: int, buffers: list[memoryview]) -> memoryview:
        if not serial:
            return memoryview(bytearray(buffers[0]))  # arrays in it are to be writable, and at aligned addresses
        room = self._rooms.pop(serial, None)
        if room is None:
            if not self._request:
                return memoryview(bytearray())  # its request is over
            raise ProtocolError("a value in a room that there is not")
        self._room_bytes -= room.size
        return room.take(self._lent)

    def _open(self, message: schema.Room) -> None:
        worker = self._supervisor.worker
        if worker is None:
            return
        if message.serial in self._rooms:
            raise ProtocolError("a room that it already has")
        reason = ""
        if not self._request:
            reason = "no cell runs"
        elif message.size > self._most:
            reason = f"a value of {size_text(message.size)} is larger than limits.frame = {size_text(self._most)}"
        elif len(self._rooms) >= _ROOMS or self._room_bytes + message.size > 2 * self._most:
            reason = "too many large values are under way"
        elif self._lent.has_kept(message.size):
            reason = "too much is kept of large values that were sent"
        if not reason:
            try:
                room = Room(message.size, worker.number)
            except OSError as error:
                reason = f"no memory could be made for it: {error.strerror}"
            else:
                self._rooms[message.serial] = room
                self._room_bytes += message.size
                worker.send({"op": "room", "serial": message.serial}, fds=[room.far], owned=True)
                return
        worker.send({"op": "room_refused", "serial": message.serial, "reason": reason})

    # ------------------------------------------------------------ host functions

    def refuse(self, serial: int, name: str, text: str) -> None:
        """Answer a call with an exception."""
        worker = self._supervisor.worker
        if worker is not None:
            worker.send({"op": "host_reply", "serial": serial, "ename": name, "evalue": text})

    def _call(self, message: schema.HostCall, arguments: memoryview) -> None:
        if self.on_call is None or not self._request:
            when = "only while a cell runs" if self.on_call else "here"
            self.refuse(message.serial, "RuntimeError", f"no function of the host can be called {when}")
        elif len(self._calls) >= _CALLS:
            worker = self._supervisor.worker
            if worker is not None and worker.unsent > _UNREAD_PACKETS:
                raise ProtocolError("too many calls of host functions at a time")
            self.refuse(message.serial, "RuntimeError", f"more than {_CALLS} calls of host functions at a time")
        elif self._call_bytes + len(arguments) > 2 * self._most:
            self.refuse(message.serial, "RuntimeError", "too many calls with large arguments are under way")
        else:
            size = len(arguments)
            task = asyncio.get_running_loop().create_task(self._serve(self.on_call, message, arguments))
            self._calls.add(task)
            self._call_bytes += size
            task.add_done_callback(lambda task: self._called(task, size))

    def _called(self, task: asyncio.Task[None], size: int) -> None:
        self._calls.discard(task)
        self._call_bytes -= size

    async def _serve(self, on_call: Answerer, message: schema.HostCall, arguments: memoryview) -> None:
        worker, resume = self._supervisor.worker, self._clock.pause()
        answer: Answer
        try:
            answer = await on_call(message.module, message.name, arguments)
        except ProtocolError as error:
            self._supervisor.kill(error)
            return
        except Exception as error:  # a fault of ours; the cell must not wait for ever
            answer = ("RuntimeError", f"the host could not answer: {type(error).__name__}")
        finally:
            resume()
        try:
            while worker is not None and worker.unsent > _UNREAD_PACKETS:
                await asyncio.sleep(0.01)  # it asks, and does not listen
            if worker is None or worker is not self._supervisor.worker:
                return
            if isinstance(answer, Outgoing):
                await self.lend(answer)
                fds, answer.fds = answer.fds, []
                worker.send({"op": "host_reply", "serial": message.serial}, answer.buffers, fds, owned=True)
            else:
                self.refuse(message.serial, *answer)
        except FrameRefused as refused:
            self.refuse(message.serial, "MemoryError", str(refused))
        finally:
            if isinstance(answer, Outgoing):
                answer.close()
