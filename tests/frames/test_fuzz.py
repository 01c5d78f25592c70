"""Chance against the frame gate: made-up values come back, broken payloads do no harm.

``SANDBOX_FUZZ_S=600 pytest tests/frames/test_fuzz.py --timeout 800`` breaks payloads for ten minutes. That part runs in
a process of its own that may have `MEMORY_BYTES`: a value that is small on the way and huge once it is used ends it,
not the machine. A crash or want of memory is told with the payload it came from.
"""

from __future__ import annotations

import copy
import importlib
import os
import pickle
import pickletools
import random
import resource
import struct
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from hypothesis.extra.pandas import column, data_frames, indexes, range_indexes

from sandbox_kernel import frames

from .same import assert_crosses, assert_same
from .test_round_trip import CASES

SECONDS = float(os.environ.get("SANDBOX_FUZZ_S", "6"))
MEMORY_BYTES = 4 << 30  # a text of 70,000 characters in 5,000 rows is 1.4 GB once numpy makes them all as wide
BUDGET = frames.Budget(memory_bytes=2**28, unfolded_bytes=2**23)
QUICK = settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4), st.binary(max_size=4), st.dates(),
    st.datetimes(),
    st.times(), st.timedeltas(), st.decimals(allow_nan=False), st.uuids(), st.fractions(), st.complex_numbers(),
    st.just(pd.NA),
    st.just(pd.NaT),
)  # fmt: skip
KEYS = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=4), st.tuples(st.integers(),
st.text(max_size=2)))
PLAIN = st.recursive(
    SCALARS, lambda inner: st.one_of(
        st.lists(inner, max_size=5), st.tuples(inner, inner), st.dictionaries(KEYS, inner, max_size=4),
        st.frozensets(st.integers(), max_size=3),
        st.lists(st.dictionaries(st.sampled_from("ab"), inner, min_size=2), min_size=8, max_size=9),
    ), max_leaves=12,
)  # fmt: skip
DTYPES = ["int8", "int64", "uint16", "float32", "float64", "bool", "complex128", "datetime64[ns]", "timedelta64[ns]"]
COLUMNS = st.lists(st.one_of(
    st.sampled_from(DTYPES).map(lambda name: column(dtype=np.dtype(name))),
    st.just(column(elements=st.text(max_size=8), dtype=object)), st.just(column(elements=SCALARS, dtype=object)),
), max_size=4)  # fmt: skip
TABLES = COLUMNS.flatmap(lambda them: data_frames(
    [column(name=f"c{number}", dtype=it.dtype, elements=it.elements) for number, it in enumerate(them)],
    index=st.one_of(range_indexes(max_size=6), indexes(dtype="int64", max_size=6)),
))  # fmt: skip


@QUICK
@given(PLAIN)
def test_any_plain_value_comes_back(value: Any) -> None:
    assert_crosses(value)


@settings(QUICK, max_examples=25, phases=[Phase.generate])
@given(TABLES)
def test_any_table_comes_back(frame: pd.DataFrame) -> None:
    assert_crosses(frame)


@QUICK
@given(hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(min_dims=0, max_dims=4, min_side=0)))
def test_any_array_comes_back_or_is_refused(value: Any) -> None:
    try:
        payload, buffers = frames.dumps(value)
    except frames.FrameRefused:
        assert not frames.grammar.DTYPE.fullmatch(value.dtype.str) or "25" in value.dtype.str
        return
    back = frames.loads(payload, buffers)
    assert back.dtype == value.dtype and back.shape == value.shape and back.tobytes() == value.tobytes()


@QUICK
@given(st.binary(max_size=60), st.lists(st.binary(max_size=8), max_size=2))
def test_any_bytes_are_refused_or_read(data: bytes, buffers: list[bytes]) -> None:
    try_to_load(b"\x80\x05" + data, buffers)
    try_to_load(data, buffers)


def test_the_data_of_pandas_own_tests_comes_back() -> None:
    try:
        generate = importlib.import_module("pandas.tests.io.generate_legacy_storage_files")
    except ImportError:
        pytest.skip("this pandas is installed without its tests")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        groups = generate.create_pickle_data()
    for group, values in groups.items():
        for value in values.values():
            if group == "offsets":
                try:
                    payload, _ = frames.dumps(value)
                except frames.FrameRefused as refusal:
                    assert "a date offset of type" in str(refusal).lower()
                else:
                    assert_same(value, frames.loads(payload))
            else:
                assert_crosses(value)


# --- broken payloads ------------------------------------------------------------------------------------------

NUMBERS = [-1, 0, 1, 7, 2**31 - 1, 2**31, -(2**31), 2**40, 2**62, -(2**62), 2**63, 10**30]
TEXTS = [
    "O", "|O8", "V8", "f8", "<f8", ">i8", "|i1", "<U1", "|S1", "<M8[ns]", "<m8[25s]", "F", "C", "../../etc/passwd",
    "Europe/Paris\0x", "",
    "left", "x" * 70_000, "\ud800", "D", "9999999999D", "block", "category", "int64", "c", "m", "v", "N", "s", "p",
    "list", "records", "array",
    "frame", "index", "value", "surrogates", "zoned", "string", "masked", "range", "multi", "texts",
]  # fmt: skip


def opcode(value: Any) -> bytes:
    if isinstance(value, str):
        raw = value.encode("utf-8", "surrogatepass")
        return b"X" + struct.pack("<I", len(raw)) + raw
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def pieces(payload: bytes) -> list[bytes]:
    """The payload's opcodes, without the frames, which would no longer fit."""
    starts = [start for *_, start in pickletools.genops(payload)]
    cut = [payload[start:end] for start, end in zip(starts, [*starts[1:], len(payload)], strict=True)]
    return [piece for piece in cut if piece[0] != 0x95]


def break_pieces(rnd: random.Random, parts: list[bytes]) -> bytes:
    parts = list(parts)
    for _ in range(rnd.choice((1, 1, 1, 2, 4))):
        at = rnd.randrange(1, len(parts))
        code = parts[at][:1]
        choice = rnd.randrange(7)
        if choice == 0 and code in b"\x8cX":
            parts[at] = opcode(rnd.choice(TEXTS))
        elif choice == 0 and code in b"JKM\x8a":
            parts[at] = opcode(rnd.choice(NUMBERS))
        elif choice == 1:
            parts[at] = rnd.choice((b"N", b"]", b"}", b")", b"\x88", b"\x8f", b"\x97", opcode(0), opcode(""), b"C\0",
            b"(t", b"G" + bytes(8)))
        elif choice == 2:
            parts[at] = b""
        elif choice == 3:
            parts[at] *= 2
        elif choice == 4:
            other = rnd.randrange(1, len(parts))
            parts[at], parts[other] = parts[other], parts[at]
        elif choice == 5 and code in b"JKM\x8a":  # a length that is told in several places
            old, new = parts[at], opcode(rnd.choice(NUMBERS))
            parts = [new if part == old else part for part in parts]
        else:
            start, end = sorted((rnd.randrange(1, len(parts)), rnd.randrange(1, len(parts))))
            parts[at:at] = parts[start : min(end, start + 12)]
    return b"".join(parts)


def break_bytes(rnd: random.Random, raw: bytes) -> bytes:
    data = bytearray(raw)
    for _ in range(rnd.choice((1, 1, 2, 8))):
        if data:
            data[rnd.randrange(len(data))] = rnd.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF, rnd.randrange(256)))
    return bytes(data[: rnd.randrange(len(data) + 1)] if rnd.random() < 0.1 else data)


def broken(rnd: random.Random) -> Iterator[tuple[bytes, list[bytes]]]:
    seeds = []
    for build in CASES.values():
        payload, buffers = frames.dumps(build())
        seeds.append((payload, pieces(payload), [bytes(buffer) for buffer in buffers]))
    while True:
        payload, parts, buffers = rnd.choice(seeds)
        if rnd.random() < 0.7:
            yield break_pieces(rnd, parts), buffers
        elif buffers and rnd.random() < 0.6:
            at = rnd.randrange(len(buffers))
            changed = break_bytes(rnd, buffers[at]) if rnd.random() < 0.7 else rnd.choice((
                b"\xff" * len(buffers[at]), b"\x7f" * len(buffers[at]), bytes(len(buffers[at])), buffers[at][::-1],
                buffers[at] * 2,
                struct.pack("<q", -(2**63)) * (len(buffers[at]) // 8),
            ))  # fmt: skip
            yield payload, [*buffers[:at], changed, *buffers[at + 1 :]]
        else:
            yield break_bytes(rnd, payload), buffers


def use(value: Any, depth: int = 0) -> None:
    """What people do with a value. An exception is fine, a crash is not."""
    acts: list[Callable[[], Any]] = [lambda: repr(value), lambda: hash(value), lambda: value == value,
    lambda: copy.deepcopy(value)]
    if isinstance(value, (list, tuple, dict, set)) and depth < 3:
        for inner in list(value)[:5]:
            use(inner, depth + 1)
    if isinstance(value, (pd.DataFrame, pd.Series, pd.Index, pd.api.extensions.ExtensionArray)):
        acts += [
            lambda: value.copy(), lambda: value.isna(), lambda: value.astype(object), lambda: value.astype(str),
            lambda: value.take([0, -1]),
            lambda: value[:3], lambda: value[::-1], lambda: np.asarray(value), lambda: value.nunique(),
            lambda: value.unique(),
            lambda: value.sort_values(), lambda: value.value_counts(), lambda: value.factorize(),
            lambda: pd.concat([value, value]),
            lambda: value.describe(), lambda: value.to_dict(), lambda: value.reset_index(),
            lambda: value.groupby(level=0).size(),
            lambda: value.cat.codes, lambda: value.dt.year, lambda: value.str.upper(), lambda: value.max(),
            lambda: value.sum(),
        ]  # fmt: skip
    if isinstance(value, np.ndarray):
        acts += [value.copy, lambda: value.astype(str), lambda: value.astype(object), lambda: np.sort(value.ravel()),
        value.tolist]
    for act in acts:
        try:
            act()
        except MemoryError:
            raise  # the gate let something through that is far larger than its budget
        except Exception:
            continue
    if isinstance(value, pd.DataFrame) and depth < 2:
        for place in range(min(4, value.shape[1])):
            use(value.iloc[:, place], depth + 1)
        use(value.index, depth + 1)


def try_to_load(data: bytes, buffers: list[bytes]) -> bool:
    began = time.thread_time()
    try:
        value = frames.loads(data, buffers, budget=BUDGET)
        for _ in range(2):  # once to follow the decoder, once by what was followed
            assert type(frames.loads(data, buffers, budget=BUDGET)) is type(value)
    except frames.FrameRefused as refusal:
        assert len(str(refusal)) < 500 and "too little memory" not in str(refusal)
        return False
    finally:
        assert time.thread_time() - began < 10
    if getattr(value, "size", 0) < 10**6:
        use(value)
    return True


def test_broken_payloads_do_no_harm(tmp_path: Path) -> None:
    seed = random.randrange(2**32) if SECONDS > 60 else 7
    last = tmp_path / "last"
    last.touch()
    done = subprocess.run(
        [sys.executable, "-m", __name__, str(seed), str(SECONDS), str(last)],
        cwd=Path(__file__).parents[2], capture_output=True, text=True,
    )  # fmt: skip
    print(done.stdout)
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-3000:]}\npayload, buffers: {last.read_bytes()[:3000]!r}"


def break_payloads(seed: int, seconds: float, last: int) -> None:
    """The work of the child; `last` is a file that has the payload at hand, for whoever looks into the death."""
    rnd = random.Random(seed)
    end, count, read = time.monotonic() + seconds, 0, 0
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for data, buffers in broken(rnd):
            note = pickle.dumps((data, buffers))
            os.ftruncate(last, os.pwrite(last, note, 0))
            read += try_to_load(data, buffers)
            count += 1
            if time.monotonic() > end:
                break
    print(f"seed {seed}: {count} broken payloads, {read} of them still read")
    assert count > 20 and read < count


def cap_memory(size: int) -> None:
    """Let this process have so many bytes more than it has. Pages of files do not count."""
    pages = int(Path("/proc/self/statm").read_text().split()[5])  # of data and stack
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (pages * resource.getpagesize() + size, hard))


if __name__ == "__main__":
    cap_memory(MEMORY_BYTES)
    with pytest.raises(MemoryError):
        np.empty(2 * MEMORY_BYTES, "i1")  # the cap holds
    break_payloads(int(sys.argv[1]), float(sys.argv[2]), os.open(sys.argv[3], os.O_WRONLY | os.O_CREAT))
