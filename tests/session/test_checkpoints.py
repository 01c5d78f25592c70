"""What copies may cost."""

from __future__ import annotations

from sandbox_kernel.session.budget import SHARE, Budget, gives_up
from sandbox_kernel.session.proctree import PAGE, Process


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_budget_is_a_share_of_the_time() -> None:
    clock = Clock()
    budget = Budget(clock)
    first = budget.left
    budget.spend(first)
    assert budget.left == 0
    clock.now = 10.0
    assert abs(budget.left - 10 * SHARE) < 1e-9
    clock.now = 10_000.0
    assert budget.left < 10, "what was not used for hours is not spent on one cell"


def test_a_loss_makes_room_for_another_copy() -> None:
    budget = Budget(Clock())
    first = budget.left
    budget.spend(5.0)
    budget.refill()
    assert budget.left == first


def test_a_cell_that_writes_little_keeps_its_copy_whatever_the_copy_has_cost() -> None:
    assert not gives_up(copied_s=0.002, lasted_s=1.0, left_s=-3.0)
    assert gives_up(copied_s=0.02, lasted_s=0.1, left_s=-3.0)
    assert not gives_up(copied_s=0.02, lasted_s=0.1, left_s=1.0)
    assert gives_up(copied_s=0.2, lasted_s=1.0, left_s=1.0)


def _process(faults: int, rss: int) -> Process:
    return Process(parent=1, started=1, threads=1, rss=rss * PAGE, cpu_s=0.0, faults=faults)


def test_new_memory_is_not_taken_for_copied_pages() -> None:
    before = _process(faults=100, rss=1000)
    assert _process(faults=600, rss=1500).copied_since(before) == 0, "500 new pages"
    assert _process(faults=600, rss=1000).copied_since(before) == 500 * PAGE, "500 pages written again"
    assert _process(faults=101, rss=1512).copied_since(before) == 0, "one huge page"
