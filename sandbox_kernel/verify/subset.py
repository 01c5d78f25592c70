"""The part of Python that can be reasoned about: what is outside of it, and the functions of some code by name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

Definition = ast.FunctionDef

BUILTINS = frozenset(
    ("abs", "min", "max", "len", "sum", "any", "all", "int", "float", "bool", "divmod", "pow", "range", "list", "tuple",
     "sorted", "enumerate", "zip", "reversed")
)  # fmt: skip
ITERATORS = frozenset(("enumerate", "reversed", "zip"))  # what they give is no list
EXCEPTIONS = frozenset(
    ("ArithmeticError", "AssertionError", "Exception", "IndexError", "KeyError", "LookupError", "NotImplementedError",
     "OverflowError", "RuntimeError", "TypeError", "ValueError", "ZeroDivisionError")
)  # fmt: skip
_PARENTS = {
    "ZeroDivisionError": "ArithmeticError", "OverflowError": "ArithmeticError", "IndexError": "LookupError",
    "KeyError": "LookupError", "NotImplementedError": "RuntimeError", "RecursionError": "RuntimeError",
    "UnboundLocalError": "NameError",
}  # fmt: skip


class Outside(Exception):
    """Code that uses what cannot be reasoned about here.

    Attributes:
        what: the construct, as words that fit into "... uses WHAT".
        line: from 1.
        column: from 1.
    """

    def __init__(self, what: str, node: ast.AST | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.line, self.column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1


class OutOfTime(Exception):
    """The time given for an answer is over."""


def is_kind_of(exception: str, names: tuple[str, ...]) -> bool:
    """Whether an exception of this name is one of the named ones or of a class below them."""
    seen: str | None = exception
    while seen is not None:
        if seen in names:
            return True
        seen = _PARENTS.get(seen)
    return bool({"Exception", "BaseException"} & set(names))


@dataclass
class Program:
    """What some code defines at top level.

    Attributes:
        functions: by name.
        constants: values that are bound once, as expressions.
        others: names bound in any other way, and how ("imported from math").
        loose: whether there is other code at top level, which is not looked at.
        again: whether a function is defined more than once.
    """

    functions: dict[str, Definition] = field(default_factory=dict)
    constants: dict[str, ast.expr] = field(default_factory=dict)
    others: dict[str, str] = field(default_factory=dict)
    loose: bool = False
    again: bool = False

    @classmethod
    def of(cls, code: str) -> Program:
        """Read some code.

        Raises:
            Outside: it is not Python.
        """
        try:
            tree = ast.parse(code)
        except SyntaxError as error:
            outside = Outside(f"text that is not Python ({error.msg})")
            outside.line, outside.column = error.lineno or 1, error.offset or 1
            raise outside from error
        except (ValueError, RecursionError, MemoryError) as error:
            raise Outside(f"text that cannot be read ({error})") from error
        program = cls()
        for node in tree.body:
            program._add(node)
            program.loose = program.loose or any(map(_acts, _evaluated(node)))
        if program.again:  # which one a value was made by is not followed
            for name in [name for name, value in program.constants.items() if any(map(_acts, ast.walk(value)))]:
                program._other(name, "made by a call before a function was defined again")
        declared = {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
        for name in declared:
            program._other(name, "changed by a global statement")
        return program

    def _add(self, node: ast.stmt) -> None:
        match node:
            case ast.FunctionDef(name=name):
                if name in self.constants or name in self.others:
                    self._other(name, "bound several times")
                else:
                    self.again = self.again or name in self.functions
                    self.functions[name] = node
            case ast.AsyncFunctionDef(name=name):
                self._other(name, "an async function")
            case ast.ClassDef(name=name):
                self._other(name, "a class")
            case ast.Import(names=names):
                for alias in names:
                    self._other((alias.asname or alias.name).partition(".")[0], "a module")
            case ast.ImportFrom(module=module, names=names):
                for alias in names:
                    self._other(alias.asname or alias.name, f"imported from {module}")
                if names[0].name == "*":
                    self.loose = True
                    for name in (*BUILTINS, *self.functions, *self.constants):
                        self._other(name, f"perhaps imported from {module} by *")
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case ast.Assign(targets=[ast.Name(id=name)], value=value) | ast.AnnAssign(target=ast.Name(id=name),
                                                                                      value=ast.expr() as value):
                if name in self.functions or name in self.constants or name in self.others:
                    self._other(name, "bound several times")
                else:
                    self.constants[name] = value
            case ast.If(test=ast.Compare(left=ast.Name(id="__name__"), ops=[ast.Eq()],
                                         comparators=[ast.Constant(value="__main__")]), orelse=[]):  # fmt: skip
                pass  # does not run when the function is imported
            case _:
                self.loose = True
                for inner in ast.walk(node):
                    match inner:
                        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.FunctionDef(name=name):
                            self._other(name, "bound by code at top level")

    def _other(self, name: str, how: str) -> None:
        self.functions.pop(name, None)
        self.constants.pop(name, None)
        self.others[name] = how if name not in self.others else "bound several times"

    def known(self, name: str) -> bool:
        """Whether the code binds this name at top level."""
        return name in self.functions or name in self.constants or name in self.others


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a definition at top level that Python evaluates at once: not what is inside functions."""
    match node:
        case ast.If() | ast.Expr(value=ast.Constant()):
            return  # what of it matters was looked at
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            plain = {"classmethod", "dataclass", "property", "staticmethod"}
            for decorator in node.decorator_list:
                if not (isinstance(decorator, ast.Name) and decorator.id in plain):
                    yield ast.Call(decorator, [], [])
            parts: list[ast.AST] = [node.args, *([node.returns] if node.returns else [])]
        case ast.Lambda():
            parts = [node.args]
        case _:
            yield node
            parts = list(ast.iter_child_nodes(node))
    for part in parts:
        yield from _evaluated(part)


def _acts(node: ast.AST) -> bool:
    """Whether it may do more than give a value: bind a name or call what is not known."""
    if isinstance(node, ast.Call):
        return not (isinstance(node.func, ast.Name) and node.func.id in BUILTINS)
    return isinstance(node, (ast.NamedExpr, ast.Await))


def spec_expression(text: str, what: str) -> ast.expr:
    """A condition as an expression; its parts are looked at when it is used.

    Raises:
        ValueError: it is not an expression of Python.
    """
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"the {what} {text!r} is not an expression of Python: {error}") from error


def local_names(function: Definition) -> set[str]:
    """Parameters and every name that the function binds.

    Raises:
        Outside: a construct that binds names in a way that is not followed.
    """
    args = function.args
    if args.vararg or args.kwarg:
        raise Outside("a parameter of any length (*args, **kwargs)", args.vararg or args.kwarg)
    if function.decorator_list:
        raise Outside("a decorator", function.decorator_list[0])
    names = {arg.arg for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs)}
    for node in (inner for statement in function.body for inner in ast.walk(statement)):
        match node:
            case ast.Global() | ast.Nonlocal():
                raise Outside(f"a {type(node).__name__.lower()} statement", node)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                raise Outside("a definition inside a function", node)
            case ast.Yield() | ast.YieldFrom() | ast.Await():
                raise Outside("yield or await", node)
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                names.add(name)
    for node in (inner for statement in function.body for inner in ast.walk(statement)):
        if isinstance(node, ast.comprehension):  # its names are its own
            for inner in ast.walk(node.target):
                if isinstance(inner, ast.Name) and not _bound_elsewhere(function, inner.id):
                    names.discard(inner.id)
    return names


def _bound_elsewhere(function: Definition, name: str) -> bool:
    """Whether a name is a parameter or bound outside of comprehensions."""
    own = {id(inner) for node in ast.walk(function) if isinstance(node, ast.comprehension)
           for inner in ast.walk(node.target)}  # fmt: skip
    args = function.args
    if name in {arg.arg for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs)}:
        return True
    every = (node for statement in function.body for node in ast.walk(statement) if isinstance(node, ast.Name))
    return any(node.id == name and isinstance(node.ctx, ast.Store) and id(node) not in own for node in every)


def bind_arguments(function: Definition, call: ast.Call) -> dict[str, ast.expr | None]:
    """The argument of each parameter; None stands for the parameter's default.

    Raises:
        Outside: arguments that are not written one by one.
        TypeError: arguments that do not fit, as Python would say.
    """
    args = function.args
    plain = [arg.arg for arg in (*args.posonlyargs, *args.args)]
    if any(isinstance(arg, ast.Starred) for arg in call.args) or any(k.arg is None for k in call.keywords):
        raise Outside("a call with * or **", call)
    if len(call.args) > len(plain):
        raise TypeError("too many arguments")
    bound: dict[str, ast.expr | None] = dict(zip(plain, call.args, strict=False))
    named = {arg.arg for arg in (*args.args, *args.kwonlyargs)}
    for word in call.keywords:
        if word.arg not in named or word.arg in bound:
            raise TypeError(f"unexpected argument {word.arg}")
        bound[word.arg] = word.value
    for name in (*plain, *(arg.arg for arg in args.kwonlyargs)):
        if name not in bound:
            if default_of(function, name) is None:
                raise TypeError(f"missing argument {name}")
            bound[name] = None
    return bound


def default_of(function: Definition, name: str) -> ast.expr | None:
    """The default of a parameter, None when it has none."""
    args = function.args
    plain = [*args.posonlyargs, *args.args]
    found = dict(zip([arg.arg for arg in plain[len(plain) - len(args.defaults) :]], args.defaults, strict=True))
    found |= {arg.arg: value for arg, value in zip(args.kwonlyargs, args.kw_defaults, strict=True) if value is not None}
    return found.get(name)
