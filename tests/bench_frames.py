"""How long values take into a sandbox and out of it, beside other ways between two processes. Not a test.

    python tests/bench_frames.py [--short] [--only NAME ...] [--sandtrap PYTHON] [--json FILE]

For each value: `Sandbox.put` and `Sandbox.get`, and `Sandbox.call` of a function that gives back what it was given;
one copy of as many bytes in memory; pickle and Arrow IPC over a pipe to a child process, that is the data alone,
without any check of what comes; and, with the interpreter of an environment that has sandtrap, numpy and pandas, a
namespace in and out of sandtrap's worker (``isolation="process"``). All take turns, with as many rounds in a row each:
a value that finds the processor's caches full of another way's work takes up to twice as long. Figures are the fastest
round in milliseconds, ratios are to ours: above 1 ours is faster.

"in", "out" and "both" are a request each. Sandtrap forgets its variables after each, so nothing can only be fetched
from it: its "out" is the request both ways, less the way in, more a request without values.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

SIZES = {"1 KB": 1 << 10, "1 MB": 1 << 20, "100 MB": 100 << 20, "1 GB": 1 << 30}
NAMES = [*SIZES, "strings", "mixed", "records"]
ROWS = 20  # rounds of one way, one after the other
LARGE = {"100 MB", "1 GB", "strings", "mixed"}


def make(name: str) -> Any:
    """The value of this name; the same one each time."""
    random = np.random.default_rng(1)
    if name in SIZES:
        rows = SIZES[name] // 8 // 4
        return pd.DataFrame({column: random.random(rows) for column in "abcd"})
    if name == "strings":
        return pd.DataFrame({"s": pd.Series([f"customer {n:07d}" for n in range(1_000_000)], dtype=object)})
    if name == "records":
        return [{"id": n, "name": f"n{n}", "price": n / 7} for n in range(100_000)]
    rows = 100_000
    columns: dict[str, Any] = {f"f{n}": random.random(rows) for n in range(20)}
    columns |= {f"i{n}": random.integers(0, 9999, rows) for n in range(14)}
    columns |= {f"b{n}": random.random(rows) > 0.5 for n in range(4)}
    columns |= {f"t{n}": pd.date_range("2020", periods=rows, freq="s") for n in range(4)}
    columns |= {f"c{n}": pd.Categorical.from_codes(random.integers(0, 50, rows), [f"k{k}" for k in range(50)])
                for n in range(4)}  # fmt: skip
    columns |= {f"s{n}": pd.Series([f"row {k % 977}" for k in range(rows)], dtype=object) for n in range(4)}
    return pd.DataFrame(columns)


def size_of(value: Any) -> int:
    """Bytes, roughly, as they lie in memory."""
    return int(value.memory_usage(deep=True).sum()) if isinstance(value, pd.DataFrame) else len(pickle.dumps(value))


# ------------------------------------------------------------ over a pipe, unchecked


def to_arrow(value: Any) -> Any:
    """The bytes of an IPC stream."""
    import pyarrow as pa

    table = pa.Table.from_pandas(value)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def from_arrow(data: bytes) -> Any:
    """The inverse."""
    import pyarrow as pa

    return pa.ipc.open_stream(data).read_all().to_pandas()


def to_pickle(value: Any) -> bytes:
    """As between any two processes of multiprocessing."""
    return pickle.dumps(value, protocol=5)


WAYS: dict[str, tuple[Callable[[Any], Any], Callable[[bytes], Any]]] = {
    "pickle": (to_pickle, pickle.loads), "Arrow": (to_arrow, from_arrow),
}  # fmt: skip


def child(pipe: Connection) -> None:
    """The other side: keeps the latest value, and gives it back when it is asked to."""
    value: Any = None
    while (said := pipe.recv()) is not None:
        way, direction = said
        if direction == "in":
            value = None
            value = WAYS[way][1](pipe.recv_bytes())
            pipe.send("done")
        else:
            pipe.send_bytes(WAYS[way][0](value))


def over_pipe(pipe: Connection, way: str, value: Any) -> Iterator[tuple[str, float]]:
    """Seconds in and out."""
    dump, load = WAYS[way]
    began = time.perf_counter()
    pipe.send((way, "in"))
    pipe.send_bytes(dump(value))
    pipe.recv()
    yield "in", time.perf_counter() - began
    began = time.perf_counter()
    pipe.send((way, "out"))
    back = load(pipe.recv_bytes())
    yield "out", time.perf_counter() - began
    del back


# ------------------------------------------------------------ sandtrap, in its own environment


def sandtrap(name: str, rounds: int) -> None:
    """Prints seconds of each direction as JSON."""
    from sandtrap import Policy, sandbox

    value = make(name)
    policy = Policy(timeout=600)
    policy.module(pd, name="pandas")
    policy.module(np, name="numpy")
    ways: dict[str, float] = {}
    with sandbox(policy, isolation="process") as box:
        for _ in range(rounds):
            for way, code, given, keep in (
                ("none", "pass", {}, ()), ("in", "pass", {"x": value}, ()), ("both", "y = x", {"x": value}, ("y",)),
            ):  # fmt: skip
                began = time.perf_counter()
                result = box.exec(code, namespace=given, keep=keep)
                seconds = time.perf_counter() - began
                if result.error is not None or (keep and result.namespace.get("y") is None):
                    raise SystemExit(f"sandtrap: {result.error}")
                del result
                ways[way] = min(ways.get(way, seconds), seconds)
    out = ways["both"] - ways["in"] + ways["none"]
    sys.stdout.write(json.dumps({"in": ways["in"], "out": out, "both": ways["both"]}))


# ------------------------------------------------------------ all of them


def through(box: Any, value: Any) -> Iterator[tuple[str, float]]:
    """Seconds into a sandbox, out of it, and both ways in one request."""
    began = time.perf_counter()
    box.put("x", value)
    yield "in", time.perf_counter() - began
    began = time.perf_counter()
    back = box.get("x")
    yield "out", time.perf_counter() - began
    del back
    began = time.perf_counter()
    back = box.call("same", value)
    yield "both", time.perf_counter() - began
    del back


def copy(array: Any) -> Iterator[tuple[str, float]]:
    """Seconds of one copy in memory, which is the same both ways."""
    began = time.perf_counter()
    again = array.copy()
    seconds = time.perf_counter() - began
    yield from (("in", seconds), ("out", seconds))
    del again


def measure(names: list[str], rounds: int, other: str) -> dict[str, dict[str, dict[str, float]]]:
    """Milliseconds by value, way and direction."""
    from sandbox_kernel import Sandbox

    found: dict[str, dict[str, dict[str, float]]] = {}
    limits = {"limits": {"memory": "16GiB", "frame": "4GiB"}, "recovery": {"checkpoints": "off"}}
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=child, args=(there,), daemon=True)
    process.start()
    with Sandbox(limits) as box:
        box.run_code("import numpy, pandas\ndef same(value): return value")
        for name in names:
            value = make(name)
            copied = np.ones(size_of(value) // 8)
            result: dict[str, dict[str, float]] = {}

            def note(way: str, direction: str, seconds: float, into: dict[str, dict[str, float]] = result) -> None:
                best = into.setdefault(way, {})
                best[direction] = min(best.get(direction, float("inf")), seconds * 1e3)

            ways = {"ours": partial(through, box, value), "memcpy": partial(copy, copied)}
            for way in WAYS:
                if way == "pickle" or isinstance(value, pd.DataFrame):
                    ways[way] = partial(over_pipe, here, way, value)
            in_a_row = 1 if name in LARGE else ROWS
            for _ in range(max(2, rounds // 3) if name in LARGE else rounds):
                for way, once in ways.items():
                    gc.collect()
                    for _ in range(in_a_row):
                        for direction, seconds in once():
                            note(way, direction, seconds)
            del value, copied
            box.run_code("x = None")
            if other:
                again = str(3 if name in LARGE else rounds * ROWS)
                done = subprocess.run(
                    [other, __file__, "--as-sandtrap", name, "--rounds", again], capture_output=True, text=True
                )  # fmt: skip
                if done.returncode == 0:
                    result["sandtrap"] = {k: v * 1e3 for k, v in json.loads(done.stdout).items()}
                else:
                    sys.stderr.write(f"sandtrap, {name}: {(done.stderr or done.stdout).strip()[-300:]}\n")
            found[name] = result
            show(name, result)
    here.send(None)
    process.join()
    return found


def show(name: str, result: dict[str, dict[str, float]]) -> None:
    """A line for each direction."""
    for direction, ours in result["ours"].items():
        others = [f"{way} {best[direction]:.2f} ({best[direction] / ours:.2f})"
                  for way, best in result.items() if way != "ours" and direction in best]  # fmt: skip
        sys.stdout.write(f"{name:8} {direction:4} ours {ours:.2f} ms   {'   '.join(others)}\n")
    sys.stdout.flush()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="without 1 GB, fewer rounds")
    parser.add_argument("--only", nargs="+", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--sandtrap", default="", metavar="PYTHON")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--as-sandtrap", choices=NAMES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.as_sandtrap:
        sandtrap(args.as_sandtrap, args.rounds)
        return
    names = args.only or [name for name in NAMES if not (args.short and name == "1 GB")]
    found = measure(names, 6 if args.short else args.rounds, args.sandtrap)
    if args.json:
        args.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
