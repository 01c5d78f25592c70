"""What IPython keeps once for the process, kept for each shell: cells of subshells run at the same time.

Stock shares these attributes among all threads. Then a result of one cell can leave as another's, an error loses its
traceback, and a thread prints into a cell of a shell that it has nothing to do with.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import ipykernel.displayhook
import ipykernel.zmqshell
from IPython.core.payload import PayloadManager

MAIN = ""  # the name of the main shell; the others have the ids that the front gave them
SUBSHELL = "subshell-"  # what the names of their threads begin with
_MARK = "_sandbox_kernel_shell"
_several = False
_kept: dict[str, dict[tuple[int, str], Any]] = {}


def current_shell() -> str:
    """The shell that the calling thread belongs to: a thread belongs to the shell whose cell has started it."""
    if not _several:
        return MAIN
    name: str = getattr(threading.current_thread(), _MARK, MAIN)
    return name


def enter(shell: str) -> None:
    """The calling thread is this shell's from now on, and so are the threads that it starts."""
    global _several
    setattr(threading.current_thread(), _MARK, shell)
    if not _several:
        _several = True
        _follow_threads()


def forget(shell: str) -> None:
    """A shell is gone."""
    _kept.pop(shell, None)


def _follow_threads() -> None:
    start = threading.Thread.start

    def start_in_shell(self: threading.Thread) -> None:
        setattr(self, _MARK, current_shell())
        start(self)

    threading.Thread.start = start_in_shell  # type: ignore[method-assign]


class PerShell:
    """An attribute that each shell has for itself.

    Args:
        default: makes the value of a shell that has set none.
    """

    def __init__(self, default: Callable[[], Any] = lambda: None) -> None:
        self._default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        values, key = self._place(instance)
        if key not in values:
            values[key] = self._default()
        return values[key]

    def __set__(self, instance: Any, value: Any) -> None:
        values, key = self._place(instance)
        values[key] = value

    def _place(self, instance: Any) -> tuple[dict[Any, Any], Any]:
        shell = current_shell()
        if shell == MAIN:
            return instance.__dict__, self._name
        return _kept.setdefault(shell, {}), (id(instance), self._name)


class Payloads(PayloadManager):
    """The payloads of each shell's cell."""

    _payload = PerShell(list)


def install() -> None:
    """Part the attributes of ipykernel's own classes. Called before the shell is made."""
    shared: list[tuple[type, str, Callable[[], Any]]] = [
        (ipykernel.zmqshell.ZMQInteractiveShell, "_last_traceback", lambda: None),
        (ipykernel.zmqshell.ZMQInteractiveShell, "_last_traceback_during_displayhook", lambda: False),
        (ipykernel.displayhook.ZMQShellDisplayHook, "msg", lambda: None),
        (ipykernel.zmqshell.ZMQInteractiveShell, "_parent_header_global", dict),
        (ipykernel.displayhook.ZMQShellDisplayHook, "_parent_header_global", dict),
        (ipykernel.zmqshell.ZMQDisplayPublisher, "_parent_header_global", dict),
    ]
    for owner, name, default in shared:
        attribute = PerShell(default)
        attribute.__set_name__(owner, name)
        setattr(owner, name, attribute)
