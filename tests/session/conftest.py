"""Kernels for the tests that look from outside."""

from __future__ import annotations

from ..kernel.conftest import start, start_shared

__all__ = ["start", "start_shared"]
