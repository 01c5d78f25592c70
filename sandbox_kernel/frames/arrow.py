"""Columns that pandas keeps in Arrow memory: the common types cross as plain data, others are refused.

Arrow's own format is not used, because its readers trust the offsets in it. A receiver without pyarrow gets the
column of pandas' own that comes nearest: nullable numbers, strings. Where both sides have pyarrow it is used as a
fast way to join the strings of a column, and to split them: the wire is the same as without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from . import columns, names
from .construct import integers
from .grammar import Refusal
from .reduce import Call, Sender
from .reduce_numpy import object_column, reduce_array

if TYPE_CHECKING:
    from .receiver import Receiver

NUMBERS = {
    "int8": "|i1", "int16": "<i2", "int32": "<i4", "int64": "<i8", "uint8": "|u1", "uint16": "<u2", "uint32": "<u4",
    "uint64": "<u8", "float": "<f4", "double": "<f8", "bool": "|b1",
}  # fmt: skip
_NUMPY_NAME = {"float": "float32", "double": "float64"}  # pyarrow's names that numpy has others for
TEXTS = ("string", "large_string")


def reduce_arrow(sender: Sender, array: Any, depth: int) -> Call:
    """An array of `pandas.ArrowDtype`."""
    text = str(array.dtype.pyarrow_dtype)
    missing = np.asarray(array.isna())
    if text in NUMBERS:
        values = array.to_numpy(NUMBERS[text], na_value=0)
        return Call(names.extension, "arrow", text, reduce_array(sender, values, depth + 1),
                    reduce_array(sender, missing, depth + 1))  # fmt: skip
    if text in TEXTS:
        texts = array.to_numpy(object, copy=True)
        texts[missing] = None
        return Call(names.extension, "arrow", text, object_column(sender, texts, depth + 1), None)
    raise Refusal(
        f"a column of Arrow type {text[:80]} cannot pass the frame gate",
        "Only Arrow numbers, booleans and strings cross; convert it with x.astype(object) or to a dtype of numpy.",
    )


def joined_texts(sender: Sender, array: Any) -> columns.Column | None:
    """The column of a pandas array of strings in Arrow memory, joined there; None if it has to be done in Python."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pa.array(array)
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    missing = np.asarray(array.isna())
    there = texts.drop_null()
    if not len(there) or there.nbytes > 2**31 - len(there) - 1:
        return None
    rows = pa.ListArray.from_arrays(pa.array([0, len(there)], pa.int32()), there.cast(pa.string()))
    for separator in "\0\x1f\x1e":
        raw = pc.binary_join(rows, separator)[0].as_buffer().to_pybytes()
        if raw.count(separator.encode()) == len(there) - 1:
            break
    else:
        return None
    column = ("s", len(there), separator, sender.data(raw))
    if len(there) == len(array):
        return column
    rest = ("N", len(array) - len(there))
    return "m", len(array), sender.data(missing.view(np.uint8).tobytes()), (column, rest)


def split_texts(receiver: Receiver, column: Any) -> Any:
    """The Arrow array of a column of strings and None; None if the column is not one of the quick kinds."""
    import pyarrow as pa

    if column[0] != "m":
        return _split(receiver, column)
    rows = np.frombuffer(receiver.take(column[2]), np.uint8)
    texts, *rest = column[3] if len(column) == 4 and len(column[3]) == 2 else (None,)
    missing = rows == 1
    count = int(missing.sum())
    if texts is None or rest != [("N", count)] or len(rows) != column[1] or (rows > 1).any():
        raise ValueError("a column of strings has rows of no part")
    found = _split(receiver, texts)
    if found is None or len(found) != len(rows) - count:
        raise ValueError("a column of strings has other rows than strings")
    receiver.charge(16 * len(rows))
    return found.take(pa.array(np.cumsum(~missing) - 1, mask=missing))


def _split(receiver: Receiver, column: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    mode, length, *rest = column
    integers(length)
    if mode == "c":
        view, uniques = columns.codes_and_uniques(receiver, length, *rest)
        codes = np.asarray(view)
        if length and codes.max() >= len(uniques):
            raise ValueError("a code stands for nothing")
        if length:
            receiver.charge(int(np.array(list(map(_text_bytes, uniques)))[codes].sum()))
        return pa.array(uniques, pa.large_string()).take(pa.array(codes))
    separator, data = rest
    if type(separator) is not str or len(separator) != 1 or not separator.isascii():
        raise ValueError("a separator is not one character")
    raw = receiver.take(data)
    str(raw, "utf-8")  # Arrow takes the text for what it is said to be
    receiver.charge(10 * len(raw))
    ends = np.array([0, len(raw)], np.int64)
    whole = pa.LargeStringArray.from_buffers(1, pa.py_buffer(ends), pa.py_buffer(bytes(raw)))
    found = pc.split_pattern(whole, separator).values
    if len(found) != length:
        raise ValueError("a column is not as long as it says")
    return found


def _text_bytes(text: str | None) -> int:
    """What a text takes in Arrow memory, or more."""
    if not text:
        return 0
    return len(text) if text.isascii() else 4 * len(text)


def charge_texts(receiver: Receiver, texts: Any) -> None:
    """Account for Arrow memory with these texts: one that many rows share is there for each of them."""
    receiver.charge(sum(map(_text_bytes, texts)))


def quick(column: Any) -> bool:
    """Whether `split_texts` reads this column; it has been checked to hold texts."""
    if column[0] == "m":
        parts = column[-1]
        return len(parts) == 2 and parts[1][0] == "N" and quick(parts[0]) and parts[0][0] != "m"
    if column[0] == "c":
        return column[-1][0] == "s" and len(column) == 5
    return column[0] == "s" and len(column) == 4 and type(column[2]) is str and column[2].isascii() and column[1] > 0


def build_arrow(receiver: Receiver, text: str, values: Any, missing: Any) -> Any:
    """The array; `values` has been checked, and is a masked array or an array of strings and None."""
    try:
        import pyarrow as pa
    except ImportError:
        return values
    if text in TEXTS:
        charge_texts(receiver, values.to_numpy(object, na_value=None))
    kind = {"float": "float32", "double": "float64", "bool": "bool_"}.get(text, text)
    return pd.array(values, dtype=pd.ArrowDtype(getattr(pa, kind)()))
