"""Hashing on behalf of a stranger: keys can be chosen so that a table needs quadratic time to take them.

A few thousand colliding keys cost a millisecond. Larger tables are filled a little at a time and have to keep
near the time that honest keys need; each table can be that slow only in proportion to its keys. Text and bytes are
exempt, because their hashes are keyed by a secret of this process.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

SMALL = 2000  # keys of one table
_CHUNK = 256
_FREE_S = 0.05  # of processor time for one payload
_KEY_S = 5e-6  # more for each key: fifty times what honest integers need, enough for those that hash in Python
_SECRET_HASH = frozenset({str, bytes})


class HashGuard:
    """Fills the dicts and sets of one payload."""

    __slots__ = ("_allowed", "_spent")

    def __init__(self) -> None:
        self._allowed = _FREE_S
        self._spent = 0.0

    def update(self, target: dict[Any, Any], added: Sequence[Any]) -> None:
        """Add keys and values, which take turns in `added`.

        Raises:
            ValueError: the keys collide, or one has no value.
        """
        if len(added) % 2:
            raise ValueError("a key has no value")
        if len(target) + len(added) // 2 <= SMALL or _SECRET_HASH.issuperset(map(type, added[::2])):
            turns = iter(added)
            for key, value in zip(turns, turns, strict=True):
                target[key] = value
            return
        for start in range(0, len(added), 2 * _CHUNK):
            chunk = added[start : start + 2 * _CHUNK]
            began = time.thread_time()
            target.update(zip(chunk[::2], chunk[1::2], strict=True))
            self._account(began, len(chunk) // 2)

    def add(self, target: set[Any], items: Sequence[Any]) -> None:
        """``target.update(items)``.

        Raises:
            ValueError: the items collide.
        """
        if len(target) + len(items) <= SMALL or _SECRET_HASH.issuperset(map(type, items)):
            target.update(items)
            return
        for start in range(0, len(items), _CHUNK):
            began = time.thread_time()
            target.update(items[start : start + _CHUNK])
            self._account(began, min(_CHUNK, len(items) - start))

    def _account(self, began: float, keys: int) -> None:
        self._spent += time.thread_time() - began
        self._allowed += _KEY_S * keys
        if self._spent > self._allowed:
            raise ValueError("keys collide")

    def check_labels(self, index: Any) -> None:
        """Labels that pandas is about to look through for duplicates.

        Its hashes of numbers are no secret either. So a growing random sample is hashed first: labels that
        collide show themselves while they are still few.

        Raises:
            ValueError: the labels collide.
        """
        if len(index) <= SMALL or type(index).__name__ == "RangeIndex":
            return
        import numpy as np
        import pandas as pd

        size = SMALL
        order = np.random.default_rng().permutation(len(index))
        while size < len(index):
            sample = index.take(order[:size])
            began = time.thread_time()
            pd.unique(sample)
            self._account(began, size)
            size *= 4
