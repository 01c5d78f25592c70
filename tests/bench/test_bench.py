"""The promises, how they are judged, and one short measurement. No figure of this machine is judged here."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sandbox_kernel.bench import PROMISES, Promise, judge
from sandbox_kernel.bench.measures import Measures
from sandbox_kernel.cli import main

ROOT = Path(__file__).resolve().parents[2]
MOST = Promise("a", "", 1.0)
LEAST = Promise("b", "", 0.5, at_least=True)


def test_the_page_and_the_table_promise_the_same() -> None:
    page = (ROOT / "SPECIFICATION.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \| .* \| at (most|least) ([\d.]+) (.*?) \|$", page, re.M)
    assert rows == [(p.name, "least" if p.at_least else "most", f"{p.limit:g}", p.unit) for p in PROMISES]


def test_every_promise_has_its_measurement(tmp_path: Path) -> None:
    measures = Measures(tmp_path, short=True)
    for promise in PROMISES:
        assert hasattr(measures, f"_{promise.name.replace('-', '_')}"), promise.name


@pytest.mark.parametrize(
    ("promise", "ratios", "kept"),
    [
        (MOST, [0.9, 1.0, 1.0], True),
        (MOST, [1.1, 1.1, 1.1], False),
        (MOST, [0.8, 1.1, 1.5], True),  # it may be the noise
        (MOST, [1.4, 1.5, 1.6], False),
        (LEAST, [0.6, 0.6, 0.6], True),
        (LEAST, [0.4, 0.4, 0.4], False),
        (LEAST, [0.3, 0.45, 0.8], True),
    ],
)
def test_a_promise_is_broken_by_more_than_the_noise(promise: Promise, ratios: list[float], kept: bool) -> None:
    verdict = judge(promise, [(10 * ratio, 10.0) for ratio in ratios])
    assert verdict.kept is kept
    assert verdict.value == pytest.approx(sorted(ratios)[1])
    assert verdict.low <= verdict.value <= verdict.high


def test_what_was_not_measured_has_no_value() -> None:
    verdict = judge(MOST, [])
    assert verdict.value is None and verdict.note


def test_a_short_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bench.json"
    assert main(["bench", "--short", "--inform", "--only", "unflushed", "replace", "--json", str(file)]) == 0
    told = json.loads(file.read_text(encoding="utf-8"))
    assert [p["promise"] for p in told["promises"]] == ["unflushed", "replace"]
    assert all(p["value"] > 0 and p["rounds"] >= 3 for p in told["promises"])
    assert "from the loss of a worker" in capsys.readouterr().out


def test_a_name_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--only", "sped"]) == 1
    assert "no promise 'sped'" in capsys.readouterr().err
