"""Equality that forgives nothing: types, dtypes, labels, names, frequencies, zones, byte for byte."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd
from pandas import testing

from sandbox_kernel import frames


def round_trip(value: Any) -> Any:
    """Through the gate, as a receiver sees it: in memory of its own."""
    payload, buffers = frames.dumps(value)
    return frames.loads(payload, [bytearray(buffer) for buffer in buffers])


def assert_crosses(value: Any) -> Any:
    """`value` comes back as it was; returns what came back."""
    back = round_trip(value)
    assert_same(value, back)
    return back


def assert_same(a: Any, b: Any) -> None:
    assert type(a) is type(b), (type(a), type(b))
    if isinstance(a, (pd.DataFrame, pd.Series)):
        check = testing.assert_frame_equal if isinstance(a, pd.DataFrame) else testing.assert_series_equal
        check(a, b, check_exact=True, check_freq=True, check_flags=True, check_index_type="exact")
        assert_same(a.attrs, b.attrs)
        assert_same(a.index, b.index)
        if isinstance(a, pd.DataFrame):
            assert_same(a.columns, b.columns)
            for place in range(a.shape[1]):
                assert_same(a.iloc[:, place].array, b.iloc[:, place].array)
        else:
            assert_same(a.name, b.name)
            assert_same(a.array, b.array)
    elif isinstance(a, pd.MultiIndex):
        testing.assert_index_equal(a, b, exact=True)
        assert_same(list(a.names), list(b.names))
        for left, right in zip(a.levels, b.levels, strict=True):
            assert_same(left, right)
        for left, right in zip(a.codes, b.codes, strict=True):
            assert list(left) == list(right)
    elif isinstance(a, pd.Index):
        testing.assert_index_equal(a, b, exact=True)
        assert_same(a.name, b.name)
        assert getattr(a, "freq", None) == getattr(b, "freq", None)
        assert_same(a.array, b.array)
    elif isinstance(a, pd.api.extensions.ExtensionArray):
        testing.assert_extension_array_equal(a, b, check_exact=True)
        assert_same_dtype(a.dtype, b.dtype)
        if a.dtype == object:
            assert_same(list(a), list(b))
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype and a.shape == b.shape
        if a.dtype == object:
            assert_same(a.ravel().tolist(), b.ravel().tolist())
        else:
            assert a.tobytes() == b.tobytes()
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for left, right in zip(a, b, strict=True):
            assert_same(left, right)
    elif isinstance(a, dict):
        assert_same(list(a), list(b))
        assert_same(list(a.values()), list(b.values()))
    elif a is None or a is pd.NA or a is pd.NaT:
        assert a is b
    elif isinstance(a, (dt.datetime, dt.time)):
        assert a == b and a.fold == b.fold
        assert_same_zone(a.tzinfo, b.tzinfo)
    else:
        assert repr(a) == repr(b) and (a == b or a != a), (a, b)


def assert_same_dtype(a: Any, b: Any) -> None:
    assert type(a) is type(b) and a == b
    if isinstance(a, pd.DatetimeTZDtype):
        assert_same_zone(a.tz, b.tz)
    elif isinstance(a, pd.StringDtype):
        assert a.storage == b.storage and (a.na_value is pd.NA) == (b.na_value is pd.NA)
    elif isinstance(a, pd.CategoricalDtype):
        assert_same(a.categories, b.categories)


def assert_same_zone(a: dt.tzinfo | None, b: dt.tzinfo | None) -> None:
    assert type(a).__module__.split(".")[0] == type(b).__module__.split(".")[0] and str(a) == str(b)
