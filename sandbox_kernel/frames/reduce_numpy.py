"""The sending half for numpy. Imported when the first numpy value is sent."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from . import columns, names
from .grammar import DIMENSIONS, DTYPE, IN_BAND_BYTES, LENGTH, Refusal, type_name
from .reduce import REDUCERS, Call, Sender

Array = np.ndarray[Any, Any]

_SAMPLE = 512


def reduce_array(sender: Sender, value: Array, depth: int) -> Call:
    """An array of any dtype that crosses."""
    if value.ndim > DIMENSIONS:
        raise Refusal(f"a numpy.ndarray of {value.ndim} dimensions cannot pass the frame gate (at most {DIMENSIONS})")
    if max(value.shape, default=0) > LENGTH:  # of an empty one
        raise Refusal(f"a numpy.ndarray with an axis longer than {LENGTH:,} cannot pass the frame gate")
    if value.dtype.kind == "O":
        return reduce_objects(sender, value, depth)
    code = value.dtype.str
    if not DTYPE.fullmatch(code):
        raise Refusal(f"a numpy.ndarray of dtype {str(value.dtype)[:80]} cannot pass the frame gate", _advice(value))
    if value.flags.c_contiguous or not value.flags.f_contiguous:
        order, flat = "C", np.ascontiguousarray(value)
    else:
        order, flat = "F", value.T
    return Call(names.array, code, value.shape, order, raw(flat))


def raw(flat: Array) -> bytes | pickle.PickleBuffer:
    """The bytes of a C-contiguous array: copied when they are few, else the array's own memory."""
    if flat.nbytes < IN_BAND_BYTES:
        return flat.tobytes()
    # Not every dtype (datetime64) can be asked for its memory; bytes always can. Of the array, and not of its `data`:
    # in a cycle, such as an exception that somebody keeps, the garbage collector clears a memoryview before the buffer
    # that was taken of it, and Python crashes (seen with 3.11 and 3.12).
    memory: Any = flat.reshape(-1).view(np.uint8)  # (a buffer, which its type says from Python 3.12 on only)
    return pickle.PickleBuffer(memory)


def _advice(value: Array) -> str:
    if value.dtype.names:
        return "Convert it with pandas.DataFrame(x) first."
    if value.dtype.kind in "fc":
        return "Convert it with x.astype('float64') or x.astype('complex128') first."
    return "Convert it with x.astype(object) first."


def reduce_objects(sender: Sender, value: Array, depth: int) -> Call:
    """An array of Python objects."""
    return Call(names.objects, "array", value.shape, object_column(sender, value.reshape(-1), depth + 1))


def object_column(sender: Sender, flat: Array, depth: int) -> columns.Column:
    """The column of a one-dimensional array of objects."""
    if len(flat) >= 2 * _SAMPLE:
        column = _by_identity(sender, flat, depth)
        if column is not None:
            return column
    try:
        return sender.column(flat.tolist(), depth)
    except Refusal as refusal:
        if refusal.path:
            refusal.path[-1] = f"row {refusal.path[-1][1:-1]}"
        raise


class _Addresses:
    """The references in an array of objects as the numbers that they are."""

    def __init__(self, flat: Array) -> None:
        self.__array_interface__ = {
            "version": 3, "typestr": "<i8", "shape": flat.shape, "strides": flat.strides,
            "data": (flat.__array_interface__["data"][0], True),
        }  # fmt: skip


def _by_identity(sender: Sender, flat: Array, depth: int) -> columns.Column | None:
    """Rows that are the same objects as others, once: most repeated strings are, and addresses compare fast."""
    if np.dtype(np.intp).str != "<i8":
        return None
    step = len(flat) // _SAMPLE
    if not columns.repeats(list(map(id, flat[::step].tolist()))):
        return None
    try:
        import pandas as pd
    except ImportError:
        return None
    addresses = np.asarray(_Addresses(flat))
    codes, found = pd.factorize(addresses)
    if len(found) > len(flat) // 4:
        return None
    first = np.empty(len(found), np.intp)
    first[codes[::-1]] = np.arange(len(flat) - 1, -1, -1)  # of several writes to one place the last one stays
    uniques = flat[first].tolist()
    if not columns.immutable(set(map(type, uniques))):
        return None
    kinds = set(map(type, uniques))
    parts = columns.joined(uniques, sender) if kinds == {str} else sender.column(uniques, depth + 1)
    if parts[0] in "mv":
        return _mixed_by_identity(sender, codes, uniques, depth)
    width = columns.code_width(len(uniques))
    return "c", len(flat), width, sender.data(codes.astype(width).tobytes()), parts


def _mixed_by_identity(
    sender: Sender, codes: Array, uniques: list[Any], depth: int
) -> columns.Column | None:
    """Strings with holes: a part of codes, and a part for each kind of hole."""
    kinds = list(map(type, uniques))
    holes = {kind for kind in kinds if kind is not str}
    texts = [value for value in uniques if type(value) is str]
    if not texts or len(holes) > 8 or len(uniques) - len(texts) > 64:
        return None
    is_text = np.array([kind is str for kind in kinds])
    place = np.where(is_text, np.cumsum(is_text) - 1, 0)
    rows = is_text[codes]
    width = columns.code_width(len(texts))
    inner = place[codes[rows]].astype(width)
    pieces: list[columns.Column] = [
        ("c", int(rows.sum()), width, sender.data(inner.tobytes()), columns.joined(texts, sender))
    ]
    number = np.zeros(len(uniques), np.uint8)
    for kind in sorted(holes, key=type_name):
        which = np.array([other is kind for other in kinds])
        number[which] = len(pieces)
        chosen = codes[which[codes]]
        piece = sender.column([uniques[code] for code in chosen.tolist()], depth + 2)
        if piece[0] in "mv":
            return None
        pieces.append(piece)
    return "m", len(codes), sender.data(number[codes].tobytes()), tuple(pieces)


def _scalar(sender: Sender, value: np.generic, depth: int) -> Call:
    array = np.asarray(value)  # which gives an empty text a dtype that holds it
    code = array.dtype.str
    if not DTYPE.fullmatch(code):
        raise Refusal(f"a value of type {type_name(type(value))} ({value.dtype}) cannot pass the frame gate")
    return Call(names.value, "numpy", code, array.tobytes())


REDUCERS[np.ndarray] = reduce_array
REDUCERS.update(
    dict.fromkeys(
        (np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.longlong,
         np.ulonglong, np.float16, np.float32, np.float64, np.longdouble, np.complex64, np.complex128, np.str_,
         np.bytes_, np.datetime64, np.timedelta64),
        _scalar,
    )
)  # fmt: skip
