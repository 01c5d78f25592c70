"""What may be in a payload: bounds, and the closed patterns of every text that means something."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ..errors import FrameRefused

MIB = 1024 * 1024

DEPTH = 64  # containers inside containers, counted as they are written
LENGTH = 2**31  # of any axis, list or range of labels
LEVELS = 256  # of an index
LABEL_DEPTH = 8  # of tuples in a label
DIMENSIONS = 8
INTEGER_BYTES = 4096  # of one Python int; its text has 9,864 digits
IN_BAND_BYTES = 1024  # shorter data travels inside the pickle, longer data as a buffer of its own


@dataclass(frozen=True, slots=True)
class Budget:
    """What one frame may cost its receiver. Everything is checked before it is built.

    Attributes:
        wire_bytes: of the payload and its buffers together.
        memory_bytes: of what is built besides the buffers (arrays use these in place): eight bytes for each row of
            each column of objects, and the objects themselves.
        unfolded_bytes: of what takes no memory until it is used: ranges of labels, the rows of a table without
            data, sparse columns, arrays without items. Counted as eight bytes a label or row.
        opcodes: steps of the decoder, about a tenth of a microsecond each.
    """

    wire_bytes: int = 4096 * MIB
    memory_bytes: int = 4096 * MIB
    unfolded_bytes: int = 1024 * MIB
    opcodes: int = 10_000_000


DEFAULT_BUDGET = Budget()

# What containers in the pickle itself may take. A small dict has 26 times the size of its opcodes, an empty set 216
# times; so about a million small containers are free, and more need data in them.
CONTAINER_BYTES = 64 * MIB
CONTAINER_BYTES_PER_BYTE = 16

FLAT = frozenset({type(None), bool, int, float, str, bytes, bytearray})


class FrameWarning(UserWarning):
    """Something without data in it was left behind, such as an index's `freq` that has no name of its own."""


class Refusal(Exception):
    """A value that the sender will not write; becomes `FrameRefused` once its place is known.

    Attributes:
        path: steps from the outermost value to this one, innermost first.
    """

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy
        self.path: list[str] = []

    def error(self) -> FrameRefused:
        where = "value"
        for step in reversed(self.path):
            where += step if step.startswith("[") else f", {step}"
        where = where.removeprefix("value, ") if self.path else ""
        if len(where) > 160:
            where = f"{where[:100]} ... {where[-50:]}"
        return FrameRefused(self.problem, where=where, remedy=self.remedy)


def label(name: Any) -> str:
    """A label or key as a person knows it, short. Only plain values are asked for their text."""
    if type(name) not in FLAT and type(name) is not tuple:
        return f"<{type(name).__name__}>"
    text = repr(name) if type(name) is not tuple else f"({', '.join(map(label, name[:4]))})"
    return text if len(text) <= 60 else f"{text[:50]}...{text[-6:]}"


def type_name(kind: type) -> str:
    """``module.Type``, without the module for built-in types."""
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"{module}{kind.__qualname__}"[:120]


_UNIT = r"\[(?:Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\]"
DTYPE = re.compile(
    rf"\|b1|[|][iu]1|[<>](?:[iu][248]|f[248]|c(?:8|16)|[Mm]8(?:{_UNIT})?|U[1-9]\d{{0,5}})|\|S[1-9]\d{{0,6}}|<U0|\|S0",
    re.ASCII,
)
COLUMN_DTYPE = re.compile(r"\|b1|[|][iu]1|[<>](?:[iu][248]|f[248]|c(?:8|16)|[Mm]8\[(?:s|ms|us|ns)\])", re.ASCII)
"""The dtypes that pandas keeps as they are."""

ZONE = re.compile(r"(?!.*\.\.)[A-Za-z0-9_+-][A-Za-z0-9_+./-]{0,63}")
"""A zone's key; it becomes part of a path."""

# ASCII: other scripts have digits too.
DECIMAL = re.compile(
    r"-?(?:\d{1,10000}(?:\.\d{0,10000})?|\.\d{1,10000})(?:E[+-]?\d{1,9})?|-?Infinity|-?s?NaN\d{0,100}", re.ASCII
)
INTEGER = re.compile(r"-?\d{1,4000}", re.ASCII)

_MONTH = r"(?:JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC)"
_DAY = r"(?:MON|TUE|WED|THU|FRI|SAT|SUN)"
FREQUENCY = re.compile(
    rf"-?\d{{0,9}}(?:[BCDhHTSLUN]|min|s|ms|us|ns|W(?:-{_DAY})?|WOM-[1-4]{_DAY}"
    rf"|[MQYA]|(?:SM|SME|SMS|M|ME|MS|BM|BME|BMS|bh)"
    rf"|(?:B?Q|B?QE|B?QS|B?Y|B?YE|B?YS|B?A|B?AS)(?:-{_MONTH})?)",
    re.ASCII,
)
"""Names of pandas' frequencies that are wholly described by their name."""

SLOW_FREQUENCY_LENGTH = 50_000
"""Labels. pandas checks a calendar frequency label by label in Python, and nothing else tells whether it is true."""
