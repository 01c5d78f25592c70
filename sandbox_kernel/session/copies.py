"""Sleeping copies of the worker, as the front holds them: made, adopted by the zygote, dropped, handed out.

A copy is a confined process like the worker, and as hostile: behind its channel it may say once that it sleeps, and
nothing else. It goes on only when its channel is handed to the supervisor.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..channel import schema
from ..errors import ProtocolError
from ..proof.probes import outside_proofs
from .family import Seat
from .link import WorkerLink
from .proofs import judge_outside

NAME_RULE = "A name begins with a letter and has letters, digits and _.- (64 at most)."
ANSWER_S = 60.0  # in which the worker has to make a copy that somebody waits for
_NAME = re.compile(r"[^\W\d_][\w.-]{0,63}")


def checkpoint_name(name: object) -> bool:
    """Whether a checkpoint may be called so."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


@dataclass(eq=False, repr=False)
class Copy:
    """One copy.

    Attributes:
        link: its channel and pipes.
        original: number of the worker that it is a copy of.
        cell: number of the last cell that had run when it was made.
        made: when, on the monotonic clock, in seconds.
        pid: in the front's own numbers; -1 until it is adopted.
        lost: what it lacks, in the worker's words.
        names: that somebody gave it.
        aside: it is of a time that was given up; it is woken only when it is asked for.
        branch: it is to become a session of its own, and takes nobody's place.
        settled: becomes true when it sleeps in the zygote's care, false when it is gone before.
    """

    link: WorkerLink
    original: int
    cell: int
    settled: asyncio.Future[bool]
    made: float = field(default_factory=time.monotonic)
    pid: int = -1
    lost: Sequence[str] = ()
    branch: bool = False
    aside: bool = False
    names: list[str] = field(default_factory=list)

    @property
    def number(self) -> int:
        """The zygote's name for it."""
        return self.link.number


class Copies:
    """All copies of one sandbox, the oldest first.

    Args:
        zygote: adopts and ends them.
        level: of isolation, for the look from outside.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, zygote: Seat, level: str) -> None:
        self._loop, self._zygote, self._level = loop, zygote, level
        self._all: dict[int, Copy] = {}

    def sleeping(self) -> list[Copy]:
        """Those that could be woken, the oldest first."""
        return [copy for copy in self._all.values() if copy.pid >= 0 and not copy.branch]

    def open(self, number: int, original: int, cell: int, *, branch: bool = False) -> Copy:
        """The front's half of a copy; `Copy.link.far_ends` are for the worker to make the other with."""
        link = WorkerLink(
            self._loop, number,
            on_message=lambda message, _buffers, _size: self._said(number, message),
            on_raw=lambda _name, _text: self._gone(number),
            on_broken=lambda _error: self._gone(number), pressed=lambda: False,
        )  # fmt: skip
        copy = Copy(link, original, cell, self._loop.create_future(), branch=branch)
        self._all[number] = copy
        return copy

    async def adopted(self, copy: Copy, within_s: float) -> bool:
        """Whether it sleeps in the zygote's care; else it is ended, also when whoever waits here is cancelled."""
        try:
            await asyncio.wait([copy.settled], timeout=within_s)
        except asyncio.CancelledError:
            self.drop(copy)
            raise
        if copy.settled.done() and copy.settled.result():
            return True
        self.drop(copy)
        return False

    def drop(self, copy: Copy) -> None:
        """End a copy; idempotent."""
        self._gone(copy.number)

    def take(self, copy: Copy | None = None) -> Copy | None:
        """The newest one that sleeps, or this one, to be woken: it is no concern of this object any more."""
        found = [copy for copy in self.sleeping() if not copy.aside] if copy is None else [copy]
        return self._all.pop(found[-1].number, None) if found else None

    def give_up(self, cell: int) -> None:
        """The state after this cell is of no use: its copies end, or are set aside when somebody gave them names."""
        for copy in self.sleeping():
            if copy.cell == cell and copy.names:
                copy.aside = True
            elif copy.cell == cell:
                self.drop(copy)

    @contextlib.contextmanager
    def receiving(self, copy: Copy) -> Iterator[None]:
        """`put` it after what is waited for in this context; it ends when that is cancelled: nobody else has it."""
        try:
            yield
        except BaseException:
            self.put(copy)
            self.drop(copy)
            raise
        self.put(copy)

    def put(self, copy: Copy) -> None:
        """Take one over that another session has let go; it is the newest now."""
        copy.branch, number = False, copy.number
        copy.link.hand_over(
            on_message=lambda message, _buffers, _size: self._said(number, message),
            on_raw=lambda _name, _text: self._gone(number),
            on_broken=lambda _error: self._gone(number), pressed=lambda: False,
        )  # fmt: skip
        self._all[number] = copy

    def close(self) -> None:
        """Release every descriptor; the zygote ends the processes."""
        for copy in self._all.values():
            copy.link.close()
            _settle(copy, False)
        self._all.clear()

    def event(self, event: dict[str, Any]) -> bool:
        """Take news of the zygote; false when they do not concern a copy."""
        copy = self._all.get(event.get("worker", 0))
        if copy is None:
            return False
        if event["event"] != "forked":
            self._gone(copy.number)
            return True
        copy.link.pidfd = event["fds"].pop()
        copy.pid = copy.link.pid = event["host_pid"]
        if judge_outside(self._level, outside_proofs(copy.pid, self._level)) is not None:
            self._gone(copy.number)
        else:
            _settle(copy, True)
        return True

    def _said(self, number: int, message: schema.Message) -> None:
        copy = self._all.get(number)
        if copy is None:
            return
        if not isinstance(message, schema.Asleep) or copy.pid >= 0 or copy.settled.done():
            raise ProtocolError("a copy that should sleep spoke")
        self._zygote.adopt(number, message.pid, copy.original)

    def _gone(self, number: int) -> None:
        copy = self._all.pop(number, None)
        if copy is not None:
            if copy.link.pidfd is not None:
                # At once: until it is gone the cell beside it goes on copying what it writes to. (It starts nothing.)
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(copy.link.pidfd, signal.SIGKILL)
            self._zygote.kill(number)
            copy.link.close()
            _settle(copy, False)


def _settle(copy: Copy, alive: bool) -> None:
    if not copy.settled.done():
        copy.settled.set_result(alive)


async def in_time(
    making: Coroutine[Any, Any, tuple[Copy | None, str]], drop: Callable[[Copy], None]
) -> tuple[Copy | None, str]:
    """The copy that somebody waits for, or None and why not. A worker that never answers keeps nobody for ever.

    (Of a copy that nobody waits for it does not matter when it comes: a widget's callback may take minutes.)

    Args:
        drop: ends one that was made when whoever waits for it has just been cancelled.
    """
    task = asyncio.ensure_future(making)
    try:
        await asyncio.wait([task], timeout=ANSWER_S)
    except asyncio.CancelledError:
        if not task.cancel() and task.exception() is None and (copy := task.result()[0]) is not None:
            drop(copy)
        raise
    finally:
        if task.cancel():
            await asyncio.wait([task])
    return (None, f"it has not answered within {ANSWER_S:g} s") if task.cancelled() else task.result()
