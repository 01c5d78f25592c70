"""All attempts at the wall, by id. Those that go through Jupyter are in `tests/attacks/front.py`."""

from __future__ import annotations

from ..attempt import Attempt
from . import files, identity, interfaces, links, namespaces, network, persistence, proc, processes

ATTEMPTS: dict[str, Attempt] = {}
for _module in (files, links, proc, processes, network, namespaces, identity, interfaces, persistence):
    for _attempt in _module.ATTEMPTS:
        if _attempt.id in ATTEMPTS:
            raise ValueError(f"two attempts are called {_attempt.id}")
        ATTEMPTS[_attempt.id] = _attempt
