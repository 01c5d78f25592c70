"""The policy's ``[code]`` rules while a cell runs: imports, built-in names and the number of steps.

These are guard rails. A cell that wants to can take them away; what it may do is decided by the wall. They concern the
cells' own code only: numpy may import ctypes although a cell may not.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any

_TICK = "__sandbox_tick__"


class PolicyRefusal(ImportError):
    """A module that the policy does not let cells import."""


class MissingName(NameError):
    """A built-in name that the policy takes away."""


# In a notebook both are what the policy refuses; code that asks `except ImportError` or NameError is served, too.
MissingName.__name__ = MissingName.__qualname__ = PolicyRefusal.__name__


class TickLimit(BaseException):
    """The cell took more steps than the policy allows. No `Exception`: a cell's own handlers must not swallow it."""


def guard(shell: Any, rules: Mapping[str, Any]) -> None:
    """Set up the next cell. What the rules are the front says with each cell.

    Args:
        shell: IPython's.
        rules: ``imports_allow`` and ``imports_deny``, ``builtins_remove``, ``ticks``; each may be missing.
    """
    rails: _Rails | None = getattr(shell, "guard_rails", None)
    if rails is None:
        rails = shell.guard_rails = _Rails(shell)
    rails.rules = rules


class _Rails:
    """What is set up anew for each cell."""

    def __init__(self, shell: Any) -> None:
        self.rules: Mapping[str, Any] = {}
        self._left = self._ticks = 0
        self._shell = shell
        # Not earlier: by then the kernel has put its own `input` into the built-in names.
        shell.events.register("pre_run_cell", self._begin)
        shell.events.register("post_run_cell", self._end)
        shell.set_custom_exc((PolicyRefusal, MissingName, TickLimit), _show)
        self._steps = _Steps()
        self._import_module = importlib.import_module
        importlib.import_module = self._checked_import_module

    def _begin(self, *_: Any) -> None:
        """Give the cell built-in names of its own. Functions keep those of the cell that defined them."""
        rules = self.rules
        names = dict(vars(builtins))
        if "imports_allow" in rules:
            names["__import__"] = partial(self._import, builtins.__import__)
        for name in rules.get("builtins_remove", ()):
            if name in names:
                names[name] = partial(_removed, name)
        self._ticks = self._left = rules.get("ticks", 0)
        names[_TICK] = self._tick
        self._shell.user_ns["__builtins__"] = names
        transformers = self._shell.ast_transformers
        if self._ticks and self._steps not in transformers:
            transformers.append(self._steps)
        elif not self._ticks and self._steps in transformers:
            transformers.remove(self._steps)

    def _end(self, *_: Any) -> None:
        """What runs between cells (a widget's callback) has the steps of a cell, too."""
        self._left = self._ticks

    def _tick(self, steps: int) -> bool:
        if self._ticks:
            self._left -= steps
            if self._left < 0:
                raise TickLimit(
                    f"The cell was ended because it took more than {self._ticks:,} steps (statements, turns of "
                    f"comprehensions, calls of lambdas); code.ticks = {self._ticks:,}. Make it do less at a time. "
                    "The variables of this session are kept."
                )
        return True

    # ------------------------------------------------------------ imports

    def _import(
        self, original: Callable[..., Any], name: str, namespace: Mapping[str, Any] | None = None,
        local: Mapping[str, Any] | None = None, fromlist: Sequence[str] | None = (), level: int = 0,
    ) -> Any:  # fmt: skip
        if level == 0:
            names = [f"{name}.{part}" for part in fromlist or () if part != "*"]
            for each in names or [name]:
                self._refuse(each, name if names else "")
        return original(name, namespace, local, fromlist, level)

    def _checked_import_module(self, name: str, package: str | None = None) -> Any:
        if sys._getframe(1).f_globals is self._shell.user_ns and not name.startswith("."):
            self._refuse(name, "")
        return self._import_module(name, package)

    def _refuse(self, name: str, parent: str) -> None:
        if "imports_allow" not in self.rules or parent == "__future__":
            return
        from ..code_rules.advice import refused_text
        from ..code_rules.patterns import refused_import

        allow = self.rules["imports_allow"]
        rule = refused_import(name, parent, allow, self.rules["imports_deny"])
        if rule is not None:
            problem, instead = refused_text(rule, name, allow)
            raise PolicyRefusal(f"{problem} ({rule}) {instead}".rstrip(), name=name)


def _removed(name: str, *_: Any, **__: Any) -> Any:
    raise MissingName(f"The built-in {name} does not exist here. (code.builtins.remove)", name=name)


def _show(
    shell: Any, kind: type[BaseException], error: BaseException, trace: TracebackType | None,
    tb_offset: int | None = None,
) -> None:  # fmt: skip
    """Show an error of ours without our own frames."""
    seen: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in seen and len(seen) < 100:  # it may have been raised while handling another
        seen.append(link)
        _trim(link.__traceback__)
        link = link.__cause__ or link.__context__
    _trim(trace)
    shell.showtraceback((kind, error, trace), tb_offset=tb_offset, running_compiled_code=True)


def _trim(trace: TracebackType | None) -> None:
    while trace is not None and trace.tb_next is not None:
        if trace.tb_next.tb_frame.f_code.co_filename == __file__:
            trace.tb_next = None
        trace = trace.tb_next


class _Steps(ast.NodeTransformer):
    """Puts a count into every block of statements, comprehension and lambda.

    Lines or byte codes would be counted differently by each version of Python, and depend on how code is laid out.
    """

    def visit_Module(self, node: ast.Module) -> ast.AST:
        return self._blocks(node)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        return self._blocks(node)

    def _blocks(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                start = _first(block)
                if start < len(block):
                    block.insert(start, self._count(ast.Expr, len(block) - start, block[start]))
        if isinstance(node, ast.comprehension):
            node.ifs.insert(0, self._call(1, node.target))
        if isinstance(node, ast.Lambda):
            counted = ast.BoolOp(ast.And(), [self._call(1, node.body), node.body])
            node.body = ast.copy_location(counted, node.body)
        return node

    def _count(self, kind: type[ast.Expr], steps: int, at: ast.AST) -> ast.Expr:
        return ast.copy_location(kind(self._call(steps, at)), at)

    @staticmethod
    def _call(steps: int, at: ast.AST) -> ast.Call:
        call = ast.Call(ast.Name(_TICK, ast.Load()), [ast.Constant(steps)], [])
        for part in (call, call.func, call.args[0]):
            ast.copy_location(part, at)
        return call


def _first(block: Sequence[ast.stmt]) -> int:
    """Where code begins: after a docstring and words to the compiler."""
    for index, node in enumerate(block):
        match node:
            case ast.Expr(value=ast.Constant(value=str())) if index == 0:
                continue
            case ast.ImportFrom(module="__future__") | ast.Global() | ast.Nonlocal():
                continue
        return index
    return len(block)
