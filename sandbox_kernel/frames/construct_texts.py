"""Constructors for pandas' columns of strings."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import numpy as np
import pandas as pd

from .arrow import charge_texts, quick, split_texts
from .construct import integers
from .construct_numpy import object_array
from .grammar import DEFAULT_BUDGET, IN_BAND_BYTES
from .receiver import Receiver

QUICK_TEXTS = 512  # strings; from there on Arrow memory is filled without an object for each
_FEW, _FEW_BYTES = 64, 4096  # strings, and what an array of them may take


def _holds_texts(column: Any, modes: str = "spcmNv") -> bool:
    """Whether a column can only have strings and None in it."""
    if type(column) is not tuple or len(column) < 2 or type(column[0]) is not str or column[0] not in modes:
        return False
    integers(column[1])
    if column[0] == "c":
        return _holds_texts(column[-1], "sp")
    if column[0] == "m":
        return type(column[-1]) is tuple and all(_holds_texts(part, "spcN") for part in column[-1])
    return column[0] != "v" or column[1] == 0


def build_string(receiver: Receiver, storage: Any, missing: Any, column: Any) -> Any:
    """A column of strings in the storage that was asked for, or the nearest that there is here."""
    dtype = _checked_dtype(storage, missing, column)
    if dtype is not None and dtype.storage != "python" and column[1] >= QUICK_TEXTS and quick(column):
        return dtype.__from_arrow__(split_texts(receiver, column))
    if dtype is not None and dtype.storage != "python" and _are_few(column):
        receiver.charge(_FEW_BYTES)
        return _few_texts(storage, missing, column)[:]  # a view of its own, of memory that nobody can write to
    values = object_array(receiver, column)
    receiver.charge(16 * len(values))
    if dtype is not None and dtype.storage != "python":
        charge_texts(receiver, values)
    if dtype is None:
        return np.where(values == None, np.nan, values)  # noqa: E711 - for each element
    return dtype.construct_array_type()._from_sequence(values, dtype=dtype)  # `pd.array`, without its questions


def few_labels(receiver: Receiver, storage: Any, missing: Any, column: Any) -> Any:
    """An index of a few strings; None where it is to be made of `build_string`, because they are not few, say."""
    dtype = _checked_dtype(storage, missing, column)
    if dtype is None or dtype.storage == "python" or not _are_few(column):
        return None
    receiver.charge(_FEW_BYTES)
    return _few_labels(storage, missing, column)[:]  # as for an array; and its name is its own


def _checked_dtype(storage: Any, missing: Any, column: Any) -> Any:
    """The dtype of such a column here, see `_string_dtype`.

    Raises:
        ValueError: it is no column of strings.
    """
    if storage not in ("python", "pyarrow") or missing not in ("nan", "NA"):
        raise ValueError("a column of strings is of no known kind")
    if not _holds_texts(column):
        raise ValueError("a column of strings has other values")
    return _string_dtype(storage, missing)


def _are_few(column: Any) -> bool:
    return (
        column[0] == "s" and column[1] <= _FEW and len(column) == 4
        and type(column[3]) is bytes and len(column[3]) < IN_BAND_BYTES
    )  # fmt: skip


@lru_cache(maxsize=64)
def _few_texts(storage: str, missing: str, column: Any) -> Any:
    """An array of Arrow memory. Labels come again and again, and to make them takes a fifth of a small table's time."""
    dtype = _string_dtype(storage, missing)
    return dtype.construct_array_type()._from_sequence(object_array(Receiver(DEFAULT_BUDGET), column), dtype=dtype)


@lru_cache(maxsize=64)
def _few_labels(storage: str, missing: str, column: Any) -> Any:
    array = _few_texts(storage, missing, column)[:]
    return pd.Index(array, dtype=array.dtype, copy=False)


@cache
def _string_dtype(storage: str, missing: str) -> Any:
    """The dtype that this pandas has for these strings; None if it can only keep them as objects."""
    for kept in dict.fromkeys((storage, "python")):
        try:
            if missing == "NA":
                return pd.StringDtype(kept)
            if _NAN_STRINGS:
                return pd.StringDtype(kept, na_value=np.nan)
            if kept == "pyarrow":
                return pd.StringDtype("pyarrow_numpy")
        except ImportError:
            continue
    return None


_NAN_STRINGS = int(pd.__version__.partition(".")[0]) >= 3 or pd.__version__.startswith("2.3")
