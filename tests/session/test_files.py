"""The file gate against trees that hostile code may leave in the layer: nothing outside changes but by its rules."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from sandbox_kernel.policy_values import DATA_FILES, SECRET_FILES
from sandbox_kernel.report import CAN_BE_KEPT
from sandbox_kernel.session import files, kept
from sandbox_kernel.session.files import FileGate

from .folders import Folders, counted_writes

SECRET = "secret of the host"


class Place(Folders):
    """A layer, the notebook's folder, and a folder beside both that no cell may reach."""

    def __init__(self, folder: Path) -> None:
        self.layer, self.work, self.outside = folder / "layer", folder / "work", folder / "outside"
        for path in (self.layer, self.work, self.outside):
            path.mkdir()
        (self.outside / "key.txt").write_text(SECRET)
        layer = os.open(self.layer, os.O_PATH | os.O_DIRECTORY)
        self.gate = FileGate(layer, str(self.work), DATA_FILES, hide=SECRET_FILES)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.gate.close()


def test_new_data_is_kept_whole_and_only_once(place: Place) -> None:
    (place.layer / "out.csv").write_text("a,b")
    (place.layer / "sub").mkdir()
    (place.layer / "sub" / "plot.PNG").write_text("picture")
    assert place.collect() == ({"out.csv", "sub/plot.PNG"}, {})
    assert place.collect() == (set(), {})
    assert place.tree() == {
        "work/out.csv": "a,b", "work/sub": "folder", "work/sub/plot.PNG": "picture", "outside/key.txt": SECRET,
    }  # fmt: skip


def test_an_own_file_is_brought_up_to_date(place: Place) -> None:
    for text in ("1", "12", "3"):
        (place.layer / "out.csv").write_text(text)
        assert place.collect()[0] == {"out.csv"}
        assert (place.work / "out.csv").read_text() == text
    assert os.listdir(place.work) == ["out.csv"], "no spare is left"


@pytest.fixture
def marks(tmp_path: Path) -> None:
    """Where files can be marked."""
    try:
        os.setxattr(tmp_path, "user.sandbox_kernel.kept", b"")
    except OSError:
        pytest.skip("this file system has no such attributes")


@pytest.mark.usefixtures("marks")
def test_a_later_session_knows_what_a_sandbox_made(place: Place, tmp_path: Path) -> None:
    """A notebook that is run again finds its own results; what the person made of them stays."""
    names = ("same", "edited", "edited in place", "copied", "linked")
    for name in names:
        (place.layer / f"{name}.csv").write_text("first")
    assert len(place.collect()[0]) == len(names)
    (place.work / "draft").write_text("theirs")
    os.replace(place.work / "draft", place.work / "edited.csv")
    (place.work / "edited in place.csv").write_text("theirs")
    shutil.copy2(place.work / "copied.csv", place.work / "draft")  # with its attributes
    os.replace(place.work / "draft", place.work / "copied.csv")
    (place.work / "linked.csv").unlink()
    (place.work / "linked.csv").symlink_to("same.csv")
    for name in names:
        (place.layer / f"{name}.csv").unlink()
        (place.layer / f"{name}.csv").write_text("second")
    top = os.open(place.layer, os.O_PATH | os.O_DIRECTORY)
    later = FileGate(top, str(place.work), DATA_FILES)
    try:
        report = later.collect()
    finally:
        later.close()
    assert report.kept == ["same.csv"] and {why for _, why in report.inside} == {CAN_BE_KEPT[1]}
    texts = {name: (place.work / f"{name}.csv").read_text() for name in names}
    assert texts == {
        "same": "second", "edited": "theirs", "edited in place": "theirs", "copied": "first", "linked": "second",
    }  # fmt: skip


def test_a_file_that_is_written_again_and_again_counts_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "KEPT_BYTES", 1000)
    for n in range(20):
        (place.layer / "a.csv").write_text(str(n % 10) * (500 + n))
        assert place.collect() == ({"a.csv"}, {})
    (place.layer / "b.csv").write_text("x" * 600)
    assert place.collect() == (set(), {"b.csv": "too much was kept already"})


def test_a_person_has_a_file_replaced(place: Place) -> None:
    for name in ("a.csv", "b.csv"):
        (place.work / name).write_text("theirs")
        (place.layer / name).write_text("cell's")
    (place.work / "b.csv").unlink()
    (place.work / "b.csv").symlink_to(place.outside / "key.txt")
    assert set(place.collect()[1]) == {"a.csv", "b.csv"}
    assert place.gate.keep("a.csv") and (place.work / "a.csv").read_text() == "theirs"
    assert place.gate.keep("a.csv", over=True) == "" and (place.work / "a.csv").read_text() == "cell's"
    assert place.gate.keep("b.csv", over=True) and (place.outside / "key.txt").read_text() == SECRET, "no link"


def test_what_the_person_changed_is_what_cells_have(place: Place) -> None:
    """As long as they have not changed it, too."""
    names = ("edited", "removed", "both", "same", "open")
    for name in names:
        (place.layer / f"{name}.csv").write_text("kept")
    place.collect()
    (place.work / "removed.csv").unlink()
    for name in ("edited", "both"):
        (place.work / f"{name}.csv").write_text("the person's")
    (place.layer / "both.csv").write_text("the cell's")
    asyncio.run(place.gate.refresh())
    assert sorted(os.listdir(place.layer)) == ["both.csv", "open.csv", "same.csv"]
    assert place.collect()[1].keys() == {"both.csv"} and (place.work / "both.csv").read_text() == "the person's"
    (place.layer / "edited.csv").write_text("the cell's")  # in the folder, as far as a cell can see
    assert place.collect()[1].keys() == {"edited.csv"}


def test_a_disk_that_gives_no_answer_takes_nothing_away(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.layer / "a.csv").write_text("kept")
    place.collect()

    def fail(*_: object) -> int:
        raise OSError(errno.ESTALE, "Stale file handle")

    with monkeypatch.context() as broken:
        broken.setattr(kept, "descend", fail)
        asyncio.run(place.gate.refresh())
    assert os.listdir(place.layer) == ["a.csv"]


def test_each_file_is_told_once(place: Place) -> None:
    def told() -> tuple[list[str], list[str], bool]:
        news, how = place.gate.news(place.gate.collect())
        return sorted(news.kept), sorted(path for path, _ in news.inside), how

    (place.layer / "a.csv").write_text("1")
    _deep(place.layer, "__pycache__/b.pyc")
    assert told() == (["a.csv"], [], False)
    (place.layer / "a.csv").write_text("22")
    (place.layer / "b.py").write_text("1")
    assert told() == ([], ["b.py"], True)
    (place.layer / "b.py").write_text("22")
    (place.layer / "c.py").write_text("1")
    assert told() == ([], ["c.py"], False)


def test_a_file_of_the_person_is_never_written(place: Place) -> None:
    (place.work / "data.csv").write_text("theirs")
    (place.layer / "data.csv").write_text("cell's")
    assert "not the sandbox's" in place.collect()[1]["data.csv"]
    assert (place.work / "data.csv").read_text() == "theirs"


@pytest.mark.parametrize("how", ["edited", "replaced", "same size", "became a link", "became a folder"])
def test_a_kept_file_that_the_person_has_touched_is_theirs(place: Place, how: str) -> None:
    (place.layer / "out.csv").write_text("1234")
    place.collect()
    mine = place.work / "out.csv"
    if how == "edited":
        mine.write_text("longer than before")
    elif how == "same size":
        mine.write_text("abcd")
    else:
        mine.unlink()
        if how == "replaced":
            mine.write_text("abcd")
        elif how == "became a link":
            mine.symlink_to(place.outside / "key.txt")
        else:
            mine.mkdir()
    before = place.tree()
    (place.layer / "out.csv").write_text("newer")
    assert "out.csv" in place.collect()[1]
    assert place.tree() == before


def test_a_removed_one_comes_back_with_the_next_change_only(place: Place) -> None:
    (place.layer / "out.csv").write_text("1")
    place.collect()
    (place.work / "out.csv").unlink()
    place.collect()
    assert os.listdir(place.work) == []
    (place.layer / "out.csv").write_text("22")
    assert place.collect()[0] == {"out.csv"}


HOSTILE: dict[str, Callable[[Place], object]] = {
    "link to a secret": lambda p: (p.layer / "a.csv").symlink_to(p.outside / "key.txt"),
    "link that leads nowhere": lambda p: (p.layer / "a.csv").symlink_to("/nonexistent/x.csv"),
    "link to itself": lambda p: (p.layer / "a.csv").symlink_to("a.csv"),
    "folder that is a link outside": lambda p: (p.layer / "sub").symlink_to(p.outside),
    "link up": lambda p: (p.layer / "up").symlink_to(".."),
    "link into /proc": lambda p: (p.layer / "a.csv").symlink_to("/proc/self/environ"),
    "FIFO": lambda p: os.mkfifo(p.layer / "a.csv"),
    "socket": lambda p: _socket(p.layer / "a.csv"),
    "dot file": lambda p: (p.layer / ".a.csv").write_text("x"),
    "dot folder": lambda p: _deep(p.layer, ".ssh/a.csv"),
    "git hook": lambda p: _deep(p.layer, ".git/hooks/a.txt"),
    "start-up module": lambda p: (p.layer / "sitecustomize.py").write_text("x"),
    "path file": lambda p: (p.layer / "a.pth").write_text("x"),
    "notebook": lambda p: (p.layer / "a.ipynb").write_text("x"),
    "script": lambda p: (p.layer / "a.sh").write_text("x"),
    "shared library": lambda p: (p.layer / "a.so").write_text("x"),
    "page": lambda p: (p.layer / "a.html").write_text("x"),
    "drawing with scripts": lambda p: (p.layer / "a.svg").write_text("x"),
    "desktop file": lambda p: (p.layer / "a.desktop").write_text("x"),
    "Makefile": lambda p: (p.layer / "Makefile").write_text("x"),
    "two endings": lambda p: (p.layer / "a.csv.py").write_text("x"),
    "space after the ending": lambda p: (p.layer / "a.csv ").write_text("x"),
    "newline in the name": lambda p: (p.layer / "a\n.csv").write_text("x"),
    "escape sequence in the name": lambda p: (p.layer / "\x1b]0;x\x07.csv").write_text("x"),
    "right-to-left name": lambda p: (p.layer / "a\u202evsc.csv").write_text("x"),
    "zero-width name": lambda p: (p.layer / "a\u200b.csv").write_text("x"),
    "no UTF-8": lambda p: Path(os.fsdecode(os.fsencode(p.layer) + b"/a\xff.csv")).write_text("x"),
    "option-like name": lambda p: (p.layer / "-rf.csv").write_text("x"),
    "home-like name": lambda p: (p.layer / "~root.csv").write_text("x"),
    "whiteout": lambda p: _whiteout(p.layer / "a.csv"),
    "huge and sparse": lambda p: os.truncate(_touch(p.layer / "a.csv"), 1 << 40),
    "too deep": lambda p: _deep(p.layer, "/".join(["d"] * 40) + "/a.csv"),
    "folder whose name is hidden": lambda p: _deep(p.layer, "K0.pem/a.csv"),
    "folder in a folder whose name is hidden": lambda p: _deep(p.layer, "sub/credentials/more/a.csv"),
    "file whose name is hidden": lambda p: (p.layer / "token.json").write_text("x"),
    "folder named as a file": lambda p: (p.layer / "a.csv").mkdir(),
}


def _touch(path: Path) -> Path:
    path.touch()
    return path


def _deep(top: Path, name: str) -> None:
    (top / name).parent.mkdir(parents=True, exist_ok=True)
    (top / name).write_text("x")


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(path))


def _whiteout(path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root makes device files")
    os.mknod(path, 0o020000, 0)


@pytest.mark.parametrize("case", HOSTILE)
def test_nothing_is_kept_of(place: Place, case: str) -> None:
    before = place.tree()
    HOSTILE[case](place)
    assert place.collect()[0] == set()
    assert place.tree() == before


def test_links_on_the_disk_are_not_followed(place: Place) -> None:
    (place.work / "sub").symlink_to(place.outside)
    _deep(place.layer, "sub/key.csv")
    assert place.collect()[1] == {"sub/key.csv": "there is no folder of that name"}
    assert os.listdir(place.outside) == ["key.txt"]


def test_a_file_where_the_folder_would_be(place: Place) -> None:
    (place.work / "sub").write_text("file")
    _deep(place.layer, "sub/a.csv")
    assert place.collect()[0] == set() and (place.work / "sub").read_text() == "file"


def test_case_games_cannot_take_a_persons_file(place: Place) -> None:
    (place.work / "Data.csv").write_text("theirs")
    (place.layer / "data.csv").write_text("cell's")
    place.collect()
    assert (place.work / "Data.csv").read_text() == "theirs"


def test_hard_links_are_copies(place: Place) -> None:
    (place.layer / "a.csv").write_text("x")
    os.link(place.layer / "a.csv", place.layer / "b.csv")
    place.collect()
    assert (place.work / "a.csv").stat().st_nlink == 1


def test_modes_of_the_layer_do_not_cross(place: Place) -> None:
    (place.layer / "a.csv").write_text("x")
    (place.layer / "a.csv").chmod(0o6777)
    place.collect()
    assert (place.work / "a.csv").stat().st_mode & 0o7133 == 0


def test_swapped_for_a_link_between_look_and_copy(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.layer / "a.csv").write_text("x")
    real = FileGate._refusal

    def swap(gate: FileGate, names: tuple[str, ...], found: os.stat_result, *, asked: bool) -> str:
        (place.layer / "a.csv").unlink()
        (place.layer / "a.csv").symlink_to(place.outside / "key.txt")
        return real(gate, names, found, asked=asked)

    monkeypatch.setattr(FileGate, "_refusal", swap)
    assert place.collect() == (set(), {"a.csv": "there is a link in its path"})
    assert os.listdir(place.work) == []


def test_growing_while_it_is_read(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "KEPT_BYTES", 1000)
    monkeypatch.setattr(kept, "_CHUNK", 100)
    (place.layer / "a.csv").write_text("x" * 500)
    real = os.read

    def grow(fd: int, count: int) -> bytes:
        with open(place.layer / "a.csv", "a") as file:
            file.write("y" * 200)
        return real(fd, count)

    monkeypatch.setattr(os, "read", grow)
    assert place.collect() == ({"a.csv"}, {})  # as it was: a copy that follows could be led on for ever
    assert (place.work / "a.csv").read_text() == "x" * 500
    monkeypatch.undo()
    assert place.collect() == ({"a.csv"}, {})
    assert "y" in (place.work / "a.csv").read_text()


def test_the_person_writes_the_name_while_it_is_exchanged(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.layer / "a.csv").write_text("x")
    place.collect()
    (place.layer / "a.csv").write_text("xx")
    real, calls = kept.linux.exchange, []

    def late(folder: int, one: str, other: str) -> None:
        if not calls:
            (place.work / "a.csv").unlink()
            (place.work / "a.csv").write_text("theirs")
        calls.append(1)
        real(folder, one, other)

    monkeypatch.setattr(kept.linux, "exchange", late)
    assert "a.csv" in place.collect()[1]
    assert (place.work / "a.csv").read_text() == "theirs" and os.listdir(place.work) == ["a.csv"]


def test_nothing_is_written_where_the_disk_has_no_room(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.layer / "a.csv").write_text("x" * 500)
    monkeypatch.setattr(kept.os, "fstatvfs", lambda _fd: SimpleNamespace(f_blocks=9, f_bavail=1, f_frsize=499))
    monkeypatch.setattr(kept, "write_all", lambda _fd, _data: pytest.fail("something was written"))
    assert place.collect() == (set(), {"a.csv": "the disk is full"})
    assert os.listdir(place.work) == []


def test_files_full_of_holes_cost_the_disk_no_more_than_what_is_kept(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They cost the cells nothing, however many they are, and a copy has no holes."""
    monkeypatch.setattr(kept, "KEPT_BYTES", 4 << 20)
    look = FileGate._refusal

    def grow(gate: FileGate, names: tuple[str, ...], found: os.stat_result, *, asked: bool) -> str:
        os.truncate(place.layer / names[-1], 3 << 20)
        return look(gate, names, found, asked=asked)

    monkeypatch.setattr(FileGate, "_refusal", grow)
    for number in range(20):
        (place.layer / f"{number}.csv").touch()
    with counted_writes(monkeypatch) as written:
        assert len(place.collect()[0]) == 1
    assert sum(written) == 3 << 20


@pytest.mark.parametrize(("name", "value"), [("ENTRIES", 5), ("KEPT_FILES", 5), ("KEPT_BYTES", 5)])
def test_the_whole_is_bounded(place: Place, monkeypatch: pytest.MonkeyPatch, name: str, value: int) -> None:
    monkeypatch.setattr(kept if name.startswith("KEPT") else files, name, value)
    for n in range(50):
        (place.layer / f"{n}.csv").write_text("x")
    place.collect()
    assert len(os.listdir(place.work)) <= 5


def test_a_folder_that_cannot_be_written_is_told(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    (place.layer / "a.csv").write_text("x")
    monkeypatch.setattr(os, "link", refuse)
    assert place.collect() == (set(), {"a.csv": "the folder cannot be written"})
    assert os.listdir(place.work) == []


LONG = "\u4e2d" * 83  # of 249 bytes; with an ending as long as a name may be


def test_a_hidden_name_is_not_kept_for_a_person_either(place: Place) -> None:
    for name in ("k0.pem/a.csv", "sub/server.pem", "sub/a.sh"):
        _deep(place.layer, name)
    assert "files.hide" in place.gate.keep("k0.pem/a.csv") and "files.hide" in place.gate.keep("sub/server.pem")
    assert place.gate.keep("sub/a.sh") == "" and place.tree().keys() == {"work/sub", "work/sub/a.sh", "outside/key.txt"}


def test_names_as_long_as_they_may_be_are_kept(place: Place) -> None:
    for name in (f"{LONG}.csv", f"{LONG}/{LONG}.csv"):
        _deep(place.layer, name)
    assert place.collect() == ({f"{LONG}.csv", f"{LONG}/{LONG}.csv"}, {})
    (place.layer / f"{LONG}.csv").write_text("newer")
    assert place.collect()[0] == {f"{LONG}.csv"} and (place.work / f"{LONG}.csv").read_text() == "newer"
    assert sorted(os.listdir(place.work)) == sorted([LONG, f"{LONG}.csv"])


def test_no_folder_is_left_of_a_file_that_could_not_be_written(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    (place.work / "theirs").mkdir()
    for name in ("a/b/c.csv", "theirs/b/c.csv"):
        _deep(place.layer, name)
    monkeypatch.setattr(os, "link", refuse)
    assert set(place.collect()[1].values()) == {"the disk is full"}
    assert place.tree().keys() == {"work/theirs", "outside/key.txt"}


def test_folders_count_as_files_do(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "KEPT_FILES", 10)
    for n in range(20):
        _deep(place.layer, f"{n}/a.csv")
        _deep(place.layer, f"deep{n}/{'d/' * 6}a.csv")
    inside = place.collect()[1]
    assert len(list(place.work.rglob("*"))) <= 10 and "too much was kept already" in inside.values()
    assert all(any(path.iterdir()) for path in place.work.rglob("*") if path.is_dir()), "none is empty"


def test_names_that_are_gone_are_forgotten(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.layer / "stays.csv").touch()
    for turn in range(3):
        for n in range(20):
            (place.layer / f"{turn}-{n}.py").touch()
        assert place.collect()[0] == ({"stays.csv"} if turn == 0 else set()), "what is still there is remembered"
        for n in range(20):
            (place.layer / f"{turn}-{n}.py").unlink()
    assert place.collect() == (set(), {}) and len(place.gate._known) == len(place.gate._states) == 1
    monkeypatch.setattr(files, "ENTRIES", 30)  # no look is complete from here on
    for turn in range(5):
        for n in range(40):
            (place.layer / f"{turn}-{n}.py").touch()
        place.collect()
        assert len(place.gate._known) <= 60 and len(place.gate._states) <= 60
        for n in range(40):
            (place.layer / f"{turn}-{n}.py").unlink()
