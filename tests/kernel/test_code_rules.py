"""The policy's rules for code in a running kernel: a cell that breaks one is not run, and nothing is lost."""

from __future__ import annotations

import pytest

from .conftest import Start

POLICY = """
[code]
imports.deny = ["ctypes"]
forbid = ["eval", "os.system"]
"""


def test_a_cell_that_breaks_a_rule_does_not_run(start_shared: Start) -> None:
    kernel = start_shared("auto", policy=POLICY)
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
def test_notebook_syntax_is_read_as_ipython_reads_it(start_shared: Start, cell: str) -> None:
    outcome = start_shared("auto", policy=POLICY).run(cell)
    assert outcome.reply["ename"] == "PolicyRefusal" and "`eval` is forbidden" in outcome.reply["evalue"]


def test_what_breaks_no_rule_runs_as_ever(start_shared: Start) -> None:
    kernel = start_shared("auto", policy=POLICY)
    assert kernel.good("%time z = 3").stdout and kernel.good("await __import__('asyncio').sleep(0)")
    assert kernel.run("1 +").reply["ename"] == "SyntaxError", "told by Python itself"
    asked = kernel.run("pass", user_expressions={"a": "z", "b": "eval('z')"})
    assert asked.reply["ename"] == "PolicyRefusal"
    assert kernel.good("pass", user_expressions={"a": "z"}).reply["user_expressions"]["a"]["status"] == "ok"
    assert "not among" not in kernel.good("%sandbox").stdout


def test_off_by_default(start: Start) -> None:
    assert start("auto").good("import ctypes; print(eval('1'))").stdout == "1\n"


WATCHED = """
[code]
imports.deny = ["ctypes", "decimal"]
builtins.remove = ["open"]
ticks = 20_000
"""
HIDDEN = "name = 'deci' + 'mal'\nimport importlib as i\nload = getattr(i, str('import_module'))\n"


def test_what_is_computed_is_caught_while_the_cell_runs(start: Start) -> None:
    kernel = start("auto", policy=WATCHED)
    kernel.good("x = 1")
    outcome = kernel.run(f"{HIDDEN}load(name)")
    assert outcome.reply["ename"] == "PolicyRefusal" and "decimal may not be imported" in outcome.reply["evalue"]
    assert "guard_rails" not in "".join(outcome.reply["traceback"]), "none of our own frames"
    assert kernel.good(f"{HIDDEN}try:\n    load(name)\nexcept ImportError:\n    print('without')").stdout == "without\n"
    assert "PolicyRefusal" in kernel.run("exec('import dec' + str('imal'))").reply["ename"]
    removed = kernel.run("vars()['__builtins__']['op' + str('en')]('x')").reply
    assert removed["ename"] == "PolicyRefusal" and "The built-in open does not exist here" in removed["evalue"]
    assert kernel.good("print(x)").stdout == "1\n"


def test_libraries_import_and_open_what_they_need(start: Start) -> None:
    kernel = start("auto", policy=WATCHED)
    kernel.good("import numpy, json, tempfile, pathlib")  # numpy imports ctypes
    kernel.good("import fractions; fractions.Fraction(1, 3)")  # fractions imports decimal
    kernel.good("pathlib.Path('made.txt').write_text('x'); print(pathlib.Path('made.txt').read_text())")
    assert kernel.good("display(1); get_ipython(); [1][0]").of("execute_result")


def test_steps_are_bounded_and_the_variables_kept(start: Start) -> None:
    kernel = start("auto", policy=WATCHED)
    kernel.good("x = 1\nfor i in range(19_990): pass")
    for endless in ("while True: pass", "[0 for _ in iter(int, 1)]", "f = lambda: f() or f()\nf()",
                    "while True:\n    try:\n        x = 2\n    except BaseException:\n        x = 3"):
        outcome = kernel.run(endless)
        assert outcome.reply["ename"] in ("TickLimit", "RecursionError"), endless
    assert "more than 20,000 steps" in kernel.run("for i in range(20_000): pass").reply["evalue"]
    assert "guard_rails" not in "".join(outcome.reply["traceback"])
    shown = kernel.good("print(x in (2, 3), sum(range(10 ** 6)))").stdout
    assert shown == "True 499999500000\n", "libraries count nothing"


def test_the_same_number_of_steps_each_time(start: Start) -> None:
    kernel = start("auto", policy="[code]\nticks = 1_000\n")
    for _ in range(3):
        kernel.good("for i in range(999): pass")
        assert kernel.run("for i in range(1_000): pass").reply["ename"] == "TickLimit"
