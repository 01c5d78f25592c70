"""What the output gate costs, in processor time. Not a test.

    python tests/bench_outputs.py [--rounds N] [--json FILE]
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sandbox_kernel.outputs.gate import Gate

Message = tuple[str, dict[str, Any]]


def display(data: dict[str, Any]) -> Message:
    """As the worker sends it."""
    return "display_data", {"data": data, "metadata": {}}


def table(rows: int) -> Message:
    """A DataFrame as IPython shows it."""
    frame = pd.DataFrame(np.random.default_rng(1).random((rows, 8)), columns=list("abcdefgh"))
    with pd.option_context("display.max_rows", None):
        return display({"text/plain": repr(frame), "text/html": frame._repr_html_()})


def cases() -> dict[str, list[Message]]:
    """Name of a case and its messages."""
    picture = base64.b64encode(os.urandom(1 << 20)).decode()
    figure = {"data": [{"x": list(range(50_000)), "y": [n / 7 for n in range(50_000)]}], "layout": {}}
    small = display({"text/plain": "<Figure>", "text/html": "<b>1</b> of <i>2</i>"})
    styled = pd.DataFrame(np.ones((100, 8))).style.background_gradient(vmin=0, vmax=2).to_html()
    return {
        "a table of 100 rows": [table(100)],
        "a table of 10,000 rows": [table(10_000)],
        "a Styler's table of 100 rows": [display({"text/html": styled})],
        "1 MB of text": [display({"text/plain": "A line of text, about this long.\n" * 32_000})],
        "a picture of 1 MB": [display({"image/png": picture})],
        "a plotly figure of 50,000 points": [display({"application/vnd.plotly.v1+json": figure})],
        "200 small displays": [small] * 200,
    }


def milliseconds(work: Callable[[], object], rounds: int) -> float:
    """Processor time of the fastest round."""
    best = float("inf")
    for _ in range(rounds):
        began = time.process_time_ns()
        work()
        best = min(best, (time.process_time_ns() - began) / 1e6)
    return best


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found = {}
    for name, messages in cases().items():
        gate = Gate()
        sizes = sum(len(json.dumps(content)) for _, content in messages)

        def work(messages: list[Message] = messages, gate: Gate = gate) -> None:
            for kind, content in messages:
                gate.message(kind, content)

        taken = milliseconds(work, args.rounds)
        found[name] = {"ms": taken, "bytes": sizes, "ms_per_MB": taken / sizes * 1e6}
        sys.stdout.write(f"{name:34} {taken:9.2f} ms  {sizes / 1e6:7.2f} MB  {taken / sizes * 1e6:7.1f} ms/MB\n")
    if args.json:
        args.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
