"""Columns that pandas keeps in Arrow memory: the common types cross as plain data, others are refused.

Arrow's own format is not used, because its readers trust the offsets in it. A receiver without pyarrow gets the
column of pandas' own that comes nearest: nullable numbers, strings, moments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from . import names
from .grammar import Refusal
from .reduce import Call, Sender
from .reduce_numpy import object_column, reduce_array

if TYPE_CHECKING:
    from .decode import Receiver

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


def build_arrow(receiver: Receiver, text: str, values: Any, missing: Any) -> Any:
    """The array; `values` has been checked, and is a masked array or an array of strings and None."""
    try:
        import pyarrow as pa
    except ImportError:
        return values
    kind = {"float": "float32", "double": "float64", "bool": "bool_"}.get(text, text)
    return pd.array(values, dtype=pd.ArrowDtype(getattr(pa, kind)()))
