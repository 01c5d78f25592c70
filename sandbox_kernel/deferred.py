"""Packages whose ``__init__`` is run when something of it is asked for, and not with the first import below them.

``ipykernel`` needs two of jupyter_client's modules. jupyter_client's ``__init__`` imports all of the others too, for
clients and managers of kernels: a fifth of the time that a kernel takes to start.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

# Names that can be had from one module alone.
_OF_MODULES = {"jupyter_client": {"find_connection_file": "connect", "write_connection_file": "connect"}}


class _Deferred(ModuleType):
    """A package with its path, so that modules below it can be imported; all else on demand."""

    def __getattr__(self, name: str) -> Any:
        of_module = _OF_MODULES.get(self.__name__, {}).get(name)
        if of_module is not None:
            return getattr(importlib.import_module(f"{self.__name__}.{of_module}"), name)
        if not name.startswith("_") and importlib.util.find_spec(f"{self.__name__}.{name}") is not None:
            # "from . import name" in the midst of such an import: the whole package would import what is half done.
            return importlib.import_module(f"{self.__name__}.{name}")
        _load(self)
        return getattr(self, name)

    def __dir__(self) -> list[str]:
        _load(self)
        return dir(self)


def _load(module: ModuleType) -> None:
    module.__class__ = ModuleType  # first: the code looks for names that are not there yet
    spec = module.__spec__
    assert spec is not None  # noqa: S101 - `defer` set both
    assert spec.loader is not None  # noqa: S101
    try:
        spec.loader.exec_module(module)
    except BaseException:
        module.__class__ = _Deferred
        raise


def defer(names: Iterable[str] = tuple(_OF_MODULES)) -> None:
    """Put these packages off. One that is loaded already, or not installed, is left alone."""
    for name in names:
        spec = None if name in sys.modules else importlib.util.find_spec(name)
        if spec is None or spec.loader is None or spec.submodule_search_locations is None:
            continue
        module = importlib.util.module_from_spec(spec)
        module.__class__ = _Deferred
        sys.modules[name] = module
