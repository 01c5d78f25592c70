"""A file of tests, loaded into this process: it is the teacher's, and trusted."""

from __future__ import annotations

import ast
import inspect
import sys
import types
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .marking import POINTS, TIMEOUT

MODULE = "sandbox_kernel_grading_tests"
GIVEN = ("student", "sandbox", "submission")


class UnusableTests(ValueError):
    """A file of tests that cannot be used; the message says why, for the teacher."""


@dataclass(frozen=True)
class Case:
    """One test function."""

    name: str
    title: str
    points: float
    timeout_s: float | None
    function: Callable[..., Any]
    wants: tuple[str, ...]


@dataclass
class Suite:
    """The test functions of a file, in their order.

    Attributes:
        source: its text.
        path: its name, for tracebacks and ``__file__``.
    """

    source: str
    path: str
    cases: list[Case] = field(default_factory=list)

    @classmethod
    def load(cls, path: str | Path) -> Suite:
        """Read and run a file of tests.

        Raises:
            UnusableTests: it cannot be read, does not run, or has a test that would never fail.
        """
        try:
            source = Path(path).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise UnusableTests(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
        return cls.of(source, str(Path(path).absolute()))

    @classmethod
    def of(cls, source: str, path: str) -> Suite:
        """Run the text of a file of tests, see `load`."""
        module = types.ModuleType(MODULE)
        module.__file__ = path
        folder = str(Path(path).parent)
        sys.path.insert(0, folder)
        sys.modules[MODULE] = module  # (data classes look themselves up)
        try:
            # Without `optimize` every assert would be gone where PYTHONOPTIMIZE is set, and every test passed.
            exec(compile(source, path, "exec", dont_inherit=True, optimize=0), vars(module))  # noqa: S102
        except (Exception, SystemExit) as error:
            raise UnusableTests(f"{path} does not run: {type(error).__name__}: {error}") from error
        finally:
            with suppress(ValueError):
                sys.path.remove(folder)
        suite = cls(source, path)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Compare):
                raise UnusableTests(f"{path}, line {node.lineno}: this comparison has no assert, so it can never fail")
        for name, value in vars(module).items():
            suite._take(name, value)
        if not suite.cases:
            raise UnusableTests(f"{path} has no test: no function whose name begins with test_")
        return suite

    def _take(self, name: str, value: Any) -> None:
        if getattr(value, "__module__", None) != MODULE:
            return
        if inspect.isclass(value) and name.startswith("Test"):
            raise UnusableTests(f"{self.path}: {name} is a class; tests are functions whose names begin with test_")
        if not name.startswith("test_") or not callable(value):
            return
        if not inspect.isfunction(value):
            raise UnusableTests(f"{self.path}: {name} is not a plain function")
        never_run = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
        if any(is_one(value) for is_one in never_run):
            raise UnusableTests(f"{self.path}: {name} is a coroutine or a generator, whose asserts would never run")
        parameters = inspect.signature(value).parameters.values()
        wants = tuple(p.name for p in parameters if p.name in GIVEN)
        if unknown := [p.name for p in parameters if p.name not in GIVEN and p.default is p.empty]:
            raise UnusableTests(f"{self.path}: {name} asks for {unknown[0]!r}; there are {', '.join(GIVEN)}")
        title = (inspect.getdoc(value) or name).strip().partition("\n")[0]
        worth, seconds = getattr(value, POINTS, 1.0), getattr(value, TIMEOUT, None)
        self.cases.append(Case(name, title, float(worth), seconds, value, wants))

    @property
    def max_score(self) -> float:
        """All points together."""
        return sum(case.points for case in self.cases)

    def statement(self, line: int) -> str:
        """The source of the assert statement that covers a line, on one line; "" where there is none."""
        for node in ast.walk(ast.parse(self.source)):
            if isinstance(node, ast.Assert) and node.lineno <= line <= (node.end_lineno or node.lineno):
                return " ".join((ast.get_source_segment(self.source, node) or "").split())
        return ""
