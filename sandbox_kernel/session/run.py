"""One request that runs code of the cells, with what it may use and what happens when it uses more.

The main shell has one `Run` for all its cells, because what they left goes on between them. What runs on a subshell at
the same time has one of its own: limits are for each cell, wherever it runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ..errors import LimitReached, SandboxError, TimeLimit, WorkerLost
from ..policy import Limits
from ..report import BYSTANDER
from .clock import Clock
from .output import Output
from .sink import Sink
from .supervisor import Supervisor


class Run:
    """A cell, or another request on a subshell.

    Args:
        limits: of the policy.
        output: what of its output is shown.
        interrupt: asks its code to end.
        kill: replaces the worker because of this run.

    Attributes:
        id: of the request; "" while there is none.
        shell: the subshell that it runs on; "" for the main shell.
        cell: whether it is a cell, with output of its own.
        clock: the wall time that it may still take.
        limit: the error of the limit that is ending it.
        error_shown: name and text of the error that the client has seen from it.
    """

    def __init__(
        self, limits: Limits, output: Output, *, shell: str,
        interrupt: Callable[[Run], None], kill: Callable[[Run, LimitReached], None],
    ) -> None:  # fmt: skip
        self._limits, self._interrupt, self._kill = limits, interrupt, kill
        self.output, self.shell = output, shell
        self.id, self.cell = "", False
        self.clock = Clock()
        self.limit: LimitReached | None = None
        self.error_shown: tuple[object, object] | None = None
        self._grace: asyncio.TimerHandle | None = None

    def begin(self, request_id: str, *, cell: bool) -> None:
        """A request begins, with the whole budget."""
        self.id, self.cell = request_id, cell
        self.limit = self.error_shown = None
        if cell:
            self.output.begin(request_id)

    def end(self) -> None:
        """It has ended."""
        self.id = ""
        self.limit = None
        if self.cell:
            self.output.end()
        self.disarm()

    def start_clock(self, loop: asyncio.AbstractEventLoop, time_s: float) -> None:
        """It was sent to the worker.

        Args:
            time_s: what it may take, besides the limit of the policy; 0: no further limit.
        """
        allowed, rule = self._limits.cell_time, "limits.cell_time"
        if time_s and (not allowed or time_s < allowed):
            allowed, rule = time_s, "timeout"
        if allowed:
            self.clock.start(loop, allowed, lambda: self.breach(TimeLimit(allowed, allowed, rule=rule)))

    def breach(self, error: LimitReached) -> None:
        """End it because of a limit: by an interrupt and, after a grace time, by replacing the worker."""
        if self.limit is None:
            self.limit = error
            self.output.hurry()
            self._interrupt(self)
            loop = asyncio.get_running_loop()
            self._grace = loop.call_later(self._limits.interrupt_grace, self._end_hard, error)

    def _end_hard(self, error: LimitReached) -> None:
        self._grace = None
        if self.id and self.limit is error:
            error.lose(self._limits.interrupt_grace)
            error.data["deaf"] = True
            self._kill(self, error)

    def disarm(self) -> None:
        """Stop all timers."""
        self.clock.stop()
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None

    def ended_before(self, content: Mapping[str, Any]) -> bool:
        """Whether it had failed by itself when the limit came: its error is already shown."""
        return (content.get("ename"), content.get("evalue")) == self.error_shown


class Runs:
    """The main shell's `Run` and those that are on subshells now.

    Args:
        limits: of the policy.
        supervisor: of the worker that they run in.
        sink: gets what is shown.
        record: called with all text of the main shell's cells, shown or not.

    Attributes:
        main: the main shell's.
        beside: on subshells, by request.
        culprit: the one because of which the worker is being replaced.
    """

    def __init__(self, limits: Limits, supervisor: Supervisor, sink: Sink, record: Callable[[str], None]) -> None:
        self._limits, self._supervisor, self._sink = limits, supervisor, sink
        self.main = self._new("", Output(limits, sink, record=record))
        self.beside: dict[str, Run] = {}
        self.culprit: Run | None = None

    def _new(self, shell: str, output: Output) -> Run:
        return Run(self._limits, output, shell=shell, interrupt=self.interrupt, kill=self._kill)

    def begin(self, request_id: str, shell: str, *, cell: bool) -> Run:
        """A request begins on a subshell, or a cell on the main shell."""
        run = self.main
        if shell:
            output = Output(self._limits, self._sink) if cell else self.main.output
            run = self.beside[request_id] = self._new(shell, output)
        run.begin(request_id, cell=cell)
        return run

    def end(self, run: Run) -> None:
        """It has ended."""
        self.beside.pop(run.id, None)
        run.end()

    def running(self) -> list[Run]:
        """All that run now, the main shell's first."""
        return [run for run in (self.main, *self.beside.values()) if run.id]

    def cells(self) -> list[Run]:
        """The cells among them."""
        return [run for run in self.running() if run.cell]

    def charged(self, parent: str) -> Run:
        """Which run pays for a message: the subshell's cell that it names, or else the main shell's.

        The name is the worker's word. A lie moves the charge to another cell that runs now, and no cell has more than
        its own budget.
        """
        if not self.beside:
            return self.main
        cells = self.cells()
        named = [run for run in cells if run.id == parent]
        return named[0] if named else self.main if self.main.id or not cells else cells[-1]

    def interrupt(self, run: Run) -> None:
        """KeyboardInterrupt for its code."""
        if not run.shell:
            self._supervisor.interrupt()
        elif self._supervisor.worker is not None:
            self._supervisor.worker.send({"op": "interrupt", "shell": run.shell, "request": run.id})

    def _kill(self, run: Run, error: LimitReached) -> None:
        self.culprit = run
        self._supervisor.kill(error)

    def over(self, error: LimitReached, cells: Collection[str], *, gently: bool) -> None:
        """End the cells that are over a limit of the whole sandbox, or else replace their process.

        Args:
            cells: whose share it was, as far as that is known.
            gently: begin with an interrupt; else the process is killed at once.
        """
        found = [run for run in self.running() if run.id in cells]
        if gently and found and self._supervisor.ready:
            for run in found:
                run.breach(error)
        else:
            error.lose()
            for run in self.running():
                run.limit = error
            self._supervisor.kill(error)

    def lost(self, error: SandboxError) -> Callable[[str], SandboxError]:
        """The worker is gone; what to tell whom of those who wait, by request, and "" for everybody else."""
        culprit, self.culprit = self.culprit, None
        limited = next((run for run in self.running() if run.limit is not None), None)
        if limited is not None and limited.limit is not None and not isinstance(error, LimitReached):
            # The interrupt for the limit ended the whole process: it was another program by then, for example.
            limited.limit.lose()
            if error.state == "restored":
                limited.limit.state, limited.limit.data["restored"] = error.state, error.data["restored"]
            error, culprit = limited.limit, limited
        bystander = WorkerLost(BYSTANDER.format(type(error).__name__))
        bystander.state = error.state or "lost"
        bystander.data.update({key: error.data[key] for key in ("restored", "why_lost") if key in error.data})
        guilty = culprit.id if culprit is not None else ""
        return lambda request_id: error if not (guilty and request_id) or request_id == guilty else bystander
