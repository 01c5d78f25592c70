"""Policies: how values are written, where they come from, what an administrator fixes, what presets give."""

from __future__ import annotations

import itertools
import json
import os
import resource
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel import launcher
from sandbox_kernel.errors import PolicyError
from sandbox_kernel.kernel.environment import RESOLVED_VARIABLE, clean_environment
from sandbox_kernel.plan.make import levels_of, make_plans
from sandbox_kernel.policy import KEYS, Policy, Resolved
from sandbox_kernel.policy_layers import PRESETS, presets
from sandbox_kernel.quantities import GIB, MIB, parse_seconds, parse_size, show_seconds, show_size

from .kernel.conftest import LEVELS, Running, Start, start  # noqa: F401 - a fixture

NO_FILE = Path("/nonexistent/policy.toml")


class Places:
    """A machine's policy files: the administrator's, the user's and one that is named."""

    def __init__(self, folder: Path) -> None:
        self.etc, self.named = folder / "etc" / "policy.toml", folder / "named.toml"
        self.user = folder / "home" / ".config" / "sandbox-kernel" / "policy.toml"
        self.environ = {"HOME": str(folder / "home")}
        self.work = folder / "work"
        for path in (self.etc, self.user):
            path.parent.mkdir(parents=True)
        self.work.mkdir()

    def resolve(self, *, etc: str = "", user: str = "", named: str = "", **more: Any) -> Resolved:
        for path, text in ((self.etc, etc), (self.user, user), (self.named, named)):
            path.unlink(missing_ok=True)
            if text:
                path.write_text(text)
        environ = {**self.environ, **({"SANDBOX_KERNEL_POLICY": str(self.named)} if named else {})}
        return Policy.resolve({**environ, **more.pop("environ", {})}, etc=self.etc, workspace=self.work, **more)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


class TestValues:
    @pytest.mark.parametrize(
        ("text", "size"),
        [(4096, 4096), ("4GiB", 4 * GIB), ("4 gib", 4 * GIB), ("1.5GiB", 3 * GIB // 2), ("4GB", 4 * 10**9),
         ("64KB", 64_000), ("10_000", 10_000), (2.0, 2)],
    )  # fmt: skip
    def test_sizes(self, text: object, size: int) -> None:
        assert parse_size(text) == size

    @pytest.mark.parametrize("text", [0, -1, "", "4 apples", "GiB", True, None, 1.5, "1e9", "-1GiB", "9999999TiB",
                                      float("nan"), float("inf"), [1]])  # fmt: skip
    def test_no_sizes(self, text: object) -> None:
        with pytest.raises(ValueError, match="is not"):
            parse_size(text)

    @pytest.mark.parametrize(
        ("text", "seconds"),
        [(30, 30), (1.5, 1.5), ("90s", 90), ("5min", 300), ("2m", 120), ("1h", 3600), ("250ms", 0.25)],
    )
    def test_times(self, text: object, seconds: float) -> None:
        assert parse_seconds(text) == pytest.approx(seconds)

    @pytest.mark.parametrize("value", [1, 1023, 1024, 1536, 4 * GIB, 5 * MIB + 1, 10**9, 3 * GIB // 2, 2**40])
    def test_a_shown_size_can_be_written(self, value: int) -> None:
        assert parse_size(show_size(value).replace("bytes", "")) == value

    @pytest.mark.parametrize("value", [0.25, 1, 90, 120, 3600, 5400])
    def test_a_shown_time_can_be_written(self, value: float) -> None:
        assert parse_seconds(show_seconds(value)) == value

    @pytest.mark.parametrize("none", [0, 0.0, "none"])
    @pytest.mark.parametrize("key", [k for k in KEYS if KEYS[k].none])
    def test_no_limit_where_it_is_said(self, key: str, none: object) -> None:
        table, _, name = key.partition(".")
        assert Policy.from_tables({table: {name: none}}).values()[key] == 0

    def test_the_docstring_says_which_keys_can_have_no_limit(self) -> None:
        said = {f"limits.{line.split(':')[0].strip()}" for line in (Policy().limits.__doc__ or "").splitlines()
                if "0: no limit" in line}  # fmt: skip
        assert said == {key for key in KEYS if KEYS[key].none and key.startswith("limits.")} == {
            "limits.disk", "limits.cell_time", "limits.cell_cpu"}

    @pytest.mark.parametrize("key", [k for k in KEYS if k.startswith("limits.") and not KEYS[k].none])
    def test_every_other_limit_refuses_none(self, key: str) -> None:
        for value in (0, "none"):
            with pytest.raises(PolicyError, match=key):
                Policy.from_tables({"limits": {key.removeprefix("limits."): value}})

    def test_a_number_is_a_variables_text(self) -> None:
        policy = Policy.from_tables({"environment": {"set": {"OMP_NUM_THREADS": 2}}})
        assert policy.environment.set == {"OMP_NUM_THREADS": "2"}


REFUSED: list[tuple[str, dict[str, Any], list[str]]] = [
    ("key", {"limits": {"memroy": 1}}, ["limits.memroy", "Did you mean 'memory'?"]),
    ("table", {"limit": {"memory": 1}}, ["[limit]", "Did you mean 'limits'?"]),
    ("key of another table", {"files": {"memory": 1}}, ["files.memory", "limits.memory"]),
    ("key without a table", {"memory": "1GiB"}, ["[memory]", "limits.memory"]),
    ("no table", {"limits": 3}, ["limits: must be a table"]),
    ("size", {"limits": {"memory": "4 apples"}}, ["limits.memory", "'4 apples'", '"512MiB"']),
    ("time", {"limits": {"cell_time": "nne"}}, ["limits.cell_time", '"none"']),
    ("count", {"limits": {"processes": "4GiB"}}, ["limits.processes", "whole number"]),
    ("level", {"isolation": {"level": "ful"}}, ["isolation.level", "Did you mean 'full'?"]),
    ("floor", {"isolation": {"require": "in-process"}}, ["isolation.require", "subprocess"]),
    ("contradiction", {"isolation": {"level": "seccomp", "require": "full"}}, ["isolation.level", "isolation.require"]),
    ("workspace", {"files": {"workspace": "readonly"}}, ["Did you mean 'read-only'?"]),
    ("list", {"files": {"read": "/data"}}, ["files.read", "list"]),
    ("relative path", {"files": {"read": ["data"]}}, ["files.read", "absolute"]),
    ("all variables", {"environment": {"allow": ["*"]}}, ["environment.allow", "secret"]),
    ("variable", {"environment": {"allow": ["A-B"]}}, ["environment.allow", "'A-B'"]),
    ("own variable", {"environment": {"set": {"HOME": "/"}}}, ["environment.set", "HOME"]),
    ("value", {"environment": {"set": {"X": True}}}, ["environment.set", "X"]),
    ("denied", {"environment": {"set": {"AB": "1"}, "deny": ["A*"]}}, ["environment.set", "environment.deny"]),
    ("network", {"network": {"mode": "all"}}, ["network.mode", '"none"']),
    ("flag", {"code": {"functions_only": 1}}, ["code.functions_only", "neither true nor false"]),
    ("dotted name", {"code": {"forbid": ["os system"]}}, ["code.forbid", "'os system'"]),
    ("inner table", {"code": {"imports": {"alow": []}}}, ["code.imports.alow", "Did you mean 'imports.allow'?"]),
    ("half a key", {"code": {"imports": ["os"]}}, ["code.imports", "no such key"]),
    ("mimetype", {"outputs": {"mimetypes": ["Text/HTML"]}}, ["outputs.mimetypes", "'Text/HTML'"]),
    ("preset", {"preset": "clasroom"}, ["preset", "Did you mean 'classroom'?"]),
    ("preset's type", {"preset": 1}, ["preset", "1"]),
]  # fmt: skip


@pytest.mark.parametrize(("tables", "words"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_errors_name_file_key_and_nearest_choice(tables: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(PolicyError) as caught:
        Policy.from_tables(tables, where="/p/course.toml")
    for word in ["/p/course.toml", *words]:
        assert word in str(caught.value)


class TestOrder:
    def test_defaults(self, places: Places) -> None:
        found = places.resolve()
        assert found == Resolved() and found.policy == Policy()
        assert set(found.origins) == set(KEYS) and set(found.origins.values()) == {"built-in default"}

    def test_later_ones_win_and_each_value_knows_its_origin(self, places: Places) -> None:
        found = places.resolve(
            etc='[limits]\nmemory = "8GiB"\nprocesses = 99\n',
            user='[limits]\nmemory = "3GiB"\ntmp = "1GiB"\ncell_time = 9\n',
            named='[limits]\nmemory = "2GiB"\ncell_time = 8\n',
            overrides={"limits": {"cell_time": "7s"}},
        )
        limits = found.policy.limits
        assert (limits.memory, limits.processes, limits.tmp, limits.cell_time) == (2 * GIB, 99, GIB, 7)
        assert found.origins["limits.memory"] == str(places.named)
        assert found.origins["limits.processes"] == str(places.etc)
        assert found.origins["limits.tmp"] == "~/.config/sandbox-kernel/policy.toml"
        assert found.origins["limits.cell_time"] == "argument"
        assert found.origins["limits.shm"] == "built-in default"

    def test_xdg_config_home(self, places: Places, tmp_path: Path) -> None:
        file = tmp_path / "conf" / "sandbox-kernel" / "policy.toml"
        file.parent.mkdir(parents=True)
        file.write_text("[limits]\nprocesses = 7\n")
        assert places.resolve(environ={"XDG_CONFIG_HOME": str(tmp_path / "conf")}).policy.limits.processes == 7
        # The XDG rules: a relative one is to be ignored.
        assert places.resolve(environ={"XDG_CONFIG_HOME": "conf"}).policy.limits.processes == 256

    def test_presets_by_name_in_a_file_and_as_argument(self, places: Places) -> None:
        by_name = places.resolve(environ={"SANDBOX_KERNEL_POLICY": "classroom"})
        assert by_name.policy == Policy.load("classroom")
        assert by_name.origins["limits.memory"] == "preset classroom"
        assert places.resolve(overrides="strict").policy == Policy.load("strict")
        in_file = places.resolve(named='preset = "classroom"\n[limits]\nmemory = "2GiB"\n')
        assert in_file.policy.limits.memory == 2 * GIB
        assert in_file.policy.limits.processes == Policy.load("classroom").limits.processes
        assert in_file.origins["limits.processes"] == f"preset classroom (by {places.named})"

    def test_a_policy_object_asks_for_what_differs_from_the_defaults(self, places: Places) -> None:
        asked = Policy.from_tables({"limits": {"processes": 9}})
        found = places.resolve(etc='[limits]\nmemory = "1GiB"\n', overrides=asked)
        assert (found.policy.limits.processes, found.policy.limits.memory) == (9, GIB)

    @pytest.mark.parametrize("path", ["course.toml", "./course.toml", "~/course.toml", "a/b.toml"])
    def test_a_relative_path_is_an_error(self, places: Places, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(places.work)
        (places.work / "course.toml").write_text("")
        with pytest.raises(PolicyError, match=r"SANDBOX_KERNEL_POLICY.*absolute"):
            places.resolve(environ={"SANDBOX_KERNEL_POLICY": path})

    def test_the_current_folder_is_not_searched(self, places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(places.work)
        for name in ("policy.toml", "sandbox-kernel/policy.toml", ".config/sandbox-kernel/policy.toml"):
            file = places.work / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("[limits]\nprocesses = 7\n")
        assert places.resolve().policy == Policy()
        assert places.resolve(environ={"XDG_CONFIG_HOME": "", "HOME": "/nonexistent"}).policy == Policy()

    def test_no_policy_in_the_notebooks_folder(self, places: Places, tmp_path: Path) -> None:
        inside = places.work / "sub" / "course.toml"
        inside.parent.mkdir()
        inside.write_text("")
        outside, link = tmp_path / "outside.toml", places.work / "link.toml"
        outside.write_text("")
        link.symlink_to(outside)
        way = tmp_path / "way"
        way.symlink_to(places.work)
        (tmp_path / "to.toml").symlink_to(inside)
        for path in (inside, link, way / "sub" / "course.toml", tmp_path / "to.toml"):
            with pytest.raises(PolicyError, match="notebook's folder"):
                places.resolve(environ={"SANDBOX_KERNEL_POLICY": str(path)})
        assert places.resolve(environ={"SANDBOX_KERNEL_POLICY": str(outside)}).policy == Policy()

    def test_home_as_workspace_has_its_policy_below_a_hidden_name_only(self, places: Places, tmp_path: Path) -> None:
        places.user.write_text("[limits]\nprocesses = 7\n")
        home = tmp_path / "home"
        found = Policy.resolve(places.environ, etc=places.etc, workspace=home)
        assert found.policy.limits.processes == 7  # cells do not see it
        shown = home / "conf" / "sandbox-kernel" / "policy.toml"
        shown.parent.mkdir(parents=True)
        shown.write_text("")
        with pytest.raises(PolicyError, match="notebook's folder"):
            Policy.resolve({**places.environ, "XDG_CONFIG_HOME": str(home / "conf")}, etc=places.etc, workspace=home)

    def test_cells_in_the_home_cannot_make_the_next_policy(self, places: Places, tmp_path: Path) -> None:
        """Names with a dot are hidden only if they exist."""
        home = tmp_path / "fresh"
        home.mkdir()
        clean_environment({"HOME": str(home)}, str(home), administrator=str(NO_FILE))
        assert (home / ".config" / "sandbox-kernel").is_dir()
        clean_environment({"HOME": str(home / "other")}, str(tmp_path / "work"), administrator=str(NO_FILE))
        assert not (home / "other").exists()


class TestFiles:
    """An odd file stops the start; it is never passed over."""

    def test_named_pipe_does_not_hold_up(self, places: Places) -> None:
        os.mkfifo(places.named)
        began = time.monotonic()
        with pytest.raises(PolicyError, match="not an ordinary file"):
            Policy.load(places.named)
        assert time.monotonic() - began < 20

    @pytest.mark.parametrize(
        ("data", "words"),
        [(b"#" * 70_000, "64 KiB"), (b"\xff", "not valid TOML"), (b"[a", "not valid TOML"), (None, "No such file")],
    )
    @pytest.mark.parametrize("which", ["etc", "user", "named"])
    def test_unusable(self, places: Places, which: str, data: bytes | None, words: str) -> None:
        path: Path = getattr(places, which)
        environ = {**places.environ, **({"SANDBOX_KERNEL_POLICY": str(path)} if which == "named" else {})}
        if data is None:
            path.symlink_to("/nowhere/policy.toml")
        else:
            path.write_bytes(data)
        with pytest.raises(PolicyError, match=words) as caught:
            Policy.resolve(environ, etc=places.etc)
        assert str(path) in str(caught.value)

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody who may not look")
    def test_an_administrators_folder_that_cannot_be_entered_is_not_passed_over(self, tmp_path: Path) -> None:
        private = tmp_path / "private"
        private.mkdir(mode=0o700)
        tmp_path.chmod(0o755)
        pid = os.fork()
        if pid == 0:
            status = 2
            try:
                os.setresuid(1000, 1000, 1000)
                strict = launcher.policy_files({"HOME": str(private / "home")}, str(private / "policy.toml"))
                status = 0 if strict == (str(private / "policy.toml"), "") else 1
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


# key, what the administrator fixed, what may be said besides, what may not
BOUNDS: list[tuple[str, str, list[str], list[str]]] = [
    ("limits.memory", '"2GiB"', ['"2GiB"', '"1GiB"'], ['"3GiB"']),
    ("limits.processes", "50", ["50", "1"], ["51"]),
    ("limits.cell_time", '"1min"', ['"60s"', '"1s"'], ['"61s"', "0", '"none"']),
    ("limits.cell_time", '"none"', ['"none"', "0", '"1h"'], []),
    ("limits.cell_cpu", "5", ["1"], ["0"]),
    ("limits.interrupt_grace", "2", ["1"], ["3"]),
    ("limits.output", '"1MiB"', ['"1KiB"'], ['"2MiB"']),
    ("files.workspace", '"read-only"', ['"read-only"', '"none"'], ['"read-write"', '"overlay"']),
    ("files.hide", '["*.key", ".*"]', ['["*.key", ".*", "*.pem"]', '[".*", "*.key"]'], ['[".*"]', "[]"]),
    ("files.workspace", '"read-write"', ['"read-only"', '"read-write"'], []),
    ("files.workspace", '"overlay"', ['"read-only"', '"overlay"'], ['"read-write"']),
    ("files.keep", '["*.csv", "*.png"]', ['["*.csv"]', "[]"], ['["*"]', '["*.txt"]']),
    ("files.aside", '"stored"', ['"stored"', '"none"'], ['"shown"']),
    ("files.keep", '["*"]', ['["*.txt"]', '["*"]'], []),
    ("files.read", '["/usr", "/srv/a"]', ["[]", '["/usr"]', '["/usr/share", "/srv/a/b"]'],
     ['["/srv"]', '["/usr/../var"]', '["/usr", "/root"]', '["/srv/ab"]']),
    ("environment.allow", '["AWS_*", "X"]', ["[]", '["X"]', '["AWS_REGION", "AWS_S*"]'], ['["XY"]', '["AW*"]']),
    ("environment.deny", '["SECRET_*"]', ["[]", '["OTHER"]'], []),
    ("environment.set", '{ A = "1" }', ['{ B = "2" }', '{ A = "1" }'], ['{ A = "2" }']),
    ("network.mode", '"none"', ['"none"'], []),
    ("code.imports.allow", '["numpy", "pandas*"]', ['["numpy"]', '["numpy.linalg", "pandas.io"]', "[]"],
     ['["*"]', '["num*"]', '["scipy"]']),
    ("code.imports.deny", '["ctypes"]', ['["ctypes"]', '["socket"]', "[]"], []),
    ("code.forbid", '["eval"]', ['["eval", "os.*"]', "[]"], []),
    ("code.builtins.remove", '["open"]', ['["input"]', "[]"], []),
    ("code.max_code_chars", "1000", ["1000", "10"], ["1001", '"none"']),
    ("code.ticks", "1000", ["1000", "10"], ["1001", "0"]),
    ("code.functions_only", "true", ["true"], ["false"]),
    ("code.functions_only", "false", ["true", "false"], []),
    ("code.dunder_attributes", '"deny"', ['"deny"'], ['"allow"']),
    ("outputs.gate", '"on"', ['"on"'], ['"off"']),
    ("outputs.gate", '"off"', ['"on"', '"off"'], []),
    ("outputs.html", '"sanitise"', ['"sanitise"', '"text"'], ['"frame"']),
    ("outputs.widgets", '"off"', ['"off"'], ['"core"']),
    ("outputs.comms", '"any"', ['"any"', '"widgets"'], []),
    ("outputs.mimetypes", '["a/b+json", "c/d"]', ["[]", '["c/d"]'], ['["a/b"]', '["c/d", "e/f"]']),
    ("outputs.html_size", '"1MiB"', ['"1KiB"'], ['"2MiB"']),
    ("outputs.image_size", '"1MiB"', ['"1KiB"'], ['"2MiB"']),
    ("audit.file", '"/var/log/a"', ['"/var/log/a"'], ['""', '"/var/log/b"']),
    ("worker.startup", '"none"', ['"none"'], ['"profile"']),
    ("worker.startup", '"profile"', ['"none"', '"profile"'], []),
    ("worker.python", '"/opt/a/bin/python"', ['"/opt/a/bin/python"'], ['"/opt/b/bin/python"']),
    ("recovery.checkpoints", '"off"', ['"off"'], ['"on"']),
    ("recovery.checkpoints", '"on"', ['"on"', '"off"'], []),
    ("audit.file", '""', ['""', '"/var/log/b"'], []),
    ("isolation.level", '"full"', ['"full"'], ['"auto"', '"seccomp+landlock"', '"subprocess"', '"in-process"']),
    ("isolation.level", '"auto"', ['"auto"', '"full"', '"seccomp+landlock"'], ['"seccomp"', '"subprocess"']),
    ("isolation.level", '"seccomp"', ['"seccomp"', '"full"', '"seccomp+landlock"', '"auto"'],
     ['"landlock"', '"subprocess"']),
    ("isolation.require", '"full"', ['"full"'], ['"seccomp+landlock"', '"subprocess"']),
    ("isolation.require", '"landlock"', ['"full"', '"landlock"'], ['"seccomp"', '"subprocess"']),
]  # fmt: skip
ALLOWED = [(key, fixed, value) for key, fixed, good, _ in BOUNDS for value in good]
LOOSER = [(key, fixed, value) for key, fixed, _, bad in BOUNDS for value in bad]


class TestAdministrator:
    def test_every_key_is_in_the_table(self) -> None:
        kinds = {KEYS[key].kind for key, *_ in BOUNDS}
        assert kinds == {rule.kind for rule in KEYS.values()}
        assert {k for k in KEYS if not k.startswith("limits.")} <= {key for key, *_ in BOUNDS}

    @pytest.mark.parametrize("how", ["user", "named", "overrides"])
    @pytest.mark.parametrize(("key", "fixed", "value"), ALLOWED)
    def test_may_be_tightened(self, places: Places, key: str, fixed: str, value: str, how: str) -> None:
        said = _toml(key, value)
        later: dict[str, Any] = {how: tomllib.loads(said) if how == "overrides" else said}
        found = places.resolve(etc=_toml(key, fixed), **later)
        alone = Policy.from_tables(tomllib.loads(said)).values()[key]
        both = found.policy.values()[key]
        assert both == alone or KEYS[key].adds_up
        if KEYS[key].adds_up:
            assert set(alone) <= set(both) >= set(Policy.from_tables(tomllib.loads(_toml(key, fixed))).values()[key])

    @pytest.mark.parametrize("how", ["user", "named", "overrides"])
    @pytest.mark.parametrize(("key", "fixed", "value"), LOOSER)
    def test_may_not_be_loosened(self, places: Places, key: str, fixed: str, value: str, how: str) -> None:
        said = _toml(key, value)
        later: dict[str, Any] = {how: tomllib.loads(said) if how == "overrides" else said}
        with pytest.raises(PolicyError, match="would loosen what the administrator fixed") as caught:
            places.resolve(etc=_toml(key, fixed), **later)
        text = str(caught.value)
        rule = KEYS[key]
        for policy in (_toml(key, fixed), said):
            assert rule.show(Policy.from_tables(tomllib.loads(policy)).values()[key]) in text, "both values"
        assert text.count(key) == 2 and str(places.etc) in text
        file = {"user": places.user, "named": places.named, "overrides": "argument"}[how]
        assert text.startswith(f"{file}: {key}")

    @pytest.mark.parametrize("fixed", ['html = "frame"', 'widgets = "core"', 'comms = "any"', "mimetypes = []"])
    def test_whoever_fixed_anything_about_outputs_has_fixed_the_gate(self, places: Places, fixed: str) -> None:
        with pytest.raises(PolicyError, match=r"outputs.gate: off would loosen"):
            places.resolve(etc=f"[outputs]\n{fixed}\n", named='[outputs]\ngate = "off"\n')
        found = places.resolve(etc=f'[outputs]\n{fixed}\ngate = "off"\n', named='[outputs]\nhtml = "text"\n')
        assert found.policy.outputs.gate == "off", "unless that was the administrator's own decision"

    def test_denied_names_cannot_be_set(self, places: Places) -> None:
        with pytest.raises(PolicyError, match=r"environment.set.*environment.deny"):
            places.resolve(etc='[environment]\ndeny = ["LD_*"]\n', named='[environment]\nset = { LD_PRELOAD = "x" }\n')

    def test_a_later_deny_takes_an_earlier_value_away(self, places: Places) -> None:
        found = places.resolve(
            etc='[environment]\nset = { A = "1" }\n', user='[environment]\nset = { B = "2" }\n',
            named='[environment]\ndeny = ["B"]\n',
        )  # fmt: skip
        assert found.policy.environment.set == {"A": "1"}

    def test_a_link_out_of_an_allowed_folder_is_no_way_to_loosen(self, places: Places, tmp_path: Path) -> None:
        allowed = tmp_path / "allowed"
        allowed.mkdir()
        (allowed / "link").symlink_to("/root")
        with pytest.raises(PolicyError, match="would loosen"):
            places.resolve(etc=f'[files]\nread = ["{allowed}"]\n', named=f'[files]\nread = ["{allowed}/link"]\n')

    @pytest.mark.parametrize("asked", ['level = "subprocess"', 'require = "seccomp"'])
    def test_level_and_requirement_are_one_bound(self, places: Places, asked: str) -> None:
        with pytest.raises(PolicyError, match="would loosen"):
            places.resolve(etc='[isolation]\nrequire = "seccomp+landlock"\n', named=f"[isolation]\n{asked}\n")

    def test_without_an_administrator_a_weak_level_can_be_named(self, places: Places) -> None:
        assert places.resolve(named='[isolation]\nlevel = "subprocess"\n').policy.isolation.level == "subprocess"
        argument = {"isolation": {"level": "seccomp"}}
        found = places.resolve(user='[isolation]\nrequire = "landlock"\n', overrides=argument)
        assert found.policy.isolation.level == "seccomp"

    @pytest.mark.parametrize("name", presets())
    def test_presets_are_cut_to_what_is_allowed(self, places: Places, name: str) -> None:
        etc = ('[limits]\nmemory = "100MiB"\ncell_time = 5\n[files]\nworkspace = "read-only"\n'
               '[isolation]\nlevel = "full"\n[environment]\ndeny = ["OMP_*"]\n')  # fmt: skip
        found = places.resolve(etc=etc, environ={"SANDBOX_KERNEL_POLICY": name})
        assert found.policy.limits.memory == 100 * MIB and found.policy.limits.cell_time == 5
        assert found.policy.files.workspace in ("none", "read-only")
        assert levels_of(found.policy.isolation.level, found.policy.isolation.require) == ("full",)
        values = dict(Policy.load(name).environment.set)
        values.pop("OMP_NUM_THREADS", None)
        assert found.policy.environment.set == values
        assert found.origins["limits.memory"] == str(places.etc)
        assert found.policy.limits.processes == Policy.load(name).limits.processes

    def test_a_preset_in_the_administrators_file_is_fixed_as_well(self, places: Places) -> None:
        with pytest.raises(PolicyError, match=r"limits.processes.*would loosen"):
            places.resolve(etc='preset = "classroom"\n', named="[limits]\nprocesses = 129\n")


def _toml(key: str, value: str) -> str:
    table, _, name = key.partition(".")
    return f"[{table}]\n{name} = {value}\n"


class TestTwoStages:
    """The policy is resolved before the front is executed with a clean environment."""

    def test_without_a_policy_nothing_heavy_is_imported(self) -> None:
        code = f"""
import sys
sys.path.insert(0, {str(PRESETS.parents[1])!r})
from sandbox_kernel.kernel.environment import clean_environment
clean_environment({{"HOME": "/nonexistent"}}, "/", administrator="/nonexistent")
print({{"msgspec", "tomllib", "pathlib", "re"}} & set(sys.modules))
"""
        ran = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
        assert ran.stdout.strip() == "set()"

    def test_what_is_passed_on(self, places: Places) -> None:
        places.user.write_text('[environment]\nallow = ["MY_*"]\ndeny = ["MY_KEY", "TZ"]\nset = { A = "\u00e9" }\n')
        environ = {**places.environ, "MY_KEY": "secret", "MY_DATA": "1", "TZ": "UTC", "LANG": "C", "TOKEN": "secret"}
        clean = clean_environment(environ, str(places.work), administrator=str(places.etc))
        text = clean.pop(RESOLVED_VARIABLE)
        assert clean == {"MY_DATA": "1", "LANG": "C"}
        assert Resolved.from_json(text) == places_resolved(places)
        assert str(places.user.parents[2]) not in text, "the home's path is nobody's business in there"

    def test_an_error_is_passed_on_in_words(self, places: Places) -> None:
        places.user.write_text("[limits]\nmemroy = 1\n")
        clean = clean_environment(places.environ, str(places.work), administrator=str(places.etc))
        with pytest.raises(PolicyError, match=r"limits.memroy.*Did you mean 'memory'"):
            Resolved.from_json(clean[RESOLVED_VARIABLE])

    @pytest.mark.parametrize("name", [*presets(), "clasroom"])
    def test_a_preset_alone_is_passed_on_by_its_name(self, places: Places, name: str) -> None:
        environ = {**places.environ, "SANDBOX_KERNEL_POLICY": name, "LANG": "C", "TOKEN": "secret"}
        clean = clean_environment(environ, str(places.work), administrator=str(places.etc))
        text = clean.pop(RESOLVED_VARIABLE)
        assert clean == {"LANG": "C"} and len(text) < 40
        if name in presets():
            # Otherwise the launcher's variables would have to be chosen by it, too.
            assert Policy.load(name).environment.allow == Policy.load(name).environment.deny == ()
            assert Resolved.from_json(text) == Policy.resolve(environ, etc=places.etc)
        else:
            with pytest.raises(PolicyError, match=r"SANDBOX_KERNEL_POLICY.*Did you mean 'classroom'"):
                Resolved.from_json(text)

    @pytest.mark.parametrize("name", presets())
    def test_json_is_lossless(self, name: str) -> None:
        found = Policy.resolve({"SANDBOX_KERNEL_POLICY": name, "HOME": "/nonexistent"}, etc=NO_FILE)
        assert Resolved.from_json(found.to_json()) == found
        assert Resolved.from_json("") == Resolved()


def places_resolved(places: Places) -> Resolved:
    return Policy.resolve(places.environ, etc=places.etc, workspace=places.work)


class TestLevels:
    @pytest.mark.parametrize(
        ("require", "levels"),
        [
            ("full", ("full",)),
            ("seccomp+landlock", ("full", "seccomp+landlock")),
            ("landlock", ("full", "seccomp+landlock", "landlock")),
            ("seccomp", ("full", "seccomp+landlock", "seccomp")),
            ("subprocess", ("full", "seccomp+landlock", "landlock", "seccomp", "subprocess")),
        ],
    )
    def test_auto_goes_down_to_what_is_required(self, tmp_path: Path, require: str, levels: tuple[str, ...]) -> None:
        assert levels_of("auto", require) == levels
        policy = Policy.from_tables({"isolation": {"require": require}})
        plans = make_plans(policy, tmp_path, launcher_env={})
        assert tuple(dict.fromkeys(plan.level for plan in plans)) == levels

    def test_a_named_level_is_the_only_one(self) -> None:
        assert levels_of("seccomp", "seccomp+landlock") == ("seccomp",)


class TestPresets:
    def test_names(self) -> None:
        assert presets() == ["assistant", "classroom", "open", "standard", "strict"]

    @pytest.mark.parametrize("name", presets())
    def test_say_every_limit_and_why(self, name: str) -> None:
        text = (PRESETS / f"{name}.toml").read_text()
        assert text.startswith(f"# {name}: ")
        tables = tomllib.loads(text)
        said = {f"{table}.{key}" for table, content in tables.items() for key in content}
        optional = ("environment.", "worker.", "code.", "outputs.")
        wanted = {key for key in KEYS if not key.startswith(optional)}
        wanted -= {"files.read", "files.keep", "files.hide", "audit.file"}
        assert wanted <= said
        assert ("code" in tables) is (name in ("classroom", "strict")), "guard rails are off unless they are asked for"

    @pytest.mark.parametrize("name", presets())
    def test_none_opens_the_output_gate(self, name: str) -> None:
        assert Policy.load(name).outputs.gate == "on"

    def test_standard_is_the_default(self) -> None:
        assert Policy.load("standard") == Policy()

    def test_tighter_from_open_to_strict(self) -> None:
        rows: list[Mapping[str, Any]] = [Policy.load(n).values() for n in ("open", "standard", "assistant", "strict")]
        for looser, tighter in itertools.pairwise(rows):
            for key, value in tighter.items():
                if key.startswith(("limits.", "files.")):
                    assert not KEYS[key].loosens(value, looser[key]), key

    def test_cells_of_people_have_no_time_limit_and_others_have(self) -> None:
        limited = {name for name in presets() if Policy.load(name).limits.cell_time}
        assert limited == {"assistant", "classroom", "strict"}


LOOK = """
import json, os, resource, tempfile
def size(path):
    found = os.statvfs(path)
    return found.f_blocks * found.f_frsize
try:
    open("new", "w").close()
    wrote = True
except OSError:
    wrote = False
numbers = resource.RLIMIT_DATA, resource.RLIMIT_NPROC, resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE
folders = tempfile.gettempdir(), "/dev/shm", os.environ["HOME"]
print(json.dumps({"limits": [resource.getrlimit(n)[0] for n in numbers], "sizes": [size(p) for p in folders],
                  "wrote": wrote, "threads": os.environ.get("OMP_NUM_THREADS")}))
"""


@pytest.mark.parametrize("name", ["standard", "classroom", "assistant", "strict", "open"])
def test_preset_through_a_kernel(start: Start, name: str) -> None:  # noqa: F811
    kernel: Running = start(env={"SANDBOX_KERNEL_POLICY": name, "HOME": "/nonexistent", "OMP_NUM_THREADS": ""})
    if "isolation level full" not in kernel.good("%sandbox").stdout:
        pytest.skip("the figures below are those of the level full, which cannot be had here")
    limits = Policy.load(name).limits
    policy = Policy.load(name)
    found = json.loads(kernel.good(LOOK).stdout)
    descriptors = min(limits.open_files, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    largest = min(limits.file_size, limits.disk or limits.file_size)
    assert found["limits"] == [limits.memory * 7 // 8, limits.processes, descriptors, largest]
    assert found["sizes"] == [limits.tmp, limits.shm, limits.home]
    assert found["wrote"] is (policy.files.workspace != "read-only")
    assert found["threads"] == policy.environment.set.get("OMP_NUM_THREADS", "")


def test_the_users_own_policy_reaches_the_kernel(start: Start, tmp_path: Path) -> None:  # noqa: F811
    file = tmp_path / "home" / ".config" / "sandbox-kernel" / "policy.toml"
    file.parent.mkdir(parents=True)
    file.write_text('[limits]\nprocesses = 77\n[environment]\nallow = ["MY_LABEL"]\ndeny = ["TZ"]\n')
    environ = {"HOME": str(tmp_path / "home"), "SANDBOX_KERNEL_POLICY": "", "MY_LABEL": "shown", "TZ": "UTC",
               "XDG_CONFIG_HOME": ""}  # fmt: skip
    kernel: Running = start(env=environ)
    assert "limits.processes = 77" in kernel.good("%sandbox").stdout
    shown = kernel.good("import os; print(os.environ.get('MY_LABEL'), os.environ.get('TZ'), sorted(os.environ))").stdout
    assert shown.startswith("shown None ") and "SANDBOX" not in shown


def test_a_policy_in_the_notebooks_folder_runs_no_cell(start: Start, tmp_path: Path) -> None:  # noqa: F811
    # (Whether there is one is not even looked at.)
    kernel: Running = start(env={"SANDBOX_KERNEL_POLICY": str(tmp_path / "work0" / "policy.toml")})
    reply = kernel.run("1").reply
    assert reply["ename"] == "PolicyError" and "notebook's folder" in reply["evalue"]


PLANT = """
import os, shutil
text = '[isolation]\\nlevel = "subprocess"\\n'
for way in ("write", "rename", "link"):
    try:
        os.makedirs(way + "/sandbox-kernel", exist_ok=True)
        open(way + "/sandbox-kernel/policy.toml", "w").write(text)
        if way == "rename":
            os.rename(".config", "gone")
            os.rename(way, ".config")
        elif way == "link":
            os.symlink(way, ".config")
        else:
            os.makedirs(".config/sandbox-kernel", exist_ok=True)
            open(".config/sandbox-kernel/policy.toml", "w").write(text)
        print(way, "done")
    except OSError as error:
        print(way, error)
"""


@pytest.mark.parametrize("level", LEVELS)
def test_a_cell_in_the_home_folder_cannot_write_the_next_policy(start: Start, tmp_path: Path, level: str) -> None:  # noqa: F811
    home = tmp_path / "work0"
    own = '[files]\nworkspace = "read-write"\nhide = []\n'
    kernel: Running = start(level, policy=own, env={"HOME": str(home), "XDG_CONFIG_HOME": ""})
    shown = kernel.good(PLANT).stdout
    assert "done" not in shown
    assert not (home / ".config" / "sandbox-kernel" / "policy.toml").exists()
    found = Policy.resolve({"HOME": str(home)}, etc=NO_FILE, workspace=tmp_path / "elsewhere")
    assert found.policy.isolation.level == "auto"
    if level == "full":  # the attempt is real: another folder is kept free, and this one is then made by the cell
        elsewhere = {"HOME": str(tmp_path / "work1"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
        free = start(level, policy=own, env=elsewhere)
        assert "done" in free.good(PLANT).stdout
