"""One format for every pandas, numpy and Python: what others wrote is read here.

The files in ``data`` were written by `python -m tests.frames.test_versions FILE` under pandas 2.2 (numpy 1.26,
Python 3.11, no pyarrow) and pandas 3.1 (numpy 2.4, with pyarrow).
"""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import zoneinfo
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sandbox_kernel import frames

DATA = Path(__file__).parent / "data"
ROOT = Path(__file__).parents[2]


def everything() -> dict[str, pd.DataFrame]:
    rows = 4
    when = pd.date_range("2021-10-30", periods=rows, freq="D")
    return {
        "numbers": pd.DataFrame(np.arange(12.0).reshape(4, 3), columns=["x", "y", "z"]),
        "mixed": pd.DataFrame({
            "i": np.arange(rows), "f": np.arange(rows, dtype="f4"), "b": [True, False] * 2,
            "t": when, "z": when.tz_localize(zoneinfo.ZoneInfo("Europe/Paris")),
            "d": pd.to_timedelta(np.arange(rows), "s"),
            "s": ["a", "é", None, ""], "o": pd.Series([1, "x", None, Decimal("1.5")], dtype=object),
            "c": pd.Categorical(["u", "v", None, "u"]), "n": pd.array([1, None, 3, 4], "Int64"),
            "g": pd.array(["q", None, "", "q"], "string"), "p": pd.period_range("2020-01", periods=rows, freq="M"),
            "v": pd.interval_range(0, rows), "e": pd.arrays.SparseArray([0, 0, 1, 2]),
            "l": pd.Series([[1], {"k": (2,)}, dt.date(2020, 1, 1), dt.datetime(2020, 1, 1)], dtype=object),
        }, index=when),
        "labels": pd.DataFrame({("a", 1): [1, 2], ("b", 2): ["x", "y"]},
                               index=pd.MultiIndex.from_arrays([["u", None], [1, 2]], names=["m", None])),
    }  # fmt: skip


def plain(values: Any) -> list[Any]:
    """Values without what differs between versions: units of time, the kind of a string's absence."""
    return [None if value is None or value is pd.NA or value is pd.NaT or value != value else
            value.isoformat() if isinstance(value,
            pd.Timestamp) else value for value in values.astype(object)]  # fmt: skip


@pytest.mark.parametrize("path", sorted(DATA.glob("*.frame")), ids=lambda path: path.stem)
def test_what_another_version_wrote_is_read(path: Path) -> None:
    them = frames.load_file(path)
    us = everything()
    assert list(them) == list(us)
    for name, expected in us.items():
        found = them[name]
        assert found.shape == expected.shape
        for place in range(expected.shape[1]):
            assert plain(found.iloc[:, place]) == plain(expected.iloc[:, place]), (name, expected.columns[place])
        assert plain(found.index.to_frame().iloc[:, 0]) == plain(expected.index.to_frame().iloc[:, 0])
        assert list(found.columns) == list(expected.columns)
        assert getattr(found.index, "freq", None) == getattr(expected.index, "freq", None)


WITHOUT = """
import sys
sys.modules["numpy"] = sys.modules["pandas"] = None  # as if they were not installed
from sandbox_kernel import frames
value = {"a": [1, 2.5, None, "x", b"y"], "l": list(range(2000)), "r": [{"k": n} for n in range(99)], "s": {1, 2}}
assert frames.loads(*frames.dumps(value)) == value
try:
    frames.load_file(sys.argv[1])
except frames.FrameRefused as refusal:
    print(refusal)
"""


def test_plain_values_need_neither_numpy_nor_pandas() -> None:
    path = min(DATA.glob("*.frame"))
    done = subprocess.run([sys.executable, "-c", WITHOUT, path], cwd=ROOT, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    assert "needs a package that is not installed here" in done.stdout


def test_neither_is_imported_before_a_frame_needs_it() -> None:
    code = "import sys; from sandbox_kernel.frames import dumps; dumps([1]); print({"
    code += "*sys.modules} & {'numpy', 'pandas'})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=50)
    assert done.stdout.strip() == "set()", done.stderr


if __name__ == "__main__":
    frames.dump_file(everything(), sys.argv[1])
