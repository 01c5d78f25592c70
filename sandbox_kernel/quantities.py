"""Sizes and times as people write them, and back."""

from __future__ import annotations

import re

KIB, MIB, GIB = 1024, 1024**2, 1024**3
_SIZE_UNITS = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": KIB, "mib": MIB, "gib": GIB, "tib": 1024**4,
}  # fmt: skip
_TIME_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
LARGEST = 2**60  # a limit beyond it is a slip of the pen, and the kernel's own fields end at 2**63
_NUMBER = re.compile(r"\s*(\d+(?:_\d+)*(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def parse_size(value: object) -> int:
    """Bytes out of ``4096`` or ``"4GiB"``; ``"4 GB"`` counts in thousands.

    Raises:
        ValueError: not a positive size; the text says what is expected.
    """
    return _whole(value, _SIZE_UNITS, 'a size such as "512MiB" or "4GB"')


def parse_count(value: object) -> int:
    """A positive whole number.

    Raises:
        ValueError: it is none.
    """
    return _whole(value, {"": 1}, "a positive whole number")


def parse_seconds(value: object) -> float:
    """Seconds out of ``30``, ``1.5``, ``"30s"`` or ``"5min"``.

    Raises:
        ValueError: not a positive time.
    """
    number = _number(value, _TIME_UNITS, lower=False)
    if number is None or not 0 < number <= LARGEST:
        raise ValueError('is not a positive time such as "30s" or "5min"')
    return float(number)


def show_size(size: int) -> str:
    """``"4 GiB"``: in the largest unit that needs no more than two decimals, else in bytes."""
    for name, unit in (("TiB", 1024**4), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if size >= unit and (size * 100) % unit == 0:
            return f"{size / unit:.2f}".rstrip("0").rstrip(".") + f" {name}"
    return f"{size} bytes"


def show_seconds(seconds: float) -> str:
    """``"1.5 s"``, ``"5 min"``, ``"2 h"``."""
    for name, unit in (("h", 3600), ("min", 60)):
        if seconds >= unit and seconds % unit == 0:
            return f"{seconds / unit:g} {name}"
    return f"{seconds:g} s"


def _whole(value: object, units: dict[str, int], expected: str) -> int:
    number = _number(value, units, lower=True)
    if number is None or number != int(number) or not 0 < number <= LARGEST:
        raise ValueError(f"is not {expected}")
    return int(number)


def _number(value: object, units: dict[str, int] | dict[str, float], *, lower: bool) -> float | None:
    """The value in base units; None when it is no number, or has a unit that is not one of these."""
    if isinstance(value, str):
        match = _NUMBER.fullmatch(value)
        unit = "" if match is None else match[2].lower() if lower else match[2]
        if match is None or unit not in units:
            return None
        text = match[1].replace("_", "")
        return (float(text) if "." in text else int(text)) * units[unit]
    # nan compares false with everything, so the callers' ranges refuse it; infinity they refuse by size.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= LARGEST:
        return None
    return value
