"""Modules of the host: functions and values that code in the sandbox imports, and that live in this process."""

from __future__ import annotations

import asyncio
import builtins
import contextvars
import functools
import inspect
import keyword
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..arguments import mapping
from ..errors import FrameRefused, ProtocolError
from ..session.exchange import Answer
from .values import pack, unpack

Modules = Mapping[str, Mapping[str, Any]]

_THREADS = 8
_TEXT_CHARS = 10_000
_TOLD_CHARS = 10_000

in_tool: contextvars.ContextVar[object] = contextvars.ContextVar("sandbox_kernel_in_tool", default=None)
"""The sandbox whose cell waits for the host function that runs; it cannot be used from there."""


def checked(modules: Modules) -> dict[str, dict[str, Any]]:
    """A copy of what a caller gave.

    Raises:
        ValueError: a name that cannot be a module's or an attribute's, or is a module of Python itself.
        TypeError: no mapping of mappings.
    """
    mapping("modules", modules)
    found: dict[str, dict[str, Any]] = {}
    for module, content in modules.items():
        if not isinstance(content, Mapping):
            raise TypeError(f"module {module!r} must be a mapping of names to functions and values")
        for name in (module, *content):
            if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name) or len(name) > 200:
                raise ValueError(f"{name!r} cannot be a name in Python")
        if module in sys.stdlib_module_names or module in ("IPython", "ipykernel", "sandbox_kernel"):
            raise ValueError(f"{module!r} is the name of a module that the sandbox itself needs")
        if any(name.startswith("__") for name in content):
            raise ValueError(f"module {module!r}: names that begin with two underscores are Python's own")
        found[module] = dict(content)
    return found


def description(modules: Modules) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, Any]]]:
    """What the sandbox is told: for each module the help text of its functions, and its values."""
    told = {m: {n: _told(n, f) for n, f in content.items() if callable(f)} for m, content in modules.items()}
    values = {m: {n: v for n, v in content.items() if not callable(v)} for m, content in modules.items()}
    return told, values


def _told(name: str, function: Callable[..., Any]) -> str:
    try:
        signature = str(inspect.signature(function))
    except (TypeError, ValueError):
        signature = "(...)"
    return f"{name}{signature}\n\n{inspect.getdoc(function) or ''}"[:_TOLD_CHARS].rstrip()


class Tools:
    """Answers the calls of one sandbox.

    Args:
        owner: the sandbox.
        most: bytes of one value.
    """

    def __init__(self, owner: object, most: int) -> None:
        self._owner, self._most = owner, most
        self._scopes: list[Mapping[str, Mapping[str, Any]]] = []
        self._pool: ThreadPoolExecutor | None = None

    def push(self, modules: Mapping[str, Mapping[str, Any]]) -> None:
        """From now on these modules' functions may be called; those of the same name are out of reach."""
        self._scopes.append(modules)

    def pop(self) -> None:
        """Take the last ones away."""
        self._scopes.pop()

    def close(self) -> None:
        """Wait for nothing; idempotent."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    async def call(self, module: str, name: str, arguments: memoryview) -> Answer:
        """Answer a call. Module, name and arguments are hostile.

        Raises:
            ProtocolError: the arguments are no frame of a call.
        """
        try:
            given, named = await self._in_thread(functools.partial(_arguments, arguments, self._most))
        except FrameRefused as error:
            return "TypeError", f"{module}.{name} cannot be called with this: {error}"
        found: Mapping[str, Any] = next((scope[module] for scope in reversed(self._scopes) if module in scope), {})
        function = found.get(name)
        if not callable(function):
            return "AttributeError", f"module {module!r} of the host has no function {name!r} now"
        token = in_tool.set(self._owner)
        try:
            if inspect.iscoroutinefunction(function):
                value = await function(*given, **named)
            else:
                value, raised = await self._in_thread(functools.partial(_outcome, function, given, named))
                if raised is not None:
                    return exception_told(raised)
                if inspect.isawaitable(value):
                    value = await value
        except BaseException as error:  # of the function; none may end the loop, or leave the cell without an answer
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # it is ours: the cell has ended
            return exception_told(error)
        finally:
            in_tool.reset(token)
        try:
            return await self._in_thread(functools.partial(pack, value, self._most))  # type: ignore[no-any-return]
        except FrameRefused as error:
            return "TypeError", f"{module}.{name} returned what cannot enter the sandbox: {error}"

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="sandbox-kernel-host")
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._pool, context.run, work)


def _outcome(
    function: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]
) -> tuple[Any, BaseException | None]:
    """What a function returns, or what it raises: a StopIteration would never come out of a future of asyncio."""
    try:
        return function(*given, **named), None
    except BaseException as error:
        return None, error


def _arguments(memory: memoryview, most: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    match unpack(memory, most):
        case (tuple() as given, dict() as named) if all(isinstance(name, str) for name in named):
            return given, named
    raise ProtocolError("the arguments of a call are not arguments")


def exception_told(error: BaseException) -> tuple[str, str]:
    """Of an exception what the sandbox may know: its kind among Python's own, and its text."""
    kind = next((k.__name__ for k in type(error).__mro__ if getattr(builtins, k.__name__, None) is k), "RuntimeError")
    text = str(error.args[0]) if isinstance(error, KeyError) and len(error.args) == 1 else str(error)
    return kind, text[:_TEXT_CHARS]
