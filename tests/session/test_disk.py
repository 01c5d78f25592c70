"""How much the cells wrote, told apart from what was there and from what others do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

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
    assert use.used() == 0
