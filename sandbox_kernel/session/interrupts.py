"""What an interrupt does: a signal first, and after a second one the end of the process."""

from __future__ import annotations

import asyncio

from ..errors import WorkerLost
from .requests import Requests
from .run import Runs
from .supervisor import Supervisor


class Interrupts:
    """The interrupts of one session.

    Args:
        runs, requests, supervisor: of the session.
        grace_s: what a cell has after the second interrupt, in seconds.

    Attributes:
        turn: grows by one with each cell; says which one somebody wants to interrupt.
        count: how many have come since the cell began, or since the session is busy.
    """

    def __init__(self, runs: Runs, requests: Requests, supervisor: Supervisor, grace_s: float) -> None:
        self._runs, self._requests, self._supervisor, self._grace_s = runs, requests, supervisor, grace_s
        self.turn = self.count = 0
        self._escalation: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def busy(self) -> bool:
        """Whether there is something to interrupt."""
        return bool(self._runs.main.id or self._requests.pending) and not self._closed

    def begin(self) -> None:
        """A cell begins on the main shell."""
        self.turn, self.count = self.turn + 1, 0

    def end(self) -> None:
        """What they were meant for has ended."""
        self.count = 0
        self.disarm()

    def close(self) -> None:
        """Do nothing from now on."""
        self._closed = True

    def press(self, turn: int | None = None) -> None:
        """One came, see `Session.interrupt`."""
        if not self.busy or turn not in (None, self.turn):
            return
        runs = self._runs
        self.count += 1
        if runs.main.id or not all(pending.shell for pending in self._requests.pending.values()):
            runs.main.output.hurry()
            self._supervisor.interrupt()
        elif self.count >= 2:
            for run in runs.beside.values():
                run.output.hurry()
                runs.interrupt(run)
        if self.count >= 2 and self._escalation is None and self._supervisor.ready:
            self._escalation = asyncio.get_running_loop().call_later(self._grace_s, self._escalate)

    def _escalate(self) -> None:
        self._escalation = None
        if self.busy:
            self._runs.culprit = self._runs.main if self._runs.main.id else None
            error = WorkerLost(f"the cell went on for {self._grace_s:g} s after a second interrupt, so it was ended")
            error.data["deaf"] = True
            self._supervisor.kill(error)

    def disarm(self) -> None:
        """The process shall not be ended because of those that came."""
        if self._escalation is not None:
            self._escalation.cancel()
            self._escalation = None
