"""Answering the calls that the filter does not refuse by itself: seccomp user notification, seccomp_unotify(2).

The answer is an error, or a descriptor that the answering process has opened: never "continue", after which the caller
could change what its pointers point to. Nothing of the caller's memory is read, and no process is named by its pid: an
answer goes to the call that has this id in the kernel, whoever has the caller's number by then. Both ways that this can
go wrong are closed: a listener that is gone makes the calls fail with ENOSYS, a caller that is gone makes the answer
fail with ENOENT.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import socket
import struct
import time

from .. import linux

# <linux/seccomp.h>; the numbers hold the sizes of the first version of the structures, as the kernel expects them.
_RECV, _SEND, _ADD_FD, _SET_FLAGS = 0xC0502100, 0xC0182101, 0x40182103, 0x40082104
_SYNC_WAKE_UP = 1
_ADD_AND_SEND = 1 << 1  # SECCOMP_ADDFD_FLAG_SEND, Linux 5.14
_REQUEST = struct.Struct("=QIIiIQQQ")  # id, pid, flags; number, architecture, instruction, two of six arguments
_RESPONSE = struct.Struct("=QqiI")  # id, value, error, flags
_ADDITION = struct.Struct("=QIIII")  # id, flags, the descriptor here, its number there (0: any), its flags there
_REQUEST_BYTES, _RESPONSE_BYTES = 80, 24

Call = tuple[int, int, int, int]  # id, system call number, first and second argument


def prefer_fast_wake_up(listener: int) -> None:
    """Let the answering process run on the caller's processor at once, which halves the cost (Linux 6.6+)."""
    with contextlib.suppress(OSError):
        fcntl.ioctl(listener, _SET_FLAGS, _SYNC_WAKE_UP)


class Responder:
    """Answers calls, one at a time. Not for use by two threads."""

    def __init__(self) -> None:
        try:
            request, response = linux.seccomp_notif_sizes()
        except OSError:  # an outer filter may refuse the question
            request, response = 0, 0
        self._request = bytearray(max(request, _REQUEST_BYTES))
        self._empty = bytes(len(self._request))
        self._response = bytearray(max(response, _RESPONSE_BYTES))
        self._addition = bytearray(_ADDITION.size)

    def receive(self, listener: int) -> Call | None:
        """The next call that waits. Blocks when none does, so poll for POLLIN first.

        Returns:
            None when its caller is gone already.

        Raises:
            OSError: the listener is of no use any more.
        """
        self._request[:] = self._empty  # the kernel insists
        try:
            fcntl.ioctl(listener, _RECV, self._request)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):
                return None
            raise
        ident, _, _, number, _, _, first, second = _REQUEST.unpack_from(self._request)
        return ident, number, first, second

    def refuse(self, listener: int, ident: int, number: int = errno.EPERM) -> None:
        """Answer with an error; nothing happens when the caller is gone.

        Raises:
            OSError: the listener is of no use any more.
        """
        _RESPONSE.pack_into(self._response, 0, ident, 0, -number, 0)
        try:
            fcntl.ioctl(listener, _SEND, self._response)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EINPROGRESS, errno.EINTR):
                raise

    def give(self, listener: int, ident: int, fd: int, *, cloexec: bool) -> None:
        """Answer with a copy of a descriptor; nothing happens when the caller is gone.

        Both in one step, so that no descriptor stays with a caller who never heard its number. It returns when the
        caller has run for a moment. Call it with all signals blocked: one in that moment would give the caller 0.

        Raises:
            OSError: the caller has no number free (EMFILE), or this kernel cannot do it: it still waits for an answer.
        """
        _ADDITION.pack_into(self._addition, 0, ident, _ADD_AND_SEND, fd, 0, os.O_CLOEXEC if cloexec else 0)
        try:
            fcntl.ioctl(listener, _ADD_FD, self._addition)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EINPROGRESS, errno.ESRCH):
                raise

    def answer(self, listener: int) -> None:
        """Refuse one call that waits."""
        call = self.receive(listener)
        if call is not None:
            self.refuse(listener, call[0])


class Hearing:
    """What a child says, while the refused calls of whatever is under its filter are answered.

    Until the front has the listener, somebody outside the filter must answer: probes make such calls, imports may.
    The child sends the listener with anything that it says.
    """

    def __init__(self, mine: socket.socket) -> None:
        self._mine, self._listener = mine, -1
        self._poll = select.poll()
        self._poll.register(mine, select.POLLIN)
        self._responder = Responder()

    def wait(self, deadline: float) -> bytes | None:
        """The next words; b"" at their end, None when there are none by the deadline."""
        while ready := self._poll.poll(max(0, deadline - time.monotonic()) * 1000):
            # Words first: after "ready" the front answers, and a second reader of a listener could wait for ever.
            if self._mine.fileno() in (fd for fd, _ in ready):
                piece, fds, _, _ = socket.recv_fds(self._mine, 65536, 1, socket.MSG_CMSG_CLOEXEC)
                for fd in fds:
                    self._listener = fd
                    self._poll.register(fd, select.POLLIN)
                return piece
            try:
                if not ready[0][1] & select.POLLIN:  # nobody is left under the filter
                    raise OSError
                self._responder.answer(self._listener)
            except OSError:
                self._close_listener()
        return None

    def close(self) -> None:
        """Hear no more; calls that nobody else answers fail."""
        self._mine.close()
        self._close_listener()

    def _close_listener(self) -> None:
        if self._listener >= 0:
            self._poll.unregister(self._listener)
            os.close(self._listener)
            self._listener = -1
