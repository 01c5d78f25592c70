"""Grades one submission: loads it cell by cell, and gives each test the state after the last cell."""

from __future__ import annotations

import os
import re
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from ..api import Execution, Sandbox
from ..api.asked import PolicyLike
from ..api.execution import plain_text, shortened
from ..arguments import check_arguments
from ..errors import CellError, FrameRefused, LimitReached, SandboxError
from ..session.denial_text import denial_line
from .results import OWN_ERROR, CellReport, Grade, Mark
from .student import Clock, Misused, NoAttribute, Overdue, Student
from .submission import Submission, Unusable, read_file
from .suite import Case, Suite, UnusableTests

TIMEOUT_S, LOADING_S = 10.0, 120.0
_REASON_CHARS = 2000
_LIMITS = {
    "TimeLimit": "time", "MemoryLimit": "limits.memory", "OutputLimit": "limits.output_total",
    "ProcessLimit": "limits.processes", "DiskLimit": "limits.disk",
}  # fmt: skip
_RULE = re.compile(r"; ((?:limits|code)\.\w+|timeout) = ")
_LINE = re.compile(r"Cell In\[\d+\], line (\d+)|[Ll]ine (\d+)")

Guard = Callable[[float], AbstractContextManager[None]]


@check_arguments
def grade(
    submission: str | Path | Submission, tests: str | Path | Suite, policy: PolicyLike = "classroom", *,
    timeout: float = TIMEOUT_S, loading: float = LOADING_S, files: Mapping[str, bytes | str] | None = None,
    level: str | None = None, guard: Guard | None = None,
) -> Grade:  # fmt: skip
    """Grade one submission.

    The submission's cells run one after the other in a sandbox of their own; a cell that fails does not stop the
    next. Then each test runs here, with the variables as they were after the last cell. Files that the submission
    writes are seen by all of them; nothing of a test is in the sandbox but the arguments of its calls.

    Args:
        submission: an .ipynb or .py file.
        tests: a Python file with functions ``test_*``. It is trusted: it runs in this process.
        policy, level: as of `Sandbox`.
        timeout: seconds for each test that does not say, all its calls together.
        loading: seconds for all cells of the submission together; each one has the policy's limits, too.
        files: what the submission finds in its folder, by name.
        guard: gives a context that ends a test which goes on by itself for so many seconds, with no call to the
            submission; None: such a test is waited for.

    Returns:
        the grade. What the submission does wrong, whatever it is, is in it and never raised.

    Raises:
        UnusableTests: the tests cannot be used, or the submission could read them.
        PolicyError, IsolationUnavailable: the sandbox cannot be had.
        OSError: the submission cannot be read.
    """
    suite = tests if isinstance(tests, Suite) else Suite.load(tests)
    began = time.monotonic()
    try:
        if not isinstance(submission, Submission):
            name = Path(submission).name
            submission = Submission.parse(name, read_file(Path(submission)))
    except Unusable as error:
        return unusable(name, suite, str(error))
    result = Grade(submission.name, max_score=suite.max_score)
    with Sandbox(policy, level=level, timeout=timeout) as sandbox:
        result.level = str(sandbox.status()["level"])
        _prove_hidden(suite, sandbox)
        for path, content in (files or {}).items():
            sandbox.put_file(path, content)
        run = Run(sandbox, submission, loading)
        result.cells = run.load()
        for case in suite.cases:
            result.marks.append(_mark(case, suite, run, timeout, guard or (lambda _: nullcontext())))
    result.score = sum(mark.score for mark in result.marks)
    own = [mark for mark in result.marks if mark.status == OWN_ERROR]
    result.max_score -= sum(mark.points for mark in own)
    result.verdict = "passed" if all(mark.status == "passed" for mark in result.marks) else "failed"
    if own:
        names = ", ".join(mark.name for mark in own)
        result.verdict = "error"
        result.reason = f"an error of the tests themselves, whose points do not count: {names}: {own[0].reason}"
    if broken := [mark for mark in result.marks if mark.status == "error"]:
        result.verdict, result.score, result.reason = "error", 0.0, broken[0].reason
    result.duration_s = time.monotonic() - began
    return result


def _prove_hidden(suite: Suite, sandbox: Sandbox) -> None:
    """By an attempt: a policy or an interpreter's own folders may show more than whoever wrote the tests thought."""
    if not os.path.isabs(suite.path):
        return
    try:
        sandbox.get_file(suite.path)
    except OSError:
        return
    except FrameRefused:  # it is too large to come out, and so it was read
        pass
    raise UnusableTests(f"{suite.path} can be read in the sandbox: it lies in a folder that the policy shows, or among "
                        "the packages. Keep tests elsewhere.")  # fmt: skip


def unusable(name: str, suite: Suite, reason: str, verdict: str = "unusable") -> Grade:
    """A grade without points for what could not be run."""
    marks = [Mark(case.name, case.title, case.points, reason="it was not run") for case in suite.cases]
    return Grade(name, verdict, 0.0, suite.max_score, reason[:_REASON_CHARS], marks=marks)


class Run:
    """A submission in a sandbox.

    Attributes:
        executions: what each cell gave, in their order; tests may look at it.
    """

    def __init__(self, sandbox: Sandbox, submission: Submission, loading_s: float) -> None:
        self._box, self._loading_s = sandbox, loading_s
        self.submission = submission
        self.executions: list[Execution] = []
        self._skipped: set[int] = set()  # cells that a limit ended: they are not tried once more
        self._used, self._lost = False, 0

    if not TYPE_CHECKING:  # a slip of this package's own is still found

        def __getattr__(self, name: str) -> None:
            raise NoAttribute(f"submission has no {name!r}: it is a test's `student` that has student.{name}")

    @property
    def stdout(self) -> str:
        """All that the cells printed."""
        return "".join(execution.stdout for execution in self.executions)

    def load(self) -> list[CellReport]:
        """Run the cells."""
        end, reports = time.monotonic() + self._loading_s, []
        for number, source in self.submission.cells:
            left = end - time.monotonic()
            if left <= 0:
                said = f"it was not run: the {self._loading_s:g} s for the whole submission were over"
                reports.append(CellReport(number, "not run", "TimeLimit", said, limit="loading"))
                self._skipped.add(number)
                continue
            began = time.monotonic()
            try:
                execution = self._box.run_code(source, timeout=left)
            except (SandboxError, ValueError, RuntimeError) as error:  # a source that cannot be sent, for example
                reports.append(CellReport(number, "failed", type(error).__name__, _text(str(error))))
                self._skipped.add(number)
                continue
            self.executions.append(execution)
            reports.append(_report(number, execution, time.monotonic() - began))
            if reports[-1].limit or reports[-1].state != "kept":
                self._skipped.add(number)
        self._lost = self._losses()
        return reports

    @contextmanager
    def branch(self) -> Iterator[Sandbox]:
        """The session as it was after the last cell, for one test: a copy, or where none can be had the cells anew."""
        if self._used or self._losses() != self._lost:
            self._again()
        copy = self._copy()
        if copy is None:
            self._used = True
            yield self._box
            return
        with copy:
            yield copy

    def _copy(self) -> Sandbox | None:
        try:
            return self._box.fork()
        except SandboxError:  # it has threads, for example
            return None

    def _again(self) -> None:
        self._box.restart()
        end = time.monotonic() + self._loading_s
        for number, source in self.submission.cells:
            if number not in self._skipped and (left := end - time.monotonic()) > 0:
                self._box.run_code(source, timeout=left)
        self._used, self._lost = False, self._losses()

    def _losses(self) -> int:
        # The process of the session itself is out of a test's reach, but not of what the submission left running.
        return int(self._box.status().get("workers_lost", 0))


def _report(number: int, execution: Execution, seconds: float) -> CellReport:
    report = CellReport(number, state=execution.state, duration_s=round(seconds, 3))
    report.denials = denial_line(execution.denials) or ""
    error = execution.error
    if error is not None and not (error.name == "SystemExit" and execution.exit_code == 0):
        report.status, report.error = "failed", error.name
        # (A cell has no file; IPython makes a name up for it.)
        told = re.sub(r"\(\d+\.py, line (\d+)\)", r"(line \1)", error.value[:_REASON_CHARS])
        report.reason = _text(told if error.name in told else f"{error.name}: {told}")
        lines = _LINE.findall(plain_text(error.traceback[:20_000]))
        report.line = int("".join(lines[0])) if lines else 0
        if error.name in _LIMITS:
            rule = _RULE.search(error.value)
            report.limit = rule[1] if rule else _LIMITS[error.name]
            if report.limit == "timeout":
                report.limit, report.reason = "loading", "it was ended: the time for the whole submission was over"
    return report


def _mark(case: Case, suite: Suite, run: Run, timeout_s: float, guard: Guard) -> Mark:
    mark = Mark(case.name, case.title, case.points)
    seconds = case.timeout_s or timeout_s
    began, student = time.monotonic(), None
    try:
        with run.branch() as box:
            began = time.monotonic()
            box.denied()
            student = Student(box, Clock(seconds))
            given = {"student": student, "sandbox": box, "submission": run}
            try:
                with guard(seconds):
                    value = case.function(**{name: given[name] for name in case.wants})
                if value is not None:
                    raise Misused("it returned a value, and none is looked at; a test says what it wants by `assert`")
                mark.status, mark.score = "passed", case.points
            finally:
                mark.denials = box.denied()
    except (Exception, SystemExit) as error:  # of a test: none may stop the next
        mark.error = error.name if isinstance(error, CellError) else type(error).__name__
        mark.reason = _text(_reason(error, suite, student))
        if isinstance(error, LimitReached):
            mark.limit = error.rule
        elif isinstance(error, Overdue):
            mark.error, mark.limit = "TimeLimit", "timeout"
        if student is None:
            mark.status = "error"
        elif _is_own(error, case, student):
            mark.status = OWN_ERROR
    mark.duration_s = round(time.monotonic() - began, 3)
    return mark


def _is_own(error: BaseException, case: Case, student: Student) -> bool:
    """Whether it is the test that is wrong, whatever the submission did.

    A ``TypeError`` in the middle of a test is mostly the submission's: it returned None, and the test added 1 to it. It
    cannot be where nothing of the submission has reached the test yet; and no value makes a name unknown.
    """
    if isinstance(error, FrameRefused):
        return bool(error.data.get("outgoing"))
    if isinstance(error, (AssertionError, SandboxError, Overdue)):
        return False
    if isinstance(error, (Misused, NameError, ImportError, SyntaxError, SystemExit)):
        return True
    return not student._sandbox_kernel_gave and not {"sandbox", "submission"} & set(case.wants)


def _reason(error: BaseException, suite: Suite, student: Student | None) -> str:
    last = student._sandbox_kernel_last if student is not None else ""
    if isinstance(error, CellError):
        missing = re.fullmatch(r"name '(\w+)' is not defined", error.value)
        if error.name == "NameError" and missing and last.startswith(f"{missing[1]}("):
            return f"the submission has no {missing[1]}"
        return f"{last}: {error.value}" if error.value else last
    if isinstance(error, LimitReached) and error.rule == "timeout":
        return f"{last}: the time of the test was over"
    if isinstance(error, SandboxError):
        said = error.explain() if isinstance(error, (LimitReached, FrameRefused)) else error.message
        return f"{last}: {said}" if last else said
    if isinstance(error, Overdue):
        return f"{error}; the last call: {last}" if last else str(error)
    line = next((f.lineno for f in reversed(traceback.extract_tb(error.__traceback__)) if f.filename == suite.path), 0)
    if isinstance(error, AssertionError):
        said = _said(error) or suite.statement(line or 0) or "an assertion does not hold"
    else:
        said = f"line {line} of the tests: {type(error).__name__}: {_said(error)}"
    return f"{said} ({last})" if last else said


def _said(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return ""


def _text(text: str) -> str:
    """In a report: no terminal sequences, bounded."""
    return shortened(plain_text(text).strip(), _REASON_CHARS)
