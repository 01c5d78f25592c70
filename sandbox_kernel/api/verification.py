"""Code that judges other code: it runs in a sandbox of its own, which the other has never touched."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

from ..code_rules import CodeGate
from ..errors import CellError
from ..policy import Policy
from .asked import PolicyLike
from .execution import Execution
from .sync import Sandbox

# Python's own names are never the code's: it could define a `sorted` or an `abs` that suits it.
_OWN = frozenset(vars(builtins)) | {"__name__", "__file__"}
MODULE = "code_under_test"


class Verification:
    """A sandbox for the verification, and what it may use of the one with the code.

    Not a second process of the same sandbox: files that the code left behind would be found by imports and start-up.
    Values are copies that passed the frame gate, so their types are Python's, numpy's or pandas' own. A function of the
    code is called over there, and what it returns is copied.

    Args:
        policy, level, timeout: as of the sandbox with the code, but rules for code do not concern the verification.
    """

    def __init__(self, policy: PolicyLike, *, level: str | None, timeout: float | None) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sandbox-kernel-verification")
        self._box: Future[Sandbox] = self._thread.submit(Sandbox, policy, level=level, timeout=timeout)

    def run(self, code: str, given: Mapping[str, Any], box: Sandbox, functions: Iterable[str]) -> Execution:
        """Run the verification.

        Args:
            code: its text.
            given: its variables.
            box: the sandbox with the code.
            functions: names that are functions over there.
        """
        mine = self._box.result()
        mine._box._code_gate = CodeGate(Policy().code)
        proxies = {name: _proxy(box, name) for name in functions}
        if proxies:
            modules = {MODULE: proxies}
            begun = mine.run_code(f"from {MODULE} import {', '.join(proxies)}", modules=modules)
            if not begun.success:
                return begun
            return mine.run_code(code, inputs=given, modules=modules)
        return mine.run_code(code, inputs=given)

    def close(self) -> None:
        """End it."""
        if not self._box.cancel() and self._box.exception() is None:
            self._box.result().close()
        self._thread.shutdown()

    def __enter__(self) -> Verification:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def wanted(code: str, known: Iterable[str]) -> list[str]:
    """Names that a verification reads and neither binds itself nor finds among the known: those are the code's.

    Raises:
        SyntaxError: it is not Python.
    """
    read: dict[str, None] = {}
    bound = set(known) | _OWN
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                read[name] = None
            case ast.Name(id=name) | ast.arg(arg=name):
                bound.add(name)
            case ast.alias():
                bound.add((node.asname or node.name).partition(".")[0])
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                bound.add(node.name)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                bound.add(name)
    return [name for name in read if name not in bound]


def called(code: str) -> set[str]:
    """Names that a text calls."""
    return {n.func.id for n in ast.walk(ast.parse(code)) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}


def _proxy(box: Sandbox, name: str) -> Callable[..., Any]:
    def function(*arguments: Any, **named: Any) -> Any:
        try:
            return box.call(name, *arguments, **named)
        except CellError as error:
            kind = getattr(builtins, error.name, None)
            if isinstance(kind, type) and issubclass(kind, Exception):
                raise kind(error.value) from None
            raise RuntimeError(f"{error.name}: {error.value}") from None

    function.__doc__ = f"`{name}` of the code; runs where the code ran."
    return function
