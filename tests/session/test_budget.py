"""What a cell may send, counted."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox_kernel.policy import Limits
from sandbox_kernel.session import limits
from sandbox_kernel.session.limits import OutputBudget, sent_bytes, short_error, short_reply


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def make(clock: Clock, output: int = 10_000, messages: int = 110) -> OutputBudget:
    budget = OutputBudget(Limits(output=output, messages=messages), clock)
    budget.begin()
    return budget


def test_everything_below_the_budget_passes(clock: Clock) -> None:
    budget = make(clock)
    assert all(budget.admit_message(100) for _ in range(99))
    assert budget.rule == "" and budget.excess() is None


def test_one_message_too_many_names_its_rule(clock: Clock) -> None:
    budget = make(clock)
    assert [budget.admit_message(1) for _ in range(102)].count(False) == 3
    assert (budget.rule, budget.dropped_messages) == ("limits.messages", 3)
    assert budget.limit_text() == "limits.messages = 110"


def test_text_that_is_merged_into_one_message_counts_as_one(clock: Clock) -> None:
    budget = make(clock)
    assert all(budget.admit_text("out", 1) for _ in range(5000))
    assert budget.pace_s == limits.MERGE_S


def test_another_stream_or_a_display_in_between_is_a_message_more(clock: Clock) -> None:
    budget = make(clock)
    assert [budget.admit_text(at % 2, 1) for at in range(100)].count(False) == 1
    budget = make(clock)
    for _ in range(49):
        assert budget.admit_text("out", 1) and budget.admit_message(1)
    assert budget.admit_text("out", 1)
    assert not budget.admit_message(1)


def test_a_cell_that_prints_for_hours_is_merged_more_and_not_cut(clock: Clock) -> None:
    budget = make(clock, output=10**9, messages=1008)
    for _ in range(int(1500 / 0.02)):
        clock.now += 0.02
        assert budget.admit_text("out", 20)
    assert budget.pace_s == 60.0


def test_a_stream_that_was_cut_stays_cut(clock: Clock) -> None:
    budget = make(clock)
    assert budget.admit_text("out", 9_000)
    assert not budget.admit_text("out", 2_000)
    assert not budget.admit_text("out", 1)
    assert (budget.rule, budget.dropped_text) == ("limits.output", 2_001)


def test_one_huge_display_does_not_silence_the_rest(clock: Clock) -> None:
    budget = make(clock)
    assert not budget.admit_message(50_000)
    assert budget.admit_text("out", 100) and budget.admit_message(100)


def test_ten_times_the_budget_is_too_much(clock: Clock) -> None:
    budget = make(clock)
    for _ in range(99):
        budget.admit_text("out", 1000)
    assert budget.excess() is None
    for _ in range(2):
        budget.admit_text("out", 1000)
    error = budget.excess()
    assert error is not None and error.rule == "limits.output"
    budget = make(clock)
    for _ in range(1200):
        budget.admit_message(1)
    error = budget.excess()
    assert error is not None and error.rule == "limits.messages" and "1,200" in str(error)


def test_between_cells_the_budget_grows_again_and_the_worker_waits(clock: Clock) -> None:
    budget = make(clock)
    while budget.admit_message(200):
        pass
    assert not budget.used_up(), "a running cell is never made to wait for its budget"
    budget.end()
    assert budget.used_up()
    clock.now += limits.REFILL_S / 10
    assert not budget.used_up()
    assert sum(budget.admit_message(200) for _ in range(100)) == 5
    clock.now += 10 * limits.REFILL_S
    assert sum(budget.admit_message(200) for _ in range(100)) == 50


def test_a_new_cell_has_the_whole_budget(clock: Clock) -> None:
    budget = make(clock)
    assert not budget.admit_text("out", 20_000)
    budget.end()
    budget.begin()
    assert budget.rule == "" and budget.admit_text("out", 10_000)


@pytest.mark.parametrize(("text", "size"), [("abc\n", 4 + 1), ("\0", 6), ("é", 2), ("\ufffd", 3), ('"', 2)])
def test_size_is_what_the_client_gets(text: str, size: int) -> None:
    assert sent_bytes(text) == size


@pytest.mark.parametrize("traceback", [None, 5, "text", [1, None], ["x" * 10**6] * 50])
def test_a_short_error_is_short_whatever_it_was(traceback: Any) -> None:
    error = short_error({"ename": "E" * 10**6, "evalue": 7, "traceback": traceback})
    assert len(str(error)) < 250_000
    assert all(isinstance(line, str) for line in error["traceback"])


def test_a_reply_loses_what_is_optional_only_when_there_is_no_room(clock: Clock) -> None:
    budget = make(clock)
    reply = {"status": "ok", "execution_count": 3, "payload": [{}], "user_expressions": {"a": {"data": {}}}}
    assert short_reply(reply, 500, budget) == reply
    short = short_reply(reply, 2 * 1024 * 1024, budget)
    assert short["status"] == "ok" and short["payload"] == [] and short["execution_count"] == 3
    assert short["user_expressions"]["a"]["ename"] == "OutputLimit"
