"""Specifications: shown, refuted with plain values, or said to be unknown."""

from __future__ import annotations

import contextlib
from fractions import Fraction

import pytest

z3 = pytest.importorskip("z3")

from sandbox_kernel.verify import VerificationSpec, check_spec  # noqa: E402


def test_that_both_can_hold_is_not_that_one_implies_the_other() -> None:
    found = check_spec(VerificationSpec("x > 0", "x > 5"))
    assert found.valid is False and found.failed == "postcondition"
    assert found.counterexample is not None and 0 < found.counterexample["x"] <= 5
    assert type(found.counterexample["x"]) is int and "fails for x = " in found.notes


def test_the_same_as_z3_expressions() -> None:
    x = z3.Int("x")
    found = check_spec(VerificationSpec(x > 0, x > 5))
    assert found.valid is False and found.counterexample is not None and 0 < found.counterexample["x"] <= 5
    assert check_spec(VerificationSpec(precondition=x > 5, postcondition=x > 0)).valid is True
    assert check_spec(VerificationSpec(x > 5, x > 0, invariants=[x > 3])).valid is True


@pytest.mark.parametrize(
    ("pre", "post"),
    [("x > 5", "x > 0"), ("0 < x < y", "y >= 2"), ("x % 4 == 0", "x % 2 == 0"), (None, "x * x >= 0"), ("x > 0", None),
     ("x // 3 == 2", "6 <= x <= 8"), ("-7 // 2 == x", "x == -4"), ("x in (1, 2)", "x < 3"), ("x == abs(y)", "x >= y"),
     ("implies(x > 0, y > 0) and x > 0", "y > 0"), ("all(x > k for k in range(5))", "x > 4"), ("x != 0",
      "y // x * x <= y + abs(x)"),
     ("x >> 1 == 3", "x in (6, 7)"), ("min(x, y) > 0", "x > 0 and y > 0")],
)  # fmt: skip
def test_shown(pre: str | None, post: str | None) -> None:
    found = check_spec(VerificationSpec(pre, post))
    assert found.valid is True and found.counterexample is None, found.notes


@pytest.mark.parametrize(
    ("pre", "post", "kinds"),
    [("x >= 0", "x > 0", {}), (None, "x == y", {}), ("x % 2 == 0", "x % 4 == 0", {}), ("x < 0", "x // 2 > x", {}),
     ("p or q", "p and q", {"p": "bool", "q": "bool"}), ("0 < x < 1", "x > 0.5", {"x": "float"}),
     ("x * 3 == 1", "x > 1", {"x": "float"}), ("x > 0", "10 // (x - 3) < 99", {}), ("x == 2 * y", "x > y", {})],
)  # fmt: skip
def test_refuted_by_values_that_python_agrees_with(pre: str | None, post: str, kinds: dict[str, str]) -> None:
    found = check_spec(VerificationSpec(pre, post, variables=kinds))
    assert found.valid is False and found.counterexample is not None
    names = {**found.counterexample}
    assert all(type(value) in (int, bool, float, Fraction) for value in names.values())
    assert pre is None or eval(pre, {}, names)
    with contextlib.suppress(ZeroDivisionError):
        assert not eval(post, {}, names)


def test_an_exact_value_where_a_float_would_be_rounded() -> None:
    found = check_spec(VerificationSpec("x * 49 == 1", "x > 1", variables={"x": "float"}))
    assert found.counterexample == {"x": Fraction(1, 49)} and 1 / 49 * 49 != 1


class TestLoops:
    SUM = VerificationSpec("i == 0 and s == 0 and n >= 0", "2 * s == n * (n - 1)",
                           invariants=["2 * s == i * (i - 1)", "i <= n"],
                           step={"i": "i + 1", "s": "s + i"}, guard="i < n")  # fmt: skip

    def test_shown(self) -> None:
        found = check_spec(self.SUM)
        assert found.valid is True, found.notes
        assert list(found.parts) == [
            "initiation of invariant 1", "initiation of invariant 2", "preservation of invariant 1",
            "preservation of invariant 2", "postcondition"]  # fmt: skip
        assert all(found.parts.values())

    @pytest.mark.parametrize(
        ("change", "failed"),
        [({"precondition": "i == 0 and s == 1 and n >= 0"}, "initiation of invariant 1"),
         ({"precondition": "i == 0 and s == 0"}, "initiation of invariant 2"),
         ({"step": {"i": "i + 1", "s": "s + i + 1"}}, "preservation of invariant 1"),
         ({"guard": "i <= n"}, "preservation of invariant 2"),
         ({"postcondition": "2 * s == n * (n + 1)"}, "postcondition")],
    )  # fmt: skip
    def test_refuted(self, change: dict[str, object], failed: str) -> None:
        found = check_spec(VerificationSpec(**{**vars(self.SUM), **change}))
        assert found.valid is False and found.failed == failed and set(found.counterexample or ()) == {"i", "s", "n"}

    def test_new_values_are_taken_all_at_once(self) -> None:
        swap = VerificationSpec("a == 1 and b == 2", None, invariants=["a + b == 3", "a * b == 2"], step={"a": "b",
                                "b": "a"})
        assert check_spec(swap).valid is True

    def test_z3_expressions(self) -> None:
        i, n = z3.Ints("i n")
        spec = VerificationSpec(z3.And(i == 0, n >= 0), i == n, invariants=[i <= n], step={"i": i + 1}, guard=i < n)
        assert check_spec(spec).valid is True
        endless = VerificationSpec(i == 0, None, invariants=[i < 9], step={"i": i + 1})
        assert check_spec(endless).failed == "preservation of invariant 1"


def test_an_invariant_without_a_loop_follows_from_the_precondition() -> None:
    assert check_spec(VerificationSpec("x > 2", invariants=["x > 1"])).valid is True
    found = check_spec(VerificationSpec("x > 0", "x > 0", invariants=["x > 10"]))
    assert found.valid is False and found.failed == "initiation of invariant 1"
    assert check_spec(VerificationSpec("x > 0", "x > 10", assumptions=["x > 11"])).valid is True


def test_what_says_nothing_is_told() -> None:
    assert "can never hold" in check_spec(VerificationSpec("x > 0 and x < 0", "x == 7")).notes
    found = check_spec(VerificationSpec("x > 0"))
    assert found.valid is True and "nothing to check" in found.notes


def test_unknown_is_told_as_unknown() -> None:
    found = check_spec(VerificationSpec("a > 0 and b > 0 and c > 0", "a ** 7 + b ** 7 != c ** 7"), timeout_s=0.3)
    assert found.valid is None and found.counterexample is None and "does not know" in found.notes


@pytest.mark.parametrize("condition", ["x >", "__import__('os')", "x.y", "open('x') > 0", "f(x)", "lambda: x",
                                       "all(x > k for k in range(y))"])  # fmt: skip
def test_what_is_no_condition(condition: str) -> None:
    with pytest.raises(ValueError, match="condition"):
        check_spec(VerificationSpec("y > 0", condition))


def test_kinds() -> None:
    with pytest.raises(ValueError, match="kind of x"):
        check_spec(VerificationSpec("x > 0", "x > 1", variables={"x": "str"}))
    found = check_spec(VerificationSpec("x > 0", "x >= 0.5", variables={"x": "float"}))
    assert found.valid is False and found.counterexample is not None and 0 < found.counterexample["x"] < 0.5
