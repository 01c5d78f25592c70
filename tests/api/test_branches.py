"""Several ways from one state: forks, the one that is kept, and checkpoints with names."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel import AsyncSandbox, Sandbox
from sandbox_kernel.errors import CopyRefused, NoCheckpoint
from sandbox_kernel.session import checkpoints
from sandbox_kernel.session.checkpoints import NAMED

from ..waiting import children, wait_for
from .conftest import LEVELS

POLICY = {"limits": {"memory": "600MiB", "cell_cpu": "3s"}}


@pytest.fixture(scope="module", params=LEVELS)
def parent(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """Shared by tests that leave it alive and idle; each sets the variables that it uses."""
    with Sandbox(POLICY, level=request.param) as box:
        yield box


def test_branches_begin_with_the_state_and_are_separate(parent: Sandbox) -> None:
    parent.run_code("words = ['a']; import random; random.seed(7)")
    with parent.fork() as one, parent.fork() as two:
        assert one.run_code("words.append(1); words").results[0].text == "['a', 1]"
        assert two.run_code("words.append(2); words").results[0].text == "['a', 2]"
        drawn = [box.run_code("random.random()").results[0].text for box in (one, two)]
        assert drawn[0] == drawn[1], "the same candidate draws the same numbers"
        assert one.run_code("1").execution_count == two.run_code("1").execution_count
    assert parent["words"] == ["a"]


def test_branches_read_their_open_files_each_from_its_own_place(parent: Sandbox) -> None:
    parent.run_code("open('t', 'w').write('0123456789'); f = open('t', 'rb', buffering=0); seen = f.read(3)")
    with parent.fork() as branch:
        if parent.status()["level"] == "full":
            assert branch.run_code("f.read(4)").results[0].text == "b'3456'"
        assert parent.run_code("f.read(2)").results[0].text == "b'34'"
    parent.run_code("f.close()")


def test_a_branch_is_a_full_sandbox(parent: Sandbox) -> None:
    parent.run_code("x = 1")
    with parent.fork() as branch:
        branch.run_code("x = 2")
        branch.checkpoint("two")
        branch.run_code("x = 3")
        with branch.fork() as second:
            second.run_code("x += 10")
            assert (second["x"], branch["x"]) == (13, 3)
        branch.rollback("two")
        assert branch["x"] == 2
        lost = branch.run_code("import os; os._exit(3)")
        assert lost.state == "restored" and branch["x"] == 2
        branch.run_code("def double(value): return 2 * value")
        assert branch.call("double", branch["x"]) == 4
        assert branch.status()["level"] == parent.status()["level"] and branch.status()["proofs"]
    assert parent["x"] == 1


def test_eight_candidates_run_at_once_and_one_is_kept(parent: Sandbox) -> None:
    parent.run_code("data = list(range(50)); score = None")
    found: dict[int, float] = {}
    branches = [parent.fork() for _ in range(8)]

    def work(at: int) -> None:
        branches[at].run_code(f"score = -sum(abs(value - {at * 8}) for value in data)")
        found[at] = branches[at]["score"]

    threads = [threading.Thread(target=work, args=(at,)) for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    best = max(found, key=lambda at: found[at])
    assert best == 3 and len(set(found.values())) == 8, found
    parent.adopt(branches[best])
    assert parent["score"] == found[best] and branches[best].closed
    for branch in branches:
        branch.close()
    assert parent.run_code("len(data)").results[0].text == "50"


def test_the_end_of_a_branch_ends_only_it(parent: Sandbox) -> None:
    parent.run_code("x = 1")
    one, two = parent.fork(), parent.fork()
    pid = one._box._session.supervisor.worker.pid  # type: ignore[union-attr]
    one.close()
    wait_for(lambda: pid not in children())
    assert two["x"] == parent["x"] == 1
    two.close()
    with pytest.raises(RuntimeError, match="closed"):
        one.run_code("1")


def test_processor_time_is_counted_for_each(parent: Sandbox) -> None:
    burn = "import time\nend = time.process_time() + 1.8\nwhile time.process_time() < end: pass"
    with parent.fork() as one, parent.fork() as two:
        other = threading.Thread(target=one.run_code, args=(burn,))
        other.start()
        execution = two.run_code(burn)
        other.join()
        assert execution.success, execution.error
        assert 1.7 < execution.cpu_time_s < 3


def test_memory_is_counted_once_for_all_and_the_greedy_one_pays(parent: Sandbox) -> None:
    parent.run_code("import numpy as np; big = np.ones(15 << 20)")  # 120 MiB, so five of them would not fit
    branches = [parent.fork() for _ in range(4)]
    try:
        assert [box.run_code("int(big[-1])").results[0].text for box in branches] == ["1"] * 4
        grown = [box.run_code("mine = np.ones(8 << 20)") for box in branches[:2]]  # 64 MiB each
        assert all(execution.success for execution in grown)
        greedy = branches[0].run_code("hog = [np.ones(1 << 20) for _ in range(200)]")
        assert not greedy.success and greedy.error is not None
        assert greedy.error.name in ("MemoryLimit", "MemoryError"), greedy.error
        assert branches[1].run_code("int(mine[-1])").success, "a sister goes on"
        assert parent.run_code("int(big[-1])").success
    finally:
        for box in branches:
            box.close()
        parent.run_code("del big")


@pytest.mark.parametrize(
    ("setup", "reason", "after"),
    [
        ("import threading; stop = threading.Event(); t = threading.Thread(target=stop.wait, name='loader'); t.start()",
         "it would lack thread 'loader'", "stop.set(); t.join()"),
        ("import subprocess; p = subprocess.Popen(['sleep', '60'])",
         "it would lack child process", "p.kill(); p.wait()"),
    ],
    ids=["thread", "child"],
)  # fmt: skip
def test_what_a_branch_would_lack_is_refused(parent: Sandbox, setup: str, reason: str, after: str) -> None:
    parent.run_code(f"x = 5\n{setup}")
    with pytest.raises(CopyRefused, match=reason) as refused:
        parent.fork()
    assert "End these first" in refused.value.explain() and "are kept" in refused.value.explain()
    assert parent.run_code(after).success and parent["x"] == 5
    with parent.fork() as branch:
        assert branch["x"] == 5


def test_branches_see_what_others_change_in_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old")
    with Sandbox({"files": {"workspace": "overlay"}}, workspace=tmp_path) as parent:
        parent.run_code("open('a.txt').read()")
        with parent.fork() as branch:
            (tmp_path / "b.txt").write_text("new")
            (tmp_path / "b.txt").rename(tmp_path / "a.txt")
            for box in (branch, parent):
                assert box.run_code("open('a.txt').read()").results[0].text == "'new'"
        assert parent.run_code("open('a.txt').read()").results[0].text == "'new'"


def test_only_branches_of_the_same_sandbox_are_adopted(parent: Sandbox) -> None:
    with Sandbox() as stranger:
        for other in (stranger, parent):
            with pytest.raises(ValueError, match="same sandbox"):
                parent.adopt(other)


def test_checkpoints_have_names(parent: Sandbox) -> None:
    for value in (1, 2, 3):
        parent.run_code(f"x = {value}")
        parent.checkpoint(f"at-{value}")
    parent.rollback("at-1")
    assert parent["x"] == 1
    parent.rollback("at-3")  # a later one is still there
    assert parent["x"] == 3
    parent.rollback("at-1")
    parent.rollback("at-1")  # and each can be used again
    assert parent["x"] == 1
    named = {name: row["cell"] for row in parent.status()["checkpoints"] for name in row["names"]}
    assert set(named) == {"at-1", "at-2", "at-3"} and len(set(named.values())) == 3
    parent.run_code("x = 4")
    parent.checkpoint("at-1")
    parent.run_code("x = 5")
    parent.rollback("at-1")
    assert parent["x"] == 4
    with pytest.raises(NoCheckpoint, match=r"no checkpoint named 'other'; there are .*'at-2'"):
        parent.rollback("other")


def test_a_name_stays_with_its_state(parent: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "_HASTY_S", -1.0)  # copies are dear: none is made between queued cells
    parent.run_code("x = 1")
    parent.checkpoint("red")
    parent.run_code("import os; os._exit(1)")
    parent.run_code("x = 9")
    parent.rollback("red")
    assert parent["x"] == 1


def test_there_are_not_too_many(parent: Sandbox) -> None:
    for at in range(NAMED - len(_names(parent))):
        parent.checkpoint(f"n{at}")
    with pytest.raises(CopyRefused, match="names already") as refused:
        parent.checkpoint("one_more")
    assert "Use one of these names again" in refused.value.explain()
    parent.checkpoint(_names(parent)[0])
    for name in ("", "1st", "a b", "x" * 65, "naïve\n"):
        with pytest.raises(ValueError, match="cannot name"):
            parent.checkpoint(name)
    parent.restart()
    assert not _names(parent)
    with pytest.raises(NoCheckpoint, match="session was restarted"):
        parent.rollback("n0")


def _names(box: Sandbox) -> list[str]:
    return [name for row in box.status()["checkpoints"] for name in row["names"]]


def test_the_end_of_the_first_ends_all() -> None:
    async def run() -> None:
        before = children()
        async with AsyncSandbox(modules={"host": {"double": lambda value: 2 * value}}) as first:
            branch = await first.fork()
            second = await branch.fork()
            execution = await second.run_code("import host; host.double(4)")
            assert execution.results[0].text == "8"
            cell = asyncio.ensure_future(second.run_code("import time; time.sleep(600)"))
            await asyncio.sleep(0.3)
        ended = await cell
        assert ended.error is not None and ended.error.name == "WorkerLost"
        assert branch.closed and second.closed
        assert children() <= before, "nothing is left"

    asyncio.run(run())


def test_polars_is_refused_with_advice() -> None:
    pytest.importorskip("polars")
    with Sandbox() as box:
        box.run_code("import polars as pl; pl.DataFrame({'a': [1]}).lazy().select(pl.col('a').sum()).collect()")
        with pytest.raises(CopyRefused, match="polars has started its threads"):
            box.fork()
        assert box.run_code("1").success


def test_two_that_adopt_each_other_do_not_wait_for_ever() -> None:
    async def main() -> None:
        async with AsyncSandbox(POLICY) as box:
            one, two = await box.fork(), await box.fork()
            await one.run_code("x = 1")
            await two.run_code("x = 2")
            done = await asyncio.wait_for(
                asyncio.gather(one.adopt(two), two.adopt(one), return_exceptions=True), timeout=60
            )
            assert [type(outcome) for outcome in done].count(type(None)) == 1, done
            left, kept = (one, 2) if done[0] is None else (two, 1)
            assert await left.get("x") == kept

    asyncio.run(main())
