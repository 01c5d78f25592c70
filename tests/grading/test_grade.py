"""One submission: what tests can do with it, and what it cannot do to them."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from rich.console import Console

from sandbox_kernel.grading import Grade, Submission, Suite, Unusable, UnusableTests, grade, job
from sandbox_kernel.grading.grade import unusable
from sandbox_kernel.grading.results import OWN_ERROR
from sandbox_kernel.grading.submission import read_file
from sandbox_kernel.grading.table import doubtful

from .handed_in import notebook

IMPORTS = "from sandbox_kernel.grading import points, raises, timeout\n"
NO_RULES = {"isolation": {"require": "seccomp+landlock"}}


def suite(text: str, path: str = "/nowhere/tests.py") -> Suite:
    return Suite.of(IMPORTS + text, path)


def graded(*cells: str, tests: str, **options: object) -> Grade:
    submission = Submission.parse("s.ipynb", notebook(*cells))
    return grade(submission, suite(tests), NO_RULES, **options)  # type: ignore[arg-type]


class TestSuite:
    def test_order_points_titles_and_times(self) -> None:
        text = '@points(2)\n@timeout(7)\ndef test_b(student):\n    """Title\n\n    more"""\ndef test_a(): pass\nx = 1'
        found = [(c.name, c.title, c.points, c.timeout_s, c.wants) for c in suite(text).cases]
        assert found == [("test_b", "Title", 2.0, 7, ("student",)), ("test_a", "test_a", 1.0, None, ())]
        assert suite(text).max_score == 3

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("x = 1", "no test"),
            ("1 / 0", "ZeroDivisionError"),
            ("def test_x(:", "SyntaxError"),
            ("import sys; sys.exit()", "SystemExit"),
            ("def test_x(pupil): pass", "'pupil'"),
            ("async def test_x(student): assert False", "never run"),
            ("def test_x(student):\n    yield", "never run"),
            ("class TestX:\n    def test_x(self): assert False", "is a class"),
            ("class T:\n    def __call__(self): pass\ntest_x = T()", "not a plain function"),
            ("def test_x(student):\n    student.f(1) == 2", "this comparison has no assert"),
            ("@points(-1)\ndef test_x(): pass", "-1"),
            ("@timeout(0)\ndef test_x(): pass", "0"),
        ],
    )
    def test_a_file_whose_tests_would_never_fail_is_refused(self, text: str, words: str) -> None:
        with pytest.raises(UnusableTests, match=words):
            suite(text)

    def test_asserts_hold_whatever_the_optimisation(self, tmp_path: Path) -> None:
        code = "from sandbox_kernel.grading import Suite\n"
        code += "s = Suite.of('def test_x():\\n    assert 1 == 2', 't.py')\ns.cases[0].function()"
        done = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True, timeout=30)
        assert "AssertionError" in done.stderr

    def test_a_file_beside_the_tests_can_be_imported_and_read(self, tmp_path: Path) -> None:
        (tmp_path / "reference_answers.py").write_text("ANSWER = 42")
        (tmp_path / "hidden.txt").write_text("43")
        (tmp_path / "tests.py").write_text(
            "from pathlib import Path\nimport reference_answers\n"
            "HIDDEN = Path(__file__).with_name('hidden.txt').read_text()\n"
            "def test_x():\n    assert (reference_answers.ANSWER, HIDDEN) == (42, '43')\n"
        )
        Suite.load(tmp_path / "tests.py").cases[0].function()

    def test_there_must_be_a_file(self, tmp_path: Path) -> None:
        with pytest.raises(UnusableTests, match="cannot be read"):
            Suite.load(tmp_path / "none.py")


class TestSubmission:
    @pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
    def test_only_an_ordinary_file_is_read(self, tmp_path: Path, kind: str) -> None:
        path = tmp_path / "s.py"
        if kind == "link":
            path.symlink_to("/etc/hostname")
        elif kind == "folder":
            path.mkdir()
        else:
            os.mkfifo(path)
            assert stat.S_ISFIFO(path.stat().st_mode)
        with pytest.raises(Unusable):
            read_file(path)

    def test_a_mark_for_the_order_of_bytes_is_no_part_of_it(self) -> None:
        assert Submission.parse("s.py", b"\xef\xbb\xbfx = 1").cases if False else True
        assert Submission.parse("s.py", b"\xef\xbb\xbfx = 1").cells == ((1, "x = 1"),)


TESTS = '''
@points(2)
def test_call(student):
    assert student.double(2) == 4
    assert student.double([1]) == [1, 1], "lists are doubled, too"

def test_stack(student, sandbox):
    """A stack"""
    sandbox.run_code("s = Stack()")
    student.s.push(1)
    student.s.push(2)
    assert student.s.pop() == 2 and student["LIMIT"] == 3
    student["given"] = [1, 2]
    assert student.total() == 3

def test_printed(submission):
    assert "hello" in submission.stdout

def test_raises(student):
    with raises("ValueError"):
        student.refuse()

@points(0.5)
def test_pure(student):
    student.log("x")
    assert student.logged() == ["x"]

@points(0.5)
def test_fresh(student):
    student.log("y")
    assert student.logged() == ["y"]

def test_missing(student):
    """Something else"""
    assert student.nothing(1) == 2

def test_variable(student):
    assert student["nowhere"] == 2

def test_name(student):
    assert student.LIMIT == 3

def test_wrong(student):
    assert (
        student.double(3)
        == 7
    )

def test_returns(student):
    return student.double(2) == 5

def test_breaks(student):
    len(student.double(1))

def test_denied(student):
    student.connect()

def test_typo(student):
    assert student.double(2) == forty_two

@points(3)
def test_before(student):
    expected = {}["none"]
    assert student.double(2) == expected

def test_argument(student):
    assert student.double(lambda x: x) == 2

def test_derived(student):
    with raises("KeyError", ArithmeticError):
        student.divide()
    with raises("Unhappy"):
        student.own()
    with raises("LookupError"):
        student.divide()

def test_no_kind(student):
    with raises():
        student.divide()

def test_exits():
    raise SystemExit(0)
'''
ANSWER = """\
import socket
LIMIT, _log = 3, []
def double(x): return x * 2
class Stack:
    def __init__(self): self.items = []
    def push(self, x): self.items.append(x)
    def pop(self): return self.items.pop()
def total(): return sum(given)
def refuse(): raise ValueError("no")
def divide(): return 1 / 0
class Unhappy(ValueError): pass
class Unhappier(Unhappy): pass
def own(): raise Unhappier("so")
def log(x): _log.append(x)
def logged(): return _log
def connect(): socket.create_connection(("127.0.0.1", 9), 1)
"""


@pytest.fixture(scope="module")
def answer() -> Grade:
    return graded("print('hello')", ANSWER, "x = 1\n1 / 0", tests=TESTS)


class TestGrade:
    def test_points(self, answer: Grade) -> None:
        scores = {mark.name: mark.score for mark in answer.marks if mark.score}
        assert scores == {"test_call": 2, "test_stack": 1, "test_printed": 1, "test_raises": 1, "test_pure": 0.5,
                          "test_fresh": 0.5}  # fmt: skip
        # (What only the tests are to blame for counts for nobody.)
        assert (answer.verdict, answer.score, answer.max_score) == ("error", 6.0, 12.0)
        assert answer.level in ("full", "seccomp+landlock")

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("test_missing", "the submission has no nothing"),
            ("test_variable", "the submission has no variable 'nowhere'"),
            ("test_wrong", "assert ( student.double(3) == 7 ) (double(3) returned 6)"),
            ("test_breaks", "TypeError: object of type 'int' has no len() (double(1) returned 2)"),
            ("test_denied", "connect() raised"),
            ("test_derived", "it should have raised LookupError, and raised ZeroDivisionError"),
        ],
    )
    def test_reasons(self, answer: Grade, name: str, words: str) -> None:
        (mark,) = (mark for mark in answer.marks if mark.name == name)
        assert mark.status == "failed"
        assert words in mark.reason

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("test_name", "student.LIMIT is a name and no value"), ("test_returns", "none is looked at"),
            ("test_exits", "SystemExit"), ("test_typo", "NameError: name 'forty_two' is not defined"),
            ("test_before", "KeyError: 'none'"), ("test_argument", "function"), ("test_no_kind", "raises() needs"),
        ],
    )  # fmt: skip
    def test_an_error_of_the_test_itself_costs_nobody_a_point(self, answer: Grade, name: str, words: str) -> None:
        (mark,) = (mark for mark in answer.marks if mark.name == name)
        assert (mark.status, mark.score) == ("test error", 0)
        assert words in mark.reason and name in answer.reason
        assert not any(mark.title in line for line in answer.failures()[1:])

    def test_the_teacher_is_told_which_tests_to_look_at(self, answer: Grade) -> None:
        told = doubtful([answer, answer])
        assert any(line.startswith("test_typo has an error of its own") and "2 of 2" in line for line in told)
        assert any(line.startswith("test_breaks ends for all 2 submissions") and "TypeError" in line for line in told)
        assert len(told) == 8 and not any("test_wrong" in line for line in told)

    def test_what_was_refused_is_told_with_the_test(self, answer: Grade) -> None:
        told = {mark.name: mark.denials for mark in answer.marks if mark.denials}
        assert list(told) == ["test_denied"]
        assert "network" in told["test_denied"].lower()

    def test_cells(self, answer: Grade) -> None:
        found = [(cell.number, cell.status, cell.error, cell.line) for cell in answer.cells]
        assert found == [(2, "ok", "", 0), (4, "ok", "", 0), (6, "failed", "ZeroDivisionError", 2)]

    def test_json_and_back(self, answer: Grade) -> None:
        assert Grade.from_json(answer.to_json()) == answer

    def test_table(self, answer: Grade) -> None:
        console = Console(width=200, record=True, file=io.StringIO())
        console.print(answer.table())
        shown = console.export_text()
        for words in ("6 of 12 points, error", "A stack", "not counted", "0.5 of 0.5", "has no nothing", "by zero"):
            assert words in shown


CHANGES = """
def test_a(student):
    assert student.add(1) == [1]
def test_b(student):
    assert student.add(2) == [2]
def test_c(student):
    assert student.add(3) == [3]
"""
ADDS = "import os\nheld = []\ndef add(x):\n    held.append(x)\n    return held\n"


class TestState:
    def test_each_test_has_a_copy_and_cells_run_once(self) -> None:
        tests = f"{CHANGES}\ndef test_once(student): assert student.runs() == 1"
        count = "with open('runs', 'a') as file: file.write('x')\ndef runs(): return len(open('runs').read())"
        assert graded(ADDS, count, tests=tests).verdict == "passed"

    def test_what_cannot_be_copied_is_run_anew(self) -> None:
        thread = "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()"
        found = graded(ADDS, thread, "while True: pass", tests=CHANGES, loading=3)
        assert found.verdict == "passed", found.failures()
        assert [cell.limit for cell in found.cells] == ["", "", "loading"]

    def test_a_test_that_ends_the_session_itself_costs_only_itself(self) -> None:
        kills = "pid = os.getpid()\ndef kill():\n    os.kill(pid, 9)\n    import time; time.sleep(1)\n    return 1"
        found = graded(ADDS, kills, tests=f"def test_kill(student): assert student.kill() == 1\n{CHANGES}")
        assert [mark.score for mark in found.marks][1:] == [1, 1, 1], found.failures()


class TestLimits:
    def test_cells_that_take_too_long_and_tests_that_do(self) -> None:
        tests = (
            "@timeout(0.5)\ndef test_loop(student): student.loop()\n"
            "def test_ok(student): assert student.fine() == 1\n"
            "def test_own():\n    while True: pass\n"
        )
        loop = "def loop():\n    while True: pass\ndef fine(): return 1"
        before, job._SLACK_S = job._SLACK_S, 0.5
        try:
            found = graded(loop, "while True: pass", "x = 1", tests=tests, loading=3, timeout=5, guard=_quick)
        finally:
            job._SLACK_S = before
        cells = [(cell.status, cell.limit) for cell in found.cells]
        assert cells == [("ok", ""), ("failed", "loading"), ("not run", "loading")]
        assert [(mark.name, mark.score, mark.limit) for mark in found.marks] == [
            ("test_loop", 0, "timeout"), ("test_ok", 1, ""), ("test_own", 0, "timeout"),
        ]  # fmt: skip
        assert found.marks[0].reason == "loop() was not answered: the time of the test was over"

    def test_files_that_a_submission_finds(self) -> None:
        tests = "def test_x(student): assert student.read() == 'a,b'"
        found = graded("def read(): return open('data/d.csv').read()", tests=tests, files={"data/d.csv": "a,b"})
        assert found.verdict == "passed"

    def test_the_tests_are_nowhere_in_the_sandbox(self, tmp_path: Path) -> None:
        (tmp_path / "tests.py").write_text("KEY = 'hush'\ndef test_x(student): assert student.find() == []")
        (tmp_path / "s.py").write_text(
            "import glob, gc\ndef find():\n"
            f"    found = [n for n in ({str(tmp_path / 'tests.py')!r}, {str(tmp_path / 's.py')!r}) if glob.glob(n)]\n"
            "    return found + [1 for d in gc.get_objects() if type(d) is dict and d.get('KEY') == 'hu' + 'sh']\n"
        )
        found = grade(tmp_path / "s.py", tmp_path / "tests.py", NO_RULES)
        assert found.verdict == "passed", found.failures()

    def test_tests_that_the_policy_shows_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "tests.py").write_text("def test_x(student): assert student.x() == 1")
        shown = {**NO_RULES, "files": {"read": [str(tmp_path)]}}
        with pytest.raises(UnusableTests, match="can be read in the sandbox"):
            grade(Submission("s.py", ()), tmp_path / "tests.py", shown)

    def test_unusable(self, tmp_path: Path) -> None:
        (tmp_path / "s.ipynb").write_text("{")
        found = grade(tmp_path / "s.ipynb", suite("def test_x(): pass"))
        assert (found.verdict, found.score, found.max_score) == ("unusable", 0, 1)
        assert found.failures() == [found.reason]

    def test_rules_for_code_are_told(self) -> None:
        submission = Submission.parse("s.py", b"import subprocess")
        found = grade(submission, suite("def test_x(student): assert student.x() == 1"), "classroom")
        assert "subprocess" in found.cells[0].reason

    def test_no_sandbox_is_an_error_and_no_grade(self) -> None:
        assert unusable("s", suite("def test_x(): pass"), "no level", "error").verdict == "error"


def _quick(seconds: float) -> AbstractContextManager[None]:
    return job.alarm(min(seconds, 1.0))


def test_a_test_that_asks_the_submission_for_a_function_is_told_of_student_and_costs_nobody_a_point() -> None:
    tests = "def test_mean(submission):\n    assert submission.mean([1, 2]) == 1.5"
    (mark,) = graded("def mean(values):\n    return sum(values) / len(values)", tests=tests).marks
    assert mark.status == OWN_ERROR
    assert "student.mean" in mark.reason
