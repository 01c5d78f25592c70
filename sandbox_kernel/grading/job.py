"""Grading one submission as a piece of work in a process of its own, see `jobs`."""

from __future__ import annotations

import base64
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

from .grade import grade, unusable
from .results import Grade
from .student import Overdue
from .submission import Submission, Unusable
from .suite import Suite

WORK = "sandbox_kernel.grading.job:work"
_SLACK_S = 10.0  # a call that is over its time is interrupted, then ended; the alarm comes after that


def given(
    name: str, data: bytes, suite: Suite, policy: str | Mapping[str, Any], *, timeout: float, loading: float,
    files: Mapping[str, bytes],
) -> dict[str, Any]:  # fmt: skip
    """The argument of `work`."""
    return {
        "name": name, "data": _written(data), "tests": suite.source, "path": suite.path, "policy": policy,
        "timeout": timeout, "loading": loading, "files": {name: _written(file) for name, file in files.items()},
    }  # fmt: skip


def seconds(suite: Suite, *, timeout: float, loading: float) -> float:
    """After which something is wrong with the grading itself: twice what all limits together allow."""
    tests = sum((case.timeout_s or timeout) + loading + 2 * _SLACK_S for case in suite.cases)
    return 2 * (60 + loading + tests)


def work(given: dict[str, Any], tell: object) -> dict[str, Any]:
    """A `Grade` as plain values."""
    suite = Suite.of(given["tests"], given["path"])
    try:
        submission = Submission.parse(given["name"], base64.b64decode(given["data"]))
    except Unusable as error:
        return unusable(given["name"], suite, str(error)).to_dict()
    found: Grade = grade(
        submission, suite, given["policy"], timeout=given["timeout"], loading=given["loading"],
        files={name: base64.b64decode(data) for name, data in given["files"].items()}, guard=alarm,
    )  # fmt: skip
    return found.to_dict()


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Ends what goes on for longer, in the main thread of a process that has no other use for alarms meanwhile."""

    def overdue(number: int, frame: FrameType | None) -> None:
        raise Overdue(f"the test itself went on beyond its {seconds:g} s")

    before = signal.signal(signal.SIGALRM, overdue)
    # (Once more and again: the first may be caught by the test.)
    timer = signal.setitimer(signal.ITIMER_REAL, seconds + _SLACK_S, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *timer)


def _written(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
