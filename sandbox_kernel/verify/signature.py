"""Whether code defines a function with the parameters that were asked for. Reads the code; runs nothing."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Params = str | Sequence[str] | None


def verify_ast_signature(
    code: str, name: str | Mapping[str, Params], params: Params = None, *, returns: str | None = None,
    asynchronous: bool | None = None,
) -> str | None:  # fmt: skip
    """Check that code defines a function with these parameters.

    Names, their order and their kinds (positional-only, keyword-only, ``*args``, ``**kwargs``) must be the same.
    Defaults and annotations count where they are asked for, and only there.

    Args:
        code: Python source.
        name: the function's name, ``Class.method`` for a method, a class's name for its ``__init__``; or several
            at once as ``{name: params}``.
        params: parameters as they stand in a ``def``: ``"a, b: int = 0, *, key"`` or ``["a", "b=0", "*", "key"]``.
            None: any. The first parameter of a method (``self``) may be left out.
        returns: the annotation of the result; None: any.
        asynchronous: whether it must be an ``async def``; None: either.

    Returns:
        None when all is as asked, else one sentence that says what is not.

    Raises:
        ValueError: `params` are not parameters.
    """
    try:
        tree = ast.parse(code)
    except SyntaxError as error:
        return f"The code is not Python: {error.msg} (line {error.lineno})."
    except (ValueError, RecursionError, MemoryError) as error:
        return f"The code cannot be read: {error}."
    asked = name if isinstance(name, Mapping) else {name: params}
    problems = [_problem(tree, each, wanted, returns, asynchronous) for each, wanted in asked.items()]
    return " ".join(problem for problem in problems if problem) or None


def _problem(tree: ast.Module, name: str, params: Params, returns: str | None, asynchronous: bool | None) -> str | None:
    wanted = parse_parameters(params) if params is not None else None
    found = _find(tree, name)
    if isinstance(found, str):
        return found
    function, bound = found
    shown = f"line {function.lineno}"
    if asynchronous is not None and not isinstance(function, ast.Lambda):
        is_async = isinstance(function, ast.AsyncFunctionDef)
        if is_async != asynchronous:
            return f"{name} must {'' if asynchronous else 'not '}be an async function ({shown})."
    if returns is not None:
        written = getattr(function, "returns", None)
        if written is None or _same_text(ast.unparse(written), returns) is False:
            has = f"has {ast.unparse(written)}" if written is not None else "has none"
            return f"{name} must have the annotation -> {returns}, and {has} ({shown})."
    return _compare(name, function.args, wanted, bound=bound, where=shown) if wanted is not None else None


# ------------------------------------------------------------ finding


def _find(tree: ast.Module, name: str) -> tuple[Function, bool] | str:
    """The last definition of this name and whether its first parameter is the instance or class; or what is wrong."""
    *path, last = name.split(".")
    body: Sequence[ast.stmt] = tree.body
    for part in path:
        classes = {node.name: node for node in _statements(body) if isinstance(node, ast.ClassDef)}
        if part not in classes:
            return f"There is no class {part}{_near(part, classes)}."
        body = classes[part].body
    functions: dict[str, Function] = {}
    classes = {}
    for node in _statements(body):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                functions[node.name] = node
                classes.pop(node.name, None)
            case ast.ClassDef():
                classes[node.name] = node
                functions.pop(node.name, None)
            case ast.Assign(targets=[ast.Name(id=target)], value=value) | ast.AnnAssign(target=ast.Name(id=target),
                                                                                        value=ast.expr() as value):
                functions.pop(target, None)
                if isinstance(value, ast.Lambda):
                    functions[target] = value
    if last in functions:
        return functions[last], bool(path) and not _is_static(functions[last])
    if last in classes:
        made = _find(tree, f"{name}.__init__")
        return f"{name} is a class without an __init__." if isinstance(made, str) else made
    if not path:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and any(getattr(item, "name", "") == last for item in node.body):
                return f"{last} is a method of the class {node.name}, and a function at top level is wanted."
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == last:
                return f"{last} is defined inside another function (line {node.lineno}), and not at top level."
    what = f"method {last} in the class {path[-1]}" if path else f"function {last} at top level"
    return f"There is no {what}{_near(last, [*functions, *classes])}."


def _statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Statements at this level, those under ``if``, ``try`` and ``with`` included."""
    for node in body:
        yield node
        if isinstance(node, (ast.If, ast.Try, ast.TryStar, ast.With)):
            for field in ("body", "handlers", "orelse", "finalbody"):
                for inner in getattr(node, field, ()):
                    yield from _statements(inner.body if isinstance(inner, ast.ExceptHandler) else [inner])


def _near(name: str, known: Iterable[str]) -> str:
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1) or [n for n in names if n.lower() == name.lower()]
    if close:
        return f" (there is {close[0]})"
    return f" (there is {', '.join(names[:5])})" if names else ""


def _is_static(function: Function) -> bool:
    decorators = getattr(function, "decorator_list", ())
    return any(isinstance(node, ast.Name) and node.id == "staticmethod" for node in decorators)


# ------------------------------------------------------------ comparing


def parse_parameters(params: Params) -> ast.arguments:
    """Parameters as they stand in a ``def``.

    Raises:
        ValueError: they are not.
    """
    text = params if isinstance(params, str) else ", ".join(params or ())
    try:
        tree = ast.parse(f"def f({text}\n): pass")
    except SyntaxError as error:
        raise ValueError(f"{text!r} are not the parameters of a function: {error.msg}") from error
    match tree.body:
        case [ast.FunctionDef(args=args)]:
            return args
    raise ValueError(f"{text!r} are not the parameters of a function")


def _rows(args: ast.arguments) -> list[tuple[str, ast.arg, ast.expr | None]]:
    """(kind, parameter, default) for each parameter; the marks ``/`` and ``*`` are in the kinds."""
    plain = [*args.posonlyargs, *args.args]
    defaults = [None] * (len(plain) - len(args.defaults)) + list(args.defaults)
    rows = [("positional-only" if index < len(args.posonlyargs) else "plain", arg, default)
            for index, (arg, default) in enumerate(zip(plain, defaults, strict=True))]  # fmt: skip
    if args.vararg:
        rows.append(("*", args.vararg, None))
    rows += [("keyword-only", arg, default) for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True)]
    if args.kwarg:
        rows.append(("**", args.kwarg, None))
    return rows


def _compare(name: str, has: ast.arguments, wanted: ast.arguments, *, bound: bool, where: str) -> str | None:
    mine, theirs = _rows(has), _rows(wanted)
    if bound and mine and (not theirs or theirs[0][1].arg != mine[0][1].arg):
        mine = mine[1:]  # self, cls
    names, asked = [_label(kind, arg) for kind, arg, _ in mine], [_label(kind, arg) for kind, arg, _ in theirs]
    if names != asked:
        return (f"{name} has the parameters ({', '.join(names)}), and ({', '.join(asked)}) are wanted"
                f"{_difference(names, asked)} ({where}).")  # fmt: skip
    for (kind, arg, default), (wanted_kind, wanted_arg, wanted_default) in zip(mine, theirs, strict=True):
        if kind != wanted_kind:
            return f"The parameter {arg.arg} of {name} is {kind}, and {wanted_kind} is wanted ({where})."
        if wanted_arg.annotation is not None:
            text = ast.unparse(wanted_arg.annotation)
            if arg.annotation is None or not _same_text(ast.unparse(arg.annotation), text):
                written = f"is {ast.unparse(arg.annotation)}" if arg.annotation is not None else "is missing"
                return f"The annotation of {arg.arg} in {name} {written}, and {text} is wanted ({where})."
        if wanted_default is not None:
            text = ast.unparse(wanted_default)
            if default is None or ast.dump(default) != ast.dump(wanted_default):
                written = f"is {ast.unparse(default)}" if default is not None else "is missing"
                return f"The default of {arg.arg} in {name} {written}, and {text} is wanted ({where})."
    return None


def _label(kind: str, arg: ast.arg) -> str:
    return f"{kind if kind in ('*', '**') else ''}{arg.arg}"


def _difference(names: Sequence[str], asked: Sequence[str]) -> str:
    missing, more = [n for n in asked if n not in names], [n for n in names if n not in asked]
    if not missing and not more:
        return ": the order differs"
    parts = [f"missing: {', '.join(missing)}"] * bool(missing) + [f"not wanted: {', '.join(more)}"] * bool(more)
    return f": {'; '.join(parts)}"


def _same_text(one: str, other: str) -> bool:
    """Whether two annotations are the same, quotes and layout aside."""

    def plain(text: str) -> str:
        try:
            node = ast.parse(text, mode="eval").body
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                node = ast.parse(node.value, mode="eval").body
            return ast.unparse(node)
        except (SyntaxError, ValueError):
            return text

    return plain(one) == plain(other)
