"""Plans are plain data: what they say for a policy and a host, before anything is applied."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from pathlib import Path

import msgspec
import pytest

from sandbox_kernel.errors import IsolationUnavailable
from sandbox_kernel.plan.make import make_plans
from sandbox_kernel.plan.model import LAYERS, Grant, Plan
from sandbox_kernel.plan.paths import inside, libraries, links_along
from sandbox_kernel.plan.workspace import grant_around
from sandbox_kernel.policy import Policy

ENVIRONMENT = {"PATH": "/usr/bin", "LANG": "C.UTF-8", "HOME": "/nonexistent"}


def _plans(
    workspace: Path, level: str = "full", hidden: tuple[str, ...] = (), **tables: dict[str, object]
) -> list[Plan]:
    whole: dict[str, dict[str, object]] = {"files": {"workspace": "read-write", "hide": []}}
    policy = Policy.from_tables({**whole, **tables, "isolation": {"level": level}})
    return make_plans(policy, workspace, launcher_env=ENVIRONMENT, hidden=hidden)


def test_auto_is_the_strongest_first_and_never_below_the_floor(tmp_path: Path) -> None:
    levels = list(dict.fromkeys(plan.level for plan in _plans(tmp_path, "auto")))
    assert levels == ["full", "seccomp+landlock"]


@pytest.mark.parametrize("level", LAYERS)
def test_a_named_level_stays_alone(tmp_path: Path, level: str) -> None:
    assert {plan.level for plan in _plans(tmp_path, level)} == {level}
    assert {plan.layers for plan in _plans(tmp_path, level)} == {LAYERS[level]}


def test_in_process_has_no_plan(tmp_path: Path) -> None:
    with pytest.raises(IsolationUnavailable):
        _plans(tmp_path, "in-process")


def test_missing_workspace(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        _plans(tmp_path / "no")


def test_describe_has_a_line_for_everything(tmp_path: Path) -> None:
    plan = _plans(tmp_path)[0]
    text = plan.describe()
    lines = text.splitlines()
    for bind in plan.binds:
        assert any(line.startswith(f"show {bind.path} ") for line in lines)
    for grant in plan.grants:
        assert f"landlock {grant.access} {grant.path}" in lines
    for private in plan.tmpfs:
        assert any(line.startswith(f"private {private.path} {private.size} bytes") for line in lines)
    for name, value in plan.environment.items():
        assert f"env {name}={value}" in lines
    assert f"show {tmp_path} rw" in text


def test_plan_is_frozen(tmp_path: Path) -> None:
    with pytest.raises(AttributeError):
        _plans(tmp_path)[0].level = "subprocess"  # type: ignore[misc]


def test_nothing_is_both_writable_and_executable(tmp_path: Path) -> None:
    for plan in _plans(tmp_path, "auto"):
        assert not [bind for bind in plan.binds if bind.writable and bind.execute]
        writable = [g.path for g in plan.grants if g.access == "read-write"]
        executable = [g.path for g in plan.grants if g.access == "read-exec"]
        assert not [(w, e) for w in writable for e in executable if inside(w, e)]


def test_interpreter_is_shown(tmp_path: Path) -> None:
    plan = _plans(tmp_path)[0]
    for path in (sys.prefix, sys.base_prefix, os.path.realpath(sys.executable), os.path.dirname(os.__file__)):
        assert any(inside(os.path.realpath(path), bind.path) and bind.execute for bind in plan.binds), path


def test_libraries_of_the_interpreter_are_shown_wherever_they_lie(tmp_path: Path) -> None:
    """One that was built to find its own elsewhere could not be started again in a cell."""
    folder, other = tmp_path / "lib", tmp_path / "work"
    for place in (folder, other):
        place.mkdir()
        ctypes.CDLL(str(shutil.copy(str(msgspec._core.__file__), place)))
    found = libraries("self")
    assert str(folder) in found and str(other) not in found
    plan = _plans(other)[0]
    assert str(folder) in {bind.path for bind in plan.binds if bind.execute}


def test_parents_come_before_what_lies_in_them(tmp_path: Path) -> None:
    paths = [bind.path for bind in _plans(tmp_path)[0].binds]
    for at, path in enumerate(paths):
        assert not any(inside(earlier, path) and earlier != path for earlier in paths[:at])


def test_the_interpreter_is_found_by_its_name(tmp_path: Path) -> None:
    """Also where the launcher's path leads to folders that are not shown, but after what is found there."""
    own = os.path.dirname(sys.executable)
    assert _plans(tmp_path)[0].environment["PATH"] == f"/usr/bin:{own}"
    assert _plans(tmp_path, environment={"set": {"PATH": "/x"}})[0].environment["PATH"] == "/x"
    policy = Policy.from_tables({"isolation": {"level": "full"}})
    for given, path in ((f"{own}:/bin", f"{own}:/bin"), ("", f"/usr/local/bin:/usr/bin:/bin:{own}")):
        plan = make_plans(policy, tmp_path, launcher_env={**ENVIRONMENT, "PATH": given})[0]
        assert plan.environment["PATH"] == path


def test_of_sys_the_processors_are_shown_and_nothing_else(tmp_path: Path) -> None:
    for plan in _plans(tmp_path, "auto"):
        if plan.binds:
            shown = [bind for bind in plan.binds if inside(bind.path, "/sys")]
            assert {bind.path for bind in shown} - {"/sys/fs/cgroup/cpu.max"} == {"/sys/devices/system/cpu"}
            assert not any(bind.writable or bind.execute for bind in shown)


def test_nothing_of_the_machine_is_shown(tmp_path: Path) -> None:
    shown = {bind.path for bind in _plans(tmp_path)[0].binds}
    assert not shown & {"/", "/etc", "/proc", "/sys", "/dev", "/home", "/root", "/tmp", "/var", "/run"}


@pytest.mark.parametrize(
    "workspace", ["/", "/usr", "/etc", "/proc", "/proc/self", "/dev", "/sys", "/run", "/var"]
)
def test_a_workspace_of_the_machine_is_not_shown(workspace: str) -> None:
    for plan in _plans(Path(workspace), "auto"):
        assert plan.workspace == "" and not plan.workspace_writable
        assert workspace not in {bind.path for bind in plan.binds if bind.path != "/usr"}
        assert plan.cwd == plan.environment["HOME"]
        assert not any(g.path == workspace for g in plan.grants if g.access == "read-write")


def test_workspace_on_the_import_path_is_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The front would import what a cell writes there."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    for plan in _plans(tmp_path, "auto"):
        assert not plan.workspace_writable
        assert Grant("read-write", str(tmp_path)) not in plan.grants
        assert any("import path" in note for note in plan.notes)


def test_import_path_inside_the_workspace_is_protected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "data").mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "lib")])
    full, local = _plans(tmp_path, "auto")[0], _plans(tmp_path, "auto")[-1]
    inner = next(bind for bind in full.binds if bind.path == str(tmp_path / "lib"))
    assert not inner.writable and full.workspace_writable
    assert full.protected == local.protected == (str(tmp_path / "lib"),)
    assert Grant("read-write", str(tmp_path / "data")) in local.grants
    assert not [g for g in local.grants if g.access == "read-write" and inside(str(tmp_path / "lib"), g.path)]


def test_home_on_the_import_path_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setitem(ENVIRONMENT, "HOME", str(home))
    monkeypatch.setattr(sys, "path", [*sys.path, str(home), str(tmp_path)])
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    shown = {bind.path for bind in _plans(workspace)[0].binds}
    assert not shown & {str(home), str(tmp_path)}


def test_links_are_kept_as_links(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "again").symlink_to(tmp_path / "link")
    links, real = links_along(str(tmp_path / "again" / "x"))
    assert real == str(tmp_path / "real" / "x")
    assert links == [(str(tmp_path / "again"), str(tmp_path / "link")), (str(tmp_path / "link"), "real")]
    plan = _plans(tmp_path / "link")[0]
    assert plan.workspace == str(tmp_path / "real")
    assert (str(tmp_path / "link"), "real") in plan.links


def test_grant_around(tmp_path: Path) -> None:
    for name in ("a/b", "a/secret", "c"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    top = str(tmp_path)
    assert grant_around("read-write", top, ()) == [Grant("read-write", top)]
    assert grant_around("read-write", top, [f"{top}/a/secret"]) == [
        Grant("list", top),
        Grant("list", f"{top}/a"),
        Grant("read-write", f"{top}/a/b"),
        Grant("read-write", f"{top}/c"),
        Grant("read-write", f"{top}/file"),
    ]


def test_hidden(tmp_path: Path) -> None:
    (tmp_path / "runtime").mkdir()
    elsewhere = str(tmp_path.parent / "elsewhere")
    for plan in _plans(
        tmp_path, "auto", hidden=(str(tmp_path / "runtime"), elsewhere, str(tmp_path / "gone"))
    ):
        assert plan.hidden == (str(tmp_path / "runtime"),)


def test_environment_and_limits_are_the_policys(tmp_path: Path) -> None:
    plan = _plans(
        tmp_path, environment={"set": {"A": "1"}}, limits={"tmp": "5MiB", "processes": 9}
    )[0]
    assert plan.environment["A"] == "1" and plan.environment["HOME"] == "/home/sandbox"
    assert plan.processes == 9
    assert next(t.size for t in plan.tmpfs if t.path == "/tmp") == 5 << 20


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_front_is_never_root_first(tmp_path: Path) -> None:
    plans = _plans(tmp_path)
    assert [plan.identity.strategy for plan in plans] == ["mapped", "root"]
    assert plans[0].identity.uid not in (0, 65534)
    assert next(b for b in plans[0].binds if b.path == str(tmp_path)).mapped == "must"
    os.chown(tmp_path, 1234, 1234)
    assert [(p.identity.strategy, p.identity.uid) for p in _plans(tmp_path)] == [("owner", 1234)]


def _overlay(workspace: Path, level: str = "auto") -> list[Plan]:
    return _plans(workspace, level, files={"workspace": "overlay"})


def test_a_private_folder_comes_before_a_weaker_level(tmp_path: Path) -> None:
    """An overlay may be refused; that costs the overlay, not the namespaces."""
    kinds = list(dict.fromkeys((plan.level, plan.layered, bool(plan.mirror)) for plan in _overlay(tmp_path)))
    assert kinds == [("full", True, False), ("full", False, True), ("seccomp+landlock", False, True)]


def test_no_plan_of_an_overlay_writes_into_the_folder(tmp_path: Path) -> None:
    for plan in _overlay(tmp_path):
        writable = [bind for bind in plan.binds if bind.path == str(tmp_path) and bind.writable]
        assert all(bind.layer for bind in writable) and bool(writable) is plan.layered
        if not plan.layered:
            assert not [g for g in plan.grants if g.access == "read-write" and inside(g.path, str(tmp_path))]
            assert plan.cwd == plan.mirror and not inside(plan.mirror, str(tmp_path))


def test_secrets_are_hidden_by_layer_mount_or_rule(tmp_path: Path) -> None:
    for name in (".env", "sub/id_rsa", "data.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".link").symlink_to("data2.csv")
    (tmp_path / "data2.csv").touch()
    names = {str(tmp_path / name) for name in (".env", "sub/id_rsa", "data2.csv")}
    for plan in _overlay(tmp_path):
        hidden = set(plan.veiled if plan.layered else plan.hidden)
        assert names <= hidden and str(tmp_path / "data.csv") not in hidden
        if plan.layered:
            assert str(tmp_path / ".link") in hidden and str(tmp_path / ".git") in hidden, "that may come later"
        if plan.level != "full":
            granted = {g.path for g in plan.grants if g.access == "read"}
            assert str(tmp_path / "data.csv") in granted and not granted & {*names, str(tmp_path), f"{tmp_path}/sub"}


def test_the_interpreter_in_a_hidden_folder_stays_visible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = tmp_path / ".venv" / "lib" / "site-packages"
    packages.mkdir(parents=True)
    (tmp_path / ".venv" / "secret").touch()
    monkeypatch.setattr(sys, "path", [*sys.path, str(packages)])
    for plan in _overlay(tmp_path):
        assert str(tmp_path / ".venv") in plan.hidden and not any(".venv" in path for path in plan.veiled)
        assert not any(inside(str(packages), path) for path in plan.veiled)
        assert Grant("read-exec", str(packages)) in plan.grants


def test_a_folder_that_cannot_be_searched_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox_kernel.plan.workspace.ENTRIES", 10)
    for n in range(20):
        (tmp_path / f"{n}.csv").touch()
    (tmp_path / ".env").touch()
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    for files in ({"workspace": "overlay"}, {"workspace": "read-only"}, {"read": [str(tmp_path)]}):
        for plan in _plans(tmp_path, "auto", files=files):
            assert any("it is not shown" in note for note in plan.notes)
            assert plan.workspace == "" and not plan.layered and not inside(plan.cwd, str(tmp_path))
            shown = {*(bind.path for bind in plan.binds), *(g.path for g in plan.grants if g.access != "list")}
            shown -= {private.path for private in plan.tmpfs}
            assert not [path for path in shown if inside(path, str(tmp_path)) or inside(str(tmp_path), path)]


def test_no_folder(tmp_path: Path) -> None:
    for plan in _plans(tmp_path, "auto", files={"workspace": "none"}):
        assert plan.workspace == "" and not any(inside(bind.path, str(tmp_path)) for bind in plan.binds)
        assert not any(inside(g.path, str(tmp_path)) for g in plan.grants)
        assert plan.cwd.endswith("/notebook")
