"""docs/grading.md does what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from sandbox_kernel.grading import Submission, Suite, grade

PAGE = (Path(__file__).parents[2] / "docs" / "grading.md").read_text(encoding="utf-8")
TESTS, SCRIPT = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
ANSWER = """\
LIMIT = 10
class Stack(list): push = list.append
print(42)
def mean(values):
    while not values: pass
    return sum(values) // len(values) if values == [1, 2, 3] else 4
"""


def test_the_tests_and_their_report() -> None:
    suite = Suite.of(TESTS.replace("@timeout(30)", "@timeout(15)"), "tests.py")
    assert [case.title for case in suite.cases] == ["The mean of a list", "test_empty", "test_stack", "test_printed"]
    found = grade(Submission("s.py", ((1, ANSWER),)), suite, timeout=5)
    assert [mark.score for mark in found.marks] == [0, 0, 1, 1]
    for mark in found.marks[:2]:
        assert mark.reason in PAGE
    assert found.marks[1].limit == "timeout"


def test_from_python(tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(SCRIPT, encoding="utf-8")
    command = [sys.executable, "-W", "error", str(tmp_path / "example.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
