"""`sandbox-kernel grade`: files in, files out, again and again."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from sandbox_kernel.cli import main
from sandbox_kernel.cli.grade import Plan, _cell, _write_summary
from sandbox_kernel.grading import Grade, Mark, Suite
from sandbox_kernel.grading.results import OWN_ERROR
from sandbox_kernel.grading.table import overview

from .test_many import watched

TESTS = "def test_double(student):\n    assert student.double(4) == 8\n"
RIGHT, WRONG = "def double(x): return 2 * x\n", "def double(x): return x\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tests.py").write_text(TESTS)
    Path("in/ada").mkdir(parents=True)
    Path("in/ada/x.py").write_text(RIGHT)
    Path("in/=bob.py").write_text(WRONG)


def grade(*arguments: str) -> int:
    return main(["grade", "in", "--tests", "tests.py", "-j", "2", *arguments])


def verdicts() -> dict[str, str]:
    with Path("grades/summary.csv").open() as file:
        return {row["submission"]: row["verdict"] for row in csv.DictReader(file)}


@pytest.mark.timeout(120)
def test_a_second_run_does_what_has_changed(capsys: pytest.CaptureFixture[str]) -> None:
    Path("in/.ipynb_checkpoints").mkdir()
    Path("in/.ipynb_checkpoints/x.ipynb").write_text("{}")
    Path("in/eve.py").symlink_to("/etc/hostname")
    assert grade() == 0
    wanted = {"'=bob.py": "failed", "ada/x.py": "passed", "eve.py": "unusable"}
    assert verdicts() == wanted
    text = capsys.readouterr()
    assert "double(4) returned 4" in " ".join(text.out.split()) and "have their grade" not in text.err

    first = Path("grades/ada/x.py.json").stat().st_mtime_ns
    Path("in/=bob.py").write_text(RIGHT)
    Path("grades/broken.json").write_text("{")
    assert grade() == 0
    assert verdicts() == {**wanted, "'=bob.py": "passed"}
    assert Path("grades/ada/x.py.json").stat().st_mtime_ns == first
    assert "1 of 3 have their grade already" in capsys.readouterr().err

    # Tests' code is never where a submission can see it, so the same tests with another text are other tests.
    Path("tests.py").write_text(TESTS.replace("== 8", "== 9"))
    Path("grades/ada/x.py.json").write_text("{")  # nor is a file that was cut believed
    assert grade() == 0
    assert verdicts() == {**wanted, "'=bob.py": "failed", "ada/x.py": "failed"}
    assert [path for path in Path("grades").rglob("*.partial")] == []


def test_one_submission_is_shown_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    Path("data.csv").write_text("7")
    Path("one.py").write_text("def double(x): return open('data.csv').read()\n")
    assert main(["grade", "one.py", "--tests", "tests.py", "--file", "data.csv"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "0 of 1 points, failed" in shown and "double(4) returned '7'" in shown
    assert json.loads(Path("grades/one.py.json").read_text())["grade"]["max_score"] == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["in", "--tests", "none.py"], "cannot be read"),
        (["in", "--tests", "in/ada/x.py"], "no test"),
        (["in", "--tests", "tests.py", "--policy", "clasroom"], "Did you mean 'classroom'?"),
        (["in", "--tests", "tests.py", "--policy", "./none.toml"], "none.toml"),
        (["in", "--tests", "tests.py", "--file", "none.csv"], "none.csv"),
        (["tests.py", "--tests", "tests.py"], "no .ipynb or .py file"),
        (["in/none.py", "--tests", "tests.py"], "There is no in/none.py"),
        (["in", "--tests", "tests.py", "--policy", "bad.toml"], "bad.toml: limits.memroy"),
    ],
)
def test_wrong_usage(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.toml").write_text('[limits]\nmemroy = "1GiB"\n')
    assert main(["grade", *arguments]) == 2
    assert words in capsys.readouterr().err
    assert not Path("grades").exists()


@pytest.mark.timeout(120)
def test_what_cannot_be_graded_is_an_error_and_tried_again(capsys: pytest.CaptureFixture[str]) -> None:
    Path("in/=bob.py").unlink()
    code = "import os, sys\nif 'sandbox_kernel.jobs.child' in sys.modules['__main__'].__spec__.name: os._exit(3)\n"
    Path("tests.py").write_text(f"{code}{TESTS}")
    assert grade() == 1
    assert verdicts() == {"ada/x.py": "error"}
    capsys.readouterr()
    assert grade() == 1
    assert "have their grade" not in capsys.readouterr().err


@pytest.mark.timeout(120)
def test_ctrl_c_leaves_no_process_and_keeps_what_is_done(tmp_path: Path) -> None:
    Path("in/slow.py").write_text("import time\ntime.sleep(1000)\n")
    Path("in/=bob.py").unlink()
    moment = tmp_path / "grades" / "ada" / "x.py.json"
    done = watched("in", "--tests", "tests.py", "-j", "2", moment=moment, seconds=100)
    assert (done["status"], done["left"]) == (130, []), done["output"]
    assert done["output"].endswith("sandbox-kernel: interrupted\n")
    assert verdicts() == {"ada/x.py": "passed"}


def test_names_that_students_choose_keep_no_grade_from_being_written() -> None:
    right = Path("in/ada/x.py").read_text()
    for name in ("bob/hw.py", "bob/hw.py.json/y.py", f"bob/{'n' * 250}.py", "summary.csv/z.py", "log.txt/z.py"):
        file = Path("in") / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(right)
    assert grade("--again") == 0
    rows = list(csv.DictReader(Path("grades/summary.csv").read_text().splitlines()))
    assert len(rows) == 7 and {row["verdict"] for row in rows} <= {"passed", "failed"}
    assert len(list(Path("grades/by-digest").iterdir())) == 4


def test_a_reason_in_the_overview_ends_with_a_word_and_says_what_was_refused() -> None:
    denials = "Network access is blocked. " + "and so on " * 40
    refused = Mark("test_a", "Sums", reason="raised URLError", denials=denials)
    table = overview([Grade("a.py", "failed", 0, 1, marks=[refused]), Grade("b.py", "passed", 1, 1)])
    first, _ = table.columns[3].cells
    assert str(first).startswith("Sums: raised URLError Network access is blocked.")
    assert str(first).endswith(("and ...", "so ...", "on ...")) and len(str(first)) < 300


def test_a_test_with_an_error_of_its_own_has_no_points_in_the_table() -> None:
    suite = Suite.of("def test_a(student):\n    pass\ndef test_b(student):\n    pass\n", "t.py")
    plan = Plan(suite, "classroom", 1.0, 1.0, {}, Path("grades"), paths={"x.py": Path("x.py")})
    marks = [Mark("test_a", "A", score=1.0, status="passed"), Mark("test_b", "B", status=OWN_ERROR, reason="line 4")]
    plan.grades["x.py"] = Grade("x.py", "error", 1.0, 1.0, "test_b: line 4", marks=marks)
    _write_summary(plan)
    (row,) = csv.DictReader(Path("grades/summary.csv").read_text().splitlines())
    assert (row["score"], row["max_score"], row["test_a"], row["test_b"]) == ("1", "1", "1", "")


def test_no_text_is_a_formula() -> None:
    for text in ("=1+1", "+1", "-1", "@x", "\t=1", "\r=1"):
        assert _cell(text)[0] in "' "
    assert _cell("x=1") == "x=1"
    # Read with semicolons between the cells, as spreadsheets of many countries do.
    for text in ("x;=1+1.py", 'x; "=1+1', "x\n=1+1", "x;\uff1d1", " =1", '"@x'):
        file = io.StringIO()
        csv.writer(file).writerow([_cell(text), "2.5"])
        cells = [cell for row in csv.reader(file.getvalue().splitlines(), delimiter=";") for cell in row]
        assert not any(cell.strip(' "')[:1] in "=@\uff1d" for cell in cells if cell), cells
    assert _cell("f(1, -2) gave -1; then 3") == "f(1, -2) gave -1; then 3"
