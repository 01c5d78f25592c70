"""Contracts of textbook functions: what is proved holds, what is refuted breaks, by running the functions."""

from __future__ import annotations

import ast
import random
import sys
import types
from typing import Any

import pytest

pytest.importorskip("z3")

from sandbox_kernel.errors import IsolationUnavailable
from sandbox_kernel.verify import Verdict, verify_function


@pytest.fixture(autouse=True)
def no_sandbox(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of counterexamples: the evaluator replays them. One test below has the sandbox."""
    if "live" not in request.node.name:
        monkeypatch.setattr("sandbox_kernel.execute_python", None)


def implies(one: object, other: object) -> bool:
    return not one or bool(other)


class Case:
    """A function, its contract and the answer that is expected."""

    def __init__(self, name: str, status: str, code: str, pre: str = "True", post: str = "True", **more: Any) -> None:
        self.name, self.status, self.code, self.pre, self.post, self.more = name, status, code, pre, post, more

    def verdict(self) -> Verdict:
        found = ast.parse(self.code).body
        function = next(node for node in reversed(found) if isinstance(node, ast.FunctionDef))
        return verify_function(self.code, function.name, self.pre, self.post, **self.more)

    def breaks(self, values: dict[str, Any]) -> bool | None:
        """What Python says; None when the precondition does not hold."""
        names: dict[str, Any] = {"implies": implies}
        exec(self.code, names)
        function = list(names.values())[-1]
        try:
            if not eval(self.pre, names, dict(values)):
                return None
        except Exception:
            return None
        copies = [{k: list(v) if isinstance(v, list) else v for k, v in values.items()} for _ in range(2)]
        try:
            result = function(**copies[0])
        except Exception as error:
            return type(error).__name__ not in self.more.get("raises", ())
        return not eval(self.post, {**names, **copies[1], "result": result})


ABS = "def absolute(x):\n    if x < 0:\n        return -x\n    return x\n"
MAX3 = "def largest(a, b, c):\n    m = a\n    if b > m:\n        m = b\n    if c > m:\n        m = c\n    return m\n"
CLAMP = "def clamp(x, low, high):\n    return max(low, min(x, high))\n"
GCD_STEP = "def step(a, b):\n    return b, a % b\n"
GCD = "def gcd(a, b):\n    while b:\n        a, b = b, a % b\n    return a\n"
TRIANGLE = "def triangle(n):\n    total = 0\n    for i in range(n + 1):\n        total += i\n    return total\n"
LEAP = "def leap(year):\n    if year % 400 == 0:\n        return True\n    if year % 100 == 0:\n        return False\n\
    return year % 4 == 0\n"
MIDDLE = "def middle(low, high):\n    return low + (high - low) // 2\n"
SIGN = "def sign(x):\n    return 1 if x > 0 else -1 if x < 0 else 0\n"
SORT2 = "def sort2(a, b):\n    if a > b:\n        a, b = b, a\n    return [a, b]\n"
MEDIAN = "def median(a, b, c):\n    return max(min(a, b), min(max(a, b), c))\n"
BUBBLE = """def bubble(xs: list[int]):
    xs = xs.copy()
    for i in range(len(xs)):
        for j in range(len(xs) - 1 - i):
            if xs[j] > xs[j + 1]:
                xs[j], xs[j + 1] = xs[j + 1], xs[j]
    return xs
"""
SEARCH = """def search(xs: list[int], x):
    low, high = 0, len(xs)
    while low < high:
        middle = (low + high) // 2
        if xs[middle] < x:
            low = middle + 1
        else:
            high = middle
    return low
"""
FIND = """def find(xs: list[int], x):
    for i, each in enumerate(xs):
        if each == x:
            return i
    return None
"""
LARGEST = """def maximum(xs: list[int]):
    best = xs[0]
    for x in xs[1:]:
        if x > best:
            best = x
    return best
"""
COUNT = "def positives(xs: list[int]):\n    return sum(1 for x in xs if x > 0)\n"
FACT = "def factorial(n):\n    if n < 2:\n        return 1\n    return n * factorial(n - 1)\n"
FIB = "def fib(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a\n"
POWER = "def power(base, n):\n    result = 1\n    for _ in range(n):\n        result *= base\n    return result\n"
COLLATZ = "def step(n):\n    return n // 2 if n % 2 == 0 else 3 * n + 1\n"
DIGITS = "def digits(n):\n    s = 0\n    while n > 0:\n        s += n % 10\n        n //= 10\n    return s\n"
CEIL = "def ceiling(a, b):\n    return -(-a // b)\n"
SQRT = "def root(n):\n    r = 0\n    while (r + 1) * (r + 1) <= n:\n        r += 1\n    return r\n"
MEAN = "def mean(a: float, b: float):\n    return (a + b) / 2\n"
SAFE = "def safe(a, b):\n    if b == 0:\n        raise ValueError('b')\n    return a // b\n"
HELPER = "def double(x):\n    return x + x\n\ndef quadruple(x):\n    return double(double(x))\n"
ODD = "def odd(n):\n    return n % 2 == 1\n"
WEEKDAY = "def later(day, n):\n    return (day + n) % 7\n"
REVERSE = "def backwards(xs: list[int]):\n    return xs[::-1]\n"
PALINDROME = """def palindrome(xs: list[int]):
    for i in range(len(xs) // 2):
        if xs[i] != xs[len(xs) - 1 - i]:
            return False
    return True
"""
DIVIDE = """def divide(a, b):
    q, r = 0, a
    while r >= b:
        r -= b
        q += 1
    return q, r
"""
TRIANGLE_KIND = """def kind(a, b, c):
    if a == b == c:
        return "equilateral"
    if a == b or b == c or a == c:
        return "isosceles"
    return "scalene"
"""

CASES = [
    Case("abs", "proved", ABS, post="result >= 0 and result in (x, -x)"),
    Case("abs too strong", "refuted", ABS, post="result > 0"),
    Case("max of three", "proved", MAX3, post="result >= a and result >= b and result >= c and result in (a, b, c)"),
    Case("max of three, wrong", "refuted", MAX3.replace("c > m", "c > a"), post="result == max(a, b, c)"),
    Case("clamp", "proved", CLAMP, "low <= high", "low <= result <= high and implies(low <= x <= high, result == x)"),
    Case("clamp without order", "refuted", CLAMP, "True", "low <= result <= high"),
    Case("gcd step", "proved", GCD_STEP, "a >= 0 and b > 0", "0 <= result[1] < result[0]"),
    Case("gcd step, negative", "refuted", GCD_STEP, "b != 0", "result[1] >= 0"),
    Case("gcd step by zero", "refuted", GCD_STEP),
    Case("gcd", "proved", GCD, "0 <= a <= 15 and 0 <= b <= 15 and a + b > 0", "a % result == 0 and b % result == 0",
         timeout_s=2),
    Case("triangle, few", "proved", TRIANGLE, "0 <= n <= 7", "2 * result == n * (n + 1)"),
    Case("triangle", "bounded", TRIANGLE, "n >= 0", "2 * result == n * (n + 1)"),
    Case("triangle by invariant", "proved", TRIANGLE, "n >= 0", "2 * result == n * (n + 1)",
         invariants=["2 * total == i * (i - 1)"]),
    Case("triangle, one short", "refuted", TRIANGLE.replace("n + 1", "n"), "n >= 0", "2 * result == n * (n + 1)"),
    Case("triangle, one short, by invariant", "refuted", TRIANGLE.replace("n + 1", "n"), "n >= 0",
         "2 * result == n * (n + 1)", invariants=["2 * total == i * (i - 1)"]),
    Case("leap year", "proved", LEAP, post="result == (year % 4 == 0 and (year % 100 != 0 or year % 400 == 0))"),
    Case("leap year, Julian", "refuted", LEAP, post="result == (year % 4 == 0)"),
    Case("binary search step", "proved", MIDDLE, "low < high", "low <= result < high"),
    Case("binary search step, empty", "refuted", MIDDLE, "low <= high", "low <= result < high"),
    Case("sign", "proved", SIGN, post="x == result * abs(x) and result in (-1, 0, 1)"),
    Case("sort of two", "proved", SORT2, post="result[0] <= result[1] and result in ([a, b], [b, a])"),
    Case("median", "proved", MEDIAN, post="result == sorted([a, b, c])[1]"),
    Case("median, wrong", "refuted", MEDIAN.replace("max(a, b), c", "a, c"), post="result == sorted([a, b, c])[1]"),
    Case("bubble sort", "proved", BUBBLE, "len(xs) <= 4", "result == sorted(xs)"),
    Case("bubble sort, any length", "bounded", BUBBLE, "True", "result == sorted(xs)"),
    Case("bubble sort, one short", "refuted", BUBBLE.replace("- 1 - i", "- 2 - i"), "len(xs) <= 3",
         "result == sorted(xs)"),
    Case("binary search", "proved", SEARCH, "len(xs) <= 4 and all(xs[i] <= xs[i + 1] for i in range(len(xs) - 1))",
         "all((xs[i] < x) == (i < result) for i in range(len(xs))) and 0 <= result <= len(xs)"),
    Case("binary search, unsorted", "refuted", SEARCH, "len(xs) <= 4",
         "all((xs[i] < x) == (i < result) for i in range(len(xs)))"),
    Case("binary search, beyond the end", "refuted", SEARCH.replace("len(xs)", "len(xs) + 1"), "len(xs) == 2", "True"),
    Case("find", "bounded", FIND, "True", "(result is None) == (x not in xs) and (result is None or xs[result] == x)"),
    Case("find, last", "refuted", FIND, "len(xs) <= 3", "result is None or x not in xs[result + 1:][:0] + [x]"),
    Case("maximum", "proved", LARGEST, "1 <= len(xs) <= 4", "result in xs and all(result >= x for x in xs)"),
    Case("maximum of nothing", "refuted", LARGEST, "len(xs) <= 4", "True"),
    Case("count", "proved", COUNT, "len(xs) < 5",
         "0 <= result <= len(xs) and (result == len(xs)) == all(x > 0 for x in xs)"),
    Case("factorial, few", "proved", FACT, "0 <= n <= 6", "result >= n"),
    Case("factorial", "bounded", FACT, "n >= 0", "result >= n"),
    Case("factorial, wrong claim", "refuted", FACT, "n >= 0", "result > n"),
    Case("fibonacci", "bounded", FIB, "n >= 0", "result >= 0"),
    Case("fibonacci by invariant", "proved", FIB, "n >= 0", "result >= 0", invariants=["a >= 0 and b >= 0"]),
    Case("power", "bounded", POWER, "n >= 0", "implies(base > 0, result > 0)"),
    Case("collatz step", "proved", COLLATZ, "n > 0", "result > 0 and (n % 2 == 0 or result % 2 == 0)"),
    Case("sum of digits", "proved", DIGITS, "0 <= n < 1000", "(n - result) % 9 == 0"),
    Case("sum of digits, wrong", "refuted", DIGITS, "0 <= n < 1000", "(n - result) % 7 == 0"),
    Case("ceiling", "proved", CEIL, "b > 0", "(result - 1) * b < a <= result * b"),
    Case("ceiling, negative", "refuted", CEIL, "b != 0", "(result - 1) * b < a <= result * b"),
    Case("integer root by invariant", "proved", SQRT, "n >= 0", "result * result <= n < (result + 1) * (result + 1)",
         invariants=["r >= 0 and r * r <= n"], variants=["n - r"]),
    Case("integer root, if it ends", "conditional", SQRT, "n >= 0", "result * result <= n",
         invariants=["r >= 0 and r * r <= n"]),
    Case("mean", "conditional", MEAN, "a <= b", "a <= result <= b"),
    Case("mean, wrong", "refuted", MEAN, "a <= b", "a < result"),
    Case("allowed exception", "proved", SAFE, "True", "implies(b > 0, b * result <= a)", raises=["ValueError"]),
    Case("exception", "refuted", SAFE, "True", "True"),
    Case("helper", "proved", HELPER, post="result == 4 * x"),
    Case("helper, wrong", "refuted", HELPER, post="result == 3 * x"),
    Case("odd, Python's remainder", "proved", ODD, post="result == (n % 2 != 0)"),
    Case("weekday", "proved", WEEKDAY, post="0 <= result < 7"),
    Case("reverse", "proved", REVERSE, "len(xs) <= 4", "all(result[i] == xs[len(xs) - 1 - i] for i in range(len(xs)))"),
    Case("palindrome", "proved", PALINDROME, "len(xs) <= 4", "result == (xs == xs[::-1])"),
    Case("palindrome, wrong", "refuted", PALINDROME.replace("- 1 - i", "- 2 - i"), "len(xs) <= 4",
         "result == (xs == xs[::-1])"),
    Case("division by invariant", "proved", DIVIDE, "a >= 0 and b > 0",
         "a == b * result[0] + result[1] and 0 <= result[1] < b",
         invariants=["a == b * q + r and r >= 0 and b > 0"], variants=["r"]),
    Case("kinds of triangles", "proved", TRIANGLE_KIND,
         post="(result == 'equilateral') == (a == b and b == c) and implies(result == 'scalene', a != b)"),
    Case("no arguments at all", "unknown", ABS, "x > 0 and x < 0", "False"),
]  # fmt: skip


def random_values(case: Case, chance: random.Random, size: int) -> dict[str, Any]:
    (function,) = [node for node in ast.parse(case.code).body[-1:] if isinstance(node, ast.FunctionDef)]
    values: dict[str, Any] = {}
    for arg in function.args.args:
        kind = ast.unparse(arg.annotation) if arg.annotation else "int"
        if kind == "int":
            values[arg.arg] = chance.randint(-size, size)
        elif kind == "float":
            values[arg.arg] = chance.choice([chance.uniform(-size, size), float(chance.randint(-size, size))])
        else:
            values[arg.arg] = [chance.randint(-size, size) for _ in range(chance.randint(0, 6))]
    return values


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_verdict_and_what_python_says(case: Case) -> None:
    verdict = case.verdict()
    assert verdict.status == case.status, str(verdict)
    if verdict.refuted:
        assert verdict.counterexample is not None and case.breaks(dict(verdict.counterexample)) is True, str(verdict)
        assert verdict.replayed_by and verdict.outcome
        return
    assert verdict.counterexample is None
    chance, tried = random.Random(1), 0
    for turn in range(8_000):
        breaks = case.breaks(random_values(case, chance, 4 + turn % 40))
        assert not breaks
        tried += breaks is not None
        if tried == 1_000:
            break
    assert tried >= (0 if case.status == "unknown" else 20)


def test_there_are_enough() -> None:
    assert sum(case.status == "proved" for case in CASES) >= 20 <= sum(case.status == "refuted" for case in CASES)


class TestBounds:
    def test_bounded_is_never_proved(self) -> None:
        verdict = verify_function(TRIANGLE, "triangle", "n >= 0", "result < 1000", bound=5)
        assert verdict.status == "bounded" and not verdict.proved and verdict.bound == 5
        assert "up to bound 5" in verdict.message and "line 3" in verdict.message
        assert verify_function(TRIANGLE, "triangle", "n >= 0", "result < 1000", bound=60).status == "refuted"

    def test_a_precondition_beyond_the_bound_is_no_proof(self) -> None:
        pre = "all(x != k * 2 for k in range(n))"  # what it says for large n is not looked at
        code = "def f(x, n):\n    return x == 40 and n > 20\n"
        assert verify_function(code, "f", pre, "not result").status == "bounded"

    def test_a_postcondition_beyond_the_bound_is_no_proof(self) -> None:
        assert verify_function("def f(n):\n    return n\n", "f", "n > 0",
                               "any(k == n - 1 for k in range(n))").status == "bounded"

    def test_lists_longer_than_looked_at(self) -> None:
        code = "def f(xs: list[int]):\n    return len(xs)\n"
        verdict = verify_function(code, "f", post="result < 5")
        assert verdict.status == "bounded" and "at most 4 items" in verdict.message
        assert verify_function(code, "f", post="result < 5", lists=5).refuted

    def test_recursion_that_does_not_end(self) -> None:
        assert verify_function("def f(n):\n    return f(n + 1)\n", "f").status == "bounded"

    def test_a_loop_that_does_not_end_is_not_proved(self) -> None:
        assert verify_function("def f(n):\n    while True:\n        pass\n", "f", post="False").status == "bounded"
        verdict = verify_function("def f(n):\n    while n >= 0:\n        n += 1\n", "f", "n >= 0",
                                  "False", invariants=["n >= 0"])
        assert verdict.status == "conditional" and "the loop in line 2 ends" in verdict.assumptions

    def test_time(self) -> None:
        code = "def f(a, b, c, n):\n    return a ** 9 + b ** 9 == c ** 9 and n > 2 and a * b * c != 0\n"
        verdict = verify_function(code, "f", "a > 0 and b > 0 and c > 0", "not result", timeout_s=2)
        assert verdict.status == "unknown" and verdict.message


class TestInvariants:
    def test_too_weak(self) -> None:
        verdict = verify_function(TRIANGLE, "triangle", "n >= 0", "result >= n", invariants=["total >= 0"])
        assert verdict.status == "unknown"

    def test_not_kept(self) -> None:
        verdict = verify_function(TRIANGLE, "triangle", "n >= 0", "True", invariants=["total == i"])
        assert verdict.status == "unknown" and "keeps its invariant" in verdict.message and "line 3" in verdict.message

    def test_not_true_at_the_start(self) -> None:
        verdict = verify_function(TRIANGLE, "triangle", "n >= 0", "True", invariants=["total > 0"])
        assert verdict.status == "unknown" and "at its start" in verdict.message

    def test_a_variant_that_does_not_fall(self) -> None:
        verdict = verify_function("def f(n):\n    while n > 0:\n        n += 1\n    return n\n", "f", "n >= 0",
                                  "result == 0",
                                  invariants=["n >= 0"], variants=["n"])  # fmt: skip
        assert verdict.status == "unknown" and "variant" in verdict.message

    def test_names_of_the_loop_are_forgotten(self) -> None:
        code = "def f(n):\n    for i in range(n):\n        x = i\n    return x\n"
        verdict = verify_function(code, "f", "n > 0", "True", invariants=["i >= 0"], raises=["Exception"])
        assert verdict.status == "outside"

    def test_the_counter_after_the_loop(self) -> None:
        code = "def f(n):\n    i = 5\n    for i in range(n):\n        pass\n    return i\n"
        assert verify_function(code, "f", "True", "result == (n - 1 if n > 0 else 5)", invariants=["True"]).proved

    @pytest.mark.parametrize("turn", ["xs.append(i)", "g(xs)", "xs[0] = xs[0] / 3"])
    def test_a_list_whose_shape_changes_with_the_turns(self, turn: str) -> None:
        helper = "def g(xs):\n    xs.append(1)\n"
        code = f"{helper}def f(n):\n    xs = [8]\n    for i in range(n):\n        {turn}\n    return xs\n"
        verdict = verify_function(code, "f", "n >= 0", "len(result) == 1 and result[0] // 1 == result[0]",
                                  invariants=["True"])  # fmt: skip
        assert verdict.status == "outside" and "length or kinds change" in verdict.message and verdict.line == 5

    def test_what_the_loop_s_own_condition_changes(self) -> None:
        code = "def f(n):\n    y = 0\n    while (y := y + 1) < n:\n        pass\n    return y\n"
        assert verify_function(code, "f", "n >= 0", "result == 1", invariants=["y < 5"]).refuted
        helper = "def g(xs):\n    xs[0] += 1\n    return xs[0]\n"
        code = f"{helper}def f(n):\n    xs = [0]\n    while g(xs) < n:\n        pass\n    return xs[0]\n"
        assert verify_function(code, "f", "n >= 0", "result == 1", invariants=["xs[0] < 5"]).refuted

    def test_halves_fall_for_ever(self) -> None:
        code = "def f(x: float):\n    while x > 0:\n        x = x / 2\n    return x\n"
        verdict = verify_function(code, "f", "x > 0", "False", invariants=["x > 0"], variants=["x"])
        assert verdict.status == "outside" and "no whole number" in verdict.message

    def test_more_invariants_than_loops(self) -> None:
        with pytest.raises(ValueError, match="2 invariants and 1 loops"):
            verify_function(TRIANGLE, "triangle", invariants=["True", "True"])


OUTSIDE: list[tuple[str, str, int, int]] = [
    ("import math\ndef f(x):\n    return math.sqrt(x)", "the name math, which is a module", 3, 12),
    ("def f(x):\n    with x:\n        pass", "With", 2, 5),
    ("def f(x):\n    y = {1: 2}\n    return y", "Dict", 2, 9),
    ("def f(x):\n    return g(x)", "a call of g, which is not known here", 2, 12),
    ("from m import g\ndef f(x):\n    return g(x)", "imported from m", 3, 12),
    ("def f(*x):\n    pass", "any length", 1, 8),
    ("@d\ndef f(x):\n    pass", "a decorator", 1, 2),
    ("def f(x):\n    global y\n    y = 1", "a global statement", 2, 5),
    ("def f(x):\n    def g(): pass", "a definition inside a function", 2, 5),
    ("def f(x):\n    yield x", "yield", 2, 5),
    ("def f(x):\n    try:\n        pass\n    finally:\n        pass", "Try", 2, 5),
    ("def f(x, y):\n    return x ** y", "a power whose exponent is not", 2, 12),
    ("def f(x, y):\n    return x | y", "a bit operation", 2, 12),
    ("def f(x: str):\n    return x", "the type str of the parameter x", 1, 10),
    ("def f(x: dict):\n    return x", "the type dict", 1, 10),
    ("def f(x):\n    return [1, 2, 3][x:]", "a slice whose ends", 2, 22),
    ("def f(x):\n    return f'{x}'", "JoinedStr", 2, 12),
    ("def f(x):\n    return x is x", "`is` with anything but None", 2, 12),
    ("def f(x):\n    return lambda: x", "Lambda", 2, 12),
    ("def f(x:", "text that is not Python", 1, 6),
    ("abs = 1\ndef f(x):\n    return abs(x)", "a call of abs", 3, 12),
    ("def f(x):\n    abs = 1\n    return abs(x)", "a call of the variable abs", 3, 12),
    ("def f(xs: list[int]):\n    for i, x in enumerate(xs):\n        xs[-1] = 0\n    return xs",
     "a change of a list that", 2, 5),
    ("def f(xs: list[int]):\n    for x, y in zip(xs, xs[1:]):\n        xs[0] = y\n    return xs",
     "a change of a list", 2, 5),
    ("def f(x):\n    a = [x]\n    return [a.append(y) for y in (1, 2)]", "append in the midst", 3, 13),
    ("N = ([0],)\ndef f(x):\n    N[0][0] += 1\n    return N[0][0]", "the name N", 3, 5),
    ("def f(xs: list[int]):\n    z = zip(xs, xs)\n    return sum(x for x, y in z) - sum(x for x, y in z)",
     "what zip gives as a value", 2, 9),
    ("def f(x):\n    return reversed([1, x])[0]", "what reversed gives as a value", 2, 12),
    ("from m import *\ndef f(x):\n    return abs(x)", "perhaps imported from m by *", 3, 12),
    ("def g(): return 1\nN = g()\ndef g(): return 2\ndef f(x):\n    return N", "before a function was defined again",
     5, 12),
    ("X = 1\ndef g(a, b=-X):\n    return b\ndef f(X):\n    return g(1)", "the default of b", 2, 12),
    ("def f(xs: list[int]):\n    for x in xs:\n        xs.append(x)\n    return xs",
     "length of the list that a loop", 2, 5),
]  # fmt: skip


@pytest.mark.parametrize(("code", "what", "line", "column"), OUTSIDE)
def test_what_is_outside_is_named_with_its_place(code: str, what: str, line: int, column: int) -> None:
    verdict = verify_function(code, "f")
    assert verdict.status == "outside" and what in verdict.message, str(verdict)
    assert (verdict.line, verdict.column) == (line, column)


@pytest.mark.parametrize("condition", ["__import__('os').system('true')", "x.__class__", "open('x')", "y > 0",
                         "[].append",
                                       "(lambda: 1)()", "f'{x}'"])  # fmt: skip
def test_conditions_are_read_and_never_evaluated(condition: str) -> None:
    for pre, post in ((condition, "True"), ("True", condition)):
        verdict = verify_function(ABS, "absolute", pre, post)
        assert verdict.status == "outside" and "condition" in verdict.message


@pytest.mark.parametrize("condition", ["x >", "x = 1", "import os", "", "(" * 300])
def test_what_is_no_condition(condition: str) -> None:
    with pytest.raises(ValueError, match="is not an expression"):
        verify_function(ABS, "absolute", condition)


class TestTypes:
    def test_kinds_that_nobody_said_are_told(self) -> None:
        assert verify_function(ABS, "absolute").assumptions == ("x is an int",)
        assert verify_function("def f(x: int): return x", "f").assumptions == ()

    def test_given_kinds(self) -> None:
        assert verify_function(ABS, "absolute", post="result >= 0", types={"x": "float"}).status == "conditional"
        assert verify_function("def f(x): return x + 1", "f", post="result in (1, 2)", types={"x": "bool"}).proved
        code = "def f(p): return p[0] if p is not None else 0"
        types = {"p": "tuple[int, int] | None"}
        assert verify_function(code, "f", post="implies(p is None, result == 0)", types=types).proved
        with pytest.raises(ValueError, match="no parameter y"):
            verify_function(ABS, "absolute", types={"y": "int"})

    def test_none_and_int(self) -> None:
        code = "def f(x: int | None) -> int:\n    return x + 1\n"
        verdict = verify_function(code, "f")
        assert verdict.refuted and verdict.counterexample == {"x": None} and verdict.outcome == "raises TypeError"
        assert verify_function(code, "f", "x is not None", "result > x").proved

    def test_a_list_that_came_in_and_was_changed(self) -> None:
        code = "def f(xs: list[int]):\n    xs[0] = 7\n    return xs\n"
        assert verify_function(code, "f", "len(xs) == 2 and xs[0] != 7", "result[0] == 7 and xs[0] != 7").proved

    def test_two_names_for_one_list(self) -> None:
        code = "def f(x):\n    a = [x, x]\n    b = a\n    b[0] = x + 1\n    c = a.copy()\n    c[1] = 0\n    return a\n"
        assert verify_function(code, "f", post="result == [x + 1, x]").proved

    def test_code_at_top_level_makes_it_conditional(self) -> None:
        assert verify_function(f"{ABS}absolute.x = 1\n", "absolute").status == "conditional"
        assert verify_function(f"{ABS}if __name__ == '__main__':\n    print(absolute(1))\n", "absolute").proved
        assert verify_function(f"{ABS}absolute = None\n", "absolute").status == "outside"
        assert verify_function(f"N = 3\n{ABS}def f(): return N\n", "f", post="result == 3").proved


    def test_elements_are_read_when_their_turn_comes(self) -> None:
        code = "def f(x):\n    a = [x, 1]\n    for y in a:\n        a[1] = 5\n    return y\n"
        assert verify_function(code, "f", post="result == 5").proved
        code = "def f(x):\n    b = []\n    for i, y in enumerate([x, 1]):\n        b.append(y + i)\n    return b\n"
        assert verify_function(code, "f", post="result == [x, 2]").proved

    @pytest.mark.parametrize("before", [
        "N = (abs := 3)", "_ = globals().update(abs=lambda x: -7)", "def g(x=exec('abs = len')): pass",
        "@register\ndef g(): pass", "class A:\n    exec('abs = len')", "def g(x=(lambda y=print(): y)): pass",
    ])  # fmt: skip
    def test_definitions_that_do_more_than_define(self, before: str) -> None:
        code = f"{before}\ndef f(x):\n    return abs(x)\n"
        assert verify_function(code, "f", post="result >= 0").status == "conditional"

    def test_definitions_that_only_define(self) -> None:
        before = "@dataclass\nclass P:\n    x: int = 0\n    def show(self):\n        print(self.x)\nN = max(3, 4)\n"
        code = f"{before}async def g(): await h()\nk = lambda x: print(x)\ndef f(x):\n    return abs(x) + N\n"
        assert verify_function(code, "f", post="result >= 4").proved

    def test_iterators_that_are_gone_through_at_once(self) -> None:
        code = "def f(xs: list[int]):\n    a, b = reversed(xs)\n    return [b, a] + [y for y, _ in list(zip(xs, xs))]\n"
        assert verify_function(code, "f", "len(xs) == 2", "result == xs + xs").proved

    @pytest.mark.parametrize("compared", ["max(zip(a, a), zip(a, a))", "min(reversed(a), reversed(a))"])
    def test_iterators_cannot_be_compared(self, compared: str) -> None:
        code = f"def f(x):\n    a = [x]\n    m = {compared}\n    return x\n"
        assert verify_function(code, "f", post="result == x").status == "outside"
        code = code.replace(compared, "max(zip(a, a))")
        assert verify_function(code, "f", post="result == x").proved

    @pytest.mark.parametrize(("pre", "post", "status"), [
        ("a == 1 and b == 0", "result", "proved"), ("a == 1 and b == 0", "not result", "refuted"),
        ("a == 0", "True", "refuted"), ("any(10 // x > 1 for x in (a, b))", "b != 0", "refuted"),
        ("not all(10 // x > 1 for x in (a, b))", "b != 0", "proved"),  # where b is 0 the function raises
        ("not all(10 // x > 1 for x in (a, b))", "not result", "refuted"),
    ])  # fmt: skip
    def test_what_comes_after_the_element_that_decides_raises_nothing(self, pre: str, post: str, status: str) -> None:
        code = "def f(a, b):\n    return any(10 // x > 1 for x in [a, b])\n"
        allowed = ["ZeroDivisionError"] if post != "True" else []
        assert verify_function(code, "f", pre, post, raises=allowed).status == status
        whole = code.replace("(10", "([10").replace("b])", "b]])")  # a list is made before it is looked at
        assert verify_function(whole, "f", "a == 1 and b == 0").outcome == "raises ZeroDivisionError"
        known = whole.replace("[a, b]", "[1, b]")
        assert verify_function(known, "f", "b == 0").outcome == "raises ZeroDivisionError"

    def test_two_lists_are_two(self) -> None:
        code = "def f(xs: list[int], ys: list[int]):\n    xs[0] = 1\n    ys[0] = 2\n    return xs[0]\n"
        verdict = verify_function(code, "f", "len(xs) == 1 and len(ys) == 1", "result == 1")
        assert verdict.proved and "xs and ys are different lists" in verdict.assumptions

    def test_a_negative_power_is_a_float(self) -> None:
        assert verify_function("def f(x):\n    return x ** -1 * x\n", "f", "x != 0",
                               "result == 1").status == "conditional"


class TestReplay:
    def test_in_the_sandbox_where_there_is_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import sandbox_kernel

        def execute(program: str) -> Any:
            return types.SimpleNamespace(stdout=run(program))

        monkeypatch.setattr(sandbox_kernel, "execute_python", execute, raising=False)
        assert verify_function(ABS, "absolute", post="result > 0").replayed_by == "sandbox"

        def unavailable(program: str) -> Any:
            raise IsolationUnavailable("full", "namespaces", "not permitted")

        monkeypatch.setattr(sandbox_kernel, "execute_python", unavailable, raising=False)
        assert verify_function(ABS, "absolute", post="result > 0").replayed_by == "evaluator"

    def test_live(self) -> None:
        verdict = verify_function(SAFE, "safe", "a > 7", "True")
        assert verdict.refuted and verdict.replayed_by == "sandbox" and verdict.outcome == "raises ValueError"

    def test_what_the_sandbox_does_not_run_the_evaluator_does(self, monkeypatch: pytest.MonkeyPatch) -> None:
        refused = types.SimpleNamespace(stdout="")
        monkeypatch.setattr("sandbox_kernel.execute_python", lambda _program: refused)
        assert verify_function(ABS, "absolute", post="result > 0").replayed_by == "evaluator"

    def test_by_the_caller(self) -> None:
        programs: list[str] = []

        def replay(program: str) -> str:
            programs.append(program)
            return f"noise\n{run(program)}"

        verdict = verify_function(ABS, "absolute", post="result > 0", replay=replay)
        assert verdict.refuted and verdict.replayed_by == "caller" and len(programs) == 1
        assert verdict.outcome == "returns 0" and verdict.counterexample == {"x": 0}
        verdict = verify_function(SAFE, "safe", "b == 0", replay=replay)
        assert verdict.refuted and verdict.outcome == "raises ValueError"

    @pytest.mark.parametrize("said", ["", "sandbox_kernel replay: returned 5",
                             "sandbox_kernel replay: returned __import__('os')",
                                      "sandbox_kernel replay: nonsense",
                                      "sandbox_kernel replay: returned " + "(" * 9000])  # fmt: skip
    def test_what_does_not_replay_is_not_reported(self, said: str) -> None:
        verdict = verify_function(ABS, "absolute", post="result > 0", replay=lambda _program: said)
        assert verdict.status == "unknown" and verdict.counterexample is None

    def test_rounding_is_no_counterexample(self) -> None:
        code = "def f(x: float):\n    return x + 1.0\n"
        verdict = verify_function(code, "f", "0.0 < x < 0.0000000000000000001", "result == 1.0")
        assert verdict.status == "unknown" and "rounding" in verdict.message


def run(program: str) -> str:
    """What a program prints, run here: it is one of this file's own."""
    import contextlib
    import io

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(program, {})
    return out.getvalue()


# ------------------------------------------------------------ the translation against Python itself


def expression(chance: random.Random, depth: int) -> str:
    if depth == 0:
        return chance.choice(["x", "y", "z", str(chance.randint(-4, 7))])
    one, two = (expression(chance, depth - 1) for _ in range(2))
    return chance.choice([
        f"({one} + {two})", f"({one} - {two})", f"({one} * {two})", f"({one} // {two})",
        f"({one} % {two})", f"(-{one})",
        f"({one} // {chance.choice([-3, -1, 2, 5])})", f"({one} % {chance.choice([-3, -2, 2, 5])})", f"abs({one})",
        f"min({one}, {two})", f"max({one}, {two}, y)", f"({one} if {one} < {two} else {two})", f"({one} and {two})",
        f"({one} or {two})", f"int({one} == {two})", f"({one} >= {two})", f"(not {one})",
        f"({one} >> 1)", f"({one} & 7)",
        f"(~{one})", f"({one} ** 2)", f"sum([{one}, {two}])", f"[{one}, {two}, z][{two} % 3]", f"({one} in (x, {two}))",
        f"sorted([{one}, y, {two}])[1]", f"divmod({one}, {two})[1]", f"({one} != {two} <= z)", f"bool({one})",
        f"sum(k * {one} for k in range(3) if k != {two})", f"len([k for k in (1, 2)]) * {one}",
    ])  # fmt: skip


def program(chance: random.Random) -> str:
    one, two, three, test = (expression(chance, 2) for _ in range(4))
    body = chance.choice([
        f"    if {test}:\n        x = {one}\n    return x + {two}\n",
        f"    for i in range({two} % 4):\n        if i == {one}:\n            break\n        x += y\n    else:\n"
        f"        z = 1\n    return x * z\n",
        f"    n = 0\n    while n < 3:\n        n += 1\n        if {test}:\n            continue\n        x = {one}\n"
        f"    return x\n",
        f"    a = [x, y, z]\n    a[{one} % 3] = {two}\n    b = a\n    b.append({three})\n    return a[-1] + a[0]\n",
        f"    assert {test}\n    return {one}, {two}\n",
        f"    return g({one}, {two})\n",
        f"    if {test}:\n        return {one}\n    elif {three}:\n        y = {two}\n    return y\n",
    ])  # fmt: skip
    four, five = expression(chance, 1), expression(chance, 1)
    helper = f"def g(x, y, z=2):\n    if x > y:\n        return {four}\n    return {five}\n"
    return f"{helper}def f(x, y, z):\n{body}"


@pytest.mark.filterwarnings("ignore:Bitwise inversion:DeprecationWarning")
@pytest.mark.parametrize("seed", range(12))
def test_the_translation_says_what_python_does(seed: int) -> None:
    chance, seen = random.Random(seed), 0
    while seen < 12:
        code = program(chance)
        values = {name: chance.randint(-6, 9) for name in "xyz"}
        names: dict[str, Any] = {}
        exec(code, names)
        pre = " and ".join(f"{name} == {value}" for name, value in values.items())
        try:
            result = names["f"](**values)
        except Exception as error:
            wanted = type(error).__name__
            assert verify_function(code, "f", pre, "True").outcome == f"raises {wanted}", code
            assert verify_function(code, "f", pre, "False", raises=[wanted]).proved, code
        else:
            assert verify_function(code, "f", pre, f"result == {result!r}").proved, (code, values, result)
            refuted = verify_function(code, "f", pre, f"not result == {result!r}")
            assert refuted.refuted and refuted.outcome == f"returns {result!r}", (code, values, str(refuted))
        seen += 1


def test_without_z3_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from sandbox_kernel.verify import VerificationSpec, VerificationUnavailable, check_spec

    monkeypatch.setitem(sys.modules, "z3", None)
    for call in (lambda: verify_function(ABS, "absolute"), lambda: check_spec(VerificationSpec("x > 0", "x > 5"))):
        with pytest.raises(VerificationUnavailable, match=r"pip install '\.\[verify\]'"):
            call()
