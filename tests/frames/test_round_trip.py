"""What crosses the frame gate comes back as it was."""

from __future__ import annotations

import contextlib
import datetime as dt
import zoneinfo
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pytest

from sandbox_kernel import frames

from .same import assert_crosses, round_trip

PANDAS_3 = int(pd.__version__.partition(".")[0]) >= 3
PARIS = zoneinfo.ZoneInfo("Europe/Paris")


def objects(*values: Any) -> pd.Series:
    return pd.Series(list(values), dtype=object)


def days(count: int, **options: Any) -> pd.DatetimeIndex:
    return pd.date_range("2021-10-29", periods=count, **options)


def with_attrs() -> pd.DataFrame:
    frame = pd.DataFrame({"a": [1]})
    frame.attrs = {"source": "x", "numbers": [1, {"k": 2.5}], "when": dt.date(2020, 1, 1)}
    return frame


NUMBERS = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    "complex64", "complex128",
]  # fmt: skip
CASES: dict[str, Callable[[], Any]] = {
    **{f"numbers-{name}": lambda name=name: pd.DataFrame({"a": np.array([0, 1, 1, 0], name)}) for name in NUMBERS},
    **{f"moments-{unit}": lambda unit=unit: pd.DataFrame({"t": np.array([1, -1, 2**62], f"M8[{unit}]")})
       for unit in ("ms", "us", "ns")},
    **{f"spans-{unit}": lambda unit=unit: pd.Series(np.array([5, -5, -(2**63)], f"m8[{unit}]"))
       for unit in ("ms", "us", "ns")},
    "big-endian": lambda: np.arange(5, dtype=">i4"),
    "zone-of-zoneinfo": lambda: pd.DataFrame({"t": days(60, freq="h", tz=PARIS)}),
    "zone-utc": lambda: pd.Series(days(3, tz=dt.UTC)),
    "zone-offset": lambda: pd.Series(days(3, tz=dt.timezone(dt.timedelta(hours=-5, minutes=-30)))),
    "zone-of-dateutil": lambda: pd.Series(days(3, tz="dateutil/Asia/Tokyo")),
    "zone-offset-of-dateutil": lambda: pd.Timestamp("2020-01-01T00:00+02:00").to_pydatetime(),
    "zone-named": lambda: dt.datetime(2020, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1), "ONE")),
    "categories": lambda: pd.DataFrame({"c": pd.Categorical(["a", "b", None, "a"])}),
    "categories-in-order": lambda: pd.Series(pd.Categorical(["lo", "hi"], ["lo", "mid", "hi"], ordered=True)),
    "categories-of-numbers": lambda: pd.Series(pd.Categorical(np.arange(5000) % 300 + 0.5)),
    "categories-of-intervals": lambda: pd.Series(pd.cut([1, 5, 9], [0, 3, 6, 10])),
    "categories-of-a-range": lambda: pd.Series(pd.Categorical.from_codes([0, 2, -1], pd.RangeIndex(3))),
    "categories-none": lambda: pd.Series(pd.Categorical([None, None], categories=[])),
    "nullable": lambda: pd.DataFrame({name: pd.array([1, None, 0], name) for name in
                                      ("Int8", "Int64", "UInt16", "UInt64", "Float32", "Float64", "boolean")}),
    "periods": lambda: pd.DataFrame({name: pd.period_range("2020", periods=4, freq=name)
                                     for name in ("D", "M", "Q-MAR", "h", "W-SUN", "2h", "min")}),
    "intervals": lambda: pd.Series(pd.interval_range(0, 4)),
    "intervals-with-holes": lambda: pd.Series(
        pd.arrays.IntervalArray.from_tuples([(0.5, 1.5), np.nan, (2.0, 3.0)], closed="both")),
    "intervals-of-time": lambda: pd.IntervalIndex.from_breaks(days(4, tz=PARIS), name="i"),
    "sparse": lambda: pd.DataFrame({"i": pd.arrays.SparseArray([0, 0, 1, 0, 2]),
                                    "b": pd.arrays.SparseArray([0, 0, 1, 1, 2], kind="block"),
                                    "f": pd.arrays.SparseArray([np.nan, 1.0, np.nan, np.nan, 2.0])}),
    "strings": lambda: objects("a", None, "éü", "", "日本", "\0x", "🙂"),
    "strings-default": lambda: pd.DataFrame({"s": ["a", "b", None]}),
    "strings-nullable": lambda: pd.Series(["a", None, "c"], dtype="string"),
    "strings-python": lambda: pd.Series(["a", None, "c"], dtype="string[python]"),
    "strings-with-separators": lambda: objects(*"\0\x1f\x1e\x1d\x1c\ue000\uf8ff\1", "a,b"),
    "strings-with-surrogates": lambda: objects("ok", "\ud800", "\udfff!"),
    "strings-empty": lambda: objects(*[""] * 50),
    "strings-one-empty": lambda: objects(""),
    "strings-repeated": lambda: objects(*["north", "south", "east"] * 700),
    "strings-repeated-with-holes": lambda: objects(*["north", None, "south", np.nan, pd.NA, "east"] * 700),
    "strings-long-and-repeated": lambda: pd.Series(["x" * 300, "é" * 300, None] * 400).astype("string"),
    "objects-decimal-repeated": lambda: objects(*[Decimal("1." + "5" * 100), Decimal(7)] * 600),
    "strings-equal-not-same": lambda: objects(*["".join(["no", "rth"]) for _ in range(3000)]),
    "strings-repeated-default": lambda: pd.Series(["north", "south", None, "é"] * 700),
    "strings-many": lambda: pd.DataFrame({
        name: pd.Series(them, dtype=dtype) for dtype in ("str", "string", "string[python]") for name, them in {
            f"{dtype}-plain": [f"name {n}" for n in range(1000)],
            f"{dtype}-holes": [None if n % 3 else f"é {n}" for n in range(1000)],
            f"{dtype}-empty": [""] * 400 + [f"{n}" for n in range(600)],
            f"{dtype}-separators": ["\0\x1f\x1e" + str(n) for n in range(1000)],
            f"{dtype}-first-separator": ["\0" + str(n) for n in range(1000)],
            f"{dtype}-nothing": [None] * 1000,
            f"{dtype}-repeated": ["north", None, "", "é"] * 250,
            f"{dtype}-one": ["same"] * 1000,
        }.items()}) if PANDAS_3 else pd.DataFrame(),
    "objects-decimal": lambda: objects(*map(Decimal, ("1.10", "-0", "1E+5", "NaN", "Infinity", "-7E-9")), None),
    "objects-dates": lambda: objects(dt.date(2020, 2, 29), dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 1, 2, 3, 4),
                                     dt.time(1, 2, 3), dt.timedelta(days=-3, microseconds=7), dt.timedelta.max),
    "objects-fold": lambda: objects(dt.datetime(2021, 10, 31, 2, 30, fold=1, tzinfo=PARIS),
                                    dt.datetime(2021, 1, 1, fold=1),
                                    dt.time(1, fold=1, tzinfo=dt.UTC)),
    "objects-uuid": lambda: objects(UUID(int=0), UUID(int=2**128 - 1), b"", b"\0\xff", b"x" * 300),
    "objects-mixed": lambda: objects(1, 1.0, True, "1", None, np.nan, pd.NA, pd.NaT, 2**70, -1, b"1", 1j, float("inf")),
    "objects-nested": lambda: objects([1, [2, "x"]], {"k": (1, 2), 3: None}, (1,), {1, 2}, frozenset("ab"), [], {}),
    "objects-of-pandas": lambda: objects(pd.Timestamp("2020-01-01"), pd.Timestamp("2020", tz="Asia/Tokyo"),
                                         pd.Timedelta("1D"), pd.Period("2020Q1"), pd.Interval(0, 1)),
    "objects-of-numpy": lambda: objects(np.float32(1.5), np.int8(-3), np.datetime64("2020-01-01"), np.bool_(True),
                                        np.str_("é"), np.str_(""), np.bytes_(b"x"), np.complex64(1j),
                                        np.timedelta64(3, "h"), np.datetime64("NaT", "s")),
    "objects-with-frames": lambda: objects(pd.DataFrame({"a": [1]}), np.arange(3), pd.Series(["x"])),
    "objects-many-kinds": lambda: objects(*[1, "x", None, 2.5, True, b"y", pd.NA, {"k": [1]}, Decimal("1.5")] * 300),
    "rows-multi": lambda: pd.DataFrame(
        {"v": range(6)}, pd.MultiIndex.from_product([["a", "b"], [1, 2, 3]], names=["x", "y"])),
    "rows-multi-of-ranges": lambda: pd.DataFrame(
        {"v": range(3)}, pd.MultiIndex([pd.RangeIndex(4), pd.RangeIndex(9, 5, -2)], [[0, 1, 3], [0, 1, 1]])),
    "rows-multi-with-holes": lambda: pd.Series(
        [1, 2, 3], pd.MultiIndex.from_arrays([["a", None, "b"], [1.0, np.nan, 2.0]])),
    "columns-multi": lambda: pd.DataFrame(
        np.ones((1, 4)), columns=pd.MultiIndex.from_product([["p", "q"], ["r", "s"]])),
    "columns-twice": lambda: pd.DataFrame([[1, 2.5, "x"]], columns=["a", "a", "b"]),
    "columns-odd": lambda: pd.DataFrame([[1, 2, 3, 4]], columns=pd.Index(
        [0, None, ("t", 1), dt.date(2020, 1, 1)], dtype=object, tupleize_cols=False)),
    "rows-with-frequency": lambda: pd.DataFrame({"v": range(5)}, index=days(5, freq="D")),
    "rows-with-calendar": lambda: pd.DataFrame({"v": range(5)}, index=days(5, freq="B", tz=PARIS)),
    "rows-of-spans": lambda: pd.Series(range(3), index=pd.timedelta_range("1h", periods=3, freq="90min")),
    "rows-range": lambda: pd.DataFrame({"v": range(3)}, index=pd.RangeIndex(10, 4, -2, name=("r", 1))),
    "empty": pd.DataFrame,
    "empty-columns": lambda: pd.DataFrame(index=["x", "y"]),
    "empty-columns-of-a-range": lambda: pd.DataFrame(index=range(5)),
    "empty-rows-of-a-block": lambda: pd.DataFrame(np.empty((0, 5))),
    "empty-rows": lambda: pd.DataFrame({"a": np.array([], "i4"), "s": pd.array([], "string"), "c": pd.Categorical([]),
                                        "o": np.array([], object)}),
    "layout-c": lambda: pd.DataFrame(np.random.default_rng(1).random((50, 7))),
    "layout-f": lambda: pd.DataFrame(np.asfortranarray(np.random.default_rng(1).random((50, 7)))),
    "layout-strided": lambda: pd.DataFrame(np.random.default_rng(1).random((60, 8)))[::3].iloc[:, ::2],
    "layout-reversed": lambda: pd.DataFrame({"a": np.arange(300)[::-1], "b": np.arange(300.0)})[::-1],
    "attrs": with_attrs,
    "flags": lambda: pd.DataFrame({"a": [1]}).set_flags(allows_duplicate_labels=False),
    "series": lambda: pd.Series([1, 2], name=("a", 1)),
    "index": lambda: pd.Index(["x", "y"], name="n"),
    "array-3d": lambda: np.random.default_rng(1).random((3, 4, 5)),
    "array-0d": lambda: np.array(5.0),
    "array-empty": lambda: np.empty((0, 3), "f4"),
    "array-of-nothing": lambda: [np.empty((3, 0)), np.empty((2, 0), object), np.ndarray(2, "U0"), np.ndarray(2, "S0")],
    "array-of-objects": lambda: np.array([[1, "a"], [None, [2]]], dtype=object),
    "array-text": lambda: np.array(["ab", "日本語", ""]),
    "array-bytes": lambda: np.array([b"ab", b""]),
    "arrays-of-pandas": lambda: [pd.array([1, None]), pd.array(["a"]), days(2).array, pd.array([1.5], "Float64"),
                                 pd.timedelta_range("1h", periods=2).array,
                                 pd.arrays.NumpyExtensionArray(np.arange(2))],
    "scalars": lambda: [pd.Timestamp("2020-06-01 12:00:00.123456789", tz=PARIS), pd.Timestamp.max,
                        pd.Timedelta("-1 days 2h"),
                        np.float32(3.25), pd.NaT, pd.NA, pd.offsets.BDay(3), pd.offsets.MonthEnd(), Decimal(1) / 7,
                        Fraction(3, 4), 3 + 4j, range(1, 9, 2), slice(None, 3), dt.UTC, PARIS, UUID(int=7)],
    "plain": lambda: {"a": [1, 2.5, None, True, "x", b"y"], "b": (1, (2, (3,))), 3: {"s": {1, 2}},
                      None: [], (1, "x"): {}},
    "plain-long": lambda: [list(range(2000)), ["a", "b"] * 900, [1, "x", None] * 400, [0.5] * 999, [True] * 999,
                           [b"x" * (i % 3) for i in range(999)], [2**70] * 600, {i: str(i) for i in range(2000)},
                           {(i, "k"): [i] for i in range(900)}],
    "plain-records": lambda: [
        {"id": i, "name": f"n{i}", "tags": ["x"] * (i % 3), "at": dt.date(2020, 1, 1)} for i in range(900)],
    "plain-rows": lambda: [[(i, str(i)) for i in range(900)], [[i, None] for i in range(900)]],
    "plain-with-surrogates": lambda: {"\ud800": ["\udfff", "é"]},
    "frames-in-containers": lambda: {"x": pd.DataFrame({"a": [1]}), "y": [pd.Series([1.5])], "z": (np.arange(900),)},
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_comes_back_as_it_was(name: str) -> None:
    assert_crosses(CASES[name]())


def test_numbers_are_used_in_place_on_both_sides() -> None:
    frame = pd.DataFrame(np.arange(20_000.0).reshape(5000, 4))
    payload, buffers = frames.dumps(frame)
    (buffer,) = buffers
    assert np.shares_memory(np.frombuffer(buffer), frame.to_numpy()) and len(payload) < 1000
    memory = bytearray(buffer)
    back = frames.loads(payload, [memory])
    back.iloc[0, 0] = 7.0
    assert np.frombuffer(memory)[0] == 7.0


@pytest.mark.parametrize(
    "kind", ["Int64", "boolean", "float64", "Sparse[int64]", "category", "period[M]", "datetime64[ns, UTC]"]
)
def test_a_small_table_keeps_the_type_of_each_column(kind: str) -> None:
    """Asked for all of its values at once, a nullable column shows them without its mask, and two types as one."""
    column = pd.Series([0, 1, 1, 0]).astype("datetime64[ns]" if kind.startswith("period") else object)
    column = column.dt.to_period("M") if kind.startswith("period") else pd.to_datetime(
        column.astype("int64"), utc=True
    ) if kind.startswith("datetime") else column.astype("int64").astype(kind)  # fmt: skip
    between = {"a": [1, 2, 3, 4], "b": column, "c": [5, 6, 7, 8]}
    for others in ({}, {"b": column}, {"b": [1, 2, 3, 4]}, {"b": pd.array([0.5] * 4, "Sparse[float64]")}, between):
        assert_crosses(pd.DataFrame({"a": column, **others}))
    assert_crosses(pd.DataFrame({"a": column, "b": ["x"] * 4, "c": column}))
    assert_crosses(pd.DataFrame({"a": column, "b": column}, dtype=object))
    assert_crosses(pd.DataFrame({"a": column, "b": column})[::2])


def test_the_same_texts_twice_are_two_columns() -> None:
    frame = pd.DataFrame({"s": pd.Series(["a", "b", "c"], dtype="string" if not PANDAS_3 else "str")})
    first, second = round_trip(frame), round_trip(frame)
    first.loc[0, "s"] = "changed"
    first["s"].array[1] = "changed"
    first.columns.name = "changed"
    with contextlib.suppress(ValueError, TypeError):  # newer pandas forbids it
        first.columns.array[0] = "changed"
    pd.testing.assert_frame_equal(second, frame)
    pd.testing.assert_frame_equal(round_trip(frame), frame)


def test_columns_that_were_added_are_not_copied_together() -> None:
    frame = pd.DataFrame({"a": np.arange(5000.0)})
    frame["b"] = np.arange(5000.0)
    _, buffers = frames.dumps(frame)
    assert len(buffers) == 2
    assert np.shares_memory(np.frombuffer(buffers[1]), frame["b"].to_numpy())
    assert_crosses(frame)


def test_what_comes_out_of_read_only_memory_can_be_written() -> None:
    payload, buffers = frames.dumps(np.arange(1000))
    back = frames.loads(payload, [bytes(buffer) for buffer in buffers])
    back[0] = 7
    assert back[0] == 7


def test_a_frequency_without_a_name_is_left_behind_and_said() -> None:
    index = pd.date_range("2021-01-01", periods=3, freq=pd.offsets.CustomBusinessDay(weekmask="Mon Tue Fri"))
    with pytest.warns(frames.FrameWarning, match="frequency C"):
        back = round_trip(pd.Series(range(3), index=index))
    assert back.index.freq is None and list(back.index) == list(index)


def test_sharing_is_written_twice() -> None:
    inner = [1, 2]
    one, two = round_trip([inner, inner])
    assert one == two == inner and one is not two
