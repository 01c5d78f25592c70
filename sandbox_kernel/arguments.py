"""Arguments of the Python API, checked before anything is started: one rule for each name, whatever takes it.

An argument of the same name means the same in every function, so its rule is looked up by the name. A rule raises
``TypeError`` or ``ValueError`` with a sentence that has the argument, its value and what would have been right. None
passes where an annotation says so.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import numbers
import os
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from .errors import nearest

P = ParamSpec("P")
T = TypeVar("T")
_VALUE_CHARS = 80


def check_arguments(function: Callable[P, T]) -> Callable[P, T]:
    """Decorator: the arguments that `RULES` knows are checked before the function begins (not when it is awaited)."""
    parameters = inspect.signature(function).parameters
    by_place = [p.name for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    by_name = {p.name for p in parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    optional = {p.name for p in parameters.values() if "None" in str(p.annotation)}
    rules = {name: rule for name, rule in RULES.items() if name in parameters}
    placed = [(at, name) for at, name in enumerate(by_place) if name in rules]
    named_rules = rules.keys() & by_name

    @functools.wraps(function)
    def checked(*given: P.args, **named: P.kwargs) -> T:
        if not open_ended and not named.keys() <= by_name:
            name = next(name for name in named if name not in by_name)
            near = nearest(name, by_name)
            hint = f"; did you mean {near!r}?" if near else ""
            what = function.__qualname__.removesuffix(".__init__")
            raise TypeError(f"{what} has no argument {name!r}{hint}")
        for at, name in placed:
            if at < len(given) and (given[at] is not None or name not in optional):
                rules[name](name, given[at])
        for name, value in named.items():
            if name in named_rules and (value is not None or name not in optional):
                rules[name](name, value)
        return function(*given, **named)

    return checked


def one_of(name: str, value: Any, known: Sequence[str]) -> None:
    """A word out of a list.

    Raises:
        TypeError, ValueError: it is none of them; the sentence names the nearest.
    """
    text(name, value)
    if value not in known:
        near = nearest(value, known)
        hint = f"; did you mean {near!r}?" if near else ""
        raise ValueError(f"{name} is {shown(value)}, and must be one of {', '.join(map(repr, known))}{hint}")


def shown(value: Any) -> str:
    """A value in an error, however large."""
    try:
        return reprlib.repr(value)[:_VALUE_CHARS]
    except Exception:  # of a class of the caller's
        return f"a {type(value).__name__}"


def seconds(name: str, value: Any) -> None:
    """A time; 0 is none, as it would end everything or nothing."""
    if isinstance(value, bool) or not isinstance(value, (int, float, numbers.Real)):
        raise _wrong(name, value, "a number of seconds above 0", _number(value))
    if not 0 < float(value) < math.inf:
        raise ValueError(f"{name} is {value}, and must be a finite number of seconds above 0")


def count(name: str, value: Any, least: int = 1) -> None:
    """How many."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise _wrong(name, value, f"a whole number from {least}", _number(value))
    if value < least:
        raise ValueError(f"{name} is {value}, and must be {least} or more")


def text(name: str, value: Any) -> None:
    """Any text."""
    if not isinstance(value, str):
        raise _wrong(name, value, "a text", repr(value.decode(errors="replace")) if isinstance(value, bytes) else "")


def names(name: str, value: Any) -> None:
    """Several names; one text would be taken for its letters."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise _wrong(name, value, "a list of texts", repr([value]) if isinstance(value, str) else "")


def sequence(name: str, value: Any) -> None:
    """Values in their order."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise _wrong(name, value, "a list or tuple", shown([value]))


def mapping(name: str, value: Any) -> None:
    """Values by name."""
    if not isinstance(value, Mapping):
        raise _wrong(name, value, "a dictionary with names as keys")
    for key in value:
        if not isinstance(key, str):
            raise TypeError(f"{name} has the key {shown(key)}, and its keys must be names")


def contents(name: str, value: Any) -> None:
    """Files by their names."""
    mapping(name, value)
    for file, content in value.items():
        data(f"{name}[{file!r}]", content)


def data(name: str, value: Any) -> None:
    """What a file holds."""
    if not isinstance(value, (str, bytes, bytearray, memoryview)):
        raise _wrong(name, value, "bytes or a text")


def path(name: str, value: Any) -> None:
    """A path as text, whether there is anything at it or not."""
    if not isinstance(value, (str, os.PathLike)) or not isinstance(os.fspath(value), str):
        raise _wrong(name, value, "a path as text", repr(os.fsdecode(value)) if isinstance(value, bytes) else "")
    if not os.fspath(value) or "\0" in os.fspath(value):
        raise ValueError(f"{name} is {shown(value)}, and must be a path: it is empty or has a null character")


def document(name: str, value: Any) -> None:
    """A path, or what was read from one already."""
    if isinstance(value, (int, float, bytes)) or value is None:
        raise _wrong(name, value, "a path as text")


def folder(name: str, value: Any) -> None:
    """A folder that is there."""
    path(name, value)
    found = Path(value)
    if found.is_dir():
        return
    siblings: list[str] = []
    what = "is a file and no folder" if found.exists() else "is not there"
    with contextlib.suppress(OSError):
        siblings = [entry.name for entry in found.parent.iterdir() if entry.is_dir()]
    near = nearest(found.name, siblings)
    hint = f"; did you mean {str(found.parent / near)!r}?" if near else ""
    raise ValueError(f"{name} is {shown(str(value))}, which {what}: it must be a folder{hint}")


def function(name: str, value: Any) -> None:
    """What can be called."""
    if not callable(value):
        raise _wrong(name, value, "a function")


def back(name: str, value: Any) -> None:
    """How many cells to undo, or a checkpoint's name."""
    if not isinstance(value, str):
        count(name, value)


def sandbox(name: str, value: Any) -> None:
    """A sandbox of this API."""
    if not hasattr(value, "adopt"):
        raise _wrong(name, value, "a sandbox that was forked from this one")


def _number(value: Any) -> str:
    """What a text of digits was meant to be; "" for other values."""
    with_digits = isinstance(value, str) and value.strip().replace(".", "", 1).isdecimal()
    return value.strip() if with_digits else ""


def _wrong(name: str, value: Any, due: str, near: str = "") -> TypeError:
    hint = f"; did you mean {near}?" if near else ""
    return TypeError(f"{name} is {shown(value)} ({type(value).__name__}), and must be {due}{hint}")


Rule = Callable[[str, Any], None]
RULES: dict[str, Rule] = {
    **dict.fromkeys(("timeout", "timeout_s", "loading"), seconds),
    **dict.fromkeys(("size", "bound"), count),
    **dict.fromkeys(("code", "level", "strategy", "verify", "function", "pre", "post"), text),
    **dict.fromkeys(("returns", "raises"), names),
    **dict.fromkeys(("args", "invariants", "variants"), sequence),
    **dict.fromkeys(("inputs", "kwargs", "modules", "types"), mapping),
    **dict.fromkeys(("on_stdout", "on_stderr", "on_result", "guard", "replay"), function),
    "submission": document, "tests": document, "workspace": folder, "path": path, "data": data, "files": contents,
    "to": back, "branch": sandbox, "lists": functools.partial(count, least=0),
}  # fmt: skip
