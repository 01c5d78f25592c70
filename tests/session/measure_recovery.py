"""What copies cost, by processor time, on a machine that may be busy. No test; see docs/recovery.md.

    python -m tests.session.measure_recovery notebook FILE.ipynb [ROUNDS]   a whole notebook, with copies and without
    python -m tests.session.measure_recovery rewrite [ROUNDS [TIMES]]       a cell that rewrites 1 GB so many times
    python -m tests.session.measure_recovery replace MEGABYTES [ROUNDS]     from a death to the next cell's result

Rounds alternate; the median of their ratios is printed. Processor time is that of the sandbox and of this process.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

from sandbox_kernel import Sandbox

GAP_S = 0.3  # between two cells: time for a copy, as a person gives it


def _box(checkpoints: str) -> Sandbox:
    limits = {"memory": "12GiB", "frame": "1MiB"}
    return Sandbox({"recovery": {"checkpoints": checkpoints}, "limits": limits})


def _used(box: Sandbox) -> float:
    box._box._session.watchdog.measure()  # type: ignore[union-attr]
    return float(box.status()["use"]["cpu_s"]) + time.process_time()


def _good(box: Sandbox, code: str) -> Any:
    execution = box.run_code(code)
    assert execution.success, execution.error
    return execution


def _notebook(path: str, rounds: int) -> None:
    import nbformat

    cells = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    for gap_s in (0.0, GAP_S):
        spent: dict[str, list[float]] = {"on": [], "off": []}
        for _ in range(rounds):
            for way, found in spent.items():
                with _box(way) as box:
                    _good(box, "import numpy, pandas, matplotlib.pyplot")
                    time.sleep(1)
                    began = _used(box)
                    for cell in cells:
                        _good(box, cell)
                        time.sleep(gap_s)
                    found.append(_used(box) - began)
        _tell(f"notebook, {gap_s:g} s between cells", spent)


def _rewrite(rounds: int, times: int) -> None:
    with _box("on") as on, _box("off") as off:
        spent: dict[str, list[float]] = {"on": [], "off": []}
        for box in (on, off):
            _good(box, "import numpy as np; big = np.ones(1 << 27)")
        for at in range(rounds):
            end = time.monotonic() + 60
            while not on.status()["checkpoints"] and time.monotonic() < end:
                time.sleep(GAP_S)
            for way, box in (("on", on), ("off", off))[:: 1 if at % 2 else -1]:
                began = _used(box)
                _good(box, f"for _ in range({times}): big += 1")
                time.sleep(0.05)  # until copies that it gave up have ended
                spent[way].append(_used(box) - began)
        _tell(f"{times} rewrites of 1 GB with a copy at the start", spent)


def _replace(megabytes: int, rounds: int) -> None:
    with _box("on") as box:
        _good(box, f"import numpy as np, os; big = np.ones({megabytes} << 17)")
        wall, used = [], []
        for _ in range(rounds):
            end = time.monotonic() + 60
            while not box.status()["checkpoints"] and time.monotonic() < end:
                time.sleep(0.1)
            time.sleep(1)
            before = _used(box)
            began = time.monotonic()
            lost = box.run_code("os._exit(1)")
            assert lost.state == "restored", lost.error
            _good(box, "big[-1]")
            wall.append(time.monotonic() - began)
            used.append(_used(box) - before)
        print(f"{megabytes} MB replaced: wall {_ms(wall)}, processor {_ms(used)} (median, all)")


def _ms(values: Sequence[float]) -> str:
    return f"{statistics.median(values) * 1000:.0f} ms {[round(value * 1000) for value in values]}"


def _tell(what: str, spent: dict[str, list[float]]) -> None:
    ratios = [on / off for on, off in zip(spent["on"], spent["off"], strict=True)]
    print(
        f"{what}: on {_ms(spent['on'])}, off {_ms(spent['off'])}, ratio {statistics.median(ratios):.3f} "
        f"({', '.join(f'{ratio:.2f}' for ratio in ratios)})"
    )


def main(words: list[str]) -> None:
    """Run one of the measurements."""
    match words:
        case ["notebook", path, *rest]:
            _notebook(path, int(rest[0]) if rest else 3)
        case ["rewrite", *rest]:
            _rewrite(int(rest[0]) if rest else 4, int(rest[1]) if rest[1:] else 40)
        case ["replace", megabytes, *rest]:
            _replace(int(megabytes), int(rest[0]) if rest else 3)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
