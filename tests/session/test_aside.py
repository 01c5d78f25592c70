"""What is not kept is set aside and comes back: whole, only where it belongs, and bounded, whatever code left there."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sandbox_kernel.policy import Policy
from sandbox_kernel.policy_values import DATA_FILES, SECRET_FILES
from sandbox_kernel.session import aside, files, private, shelves
from sandbox_kernel.session.aside import Aside
from sandbox_kernel.session.ending import end_cell
from sandbox_kernel.session.files import FileGate
from sandbox_kernel.session.shelves import Shelves

from .folders import counted_writes


class Later:
    """One session after another over the same folder, each with a layer of its own."""

    def __init__(self, top: Path) -> None:
        self.top, self.work, self.store = top, top / "work", top / "data" / "aside"
        self.work.mkdir()
        self.gates: list[FileGate] = []

    def begin(self, mode: str = "shown", most: int = aside.SHOWN_BYTES) -> Session:
        session = Session(self, len(self.gates))
        self.gates.append(session.gate)
        keeper = Aside(Shelves(str(self.store), str(self.work)), mode=mode, most=most)

        async def begin() -> None:
            session.gate.follow(asyncio.get_running_loop(), lambda: False, keeper)
            await session.gate.refresh()

        asyncio.run(begin())
        return session

    def files(self) -> list[Path]:
        """All that is set aside: files named by numbers."""
        return [path for path in self.store.rglob("*") if path.name.isdecimal()]


class Session:
    def __init__(self, later: Later, number: int) -> None:
        self.layer = later.top / f"layer{number}"
        self.layer.mkdir()
        self.gate = FileGate(
            os.open(self.layer, os.O_PATH | os.O_DIRECTORY), str(later.work), DATA_FILES, hide=SECRET_FILES
        )

    def write(self, **files: str) -> None:
        for name, text in files.items():
            path = self.layer / name.replace("__", "/").replace("_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def tree(self) -> dict[str, str]:
        return {str(p.relative_to(self.layer)): p.read_text() for p in self.layer.rglob("*") if p.is_file()}

    def end(self) -> None:
        self.gate.finish()
        self.gate.close()


@pytest.fixture
def later(tmp_path: Path) -> Iterator[Later]:
    later = Later(tmp_path)
    yield later
    for gate in later.gates:
        gate.close()


def test_what_is_not_kept_is_there_again(later: Later) -> None:
    first = later.begin()
    first.write(mod_py="x = 1", sub__deep__m_pkl="model", out_csv="kept", **{"__pycache____a_pyc": "bytecode"})
    os.utime(first.layer / "mod.py", ns=(5, 7_000_000_001))
    first.end()
    second = later.begin()
    assert second.tree() == {"mod.py": "x = 1", "sub/deep/m.pkl": "model"}
    assert os.stat(second.layer / "mod.py").st_mtime_ns == 7_000_000_001, "Python's importer goes by it"
    assert second.gate.aside is not None
    assert second.gate.aside.news() == (["mod.py", "sub/deep/m.pkl"], [], {})
    assert second.gate.collect().inside == [], "it is nothing new"
    assert {held.why for held in second.gate.held()} == {"made in an earlier session"}


def test_a_folder_whose_name_is_no_text(later: Later) -> None:
    later.work = later.top / os.fsdecode(b"donn\xe9es")
    later.work.mkdir()
    first = later.begin()
    first.write(mod_py="x = 1")
    first.gate.collect()
    first.end()
    assert later.begin().tree() == {"mod.py": "x = 1"}


def test_each_end_of_a_cell_is_enough(later: Later) -> None:
    """As when the front is killed: nothing is done at the end, and the lock falls."""
    first = later.begin()
    first.write(mod_py="1")
    first.gate.collect()
    first.write(mod_py="22")
    first.gate.collect()
    assert first.gate.aside is not None and not first.gate.aside.waiting
    first.gate.close()
    assert later.begin().tree() == {"mod.py": "22"}
    assert len(later.files()) == 1, "what was replaced is removed"


def test_what_is_large_is_copied_after_the_answer(later: Later, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aside, "AT_ONCE_BYTES", 10)
    first = later.begin()
    first.write(a_pkl="x" * 11, b_pkl="x" * 9)
    first.gate.collect()
    assert len(later.files()) == 1 and first.gate.aside is not None and first.gate.aside.waiting
    first.end()
    assert set(later.begin().tree()) == {"a.pkl", "b.pkl"}


def test_telling_does_not_wait_until_all_is_copied(later: Later) -> None:
    """The front's loop tells."""
    keeper = later.begin().gate.aside
    assert keeper is not None
    teller = threading.Thread(target=keeper.news)
    with keeper._lock:  # as while it copies
        teller.start()
        teller.join(20)
        waits = teller.is_alive()
    teller.join()
    assert not waits


def test_a_cell_that_only_removes_what_is_set_aside_is_looked_at_too(later: Later) -> None:
    first = later.begin()
    assert first.gate.changed, "without a layer that counts its files"
    first.gate.lookups = cast(Any, SimpleNamespace(written=False, folders=(), close=lambda: None))
    assert not first.gate.changed
    first.write(a_py="1")
    first.gate.collect()
    assert first.gate.changed
    (first.layer / "a.py").unlink()
    first.gate.collect()
    assert not first.gate.changed and later.files() == []


def test_what_is_removed_or_kept_does_not_come_back(later: Later) -> None:
    first = later.begin()
    first.write(gone_py="1", taken_py="2", stays_py="3")
    first.end()
    second = later.begin()
    (second.layer / "gone.py").unlink()
    second.gate.collect()
    assert second.gate.keep("taken.py") == "" and (later.work / "taken.py").read_text() == "2"
    second.end()
    assert later.begin().tree() == {"stays.py": "3"}


def test_what_the_person_has_done_meanwhile_counts(later: Later) -> None:
    """A file comes back only over what it was made from."""
    for name in ("same.csv", "edited.csv", "removed.csv"):
        (later.work / name).write_text("theirs")
    first = later.begin()
    first.write(same_csv="cell", edited_csv="cell", removed_csv="cell", new_py="cell", folder_py="cell")
    first.end()
    (later.work / "edited.csv").write_text("theirs, later")
    (later.work / "removed.csv").unlink()
    (later.work / "new.py").write_text("theirs")
    second = later.begin()
    assert second.tree() == {"same.csv": "cell", "folder.py": "cell"}
    assert second.gate.aside is not None
    assert second.gate.aside.news()[1] == ["edited.csv", "new.py", "removed.csv"]
    second.end()
    assert len(later.files()) == 5, "the rest stays where it is"


def test_folders_that_shine_through_keep_owner_and_mode(later: Later) -> None:
    (later.work / "own").mkdir(mode=0o750)
    first = later.begin()
    first.write(own__a_py="1", link__b_py="2", file__c_py="3")
    first.end()
    (later.work / "link").symlink_to("/tmp")
    (later.work / "file").write_text("theirs")
    second = later.begin()
    assert second.tree() == {"own/a.py": "1"}
    assert (second.layer / "own").stat().st_mode & 0o777 == 0o750
    assert not os.path.lexists("/tmp/b.py")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
def test_a_folder_of_somebody_else_is_not_opened(later: Later) -> None:
    """One in the layer would have the cells as its owner, and show what is in the one below."""
    first = later.begin()
    first.write(theirs__a_py="1")
    first.end()
    (later.work / "theirs").mkdir(mode=0o700)
    os.chown(later.work / "theirs", 65533, 65533)
    second = later.begin()
    assert not (second.layer / "theirs").exists()


def test_two_kernels_at_once(later: Later) -> None:
    """Each has its own shelf; who comes sees what the others have set aside so far."""
    one = later.begin()
    one.write(a_py="1")
    one.gate.collect()
    two = later.begin()
    assert two.tree() == {"a.py": "1"}
    two.write(a_py="2", b_py="2")
    two.gate.collect()
    one.write(c_py="1")
    one.end()
    two.end()
    assert later.begin().tree() == {"a.py": "2", "b.py": "2", "c.py": "1"}
    assert len(list(later.store.glob("*/*/index"))) == 1, "the shelves of those that have ended are one"


def test_one_session_takes_over_at_a_time(later: Later, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelves, "_WAIT_S", 60.0)  # the machine may be busy
    first = later.begin()
    first.write(a_py="1")
    first.end()
    sessions = [Session(later, n) for n in range(10, 14)]

    def start(session: Session) -> None:
        keeper = Aside(Shelves(str(later.store), str(later.work)))
        later.gates.append(session.gate)

        async def begin() -> None:
            session.gate.follow(asyncio.get_running_loop(), lambda: False, keeper)
            await session.gate.refresh()

        asyncio.run(begin())

    at_once = [threading.Thread(target=start, args=[session]) for session in sessions]
    for thread in at_once:
        thread.start()
    for thread in at_once:
        thread.join()
    assert [session.tree() for session in sessions] == [{"a.py": "1"}] * 4


def test_only_ordinary_files_and_no_links(later: Later) -> None:
    secret = later.top / "secret"
    secret.write_text("of the host")
    first = later.begin()
    os.symlink(secret, first.layer / "l.py")
    os.symlink(later.top, first.layer / "door")
    os.mkfifo(first.layer / "fifo.py")
    os.mkdir(os.fsencode(first.layer) + b"/\xff")
    (first.layer / os.fsdecode(b"\xff") / "a.py").write_text("no text")
    first.write(n_py="1")
    (first.layer / "n\n.py").write_text("2")
    first.end()
    second = later.begin()
    assert second.tree() == {"n.py": "1", "n\n.py": "2"}
    assert sorted(path.read_text() for path in later.files()) == ["1", "2"]


def test_a_hostile_index_leads_nowhere(later: Later) -> None:
    """No cell can write it; if one could, it would name what it likes."""
    first = later.begin()
    first.write(a_py="1", b_py="2", c_py="3")
    first.end()
    (index,) = later.store.glob("*/*/index")
    text, shelf = index.read_text(), index.parent
    shutil.copytree(shelf, later.top / "saved")

    def begin_with(text: str) -> dict[str, str]:
        shutil.rmtree(shelf, ignore_errors=True)
        shutil.copytree(later.top / "saved", shelf, symlinks=True)
        index.write_text(text)
        session = later.begin()
        found = session.tree()
        session.gate.close()
        return found

    before = sorted(os.listdir(later.top))
    for name in ("../out.py", "../../out.py", "/etc/x", "a/../../out", "a//b", "", ".", "x\\u0000y", "z" * 300):
        assert begin_with(text.replace('"a.py"', f'"{name}"')) == {"b.py": "2", "c.py": "3"}
    for junk in ("", "[", "{}", '{"folder": "", "files": [{}]}', "\xff", text.replace('"a.py"', '"\\ud800"')):
        assert begin_with(junk) == {}
    (number,) = (str(file["number"]) for file in json.loads(text)["files"] if file["name"] == "b.py")
    (later.top / "saved" / number).unlink()
    (later.top / "saved" / number).symlink_to("/etc/hostname")
    assert set(begin_with(text)) == {"a.py", "c.py"}
    assert os.listdir(later.work) == []
    assert all(name.startswith("layer") for name in {*os.listdir(later.top)} - {*before})


def test_there_are_bounds(later: Later, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelves, "FILES", 3)
    monkeypatch.setattr(shelves, "FILE_BYTES", 100)
    first = later.begin()
    first.write(a_py="1" * 60, b_py="2" * 60, c_py="3", d_py="4", e_py="5")
    first.gate.collect()
    assert first.gate.aside is not None
    lost = first.gate.aside.news()[2]
    assert len(lost) == 2 and set(lost.values()) == {"too much was kept already"}
    first.gate.collect()
    assert first.gate.aside.news()[2] == {}, "that is told once"
    first.end()
    assert len(later.begin(most=5).tree()) < 3, "what fills the layer stays outside"


def test_files_full_of_holes_cost_the_disk_no_more_than_what_is_set_aside(
    later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They cost the cells nothing, however many they are, and a copy has no holes."""
    monkeypatch.setattr(shelves, "FILE_BYTES", 4 << 20)
    first = later.begin()
    for number in range(20):
        (first.layer / f"{number}.py").touch()
        os.truncate(first.layer / f"{number}.py", 3 << 20)
    with counted_writes(monkeypatch) as written:
        first.end()
    assert sum(written) == 3 << 20 and len(later.files()) == 1


def test_a_shelf_whose_index_cannot_be_read_stays(later: Later) -> None:
    """Of a later version, say. Nobody knows what lies there: so nothing of it is removed before it is old."""
    first = later.begin()
    first.write(a_py="1")
    first.end()
    (index,) = later.store.glob("*/*/index")
    saved = index.read_text()
    index.write_text(saved.replace('"when"', '"since"'))
    second = later.begin()
    second.write(b_py="2")
    second.end()
    third = later.begin()
    assert third.tree() == {"b.py": "2"}
    third.end()
    index.write_text(saved)
    assert later.begin().tree() == {"a.py": "1", "b.py": "2"}


@pytest.mark.parametrize("moves", [True, False])
def test_no_file_is_lost_where_there_are_no_links(later: Later, monkeypatch: pytest.MonkeyPatch, moves: bool) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    one, two = later.begin(), later.begin()
    one.write(a_py="1")
    two.write(b_py="2")
    one.end()
    two.end()
    monkeypatch.setattr(private.os, "link", refused)
    if not moves:
        monkeypatch.setattr(private.os, "rename", refused)
    third = later.begin()
    if moves:
        assert third.tree() == {"a.py": "1", "b.py": "2"}
    monkeypatch.undo()
    third.end()
    assert later.begin().tree() == {"a.py": "1", "b.py": "2"}


def test_a_shelf_that_somebody_removes_is_missed(later: Later) -> None:
    first = later.begin()
    first.write(a_py="1")
    first.gate.collect()
    shutil.rmtree(later.store)
    first.write(b_py="2")
    first.gate.collect()
    assert first.gate.aside is not None
    lost = first.gate.aside.news()[2]
    assert lost.pop("b.py") == "there is no folder for that"


def test_a_fault_of_the_file_gate_does_not_keep_a_cell_from_ending(
    later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ValueError

    gate = later.begin().gate
    monkeypatch.setattr(gate, "collect", fail)
    session = SimpleNamespace(files=gate, supervisor=SimpleNamespace(level="full", details={}))
    said, _ = asyncio.run(end_cell(cast(Any, session), [], [], None))
    assert said == "[Only inside the sandbox (a fault of the sandbox: ValueError): files of this cell]\n"


def test_what_nobody_looks_at_is_told(later: Later, monkeypatch: pytest.MonkeyPatch) -> None:
    first = later.begin()
    assert first.gate.aside is not None
    first.write(a_py="1", **{"d__" * 7 + "last_py": "2"})
    first.gate.collect()
    assert first.gate.aside.news()[2] == {}
    first.write(**{"d__" * 8 + "deep_py": "3"})
    first.gate.collect()
    first.gate.collect()
    assert list(first.gate.aside.news()[2]) == ["others"]
    first.gate.collect()
    assert first.gate.aside.news()[2] == {}, "that is told once"
    monkeypatch.setattr(files, "ENTRIES", 3)
    first.gate.collect()
    assert first.gate.aside.news()[2] == {}
    shutil.rmtree(first.layer / "d")
    first.gate.collect()
    first.write(b_py="4", c_py="5", e_py="6")
    first.gate.collect()
    assert list(first.gate.aside.news()[2]) == ["others"]


def test_old_shelves_go_first(later: Later, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelves, "SHELVES", 2)
    others = [Later(later.top / name) for name in ("old", "new", "older") if not (later.top / name).mkdir()]
    for age, other in zip((200, 100, 300), others, strict=True):
        other.store = later.store
        session = other.begin()
        session.write(a_py="1")
        session.end()
        index = max(later.store.glob("*/*/index"), key=lambda path: path.stat().st_mtime_ns)
        os.utime(index, (time.time() - age, time.time() - age))
    live = later.begin()
    live.write(mine_py="1")
    live.end()
    later.begin()
    assert [bool(other.begin().tree()) for other in others] == [False, True, False]
    for other in others:
        for gate in other.gates:
            gate.close()
    monkeypatch.setattr(shelves, "AGE_S", -1)
    assert later.begin().tree() == {"mine.py": "1"}, "not what a session has"
    assert len(list(later.store.glob("*/*/index"))) == 1


@pytest.mark.parametrize("mode", ["none", "stored", "shown"])
def test_a_policy_decides(later: Later, mode: str, tmp_path: Path) -> None:
    policy = Policy.from_tables({"files": {"workspace": "overlay", "aside": mode}})
    found = Aside.of(policy, str(later.work), {"HOME": str(tmp_path)})
    assert (found.mode if found is not None else "none") == mode
    for other in ("none", "read-only", "read-write"):
        assert Aside.of(Policy.from_tables({"files": {"workspace": other}}), str(later.work), {"HOME": "/root"}) is None
    if mode == "stored":
        first = later.begin(mode)
        first.write(a_py="1")
        first.end()
        second = later.begin(mode)
        assert second.tree() == {} and second.gate.aside is not None and second.gate.aside.unseen == ["a.py"]
        second.end()
        assert len(later.files()) == 1


def test_never_where_cells_could_see_it(tmp_path: Path) -> None:
    shown = Policy.from_tables({"files": {"workspace": "overlay", "hide": []}})
    hidden = Policy.from_tables({"files": {"workspace": "overlay"}})
    assert Aside.of(shown, str(tmp_path), {"HOME": str(tmp_path)}) is None
    assert Aside.of(hidden, str(tmp_path), {"HOME": str(tmp_path)}) is not None, "in .local"
    assert Aside.of(hidden, str(tmp_path), {"XDG_DATA_HOME": str(tmp_path / "data")}) is None


def test_no_home_is_made(tmp_path: Path) -> None:
    policy = Policy.from_tables({"files": {"workspace": "overlay"}})
    assert Aside.of(policy, str(tmp_path), {"HOME": str(tmp_path / "nobody's")}) is None


@pytest.mark.parametrize("spoil", [
    lambda store: store.chmod(0o755), lambda store: (shutil.rmtree(store), store.write_text("no folder")),
    lambda store: (shutil.move(store, f"{store}2"), store.symlink_to(f"{store}2")),
])  # fmt: skip
def test_a_folder_that_is_not_private_is_not_used(later: Later, spoil: Callable[[Path], object]) -> None:
    first = later.begin()
    first.write(a_py="1")
    first.end()
    spoil(later.store)
    second = later.begin()
    assert second.tree() == {}
    second.write(b_py="2")
    second.gate.collect()
    assert second.gate.aside is not None and list(second.gate.aside.news()[2]) == ["b.py"]
