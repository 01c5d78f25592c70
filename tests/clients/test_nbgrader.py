"""A course: an assignment is made, three students hand in, and nbgrader grades what they did."""

from __future__ import annotations

import csv
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from . import report
from .conftest import Client, kernel_command

SOLUTION = "def double(x):\n    ### BEGIN SOLUTION\n    return 2 * x\n    ### END SOLUTION"
TESTS = "assert double(2) == 4\n### BEGIN HIDDEN TESTS\nassert double('ab') == 'abab'\n### END HIDDEN TESTS"
RIGHT = "def double(x):\n    return x + x"
WRONG = "def double(x):\n    return x ** 2"
# What the other two would do if they could: read the teacher's solution, and write the own score.
CHEAT = """\
import json, pathlib, sqlite3
course = pathlib.Path(".").resolve().parents[2]
try:
    text = (course / "source" / "sheet" / "problem.ipynb").read_text()
    exec("".join(json.loads(text)["cells"][0]["source"]))
except OSError:
    print("no solution to be had")
try:
    book = sqlite3.connect(course / "gradebook.db")
    book.execute("update grade set manual_score = 100")
    book.commit()
except sqlite3.Error:
    print("no gradebook to be had")"""


def _mark(grade_id: str, **more: object) -> dict[str, object]:
    fields = {"schema_version": 3, "grade_id": grade_id, "grade": False, "solution": False, "locked": False}
    return {"nbgrader": {**fields, "task": False, **more}}


def _hand_in(course: Path, student: str, answer: str) -> None:
    notebook = nbformat.read(course / "release" / "sheet" / "problem.ipynb", as_version=4)
    notebook.cells[0].source = answer
    folder = course / "submitted" / student / "sheet"
    folder.mkdir(parents=True)
    nbformat.write(notebook, folder / "problem.ipynb")


@pytest.mark.timeout(300, func_only=True)
def test_autograde(servers: Client) -> None:
    course = servers.folder
    notebook = new_notebook(
        cells=[
            new_code_cell(SOLUTION, metadata=_mark("double", solution=True)),
            new_code_cell(TESTS, metadata=_mark("test_double", grade=True, locked=True, points=4)),
        ],
        metadata={"kernelspec": report.KERNELSPEC},
    )
    (course / "source" / "sheet").mkdir(parents=True)
    nbformat.write(notebook, course / "source" / "sheet" / "problem.ipynb")
    servers.run("nbgrader", "generate_assignment", "sheet", "--create")
    released = (course / "release" / "sheet" / "problem.ipynb").read_text()
    assert "2 * x" not in released
    assert "abab" not in released
    for student, answer in (("ada", RIGHT), ("bob", WRONG), ("eve", CHEAT)):
        _hand_in(course, student, answer)
    servers.run("nbgrader", "autograde", "sheet", "--create")
    servers.run("nbgrader", "export", "--to=grades.csv")
    with (course / "grades.csv").open() as file:
        grades = {row["student_id"]: (float(row["score"]), float(row["max_score"])) for row in csv.DictReader(file)}
    assert grades == {"ada": (4, 4), "bob": (0, 4), "eve": (0, 4)}
    graded = nbformat.read(course / "autograded" / "eve" / "sheet" / "problem.ipynb", as_version=4)
    told = "".join(out.text for out in graded.cells[0].outputs if out.get("name") == "stdout")
    assert told == "no solution to be had\nno gradebook to be had\n"
    assert "NameError" in "".join(out.get("ename", "") for out in graded.cells[1].outputs)
    feedback = servers.run("nbgrader", "generate_feedback", "sheet")
    assert "ERROR" not in feedback
    page = (course / "feedback" / "bob" / "sheet" / "problem.html").read_text()
    assert "TypeError" in page

    # The same course by tests that no submission shares an interpreter with.
    tests = course.parent / "tests.py"
    tests.write_text("def test_double(student):\n    assert student.double('ab') == 'abab'\n")
    kernel_command("grade", str(course / "submitted"), "--tests", str(tests), "--output", str(course / "points"))
    with (course / "points" / "summary.csv").open() as file:
        scores = {row["submission"]: row["test_double"] for row in csv.DictReader(file)}
    assert scores == {f"{who}/sheet/problem.ipynb": score for who, score in (("ada", "1"), ("bob", "0"), ("eve", "0"))}
