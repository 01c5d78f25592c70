"""How each promise is measured: rounds in which both sides take turns, so that both meet the same machine."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from . import work
from .running import OURS, STOCK, Kernel, Unanswered

Samples = list[tuple[float, float | None]]
Told = Callable[[str], None]
_MB = 2**20


class Measures:
    """Measures by name; what several need is measured once.

    Args:
        folder: for kernelspecs, work and history.
        short: fewer rounds, and smaller work.
    """

    def __init__(self, folder: Path, *, short: bool) -> None:
        self._folder, self._short = folder, short
        self._done: dict[str, Samples] = {}
        self._open: dict[str, Kernel] = {}

    def of(self, name: str) -> Samples:
        """The samples for a promise.

        Raises:
            Unanswered: a kernel did not do what was asked.
        """
        if name not in self._done:
            getattr(self, f"_{name.replace('-', '_')}")()
        return self._done[name]

    def close(self) -> None:
        """End the kernels."""
        for kernel in self._open.values():
            kernel.close()
        self._open.clear()

    # ------------------------------------------------------------ kernels

    @contextmanager
    def _fresh(self, kind: str, **environment: str) -> Iterator[Kernel]:
        kernel = Kernel(kind, self._folder, environment)
        try:
            yield kernel
        finally:
            kernel.close()

    def _kernel(self, kind: str) -> Kernel:
        if kind not in self._open:
            self._open[kind] = Kernel(kind, self._folder)
        return self._open[kind]

    def _rounds(self, many: int, few: int) -> Iterator[tuple[str, str]]:
        """Who goes first changes, because the first of a pair may find the machine in another state."""
        for at in range(few if self._short else many):
            yield (OURS, STOCK) if at % 2 else (STOCK, OURS)

    def _alternate(self, name: str, measure: Callable[[Kernel], float], many: int, few: int) -> None:
        for kind in (STOCK, OURS):
            measure(self._kernel(kind))  # warms up
        found: Samples = []
        for order in self._rounds(many, few):
            took = {kind: measure(self._kernel(kind)) for kind in order}
            found.append((took[OURS], took[STOCK]))
        self._done[name] = found

    # ------------------------------------------------------------ starting, memory

    def _start(self) -> None:
        walls: Samples = []
        costs: Samples = []
        sizes: Samples = []
        for kind in (STOCK, OURS):
            with self._fresh(kind):
                pass  # files come into the cache, and modules are compiled
        for order in self._rounds(10, 3):
            took: dict[str, tuple[float, float, float]] = {}
            for kind in order:
                with self._fresh(kind) as kernel:
                    time.sleep(0.5)  # idle: a copy of the session may be there by now
                    took[kind] = kernel.start_s * 1000, kernel.start_cpu_s * 1000, kernel.pss_bytes() / _MB
            for found, at in ((walls, 0), (costs, 1), (sizes, 2)):
                found.append((took[OURS][at], took[STOCK][at]))
        self._done.update({"start": walls, "start-cpu": costs, "memory": sizes})

    _start_cpu = _memory = _start

    # ------------------------------------------------------------ cells

    def _cell(self) -> None:
        walls: Samples = []
        costs: Samples = []
        cells = 40 if self._short else 150
        for order in self._rounds(8, 3):
            took: dict[str, tuple[float, float]] = {}
            for kind in order:
                kernel = self._kernel(kind)
                before = kernel.cpu_s()
                seconds = [kernel.good("1").seconds for _ in range(cells)]
                took[kind] = median(seconds) * 1000, (kernel.cpu_s() - before) / cells * 1000
            walls.append((took[OURS][0], took[STOCK][0]))
            costs.append((took[OURS][1], took[STOCK][1]))
        self._done.update({"cell": walls, "cell-cpu": costs})

    _cell_cpu = _cell

    def _displays(self) -> None:
        self._alternate("displays", lambda k: k.good("for i in range(200): display(i)").seconds * 1000, 8, 3)

    def _lines(self) -> None:
        self._alternate("lines", lambda k: k.good("for i in range(10_000): print(i)").seconds * 1000, 8, 3)

    def _stdout(self) -> None:
        code = "line = 'x' * 99 + '\\n'\nimport sys\nfor i in range(500_000): sys.stdout.write(line)"
        self._alternate("stdout", lambda k: k.good(code).seconds * 1000, 3, 1)

    def _unflushed(self) -> None:
        code = "import time\nprint(time.time())\ntime.sleep(0.5)"

        def measure(kernel: Kernel) -> float:
            (moment, text), *_ = kernel.good(code).seen
            return (moment - float(text)) * 1000

        self._alternate("unflushed", measure, 8, 3)

    def _replace(self) -> None:
        found: Samples = []
        for _ in self._rounds(8, 4):
            lost = self._kernel(OURS).run("import os; os._exit(1)")
            if lost.ok:
                raise Unanswered("the worker was not lost")
            found.append((self._kernel(OURS).good("1").seconds * 1000, None))
        self._done["replace"] = found

    # ------------------------------------------------------------ against Python without a kernel

    def _against_python(self, name: str, code: str) -> None:
        def plain() -> float:
            # A session of its own, as kernels have: the scheduler gives each session its share.
            done = subprocess.run(
                [sys.executable, "-c", f"{code}\nprint(took)"], capture_output=True, text=True, check=True,
                cwd=self._folder, start_new_session=True,
            )  # fmt: skip
            return float(done.stdout)

        def ours() -> float:
            return float(self._kernel(OURS).good(f"{code}\ntook").text)

        plain(), ours()
        found: Samples = []
        for at, _ in enumerate(self._rounds(8, 4)):
            first = plain() if at % 2 else None
            took = ours()
            found.append((took * 1000, (plain() if first is None else first) * 1000))
        self._done[name] = found

    def _cpu_bound(self) -> None:
        self._against_python("cpu-bound", work.COMPUTES)

    def _system_calls(self) -> None:
        self._against_python("system-calls", work.OPENS_FILES)

    # ------------------------------------------------------------ copies, frames

    def _copies(self) -> None:
        off = self._folder / "without-copies.toml"
        off.write_text('[recovery]\ncheckpoints = "off"\n', encoding="utf-8")
        found: Samples = []
        for at, _ in enumerate(self._rounds(4, 1)):
            took: dict[bool, float] = {}
            for copies in (True, False) if at % 2 else (False, True):
                with self._fresh(OURS, **({} if copies else {"SANDBOX_KERNEL_POLICY": str(off)})) as kernel:
                    began = time.monotonic()
                    for cell in work.NOTEBOOK:
                        kernel.good(cell)
                    took[copies] = (time.monotonic() - began) * 1000
            found.append((took[True], took[False]))
        self._done["copies"] = found

    def _frame_in(self) -> None:
        inwards, outwards = work.frames(2 if self._short else 6)
        self._done.update({"frame-in": inwards, "frame-out": outwards})

    _frame_out = _frame_in
