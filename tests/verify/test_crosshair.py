"""The answers beside those of CrossHair, where it is installed (it is no dependency)."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path

import pytest

pytest.importorskip("z3")
pytest.importorskip("crosshair", reason="crosshair-tool is not installed")

from .test_function import CASES, Case

NAMES = ("abs", "max of three, wrong", "clamp", "gcd step by zero", "leap year", "leap year, Julian", "median",
         "ceiling", "ceiling, negative", "binary search step, empty", "palindrome, wrong", "weekday",
         "helper, wrong")  # fmt: skip


@pytest.mark.parametrize("case", [case for case in CASES if case.name in NAMES], ids=lambda case: case.name)
def test_the_same_answer(case: Case, tmp_path: Path) -> None:
    from crosshair.core_and_libs import analyze_function, run_checkables  # type: ignore[import-not-found]
    from crosshair.options import AnalysisKind, AnalysisOptionSet  # type: ignore[import-not-found]

    tree = ast.parse(case.code)
    function = tree.body[-1]
    assert isinstance(function, ast.FunctionDef)
    for arg in function.args.args:
        arg.annotation = arg.annotation or ast.Name("int", ast.Load())
    contract = f"\n    pre: {case.pre}\n    post: {case.post.replace('result', '__return__')}\n    "
    function.body.insert(0, ast.Expr(ast.Constant(contract)))
    name = f"crosshair_{abs(hash(case.name))}"
    path = tmp_path / f"{name}.py"
    path.write_text(f"def implies(a, b): return not a or bool(b)\n{ast.unparse(ast.fix_missing_locations(tree))}\n")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        options = AnalysisOptionSet(per_condition_timeout=3, analysis_kind=[AnalysisKind.PEP316])
        messages = run_checkables(analyze_function(getattr(module, function.name), options))
        states = {message.state.name for message in messages}
    finally:
        del sys.modules[name]
    broken = bool(states & {"POST_FAIL", "EXEC_ERR"})
    assert broken == case.verdict().refuted
