"""Which names are hidden in the notebook's folder: a folder that is too full to be searched hides more, never less."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox_kernel.plan import workspace
from sandbox_kernel.plan.workspace import Hidden, Patterns, secrets_below


def _search(top: Path, skip: tuple[str, ...] = ()) -> tuple[set[str], Hidden]:
    found = secrets_below(str(top), Patterns([".*", "*.pem"]), skip)
    return {os.path.relpath(path, top) for path in found.paths}, found


def _file(top: Path, name: str) -> None:
    (top / name).parent.mkdir(parents=True, exist_ok=True)
    (top / name).touch()


def test_names_are_found_in_deep_folders(tmp_path: Path) -> None:
    for name in ("data.csv", ".env", "a/b/c/d/e/f/g.pem", "a/b/data.csv", ".git/config"):
        _file(tmp_path, name)
    paths, found = _search(tmp_path)
    assert paths == {".env", "a/b/c/d/e/f/g.pem", ".git"} and found.note(str(tmp_path)) == ""


def test_what_is_deeper_is_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "DEPTH", 3)
    for name in ("a/b/.env", "a/b/data.csv", "a/b/c/.env", "a/b/c/d/.env"):
        _file(tmp_path, name)
    paths, found = _search(tmp_path)
    assert paths == {"a/b/.env", "a/b/c"} and "too deep): a/b/c." in found.note(str(tmp_path))


def test_a_full_folder_is_hidden_and_costs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "ENTRIES", 30)
    for n in range(50):
        _file(tmp_path, f"full/{n}.csv")
    for name in ("full/.env", "full/sub/.env", "a/.env", "z/b/.env", "z/b/data.csv", "server.pem"):
        _file(tmp_path, name)
    paths, found = _search(tmp_path)
    assert paths == {"full", "a/.env", "z/b/.env", "server.pem"}
    assert "full." in found.note(str(tmp_path)) and not found.too_many


def test_when_no_more_can_be_looked_at_the_rest_is_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "ENTRIES", 30)
    for n in range(100):
        _file(tmp_path, f"{n % 10}/{n}/.env")
        _file(tmp_path, f"{n % 10}/{n}/data.csv")
    paths, found = _search(tmp_path)
    for n in range(100):
        assert paths & {f"{n % 10}", f"{n % 10}/{n}", f"{n % 10}/{n}/.env"}
    assert found.unsearched and not found.too_many


def test_many_hidden_names_hide_their_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "HIDDEN_IN_ONE", 5)
    for n in range(10):
        _file(tmp_path, f"keys/{n}.pem")
        _file(tmp_path, f"{n}.pem")
    _file(tmp_path, "other/.env")
    paths, found = _search(tmp_path)
    assert paths == {"keys", "other/.env", *(f"{n}.pem" for n in range(10))}
    assert found.unsearched == (str(tmp_path / "keys"),)


def test_many_hidden_names_in_many_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "HIDDEN_MOST", 10)
    for n in range(8):
        for m in range(8):
            _file(tmp_path, f"{n}/{m}/.env")
            _file(tmp_path, f"{n}/{m}/data.csv")
    paths, found = _search(tmp_path)
    assert len(paths) <= 20 and not found.too_many and "more" in found.note(str(tmp_path))
    for n in range(8):
        for m in range(8):
            assert paths & {f"{n}", f"{n}/{m}", f"{n}/{m}/.env"}, "by its own name or by that of a folder around it"


@pytest.mark.parametrize(("bound", "value"), [("ENTRIES", 10), ("HIDDEN_MOST", 10)])
def test_a_top_that_is_too_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, value: int) -> None:
    monkeypatch.setattr(workspace, bound, value)
    for n in range(20):
        _file(tmp_path, f".{n}")
    found = _search(tmp_path)[1]
    assert found.too_many and "it is not shown" in found.note(str(tmp_path))


def test_too_many_folders_to_hide_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "HIDDEN_MOST", 5)
    for n in range(20):
        _file(tmp_path, f"{n}/.env")
    assert _search(tmp_path)[1].too_many


def test_a_folder_that_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells could still open what they guess the name of."""
    real = os.scandir

    def refuse(path: str) -> object:
        if path == refused:
            raise PermissionError(13, "Permission denied")
        return real(path)

    _file(tmp_path, "closed/.env")
    _file(tmp_path, "open/.env")
    monkeypatch.setattr(os, "scandir", refuse)
    refused = str(tmp_path / "closed")
    assert _search(tmp_path)[0] == {"closed", "open/.env"}
    refused = str(tmp_path)
    assert _search(tmp_path)[1].too_many


def test_what_another_rule_shows_is_not_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "ENTRIES", 10)
    for n in range(20):
        _file(tmp_path, f"large/{n}.csv")
    assert _search(tmp_path)[0] == {"large"}
    assert _search(tmp_path, (str(tmp_path / "large"),))[0] == set()


def test_nothing_to_hide_needs_no_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "ENTRIES", 1)
    for n in range(5):
        _file(tmp_path, f"{n}.csv")
    assert secrets_below(str(tmp_path), Patterns([]), ()) == Hidden()


def test_strange_names_are_told_as_plain_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "DEPTH", 1)
    (tmp_path / "a\x1b[31m\n").mkdir()
    assert _search(tmp_path)[1].note("top").isprintable()
