"""The notebook's folder in a private one: what appears, and that nothing hostile code does there reaches outside."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox_kernel.policy_values import DATA_FILES, SECRET_FILES
from sandbox_kernel.session import mirror as mirrors
from sandbox_kernel.session.files import FileGate
from sandbox_kernel.session.mirror import Mirror
from sandbox_kernel.session.seen import Seen

from .folders import Folders

SECRET = "secret of the host"


class Place(Folders):
    """The notebook's folder, the private one, and a folder beside both that no cell may reach."""

    def __init__(self, folder: Path, *, linked: bool = True) -> None:
        self.work, self.cell, self.outside = folder / "work", folder / "cell", folder / "outside"
        for path in (self.work, self.cell, self.outside, self.work / "sub"):
            path.mkdir()
        (self.outside / "key.txt").write_text(SECRET)
        (self.work / "data.csv").write_text("theirs")
        (self.work / "sub" / "inner.csv").write_text("inner")
        (self.work / ".env").write_text(SECRET)
        self.linked = linked

    def begin(self) -> None:
        top = os.open(self.cell, os.O_PATH | os.O_DIRECTORY)
        granted = None if self.linked else [str(self.work / "data.csv"), str(self.work / "sub")]
        self.mirror = Mirror(os.dup(top), str(self.work), SECRET_FILES, granted=granted)
        self.mirror.refresh()
        self.gate = FileGate(top, str(self.work), DATA_FILES, mirror=self.mirror)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    place.begin()
    yield place
    place.gate.close()


@pytest.fixture
def apart(tmp_path: Path) -> Iterator[Place]:
    """As with Landlock rules for each entry."""
    place = Place(tmp_path, linked=False)
    place.begin()
    yield place
    place.gate.close()


def test_files_appear_as_links_and_folders_as_folders(place: Place) -> None:
    assert sorted(os.listdir(place.cell)) == ["data.csv", "sub"]
    assert os.readlink(place.cell / "sub" / "inner.csv") == str(place.work / "sub" / "inner.csv")
    assert not (place.cell / "sub").is_symlink()
    assert place.collect() == (set(), {}), "what appears by itself is no news"


def test_new_files_are_kept_and_what_is_there_is_not_written(place: Place) -> None:
    (place.cell / "out.csv").write_text("1")
    (place.cell / "sub" / "out.csv").write_text("2")
    (place.cell / "data.csv").unlink()
    (place.cell / "data.csv").write_text("cell's")
    kept, inside = place.collect()
    assert kept == {"out.csv", "sub/out.csv"} and set(inside) == {"data.csv"}
    assert (place.work / "data.csv").read_text() == "theirs" and (place.work / "sub" / "out.csv").read_text() == "2"


def test_what_comes_later_appears_and_secrets_do_not(place: Place) -> None:
    (place.work / "later.csv").write_text("later")
    (place.work / ".git").mkdir()
    (place.work / "sub" / "id_rsa").write_text(SECRET)
    (place.work / "new").mkdir()
    (place.work / "new" / "a.csv").write_text("a")
    place.mirror.refresh()
    assert sorted(os.listdir(place.cell)) == ["data.csv", "later.csv", "new", "sub"]
    assert os.listdir(place.cell / "sub") == ["inner.csv"] and (place.cell / "new" / "a.csv").read_text() == "a"


def test_what_the_cells_removed_stays_away(place: Place) -> None:
    (place.cell / "data.csv").unlink()
    (place.work / "later.csv").touch()
    place.mirror.refresh()
    assert sorted(os.listdir(place.cell)) == ["later.csv", "sub"]


def test_a_kept_file_stays_the_cells_own(place: Place) -> None:
    (place.cell / "out.csv").write_text("1")
    place.collect()
    place.mirror.refresh()
    (place.cell / "out.csv").write_text("22")
    assert place.collect()[0] == {"out.csv"} and (place.work / "out.csv").read_text() == "22"


def test_what_no_rule_covers_comes_as_a_copy(apart: Place) -> None:
    (apart.work / "later.csv").write_text("later")
    apart.mirror.refresh()
    copy = apart.cell / "later.csv"
    assert copy.read_text() == "later" and not copy.is_symlink() and (apart.cell / "data.csv").is_symlink()
    (apart.work / "later.csv").write_text("changed")
    apart.mirror.refresh()
    assert copy.read_text() == "changed" and apart.collect() == (set(), {})
    copy.write_text("the cell's")
    (apart.work / "later.csv").write_text("changed again")
    apart.mirror.refresh()
    assert copy.read_text() == "the cell's"
    assert set(apart.collect()[1]) == {"later.csv"} and (apart.work / "later.csv").read_text() == "changed again"


def test_a_copy_goes_with_its_original(apart: Place) -> None:
    for name in ("gone.csv", "taken.csv"):
        (apart.work / name).write_text("later")
    apart.mirror.refresh()
    (apart.cell / "taken.csv").write_text("the cell's")
    for name in ("gone.csv", "taken.csv"):
        (apart.work / name).unlink()
    apart.mirror.refresh()
    assert not (apart.cell / "gone.csv").exists() and (apart.cell / "taken.csv").read_text() == "the cell's"
    (apart.work / "gone.csv").write_text("back")
    apart.mirror.refresh()
    assert (apart.cell / "gone.csv").read_text() == "back"


def test_names_as_long_as_they_may_be_come_as_copies(apart: Place) -> None:
    name = "\u4e2d" * 83 + ".csv"
    for text in ("later", "changed"):
        (apart.work / name).write_text(text)
        apart.mirror.refresh()
        assert (apart.cell / name).read_text() == text


def test_a_replaced_file_is_read_again(apart: Place) -> None:
    """Editors write a new file and give it the old name: the rule still means the old one."""
    (apart.work / "draft").write_text("new")
    os.replace(apart.work / "draft", apart.work / "data.csv")
    apart.mirror.refresh()
    assert (apart.cell / "data.csv").read_text() == "new" and not (apart.cell / "data.csv").is_symlink()


def test_a_link_to_what_is_gone_goes(place: Place) -> None:
    (place.cell / "sub" / "inner.csv").unlink()
    (place.cell / "sub" / "inner.csv").write_text("the cell's")
    for name in ("data.csv", "sub/inner.csv"):
        (place.work / name).unlink()
    place.mirror.refresh()
    assert sorted(os.listdir(place.cell)) == ["sub"] and (place.cell / "sub" / "inner.csv").read_text() == "the cell's"
    (place.work / "data.csv").write_text("back")
    place.mirror.refresh()
    assert (place.cell / "data.csv").read_text() == "back"


def test_what_cells_made_earlier_they_can_make_anew(tmp_path: Path) -> None:
    """Else a notebook that is run again would end where it writes its results."""
    place = Place(tmp_path)
    place.begin()
    for name in ("out.csv", "sub/out.csv"):
        (place.cell / name).write_text("first")
    place.collect()
    place.gate.close()
    if not Seen.of((place.work / "out.csv").stat()).marked(str(place.work / "out.csv")):
        pytest.skip("this file system has no such attributes")
    (place.work / "sub" / "out.csv").write_text("the person's")
    shutil.rmtree(place.cell)
    place.cell.mkdir()
    place.begin()
    assert (place.cell / "sub" / "out.csv").is_symlink() and (place.cell / "out.csv").read_text() == "first"
    assert place.collect() == (set(), {})
    (place.cell / "out.csv").write_text("second")
    assert place.collect()[0] == {"out.csv"} and (place.work / "out.csv").read_text() == "second"
    (place.work / "out.csv").write_text("the person's")
    asyncio.run(place.gate.refresh())
    assert (place.cell / "out.csv").read_text() == "the person's"
    place.gate.close()


def test_a_cell_that_waits_for_a_file_sees_it(place: Place) -> None:
    async def wait() -> None:
        busy = False
        place.gate.follow(asyncio.get_running_loop(), lambda: busy)
        (place.work / "later.csv").touch()
        busy = True
        while not (place.cell / "later.csv").exists():
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(wait(), 60))


def test_links_of_the_person_lead_where_their_rules_lead(apart: Place) -> None:
    """They are never copied: the front may read what the cells may not."""
    (apart.work / "door.csv").symlink_to(apart.outside / "key.txt")
    apart.mirror.refresh()
    assert os.readlink(apart.cell / "door.csv") == str(apart.work / "door.csv")


def _swap(place: Place, target: Path) -> None:
    os.rename(place.cell / "sub", place.cell / "old")
    (place.cell / "sub").symlink_to(target)


HOSTILE: dict[str, Callable[[Place], object]] = {
    "a folder becomes a link outside": lambda p: _swap(p, p.outside),
    "a folder becomes a link to the original": lambda p: _swap(p, p.work / "sub"),
    "a folder becomes a link up": lambda p: _swap(p, Path("..")),
    "a folder becomes a file": lambda p: (os.rename(p.cell / "sub", p.cell / "old"), (p.cell / "sub").touch()),
    "a folder becomes a FIFO": lambda p: (os.rename(p.cell / "sub", p.cell / "old"), os.mkfifo(p.cell / "sub")),
    "a link to the secret where a file will come": lambda p: (p.cell / "later.csv").symlink_to(p.outside / "key.txt"),
    "a link to nowhere where a file will come": lambda p: (p.cell / "later.csv").symlink_to(p.outside / "made.txt"),
    "a FIFO where a file will come": lambda p: os.mkfifo(p.cell / "later.csv"),
    "a folder where a file will come": lambda p: (p.cell / "later.csv").mkdir(),
    "a copy becomes a link": lambda p: (p.cell / "data.csv").unlink() or (
        (p.cell / "data.csv").symlink_to(p.outside / "key.txt")),
    "no rights on the folder": lambda p: (p.cell / "sub").chmod(0),
    "the folder is gone": lambda p: [f.unlink() for f in (p.cell / "sub").iterdir()] and (p.cell / "sub").rmdir(),
    "links for every later name": lambda p: [(p.cell / f"later{n}.csv").symlink_to(p.outside / "x") for n in range(50)],
}  # fmt: skip


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("case", HOSTILE)
def test_nothing_outside_changes(tmp_path: Path, case: str, linked: bool) -> None:
    place = Place(tmp_path, linked=linked)
    place.begin()
    HOSTILE[case](place)
    for name in ("later.csv", "sub/later.csv", *(f"later{n}.csv" for n in range(50))):
        (place.work / name).write_text("later")
    os.replace(place.work / "later0.csv", place.work / "data.csv")
    before = place.tree()
    place.mirror.refresh()
    kept, _ = place.collect()
    (place.cell / "sub").is_dir() and not (place.cell / "sub").is_symlink() and (place.cell / "sub").chmod(0o755)
    place.gate.close()
    assert place.tree() == before and kept == set()
    secret = [path for path in place.cell.rglob("*") if path.is_file() and not path.is_symlink()
              and SECRET in path.read_text()]  # fmt: skip
    assert not secret


def test_swapped_while_it_is_copied(apart: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = os.read, []

    def swap(fd: int, count: int) -> bytes:
        if not calls:
            os.rename(apart.cell / "sub", apart.cell / "moved")
            (apart.cell / "sub").symlink_to(apart.outside)
        calls.append(1)
        return real(fd, count)

    (apart.work / "sub" / "x.csv").write_text("x")
    (apart.work / "y.csv").write_text("y")
    monkeypatch.setattr(os, "read", swap)
    apart.mirror.refresh()
    assert calls and os.listdir(apart.outside) == ["key.txt"]


def test_a_file_that_the_cells_user_cannot_read_is_not_copied(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only a front that runs as root has cells of another user")
    place = Place(tmp_path)
    for name, mode in (("private.csv", 0o600), ("open.csv", 0o644)):
        (place.work / name).write_text(SECRET)
        (place.work / name).chmod(mode)
    top = os.open(place.cell, os.O_PATH | os.O_DIRECTORY)
    mirror = Mirror(top, str(place.work), (), granted=[], owner=(12345, 12345))
    mirror.refresh()
    assert (place.cell / "open.csv").stat().st_uid == 12345 and not (place.cell / "private.csv").exists()
    mirror.close()


@pytest.mark.parametrize(("name", "value"), [("ENTRIES", 10), ("COPY_BYTES", 3), ("COPIES_BYTES", 3)])
def test_the_whole_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: int) -> None:
    monkeypatch.setattr(mirrors, name, value)
    place = Place(tmp_path)
    for n in range(50):
        (place.work / f"{n}.csv").write_text("xx")
    (place.work / "large.csv").write_text("large" * 100)
    mirror = Mirror(os.open(place.cell, os.O_PATH | os.O_DIRECTORY), str(place.work), (), granted=[])
    mirror.refresh()
    found = [path for path in place.cell.rglob("*") if path.is_file()]
    assert len(found) <= 10 if name == "ENTRIES" else sum(p.stat().st_size for p in found) <= 103
    assert not (place.cell / "large.csv").exists() or name == "ENTRIES"
    mirror.close()


def test_a_large_folder_is_one_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirrors, "ENTRIES", 40)
    place = Place(tmp_path)
    (place.work / "many").mkdir()
    for n in range(30):
        (place.work / "many" / f"{n}.csv").touch()
    place.begin()
    assert os.readlink(place.cell / "many") == str(place.work / "many") and not (place.cell / "sub").is_symlink()
    place.gate.close()
