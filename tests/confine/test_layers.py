"""What other programs do in the notebook's folder, seen through the private layer over it, by root and by others."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.launch.test_launch import SMALL, UIDS, Front, _front

POLICY = {**SMALL, "files": {"workspace": "overlay"}}
SHARED = "shared"  # a folder that its owner shares with a group
STRANGE = 54321
READ = "result = open(NAME).read() if os.path.isfile(NAME) else os.path.isdir(NAME)"


@pytest.fixture(scope="module", params=UIDS)
def front(request: pytest.FixtureRequest) -> Iterator[Front]:
    with _front(request.param, "full", policy=POLICY) as front:
        for name in (SHARED, f"{SHARED}/own", f"{SHARED}/.git"):
            folder = front.workspace / name
            folder.mkdir(parents=True)
            os.chown(folder, front.uid, front.uid if name.endswith("own") else STRANGE)
        (front.workspace / "strange.csv").write_text("old")
        os.chown(front.workspace / "strange.csv", front.uid, STRANGE)
        ready = front.start()
        assert ready.get("event") == "ready" and ready["details"]["layered"], ready
        front.worker()
        yield front


def _replace(path: Path) -> None:
    """As editors save a file."""
    path.with_name("spare").write_text("new")
    path.with_name("spare").rename(path)


def _swap_folder(path: Path) -> None:
    path.rename(path.with_name("aside"))
    path.mkdir()


CHANGES: dict[str, tuple[str, Callable[[Path], object], object]] = {
    "replaced": ("old", _replace, "new"),
    "written in place": ("old", lambda path: path.write_text("newer"), "newer"),
    "made": ("", lambda path: path.write_text("new"), "new"),
    "removed": ("old", Path.unlink, False),
    "a folder made": ("", Path.mkdir, True),
    "a folder in place of a file": ("old", lambda path: (path.unlink(), path.mkdir()), True),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changed_is_seen(front: Front, change: str) -> None:
    before, act, after = CHANGES[change]
    path = front.workspace / change
    if before:
        path.write_text(before)
        path.chmod(0o644)
    assert front.ask(READ, NAME=change) == (before or False)
    act(path)
    assert front("forget") == []
    assert front.ask(READ, NAME=change) == after


def test_a_folder_that_was_replaced_has_the_new_files(front: Front) -> None:
    folder = front.workspace / "folder"
    folder.mkdir()
    (folder / "a").write_text("old")
    assert front.ask(READ, NAME="folder/a") == "old" and front.ask(READ, NAME="folder/b") is False
    _swap_folder(folder)
    (folder / "b").write_text("new")
    front("forget")
    assert front.ask(READ, NAME="folder/a") is False and front.ask(READ, NAME="folder/b") == "new"


def test_folders_of_a_group_can_be_written(front: Front) -> None:
    for name in ("new.csv", "own/new.csv"):
        assert front.ask("result = open(NAME, 'w').write('new')", NAME=f"{SHARED}/{name}") == 3
        assert not (front.workspace / SHARED / name).exists()
    assert front.ask("os.mkdir(NAME); result = sorted(os.listdir(os.path.dirname(NAME)))", NAME=f"{SHARED}/made") == [
        "made", "new.csv", "own",
    ]  # fmt: skip
    assert front.ask("os.remove('strange.csv'); result = open('strange.csv', 'w').write('new')") == 3
    assert (front.workspace / "strange.csv").read_text() == "old"


def test_what_cells_wrote_stays_theirs(front: Front) -> None:
    path = front.workspace / "both"
    path.write_text("old")
    os.chown(path, front.uid, front.uid)
    assert front.ask("result = open('both', 'a').write('!')") == 1
    _replace(path)
    front("forget")
    assert front.ask(READ, NAME="both") == "old!" and path.read_text() == "new"


def test_an_open_file_stays_as_it_was_until_it_is_closed(front: Front) -> None:
    path = front.workspace / "held"
    path.write_text("old")
    front.ask("import builtins; builtins.held = open('held'); os.chdir('/proc/self/cwd')")
    _replace(path)
    front("forget")
    assert front.ask("result = held.read()") == "old", "as everywhere"
    front.ask("held.close()")
    front("forget")
    assert front.ask(READ, NAME="held") == "new"


def test_the_folder_looks_changed_when_it_has_changed(front: Front) -> None:
    """By this Python's importer tells whether there may be new modules."""
    front("forget")
    before = front.ask("result = os.stat('.').st_mtime_ns")
    (front.workspace / "module.py").touch()
    front("forget")
    assert front.ask("result = os.stat('.').st_mtime_ns") != before


def test_no_worker_has_what_the_layer_is_reconfigured_by(front: Front) -> None:
    listed = "result = [fd for fd in range(3, 1000) if os.path.exists(f'/proc/self/fd/{fd}')]"
    found = front.ask("import fcntl\nfound = []\nfor fd in range(1000):\n    try: fcntl.fcntl(fd, fcntl.F_GETFD)\n"
                      "    except OSError: continue\n    found.append(fd)\nresult = found")  # fmt: skip
    assert set(found) <= {0, 1, 2, 3}, front.ask(listed)
