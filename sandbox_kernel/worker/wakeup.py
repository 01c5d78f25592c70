"""What ends a wait of the main thread: signals, and work to do."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress


class Wakeup:
    """A socket that becomes readable when a signal has come.

    A wait that is interrupted runs the signal's handler and goes on (PEP 475), so the handler must make
    something readable; and a signal that arrives just before the wait begins would not interrupt it at all.
    """

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self.arm()

    def renew(self) -> None:
        """In a fork: have sockets of one's own, under the same numbers."""
        for old, new in zip((self._reader, self._writer), socket.socketpair(), strict=True):
            new.setblocking(False)
            os.dup2(new.fileno(), old.fileno(), inheritable=False)
            new.close()

    def fileno(self) -> int:
        """What to wait for."""
        return self._reader.fileno()

    def arm(self) -> None:
        """Lets signals write here, unless a signal handler of asyncio's has the place: it wakes the loop too.

        asyncio clears the place when its last handler goes.
        """
        before = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        if before not in (-1, self._writer.fileno()):
            signal.set_wakeup_fd(before, warn_on_full_buffer=False)

    def drain(self) -> None:
        """Makes it unreadable again."""
        with suppress(BlockingIOError):
            while self._reader.recv(4096):
                pass


class Bell:
    """Readable from `ring` to `hush`.

    A callback of the event loop can be lost when something is raised just as it is called. One that waits for
    the bell is called again and again until it got through and hushed it.
    """

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def renew(self) -> None:
        """In a fork: have a descriptor of one's own, under the same number."""
        new = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        os.dup2(new, self._descriptor, inheritable=False)
        os.close(new)

    def fileno(self) -> int:
        """What to wait for."""
        return self._descriptor

    def ring(self) -> None:
        """From any thread, and from signal handlers."""
        os.eventfd_write(self._descriptor, 1)

    def hush(self) -> None:
        """Silent until the next `ring`."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._descriptor)
