"""Verifications that the code cannot reach, and functions that are called when the code has ended."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pandas as pd
import pytest

from sandbox_kernel import Sandbox, execute_python
from sandbox_kernel.api.verification import called, wanted
from sandbox_kernel.errors import FrameRefused

# What the code does, and a verification that passes only if that reached it.
ATTEMPTS = {
    "a built-in function": ("import builtins\nbuiltins.pow = lambda x, y: 6", "assert pow(1, 1) == 6"),
    "a module": (
        "import statistics\nstatistics.mean = lambda xs: 6",
        "import statistics\nassert statistics.mean([1]) == 6",
    ),
    "a module that stands for another": (
        "import sys, types\nsys.modules['statistics'] = types.SimpleNamespace(mean=lambda xs: 6)",
        "import statistics\nassert statistics.mean([1]) == 6",
    ),
    "a file that an import finds": (
        "open('cycler.py', 'w').write('concat = 6')",  # (a module of Python itself is found before)
        "import cycler\nassert cycler.concat == 6",
    ),
    "a value that equals all": (
        "class Six:\n    def __eq__(self, other): return True\ntotal = Six()",
        "assert total == 6",
    ),
    "a number that equals all": (
        "class Six(int):\n    __eq__ = lambda self, other: True\ntotal = Six(5)",
        "assert total == 6",
    ),
    "a table with a sum of its own": (
        "import pandas\npandas.Series.sum = lambda self: 6\ntotal = pandas.Series([1])",
        "assert total.sum() == 6",
    ),
    "assertions that are taken out": (
        "import ast\nclass Out(ast.NodeTransformer):\n    def visit_Assert(self, node): return ast.Pass()\n"
        "get_ipython().ast_transformers.append(Out())",
        "assert False",
    ),
    "text that is taken out": ("get_ipython().input_transformers_cleanup.append(lambda lines: [])", "assert False"),
    "a thread that waits for it": (
        "import threading, builtins, time\ndef wait():\n    while 'waits' not in globals(): time.sleep(0.01)\n"
        "    globals()['total'] = 6\nthreading.Thread(target=wait, daemon=True).start()\ntotal = 5",
        "import time\nwaits = True\nend = time.monotonic() + 1\n"
        "while total != 6 and time.monotonic() < end: time.sleep(0.01)\nassert total == 6",
    ),
    "what is called after each cell": (
        "total = 5\nget_ipython().events.register('pre_execute', lambda: globals().update(total=6))",
        "assert total == 6",
    ),
    "a function called as a built-in": ("def sorted(xs): return xs", "assert sorted([2, 1]) == [2, 1]"),
    "the inputs": ("xs.append(3)", "assert sum(xs) == 6"),
}  # fmt: skip


@pytest.fixture(scope="module")
def one_for_both() -> Iterator[Sandbox]:
    with Sandbox({"recovery": {"checkpoints": "off"}}) as box:
        yield box


@pytest.mark.security
@pytest.mark.parametrize("name", ATTEMPTS)
def test_the_code_does_not_reach_it(name: str, one_for_both: Sandbox) -> None:
    code, verify = ATTEMPTS[name]
    one_for_both.restart()
    assert one_for_both.run_code(code, inputs={"xs": [1, 2]}).success
    assert one_for_both.run_code(verify).success, "in the code's own session the attempt succeeds"
    result = execute_python(code, inputs={"xs": [1, 2]}, verify=verify, timeout=20)
    assert result.exit_code == 0 and result.verified is False and not result.success
    assert result.verification_error


def test_what_it_reads_comes_from_the_code() -> None:
    code = ("import numpy as np\ntotal = np.arange(4)\nname = 'n'\ndef double(x):\n"
            "    if x == -1: raise ValueError('negative')\n"
            "    return x * 2\nprint('done')")  # fmt: skip
    verify = (
        "import numpy\nassert isinstance(total, numpy.ndarray) and total.sum() == 6\n"
        "assert name == 'n' and stdout == 'done\\n'\n"
        "assert [double(x) for x in (1, 2)] == [2, 4] and double(x='ab') == 'abab'\n"
        "try:\n    double(-1)\nexcept ValueError as error:\n    assert str(error) == 'negative'\n"
        "else:\n    assert False\nimport os\nassert not os.path.exists('left-behind')"
    )
    result = execute_python(code, verify=verify, timeout=20)
    assert result.verified is True, result.verification_error
    assert result.returned == {} == result.dropped, "only what was asked for is returned"


def test_functions_run_where_the_code_ran() -> None:
    code = "import os\ndef pid(): return os.getpid(), os.path.exists('mine')\nopen('mine', 'w').close()"
    verify = "import os\nassert pid() == pid() and pid()[1] and not os.path.exists('mine')"
    assert execute_python(code, verify=verify, timeout=20).verified


def test_a_function_that_does_not_end_ends_the_verification() -> None:
    result = execute_python("def f():\n    while True: pass", verify="assert f() is None", timeout=1)
    assert result.verified is False and "timeout = 1 s" in result.verification_error


def test_rules_for_code_are_not_for_the_verification() -> None:
    policy = {"code": {"functions_only": True, "imports": {"allow": ["math"]}}}
    result = execute_python("def f(x): return x + 1", policy=policy, timeout=20,
                            verify="import statistics\nassert f(1) == statistics.mean([2])")  # fmt: skip
    assert result.verified is True, result.verification_error


@pytest.mark.parametrize("code", ["1/0", "import sys; sys.exit(2)"])
def test_code_that_failed_is_not_verified(code: str) -> None:
    result = execute_python(code, verify="pass")
    assert (result.success, result.verified) == (False, False) and "not run" in result.verification_error


def test_a_verification_that_is_not_python_is_misuse() -> None:
    with pytest.raises(SyntaxError):
        execute_python("1", verify="assert assert")


class TestFunction:
    def test_a_table_in_and_out(self) -> None:
        code = "def scale(df, *, by=1):\n    '''Scaled.'''\n    print('scaling')\n    return df * by"
        table = pd.DataFrame({"a": [1, 2]})
        result = execute_python(code, function="scale", args=[table], kwargs={"by": 2}, functions_only=True, timeout=30,
                                verify="assert result.a.tolist() == [2, 4]")  # fmt: skip
        assert result.success and result.verified and result.stdout == "scaling\n", result.verification_error
        pd.testing.assert_frame_equal(result.value, pd.DataFrame({"a": [2, 4]}))

    def test_what_goes_wrong_is_data(self) -> None:
        failed = execute_python("def f(x):\n    return 1 / x", function="f", args=[0], timeout=20)
        assert failed.error is not None and failed.error.name == "ZeroDivisionError" and failed.exit_code == 1
        assert not failed.success and "return 1 / x" in failed.stderr and failed.value is None
        missing = execute_python("x = 1", function="f", timeout=20)
        assert missing.error is not None and missing.error.name == "NameError"
        odd = execute_python("def f(): return lambda: 1", function="f", timeout=20)
        assert odd.error is not None and odd.error.name == "FrameRefused" and not odd.success
        slow = execute_python("def f():\n    while True: pass", function="f", timeout=0.5)
        assert slow.timed_out and slow.exit_code == -9

    @pytest.mark.parametrize("level", ["auto", "in-process"])
    def test_only_functions_where_that_was_asked_for(self, level: str) -> None:
        result = execute_python("def f(): pass\nprint(f())", level=level, functions_only=True, verify="pass")
        assert result.error is not None and result.error.name == "PolicyRefusal" and "Line 2" in result.error.value
        assert result.verified is False and result.stdout == ""

    def test_misuse(self) -> None:
        with pytest.raises(ValueError, match="sandbox only"):
            execute_python("def f(): pass", function="f", level="in-process")
        with pytest.raises(ValueError, match="name of a variable"):
            execute_python("1", function="f()")
        with pytest.raises(FrameRefused):
            execute_python("def f(x): pass", function="f", args=[os])


@pytest.mark.parametrize(("code", "names"), [
    ("assert total == 6", ["total"]),
    ("import numpy as np, os.path\nfrom math import tau as t\nassert np.allclose(xs, t) and os and known", ["xs"]),
    ("for i in xs:\n    y = i\n    assert y", ["xs"]),
    ("assert [a for a in xs] and (lambda q: q)(1) and (w := f(2)) and w", ["xs", "f"]),
    ("def g(p): return p\nclass C: pass\ntry: g(C)\nexcept OSError as e: print(e)", []),
    ("match v:\n    case {'a': b, **c}: print(b)\n    case [d, *e]: print(d, e)", ["v"]),
    ("assert sorted(xs) and len(xs) and __name__", ["xs"]),
])  # fmt: skip
def test_the_names_that_a_verification_reads(code: str, names: list[str]) -> None:
    assert sorted(wanted(code, ["known"])) == sorted(names)


def test_the_names_that_it_calls() -> None:
    assert called("f(1); g.h(2); assert k") == {"f"}
