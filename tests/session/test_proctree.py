"""Which processes belong to the sandbox, and what they hold: on a made-up /proc and on the real one."""

from __future__ import annotations

import mmap
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox_kernel.session.proctree import ProcessTree

from ..waiting import wait_for

MIB = 1024**2
PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")


class Proc:
    """A /proc with the few files that are read."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.newest = 0

    def add(
        self, pid: int, parent: int, *, rss: int = 0, threads: int = 1, cpu: int = 0, faults: int = 0,
        started: int = 5, anon: int | None = None, shmem: int = 0, pss: int | None = None, waited: int = 0,
    ) -> None:  # fmt: skip
        folder = self.root / str(pid)
        folder.mkdir(exist_ok=True)
        numbers = ["0"] * 50
        numbers[0], numbers[1], numbers[7], numbers[11] = "S", str(parent), str(faults), str(cpu)
        numbers[13] = str(waited)
        numbers[17], numbers[19], numbers[21] = str(threads), str(started), str(rss // PAGE)
        (folder / "stat").write_text(f"{pid} (a) b) {' '.join(numbers)}")
        kib = (rss if anon is None else anon) // 1024
        (folder / "status").write_text(f"Name:\tx\nRssAnon:\t{kib} kB\nRssShmem:\t{shmem // 1024} kB\n")
        if pss is not None:
            (folder / "smaps_rollup").write_text(f"Pss: 1 kB\nPss_Anon: {pss // 1024} kB\nPss_Shmem: 0 kB\n")
        self.newest = max(self.newest, pid)
        self.say(self.newest)

    def say(self, newest: int) -> None:
        self.newest = newest
        (self.root / "loadavg").write_text(f"0 0 0 1/1 {newest}\n")

    def remove(self, pid: int) -> None:
        for file in (self.root / str(pid)).iterdir():
            file.unlink()
        (self.root / str(pid)).rmdir()


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    made = Proc(tmp_path)
    made.add(1, 0)
    made.add(50, 1)
    made.add(100, 50, rss=10 * MIB)  # the zygote
    return made


def tree(proc: Proc) -> ProcessTree:
    return ProcessTree(100, proc=str(proc.root))


def test_the_tree_is_everything_below_the_zygote(proc: Proc) -> None:
    proc.add(103, 102, rss=MIB)
    proc.add(102, 100, rss=2 * MIB, threads=3)
    proc.add(90, 103, rss=4 * MIB)  # numbers start again from below
    proc.add(200, 50, rss=500 * MIB)
    usage = tree(proc).look()
    assert (usage.processes, usage.tasks, usage.memory) == (3, 5, (10 + 4 - 1) * MIB)


def test_new_and_ended_processes_are_noticed(proc: Proc) -> None:
    watched = tree(proc)
    assert watched.look().processes == 0
    proc.add(101, 100)
    proc.add(102, 101)
    assert watched.look().processes == 2
    proc.remove(101)
    proc.add(102, 100)  # adopted by the zygote
    assert watched.look().processes == 1
    proc.add(103, 102)
    assert watched.look().processes == 2


def test_an_orphan_that_is_just_being_adopted_is_found_later(proc: Proc) -> None:
    watched = tree(proc)
    proc.add(105, 104)  # 104 is in the list, but cannot be read any more
    (proc.root / "104").mkdir()
    assert watched.look().processes == 0
    (proc.root / "104").rmdir()
    proc.add(105, 100)
    assert watched.look().processes == 1


def test_a_number_used_again_is_another_process(proc: Proc) -> None:
    watched = tree(proc)
    proc.add(101, 100, rss=50 * MIB)
    assert watched.look().memory == (10 + 50 - 10) * MIB
    proc.add(101, 50, rss=900 * MIB, started=9)
    assert watched.look().memory == 10 * MIB


def test_the_kernel_s_own_count_is_used_where_it_may_be_read(proc: Proc) -> None:
    proc.add(100, 50, rss=10 * MIB, pss=5 * MIB)
    proc.add(101, 100, rss=500 * MIB, pss=250 * MIB)
    watched = tree(proc)
    watched.look()
    assert watched.held() == 255 * MIB


def test_what_a_fork_inherited_counts_once_until_it_writes_to_it(proc: Proc) -> None:
    proc.add(101, 100, rss=400 * MIB, faults=400 * MIB // PAGE)
    watched = tree(proc)
    watched.look()
    for pid in range(102, 106):
        proc.add(pid, 101, rss=400 * MIB, faults=100)
    usage = watched.look()
    assert 400 * MIB <= usage.memory < 425 * MIB
    assert 400 * MIB <= watched.held() < 415 * MIB
    for pid in range(102, 106):
        proc.add(pid, 101, rss=400 * MIB, faults=300 * MIB // PAGE)
    watched.look()
    assert watched.held() >= 1600 * MIB


def test_what_a_fork_takes_anew_counts(proc: Proc) -> None:
    proc.add(101, 100, rss=400 * MIB, faults=400 * MIB // PAGE)
    watched = tree(proc)
    watched.look()
    proc.add(102, 101, rss=50 * MIB, faults=100)  # gave most of it back
    watched.look()
    proc.add(102, 101, rss=450 * MIB, faults=300)  # huge pages: few faults
    watched.look()
    assert watched.held() >= 800 * MIB


def test_time_of_children_counts_whether_or_not_they_are_waited_for(proc: Proc) -> None:
    proc.add(101, 100, cpu=100)
    watched = tree(proc)
    begun = watched.look().cpu_s
    for child in range(102, 112):  # one after the other, and 101 ignores SIGCHLD
        proc.add(child, 101, cpu=3)
        watched.look()
        proc.remove(child)
    assert watched.look().cpu_s - begun == pytest.approx(30 / TICKS)
    proc.add(112, 101, cpu=7)
    watched.look()
    proc.remove(112)
    proc.add(101, 100, cpu=100, waited=9)  # of which 2 since the last look
    assert watched.look().cpu_s - begun == pytest.approx(39 / TICKS)
    proc.add(113, 101, cpu=5)
    watched.look()
    proc.remove(113)
    watched.look()  # its parent was read just before it waited
    proc.add(101, 100, cpu=100, waited=14)
    assert watched.look().cpu_s - begun == pytest.approx(44 / TICKS)


def test_shared_pages_are_resident_in_each_process_but_not_in_a_copy_that_sleeps(proc: Proc) -> None:
    proc.add(101, 100, rss=400 * MIB, faults=400 * MIB // PAGE)
    watched = tree(proc)
    watched.look()
    proc.add(102, 101, rss=400 * MIB, faults=100)
    proc.add(103, 101, rss=400 * MIB, faults=100)
    watched.copied(103, 101)
    usage = watched.look()
    assert usage.memory < 425 * MIB and usage.resident == 810 * MIB
    proc.add(103, 101, rss=400 * MIB, faults=101)
    assert watched.look().resident == 1210 * MIB


def test_shared_memory_does_not_make_inherited_memory_count(proc: Proc) -> None:
    """As where workers of a pool read an array in shared memory, and inherited what the session holds."""
    proc.add(101, 100, rss=1000 * MIB, faults=1000 * MIB // PAGE)
    watched = tree(proc)
    watched.look()
    workers = range(102, 110)
    for pid in workers:
        proc.add(pid, 101, rss=1000 * MIB, faults=100)
    watched.look()
    for pid in workers:
        proc.add(pid, 101, rss=1300 * MIB, anon=1000 * MIB, shmem=300 * MIB, faults=5000)
    assert (1000 + 8 * 300) * MIB <= watched.held() <= watched.look().memory


def test_shared_memory_counts_where_it_cannot_be_told_apart(proc: Proc) -> None:
    proc.add(101, 100, rss=300 * MIB, anon=0, shmem=300 * MIB)
    watched = tree(proc)
    watched.look()
    assert watched.held() >= 300 * MIB


# ---------------------------------------------------------------- the real one


@pytest.fixture
def child() -> Iterator[Callable[[Callable[[], None]], int]]:
    pids: list[int] = []

    def make(work: Callable[[], None]) -> int:
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()
                work()
                time.sleep(60)
            finally:
                os._exit(0)
        pids.append(pid)
        return pid

    yield make
    for pid in pids:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_children_of_children_and_their_time_are_seen(child: Callable[[Callable[[], None]], int]) -> None:
    def work() -> None:
        for _ in range(3):
            if os.fork() == 0:
                if os.fork() == 0:
                    time.sleep(60)
                end = time.process_time() + 0.2
                while time.process_time() < end:
                    pass
                os._exit(0)
        for _ in range(3):
            os.wait()

    watched = ProcessTree(child(work))
    wait_for(lambda: watched.look().cpu_s >= 0.5)
    # The three in the middle are gone. The zygote would have adopted their children; here somebody else did.
    wait_for(lambda: watched.look().processes == 3)  # what was in the tree stays in it
    assert watched.look().cpu_s >= 0.5, "the time of the dead is kept by who waited for them"


def test_shared_and_private_memory_are_counted(child: Callable[[Callable[[], None]], int]) -> None:
    kept: list[object] = []

    def work() -> None:
        shared = mmap.mmap(-1, 64 * MIB)
        shared.write(b"x" * (64 * MIB))
        kept.extend([shared, bytearray(b"x") * (64 * MIB)])

    watched = ProcessTree(child(work))
    wait_for(lambda: watched.look().memory > 0 and watched.held() >= 128 * MIB)
    assert watched.held() < 400 * MIB


def test_a_strike_kills_all_but_the_root(child: Callable[[Callable[[], None]], int]) -> None:
    def work() -> None:
        for _ in range(5):
            if os.fork() == 0:
                time.sleep(60)

    root = child(work)
    watched = ProcessTree(root)
    wait_for(lambda: watched.look().processes == 5)
    watched.strike()
    wait_for(lambda: _living(watched) == [root])


def _living(watched: ProcessTree) -> list[int]:
    states = {pid: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in watched._members}
    return [pid for pid, state in states.items() if state not in "ZX"]


def test_a_look_is_cheap(child: Callable[[Callable[[], None]], int]) -> None:
    watched = ProcessTree(child(lambda: None))
    watched.look()
    began = time.thread_time()
    for _ in range(100):
        watched.look()
    assert (time.thread_time() - began) / 100 < 0.01


def test_what_was_killed_does_not_count_while_it_goes(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr(os, "pidfd_open", lambda pid: killed.append(pid) or os.open("/dev/null", os.O_RDONLY))
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda *_: None)
    proc.add(101, 100, rss=100 * MIB, started=5)
    proc.add(102, 101, rss=300 * MIB, faults=300 * MIB // PAGE, started=50)
    watched = tree(proc)
    before = watched.look().memory
    assert watched.others([101], 10.0) == [102] and watched.others([101], 0.1) == []
    assert watched.others([101], 0.505) == [], "in the same tick it may be a process of the cell"
    assert watched.without([102]) == watched.held() - 300 * MIB
    watched.strike([102])
    assert killed == [102] and watched.look().memory == before - 300 * MIB == watched.held()
    proc.add(102, 101, rss=200 * MIB, faults=200 * MIB // PAGE, started=60)  # another one with its number
    watched.look()
    assert watched.look().memory >= before - 100 * MIB
