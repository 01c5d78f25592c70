"""The signature that a task's text asks for."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from .signature import parse_parameters

_FENCE = re.compile(r"^[ \t]*(```+|~~~+)[^\n]*\n(.*?)^[ \t]*\1", re.DOTALL | re.MULTILINE)
_DEF = re.compile(r"(?:async\s+)?def\s+(\w+)\s*\(")
# `name(a, b)`, 'name(a, b)', "name(a, b)", or name(a, b) after a word such as function.
_QUOTED = re.compile(r"[`'\"]+(?:def\s+)?([A-Za-z_][\w.]*)\(")
_WORDED = re.compile(
    r"\b(?:function|method|called|named|implement|write|define|signature)\b[:\s]+"
    r"(?:(?:a|an|the|called|named|function|method|signature|python)\s+)*[`'\"]*([A-Za-z_][\w.]*)\s*\(",
    re.IGNORECASE,
)
_APART = re.compile(
    r"(?:function|method|named|called)\s+(?:(?:called|named)\s+)?[`'\"]*([A-Za-z_][\w.]*)[`'\"]*\s+"
    r"(?:with|that\s+takes|which\s+takes|takes|taking|that\s+accepts|accepting|having|of)\s+"
    r"(?:the\s+|an?\s+|two\s+|three\s+|four\s+)?(?:parameters?|arguments?|args|inputs?)?\s*:?\s*(.+)",
    re.IGNORECASE,
)


class ExpectedSignature(NamedTuple):
    """What `verify_ast_signature` takes: ``verify_ast_signature(code, *extract_expected_signature(text))``.

    Attributes:
        name: of the function; ``Class.method`` for a method.
        params: as they stand in a ``def``, without annotations: ``["a", "b=0", "*", "key"]``.
    """

    name: str
    params: list[str]


def extract_expected_signature(text: str) -> ExpectedSignature | None:
    """Find the function that a task's text asks for.

    Looked for in this order: a definition in fenced code; a ``def`` line anywhere; a call in quotes or after a word
    such as "function" (``write a function f(a, b)``); a name whose parameters follow in words (``a function named f
    with parameters a and b``). Of several definitions the first one counts.

    Returns:
        None when the text names no function with its parameters.
    """
    for match in _FENCE.finditer(text):
        if (found := _in_code(match.group(2))) is not None:
            return found
    if (found := _in_code(text)) is not None:
        return found
    for pattern in (_DEF, _QUOTED, _WORDED):
        for match in pattern.finditer(text):
            inside = _parenthesis(text, match.end())
            found = _signature(match.group(1), inside) if inside is not None else None
            if found is not None:
                return found
    return _in_words(text)


def _in_code(code: str) -> ExpectedSignature | None:
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    for node in tree.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return ExpectedSignature(node.name, parameter_texts(node.args))
            case ast.ClassDef(name=name, body=body):
                for item in body:
                    if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)) and not item.name.startswith("__"):
                        return ExpectedSignature(f"{name}.{item.name}", parameter_texts(item.args))
    return None


def _parenthesis(text: str, start: int) -> str | None:
    """What stands between the parenthesis that was opened before ``start`` and the one that closes it."""
    depth = 1
    for index in range(start, min(len(text), start + 1000)):
        depth += (text[index] in "([{") - (text[index] in ")]}")
        if depth == 0:
            return text[start:index]
    return None


def _signature(name: str, inside: str) -> ExpectedSignature | None:
    try:
        args = parse_parameters(" ".join(inside.split()))
    except ValueError:  # `f(2, 3)` is an example of a call
        return None
    return ExpectedSignature(name, parameter_texts(args))


def _in_words(text: str) -> ExpectedSignature | None:
    match = _APART.search(text)
    if match is None:
        return None
    rest = re.split(r"[.;:\n]|\b(?:and\s+)?(?:that|which|returns?|returning|to|so|where|it)\b", match.group(2))[0]
    rest = rest.strip().strip("()").replace("`", "").replace("'", "").replace('"', "")
    words = [word.strip() for word in re.split(r",\s*(?:and\s+)?|\s+and\s+", rest) if word.strip()]
    names = [re.sub(r"^(?:an?|the|integers?|numbers?|lists?|strings?|floats?|ints?)\s+", "", word) for word in words]
    if not names or not all(re.fullmatch(r"\*{0,2}[A-Za-z_]\w*(\s*:.*)?(\s*=.*)?", name) for name in names):
        return None
    return _signature(match.group(1), ", ".join(names))


def parameter_texts(args: ast.arguments) -> list[str]:
    """Parameters as texts, with defaults and marks, without annotations."""
    bare = ast.parse(f"def f({ast.unparse(args)}): pass").body[0]
    if not isinstance(bare, ast.FunctionDef):
        return []
    for node in ast.walk(bare.args):
        if isinstance(node, ast.arg):
            node.annotation = None
    plain, texts = [*bare.args.posonlyargs, *bare.args.args], []
    defaults = [None] * (len(plain) - len(bare.args.defaults)) + list(bare.args.defaults)
    for index, (arg, default) in enumerate(zip(plain, defaults, strict=True)):
        texts.append(arg.arg + (f"={ast.unparse(default)}" if default is not None else ""))
        if index + 1 == len(bare.args.posonlyargs):
            texts.append("/")
    if bare.args.vararg:
        texts.append(f"*{bare.args.vararg.arg}")
    elif bare.args.kwonlyargs:
        texts.append("*")
    for arg, default in zip(bare.args.kwonlyargs, bare.args.kw_defaults, strict=True):
        texts.append(arg.arg + (f"={ast.unparse(default)}" if default is not None else ""))
    return [*texts, *([f"**{bare.args.kwarg.arg}"] if bare.args.kwarg else [])]
