"""Constructors for pandas, out of arrays that have been checked, by public constructors that check again."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from .construct import integers
from .construct_numpy import Array, build_array
from .construct_texts import build_string, few_labels
from .grammar import COLUMN_DTYPE, FLAT, FREQUENCY, LABEL_DEPTH, LENGTH, LEVELS, SLOW_FREQUENCY_LENGTH
from .receiver import TooMuch

if TYPE_CHECKING:
    from .receiver import Receiver


def _flat(array: Any, kinds: str) -> Array:
    """A one-dimensional array of numbers whose dtype pandas keeps."""
    if type(array) is not np.ndarray or array.ndim != 1 or array.dtype.kind not in kinds:
        raise ValueError("a column is not made of numbers")
    if not COLUMN_DTYPE.fullmatch(array.dtype.str):
        raise ValueError("a column has a dtype that pandas does not keep")
    return array


def _mask(array: Any, length: int) -> Array:
    if _flat(array, "b").shape != (length,):
        raise ValueError("a mask has another length than its values")
    return array  # type: ignore[no-any-return]


def _frequency(text: Any) -> Any:
    if type(text) is not str or not FREQUENCY.fullmatch(text):
        raise ValueError("a frequency is none")
    return pd.tseries.frequencies.to_offset(text)


def _index_argument(index: Any) -> pd.Index:
    if not isinstance(index, pd.Index):
        raise ValueError("an index is none")
    return index


def _check_labels(labels: Iterable[Any]) -> None:
    """Raises: TooMuch: tuples in tuples, which some libraries write as text that doubles with each: `to_parquet`."""
    level = [label for label in labels if type(label) is tuple]
    for _ in range(LABEL_DEPTH):
        level = [part for label in level for part in label if type(part) is tuple]
        if not level:
            return
    raise TooMuch(f"a label has tuples nested more than {LABEL_DEPTH} deep")


def _name(name: Any) -> None:
    """Checks what is to be the name of an axis or a column."""
    hash(name)
    if type(name) is tuple:
        _check_labels((name,))


def _axis(receiver: Receiver, index: Any) -> pd.Index:
    """The index of a table; it may be given by the arguments of `build_index`, which saves a name and a call."""
    return build_index(receiver, *index) if type(index) is tuple else _index_argument(index)


def _unfold(receiver: Receiver, index: pd.Index) -> None:
    """Account for a range that pandas is about to make an array of: as categories, as a level."""
    if isinstance(index, pd.RangeIndex):
        receiver.charge(16 * len(index))


def _rows_have_data(receiver: Receiver, index: pd.Index, rows: int) -> None:
    """Take back what a range promised: there is at least a byte of data for each of its labels."""
    if type(index) is pd.RangeIndex:
        receiver.promise(-8 * rows)


# --- extension arrays ---------------------------------------------------------------------------------------


def build_extension(receiver: Receiver, kind: Any, *parts: Any) -> Any:
    return _EXTENSIONS[kind](receiver, *parts)


def _categorical(receiver: Receiver, codes: Any, categories: Any, ordered: Any) -> Any:
    if type(ordered) is not bool or isinstance(categories, pd.MultiIndex):
        raise ValueError("categories are none")
    _unfold(receiver, _index_argument(categories))
    receiver.check_labels(categories)
    # from_codes checks that every code has a category, and the dtype that the categories are distinct.
    dtype = pd.CategoricalDtype(categories, ordered)
    return pd.Categorical.from_codes(_flat(codes, "i"), dtype=dtype)


def _zoned(receiver: Receiver, moments: Any, zone: Any) -> Any:
    return _zoned_index(moments, zone).array


def _zoned_index(moments: Any, zone: Any) -> Any:
    import datetime as dt

    if not isinstance(zone, dt.tzinfo):
        raise ValueError("a time zone is none")
    return pd.DatetimeIndex(_flat(moments, "M"), copy=False).tz_localize("UTC").tz_convert(zone)


def _period_dtype(frequency: Any) -> Any:
    if type(frequency) is not str or not FREQUENCY.fullmatch(frequency):
        raise ValueError("a frequency is none")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some frequencies of periods are on their way out
        return pd.PeriodDtype(frequency)


def _period(receiver: Receiver, ordinals: Any, frequency: Any) -> Any:
    if _flat(ordinals, "i").dtype != np.int64:
        raise ValueError("periods are not 64-bit")
    return pd.arrays.PeriodArray(ordinals, dtype=_period_dtype(frequency))


def _interval(receiver: Receiver, left: Any, right: Any, closed: Any) -> Any:
    if closed not in ("left", "right", "both", "neither"):
        raise ValueError("an interval is closed nowhere")
    for end in (left, right):
        if not (type(end) is np.ndarray and end.ndim == 1 and end.dtype.kind in "iufMm") and not isinstance(
            end, pd.arrays.DatetimeArray
        ):
            raise ValueError("the ends of intervals are none")
    return pd.arrays.IntervalArray.from_arrays(left, right, closed=closed)


def _sparse(receiver: Receiver, kind: Any, length: Any, values: Any, places: Any, fill: Any) -> Any:
    integers(length)
    values, places = _flat(values, "biufcMm"), _flat(places, "i")
    if kind not in ("integer", "block") or not 0 <= length < LENGTH or places.dtype != np.int32:
        raise ValueError("a sparse column has no length or places")
    if len(values) != len(places) or np.shape(fill) or not (np.isscalar(fill) or fill is pd.NaT):
        raise ValueError("a sparse column has other places than values")
    if len(places) and (places[0] < 0 or places[-1] >= length or (places[1:] <= places[:-1]).any()):
        raise ValueError("the places of a sparse column are not in order")
    receiver.promise_sparse(length)
    if hasattr(pd.arrays.SparseArray, "from_indices"):
        return pd.arrays.SparseArray.from_indices(values, places, length, fill, kind)
    # Before pandas 3.1 no public constructor takes places.
    from pandas._libs.sparse import IntIndex

    index = IntIndex(length, places, check_integrity=True)
    return pd.arrays.SparseArray(
        values, sparse_index=index if kind == "integer" else index.to_block_index(), fill_value=fill,
        dtype=pd.SparseDtype(values.dtype, fill),
    )  # fmt: skip


def _masked(receiver: Receiver, values: Any, missing: Any) -> Any:
    values = _flat(values, "biuf")
    missing = _mask(missing, len(values))
    if values.dtype.str[0] == ">":
        raise ValueError("a nullable column has a foreign byte order")
    arrays = {"b": pd.arrays.BooleanArray, "f": pd.arrays.FloatingArray}
    return arrays.get(values.dtype.kind, pd.arrays.IntegerArray)(values, missing)


def _arrow(receiver: Receiver, text: Any, values: Any, missing: Any) -> Any:
    from .arrow import NUMBERS, TEXTS, build_arrow

    if text in NUMBERS and type(values) is np.ndarray and values.dtype.str == NUMBERS[text]:
        return build_arrow(receiver, text, _masked(receiver, values, missing), None)
    if text in TEXTS and missing is None:
        return build_arrow(receiver, text, build_string(receiver, "python", "NA", values), None)
    raise ValueError("an Arrow column is of no known type")


def _numpy(receiver: Receiver, array: Any) -> Any:
    """The extension array that pandas wraps an ndarray in."""
    if type(array) is not np.ndarray or array.ndim != 1:
        raise ValueError("an array is none")
    if array.dtype.kind in "Mm":
        index = pd.DatetimeIndex if array.dtype.kind == "M" else pd.TimedeltaIndex
        return index(_flat(array, "Mm"), copy=False).array
    return pd.arrays.NumpyExtensionArray(array)


_EXTENSIONS: dict[Any, Callable[..., Any]] = {
    "categorical": _categorical, "zoned": _zoned, "period": _period, "interval": _interval, "sparse": _sparse,
    "masked": _masked, "string": build_string, "arrow": _arrow, "numpy": _numpy,
}  # fmt: skip


# --- index --------------------------------------------------------------------------------------------------


def build_index(receiver: Receiver, kind: Any, parts: Any, name: Any) -> pd.Index:
    if type(parts) is not tuple:
        raise ValueError("an index has no parts")
    _name(name)
    return _INDEXES[kind](receiver, name, *parts)


def _range(receiver: Receiver, name: Any, start: Any, stop: Any, step: Any) -> pd.Index:
    integers(start, stop, step)
    far = max(start, stop, step) >= 2**62 or min(start, stop, step) <= -(2**62)
    if far or (length := len(labels := range(start, stop, step))) > LENGTH:
        raise ValueError("a range of labels is too long")
    receiver.promise(8 * length)
    return pd.RangeIndex.from_range(labels, name=name)


def _multi(receiver: Receiver, name: Any, levels: Any, codes: Any, sortorder: Any, names: Any) -> pd.Index:
    if any(type(part) is not tuple for part in (levels, codes, names)) or not 0 < len(levels) <= LEVELS:
        raise ValueError("an index has no levels")
    if len({len(levels), len(codes), len(names)}) != 1 or name is not None:
        raise ValueError("an index has other levels than codes or names")
    if sortorder is not None:
        integers(sortorder)
    _check_labels(names)
    for part, code in zip(levels, codes, strict=True):
        if isinstance(_index_argument(part), pd.MultiIndex):
            raise ValueError("a level is no plain index")
        _unfold(receiver, part)
        # pandas checks too, but only after it has made the codes as narrow as the level needs.
        if len(_flat(code, "i")) and (code.min() < -1 or code.max() >= len(part)):
            raise ValueError("a code has no label")
        receiver.check_labels(part)
    return pd.MultiIndex(
        levels=levels, codes=list(codes), sortorder=sortorder, names=list(names),
        verify_integrity=True, copy=False,
    )  # fmt: skip


def _plain(receiver: Receiver, name: Any, values: Any, frequency: Any) -> pd.Index:
    values = _column(values)
    if len(values) > LENGTH:
        raise ValueError("an index is too long")
    if type(values) is np.ndarray and values.dtype == object:
        _check_labels(values)
        index = pd.Index(values, dtype=object, copy=False, tupleize_cols=False, name=name)
    elif isinstance(getattr(values, "dtype", None), pd.StringDtype):
        # Told its type, pandas does not look whether the texts are a range.
        index = pd.Index(values, dtype=values.dtype, copy=False, name=name)
    else:
        index = pd.Index(values, copy=False, name=name)
    if frequency is None:
        return index
    offset = _frequency(frequency)
    slow = not isinstance(offset, pd.tseries.offsets.Tick) and frequency not in ("D", "1D")
    if not isinstance(index, (pd.DatetimeIndex, pd.TimedeltaIndex)) or (slow and len(index) > SLOW_FREQUENCY_LENGTH):
        raise ValueError("an index has a frequency that it cannot have")
    index.freq = offset  # checks that the labels follow it
    return index


def _texts(receiver: Receiver, name: Any, storage: Any, missing: Any, column: Any) -> pd.Index:
    index = few_labels(receiver, storage, missing, column)
    if index is None:
        return _plain(receiver, name, build_string(receiver, storage, missing, column), None)
    if name is not None:
        index.name = name
    return index


_INDEXES: dict[Any, Callable[..., pd.Index]] = {"range": _range, "multi": _multi, "array": _plain, "texts": _texts}


# --- tables -------------------------------------------------------------------------------------------------


def _column(values: Any) -> Any:
    """Values that a column or an index can have."""
    if type(values) is np.ndarray:
        if values.ndim != 1:
            raise ValueError("a column has other than one dimension")
        return values if values.dtype == object else _flat(values, "biufcMm")
    if not isinstance(values, pd.api.extensions.ExtensionArray):
        raise ValueError("a column is none")
    return values


def build_frame(receiver: Receiver, labels: Any, index: Any, data: Any, attrs: Any, duplicates: Any) -> pd.DataFrame:
    labels, index = _axis(receiver, labels), _axis(receiver, index)
    rows = len(index)
    if type(data) is tuple and len(data) == 4 and type(data[0]) is str:
        data = build_array(receiver, *data)
    if type(data) is np.ndarray:
        if data.shape != (rows, len(labels)) or not COLUMN_DTYPE.fullmatch(data.dtype.str):
            raise ValueError("a table has another shape than labels")
        frame = pd.DataFrame(data, index=index, columns=labels, copy=False)
        if data.size:
            _rows_have_data(receiver, index, rows)
    else:
        if type(data) is not tuple or len(data) != len(labels):
            raise ValueError("a table has other columns than labels")
        columns = {}
        for number, values in enumerate(data):
            if len(_column(values)) != rows:
                raise ValueError("a column has another length than the index")
            columns[number] = _unchanged(values, index)
        frame = pd.DataFrame(columns, index=index, copy=False)
        frame.columns = labels
        if not all(map(_is_sparse, data)):
            _rows_have_data(receiver, index, rows)
    return _finished(receiver, frame, attrs, duplicates)


def _is_sparse(values: Any) -> bool:
    return isinstance(values, pd.arrays.SparseArray)


def _unchanged(values: Any, index: pd.Index) -> Any:
    """Objects as a Series, which says what they are; out of a bare array of strings pandas makes a str column."""
    if type(values) is np.ndarray and values.dtype == object:
        return pd.Series(values, index=index, dtype=object, copy=False)
    return values


def build_series(receiver: Receiver, data: Any, index: Any, name: Any, attrs: Any, duplicates: Any) -> pd.Series:
    values, index = _column(data), _axis(receiver, index)
    if len(values) != len(index):
        raise ValueError("a column has another length than the index")
    _name(name)
    dtype = object if type(values) is np.ndarray and values.dtype == object else None
    series = pd.Series(values, index=index, name=name, dtype=dtype, copy=False)
    if not _is_sparse(values):
        _rows_have_data(receiver, index, len(values))
    return _finished(receiver, series, attrs, duplicates)


def _finished(receiver: Receiver, table: Any, attrs: Any, duplicates: Any) -> Any:
    if type(duplicates) is not bool:
        raise ValueError("a flag is none")
    if attrs is not None:
        if type(attrs) is not dict:
            raise ValueError("attrs are none")
        table.attrs = attrs
    if not duplicates:
        for axis in table.axes:
            receiver.check_labels(axis)
        table.flags.allows_duplicate_labels = False
    return table


# --- scalars ------------------------------------------------------------------------------------------------


def _moment(value: Any, unit: Any, letter: str) -> Any:
    integers(value)
    if unit not in ("s", "ms", "us", "ns"):
        raise ValueError("a moment has no unit")
    return np.array([value], np.int64).view(f"{letter}8[{unit}]")[0]


def _timestamp(receiver: Receiver, value: Any, unit: Any, zone: Any) -> Any:
    moment = _moment(value, unit, "M")
    if zone is None:
        return pd.Timestamp(moment)
    return _zoned_index(np.array([moment]), zone)[0]


def _timedelta(receiver: Receiver, value: Any, unit: Any) -> Any:
    return pd.Timedelta(_moment(value, unit, "m"))


def _one_period(receiver: Receiver, ordinal: Any, frequency: Any) -> Any:
    integers(ordinal)
    return pd.Period(ordinal=ordinal, freq=_period_dtype(frequency).freq)


def _one_interval(receiver: Receiver, left: Any, right: Any, closed: Any) -> Any:
    for end in (left, right):
        if type(end) not in FLAT and not isinstance(end, (np.number, pd.Timestamp, pd.Timedelta)):
            raise ValueError("the end of an interval is none")
    return pd.Interval(left, right, closed)


SCALARS: dict[str, Callable[..., Any]] = {
    "timestamp": _timestamp, "pandas timedelta": _timedelta, "period": _one_period, "interval": _one_interval,
    "offset": lambda receiver, text: _frequency(text), "NA": lambda receiver: pd.NA, "NaT": lambda receiver: pd.NaT,
}  # fmt: skip
