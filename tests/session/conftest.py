"""Kernels for the tests that look from outside."""

from __future__ import annotations

from ..kernel.conftest import start

__all__ = ["start"]
