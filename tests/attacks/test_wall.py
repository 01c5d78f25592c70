"""Every attempt of the table: it succeeds without layers, and comes to the expected end with them."""

from __future__ import annotations

import platform

import pytest

from .attempt import Attempt, Open
from .conftest import LEVELS, UIDS, StageProcess, Stages, lacking
from .table import ATTEMPTS

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the attempts use system-call numbers of x86-64")

_possible: set[tuple[str, int]] = set()


class ControlFailed(Exception):
    """The attempt did not succeed without layers either, so that nothing was tried. Says nothing about the wall."""


def _run(stage: StageProcess, attempt: Attempt, on: bool) -> tuple[bool, str, str]:
    """An attempt that is to succeed: races and waits may need another try, on a machine that stalls. (One that is to
    fail has a single try in each run of the tests, and must fail in all.)"""
    for _ in range(3):
        succeeded, out, error = stage("run", attempt.id, on)
        if succeeded:
            break
    return succeeded, out, error


def test_there_are_enough_of_them() -> None:
    assert len(ATTEMPTS) >= 100


@pytest.mark.parametrize("attempt", ATTEMPTS.values(), ids=list(ATTEMPTS))
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("uid", UIDS)
def test_attempt(stages: Stages, uid: int, level: str, attempt: Attempt) -> None:
    for need in attempt.needs:
        if lacking(need, uid):
            pytest.skip(f"not possible here even without a layer: {need}")
    stage = stages(uid, level, attempt.stage)
    assert stage.started["level"] == level
    if (attempt.id, uid) not in _possible:
        without, out, error = _run(stage, attempt, False)
        if not without:
            raise ControlFailed(f"it must succeed without layers: {error or out}")
        _possible.add((attempt.id, uid))
    answer = attempt.answer(level)
    if isinstance(answer, Open):
        succeeded, out, error = _run(stage, attempt, True)
        assert succeeded, f"{level} stops it now; say by which layer ({error})"
    else:
        succeeded, out, error = stage("run", attempt.id, True)
        assert not succeeded, f"{level}: {answer} did not stop it: {out}"
