"""`sandbox-kernel grade`: what submissions are worth, by tests that they cannot see."""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..errors import PolicyError
from ..policy import Policy
from ..policy_layers import is_path, read_toml
from .packages import at_least_one, extras, on_cluster, positive
from .stop import Usage

if TYPE_CHECKING:
    from ..grading import Grade, Suite
    from ..jobs.local import Job, Told

DESCRIPTION = """\
Runs notebooks and Python files that were handed in, each in a sandbox of its own, and gives points by tests that run
outside of it: what the tests know and expect is never where a submission could read or change it. A submission that
loops, crashes, floods or tampers costs its own points and nothing else.
"""

EXAMPLES = """\
tests.py is Python that you trust. Its functions named test_... are the tests:

  from sandbox_kernel.grading import points, raises, timeout

  @points(2)
  def test_mean(student):
      \"\"\"The mean of a list\"\"\"                    # the title in the reports
      assert student.mean([1, 2, 3]) == 2        # calls the submission's function, with a time limit

DIR has NAME.json for each submission and summary.csv for all. A second run does only what has changed since: the
submission, the tests' file, the policy or the options. (What the tests read besides is not looked at: --again.)

exit status: 0 every submission has its grade, 1 some could not be graded, 2 wrong usage, 130 interrupted

examples:
  sandbox-kernel grade homework.ipynb --tests tests.py              one, in full
  sandbox-kernel grade handed-in/ --tests tests.py -j 4             all below a folder, 4 at a time
  sandbox-kernel grade handed-in/ --tests tests.py --file data.csv --timeout 30 --policy ./course.toml
  sandbox-kernel grade handed-in/ --tests tests.py --scheduler tcp://10.0.0.5:8786   on a Dask cluster
"""

# Where a spreadsheet sees a formula begin: also after a semicolon or a line's end, since in many countries it expects
# semicolons in place of the commas, and then takes our quotes inside a line for text.
_FORMULA = re.compile("(^|[;\n])([\\s\"]*)(?=[=+\\-@\uff1d\uff0b\uff0d\uff20])")
_SKIPPED = {"__pycache__", "node_modules"}


@dataclass
class Plan:
    """What is to be graded, and how."""

    suite: Suite
    policy: str | dict[str, Any]
    timeout: float
    loading: float
    files: dict[str, bytes]
    output: Path
    paths: dict[str, Path] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    grades: dict[str, Grade] = field(default_factory=dict)

    def result(self, name: str) -> Path:
        """The file with a grade.

        Students choose the names: a folder ``hw.py.json`` beside ``hw.py``, one named as the table is, or a name that
        leaves no room for a suffix must not keep anybody's grade from being written.
        """
        from .records import key_of

        *folders, last = name.split("/")
        if any(part.endswith((".json", ".csv", ".txt")) for part in folders) or len(os.fsencode(last)) > 200:
            return self.output / "by-digest" / f"{key_of(name)}.json"
        return self.output / f"{name}.json"


def add_command(commands: Any) -> None:
    """Add the command to argparse's collection of subparsers."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "grade", help="grade submissions in the sandbox by tests that stay outside",
        description=DESCRIPTION, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("submissions", metavar="SUBMISSION", nargs="+", type=Path, help="an .ipynb or .py file, or a "
                        "folder with such files at any depth")  # fmt: skip
    parser.add_argument("--tests", metavar="FILE", type=Path, required=True, help="the Python file with the tests")
    parser.add_argument("--policy", metavar="P", default="classroom", help="a preset or the path of a policy "
                        "(default: %(default)s)")  # fmt: skip
    parser.add_argument("--output", metavar="DIR", type=Path, default=Path("grades"), help="folder for the results "
                        "(default: %(default)s)")  # fmt: skip
    parser.add_argument("-j", "--jobs", metavar="N", type=at_least_one, help="how many at a time (default: the number "
                        "of processors, at most 4)")  # fmt: skip
    parser.add_argument("--timeout", metavar="S", type=positive, default=10.0, help="seconds for a test that does not "
                        "say, all its calls together (default: %(default)g)")  # fmt: skip
    parser.add_argument("--loading", metavar="S", type=positive, default=120.0, help="seconds for all cells of a "
                        "submission together; each has the policy's limits, too (default: %(default)g)")  # fmt: skip
    parser.add_argument("--file", metavar="FILE", dest="files", action="append", type=Path, default=[], help="a file "
                        "that submissions find in their folder, such as a data set; may be repeated")  # fmt: skip
    parser.add_argument("--again", action="store_true", help="grade those, too, that have their grade already")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="of a dask.distributed cluster whose workers have this "
                        "package: let it do the work")  # fmt: skip
    parser.set_defaults(command=run)


def run(args: argparse.Namespace) -> int:
    """Carry out the command: 0 when every submission has its grade, 1 when some could not be graded.

    Raises:
        Usage: the tests, the policy or the submissions cannot be used.
        Stop: a package is missing, or results cannot be written.
    """
    with extras("grade"):
        from rich.console import Console

        from ..grading.table import doubtful, overview
        from .progress import Work, width

        plan = _plan(args)
        waiting, kept = _waiting(plan, again=args.again)
        try:
            with Work("submissions", len(plan.paths), len(plan.paths) - len(waiting)) as work:
                if kept:
                    work.say(f"{kept} of {len(plan.paths)} have their grade already")
                _grade(plan, waiting, args, work)
        finally:
            _write_summary(plan)
        console = Console(highlight=False, width=width())
        grades = [plan.grades[name] for name in plan.paths]
        console.print(grades[0].table() if len(grades) == 1 else overview(grades))
        for line in doubtful(grades):
            console.print(f"\n{line}", style="bold magenta", soft_wrap=True, markup=False)
        each = "its grade" if len(grades) == 1 else f"{len(grades)} grades"
        console.print(f"\nwrote {plan.output / 'summary.csv'}, and {each} beside it, as NAME.json", soft_wrap=True,
                      markup=False)  # fmt: skip
        return int(any(grade.verdict == "error" for grade in grades))


def _plan(args: argparse.Namespace) -> Plan:
    from ..grading import Suite, UnusableTests
    from .records import key_of

    try:
        suite = Suite.load(args.tests)
        named = policy = args.policy
        if is_path(named):
            named = str(Path(named).expanduser())
            policy = read_toml(named)
        # (The tables and not the path: a worker of a cluster may have no such file.)
        values = Policy.resolve(os.environ, overrides=[named]).policy.values()
        files = {path.name: path.read_bytes() for path in args.files}
    except UnusableTests as error:
        raise Usage(str(error)) from error
    except PolicyError as error:
        raise Usage(error.explain()) from error
    except OSError as error:
        raise Usage(f"{error.filename} cannot be read: {error.strerror}.") from error
    plan = Plan(suite, policy, args.timeout, args.loading, files, args.output)
    plan.paths = _found(args.submissions, args.tests)
    common = key_of(__version__, suite.source, json.dumps(values, sort_keys=True, default=str), str(args.timeout),
                    str(args.loading), [part for item in sorted(files.items()) for part in item])  # fmt: skip
    plan.keys = dict.fromkeys(plan.paths, common)
    return plan


def _found(asked: Sequence[Path], tests: Path) -> dict[str, Path]:
    """The submissions by name: their path from the folder that all of them lie in."""
    from ..grading.submission import SUFFIXES

    paths: list[Path] = []
    for path in asked:
        if path.is_dir():
            for folder, folders, names in os.walk(path):
                folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in _SKIPPED)
                paths += [Path(folder, n) for n in sorted(names) if n.endswith(SUFFIXES) and not n.startswith(".")]
        elif path.name.endswith(SUFFIXES) and (path.exists() or path.is_symlink()):
            paths.append(path)
        else:
            there = path.exists() or path.is_symlink()
            raise Usage(f"{path} is no .ipynb or .py file, and no folder." if there else f"There is no {path}.")
    paths = [path for path in paths if not (path.exists() and path.samefile(tests))]
    if not paths:
        raise Usage("There is no .ipynb or .py file in what is to be graded.")
    roots = {str(path.absolute() if path.is_dir() else path.absolute().parent) for path in asked}
    root = os.path.commonpath(roots)
    return {os.path.relpath(path.absolute(), root): path for path in paths}


def _waiting(plan: Plan, *, again: bool) -> tuple[list[str], int]:
    """The names of those that must be run, and how many have their grade from an earlier run.

    What can be said without running them is said.
    """
    from ..grading import Unusable
    from ..grading.grade import unusable
    from ..grading.submission import read_file
    from .records import key_of

    waiting, already = [], 0
    for name, path in plan.paths.items():
        try:
            plan.keys[name] = key_of(plan.keys[name], name, read_file(path))
        except Unusable as error:
            _keep(plan, unusable(name, plan.suite, str(error)))
            continue
        except OSError as error:
            _keep(plan, unusable(name, plan.suite, f"{path} cannot be read: {error.strerror}", "error"))
            continue
        kept = None if again else _kept(plan, name)
        if kept is None:
            waiting.append(name)
        else:
            plan.grades[name] = kept
            already += 1
    return waiting, already


def _kept(plan: Plan, name: str) -> Grade | None:
    from ..grading import Grade

    try:
        said = json.loads(plan.result(name).read_text(encoding="utf-8"))
        grade = Grade.from_dict(said["grade"])
        return grade if said["key"] == plan.keys[name] and grade.verdict != "error" else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _grade(plan: Plan, names: Sequence[str], args: argparse.Namespace, work: Any) -> None:
    from ..grading import Grade
    from ..grading.grade import unusable
    from ..grading.table import number
    from ..jobs.process import JobFailed

    for kind, name, what in _told(plan, names, args):
        if kind == "began":
            work.began(name)
        elif kind == "ended":
            failed = isinstance(what, JobFailed)
            grade = unusable(name, plan.suite, str(what), "error") if failed else Grade.from_dict(what)
            _keep(plan, grade)
            work.ended(name, f"{number(grade.score)} of {number(grade.max_score)}, {grade.verdict}")


def _told(plan: Plan, names: Sequence[str], args: argparse.Namespace) -> Iterator[Told]:
    from ..grading.job import WORK
    from ..jobs.local import in_processes

    jobs = [_job(plan, name) for name in names]
    if args.scheduler:
        yield from on_cluster(args.scheduler, WORK, jobs)
        return
    if not jobs:
        return
    at_once = args.jobs or min(4, len(os.sched_getaffinity(0)))
    from .records import folder

    with (folder(plan.output) / "log.txt").open("ab") as log, contextlib.closing(
        in_processes(WORK, jobs, at_once=min(at_once, len(jobs)), log=log)
    ) as told:  # fmt: skip
        yield from told


def _job(plan: Plan, name: str) -> Job:
    from ..grading import job
    from ..grading.submission import read_file
    from ..jobs.local import Job

    def given() -> dict[str, Any]:
        return job.given(name, read_file(plan.paths[name]), plan.suite, plan.policy, timeout=plan.timeout,
                         loading=plan.loading, files=plan.files)  # fmt: skip

    return Job(name, given, job.seconds(plan.suite, timeout=plan.timeout, loading=plan.loading))


def _keep(plan: Plan, grade: Grade) -> None:
    from .records import write_whole

    plan.grades[grade.submission] = grade
    text = json.dumps({"key": plan.keys[grade.submission], "grade": grade.to_dict()}, indent=2)
    write_whole(plan.result(grade.submission), f"{text}\n")


def _write_summary(plan: Plan) -> None:
    from ..grading.results import OWN_ERROR
    from .records import write_whole

    text = io.StringIO()
    table = csv.writer(text)
    tests = [_cell(case.name) for case in plan.suite.cases]
    table.writerow(["submission", "verdict", "score", "max_score", *tests, "reason"])
    for name in plan.paths:
        if (grade := plan.grades.get(name)) is not None:
            # (Of a test with an error of its own nothing: a 0 would be taken for the submission's.)
            scores = ["" if mark.status == OWN_ERROR else f"{mark.score:g}" for mark in grade.marks]
            reason = "; ".join(grade.failures())[:1000]
            row = [name, grade.verdict, f"{grade.score:g}", f"{grade.max_score:g}", *scores, reason]
            table.writerow([_cell(value) for value in row])
    write_whole(plan.output / "summary.csv", text.getvalue())


def _cell(text: str) -> str:
    """A text that no spreadsheet takes for a formula: names and reasons are the students'."""
    text = "".join(c if c.isprintable() or c == "\n" else " " for c in text)
    return _FORMULA.sub(r"\1'\2", text)
