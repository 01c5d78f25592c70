"""A run of plain Python values as a few flat pieces of data, and back. Standard library only.

A *column* is a tuple ``(mode, length, ...)``. One value each would cost the receiver several steps; a column costs a
dozen for any length. Strings are joined with a character that none of them contains, so there are no offsets to
forge; strings that repeat are sent once, with a code for each row.

=====  ======================================================================================================
mode   after the length
=====  ======================================================================================================
N A T  nothing: None, `pandas.NA`, `pandas.NaT`
? q d  data of booleans, 64-bit integers, 64-bit floats
s p    separator, UTF-8 text; in mode p lone surrogates are encoded too
b      data of 32-bit widths, all bytes joined
D      a column of texts: `decimal.Decimal`
o      data of 32-bit ordinals: `datetime.date`
u t    data of 64-bit microseconds: `datetime.datetime` without zone (since 1970), `datetime.timedelta`
U      16 bytes each: `uuid.UUID`
c      width (B, H, I), data of unsigned codes, a column of what they stand for (never of mode v or m)
v      a list with the values themselves
m      one byte a row that numbers its part, and the parts: columns of the other modes
=====  ======================================================================================================
"""

from __future__ import annotations

import datetime as dt
import sys
import uuid
from array import array
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import count, repeat
from typing import TYPE_CHECKING, Any

from .grammar import DECIMAL, LENGTH

if TYPE_CHECKING:
    from .receiver import Receiver
    from .reduce import Sender

Column = tuple[Any, ...]

SHORT_REPEATS = 512  # values; below that repeated strings are not worth a look
_EPOCH = dt.datetime(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)
_SEPARATORS = "\0\x1f\x1e\x1d\x1c\ue000\uf8ff"
_WIDTHS = (("B", 256), ("H", 65536), ("I", 2**32))
_ITEM_BYTES = {"?": 1, "B": 1, "H": 2, "I": 4, "i": 4, "q": 8, "d": 8}

if sys.byteorder != "little":  # pragma: no cover
    raise ImportError("frames are written in the machine's own byte order, which must be little-endian")


class Unfit(Exception):
    """These values need mode v: some are outside what their mode can say."""


# --- writing ------------------------------------------------------------------------------------------------


def encode(values: list[Any], sender: Sender, depth: int) -> Column:
    """The column of `values`; `depth` is its own place in the payload."""
    kinds = set(map(type, values))
    if len(kinds) == 1:
        encoder = _ENCODERS.get(kinds.pop())
        if encoder is not None:
            try:
                return encoder(values, sender)
            except Unfit:
                pass
    elif len(kinds) > 1:
        mixed = _mixed(values, kinds, sender, depth)
        if mixed is not None:
            return mixed
    return "v", len(values), sender.items(values, depth + 2)


def _mixed(values: list[Any], kinds: set[type], sender: Sender, depth: int) -> Column | None:
    parts: list[Column] = []
    numbers: dict[type, int] = {}
    for kind in kinds & _ENCODERS.keys():
        try:
            parts.append(_ENCODERS[kind]([value for value in values if type(value) is kind], sender))
        except Unfit:
            continue
        numbers[kind] = len(parts) - 1
    if not parts:
        return None
    rest = kinds - numbers.keys()
    if rest:
        numbers.update(dict.fromkeys(rest, len(parts)))
        rows = [row for row, value in enumerate(values) if type(value) in rest]
        parts.append(("v", len(rows), sender.items([values[row] for row in rows], depth + 4, rows)))
    codes = bytes(map(numbers.__getitem__, map(type, values)))
    return "m", len(values), sender.data(codes), tuple(parts)


def _texts(values: list[str], sender: Sender) -> Column:
    length = len(values)
    if length >= SHORT_REPEATS and repeats(values[:: length // SHORT_REPEATS]):
        uniques = dict.fromkeys(values)
        if len(uniques) <= length // 2:
            codes = dict(zip(uniques, count()))
            width = code_width(len(uniques))
            data = array(width, map(codes.__getitem__, values)).tobytes()
            return "c", length, width, sender.data(data), joined(list(uniques), sender)
    return joined(values, sender)


def joined(values: list[str], sender: Sender) -> Column:
    """Strings as one text, without a look for repeated ones."""
    for separator in _SEPARATORS:
        text = separator.join(values)
        if text.count(separator) == len(values) - 1:
            break
    else:
        used = set("".join(values))
        separator = next(character for code in range(1, 0x110000) if (character := chr(code)) not in used)
        text = separator.join(values)
    try:
        return "s", len(values), separator, sender.data(text.encode())
    except UnicodeEncodeError:
        if "\ud800" <= separator <= "\udfff":  # pragma: no cover - all others are in use
            raise Unfit from None
        return "p", len(values), separator, sender.data(text.encode("utf-8", "surrogatepass"))


def repeats(sample: list[Any]) -> bool:
    """Whether about half of these values or more are repeated ones."""
    return len(set(sample)) <= len(sample) // 2


def code_width(uniques: int) -> str:
    """The smallest type of `array` that holds the codes of so many values."""
    return next(width for width, below in _WIDTHS if uniques <= below)


def _numbers(mode: str) -> Callable[[list[Any], Sender], Column]:
    def encoder(values: list[Any], sender: Sender) -> Column:
        try:
            return mode, len(values), sender.data(array(mode, values).tobytes())
        except OverflowError:
            raise Unfit from None

    return encoder


def _nothing(mode: str) -> Callable[[list[Any], Sender], Column]:
    return lambda values, sender: (mode, len(values))


def _booleans(values: list[bool], sender: Sender) -> Column:
    return "?", len(values), sender.data(bytes(values))


def _bytes(values: list[bytes], sender: Sender) -> Column:
    try:
        widths = array("I", map(len, values)).tobytes()
    except OverflowError:
        raise Unfit from None
    return "b", len(values), sender.data(widths), sender.data(b"".join(values))


def _decimals(values: list[Decimal], sender: Sender) -> Column:
    texts = list(map(str, values))
    if not all(map(DECIMAL.fullmatch, texts)):
        raise Unfit
    return "D", len(values), _texts(texts, sender)


def _dates(values: list[dt.date], sender: Sender) -> Column:
    return "o", len(values), sender.data(array("i", map(dt.date.toordinal, values)).tobytes())


def _datetimes(values: list[dt.datetime], sender: Sender) -> Column:
    if any(value.tzinfo is not None or value.fold for value in values):
        raise Unfit
    return "u", len(values), sender.data(array("q", [(value - _EPOCH) // _MICROSECOND for value in values]).tobytes())


def _timedeltas(values: list[dt.timedelta], sender: Sender) -> Column:
    try:
        return "t", len(values), sender.data(array("q", [value // _MICROSECOND for value in values]).tobytes())
    except OverflowError:
        raise Unfit from None


def _uuids(values: list[uuid.UUID], sender: Sender) -> Column:
    if any(value.is_safe is not uuid.SafeUUID.unknown for value in values):
        raise Unfit
    return "U", len(values), sender.data(b"".join([value.bytes for value in values]))


_ENCODERS: dict[type, Callable[[list[Any], Sender], Column]] = {
    type(None): _nothing("N"), bool: _booleans, int: _numbers("q"), float: _numbers("d"), str: _texts,
    bytes: _bytes, Decimal: _decimals, dt.date: _dates, dt.datetime: _datetimes, dt.timedelta: _timedeltas,
    uuid.UUID: _uuids,
}  # fmt: skip


def register_missing(na: type, nat: type) -> None:
    """pandas is there: its two missing values need no data either."""
    _ENCODERS.update({na: _nothing("A"), nat: _nothing("T")})


def immutable(kinds: set[type]) -> bool:
    """Whether values of these types may stand for many rows: nobody can change one row through another."""
    return kinds <= _ENCODERS.keys()


# --- reading ------------------------------------------------------------------------------------------------


def decode(receiver: Receiver, column: Any, *, forbidden: str = "") -> list[Any]:
    """The values of a column.

    Args:
        forbidden: modes that may not occur here.

    Raises:
        ValueError: no such column.
    """
    if type(column) is not tuple or len(column) < 2:
        raise ValueError("a column is not a tuple")
    mode, length, *rest = column
    if type(mode) is not str or mode in forbidden or type(length) is not int or not 0 <= length <= LENGTH:
        raise ValueError("a column has no mode or no length")
    # A reference each, and for most modes an object each. Strings of one byte and small integers are shared.
    receiver.charge(8 * length if mode in "NATc?" else 64 * length)
    values = _DECODERS[mode](receiver, length, *rest)
    if len(values) != length:
        raise ValueError("a column is not as long as it says")
    return values


def numbers(receiver: Receiver, data: Any, width: str, length: int) -> memoryview:
    """`length` numbers out of raw data that is exactly as long."""
    view = memoryview(receiver.take(data))
    if view.nbytes != length * _ITEM_BYTES[width]:
        raise ValueError("a column's data is not as long as its values")
    return view.cast("B").cast(width)  # type: ignore[call-overload, no-any-return]


def _read_numbers(width: str) -> Callable[[Receiver, int, Any], list[Any]]:
    return lambda receiver, length, data: numbers(receiver, data, width, length).tolist()


def _read_booleans(receiver: Receiver, length: int, data: Any) -> list[bool]:
    raw = bytes(receiver.take(data))
    if raw.translate(None, b"\0\1"):
        raise ValueError("a truth value is neither 0 nor 1")
    return list(map(bool, raw))


def read_text(receiver: Receiver, separator: Any, data: Any, errors: str) -> list[str]:
    """The strings of modes s and p."""
    if type(separator) is not str or len(separator) != 1:
        raise ValueError("a separator is not one character")
    view = receiver.take(data)
    # Text that is not all ASCII takes up to four bytes a character until it is split, and each separator makes a
    # reference.
    receiver.charge(8 * len(view))
    return str(view, "utf-8", errors).split(separator)


def _read_text(errors: str) -> Callable[[Receiver, int, Any, Any], list[Any]]:
    def reader(receiver: Receiver, length: int, separator: Any, data: Any) -> list[Any]:
        return read_text(receiver, separator, data, errors) if length else []

    return reader


def _read_bytes(receiver: Receiver, length: int, widths: Any, data: Any) -> list[bytes]:
    sizes = numbers(receiver, widths, "I", length).tolist()
    joined = bytes(receiver.take(data))
    if sum(sizes) != len(joined):
        raise ValueError("byte strings are not as long as they say")
    receiver.charge(len(joined))
    values, start = [], 0
    for size in sizes:
        values.append(joined[start : start + size])
        start += size
    return values


def _read_decimals(receiver: Receiver, length: int, texts: Any) -> list[Decimal]:
    values = decode(receiver, texts, forbidden="NAT?qdbDoutUvm")
    distinct = dict.fromkeys(values) if texts[0] == "c" else values  # a long one that repeats is read once
    if not all(map(DECIMAL.fullmatch, distinct)):
        raise ValueError("a decimal number is none")
    if texts[0] != "c":
        return list(map(Decimal, values))
    known = {text: Decimal(text) for text in distinct}
    return list(map(known.__getitem__, values))


def _read_dates(receiver: Receiver, length: int, data: Any) -> list[dt.date]:
    return list(map(dt.date.fromordinal, numbers(receiver, data, "i", length)))


def _read_datetimes(receiver: Receiver, length: int, data: Any) -> list[dt.datetime]:
    return [_EPOCH + dt.timedelta(microseconds=value) for value in numbers(receiver, data, "q", length)]


def _read_timedeltas(receiver: Receiver, length: int, data: Any) -> list[dt.timedelta]:
    return [dt.timedelta(microseconds=value) for value in numbers(receiver, data, "q", length)]


def _read_uuids(receiver: Receiver, length: int, data: Any) -> list[uuid.UUID]:
    raw = bytes(receiver.take(data))
    if len(raw) != 16 * length:
        raise ValueError("UUIDs are not 16 bytes each")
    return [uuid.UUID(bytes=raw[start : start + 16]) for start in range(0, len(raw), 16)]


def codes_and_uniques(
    receiver: Receiver, length: int, width: Any, data: Any, uniques: Any
) -> tuple[memoryview, list[Any]]:
    """The two pieces of mode c; the codes are not checked yet."""
    if width not in ("B", "H", "I"):
        raise ValueError("codes have no width")
    return numbers(receiver, data, width, length), decode(receiver, uniques, forbidden="vmc")


def _read_codes(receiver: Receiver, length: int, width: Any, data: Any, uniques: Any) -> list[Any]:
    codes, values = codes_and_uniques(receiver, length, width, data, uniques)
    return list(map(values.__getitem__, codes))  # an IndexError refuses a code that is too large


def _read_values(receiver: Receiver, length: int, values: Any) -> list[Any]:
    if type(values) is not list:
        raise ValueError("the values of a column are no list")
    return values


def _read_mixed(receiver: Receiver, length: int, codes: Any, parts: Any) -> list[Any]:
    rows = bytes(receiver.take(codes))
    if type(parts) is not tuple or len(parts) > 255 or len(rows) != length:
        raise ValueError("a mixed column has no parts")
    columns = [decode(receiver, part, forbidden="m") for part in parts]
    # Each part has to be used up exactly: as long as the number of its rows, and no row of a part that is not there.
    if sum(map(len, columns)) != length or any(rows.count(part) != len(column) for part, column in enumerate(columns)):
        raise ValueError("the parts of a mixed column have other lengths than its rows")
    sources: list[Iterator[Any]] = [
        repeat(None) if part[0] == "N" else iter(column) for part, column in zip(parts, columns, strict=True)
    ]
    return list(map(next, map(sources.__getitem__, rows)))


def _read_missing(name: str) -> Callable[[Receiver, int], list[Any]]:
    def reader(receiver: Receiver, length: int) -> list[Any]:
        import pandas as pd

        return [getattr(pd, name)] * length

    return reader


_DECODERS: dict[str, Callable[..., list[Any]]] = {
    "N": lambda receiver, length: [None] * length, "A": _read_missing("NA"), "T": _read_missing("NaT"),
    "?": _read_booleans, "q": _read_numbers("q"), "d": _read_numbers("d"), "s": _read_text("strict"),
    "p": _read_text("surrogatepass"), "b": _read_bytes, "D": _read_decimals, "o": _read_dates,
    "u": _read_datetimes, "t": _read_timedeltas, "U": _read_uuids, "c": _read_codes, "v": _read_values,
    "m": _read_mixed,
}  # fmt: skip
