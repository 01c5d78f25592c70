"""What is run to be measured."""

from __future__ import annotations

import time

COMPUTES = """
import time
def work():
    total = 0
    for i in range(3_000_000):
        total += i % 7
    return total
began = time.perf_counter()
work()
took = time.perf_counter() - began
"""

OPENS_FILES = """
import os, tempfile, time
path = os.path.join(tempfile.gettempdir(), f"bench{os.getpid()}")
open(path, "w").close()
def work():
    for i in range(20_000):
        os.close(os.open(path, os.O_RDONLY))
began = time.perf_counter()
work()
took = time.perf_counter() - began
os.unlink(path)
"""

_DATA = """
import numpy as np, pandas as pd
chance = np.random.default_rng(1)
rows = 40_000
table = pd.DataFrame({
    "day": pd.date_range("2020-01-01", periods=rows, freq="h"), "shop": chance.choice(list("abcdef"), rows),
    "sold": chance.poisson(20, rows), "price": chance.gamma(3.0, 4.0, rows)})
"""
_STEPS = (
    "table.head()",
    "table['takings'] = table.sold * table.price\ntable.describe()",
    "by_shop = table.groupby('shop').takings.agg(['sum', 'mean', 'std'])\nby_shop",
    "monthly = table.set_index('day').resample('MS').takings.sum()\nmonthly.tail(12)",
    "for shop, part in table.groupby('shop'): print(shop, len(part), round(part.takings.mean(), 2))",
    "wide = table.pivot_table(index=table.day.dt.hour, columns='shop', values='sold')\nwide.round(1)",
    "parts = np.column_stack([np.ones(rows), table.price, table.day.dt.hour])\n"
    "found, *_ = np.linalg.lstsq(parts, table.sold.to_numpy(), rcond=None)\nfound.round(4)",
    "draws = [chance.choice(table.takings.to_numpy(), rows).mean() for _ in range(30)]\nnp.std(draws)",
    "total = 0\nfor i in range(400_000): total += i % 11\ntotal",
    "[print(i, i ** 2) for i in range(50)];",
)
NOTEBOOK = (_DATA, *(_STEPS * 3)[:29])


def frames(rounds: int) -> tuple[list[tuple[float, float | None]], list[tuple[float, float | None]]]:
    """GB/s of a numeric frame of 100 MB into a session and out of it, each beside that of a plain copy of it."""
    import numpy as np  # only this promise needs it
    import pandas as pd

    from ..api import Sandbox

    frame = pd.DataFrame(np.random.default_rng(1).normal(size=(12_500_000 // 10, 10)))
    size = frame.memory_usage(index=False).sum() / 1e9
    values = frame.to_numpy()
    inwards: list[tuple[float, float | None]] = []
    outwards: list[tuple[float, float | None]] = []
    with Sandbox() as sandbox:
        for at in range(rounds + 1):
            began = time.perf_counter()
            values.copy()
            copied = time.perf_counter()
            sandbox.put("frame", frame)
            put = time.perf_counter()
            sandbox.get("frame")
            got = time.perf_counter()
            if at:  # the first warms up
                plain = size / (copied - began)
                inwards.append((size / (put - copied), plain))
                outwards.append((size / (got - put), plain))
    return inwards, outwards
