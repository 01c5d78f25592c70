"""``input()`` and ``getpass()``: the front asks the person, and whoever waits reads the channel."""

from __future__ import annotations

import itertools
import os
import select
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from IPython.core.error import StdinNotImplementedError

from ..channel.framing import Bytes, encode
from .link import Link, Waiter
from .wakeup import Wakeup

PROMPT_CHARS = 100_000
END_OF_FILE = "\x04"


class Questions:
    """Asks, and waits without the event loop: a cell that calls ``input()`` keeps the loop from running.

    Requests that arrive meanwhile stay in the link's queue until the cell has ended. Each question has a
    serial number, so that an answer that comes after an interrupt does not reach the next question.
    """

    def __init__(self, link: Link, wakeup: Wakeup) -> None:
        self._link = link
        self._wakeup = wakeup
        self._serials = itertools.count(1)

    def ask(self, parent: str, prompt: str, password: bool) -> str:
        """The person's answer.

        Raises:
            EOFError: the answer is a lone Ctrl-D.
            KeyboardInterrupt: interrupted while waiting.
            StdinNotImplementedError: the front cannot ask, or this is a forked child, which has no channel.
        """
        if os.getpid() != self._link.pid:
            raise StdinNotImplementedError("input() is not possible in a forked process")
        question = {"type": "input_request", "parent": parent, "prompt": prompt[:PROMPT_CHARS], "password": password}
        answer = self.exchange(question)
        if answer.get("op") != "input_reply":
            reason = str(answer.get("reason") or "this frontend does not support input")
            raise StdinNotImplementedError(reason)
        value = str(answer.get("value") or "")
        if value == END_OF_FILE:
            raise EOFError
        return value

    def exchange(self, message: dict[str, Any], buffers: Sequence[Bytes] = ()) -> dict[str, Any]:
        """Send a message that the front answers, and wait for the answer.

        Args:
            message: gets a "serial".

        Returns:
            the answer's fields, with "buffers" and "fds" (whoever calls this owns them).

        Raises:
            KeyboardInterrupt: interrupted while waiting (main thread only).
            ValueError, TypeError: the message cannot be sent.
        """
        serial = next(self._serials)
        packets = list(encode({**message, "serial": serial}, buffers))
        ready, wake = os.pipe()
        waiter = self._link.waiters[serial] = Waiter(wake)
        try:
            if threading.current_thread() is threading.main_thread():
                with self._interrupts_at_safe_points() as interrupts:
                    self._link.send(packets)
                    self._wait(waiter, ready, interrupts)
            else:
                self._link.send(packets)
                self._wait(waiter, ready, None)
        finally:
            self._link.waiters.pop(serial, None)
            os.close(ready)
            os.close(wake)
        return waiter.answer or {}

    def _wait(self, waiter: Waiter, ready: int, interrupts: Interrupts | None) -> None:
        poller = select.poll()
        poller.register(self._link.fileno(), select.POLLIN)
        poller.register(ready, select.POLLIN)
        if interrupts is not None:
            poller.register(self._wakeup.fileno(), select.POLLIN)
        while waiter.answer is None:
            poller.poll()
            if waiter.interrupted:
                raise KeyboardInterrupt("Interrupted by user")
            if interrupts is not None:
                self._wakeup.drain()
                interrupts.deliver()
            # Another thread may have taken in what made the channel readable, and woken us by `ready`.
            self._link.receive()

    @contextmanager
    def _interrupts_at_safe_points(self) -> Iterator[Interrupts]:
        """An interrupt must not tear what is being taken in: it is noted, and delivered between two polls."""
        interrupts = Interrupts(signal.getsignal(signal.SIGINT))
        signal.signal(signal.SIGINT, interrupts.note)
        try:
            yield interrupts
        finally:
            signal.signal(signal.SIGINT, interrupts.previous)


class Interrupts:
    """SIGINT, noted when it comes and delivered when it cannot tear anything."""

    def __init__(self, previous: Any) -> None:
        self.previous = previous
        self._noted = 0

    def note(self, number: int, frame: FrameType | None) -> None:
        """The signal handler."""
        self._noted += 1

    def deliver(self) -> None:
        """Raises KeyboardInterrupt, or calls the handler that the cell has set."""
        if not self._noted:
            return
        self._noted = 0
        own = getattr(self.previous, "interrupts_the_cell", False)
        if callable(self.previous) and self.previous is not signal.default_int_handler and not own:
            self.previous(signal.SIGINT, None)
        else:
            raise KeyboardInterrupt("Interrupted by user") from None
