"""The eight names that a payload may call, as an honest pickler needs them: importable functions.

Nobody calls them. The receiver looks a name up in its own table (`decode.CONSTRUCTORS`) and imports nothing, and
a plain `pickle.loads` of a payload ends in the error below instead of half a frame.
"""

from __future__ import annotations

from typing import Any, NoReturn


def _refuse() -> NoReturn:
    raise TypeError("this is a frame: read it with sandbox_kernel.frames.loads, never with pickle")


def array(*_: Any) -> NoReturn:
    """``array(dtype, shape, order, data)``: a numpy array of numbers, booleans, times or fixed-width text."""
    _refuse()


def objects(*_: Any) -> NoReturn:
    """``objects(kind, ...)``: a numpy array of Python objects, or a long list, dict, set or list of records."""
    _refuse()


def extension(*_: Any) -> NoReturn:
    """``extension(kind, ...)``: a pandas extension array."""
    _refuse()


def index(*_: Any) -> NoReturn:
    """``index(kind, parts, name)``: a pandas index."""
    _refuse()


def frame(*_: Any) -> NoReturn:
    """``frame(columns, index, data, attrs, duplicates)``: a DataFrame.

    An index here and in `series`, and data that is one array, may stand as the arguments of their own names.
    """
    _refuse()


def series(*_: Any) -> NoReturn:
    """``series(data, index, name, attrs, duplicates)``: a Series."""
    _refuse()


def value(*_: Any) -> NoReturn:
    """``value(kind, ...)``: a scalar that pickle has no opcode for."""
    _refuse()


def zone(*_: Any) -> NoReturn:
    """``zone(library, key)``: a time zone."""
    _refuse()
