"""Constructors that need the standard library only: scalars, zones, long containers. Each checks all it is given."""

from __future__ import annotations

import datetime as dt
import importlib
import uuid
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from . import columns
from .grammar import DECIMAL, INTEGER
from .zones import build_zone as _zone

if TYPE_CHECKING:
    from .receiver import Receiver


def build_zone(receiver: Receiver, *parts: Any) -> dt.tzinfo:
    known = receiver.zones.get(parts)
    if known is None:
        known = receiver.zones[parts] = _zone(*parts)
    return known


def build_value(receiver: Receiver, kind: Any, *parts: Any) -> Any:
    builder = _VALUES.get(kind)
    if builder is not None:
        return builder(*parts)
    module = _ELSEWHERE[kind]
    scalars = importlib.import_module(f"{__package__}.{module}").SCALARS
    return scalars[kind](receiver, *parts)


def build_objects(receiver: Receiver, kind: Any, *parts: Any) -> Any:
    return _OBJECTS[kind](receiver, *parts)


def integers(*values: Any) -> None:
    """Raises: TypeError: one of the values is not exactly an int."""
    for value in values:
        if type(value) is not int:
            raise TypeError("an integer is none")


# --- scalars ------------------------------------------------------------------------------------------------


def _checked_text(pattern: Any, text: Any) -> str:
    if type(text) is not str or not pattern.fullmatch(text):
        raise ValueError("a number is none")
    return text


def _datetime(*parts: Any) -> dt.datetime:
    *numbers, fold, zone = parts
    integers(*numbers, fold)
    year, month, day, hour, minute, second, microsecond = numbers
    return dt.datetime(year, month, day, hour, minute, second, microsecond, _zone_argument(zone), fold=fold)


def _time(*parts: Any) -> dt.time:
    hour, minute, second, microsecond, fold, zone = parts
    integers(hour, minute, second, microsecond, fold)
    return dt.time(hour, minute, second, microsecond, _zone_argument(zone), fold=fold)


def _zone_argument(zone: Any) -> dt.tzinfo | None:
    if zone is not None and not isinstance(zone, dt.tzinfo):
        raise TypeError("a time zone is none")
    return zone


def _date(ordinal: Any) -> dt.date:
    integers(ordinal)
    return dt.date.fromordinal(ordinal)


def _timedelta(days: Any, seconds: Any, microseconds: Any) -> dt.timedelta:
    integers(days, seconds, microseconds)
    return dt.timedelta(days, seconds, microseconds)


def _uuid(raw: Any) -> uuid.UUID:
    if type(raw) is not bytes:
        raise TypeError("a UUID is not bytes")
    return uuid.UUID(bytes=raw)


def _complex(real: Any, imaginary: Any) -> complex:
    if type(real) is not float or type(imaginary) is not float:
        raise TypeError("a complex number is none")
    return complex(real, imaginary)


def _range(start: Any, stop: Any, step: Any) -> range:
    integers(start, stop, step)
    return range(start, stop, step)


def _slice(*parts: Any) -> slice:
    start, stop, step = parts
    integers(*(part for part in parts if part is not None))
    return slice(start, stop, step)


def _fraction(numerator: Any, denominator: Any) -> Fraction:
    return Fraction(int(_checked_text(INTEGER, numerator)), int(_checked_text(INTEGER, denominator)))


_VALUES: dict[Any, Callable[..., Any]] = {
    # The decoder looks for this word at the beginning of a payload; it has done its work when it comes to be called.
    "surrogates": lambda tree: tree,
    "decimal": lambda text: Decimal(_checked_text(DECIMAL, text)),
    "fraction": _fraction,
    "complex": _complex,
    "range": _range,
    "slice": _slice,
    "date": _date,
    "datetime": _datetime,
    "time": _time,
    "timedelta": _timedelta,
    "uuid": _uuid,
}
_ELSEWHERE = {
    "numpy": "construct_numpy", "timestamp": "construct_pandas", "pandas timedelta": "construct_pandas",
    "period": "construct_pandas", "interval": "construct_pandas", "offset": "construct_pandas",
    "NA": "construct_pandas", "NaT": "construct_pandas",
}  # fmt: skip


# --- long containers ----------------------------------------------------------------------------------------


def _list(receiver: Receiver, column: Any) -> list[Any]:
    return columns.decode(receiver, column)


def _dict(receiver: Receiver, keys: Any, values: Any) -> dict[Any, Any]:
    result: dict[Any, Any] = {}
    labels, items = columns.decode(receiver, keys), columns.decode(receiver, values)
    receiver.charge(100 * len(labels))
    if len(labels) != len(items):
        raise ValueError("a dict has other keys than values")
    added: list[Any] = [None] * (2 * len(items))
    added[::2], added[1::2] = labels, items
    receiver.hashing.update(result, added)
    if len(result) != len(items):
        raise ValueError("a dict has a key twice")
    return result


def _set(receiver: Receiver, column: Any) -> set[Any]:
    result: set[Any] = set()
    items = columns.decode(receiver, column)
    receiver.charge(64 * len(items))
    receiver.hashing.add(result, items)
    return result


def _parts(receiver: Receiver, length: Any, parts: Any, row_bytes: int) -> list[list[Any]]:
    integers(length)
    if type(parts) is not tuple or not parts:
        raise ValueError("rows have no columns")
    receiver.charge(length * (row_bytes + 8 * len(parts)))
    values = [columns.decode(receiver, part) for part in parts]
    if set(map(len, values)) != {length}:
        raise ValueError("columns have different lengths")
    return values


def _records(receiver: Receiver, length: Any, keys: Any, parts: Any) -> list[dict[str, Any]]:
    if type(keys) is not tuple or any(type(key) is not str for key in keys) or len(set(keys)) != len(keys):
        raise ValueError("records have no keys")
    values = _parts(receiver, length, parts, 232)
    if len(values) != len(keys):
        raise ValueError("records have other keys than columns")
    receiver.charge(length * 32 * len(keys))
    # Copies of one dict that are filled column by column: half the time of a dict from each row.
    template: dict[str, Any] = dict.fromkeys(keys)
    records = [template.copy() for _ in range(length)]
    for key, column in zip(keys, values, strict=True):
        for record, value in zip(records, column, strict=True):
            record[key] = value
    return records


def _tuples(receiver: Receiver, length: Any, parts: Any) -> list[tuple[Any, ...]]:
    return list(zip(*_parts(receiver, length, parts, 48), strict=True))


def _lists(receiver: Receiver, length: Any, parts: Any) -> list[list[Any]]:
    return list(map(list, zip(*_parts(receiver, length, parts, 72), strict=True)))


def _array(receiver: Receiver, *parts: Any) -> Any:
    from .construct_numpy import build_object_array

    return build_object_array(receiver, *parts)


_OBJECTS: dict[Any, Callable[..., Any]] = {
    "list": _list,
    "dict": _dict,
    "set": _set,
    "frozenset": lambda receiver, column: frozenset(_set(receiver, column)),
    "records": _records,
    "tuples": _tuples,
    "lists": _lists,
    "array": _array,
}
