"""Runs the same part of Python with plain values: counterexamples are replayed with it where there is no sandbox.

Written apart from the translation to z3, so that a fault in one of them shows as a disagreement.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .subset import BUILTINS, EXCEPTIONS, Definition, Outside, Program, bind_arguments, default_of, local_names

_MOST_BITS = 100_000
_MOST_ITEMS = 100_000
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.LShift: operator.lshift,
    ast.RShift: operator.rshift, ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda item, items: item in items, ast.NotIn: lambda item, items: item not in items,
}  # fmt: skip
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_,
    ast.Invert: lambda value: operator.invert(int(value) if isinstance(value, bool) else value),  # bools: deprecated
}  # fmt: skip
_CALLS: dict[str, Callable[..., Any]] = {
    "abs": abs, "min": min, "max": max, "len": len, "sum": sum, "any": any, "all": all, "int": int, "float": float,
    "bool": bool, "divmod": divmod, "pow": pow, "range": range, "list": list, "tuple": tuple, "sorted": sorted,
    "enumerate": enumerate, "zip": zip, "reversed": reversed,
}  # fmt: skip
_METHODS = ("append", "pop", "copy", "reverse", "insert", "count", "index", "extend", "sort")


class Raised(Exception):
    """The code raised; `name` is the exception's class."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class StepsUsedUp(Exception):
    """The code did not end within the steps that it was given."""


class _Return(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


class _Break(Exception):
    pass


class _Continue(Exception):
    pass


class Interpreter:
    """Runs functions of a program. The values are Python's own; nothing is compiled or looked up by name.

    Args:
        program: what there is to call.
        steps: statements and expressions that may be evaluated before `StepsUsedUp`.
    """

    def __init__(self, program: Program, steps: int = 200_000) -> None:
        self._program, self._steps, self._depth = program, steps, 0

    def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """The result of a function.

        Raises:
            Raised: the function raised.
            StepsUsedUp: it did not end.
            Outside: it uses what this interpreter does not know.
        """
        try:
            return self._call(self._program.functions[name], dict(arguments))
        except RecursionError:
            raise Raised("RecursionError") from None

    def condition(self, node: ast.expr, names: Mapping[str, Any]) -> bool:
        """Whether a condition holds; one that raises does not."""
        try:
            return bool(self._value(node, _Scope(dict(names), None)))
        except Raised:
            return False

    def _call(self, function: Definition, arguments: dict[str, Any]) -> Any:
        scope = _Scope(arguments, local_names(function))
        self._depth += 1
        if self._depth > 80:
            raise StepsUsedUp
        try:
            self._block(function.body, scope)
        except _Return as done:
            return done.value
        finally:
            self._depth -= 1
        return None

    # ------------------------------------------------------------ statements

    def _block(self, body: list[ast.stmt], scope: _Scope) -> None:
        for node in body:
            self._step()
            self._statement(node, scope)

    def _step(self) -> None:
        self._steps -= 1
        if self._steps < 0:
            raise StepsUsedUp

    def _statement(self, node: ast.stmt, scope: _Scope) -> None:
        match node:
            case ast.Return(value=value):
                raise _Return(self._value(value, scope) if value is not None else None)
            case ast.Assign(targets=targets, value=value):
                found = self._value(value, scope)
                for target in targets:
                    self._store(target, found, scope)
            case ast.AnnAssign(target=target, value=value):
                if value is not None:
                    self._store(target, self._value(value, scope), scope)
            case ast.AugAssign(target=target, op=op, value=value):
                self._augmented(target, op, value, scope)
            case ast.If(test=test, body=body, orelse=other):
                self._block(body if self._value(test, scope) else other, scope)
            case ast.While() | ast.For():
                self._loop(node, scope)
            case ast.Break():
                raise _Break
            case ast.Continue():
                raise _Continue
            case ast.Expr(value=value):
                self._value(value, scope)
            case ast.Pass():
                pass
            case ast.Assert(test=test):
                if not self._value(test, scope):
                    raise Raised("AssertionError")
            case ast.Raise(exc=exc):
                raise Raised(exception_name(exc, node))
            case _:
                raise Outside(f"a statement of the kind {type(node).__name__}", node)

    def _loop(self, node: ast.While | ast.For, scope: _Scope) -> None:
        items = iter(self._call_plain(iter, self._value(node.iter, scope))) if isinstance(node, ast.For) else None
        while True:
            self._step()
            if items is not None and isinstance(node, ast.For):
                try:
                    item = next(items)
                except StopIteration:
                    break
                self._store(node.target, item, scope)
            elif isinstance(node, ast.While) and not self._value(node.test, scope):
                break
            try:
                self._block(node.body, scope)
            except _Break:
                return
            except _Continue:
                continue
        self._block(node.orelse, scope)

    def _store(self, target: ast.expr, value: Any, scope: _Scope) -> None:
        match target:
            case ast.Name(id=name):
                scope.names[name] = value
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                if not isinstance(value, (list, tuple, range)):
                    raise Raised("TypeError")
                if len(value) != len(targets):
                    raise Raised("ValueError")
                for one, item in zip(targets, value, strict=True):
                    self._store(one, item, scope)
            case ast.Subscript(value=owner, slice=index) if not isinstance(index, ast.Slice):
                self._call_plain(operator.setitem, self._value(owner, scope), self._value(index, scope), value)
            case _:
                raise Outside("an assignment to this kind of target", target)

    def _augmented(self, target: ast.expr, op: ast.operator, value: ast.expr, scope: _Scope) -> None:
        if isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Slice):
            owner, index = self._value(target.value, scope), self._value(target.slice, scope)
            old = self._call_plain(operator.getitem, owner, index)
            self._call_plain(operator.setitem, owner, index, self._binary(op, old, self._value(value, scope)))
        elif isinstance(target, ast.Name):
            old = self._value(ast.Name(target.id, ast.Load()), scope)
            if isinstance(old, list):
                raise Outside("an augmented assignment to a list", target)
            scope.names[target.id] = self._binary(op, old, self._value(value, scope))
        else:
            raise Outside("an assignment to this kind of target", target)

    # ------------------------------------------------------------ expressions

    def _value(self, node: ast.expr, scope: _Scope) -> Any:
        self._step()
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self._name(node, name, scope)
            case ast.UnaryOp(op=op, operand=operand):
                return self._call_plain(_UNARY[type(op)], self._value(operand, scope))
            case ast.BinOp(left=left, op=op, right=right):
                return self._binary(op, self._value(left, scope), self._value(right, scope))
            case ast.BoolOp(op=op, values=values):
                value = None
                for each in values:
                    value = self._value(each, scope)
                    if bool(value) == isinstance(op, ast.Or):
                        break
                return value
            case ast.Compare(left=left, ops=ops, comparators=others):
                return self._compare(left, ops, others, scope)
            case ast.IfExp(test=test, body=body, orelse=other):
                return self._value(body if self._value(test, scope) else other, scope)
            case ast.NamedExpr(target=target, value=value):
                found = self._value(value, scope)
                scope.outermost().names[target.id] = found
                return found
            case ast.Tuple(elts=items):
                return tuple(self._value(item, scope) for item in items)
            case ast.List(elts=items):
                return [self._value(item, scope) for item in items]
            case ast.Subscript(value=owner, slice=index):
                if isinstance(index, ast.Slice):
                    ends = (index.lower, index.upper, index.step)
                    part = slice(*[self._value(end, scope) if end is not None else None for end in ends])
                    return self._call_plain(operator.getitem, self._value(owner, scope), part)
                return self._call_plain(operator.getitem, self._value(owner, scope), self._value(index, scope))
            case ast.ListComp(elt=element, generators=generators):
                return list(self._comprehension(element, generators, scope))
            case ast.GeneratorExp(elt=element, generators=generators):
                return self._comprehension(element, generators, scope)
            case ast.Call():
                return self._function(node, scope)
        raise Outside(f"an expression of the kind {type(node).__name__}", node)

    def _name(self, node: ast.AST, name: str, scope: _Scope) -> Any:
        inner: _Scope | None = scope
        while inner is not None:
            if name in inner.names:
                return inner.names[name]
            if inner.locals is not None and name in inner.locals:
                raise Raised("UnboundLocalError")
            inner = inner.parent
        if name in self._program.constants:
            return self._value(self._program.constants[name], _Scope({}, None))
        if self._program.known(name) or name in BUILTINS:
            raise Outside(f"{name} otherwise than by calling it", node)
        raise Raised("NameError")

    def _compare(self, left: ast.expr, ops: list[ast.cmpop], others: list[ast.expr], scope: _Scope) -> Any:
        one, result = self._value(left, scope), True
        for op, other in zip(ops, others, strict=True):
            two = self._value(other, scope)
            result = self._call_plain(_COMPARE[type(op)], one, two)
            if not result:
                return result
            one = two
        return result

    def _binary(self, op: ast.operator, left: Any, right: Any) -> Any:
        function = _BINARY.get(type(op))
        if function is None or isinstance(left, str) or isinstance(right, str):
            raise Outside(f"the operator {type(op).__name__} on these values")
        if isinstance(op, (ast.Pow, ast.LShift)) and isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() * max(right, 0) if isinstance(op, ast.Pow) else left.bit_length() + max(right, 0)
            if bits > _MOST_BITS:
                raise StepsUsedUp
        if isinstance(op, ast.Mult):
            for items, times in ((left, right), (right, left)):
                if isinstance(items, (list, tuple)) and isinstance(times, int) and len(items) * times > _MOST_ITEMS:
                    raise StepsUsedUp
            if isinstance(left, int) and isinstance(right, int):
                bits = left.bit_length() + right.bit_length()
                if bits > _MOST_BITS:
                    raise StepsUsedUp
        return self._call_plain(function, left, right)

    def _call_plain(self, function: Callable[..., Any], *arguments: Any, **words: Any) -> Any:
        try:
            return function(*arguments, **words)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise Raised(type(error).__name__) from None

    def _comprehension(self, element: ast.expr, generators: list[ast.comprehension], scope: _Scope) -> Iterator[Any]:
        first, *rest = generators
        if first.is_async:
            raise Outside("an async comprehension", element)
        for item in self._call_plain(iter, self._value(first.iter, scope)):
            self._step()
            inner = _Scope({}, None, scope)
            self._store(first.target, item, inner)
            if all(self._value(test, inner) for test in first.ifs):
                yield from self._comprehension(element, rest, inner) if rest else iter([self._value(element, inner)])

    def _function(self, node: ast.Call, scope: _Scope) -> Any:
        match node.func:
            case ast.Name(id=name) if scope.has(name):
                raise Outside(f"a call of the variable {name}", node)
            case ast.Name(id=name) if name in self._program.functions:
                function = self._program.functions[name]
                try:
                    bound = bind_arguments(function, node)
                except TypeError:
                    raise Raised("TypeError") from None
                values = {}
                for parameter, argument in bound.items():
                    default = default_of(function, parameter)
                    expression = argument if argument is not None else default
                    if expression is not None:
                        values[parameter] = self._value(expression, scope if argument is not None else _Scope({}, None))
                return self._call(function, values)
            case ast.Name(id="implies") if not self._program.known("implies") and len(node.args) == 2:
                return not self._value(node.args[0], scope) or bool(self._value(node.args[1], scope))
            case ast.Name(id=name) if name in BUILTINS and not self._program.known(name) and not node.keywords:
                arguments = [self._value(argument, scope) for argument in node.args]
                if name == "range" and arguments and len(range(*[a for a in arguments if isinstance(a, int)])) > 10**9:
                    raise StepsUsedUp
                return self._call_plain(_CALLS[name], *arguments)
            case ast.Attribute(value=owner, attr=attr) if attr in _METHODS and not node.keywords:
                items = self._value(owner, scope)
                if not isinstance(items, list):
                    raise Outside(f"the method {attr} of this value", node)
                return self._call_plain(getattr(items, attr), *[self._value(argument, scope) for argument in node.args])
        raise Outside("a call of this kind", node)


class _Scope:
    """Names of a function or comprehension; `locals` are those that a function binds somewhere."""

    def __init__(self, names: dict[str, Any], locals_: set[str] | None, parent: _Scope | None = None) -> None:
        self.names, self.locals, self.parent = names, locals_, parent

    def has(self, name: str) -> bool:
        return name in self.names or name in (self.locals or ()) or (self.parent is not None and self.parent.has(name))

    def outermost(self) -> _Scope:
        return self if self.parent is None else self.parent.outermost()


def exception_name(node: ast.expr | None, statement: ast.AST) -> str:
    """The class that a raise statement raises.

    Raises:
        Outside: it cannot be told.
    """
    match node:
        case ast.Name(id=name) | ast.Call(func=ast.Name(id=name)) if name in EXCEPTIONS:
            return name
    raise Outside("a raise of this kind", statement)
