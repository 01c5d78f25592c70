"""Reads code and tells where it breaks the rules; runs nothing of it."""

from __future__ import annotations

import ast
import keyword
import string
import warnings
from collections.abc import Iterator

from .advice import instead_of, instead_of_attribute, is_inner, refused_text
from .paths import Names, same, text_of
from .patterns import is_path_of, matches, parents, refused_import
from .rules import CodeRules, Violation

SYNTAX = "syntax"
_TOO_LONG = 200_000  # characters; reading more would keep the caller busy for seconds
_MOST_LEVELS = 3  # code in a literal in code in a literal
_READERS = ("eval", "exec", "compile")
# Magics whose argument is Python code that runs here; the others run programs, which the wall refuses.
_CODE_MAGICS = ("time", "timeit", "prun", "capture", "debug")

_KEYWORDS: dict[str, tuple[type[ast.AST], ...]] = {
    "for": (ast.For, ast.AsyncFor, ast.comprehension),
    "while": (ast.While,),
    "lambda": (ast.Lambda,),
    "class": (ast.ClassDef,),
    "def": (ast.FunctionDef, ast.AsyncFunctionDef),
    "try": (ast.Try, ast.TryStar),
    "except": (ast.ExceptHandler,),
    "raise": (ast.Raise,),
    "with": (ast.With, ast.AsyncWith),
    "global": (ast.Global,),
    "nonlocal": (ast.Nonlocal,),
    "del": (ast.Delete,),
    "assert": (ast.Assert,),
    "yield": (ast.Yield, ast.YieldFrom),
    "async": (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith),
    "await": (ast.Await,),
    "import": (ast.Import, ast.ImportFrom),
    "from": (ast.ImportFrom, ast.YieldFrom),
    "if": (ast.If, ast.IfExp),
    "break": (ast.Break,),
    "continue": (ast.Continue,),
    "pass": (ast.Pass,),
    "return": (ast.Return,),
    "in": (ast.In, ast.NotIn),
    "is": (ast.Is, ast.IsNot),
    "and": (ast.And,),
    "or": (ast.Or,),
    "not": (ast.Not,),
}


def check(code: str, rules: CodeRules) -> list[Violation]:
    """Every place where some Python code breaks the rules, in the order of the text.

    Code that is not Python is one violation of the rule ``syntax``. Notebook syntax (``%magic``, ``!program``) must
    have been translated before.
    """
    return Checker(rules).check(code)


class Checker:
    """Checks the cells of one session: what earlier cells imported under another name is remembered."""

    def __init__(self, rules: CodeRules) -> None:
        self.rules = rules
        roots = {pattern.partition(".")[0] for pattern in (*rules.forbid, *rules.imports_deny)}
        self._names = Names(roots)

    def check(self, code: str) -> list[Violation]:
        """As `check`. The names of code that breaks no rule are remembered."""
        if not self.rules:
            return []
        names = self._names.copy()
        found = self._read(code, names, 0)
        if not found:
            self._names = names
        return sorted(found, key=lambda violation: (violation.line, violation.column))

    def check_expression(self, code: str) -> list[Violation]:
        """The same for an expression that is evaluated beside the code: top level does not matter."""
        return self._read(code, self._names.copy(), 1) if self.rules else []

    def too_long(self, code: str) -> bool:
        """Whether code is longer than the rules, or the patience of this checker, allow."""
        return len(code) > min(self.rules.max_code_chars or _TOO_LONG, _TOO_LONG)

    def _read(self, code: str, names: Names, level: int) -> list[Violation]:
        if self.too_long(code):
            limit = min(self.rules.max_code_chars or _TOO_LONG, _TOO_LONG)
            text = f"The code has {len(code):,} characters, and {limit:,} are allowed."
            return [Violation(1, 1, "code.max_code_chars", text, "Split it, or read data from a file.")]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about escapes and comparisons in the code
                tree = ast.parse(code)
        except SyntaxError as error:
            text = f"This is not Python: {error.msg}."
            return [Violation(error.lineno or 1, max(error.offset or 1, 1), SYNTAX, text)] if level == 0 else []
        except (ValueError, RecursionError, MemoryError):
            text = "The code is nested too deeply, or has characters that Python cannot read."
            return [Violation(1, 1, "code", text)]
        names.learn(tree)
        reader = _Reader(self, code, tree, names, level)
        try:
            return reader.read()
        except RecursionError:
            return [Violation(1, 1, "code", "The code is nested too deeply to be checked.")]


class _Reader:
    """One piece of code on its way through the rules."""

    def __init__(self, checker: Checker, code: str, tree: ast.Module, names: Names, level: int) -> None:
        self._checker, self._rules = checker, checker.rules
        self._tree, self._names, self._level = tree, names, level
        self._lines = code.splitlines()
        self._found: dict[tuple[int, int, str], Violation] = {}
        self._called: set[int] = set()  # functions that import, called with a name that is checked
        self._own: set[int] = set(_own_names(tree))
        self._bare = [p for p in self._rules.forbid if "." not in p and not keyword.iskeyword(p)]
        self._dotted = [p for p in self._rules.forbid if "." in p]
        self._keywords = [p for p in self._rules.forbid if keyword.iskeyword(p)]

    def read(self) -> list[Violation]:
        if self._rules.functions_only and self._level == 0:
            self._only_functions()
        for node in ast.walk(self._tree):
            self._node(node)
        return list(self._found.values())

    def _add(self, node: ast.AST, rule: str, message: str, instead: str = "") -> None:
        line, offset = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        text = self._lines[line - 1] if line <= len(self._lines) else ""
        column = len(text.encode()[:offset].decode(errors="replace")) + 1
        self._found.setdefault((line, column, rule), Violation(line, column, rule, message, instead))

    # ------------------------------------------------------------ statements

    def _only_functions(self) -> None:
        allowed = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        for index, node in enumerate(self._tree.body):
            match node:
                case ast.Expr(value=ast.Constant(value=str())) if index == 0:
                    continue
            if not isinstance(node, allowed) and type(node).__name__ != "TypeAlias":
                self._add(node, "code.functions_only", "At top level only imports and definitions are allowed.",
                          "Put this into a function.")  # fmt: skip

    def _node(self, node: ast.AST) -> None:
        for word in self._keywords:
            if isinstance(node, _KEYWORDS.get(word, ())):
                at = node.target if isinstance(node, ast.comprehension) else node
                self._add(at, "code.forbid", f"`{word}` is forbidden here.", instead_of(word))
        match node:
            case ast.Import(names=names):
                for alias in names:
                    self._module(node, alias.name)
                    self._path(node, {alias.name}, through=True)
            case ast.ImportFrom():
                self._from(node)
            case ast.Name():
                self._name(node)
            case ast.Attribute(attr=attr, value=value):
                self._path(node, self._names.paths(node))
                if attr == "__name__" and isinstance(value, ast.Attribute) and value.attr == "__class__":
                    self._called.add(id(value))  # a text, in many a __repr__
                elif not (attr == "__class__" and id(node) in self._called):
                    self._inner(node, attr)
            case ast.Subscript():
                self._path(node, self._names.paths(node))
                self._looked_up(node)
            case ast.Constant(value=str(text)):
                self._text(node, text)
            case ast.MatchClass(kwd_attrs=attrs):
                for attr in attrs:
                    self._path(node, {f"{path}.{attr}" for path in self._names.paths(node.cls)})
                    self._inner(node, attr)
            case ast.Call():
                self._call(node)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                if id(node) not in self._own:
                    self._word(node, name)

    def _module(self, node: ast.AST, name: str, *, parent: str = "") -> bool:
        """Check a module's name. With `parent` it may also be a plain name inside that module."""
        rules = self._rules
        if parent == "__future__":  # a word to the compiler
            return False
        broken = refused_import(name, parent, rules.imports_allow, rules.imports_deny)
        if broken:
            self._add(node, broken, *refused_text(broken, name, rules.imports_allow))
        return broken is None

    def _from(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level:
            if self._rules.restricts_imports:
                self._add(node, "code.imports.allow", "A relative import names a module that cannot be told.",
                          "Write the module's whole name.")  # fmt: skip
            return
        for alias in node.names:
            if alias.name == "*":
                if self._module(node, module):
                    self._star(node, module)
            elif self._module(node, f"{module}.{alias.name}", parent=module):
                known = {f"{module}.{alias.name}", f"{same(module)}.{alias.name}", *self._builtin(module, alias.name)}
                self._path(alias, known, through=True)
                self._inner(alias, alias.name)

    @staticmethod
    def _builtin(module: str, name: str) -> set[str]:
        return {name} if module == "builtins" else set()

    def _star(self, node: ast.AST, module: str) -> None:
        hidden = [pattern for pattern in (*self._dotted, *self._rules.imports_deny)
                  if any(matches(pattern, f"{known}.*") or parent == known
                         for known in {module, same(module)} for parent in parents(pattern)[1:])]  # fmt: skip
        if module == "builtins":
            hidden += [*self._bare, *self._rules.builtins_remove]
        if module == "importlib" and self._rules.restricts_imports:
            hidden.append("importlib.import_module")
        if hidden:
            text = f"`from {module} import *` also brings {hidden[0]}, which is forbidden here."
            self._add(node, "code.forbid", text, "Name what you need.")

    # ------------------------------------------------------------ names and attributes

    def _word(self, node: ast.AST, name: str) -> None:
        for pattern in self._bare:
            if matches(pattern, name):
                self._add(node, "code.forbid", f"`{name}` is forbidden here.", instead_of(name))
                return
        for pattern in self._rules.builtins_remove:
            if matches(pattern, name):
                self._add(node, "code.builtins.remove", f"The built-in {name} does not exist here.", instead_of(name))

    def _name(self, node: ast.Name) -> None:
        if id(node) in self._own:
            return
        self._word(node, node.id)
        if isinstance(node.ctx, ast.Load):
            self._inner(node, node.id)
            if id(node) not in self._called:
                self._importer(node)

    def _path(self, node: ast.AST, paths: set[str] | frozenset[str], *, through: bool = False) -> None:
        """Check an attribute path; ``through``: what lies above it, too."""
        for path in sorted(paths):
            for pattern in self._rules.forbid:
                candidates = [path] if not through else parents(path)
                hit = any(is_path_of(pattern, candidate) and not is_path_of(pattern, candidate.rpartition(".")[0])
                          for candidate in candidates)  # fmt: skip
                if hit and ("." in pattern or "." not in path or through):
                    self._add(node, "code.forbid", f"`{path}` is forbidden here.",
                              instead_of(pattern) or instead_of(path))  # fmt: skip
            if "." not in path:
                for pattern in self._rules.builtins_remove:
                    if matches(pattern, path) and not isinstance(node, (ast.Name, ast.Import)):
                        self._add(node, "code.builtins.remove", f"The built-in {path} does not exist here.",
                                  instead_of(path))  # fmt: skip
            elif not through and any(matches(pattern, path) for pattern in self._rules.imports_deny if "." in pattern):
                self._add(node, "code.imports.deny", f"The module {path} may not be used here.", instead_of(path))
        if not through and isinstance(node, ast.Attribute) and id(node) not in self._called:
            self._importer(node)

    def _importer(self, node: ast.expr) -> None:
        """A function that imports, used otherwise than by calling it with a name."""
        if self._rules.restricts_imports and self._names.imports_by_name(node):
            self._add(node, "code.imports.allow", "What this imports cannot be told before it runs.",
                      "Write an import statement.")  # fmt: skip

    def _inner(self, node: ast.AST, name: str) -> None:
        if self._rules.deny_dunders and is_inner(name):
            self._add(node, "code.dunder_attributes", f"The attribute {name} leads to Python's inside.",
                      instead_of_attribute(name))  # fmt: skip

    def _text(self, node: ast.AST, text: str) -> None:
        """Attribute names travel in texts: for getattr, for format."""
        if not self._rules.deny_dunders:
            return
        for part in text.split("."):
            if part.startswith("__") and part.isidentifier():
                self._inner(node, part)
        if "{" in text:
            for name in _format_attributes(text):
                self._inner(node, name)

    # ------------------------------------------------------------ calls

    def _call(self, node: ast.Call) -> None:
        imports, module = self._names.imports_by_call(node)
        if imports and module and not module.startswith("."):
            self._called.add(id(node.func))
            self._module(node, module)
            self._path(node, {module}, through=True)
        self._path(node, self._names.paths(node))
        self._looked_up(node)
        self._getattr(node)
        for code, line in self._code_in(node):
            inner = self._checker._read(code, self._names, self._level + 1) if self._level < _MOST_LEVELS else []
            for violation in inner:
                moved = max(line + violation.line - 1, 1)
                column = violation.column if line + violation.line - 1 != node.lineno else node.col_offset + 1
                key = (moved, column, violation.rule)
                self._found.setdefault(key, Violation(moved, column, violation.rule, violation.message,
                                                      violation.instead))  # fmt: skip

    def _looked_up(self, node: ast.expr) -> None:
        module = self._names.looked_up_module(node)
        if module is not None and self._rules.restricts_imports:
            self._module(node, module)

    def _getattr(self, node: ast.Call) -> None:
        """`getattr` on a module of which something is forbidden, with a name that cannot be told."""
        match node:
            case ast.Call(func=ast.Name(id="getattr"), args=[value, name, *_]):
                folded = text_of(name)
                if folded is not None:
                    self._inner(node, folded)
                    return
                roots = {pattern.rpartition(".")[0] for pattern in self._dotted} | {"builtins"} & set(
                    ["builtins"] if self._bare or self._rules.builtins_remove else []
                )
                for path in self._names.paths(value) & roots:
                    self._add(node, "code.forbid", f"Which attribute of {path} this is cannot be told before it runs.",
                              "Write the attribute itself.")  # fmt: skip

    def _code_in(self, node: ast.Call) -> Iterator[tuple[str, int]]:
        """Code in a call's literal argument, and the line on which it begins."""
        texts = [text_of(arg) for arg in node.args]
        if self._names.paths(node.func) & set(_READERS) and texts and texts[0] is not None:
            yield texts[0].strip(), node.args[0].lineno
        match node.func, texts:
            case ast.Attribute(attr="run_cell_magic"), [str(magic), rest, str(body)] if magic in _CODE_MAGICS:
                yield body, node.lineno + 1
                if magic in ("time", "timeit") and rest and not rest.lstrip().startswith("-"):
                    yield rest, node.lineno
            case ast.Attribute(attr="run_line_magic"), [str(magic), str(rest)] if magic in _CODE_MAGICS:
                words = rest.split()
                while words and words[0].startswith("-"):
                    words = words[1:]
                yield rest[rest.find(words[0]) :] if words else "", node.lineno
            case ast.Attribute(attr="run_cell" | "ex" | "ev"), [str(body), *_]:
                yield body, node.lineno


def _format_attributes(text: str) -> Iterator[str]:
    """The attributes that ``str.format`` would read for the fields of a text."""
    try:
        for _, field, spec, _ in string.Formatter().parse(text):
            if field:
                path = field.replace("[", ".").replace("]", "")
                yield from path.split(".")[1:]
            if spec and "{" in spec:
                yield from _format_attributes(spec)
    except (ValueError, RecursionError):
        return


def _own_names(tree: ast.Module) -> Iterator[int]:
    """Names that are surely not the built-in ones: parameters inside their function, methods."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(body=body):
                yield from (id(item) for item in body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)))
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                args = node.args
                every = [*args.posonlyargs, *args.args, *args.kwonlyargs, *filter(None, (args.vararg, args.kwarg))]
                inside = [part for top in (node.body if isinstance(node.body, list) else [node.body])
                          for part in ast.walk(top)]  # fmt: skip
                public = {name for part in inside if isinstance(part, ast.Global) for name in part.names}
                names = {arg.arg for arg in every} - public
                if names:
                    yield from (id(part) for part in inside if isinstance(part, ast.Name) and part.id in names)
