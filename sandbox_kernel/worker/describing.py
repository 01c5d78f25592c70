"""Words about the variables of the session, for a caller that wants to know what there is and not the values."""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from typing import Any

_NAMES = 500
_COLUMNS = 60
_VALUE_CHARS = 100
_TEXT_CHARS = 20_000
_OF_IPYTHON = frozenset({"In", "Out", "exit", "quit", "get_ipython", "open"})
# Types whose text is short work and cannot fail.
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def variables(names: Mapping[str, Any], hidden: Mapping[str, Any]) -> dict[str, str]:
    """A line about each variable that cells have made; modules and names with a leading underscore are left out."""
    found: dict[str, str] = {}
    for name, value in list(names.items()):
        own = name not in hidden or hidden[name] is not value
        if isinstance(name, str) and name[:1] != "_" and own and not isinstance(value, types.ModuleType):
            if name in _OF_IPYTHON and type(value).__module__.partition(".")[0] == "IPython":
                continue
            found[name] = line(value)
            if len(found) == _NAMES:
                break
    return found


def line(value: Any) -> str:
    """``"DataFrame, 3 rows x 2 columns"``, ``"list, 5 items"``, ``"int, 7"``."""
    kind = type(value).__name__
    try:
        size = _size(value)
    except Exception:  # of the value's own code
        size = ""
    return f"{kind}, {size}"[:300] if size else kind[:300]


def _size(value: Any) -> str:
    if type(value) in _PLAIN:
        if isinstance(value, (str, bytes)) and len(value) > _VALUE_CHARS:
            return f"{len(value):,} {'characters' if isinstance(value, str) else 'bytes'}"
        if type(value) is int and value.bit_length() > 300:
            return f"{value.bit_length():,} bits"
        return repr(value)
    if isinstance(value, (types.FunctionType, type)):
        return (value.__doc__ or "").strip().partition("\n")[0][:_VALUE_CHARS]
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and all(isinstance(n, int) for n in shape):
        if len(shape) == 2 and hasattr(value, "columns"):
            return f"{shape[0]:,} rows x {shape[1]:,} columns"
        kind = getattr(value, "dtype", "")
        return " x ".join(f"{n:,}" for n in shape) + (f", {kind}" if kind != "" else "")
    return f"{len(value):,} items" if hasattr(type(value), "__len__") else ""


def description(name: str, value: Any) -> str:
    """Some lines about one variable: of a table the columns with their types, gaps and figures, and its first rows."""
    head = f"{name}: {line(value)}"
    module = type(value).__module__.partition(".")[0]
    try:
        if module == "pandas" and hasattr(value, "to_frame") and not hasattr(value, "columns"):
            body = f"{value.describe()}\n\nFirst values:\n{value.head(5)}"
        elif hasattr(value, "columns") and hasattr(value, "head"):
            body = _pandas(value) if module == "pandas" else _table(value)
        elif module == "numpy" and getattr(value, "dtype", None) is not None:
            body = _array(value)
        else:
            body = repr(value)
    except Exception as error:  # of the value's own code, or of a type that a library cannot describe
        body = f"(no more can be said of it: {type(error).__name__}: {error})"
    return f"{head}\n{body}"[:_TEXT_CHARS]


def _pandas(table: Any) -> str:
    pd = sys.modules["pandas"]  # its value is here, so it is loaded

    wide = len(table.columns) - _COLUMNS
    part = table.iloc[:, :_COLUMNS]
    columns = pd.DataFrame({"type": part.dtypes.astype(str), "missing": part.isna().sum()})
    text = [f"Memory: {int(table.memory_usage(index=True).sum()):,} bytes; index: {type(table.index).__name__}"]
    with pd.option_context("display.max_rows", _COLUMNS, "display.max_columns", 20, "display.width", 120):
        text.append(f"Columns:\n{columns.to_string()}")
        if wide > 0:
            text.append(f"(and {wide:,} columns more)")
        numbers = part.select_dtypes("number")
        if len(numbers.columns) and len(table):
            text.append(f"Figures:\n{numbers.describe().T.to_string(float_format='{:,.6g}'.format)}")
        text.append(f"First rows:\n{part.head(5).to_string(max_colwidth=40)}")
    return "\n\n".join(text)


def _table(table: Any) -> str:
    """Of a library that is like pandas in this much, such as polars."""
    schema = getattr(table, "schema", None)
    parts = [f"Columns: {schema if schema is not None else list(table.columns)}"]
    if hasattr(table, "describe"):
        parts.append(f"Figures:\n{table.describe()}")
    return "\n\n".join([*parts, f"First rows:\n{table.head(5)}"])


def _array(array: Any) -> str:
    parts = [f"{array.nbytes:,} bytes"]
    if array.dtype.kind in "iuf" and array.size:
        parts.append(f"smallest {array.min():.6g}, largest {array.max():.6g}, mean {array.mean():.6g}")
    return "; ".join(parts) + f"\n{array!r}"
