"""Constructors for numpy: arrays out of raw memory, with every fact about it checked."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from . import columns
from .construct import integers
from .grammar import DIMENSIONS, DTYPE, LENGTH

if TYPE_CHECKING:
    from .receiver import Receiver

Array = np.ndarray[Any, Any]

_LARGEST_CODE_POINT = 0x10FFFF


@lru_cache(maxsize=64)
def dtype_of(code: Any) -> np.dtype[Any]:
    """The dtype of a text of the closed set: never objects, records or a string of references."""
    if type(code) is not str or not DTYPE.fullmatch(code):
        raise ValueError("a dtype is not one that crosses")
    return np.dtype(code)


def shape_of(shape: Any) -> tuple[int, ...]:
    """A shape whose sizes are sane."""
    if type(shape) is not tuple or len(shape) > DIMENSIONS:
        raise ValueError("the shape of an array is none")
    integers(*shape)
    if any(not 0 <= size <= LENGTH for size in shape):
        raise ValueError("an axis is too long")
    return shape


def build_array(receiver: Receiver, code: Any, shape: Any, order: Any, data: Any) -> Array:
    dtype = dtype_of(code)
    shape = shape_of(shape)
    if order not in ("C", "F"):
        raise ValueError("an array has no order")
    memory = receiver.take(data)
    size = math.prod(shape) * dtype.itemsize
    if len(memory) != size:
        raise ValueError("an array has not as many bytes as its shape needs")
    flat = own_memory(receiver, memory, dtype)
    if not size:
        promise_shape(receiver, shape)
        return np.ndarray(shape, dtype, order=order)  # no memory, but a shape; `np.empty` makes one byte of none
    check_items(flat)
    return flat.reshape(shape, order=order)


def promise_shape(receiver: Receiver, shape: tuple[int, ...]) -> None:
    """Account for an array without data: as a list it is lists of lists down to the first axis without items."""
    before = shape[: shape.index(0)] if 0 in shape else shape
    receiver.promise(64 * math.prod(before))


def own_memory(receiver: Receiver, memory: Any, dtype: np.dtype[Any]) -> Array:
    """A writable, aligned array over the memory, in place if that is possible."""
    if not len(memory):
        return np.empty(0, dtype)
    if type(memory) is memoryview and not memory.readonly:
        array = np.frombuffer(memory, dtype)
        if array.flags.aligned:
            return array
    receiver.charge(len(memory))
    return np.frombuffer(bytearray(memory), dtype)


def check_items(flat: Array) -> None:
    """Raises: ValueError: bytes that no value of this dtype has, and that compiled code does not expect."""
    if flat.dtype.kind == "b" and flat.view(np.uint8).max() > 1:
        raise ValueError("a truth value is neither 0 nor 1")
    if flat.dtype.kind == "U" and flat.dtype.itemsize:
        points = flat.view(np.dtype(np.uint32).newbyteorder(flat.dtype.byteorder))
        if points.max() > _LARGEST_CODE_POINT:
            raise ValueError("a character is none")


def build_object_array(receiver: Receiver, shape: Any, column: Any) -> Array:
    shape = shape_of(shape)
    flat = object_array(receiver, column)
    if math.prod(shape) != len(flat):
        raise ValueError("an array of objects has another shape than values")
    if not len(flat):
        promise_shape(receiver, shape)
    return flat.reshape(shape)


def object_array(receiver: Receiver, column: Any) -> Array:
    """A one-dimensional array of objects out of a column."""
    if type(column) is tuple and len(column) == 5 and column[0] == "c":
        return _repeated(receiver, column)
    if type(column) is tuple and len(column) == 4 and column[0] == "m":
        return _mixed(receiver, column)
    return _filled(columns.decode(receiver, column))


def _filled(values: list[Any]) -> Array:
    # Item by item: an assignment would look into nested lists and take them for further dimensions.
    return np.fromiter(values, object, len(values))


def _repeated(receiver: Receiver, column: tuple[Any, ...]) -> Array:
    length = column[1]
    integers(length)
    if not 0 <= length <= LENGTH:
        raise ValueError("a column is too long")
    receiver.charge(8 * length)
    view, uniques = columns.codes_and_uniques(receiver, *column[1:])
    codes = np.asarray(view)
    if length and codes.max() >= len(uniques):
        raise ValueError("a code stands for nothing")
    return _filled(uniques).take(codes)


def _mixed(receiver: Receiver, column: tuple[Any, ...]) -> Array:
    _, length, codes, parts = column
    integers(length)
    if type(parts) is not tuple or not 0 < len(parts) <= 255 or not 0 <= length <= LENGTH:
        raise ValueError("a mixed column has no parts")
    rows = np.frombuffer(bytes(receiver.take(codes)), np.uint8)
    if len(rows) != length:
        raise ValueError("a mixed column has another length than it says")
    receiver.charge(8 * length)
    array = np.empty(length, object)
    filled = 0
    for number, part in enumerate(parts):
        if type(part) is not tuple or part[:1] == ("m",):
            raise ValueError("a part of a mixed column is none")
        values = object_array(receiver, part)
        here = rows == number
        if int(here.sum()) != len(values):
            raise ValueError("a part of a mixed column has another length than its rows")
        array[here] = values
        filled += len(values)
    if filled != length:
        raise ValueError("a mixed column has rows of no part")
    return array


def _scalar(receiver: Receiver, code: Any, data: Any) -> Any:
    dtype = dtype_of(code)
    if type(data) is not bytes or len(data) != dtype.itemsize:
        raise ValueError("a number has not as many bytes as it needs")
    if not data:
        return dtype.type()
    flat = np.frombuffer(data, dtype)
    check_items(flat)
    return flat[0]


SCALARS = {"numpy": _scalar}
