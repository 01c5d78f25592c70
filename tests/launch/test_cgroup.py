"""A control group for the sandbox: on a tree of files that acts like cgroup2, and on the real one if there is one."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path
from signal import SIGKILL, SIGSEGV

import pytest

from sandbox_kernel.errors import MemoryLimit
from sandbox_kernel.launch import cgroup
from sandbox_kernel.launch.cgroup import Cgroup, divisible, make_group, own_group
from sandbox_kernel.policy import Limits

MIB = 1024 * 1024
LIMITS = Limits(memory=160 * MIB, processes=32)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A group that this process may divide: files appear with each new folder, as in cgroup2."""
    make = Path.mkdir

    def mkdir(self: Path, *args: object) -> None:
        make(self)
        for name in ("cgroup.procs", "memory.max", "memory.swap.max", "memory.events", "pids.max", "cgroup.kill"):
            (self / name).touch()

    (tmp_path / "cgroup.controllers").write_text("cpu io memory pids\n")
    for name in ("cgroup.procs", "cgroup.subtree_control"):
        (tmp_path / name).touch()
    monkeypatch.setattr(Path, "mkdir", mkdir)
    return tmp_path


def make(tree: Path) -> Cgroup:
    group = make_group(LIMITS, own=tree)
    assert group is not None
    return group


def test_limits_stand_in_the_files(tree: Path) -> None:
    group = make(tree)
    assert group.add(4711) == f"control group: memory.max {170 * MIB}, pids.max 32"
    assert (group.folder / "memory.swap.max").read_text() == "0"
    assert (tree / "cgroup.subtree_control").read_text() == "+memory +pids"


def test_this_process_leaves_the_group_that_is_divided(tree: Path) -> None:
    make(tree)
    assert (tree / f"sandbox-kernel-front-{os.getpid()}" / "cgroup.procs").read_text() == str(os.getpid())


def test_a_process_is_added_and_looked_for(tree: Path) -> None:
    group = make(tree)
    assert group.add(4711).startswith("control group")
    assert (group.folder / "cgroup.procs").read_text() == "4711"


def test_a_process_that_did_not_arrive_is_told(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = make(tree)
    monkeypatch.setattr(Path, "write_text", lambda _self, _text: 0)
    assert group.add(4711) == "no control group: the sandbox could not be moved into it (it is not there)"


def test_kills_are_told_once(tree: Path) -> None:
    group = make(tree)
    assert group.breach(SIGKILL) is None
    (group.folder / "memory.events").write_text("low 0\nhigh 0\nmax 7\noom 1\noom_kill 1\n")
    (group.folder / "memory.peak").write_text(str(169 * MIB))
    assert group.breach(SIGSEGV) is None, "it ended by itself"
    error = group.breach(SIGKILL)
    assert isinstance(error, MemoryLimit) and (error.data["used"], error.data["allowed"]) == (169 * MIB, 160 * MIB)
    assert group.breach(SIGKILL) is None


def test_of_two_that_are_killed_together_both_are_told(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = make(tree)
    (group.folder / "memory.events").write_text("oom_kill 2\n")
    assert group.breach(SIGKILL) is not None and group.breach(SIGKILL) is not None
    assert group.breach(SIGKILL) is None
    (group.folder / "memory.events").write_text("oom_kill 4\n")
    assert group.breach(SIGKILL) is not None
    monkeypatch.setattr(time, "monotonic", lambda: 1e9)
    assert group.breach(SIGKILL) is None, "the other one was a child's"


def test_the_end_kills_what_is_left(tree: Path) -> None:
    group = make(tree)
    group.close()
    assert (group.folder / "cgroup.kill").read_text() == "1"
    assert (tree / "cgroup.procs").read_text() == str(os.getpid())


@pytest.mark.parametrize("missing", ["memory", "pids"])
def test_without_a_controller_nothing_changes(tree: Path, missing: str) -> None:
    (tree / "cgroup.controllers").write_text("cpu memory pids".replace(missing, ""))
    before = sorted(tree.rglob("*"))
    assert make_group(LIMITS, own=tree) is None
    assert sorted(tree.rglob("*")) == before


def test_a_group_with_other_processes_stays_whole(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Path.write_text

    def busy(self: Path, text: str) -> int:
        if self.name == "cgroup.subtree_control":
            raise OSError(errno.EBUSY, "Device or resource busy")
        return write(self, text)

    monkeypatch.setattr(Path, "write_text", busy)
    assert make_group(LIMITS, own=tree) is None
    assert (tree / "cgroup.procs").read_text() == str(os.getpid())  # it is back


def test_a_bound_that_the_kernel_lacks_is_no_group(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is only created would hold the number and bound nothing."""
    make = Path.mkdir

    def mkdir(self: Path) -> None:
        make(self)
        (self / "memory.max").unlink()

    monkeypatch.setattr(Path, "mkdir", mkdir)
    assert make_group(LIMITS, own=tree) is None


@pytest.mark.parametrize(
    ("groups", "mounts", "found"),
    [
        ("0::/user.slice/a", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw", "/sys/fs/cgroup/user.slice/a"),
        ("1:cpu:/\n0::/", "30 23 0:26 / /sys/fs/cgroup/unified rw - cgroup2 none rw", "/sys/fs/cgroup/unified"),
        ("0::/pod/a/b", "30 23 0:26 /pod/a /sys/fs/cgroup rw - cgroup2 cgroup2 rw", "/sys/fs/cgroup/b"),
        ("0::/pod/ab", "30 23 0:26 /pod/a /sys/fs/cgroup rw - cgroup2 cgroup2 rw", None),
        ("1:cpu:/", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw", None),
        ("0::/", "30 23 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw", None),
    ],
)  # fmt: skip
def test_the_own_group_is_found(groups: str, mounts: str, found: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"/proc/self/cgroup": groups, "/proc/self/mountinfo": mounts}
    monkeypatch.setattr(cgroup, "_read", lambda file: texts[str(file)])
    assert own_group() == (None if found is None else Path(found))


REAL = """\
import os, signal, sys
from sandbox_kernel.policy import Limits
from sandbox_kernel.launch.cgroup import make_group, own_group
before = own_group()
group = make_group(Limits(), controllers=())
child = os.fork()
if child == 0:
    signal.pause()
group.add(child)
assert own_group() != before and own_group() != group.folder
group.close()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
group.close()
assert own_group() == before and not group.folder.exists()
print("ok")
"""


def test_on_the_real_one() -> None:
    """Without controllers, which is what can be had nearly everywhere: moving, killing, going back."""
    own = own_group()
    if own is None or not divisible(own, ()):
        pytest.skip("no control group of version 2 that may be divided")
    done = subprocess.run([sys.executable, "-c", REAL], capture_output=True, text=True, check=False)
    assert done.stdout == "ok\n", done.stderr
