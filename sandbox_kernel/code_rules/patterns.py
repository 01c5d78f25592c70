"""Dotted names and the patterns that stand for them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

# Modules under another name: what Python's own modules are made of.
INNER_MODULES = {"posix": "os", "_posixsubprocess": "subprocess", "_frozen_importlib": "importlib"}


@lru_cache(maxsize=1024)
def _regex(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in pattern.split("*")), re.DOTALL)


def matches(pattern: str, name: str) -> bool:
    """Whether the whole name is one that the pattern stands for."""
    return _regex(pattern).fullmatch(name) is not None


def parents(name: str) -> list[str]:
    """The name and every name above it: ``a.b.c``, ``a.b``, ``a``."""
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(len(parts), 0, -1)]


def covers(pattern: str, name: str) -> bool:
    """Whether the pattern stands for the module or for one above it."""
    return any(matches(pattern, parent) for parent in parents(name))


def is_path_of(pattern: str, path: str) -> bool:
    """Whether an attribute path is, or leads through, what a pattern forbids.

    ``os.system`` also stands for ``logging.os.system``: modules are reached through others.
    """
    for parent in parents(path):
        parts = parent.split(".")
        # A bare name must stand at the front: `df.eval` is not `eval`.
        starts = range(len(parts)) if "." in pattern else (0,)
        if any(matches(pattern, ".".join(parts[start:])) for start in starts):
            return True
    return False


def _known_as(name: str) -> str:
    """What a module of C is the inside of: ``_ctypes`` of ``ctypes``, ``posix`` of ``os``."""
    top = name.partition(".")[0]
    return INNER_MODULES.get(top, top[1:] if top[:1] == "_" and top[:2] != "__" else name)


def refused_import(name: str, parent: str, allow: Sequence[str], deny: Sequence[str]) -> str | None:
    """The rule that refuses to import a module, None when it may be imported.

    Args:
        name: of the module. With `parent` it may also be a plain name inside the module `parent`.
        parent: "" where the whole name is a module's.
        allow: patterns of ``imports.allow``.
        deny: patterns of ``imports.deny``.
    """
    if any(covers(pattern, either) for pattern in deny for either in {name, _known_as(name)}):
        return "code.imports.deny"
    if any(covers(pattern, either) for pattern in allow for either in (name, parent) if either):
        return None
    return "code.imports.allow"
