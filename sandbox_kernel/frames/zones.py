"""Time zones by library and key, both ways. The four libraries' objects differ, and come back as what they were."""

from __future__ import annotations

import datetime as dt
import zoneinfo
from typing import Any

from .grammar import ZONE

_DAY_US = 86_400_000_000
_MICROSECOND = dt.timedelta(microseconds=1)


def reduce_zone(zone: dt.tzinfo) -> tuple[Any, ...] | None:
    """``(library, key or offset in microseconds, ...)``; None for a zone that has no name of its own."""
    if type(zone) is dt.timezone:
        offset, name = zone.utcoffset(None), zone.tzname(None)
        if name == dt.timezone(offset).tzname(None):
            return "datetime", offset // _MICROSECOND
        return ("datetime", offset // _MICROSECOND, name) if len(name) <= 64 else None
    if type(zone) is zoneinfo.ZoneInfo:
        return _keyed("zoneinfo", zone.key)
    library = type(zone).__module__.partition(".")[0]
    if library == "pytz":
        minutes = getattr(zone, "_minutes", None)
        return ("pytz", minutes) if isinstance(minutes, int) else _keyed("pytz", getattr(zone, "zone", None))
    if library == "dateutil":
        return _reduce_dateutil(zone)
    return None


def _keyed(library: str, key: object) -> tuple[Any, ...] | None:
    return (library, key) if isinstance(key, str) and ZONE.fullmatch(key) else None


def _reduce_dateutil(zone: Any) -> tuple[Any, ...] | None:
    from dateutil import tz

    if isinstance(zone, tz.tzutc):
        return "dateutil", "UTC"
    if type(zone) is tz.tzoffset:
        offset = zone.utcoffset(None)
        return ("dateutil", offset // _MICROSECOND) if offset is not None else None
    path = getattr(zone, "_filename", None)
    if not isinstance(zone, tz.tzfile) or not isinstance(path, str):
        return None
    key = path.rpartition("zoneinfo/")[2]
    known = tz.gettz(key) if ZONE.fullmatch(key) else None
    return ("dateutil", key) if known == zone else None


def build_zone(library: Any, key: Any, name: Any = None) -> dt.tzinfo:
    """The time zone.

    Raises:
        ValueError: no such library, key or offset.
        zoneinfo.ZoneInfoNotFoundError: a key that this machine has no data for.
    """
    if type(key) is int and library in ("datetime", "dateutil"):
        if not -_DAY_US < key < _DAY_US:
            raise ValueError("the offset of a time zone is a day or more")
        offset = dt.timedelta(microseconds=key)
        if library == "datetime":
            if name is None:
                return dt.UTC if not key else dt.timezone(offset)
            if type(name) is not str or len(name) > 64:
                raise ValueError("the name of a time zone is too long")
            return dt.timezone(offset, name)
        from dateutil import tz

        return tz.tzoffset(None, key / 1e6)  # type: ignore[no-any-return]
    if name is not None:
        raise ValueError("only a fixed offset has a name")
    if library == "pytz" and type(key) is int and -1440 < key < 1440:
        return _build_pytz_offset(key)
    if type(key) is not str or not ZONE.fullmatch(key):
        raise ValueError("the key of a time zone is none")
    if library == "zoneinfo":
        return zoneinfo.ZoneInfo(key)
    if library == "pytz":
        return _build_pytz(key)
    if library == "dateutil":
        return _build_dateutil(key)
    raise ValueError("a time zone is of no known library")


def _build_pytz_offset(minutes: int) -> dt.tzinfo:
    try:
        import pytz
    except ImportError:
        return dt.timezone(dt.timedelta(minutes=minutes))
    return pytz.FixedOffset(minutes)  # type: ignore[no-any-return]


def _build_pytz(key: str) -> dt.tzinfo:
    try:
        import pytz
    except ImportError:
        return zoneinfo.ZoneInfo(key)
    # pytz looks a key up below its own folder, and keeps what it found.
    return pytz.timezone(key)  # type: ignore[no-any-return]


def _build_dateutil(key: str) -> dt.tzinfo:
    from dateutil import tz

    if key == "UTC":
        return tz.UTC  # type: ignore[no-any-return]
    # Without the check, a key with digits would be read as a rule such as EST5EDT, others as this machine's own.
    if key not in _dateutil_keys():
        raise ValueError("the key of a time zone is none")
    zone = tz.gettz(key)
    if not isinstance(zone, tz.tzfile):
        raise ValueError("the key of a time zone is none")
    return zone  # type: ignore[no-any-return]


def _dateutil_keys() -> frozenset[str]:
    global _keys
    if not _keys:
        _keys = frozenset(zoneinfo.available_timezones())
    return _keys


_keys: frozenset[str] = frozenset()
