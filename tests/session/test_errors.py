"""Every limit says what happened, the figure, the rule, what to do, and whether the variables survived."""

from __future__ import annotations

import pickle

import pytest

from sandbox_kernel.errors import (
    DiskLimit,
    LimitReached,
    MemoryLimit,
    OutputLimit,
    ProcessLimit,
    TimeLimit,
    size_text,
)
from sandbox_kernel.report import describe_exit

GIB = 1024**3
CASES: list[tuple[LimitReached, str, str]] = [
    (TimeLimit(30, 30), "30 s", "limits.cell_time = 30 s"),
    (TimeLimit(10.04, 10, rule="limits.cell_cpu"), "10 s of processor time", "limits.cell_cpu = 10 s"),
    (MemoryLimit(4 * GIB, 4 * GIB, files=GIB, processes=3), "4 GiB of memory in 3 processes", "limits.memory = 4 GiB"),
    (OutputLimit(330 * 1024**2, 32 * 1024**2), "330 MiB", "limits.output_total = 32 MiB"),
    (OutputLimit(100_001, 10_000, rule="limits.messages"), "100,001 messages", "limits.messages = 10,000"),
    (ProcessLimit(300, 256), "300 processes", "limits.processes = 256"),
    (DiskLimit(GIB, GIB // 2), "1 GiB", "limits.disk = 512 MiB"),
]


@pytest.mark.parametrize(("error", "figure", "rule"), CASES, ids=lambda case: type(case).__name__)
def test_the_sentence_is_made_from_data(error: LimitReached, figure: str, rule: str) -> None:
    text = error.explain()
    assert figure in text and rule in text and error.rule in error.advice()
    assert text.endswith("The variables of this session are kept.")
    assert error.data["used"] >= error.data["allowed"]


@pytest.mark.parametrize(("error", "figure", "rule"), CASES, ids=lambda case: type(case).__name__)
def test_it_survives_pickling(error: LimitReached, figure: str, rule: str) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and again.explain() == error.explain() and again.rule == error.rule


def test_a_loss_is_said_once() -> None:
    error = TimeLimit(30, 30)
    error.lose(4.0)
    error.lose(4.0)
    assert error.state == "lost" and error.explain().count("did not end within 4 s") == 1
    assert "lost" in error.explain() and "lost" in pickle.loads(pickle.dumps(error)).explain()


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (4 * GIB, "4 GiB"), (1000, "0.977 KiB"), (61 << 20, "61 MiB")],
)
def test_sizes_are_written_as_people_say_them(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize("status", [1, 3, 70, 255])
def test_code_that_ends_its_process_is_not_said_to_have_changed_what_runs_cells(status: int) -> None:
    assert f"(exit code {status})" in describe_exit(status << 8)
