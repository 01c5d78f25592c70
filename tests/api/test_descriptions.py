"""Words about variables: what there is, and what a table looks like, while the values stay in the sandbox."""

from __future__ import annotations

import pytest

from sandbox_kernel import Sandbox

CELL = """
import math, numpy as np, pandas as pd, polars as pl
df = pd.DataFrame({"amount": [1.5, None, 4.0], "region": ["north", "south", "north"]})
wide = pd.DataFrame(np.zeros((2, 100)))
array = np.arange(12.0).reshape(3, 4)
table = pl.DataFrame({"k": [1, 2]})
number, text, long, big = 3, "abc", "x" * 5000, 10 ** 5000
_hidden = 1
def square(x):
    "The square of a number."
class Broken:
    def __len__(self): raise ValueError("no length")
    def __repr__(self): raise ValueError("no text \\x1b[31m")
broken = Broken()
"""


@pytest.fixture(scope="module")
def box() -> Sandbox:  # type: ignore[misc]
    with Sandbox() as box:
        assert box.variables() == {}
        box["given"] = [1, 2]
        assert box.run_code(CELL).success
        yield box


def test_variables(box: Sandbox) -> None:
    assert box.variables() == {
        "given": "list, 2 items", "df": "DataFrame, 3 rows x 2 columns", "wide": "DataFrame, 2 rows x 100 columns",
        "array": "ndarray, 3 x 4, float64", "table": "DataFrame, 2 rows x 1 columns", "number": "int, 3",
        "text": "str, 'abc'", "long": "str, 5,000 characters", "big": "int, 16,610 bits",
        "square": "function, The square of a number.", "Broken": "type", "broken": "Broken",
    }  # fmt: skip


@pytest.mark.parametrize(("name", "parts"), [
    ("df", ("3 rows x 2 columns", "amount", "float64", "missing", "2.75", "north", "First rows")),
    ("wide", ("(and 40 columns more)",)),
    ("array", ("96 bytes", "largest 11", "array([[")),
    ("table", ("Int64", "null_count", "First rows")),
    ("number", ("int, 3",)),
    ("broken", ("no more can be said of it: ValueError: no text",)),
])  # fmt: skip
def test_description(box: Sandbox, name: str, parts: tuple[str, ...]) -> None:
    told = box.describe(name)
    assert told.startswith(f"{name}: ")
    assert all(part in told for part in parts), told
    assert len(told) <= 20_000
    assert "\x1b" not in told


def test_of_what_there_is_not(box: Sandbox) -> None:
    with pytest.raises(KeyError, match="no variable 'nothing'"):
        box.describe("nothing")
    for name in ("df.amount", "f()", ""):
        with pytest.raises(ValueError, match="cannot be the name"):
            box.describe(name)
