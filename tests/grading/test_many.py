"""Two hundred submissions in one run, 2 at a time: the right grade for each, and nothing is left.

SANDBOX_KERNEL_GRADE_ALL=1 takes all of them (some minutes); else it is every sixth, and few that wait for a limit.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .handed_in import OPTIONS, POLICY, TESTS, Handed, submissions

ALL = bool(os.environ.get("SANDBOX_KERNEL_GRADE_ALL"))
WATCHED = str(Path(__file__).with_name("watched.py"))
COMMAND = [sys.executable, "-c", "import sys; from sandbox_kernel.cli import main; sys.exit(main())", "grade"]


def watched(*arguments: str | Path, moment: str | Path = "-", seconds: float = 1500) -> dict[str, Any]:
    """Runs ``sandbox-kernel grade``; its exit status, output and what it has left."""
    command = [sys.executable, WATCHED, str(moment), *COMMAND, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def some(handed: list[Handed]) -> list[Handed]:
    """A selection of all kinds."""
    quick = [h for h in handed if not h.slow]
    slow = [h for h in handed if h.name in ("inside loops.ipynb", "before floods.ipynb")]
    return quick[::7] + slow


@pytest.mark.timeout(1600 if ALL else 180)
def test_every_submission_gets_its_grade(tmp_path: Path) -> None:
    tests = tmp_path / "tests.py"
    tests.write_text(TESTS)
    (tmp_path / "policy.toml").write_text(POLICY)
    (tmp_path / "in").mkdir()
    handed = submissions([str(tests)])
    assert len(handed) == 200
    handed = handed if ALL else some(handed)
    for one in handed:
        one.write(tmp_path / "in")
    done = watched(
        tmp_path / "in", "--tests", tests, "--policy", tmp_path / "policy.toml", "--output", tmp_path / "grades",
        "-j", "2", *OPTIONS,
    )  # fmt: skip
    log = (tmp_path / "grades" / "log.txt").read_text(errors="replace")
    assert done["status"] == 0, done["output"] + log
    assert done["left"] == []
    wrong = [told for one in handed if (told := _wrong(one, tmp_path / "grades"))]
    assert wrong == [], "\n".join(wrong) + log
    with (tmp_path / "grades" / "summary.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["submission"] for row in rows} == {one.name for one in handed}
    assert "sesame" not in json.dumps(rows)


def _wrong(one: Handed, grades: Path) -> str:
    """What is not as it should be; "" when nothing is."""
    grade = json.loads((grades / f"{one.name}.json").read_text())["grade"]
    reasons = [grade["reason"], *(part["reason"] for part in (*grade["cells"], *grade["marks"]))]
    said = " | ".join(filter(None, reasons))
    fine = grade["score"] == one.score and grade["verdict"] == one.verdict
    if fine and (not one.says or any(word in said for word in one.says)):
        return ""
    wanted = f"wanted {one.verdict} {one.score} {one.says}"
    return f"{one.name}: {grade['verdict']} {grade['score']}, {wanted}: {said[:600]}"
