"""Kernels, as for the other tests from outside."""

from __future__ import annotations

from ..kernel.conftest import start

__all__ = ["start"]
