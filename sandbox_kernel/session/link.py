"""The front's end of one worker: its channel and the pipes on its standard output and error.

Everything that arrives here is hostile bytes. Nothing is parsed before its size is bounded, nothing blocks, and a
worker that outruns the reader is made to wait (its sends block once the socket's buffer is full).
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import errno
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ..channel import schema
from ..channel.framing import FROM_WORKER, HEAD_BYTES, PACKET_BYTES, Assembler, encode
from ..errors import ProtocolError
from .text_packets import TextPackets

# A turn ends after so much work, that others are served: a small write counts 1, everything else 4. And after so long:
# one output in a packet can take a third of a second to be cleaned.
_WORK_PER_TURN = 256
_WORK = 4
_TURN_S = 0.02
_SMALL_BYTES = 1024
# Small writes that have come by the same turn are handled as one, up to this many bytes on the channel: between two
# looks whether more may be read.
_MERGED_BYTES = 32768
_PIPE_BYTES = 65536
_SEND_FLAGS = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)  # (to join two members of an enum takes a microsecond)
_TURNS_BEFORE_PIPES = 32  # in which all is read that the channel can hold
_RETRY_S = 0.005
_SENT_BYTES = 1 << 19
# So much work for text in one turn that reads all there is tells of a loop that prints.
_MUCH_TEXT = 32
_REST_S = 0.001
# What may still be read after the worker is dead. Its children can keep writing to the pipes for ever.
_LAST_PACKETS = 20_000
_LAST_S = 1.0  # of this thread's own time
_LAST_PIPE_READS = 256


class WorkerLink:
    """Sends requests to one worker and receives its messages.

    Args:
        number: the worker's number, as the zygote knows it.
        on_message: called with each decoded message, its buffers, and how many bytes it took on the channel.
        on_raw: called with ``("stdout" | "stderr", text)`` for what came by the pipes.
        on_broken: called once, with None at end-of-file or with the error when the worker broke the protocol.
        pressed: says that the reader downstream is full; while it is true nothing is read.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        number: int,
        *,
        on_message: Callable[[schema.Message, list[memoryview], int], None],
        on_raw: Callable[[str, str], None],
        on_broken: Callable[[ProtocolError | None], None],
        pressed: Callable[[], bool],
    ) -> None:
        self.number = number
        self.pidfd: int | None = None
        self.pid = -1  # as this process counts; known once the zygote has told of it
        self._loop = loop
        self._on_message, self._on_raw, self._on_broken, self._pressed = on_message, on_raw, on_broken, pressed
        self._channel, self._far_channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # As much as the system allows: small packets fill the usual size within a millisecond.
        self._far_channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SENT_BYTES)
        self._assembler = Assembler(FROM_WORKER)
        self._outgoing: deque[tuple[bytes, Sequence[int]]] = deque()
        self._owned: set[int] = set()
        self._waiting = False  # for room to send
        self._pipes: dict[int, tuple[str, codecs.IncrementalDecoder]] = {}
        self._far_pipes: list[int] = []
        for name in ("stdout", "stderr"):
            near, far = os.pipe2(os.O_CLOEXEC)
            os.fchmod(far, 0o622)  # to cells of a root front, another user, who open /dev/stdout by its name
            os.set_blocking(near, False)
            self._pipes[near] = (name, codecs.getincrementaldecoder("utf-8")("replace"))
            self._far_pipes.append(far)
        self._writes: list[str] = []  # of one cell to one stream, not handed on yet
        self._writes_key = ("", "")
        self._writes_bytes = 0
        self._text_packets = TextPackets()
        self._broken = False
        self._closed = False
        self._reading = self._resting = False
        self._behind, self._held_up = False, 0  # whether the last turn left packets; how many turns the pipes waited

    def hand_over(
        self, *, on_message: Callable[[schema.Message, list[memoryview], int], None],
        on_raw: Callable[[str, str], None], on_broken: Callable[[ProtocolError | None], None],
        pressed: Callable[[], bool],
    ) -> None:  # fmt: skip
        """Have others hear of what comes from now on."""
        self._on_message, self._on_raw, self._on_broken, self._pressed = on_message, on_raw, on_broken, pressed

    def far_ends(self) -> list[int]:
        """The descriptors for the worker: channel, standard output, standard error."""
        return [self._far_channel.fileno(), *self._far_pipes]

    def start(self) -> None:
        """Begin to read; the far ends are closed here (the zygote has its copies by now)."""
        self._far_channel.close()
        for fd in self._far_pipes:
            os.close(fd)
        self._far_pipes = []
        self._resume()

    # ------------------------------------------------------------ sending

    def send(
        self, message: dict[str, Any], buffers: Sequence[bytes | memoryview] = (), fds: Sequence[int] = (), *,
        owned: bool = False,
    ) -> None:  # fmt: skip
        """Queue one message; never blocks.

        Args:
            fds: go with it, at most 16. The caller closes them once the worker has answered.
            owned: they are closed here, when they are sent or cannot be.
        """
        if owned:
            self._owned.update(fds)
        if self._closed:
            self._disown(fds)
            return
        idle = not self._outgoing
        packets = [bytes(packet) for packet in encode(message, list(buffers))]
        self._outgoing.extend(zip(packets, [fds, *[()] * (len(packets) - 1)], strict=True))
        if idle:
            self._flush()

    def _flush(self) -> None:
        while self._outgoing:
            packet, fds = self._outgoing[0]
            try:
                if fds:
                    socket.send_fds(self._channel, [packet], fds, _SEND_FLAGS)
                else:
                    self._channel.send(packet, _SEND_FLAGS)
            except BlockingIOError:
                self._loop.add_writer(self._channel.fileno(), self._flush)
                self._waiting = True
                return
            except OSError as error:
                if fds and error.errno == errno.ETOOMANYREFS:
                    # The cells of this user have too many on their way. The worker refuses what lacks them.
                    self._outgoing[0] = packet, ()
                    self._disown(fds)
                    continue
                self._outgoing.clear()  # the worker is gone; its death is noticed on the reading side
                self._disown(tuple(self._owned))
                break
            self._outgoing.popleft()
            self._disown(fds)
        if self._waiting:
            self._waiting = False
            self._loop.remove_writer(self._channel.fileno())

    def _disown(self, fds: Sequence[int]) -> None:
        for fd in self._owned.intersection(fds):
            self._owned.discard(fd)
            os.close(fd)

    @property
    def unsent(self) -> int:
        """Packets that the worker has not made room for yet."""
        return len(self._outgoing)

    # ------------------------------------------------------------ receiving

    def _resume(self) -> None:
        if self._closed or self._reading:
            return
        if self._pressed():
            self._loop.call_later(_RETRY_S, self._resume)
            return
        self._reading = True
        if not self._broken:
            self._loop.add_reader(self._channel.fileno(), self._readable)
        for fd in self._pipes:
            self._loop.add_reader(fd, self._pipe_readable, fd)

    def _pause(self) -> None:
        if not self._reading:
            return
        self._reading = False
        self._loop.remove_reader(self._channel.fileno())
        for fd in self._pipes:
            self._loop.remove_reader(fd)
        self._loop.call_later(_RETRY_S, self._resume)

    def _readable(self) -> None:
        many, self._behind, work = False, True, 0
        end = time.perf_counter() + _TURN_S
        while work < _WORK_PER_TURN and time.perf_counter() < end:
            found = self._receive()
            if not found:
                many, self._behind = work >= _MUCH_TEXT and bool(self._writes), False
                break
            work += found
            if not self._writes and self._pressed():
                break
        self._hand_on()
        if not self._broken and self._pressed():
            self._pause()
        elif many and not self._broken and self._reading:
            self._rest()

    def _rest(self) -> None:
        """Let text gather for a moment: to be woken for each packet costs both sides more than the packet does."""
        self._resting = True
        self._loop.remove_reader(self._channel.fileno())
        self._loop.call_later(_REST_S, self._rested)

    def _rested(self) -> None:
        resting, self._resting = self._resting, False
        if resting and self._reading and not self._broken:
            self._loop.add_reader(self._channel.fileno(), self._readable)
            self._readable()

    def _receive(self) -> int:
        """Handle one packet; how much work that was, 0 when there is none or the channel is broken."""
        if self._broken or self._closed:
            return 0
        try:
            # One byte more than a packet may have, so that a longer (truncated) one is seen. Plain recv: a
            # descriptor that the worker passes along is dropped by the kernel.
            packet = self._channel.recv(PACKET_BYTES + 1, socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            packet = b""
        if not packet:
            self._break(None)
            return 0
        text = self._text_packets.read(packet)
        if text is not None:
            self._assembler.drop()
            self._hold(self._text_packets.key, text, len(packet) - HEAD_BYTES)
            return 0 if self._broken else 1 if len(packet) < _SMALL_BYTES else _WORK
        try:
            frame = self._assembler.feed(packet)
            if frame is not None:
                size = len(frame.json) + sum(map(len, frame.buffers))
                message = schema.decode(frame)
                if isinstance(message, schema.Stream):
                    self._text_packets.learn(message)
                    self._hold(self._text_packets.key, message.text, size)
                else:
                    self._hand_on()
                    self._on_message(message, frame.buffers, size)
        except ProtocolError as error:
            self._break(error)
            return 0
        return 0 if self._broken else _WORK

    def _hold(self, key: tuple[str, str], text: str, size: int) -> None:
        if key is not self._writes_key and key != self._writes_key:
            self._hand_on()
            self._writes_key = key
        self._writes.append(text)
        self._writes_bytes += size
        if self._writes_bytes >= _MERGED_BYTES:
            self._hand_on()

    def _hand_on(self) -> None:
        """What was held of text: `print` alone writes twice, and a message costs the same whatever its length."""
        if not self._writes:
            return
        (parent, name), text = self._writes_key, "".join(self._writes)
        size, self._writes_bytes = self._writes_bytes, 0
        self._writes.clear()
        try:
            self._on_message(schema.Stream(parent=parent, name=name, text=text), [], size)  # type: ignore[arg-type]
        except ProtocolError as error:
            self._break(error)

    def _break(self, error: ProtocolError | None) -> None:
        self._hand_on()
        if self._broken:
            return
        self._broken = True
        self._loop.remove_reader(self._channel.fileno())
        self._on_broken(error)

    def _pipe_readable(self, fd: int) -> None:
        # What was printed before comes first. (A worker that prints without end does not hold up the pipes for ever.)
        self._rested()
        if self._behind and self._held_up < _TURNS_BEFORE_PIPES:
            self._held_up += 1
            return
        self._held_up = 0
        if self._read_pipe(fd) and self._pressed():
            self._pause()

    def _read_pipe(self, fd: int) -> bool:
        name, decoder = self._pipes[fd]
        try:
            data = os.read(fd, _PIPE_BYTES)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(fd)
            del self._pipes[fd]
            os.close(fd)
            return False
        text = decoder.decode(data)
        if text:
            self._on_raw(name, text)
        return True

    def drain_pipes(self) -> None:
        """Take over what C code and children have written up to now."""
        for fd in list(self._pipes):
            for _ in range(_LAST_PIPE_READS):
                if not self._read_pipe(fd):
                    break

    def drain(self) -> None:
        """Take over what a dead worker left in the channel and the pipes."""
        end = time.thread_time() + _LAST_S
        for _ in range(_LAST_PACKETS):
            if not self._receive() or time.thread_time() > end:
                break
        self._hand_on()
        self.drain_pipes()

    def close(self) -> None:
        """Release every descriptor; idempotent."""
        if self._closed:
            return
        self._closed = True
        self._reading = False
        self._disown(tuple(self._owned))
        for remove in (self._loop.remove_reader, self._loop.remove_writer):
            remove(self._channel.fileno())
        self._channel.close()
        self._far_channel.close()
        for fd in self._pipes:
            self._loop.remove_reader(fd)
        for fd in [*self._pipes, *self._far_pipes]:
            os.close(fd)
        self._pipes, self._far_pipes = {}, []
        if self.pidfd is not None:
            with contextlib.suppress(OSError):
                os.close(self.pidfd)
            self.pidfd = None
