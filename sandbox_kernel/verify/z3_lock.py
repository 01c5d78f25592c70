"""z3's main context is not made for several threads: one question at a time."""

from __future__ import annotations

import threading

LOCK = threading.Lock()
