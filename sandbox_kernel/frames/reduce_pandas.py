"""The sending half for pandas, by public attributes only. Imported when the first pandas value is sent."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from . import columns, names
from .arrow import joined_texts, reduce_arrow
from .grammar import (
    COLUMN_DTYPE,
    FLAT,
    FREQUENCY,
    LENGTH,
    LEVELS,
    SLOW_FREQUENCY_LENGTH,
    FrameWarning,
    Refusal,
    label,
    type_name,
)
from .reduce import REDUCERS, Call, Sender, zone_or_none
from .reduce_numpy import object_column, reduce_array, reduce_objects

_SAMPLE = 512
_REPEATED_BYTES = 40  # a text, on average
_SMALL_FRAME = 10_000  # values; a needless copy of them takes less time than to ask all columns for their types
_TINY_FRAME = 1024  # values; its columns are few enough to be asked all at once
_ADVICE = "Convert it with x.astype(object), or leave it out."


def _values(sender: Sender, values: Any, depth: int) -> Call:
    """The values of a Series, an Index or an extension array."""
    dtype = values.dtype
    if type(values) is pd.arrays.NumpyExtensionArray:
        dtype = values.to_numpy().dtype
    if isinstance(dtype, np.dtype):
        array = values.to_numpy()
        if dtype.kind == "O":
            return reduce_objects(sender, array, depth)
        if not COLUMN_DTYPE.fullmatch(dtype.str):
            raise Refusal(f"a column of dtype {str(dtype)[:80]} cannot pass the frame gate", _ADVICE)
        return reduce_array(sender, array, depth)
    reducer = _EXTENSIONS.get(type(dtype))
    if reducer is None:
        raise Refusal(
            f"a column of dtype {str(dtype)[:80]} ({type_name(type(dtype))}) cannot pass the frame gate", _ADVICE
        )
    return reducer(sender, getattr(values, "array", values), depth)


# --- extension arrays ---------------------------------------------------------------------------------------


def _categorical(sender: Sender, array: Any, depth: int) -> Call:
    codes = reduce_array(sender, array.codes, depth + 1)
    return Call(names.extension, "categorical", codes, _index(sender, array.categories, depth + 1), array.ordered)


def _zoned(sender: Sender, array: Any, depth: int) -> Call:
    moments = pd.DatetimeIndex(array).asi8.view(f"M8[{array.dtype.unit}]")
    return Call(names.extension, "zoned", reduce_array(sender, moments, depth + 1), zone_or_none(array.dtype.tz))


def _period(sender: Sender, array: Any, depth: int) -> Call:
    frequency = _period_frequency(array.dtype)
    return Call(names.extension, "period", reduce_array(sender, pd.PeriodIndex(array).asi8, depth + 1), frequency)


def _period_frequency(dtype: Any) -> str:
    # `dtype.freq.freqstr` has names (ME, QE) that the constructor refuses.
    text = str(dtype).removeprefix("period[").removesuffix("]")
    if not FREQUENCY.fullmatch(text):
        raise Refusal(f"periods of frequency {text[:60]} cannot pass the frame gate")
    return text


def _interval(sender: Sender, array: Any, depth: int) -> Call:
    ends = (_values(sender, end, depth + 1) for end in (array.left, array.right))
    return Call(names.extension, "interval", *ends, array.closed)


def _sparse(sender: Sender, array: Any, depth: int) -> Call:
    dtype = array.dtype
    if not COLUMN_DTYPE.fullmatch(dtype.subtype.str):
        raise Refusal(f"a column of dtype {str(dtype)[:80]} cannot pass the frame gate", _ADVICE)
    places = reduce_array(sender, array.sp_index.indices.astype("<i4", copy=False), depth + 1)
    values = reduce_array(sender, np.asarray(array.sp_values), depth + 1)
    fill = sender.lower(array.fill_value, depth + 1)
    return Call(names.extension, "sparse", array.kind, len(array), values, places, fill)


def _masked(sender: Sender, array: Any, depth: int) -> Call:
    plain = array.dtype.numpy_dtype
    values = array.to_numpy(plain, na_value=np.zeros((), plain)[()])
    return Call(
        names.extension, "masked", reduce_array(sender, values, depth + 1),
        reduce_array(sender, np.asarray(array.isna()), depth + 1),
    )  # fmt: skip


def _string(sender: Sender, array: Any, depth: int) -> Call:
    return Call(names.extension, "string", *_string_parts(sender, array, depth))


def _string_parts(sender: Sender, array: Any, depth: int) -> tuple[str, str, columns.Column]:
    storage = array.dtype.storage
    missing = "nan" if storage == "pyarrow_numpy" or array.dtype.na_value is not pd.NA else "NA"
    storage = "python" if storage == "python" else "pyarrow"
    return storage, missing, _string_column(sender, array, depth + 1)


def _string_column(sender: Sender, array: Any, depth: int) -> columns.Column:
    """The strings, with None for the missing ones. Repeated ones are found without making an object for each row."""
    length = len(array)
    if length >= 2 * _SAMPLE and _is_short(array) and columns.repeats(
        array[:: length // _SAMPLE].to_numpy(object).tolist()
    ):
        codes, uniques = pd.factorize(array)
        if len(uniques) <= length // 4:
            texts = [*uniques.to_numpy(object).tolist()]
            width = columns.code_width(len(texts))
            there = codes >= 0
            if there.all():
                data = sender.data(codes.astype(width).tobytes())
                return "c", length, width, data, columns.joined(texts, sender)
            data = sender.data(codes[there].astype(width).tobytes())
            inner = ("c", int(there.sum()), width, data, columns.joined(texts, sender))
            rows = sender.data((~there).astype(np.uint8).tobytes())
            return "m", length, rows, (inner, ("N", int(length - there.sum())))
    if length >= _SAMPLE and array.dtype.storage != "python":
        column = joined_texts(sender, array)
        if column is not None:
            return column
    values = array.to_numpy(object)
    if length < _SAMPLE and set(map(type, texts := values.tolist())) == {str}:
        return columns.joined(texts, sender)  # as below, without the questions that take longer than a few texts
    missing = np.asarray(array.isna())
    if missing.any():
        values = values.copy()
        values[missing] = None
    return object_column(sender, values, depth)


def _is_short(array: Any) -> bool:
    """Whether repeated texts may be sent once: Arrow memory has each in full, many times the bytes of a long one."""
    return bool(array.dtype.storage == "python" or array.nbytes <= _REPEATED_BYTES * len(array))


_EXTENSIONS: dict[type, Callable[[Sender, Any, int], Call]] = {
    pd.CategoricalDtype: _categorical, pd.DatetimeTZDtype: _zoned, pd.PeriodDtype: _period,
    pd.IntervalDtype: _interval, pd.SparseDtype: _sparse, pd.StringDtype: _string, pd.ArrowDtype: reduce_arrow,
    **dict.fromkeys(
        (pd.Int8Dtype, pd.Int16Dtype, pd.Int32Dtype, pd.Int64Dtype, pd.UInt8Dtype, pd.UInt16Dtype, pd.UInt32Dtype,
         pd.UInt64Dtype, pd.Float32Dtype, pd.Float64Dtype, pd.BooleanDtype),
        _masked,
    ),
}  # fmt: skip


def _array(sender: Sender, array: Any, depth: int) -> Call:
    """An extension array that is sent for itself."""
    call = _values(sender, array, depth + 1)
    plain = type(array) is pd.arrays.NumpyExtensionArray or isinstance(array.dtype, np.dtype)
    return Call(names.extension, "numpy", call) if plain else call


# --- index --------------------------------------------------------------------------------------------------


def _index(sender: Sender, index: Any, depth: int) -> Call:
    name = _label(sender, index.name if index.nlevels == 1 else None, depth + 1, "the name of the index")
    if type(index) is pd.RangeIndex:
        ends = (index.start, index.stop, index.step)
        if max(map(abs, ends)) >= 2**62 or len(index) > LENGTH:  # (in this order: `len` has a limit of its own)
            raise Refusal(f"a pandas.RangeIndex longer than {LENGTH:,}, or so far out, cannot pass the frame gate")
        return Call(names.index, "range", ends, name)
    if type(index) is pd.MultiIndex:
        if index.nlevels > LEVELS:
            raise Refusal(f"a pandas.MultiIndex of {index.nlevels} levels cannot pass the frame gate (most: {LEVELS})")
        levels = tuple(_index(sender, level.rename(None), depth + 2) for level in index.levels)
        codes = tuple(reduce_array(sender, np.asarray(code), depth + 2) for code in index.codes)
        labels = tuple(_label(sender, part, depth + 2, "the name of a level") for part in index.names)
        return Call(names.index, "multi", (levels, codes, index.sortorder, labels), None)
    if type(index) not in _INDEXES:
        raise Refusal(f"an index of type {type_name(type(index))} cannot pass the frame gate",
                      "Convert it with pandas.Index(x) first.")  # fmt: skip
    if type(index) is pd.Index and type(index.dtype) is pd.StringDtype:
        return Call(names.index, "texts", _string_parts(sender, index.array, depth + 1), name)
    values = _values(sender, index, depth + 2)
    return Call(names.index, "array", (values, _frequency(index)), name)


def _frequency(index: Any) -> str | None:
    frequency = getattr(index, "freq", None)
    if frequency is None or type(index) is pd.PeriodIndex:
        return None
    text = frequency.freqstr
    tick = isinstance(frequency, pd.tseries.offsets.Tick) or text in ("D", "1D")
    if FREQUENCY.fullmatch(text) and (tick or len(index) <= SLOW_FREQUENCY_LENGTH) and _offset(text) == frequency:
        return str(text)
    warnings.warn(f"The frequency {text[:60]} of an index was left behind; its values are all there.",
                  FrameWarning, stacklevel=2)  # fmt: skip
    return None


def _offset(text: str) -> Any:
    try:
        return pd.tseries.frequencies.to_offset(text)
    except ValueError:
        return None


def _label(sender: Sender, name: Any, depth: int, where: str) -> Any:
    try:
        return name if type(name) in FLAT else sender.lower(name, depth)
    except Refusal as refusal:
        refusal.path.append(where)
        raise


def _at(where: str, reducer: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return reducer(*arguments)
    except Refusal as refusal:
        refusal.path.append(where)
        raise


_INDEXES = frozenset(
    {pd.Index, pd.DatetimeIndex, pd.TimedeltaIndex, pd.PeriodIndex, pd.CategoricalIndex, pd.IntervalIndex}
)


# --- tables -------------------------------------------------------------------------------------------------


def _frame(sender: Sender, frame: pd.DataFrame, depth: int) -> Call:
    data: Call | tuple[Call, ...] | None = None
    rows, width = frame.shape
    if 0 < rows * width <= _TINY_FRAME:
        data = _tiny_block(sender, frame, width, depth + 1)
    elif width:
        # Two columns are asked for first: each costs ten microseconds.
        data = _block(sender, frame, frame.iloc[:, 0], frame.iloc[:, -1], depth + 1)
    if data is None:
        data = tuple(
            _at(f"column {label(name)}", _values, sender, column, depth + 2) for name, column in frame.items()
        )
    return Call(
        names.frame, _at("the columns", _index, sender, frame.columns, depth + 1).arguments,
        _at("the index", _index, sender, frame.index, depth + 1).arguments,
        data.arguments if type(data) is Call else data, _attrs(sender, frame, depth + 1),
        frame.flags.allows_duplicate_labels,
    )  # fmt: skip


def _block(sender: Sender, frame: pd.DataFrame, first: pd.Series, last: pd.Series, depth: int) -> Call | None:
    """All columns as one array, if they are one already."""
    dtype = first.dtype
    if dtype != last.dtype or not isinstance(dtype, np.dtype) or not COLUMN_DTYPE.fullmatch(dtype.str):
        return None
    if frame.shape[1] > 1:
        # Columns that were added one by one lie apart: joining them would copy all, sending each copies nothing.
        owner = first.to_numpy().base
        if owner is None or owner is not last.to_numpy().base:
            return None
        if frame.size <= _SMALL_FRAME:
            values = frame.to_numpy()  # a view of the owner, or a copy because not all columns are in it
            return reduce_array(sender, values, depth) if values.base is owner else None
        if any(kind != dtype for kind in frame.dtypes):
            return None
    return reduce_array(sender, frame.to_numpy(), depth)


def _tiny_block(sender: Sender, frame: pd.DataFrame, width: int, depth: int) -> Call | None:
    """The same for a few values, in a third of the time."""
    if width == 1 or not _ends_alike(frame, width):
        dtype, *others = set(frame.dtypes.tolist())
        if others or not isinstance(dtype, np.dtype) or not COLUMN_DTYPE.fullmatch(dtype.str):
            return None
    values = frame.to_numpy()
    # What is asked for twice and belongs to the same owner is a view of one array; a copy would have an owner each.
    # (Two columns or more in one array of numbers have its dtype: an extension array of numbers is one column.)
    if values.base is None or values.base is not frame.to_numpy().base or not COLUMN_DTYPE.fullmatch(values.dtype.str):
        return None
    return reduce_array(sender, values, depth)


def _ends_alike(frame: pd.DataFrame, width: int) -> bool:
    """Whether the first and the last column have numbers of one type: to ask all for theirs takes five times as long.

    To make one array of others, which may be of any kind, would take longer than that.
    """
    first = frame.iat[0, 0]
    return isinstance(first, (np.number, np.bool_)) and type(first) is type(frame.iat[0, width - 1])


def _series(sender: Sender, series: pd.Series, depth: int) -> Call:
    return Call(
        names.series, _values(sender, series, depth + 1),
        _at("the index", _index, sender, series.index, depth + 1).arguments,
        _label(sender, series.name, depth + 1, "the name"), _attrs(sender, series, depth + 1),
        series.flags.allows_duplicate_labels,
    )  # fmt: skip


def _attrs(sender: Sender, table: Any, depth: int) -> Any:
    return _at("attrs", sender.lower, table.attrs, depth) if table.attrs else None


# --- scalars ------------------------------------------------------------------------------------------------


def _timestamp(sender: Sender, value: pd.Timestamp, depth: int) -> Call:
    # `value.value` is in nanoseconds and overflows for others; asm8 is UTC in the moment's own unit.
    return Call(names.value, "timestamp", int(value.asm8.view("i8")), value.unit, zone_or_none(value.tzinfo))


def _timedelta(sender: Sender, value: pd.Timedelta, depth: int) -> Call:
    return Call(names.value, "pandas timedelta", int(value.asm8.view("i8")), value.unit)


def _one_period(sender: Sender, value: pd.Period, depth: int) -> Call:
    return Call(names.value, "period", value.ordinal, _period_frequency(pd.PeriodDtype(value.freq)))


def _one_interval(sender: Sender, value: Any, depth: int) -> Call:
    ends = (sender.lower(end, depth + 1) for end in (value.left, value.right))
    return Call(names.value, "interval", *ends, value.closed)


def _date_offset(sender: Sender, value: Any, depth: int) -> Call:
    text = value.freqstr
    if not FREQUENCY.fullmatch(text) or _offset(text) != value:
        kind = type_name(type(value))
        raise Refusal(f"a date offset of type {kind} with options of its own cannot pass the frame gate")
    return Call(names.value, "offset", text)


def _register() -> None:
    arrays = pd.arrays
    REDUCERS.update(dict.fromkeys({*_INDEXES, pd.RangeIndex, pd.MultiIndex}, _index))
    kinds = {
        arrays.BooleanArray, arrays.Categorical, arrays.DatetimeArray, arrays.FloatingArray, arrays.IntegerArray,
        arrays.IntervalArray, arrays.NumpyExtensionArray, arrays.PeriodArray, arrays.SparseArray,
        arrays.StringArray, arrays.ArrowStringArray, arrays.TimedeltaArray, arrays.ArrowExtensionArray,
    }  # fmt: skip
    # Strings with nan for missing are classes of their own without a public name.
    kinds |= {kind for kind in _subclasses(arrays.StringArray) | _subclasses(arrays.ArrowStringArray)
              if kind.__module__.startswith("pandas.core.arrays.")}  # fmt: skip
    REDUCERS.update(dict.fromkeys(kinds, _array))
    REDUCERS.update({
        pd.DataFrame: _frame, pd.Series: _series, pd.Timestamp: _timestamp, pd.Timedelta: _timedelta,
        pd.Period: _one_period, pd.Interval: _one_interval,
        type(pd.NA): lambda sender, value, depth: Call(names.value, "NA"),
        type(pd.NaT): lambda sender, value, depth: Call(names.value, "NaT"),
    })  # fmt: skip
    offsets = pd.tseries.offsets
    plain = (getattr(offsets, name) for name in offsets.__all__)
    REDUCERS.update(dict.fromkeys((kind for kind in plain if isinstance(kind, type)), _date_offset))
    columns.register_missing(type(pd.NA), type(pd.NaT))


def _subclasses(kind: type) -> set[type]:
    return {kind}.union(*map(_subclasses, kind.__subclasses__()))


_register()
