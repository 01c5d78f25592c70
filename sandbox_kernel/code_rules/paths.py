"""What the names of some code may stand for, as far as its text tells: ``o.system`` after ``import os as o``.

Nothing is run, and the order of statements is not followed: a name stands for everything that is ever bound to it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from .patterns import INNER_MODULES

_PASSES = 4  # an alias of an alias of an alias of an alias
_DEPTH = 40
_MOST_PATHS = 8
_LONGEST_PATH = 200
_MOST_NAMES = 10_000
_IMPORTERS = ("importlib.import_module", "importlib.__import__", "__import__", "builtins.__import__",
              "pkgutil.resolve_name", "pydoc.locate", "runpy.run_module",
              "importlib.util.find_spec")  # fmt: skip
_LOOKUPS = ("get", "pop", "setdefault", "__getitem__")

Paths = frozenset[str]
NONE: Paths = frozenset()


def text_of(node: ast.AST | None) -> str | None:
    """The text that an expression surely is: literals, their sums, f-strings of literals, slices."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            one, other = text_of(left), text_of(right)
            return one + other if one is not None and other is not None and len(one) + len(other) < 10_000 else None
        case ast.JoinedStr(values=values):
            parts = [text_of(part.value if isinstance(part, ast.FormattedValue) else part) for part in values]
            return _joined("", parts)
        case ast.Subscript(value=value, slice=ast.Slice(lower=None, upper=None, step=step)):
            whole = text_of(value)
            backwards = isinstance(step, ast.UnaryOp) and ast.unparse(step) == "-1"
            return whole[::-1] if whole is not None and backwards else None
        case ast.Call(func=ast.Attribute(value=joint, attr="join"), args=[ast.List(elts=elts) | ast.Tuple(elts=elts)]):
            between = text_of(joint)
            return _joined(between, [text_of(part) for part in elts]) if between is not None else None
    return None


def _joined(between: str, parts: list[str | None]) -> str | None:
    known = [part for part in parts if part is not None]
    return between.join(known) if len(known) == len(parts) else None


class Names:
    """Names and attributes, and the dotted paths that they may stand for.

    Args:
        roots: first parts of the paths worth knowing, besides those that are imported.
    """

    def __init__(self, roots: Iterable[str] = ()) -> None:
        self._roots = {"builtins", "importlib", "sys", "operator", *roots}
        self._names: dict[str, Paths] = {}
        self._attributes: dict[str, Paths] = {}

    def copy(self) -> Names:
        """Names that go on from here."""
        other = Names(self._roots)
        other._names, other._attributes = dict(self._names), dict(self._attributes)
        return other

    # ------------------------------------------------------------ what is bound

    def learn(self, tree: ast.Module) -> None:
        """Take in everything that the code binds."""
        inside = {id(item) for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for item in node.body}
        for _ in range(_PASSES):
            before = dict(self._names), dict(self._attributes)
            for node in ast.walk(tree):
                for name, paths, attribute in self._bindings(node):
                    self._bind(name, paths, attribute=attribute)
                    if id(node) in inside:
                        self._bind(name, paths, attribute=True)
            if before == (self._names, self._attributes):
                return

    def _bind(self, name: str, paths: Iterable[str], *, attribute: bool = False) -> None:
        table = self._attributes if attribute else self._names
        known = table.get(name, NONE)
        new = {p for p in paths if p != name and len(p) <= _LONGEST_PATH and p.partition(".")[0] in self._roots}
        if new and len(known | new) <= _MOST_PATHS and len(table) < _MOST_NAMES:
            table[name] = known | new

    def _bindings(self, node: ast.AST) -> Iterator[tuple[str, Iterable[str], bool]]:
        match node:
            case ast.Import(names=names):
                for alias in names:
                    top = alias.name.partition(".")[0]
                    self._roots.add(top)
                    yield alias.asname or top, [alias.name if alias.asname else top, same(top)], False
            case ast.ImportFrom(module=str(module), names=names, level=0):
                self._roots.add(module.partition(".")[0])
                for alias in names:
                    found = {f"{module}.{alias.name}", *self._private(alias.name), f"{same(module)}.{alias.name}"}
                    yield alias.asname or alias.name, found, False
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    yield from self._unpack(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
                yield from self._unpack(target, value)
            case ast.For(target=target, iter=ast.Tuple(elts=elts) | ast.List(elts=elts) | ast.Set(elts=elts)):
                for value in elts:
                    yield from self._unpack(target, value)
            case ast.comprehension(target=target, iter=ast.Tuple(elts=elts) | ast.List(elts=elts)):
                for value in elts:
                    yield from self._unpack(target, value)
            case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
                yield from self._unpack(target, value)
            case ast.arguments():
                plain = [*node.posonlyargs, *node.args]
                for arg, value in zip(plain[len(plain) - len(node.defaults) :], node.defaults, strict=True):
                    yield arg.arg, self.paths(value), False
                for arg, default in zip(node.kwonlyargs, node.kw_defaults, strict=True):
                    if default is not None:
                        yield arg.arg, self.paths(default), False
            case ast.Call(func=ast.Name(id="setattr"), args=[_, name, value]):
                if (text := text_of(name)) is not None:
                    yield text, self.paths(value), True

    def _unpack(self, target: ast.expr, value: ast.expr) -> Iterator[tuple[str, Iterable[str], bool]]:
        match target, value:
            case ast.Name(id=name), _:
                yield name, self.paths(value), False
            case ast.Attribute(attr=name), _:
                yield name, self.paths(value), True
            case (ast.Tuple(elts=left) | ast.List(elts=left)), (ast.Tuple(elts=right) | ast.List(elts=right)):
                for one, other in zip(left, right, strict=False):
                    yield from self._unpack(one, other)

    # ------------------------------------------------------------ what an expression is

    def paths(self, node: ast.AST, depth: int = 0) -> Paths:
        """The dotted paths that an expression may stand for; built-in names without ``builtins.``."""
        if depth > _DEPTH:
            return NONE
        found = self._paths(node, depth + 1)
        return found | {path.removeprefix("builtins.") for path in found if path.startswith("builtins.")}

    def _paths(self, node: ast.AST, depth: int) -> Paths:
        match node:
            case ast.Name(id="__builtins__"):
                return frozenset({"builtins"})
            case ast.Name(id=name):
                return self._names.get(name, NONE) | {name}
            case ast.Attribute(attr="__self__"):  # of a built-in function
                return frozenset({"builtins"})
            case ast.Attribute(value=value, attr=attr):
                below = self._below(self.paths(value, depth), attr)
                return below | self._attributes.get(attr, NONE) | (self._private(attr) if below else NONE)
            case ast.NamedExpr(value=value):
                return self.paths(value, depth)
            case ast.IfExp(body=body, orelse=other):
                return self.paths(body, depth) | self.paths(other, depth)
            case ast.BoolOp(values=values):
                return NONE.union(*(self.paths(value, depth) for value in values[:_MOST_PATHS]))
            case ast.Subscript(value=value, slice=index):
                return self._item(self.paths(value, depth), text_of(index))
            case ast.Call():
                return self._call(node, depth)
        return NONE

    def _private(self, name: str) -> Paths:
        """The module that a module has imported for itself: ``random._os``."""
        bare = name[1:]
        return frozenset({bare}) if name.startswith("_") and bare in self._roots else NONE

    @staticmethod
    def _below(paths: Paths, attr: str) -> Paths:
        return frozenset(f"{path}.{attr}" for path in paths if len(path) <= _LONGEST_PATH)

    @staticmethod
    def _item(paths: Paths, key: str | None) -> Paths:
        """What a lookup of ``key`` in a namespace gives."""
        if key is None:
            return NONE
        found = {f"{path.removesuffix('.__dict__')}.{key}" for path in paths if path.endswith(".__dict__")}
        if "builtins" in paths:
            found.add(f"builtins.{key}")
        if paths & {"globals()", "locals()"}:
            found.add("builtins" if key == "__builtins__" else key)
        if holds_modules(paths):
            found |= {key, same(key)}
        return frozenset(found)

    def _call(self, node: ast.Call, depth: int) -> Paths:
        called = self.paths(node.func, depth)
        first = text_of(node.args[0]) if node.args else None
        match node:
            case ast.Call(func=ast.Name(id="getattr"), args=[value, name, *_]):
                attr = text_of(name)
                return self._below(self.paths(value, depth), attr) if attr else NONE
            case ast.Call(args=[value, name, *_]) if "inspect.getattr_static" in called:
                attr = text_of(name)
                return self._below(self.paths(value, depth), attr) if attr else NONE
            case ast.Call(func=ast.Attribute(attr="__getattribute__", value=value), args=[*before, name]):
                attr = text_of(name)
                owner = before[0] if before else value
                return self._below(self.paths(owner, depth), attr) if attr else NONE
            case ast.Call(func=ast.Call(func=getter, args=[name, *_]), args=[value]):
                attr = text_of(name)
                if attr and self.paths(getter, depth) & {"operator.attrgetter", "operator.methodcaller"}:
                    return self._below(self.paths(value, depth), attr)
            case ast.Call(func=ast.Name(id="vars"), args=[value]):
                return self._below(self.paths(value, depth), "__dict__")
            case ast.Call(func=ast.Name(id="globals" | "locals" | "vars"), args=[]):
                return frozenset({"globals()"})
            case ast.Call(func=ast.Attribute(value=value, attr=attr), args=[_, *_]) if attr in _LOOKUPS:
                if found := self._item(self.paths(value, depth), first):
                    return found
        if first and any(map(_imports, called)):
            module = first.replace(":", ".")
            names = {module, same(module)}
            roots = {name.partition(".")[0] for name in names}
            self._roots |= roots
            return frozenset(names | roots if "__import__" in str(called) else names)
        return NONE

    def imports_by_call(self, node: ast.Call) -> tuple[bool, str | None]:
        """Whether a call imports a module by its name, and the name where the text tells it."""
        if not any(map(_imports, self.paths(node.func))):
            return False, None
        named = [keyword.value for keyword in node.keywords if keyword.arg in ("name", "mod_name")]
        text = text_of(node.args[0] if node.args else named[0] if named else None)
        return True, text.partition(":")[0] if text is not None else None

    def imports_by_name(self, node: ast.expr) -> bool:
        """Whether an expression is a function that imports modules."""
        return any(map(_imports, self.paths(node)))

    def looked_up_module(self, node: ast.expr) -> str | None:
        """The name of the module that an expression takes out of ``sys.modules``."""
        match node:
            case ast.Subscript(value=value, slice=key):
                return text_of(key) if holds_modules(self.paths(value)) else None
            case ast.Call(func=ast.Attribute(value=value, attr=attr), args=[key, *_]) if attr in _LOOKUPS:
                return text_of(key) if holds_modules(self.paths(value)) else None
        return None


def same(module: str) -> str:
    """The name under which people know a module that another one is made of; else its own."""
    top, dot, rest = module.partition(".")
    return INNER_MODULES.get(top, top) + dot + rest


def holds_modules(paths: Paths) -> bool:
    """Whether one of the paths is ``sys.modules``, reached in whatever way."""
    return any(f".{path}".endswith(".sys.modules") for path in paths)


def _imports(path: str) -> bool:
    return path in _IMPORTERS or path.endswith(".load_module")
