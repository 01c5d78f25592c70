"""The policy's rules for code in a running kernel: a cell that breaks one is not run, and nothing is lost."""

from __future__ import annotations

import pytest

from .conftest import Start

POLICY = """
[code]
imports.deny = ["ctypes"]
forbid = ["eval", "os.system"]
"""


def test_a_cell_that_breaks_a_rule_does_not_run(start: Start) -> None:
    kernel = start("auto", policy=POLICY)
    kernel.good("x = 1; import os as o")
    outcome = kernel.run("x = 2\nimport ctypes")
    assert outcome.reply["ename"] == "PolicyRefusal"
    text = outcome.reply["evalue"]
    assert text.startswith("Line 2, column 1: The module ctypes may not be imported here. (code.imports.deny)")
    assert "Nothing of this cell was run. The variables of this session are kept." in text
    (error,) = outcome.of("error")
    assert error["ename"] == "PolicyRefusal" and len(error["traceback"]) == 1
    assert kernel.good("print(x)").stdout == "1\n"
    assert "os.system" in kernel.run("o.system('true')").reply["evalue"], "an alias of an earlier cell"


@pytest.mark.parametrize("cell", ["%time eval('1')", "%%time\n\neval('1')", "y = !echo x\neval('1')", "?eval\neval(1)",
                                  "await eval('1')", "return eval('1')"])  # fmt: skip
def test_notebook_syntax_is_read_as_ipython_reads_it(start: Start, cell: str) -> None:
    outcome = start("auto", policy=POLICY).run(cell)
    assert outcome.reply["ename"] == "PolicyRefusal" and "`eval` is forbidden" in outcome.reply["evalue"]


def test_what_breaks_no_rule_runs_as_ever(start: Start) -> None:
    kernel = start("auto", policy=POLICY)
    assert kernel.good("%time z = 3").stdout and kernel.good("await __import__('asyncio').sleep(0)")
    assert kernel.run("1 +").reply["ename"] == "SyntaxError", "told by Python itself"
    asked = kernel.run("pass", user_expressions={"a": "z", "b": "eval('z')"})
    assert asked.reply["ename"] == "PolicyRefusal"
    assert kernel.good("pass", user_expressions={"a": "z"}).reply["user_expressions"]["a"]["status"] == "ok"
    assert "not among" not in kernel.good("%sandbox").stdout


def test_off_by_default(start: Start) -> None:
    assert start("auto").good("import ctypes; print(eval('1'))").stdout == "1\n"
