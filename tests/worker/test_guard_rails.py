"""Rules while a cell runs, in a worker that the front told them; and the count of steps by itself."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from sandbox_kernel.worker.guard_rails import _Steps

# What each code takes, whatever the machine and the version of Python.
COUNTS: list[tuple[str, int]] = [
    ("x = 1", 1),
    ("'text'\nx = 1; y = 2\nz = 3", 3),
    ("from __future__ import annotations\nx = 1", 1),
    ("for i in range(10): pass", 11),
    ("for i in range(10):\n    if i % 2:\n        x = i\n", 1 + 10 + 5),
    ("i = 0\nwhile i < 5:\n    i += 1\nelse:\n    x = 1", 2 + 5 + 1),
    ("[i for i in range(10)]", 11),
    ("[i * j for i in range(3) for j in range(4) if j]", 1 + 3 + 12),
    ("sum(i for i in range(7))", 8),
    ("{i: i for i in range(4)}", 5),
    ("f = lambda x: x\nf(1)\nf(2)", 3 + 2),
    ("def f(n):\n    'text'\n    return n if n < 2 else f(n - 1) + f(n - 2)\nf(6)", 2 + 25),
    ("class A:\n    'text'\n    x = 1\n    def f(self): return 3\nA().f()", 2 + 2 + 1),
    ("try:\n    x = 1\n    1 / 0\nexcept ZeroDivisionError:\n    y = 2\nfinally:\n    z = 3", 1 + 2 + 1 + 1),
    ("with open(0, closefd=False) as f:\n    x = 1", 2),
    ("match 3:\n    case 3:\n        x = 1\n        y = 1", 3),
    ("def f():\n    global g\n    g = 1\nf()", 3),
    ("def f():\n    yield 1\n    yield 2\nlist(f())", 2 + 2),
    ("import asyncio\nasync def f():\n    x = 1\n    return 2\nasyncio.run(f())", 3 + 2),
]  # fmt: skip


@pytest.mark.parametrize(("code", "steps"), COUNTS)
def test_the_count_depends_on_the_code_alone(code: str, steps: int) -> None:
    taken: list[int] = []

    def tick(number: int) -> bool:
        taken.append(number)
        return True

    tree = ast.fix_missing_locations(_Steps().visit(ast.parse(code)))
    for node in ast.walk(tree):  # the same lines as before: tracebacks and debuggers show no difference
        assert not hasattr(node, "lineno") or 1 <= node.lineno <= code.count("\n") + 1
    names: dict[str, Any] = {"__sandbox_tick__": tick}
    exec(compile(tree, "cell", "exec", dont_inherit=True), names)
    assert sum(taken) == steps


def test_results_are_the_same() -> None:
    code = "f = lambda *a, k=(1, 2): (a, k)\nx = [f(i) for i in range(3) if i]\ny = {**{}, 'a': [*x]}\n"
    plain: dict[str, Any] = {}
    counted: dict[str, Any] = {"__sandbox_tick__": lambda _steps: True}
    exec(code, plain)
    exec(compile(ast.fix_missing_locations(_Steps().visit(ast.parse(code))), "cell", "exec"), counted)
    assert plain["x"] == counted["x"] and plain["y"] == counted["y"]
