"""How much the cells wrote, told apart from what was there and from what others do."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from sandbox_kernel.session import disk
from sandbox_kernel.session.disk import DiskUse

MIB = 1024**2


def write(path: Path, size: int) -> None:
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)


@pytest.fixture
def use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DiskUse:
    # The real file system is shared with whatever else the machine does: its free space is made up here.
    made = DiskUse([str(tmp_path), ""])
    made_free = {"free": 10_000 * MIB}
    monkeypatch.setattr(made, "_free_bytes", lambda: made_free["free"])
    made.free = made_free  # type: ignore[attr-defined]
    return made


def test_new_files_count_and_deleted_ones_do_not(use: DiskUse, tmp_path: Path) -> None:
    free: dict[str, int] = use.free  # type: ignore[attr-defined]
    use.begin()
    write(tmp_path / "a", 20 * MIB)
    free["free"] -= 20 * MIB
    assert use.used() == 20 * MIB
    use.end()
    use.begin()
    (tmp_path / "a").unlink()
    free["free"] += 20 * MIB
    use.end()
    assert use.used() == 0


def test_what_others_write_elsewhere_does_not_count(use: DiskUse, tmp_path: Path) -> None:
    free: dict[str, int] = use.free  # type: ignore[attr-defined]
    use.begin()
    free["free"] -= 5000 * MIB
    write(tmp_path / "small", MIB)
    assert use.used() == MIB


def test_a_large_file_that_was_there_counts_by_what_was_added(use: DiskUse, tmp_path: Path) -> None:
    free: dict[str, int] = use.free  # type: ignore[attr-defined]
    write(tmp_path / "old", 300 * MIB)
    use.begin()
    with (tmp_path / "old").open("ab") as file:
        file.write(b"x" * 16 * MIB)
    free["free"] -= 16 * MIB
    assert use.used() == 16 * MIB


def test_a_folder_that_is_too_deep_for_a_path_hides_nothing(use: DiskUse, tmp_path: Path) -> None:
    free: dict[str, int] = use.free  # type: ignore[attr-defined]
    use.begin()
    place = os.open(tmp_path, os.O_DIRECTORY)
    for _ in range(25):
        os.mkdir("d" * 200, dir_fd=place)
        inner = os.open("d" * 200, os.O_DIRECTORY, dir_fd=place)
        os.close(place)
        place = inner
    file = os.open("big", os.O_CREAT | os.O_WRONLY, dir_fd=place)
    os.posix_fallocate(file, 0, 20 * MIB)
    for fd in (file, place):
        os.close(fd)
    free["free"] -= 21 * MIB
    assert use.used() == 21 * MIB


def test_a_folder_that_may_not_be_read_hides_nothing(
    use: DiskUse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free: dict[str, int] = use.free  # type: ignore[attr-defined]
    look = use._open

    def refused(path: str) -> int:
        if path.endswith("closed"):
            raise PermissionError(errno.EACCES, path)
        return look(path)

    monkeypatch.setattr(use, "_open", refused)  # for root there is no such folder
    (tmp_path / "closed").mkdir()
    monkeypatch.setattr(disk.time, "time", lambda: time.time_ns() / 1e9 + 100)
    use.begin()
    free["free"] -= 500 * MIB
    assert use.used() == 0, "it was closed before, and others write"
    monkeypatch.undo()
    monkeypatch.setattr(use, "_free_bytes", lambda: free["free"])
    monkeypatch.setattr(use, "_open", refused)
    use.end()
    use.begin()
    (tmp_path / "closed").chmod(0)
    free["free"] -= 20 * MIB
    assert use.used() == 20 * MIB


def test_cells_add_up(use: DiskUse, tmp_path: Path) -> None:
    free: dict[str, int] = use.free  # type: ignore[attr-defined]
    for name in "abc":
        use.begin()
        write(tmp_path / name, 10 * MIB)
        free["free"] -= 10 * MIB
        use.end()
    assert use.used() == pytest.approx(30 * MIB, rel=0.4)


def test_links_are_not_followed(use: DiskUse, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    write(outside / "big", 50 * MIB)
    (tmp_path / "link").symlink_to(outside)
    free: dict[str, int] = use.free  # type: ignore[attr-defined]
    use.begin()
    write(outside / "big2", 50 * MIB)
    free["free"] -= 50 * MIB
    assert use.used() <= 1024, "the link itself"


def test_a_link_that_takes_the_place_of_a_folder_meanwhile_is_not_followed(
    use: DiskUse, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "_ENTRIES", 2)
    outside = tmp_path_factory.mktemp("outside")
    for name in ("a", "b"):
        (tmp_path / name / "below").mkdir(parents=True)
    free: dict[str, int] = use.free  # type: ignore[attr-defined]
    use.begin()
    (outside / "below").mkdir()
    write(outside / "below" / "big", 50 * MIB)
    free["free"] -= 50 * MIB
    use.used()  # the look has seen both folders, and has not been in them
    for name in ("a", "b"):
        (tmp_path / name).rename(tmp_path / f"old {name}")
        (tmp_path / name).symlink_to(outside)
    assert max(use.used() for _ in range(20)) < MIB


def test_no_number_of_other_files_hides_a_large_one(
    use: DiskUse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "_ENTRIES", 10)
    free: dict[str, int] = use.free  # type: ignore[attr-defined]
    for name in range(25):
        (tmp_path / f"{name}").mkdir()
        (tmp_path / f"{name}" / "old").touch()
    use.begin()
    write(tmp_path / "12" / "large", 50 * MIB)
    free["free"] -= 60 * MIB
    seen = [use.used() for _ in range(12)]
    assert 50 * MIB <= seen[-1] < 51 * MIB, "found in one of the looks, and counted once"
    (tmp_path / "12" / "large").unlink()
    free["free"] += 30 * MIB
    assert [use.used() for _ in range(12)][-1] < MIB


def test_empty_files_count_too(use: DiskUse, tmp_path: Path) -> None:
    free: dict[str, int] = use.free  # type: ignore[attr-defined]
    use.begin()
    for name in range(100):
        (tmp_path / f"{name}").symlink_to("x")
    free["free"] -= 9 * MIB
    assert use.used() == 100 * 1024


def test_used_up_entries_count_as_used_up_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = {"f_bfree": 1000, "f_frsize": 4096, "f_ffree": 50_000}
    monkeypatch.setattr(os, "statvfs", lambda _path: SimpleNamespace(**state))
    use = DiskUse([str(tmp_path)])
    use.begin()
    state["f_ffree"] -= 20_000
    assert use.used(interest=10**9) == 20_000 * 1024


class Holder:
    """A process that has a file open which has no name any more."""

    def __init__(self, file: Path) -> None:
        with file.open("ab") as opened:
            self.process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=opened)
        file.unlink()

    def end(self) -> None:
        self.process.communicate()


@pytest.fixture
def held(use: DiskUse, tmp_path: Path) -> Iterator[Holder]:
    if not os.access("/proc/1/fd", os.R_OK):
        pytest.skip("other processes' descriptors are only shown to root")
    use.begin()
    write(tmp_path / "big", 50 * MIB)
    holder = Holder(tmp_path / "big")
    use._processes = lambda: [holder.process.pid]
    yield holder
    holder.end()


def test_a_removed_file_counts_while_it_is_open(use: DiskUse, held: Holder) -> None:
    free: dict[str, int] = use.free  # type: ignore[attr-defined]
    free["free"] -= 50 * MIB
    assert 50 * MIB <= use.used() < 51 * MIB
    free["free"] -= 10 * MIB  # of other programs
    assert use.used() < 51 * MIB
    use.end()
    use.begin()
    assert 50 * MIB <= use.used() < 51 * MIB, "it is still there"
    use.end()
    held.end()  # between two cells, as when the worker is replaced
    use.begin()
    assert use.used() < MIB


def test_a_file_that_has_another_name_counts_once(use: DiskUse, tmp_path: Path, held: Holder) -> None:
    free: dict[str, int] = use.free  # type: ignore[attr-defined]
    write(tmp_path / "a", 20 * MIB)
    os.link(tmp_path / "a", tmp_path / "b")
    with (tmp_path / "a").open("rb"):
        (tmp_path / "a").unlink()
        use._processes = lambda: [os.getpid(), held.process.pid, held.process.pid]
        free["free"] -= 70 * MIB
        assert 70 * MIB <= use.used() < 71 * MIB


def test_too_many_descriptors_give_nothing_back(
    use: DiskUse, held: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    free: dict[str, int] = use.free  # type: ignore[attr-defined]
    free["free"] -= 50 * MIB
    use.end()
    use._processes = lambda: [*[os.getpid()] * 100, held.process.pid]
    looked: list[str] = []
    readlink = os.readlink
    monkeypatch.setattr(disk.os, "readlink", lambda path: looked.append(path) or readlink(path))
    monkeypatch.setattr(disk, "_DESCRIPTORS", 40)
    use.begin()
    assert 50 * MIB <= use.used() < 51 * MIB
    # (It stops at the first one beyond.)
    assert 0 < len(looked) <= 40 + 1, "one look is short, whatever is opened"
