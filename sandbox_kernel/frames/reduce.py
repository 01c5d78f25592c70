"""The sending half: any value becomes a tree of plain containers and `Call`s, and that a pickle.

The C pickler only ever sees exact built-in types and `Call`. So no method of a value is run that could write
something of its own (``__reduce__``, ``__getstate__``), and every refusal knows the place of the value.
"""

from __future__ import annotations

import datetime as dt
import importlib
import io
import pickle
import re
import uuid
from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction
from itertools import chain
from operator import itemgetter
from typing import Any

from . import columns, names
from .grammar import DECIMAL, DEPTH, FLAT, IN_BAND_BYTES, INTEGER_BYTES, Refusal, label, type_name
from .zones import reduce_zone

LONG = 512  # values in a list, set or dict; from there on it is written as columns
RECORDS = 8  # rows with the same keys
NESTING = DEPTH - 8  # of a value; a frame in the innermost list needs the rest
COLUMNS_DEPTH = DEPTH // 2  # deeper than that, columns would use up the depth that plain lists can have
VALUES = 5_000_000  # containers; sharing is written out, so a small graph can be a huge tree

_LONG_INTEGER = re.compile(rb"\x8b[\x00-\xff]{3}\x00", re.DOTALL)
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf]")


class Call:
    """What the receiver builds by a constructor: the name of that and its arguments."""

    __slots__ = ("arguments", "name")

    def __init__(self, name: Callable[..., Any], *arguments: Any) -> None:
        self.name = name
        self.arguments = arguments


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is Call:
            return obj.name, obj.arguments
        if obj in _NAMES:
            return NotImplemented  # written as a global, by its module and name
        # A list was changed by another thread since it was looked through.
        raise Refusal(f"a value of type {type_name(type(obj))} cannot pass the frame gate")


_NAMES = frozenset(
    {names.array, names.objects, names.extension, names.index, names.frame, names.series, names.value, names.zone}
)


def dumps(value: Any) -> tuple[bytes, list[memoryview]]:
    """See `sandbox_kernel.frames.dumps`."""
    try:
        tree = Sender().lower(value, 0)
        payload, buffers = _pickled(tree)
        # Both patterns can also be met by chance, so what they found is looked for again in the values.
        if (_LONG_INTEGER.search(payload) or _SURROGATE.search(payload)) and _has_surrogates(tree):
            # Text in a payload is strict UTF-8 unless this word comes first.
            payload, buffers = _pickled(Call(names.value, "surrogates", tree))
        return payload, buffers
    except Refusal as refusal:
        raise refusal.error() from None


def _pickled(tree: Any) -> tuple[bytes, list[memoryview]]:
    buffers: list[pickle.PickleBuffer] = []
    file = io.BytesIO()
    pickler = _Pickler(file, protocol=5, buffer_callback=buffers.append)
    pickler.fast = True  # no memo: what is shared is written twice
    pickler.dump(tree)
    return file.getvalue(), [buffer.raw() for buffer in buffers]


def _has_surrogates(tree: Any) -> bool:
    """Whether a text in the tree cannot be written as strict UTF-8.

    Raises:
        Refusal: an int in it is too large.
    """
    level, surrogates = [tree], False
    while level:
        texts = "".join([value for value in level if type(value) is str])
        surrogates = surrogates or not (texts.isascii() or _encodes(texts))
        numbers = [value for value in level if type(value) is int]
        if numbers and max(max(numbers), -min(numbers)).bit_length() >= 8 * INTEGER_BYTES:
            raise Refusal(f"an int of more than {INTEGER_BYTES:,} bytes cannot pass the frame gate")
        below: list[Any] = []
        for value in [value for value in level if type(value) not in FLAT]:
            if type(value) is Call:
                below.extend(value.arguments)
            elif type(value) is not pickle.PickleBuffer:
                below.extend(value)
                if type(value) is dict:
                    below.extend(value.values())
        level = below
    return surrogates


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


Reducer = Callable[["Sender", Any, int], Any]


class Sender:
    """Lowers one value. `depth` is always the number of containers around the result in the payload."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def lower(self, value: Any, depth: int) -> Any:
        """The tree for any value.

        Raises:
            Refusal: the value, or one inside it, has a type that does not cross.
        """
        kind = type(value)
        if kind in FLAT:
            return value
        reducer = REDUCERS.get(kind)
        if reducer is None:
            reducer = _find_reducer(kind)
        self.count += 1
        if depth > NESTING:
            raise Refusal(f"values are nested more than {NESTING} deep, or a {type_name(kind)} contains itself")
        if self.count > VALUES:
            raise Refusal(f"there are more than {VALUES:,} containers and values")
        return reducer(self, value, depth)

    def items(self, values: Iterable[Any], depth: int, rows: list[int] | None = None) -> list[Any]:
        """Each value lowered, as a list. `rows` are the places that a refusal names, if they are not 0, 1, 2."""
        tree: list[Any] = []
        try:
            for value in values:
                tree.append(value if type(value) in FLAT else self.lower(value, depth + 1))
        except Refusal as refusal:
            refusal.path.append(f"[{rows[len(tree)] if rows else len(tree)}]")
            raise
        return tree

    def column(self, values: list[Any], depth: int) -> columns.Column:
        return columns.encode(values, self, depth)

    def data(self, raw: bytes) -> bytes | pickle.PickleBuffer:
        """Raw data: short inside the payload, long as a buffer."""
        return raw if len(raw) < IN_BAND_BYTES else pickle.PickleBuffer(raw)


def _find_reducer(kind: type) -> Reducer:
    """The reducer of a type that is not registered yet: numpy and pandas are imported when a value of theirs comes."""
    top = kind.__module__.partition(".")[0]
    if top in ("numpy", "pandas"):
        importlib.import_module("." + {"numpy": "reduce_numpy", "pandas": "reduce_pandas"}[top], __package__)
    reducer = REDUCERS.get(kind)
    if reducer is None and issubclass(kind, dt.tzinfo):
        reducer = reduce_zone_value
    if reducer is None:
        raise Refusal(f"a value of type {type_name(kind)} cannot pass the frame gate", _advice(kind))
    return reducer


def _advice(kind: type) -> str:
    """How to turn a value of this type into one that crosses."""
    for base in kind.__mro__[1:]:
        if base is object:
            break
        if base in FLAT or base in REDUCERS:
            name = type_name(base).replace("pandas.core.frame.", "pandas.").replace("pandas.core.series.", "pandas.")
            if base.__module__.startswith("numpy") and base.__name__ == "ndarray":
                return "Convert it with numpy.asarray(x) first."
            return f"Convert it with {name}(x) first."
    return "Frames hold DataFrames, Series, arrays and plain values; convert it to one of these."


# --- containers ---------------------------------------------------------------------------------------------


def _list(sender: Sender, value: list[Any], depth: int) -> Any:
    kinds = set(map(type, value))
    long = len(value) >= LONG and depth < COLUMNS_DEPTH
    if kinds <= FLAT and not long:
        return value
    if len(value) >= RECORDS and len(kinds) == 1 and depth < COLUMNS_DEPTH:
        rows = _rows(sender, value, depth)
        if rows is not None:
            return rows
    if _flat_inside(value):
        return value
    if long:
        return Call(names.objects, "list", sender.column(value, depth + 1))
    return sender.items(value, depth)


def _flat_inside(values: list[Any]) -> bool:
    """Whether these are short containers of one type that hold flat values only: the pickler can have them as they are.

    A look at all at once is many times faster than one at each.
    """
    kind = type(values[0])
    if kind not in (list, tuple, dict, set, frozenset) or {kind} != set(map(type, values)):
        return False
    return (
        max(map(len, values)) < LONG
        and FLAT.issuperset(map(type, chain.from_iterable(values)))
        and (kind is not dict or FLAT.issuperset(map(type, chain.from_iterable(map(dict.values, values)))))
    )


def _rows(sender: Sender, value: list[Any], depth: int) -> Call | None:
    """Rows of a table as its columns: dicts with the same keys, tuples or lists of one length."""
    first = value[0]
    kind = type(first)
    if kind not in (dict, tuple, list) or not 0 < len(first) <= LONG:
        return None
    if kind is dict:
        keys = tuple(first)
        if set(map(type, keys)) != {str} or not all(map(keys.__eq__, map(tuple, value))):
            return None
    else:
        keys = tuple(range(len(first)))
        # A column is worth it when the rows are many; its types tell whether they are rows at all.
        if set(map(len, value)) != {len(first)} or len(value) < 4 * RECORDS:
            return None
    parts = []
    for key in keys:
        try:
            parts.append(sender.column(list(map(itemgetter(key), value)), depth + 2))
        except Refusal as refusal:
            # The column's last step is the row, which people write first.
            refusal.path.insert(max(len(refusal.path) - 1, 0), f"[{label(key)}]")
            raise
    if kind is dict:
        return Call(names.objects, "records", len(value), keys, tuple(parts))
    return Call(names.objects, "tuples" if kind is tuple else "lists", len(value), tuple(parts))


def _tuple(sender: Sender, value: tuple[Any, ...], depth: int) -> Any:
    return value if FLAT.issuperset(map(type, value)) else tuple(sender.items(value, depth))


def _dict(sender: Sender, value: dict[Any, Any], depth: int) -> Any:
    flat_keys = FLAT.issuperset(map(type, value))
    if len(value) >= LONG and depth < COLUMNS_DEPTH:
        keys = list(value)
        items = _columns_of_dict(sender, keys, value, depth)
        return Call(names.objects, "dict", sender.column(keys, depth + 1), items)
    if flat_keys and FLAT.issuperset(map(type, value.values())):
        return value
    tree: dict[Any, Any] = {}
    for key, item in value.items():
        try:
            lowered = key if type(key) in FLAT else sender.lower(key, depth + 1)
            tree[lowered] = item if type(item) in FLAT else sender.lower(item, depth + 1)
        except Refusal as refusal:
            refusal.path.append(f"[{label(key)}]")
            raise
    return tree


def _columns_of_dict(sender: Sender, keys: list[Any], value: dict[Any, Any], depth: int) -> columns.Column:
    try:
        return sender.column(list(value.values()), depth + 1)
    except Refusal as refusal:
        step = refusal.path[-1] if refusal.path else ""
        if step[1:-1].isdecimal():
            refusal.path[-1] = f"[{label(keys[int(step[1:-1])])}]"
        raise


def _set(sender: Sender, value: set[Any] | frozenset[Any], depth: int) -> Any:
    if len(value) >= LONG and depth < COLUMNS_DEPTH:
        return Call(names.objects, type(value).__name__, sender.column(list(value), depth + 1))
    if FLAT.issuperset(map(type, value)):
        return value
    return type(value)(sender.items(value, depth))


# --- scalars ------------------------------------------------------------------------------------------------


def _decimal(sender: Sender, value: Decimal, depth: int) -> Call:
    text = str(value)
    if not DECIMAL.fullmatch(text):
        raise Refusal("a value of type decimal.Decimal has more digits than the frame gate lets through")
    return Call(names.value, "decimal", text)


def _fraction(sender: Sender, value: Fraction, depth: int) -> Call:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > 8192:
        raise Refusal("a value of type fractions.Fraction has more digits than the frame gate lets through")
    return Call(names.value, "fraction", str(value.numerator), str(value.denominator))


def zone_or_none(zone: dt.tzinfo | None) -> Call | None:
    """A time zone as an argument of another call."""
    if zone is None:
        return None
    parts = reduce_zone(zone)
    if parts is None:
        raise Refusal(f"a time zone of type {type_name(type(zone))} cannot pass the frame gate",
                      "Use a zone of zoneinfo, or a fixed offset of datetime.timezone.")  # fmt: skip
    return Call(names.zone, *parts)


def reduce_zone_value(sender: Sender, value: dt.tzinfo, depth: int) -> Call | None:
    return zone_or_none(value)


def _datetime(sender: Sender, value: dt.datetime, depth: int) -> Call:
    v = value
    return Call(names.value, "datetime", v.year, v.month, v.day, v.hour, v.minute, v.second, v.microsecond, v.fold,
                zone_or_none(v.tzinfo))  # fmt: skip


def _time(sender: Sender, value: dt.time, depth: int) -> Call:
    v = value
    return Call(names.value, "time", v.hour, v.minute, v.second, v.microsecond, v.fold, zone_or_none(v.tzinfo))


def _slice(sender: Sender, value: slice, depth: int) -> Call:
    parts = (value.start, value.stop, value.step)
    if not all(part is None or type(part) is int for part in parts):
        raise Refusal("a slice with other parts than int and None cannot pass the frame gate")
    return Call(names.value, "slice", *parts)


REDUCERS: dict[type, Reducer] = {
    list: _list,
    tuple: _tuple,
    dict: _dict,
    set: _set,
    frozenset: _set,
    Decimal: _decimal,
    Fraction: _fraction,
    complex: lambda sender, value, depth: Call(names.value, "complex", value.real, value.imag),
    range: lambda sender, value, depth: Call(names.value, "range", value.start, value.stop, value.step),
    slice: _slice,
    dt.date: lambda sender, value, depth: Call(names.value, "date", value.toordinal()),
    dt.datetime: _datetime,
    dt.time: _time,
    dt.timedelta: lambda sender, value, depth: Call(
        names.value, "timedelta", value.days, value.seconds, value.microseconds
    ),
    uuid.UUID: lambda sender, value, depth: Call(names.value, "uuid", value.bytes),
}
"""By exact type; `reduce_numpy` and `reduce_pandas` add theirs when they are imported."""

