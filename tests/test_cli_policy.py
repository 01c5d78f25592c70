"""`sandbox-kernel policy`, the reference that it prints, and kernelspecs with a policy."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sandbox_kernel import launcher
from sandbox_kernel.cli import main
from sandbox_kernel.cli.policy import document
from sandbox_kernel.policy import KEYS, Policy
from sandbox_kernel.policy_layers import presets

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any policy file; the administrator's would be ``etc.toml`` in the result."""
    for name in ("XDG_CONFIG_HOME", "SANDBOX_KERNEL_POLICY"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(launcher, "ADMINISTRATOR", str(tmp_path / "etc.toml"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lines(text: str) -> dict[str, list[str]]:
    """{key: [value, origin]} of what `show` printed."""
    rows = [[part.strip() for part in line.split("  ") if part.strip()] for line in text.splitlines()]
    return {row[0]: row[1:] for row in rows}


class TestShow:
    def test_every_value_with_unit_and_origin(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["policy", "show"]) == 0
        shown = lines(capsys.readouterr().out)
        assert set(shown) == set(KEYS)
        assert shown["limits.memory"] == ["4 GiB", "built-in default"]
        assert shown["limits.cell_time"] == ["none", "built-in default"]
        assert shown["limits.interrupt_grace"] == ["4 s", "built-in default"]

    def test_the_environment_counts(
        self, places: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        user = places / "home" / ".config" / "sandbox-kernel" / "policy.toml"
        user.parent.mkdir(parents=True)
        user.write_text("[limits]\nprocesses = 50\n")
        (places / "etc.toml").write_text('[limits]\nmemory = "512MiB"\n')
        monkeypatch.setenv("SANDBOX_KERNEL_POLICY", "classroom")
        main(["policy", "show"])
        shown = lines(capsys.readouterr().out)
        assert shown["limits.memory"] == ["512 MiB", str(places / "etc.toml")]
        assert shown["limits.tmp"] == ["256 MiB", "preset classroom"]
        assert shown["limits.processes"] == ["128", "preset classroom"]
        monkeypatch.delenv("SANDBOX_KERNEL_POLICY")
        main(["policy", "show"])
        assert lines(capsys.readouterr().out)["limits.processes"] == ["50", "~/.config/sandbox-kernel/policy.toml"]

    @pytest.mark.parametrize("name", presets())
    def test_preset(self, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["policy", "show", "--preset", name]) == 0
        assert lines(capsys.readouterr().out)["limits.memory"][1] == f"preset {name}"

    def test_file_may_be_relative_here(self, places: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (places / "course.toml").write_text('preset = "classroom"\n[limits]\ncell_time = "90s"\n')
        assert main(["policy", "show", "--file", "course.toml"]) == 0
        shown = lines(capsys.readouterr().out)
        assert shown["limits.cell_time"] == ["90 s", str(places / "course.toml")]
        assert shown["limits.cell_cpu"] == ["4 min", f"preset classroom (by {places / 'course.toml'})"]

    def test_json(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["policy", "show", "--preset", "strict", "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert set(shown) == set(KEYS)
        assert shown["limits.memory"] == {"value": 1024**3, "shown": "1 GiB", "origin": "preset strict"}
        assert shown["files.read"]["value"] == []

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["--preset", "clasroom"], "Did you mean 'classroom'?"),
            (["--preset", "./x.toml"], "use --file"),
            (["--file", "none.toml"], "No such file"),
        ],
    )
    def test_what_cannot_be_used_is_a_sentence(
        self, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["policy", "show", *arguments]) == 1
        said = capsys.readouterr()
        assert words in said.err and not said.out and said.err.count("\n") == 1


class TestCheck:
    def test_good(self, places: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (places / "a.toml").write_text("")
        (places / "b").write_text('[limits]\nmemory = "1GiB"\n')
        assert main(["policy", "check", "a.toml", "b"]) == 0
        assert capsys.readouterr().out.splitlines() == [
            "a.toml: can be used",
            "  (the rest is the default: sandbox-kernel policy show --file a.toml)",
            "b: can be used",
            "  limits.memory  1 GiB",
            "  (the rest is the default: sandbox-kernel policy show --file b)",
        ]

    def test_the_files_own_values_are_told_from_those_of_its_preset(
        self, places: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (places / "a.toml").write_text('preset = "classroom"\n[limits]\ncell_time = "30s"\n')
        assert main(["policy", "check", "a.toml"]) == 0
        _, own, rest = capsys.readouterr().out.splitlines()
        assert own.split() == ["limits.cell_time", "30", "s"] and "further values come from its preset" in rest

    def test_every_slip_is_told_at_once(self, places: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (places / "etc.toml").write_text('[limits]\nprocesses = 50\n')
        text = '[limits]\nmemroy = "1GiB"\ntmp = "1 apple"\nprocesses = 60\n[limit]\nmemory = 1\n[audit]\nfile = "x"\n'
        (places / "a.toml").write_text(text)
        assert main(["policy", "check", "a.toml"]) == 1
        said = capsys.readouterr().err.splitlines()
        assert len(said) == 5
        for line, words in zip(said, ("memroy", "apple", "would loosen", "[limit]", "audit.file"), strict=True):
            assert words in line and line.startswith(str(places / "a.toml"))

    def test_a_preset_is_no_file(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["policy", "check", "classroom"]) == 1
        assert "policy show --preset classroom" in capsys.readouterr().err

    def test_bad_with_the_errors_words_for_each_file(self, places: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (places / "a.toml").write_text('[limits]\nmemroy = "1GiB"\n')
        (places / "b.toml").write_text('[limits]\nmemory = "1 apple"\n')
        (places / "good.toml").write_text("")
        assert main(["policy", "check", "a.toml", "b.toml", "good.toml"]) == 1
        said = capsys.readouterr()
        first, second = said.err.splitlines()
        assert str(places / "a.toml") in first and "limits.memroy" in first and "'memory'" in first
        assert str(places / "b.toml") in second and "'1 apple'" in second
        assert "good.toml: can be used" in said.out

    def test_the_administrators_bounds_count(self, places: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (places / "etc.toml").write_text('[limits]\nmemory = "512MiB"\n')
        (places / "a.toml").write_text('[limits]\nmemory = "1GiB"\n')
        assert main(["policy", "check", "a.toml"]) == 1
        said = capsys.readouterr().err
        for word in (str(places / "a.toml"), "limits.memory", "1 GiB", str(places / "etc.toml"), "512 MiB"):
            assert word in said
        assert main(["policy", "check", "etc.toml"]) == 0

    def test_the_users_own_policy_does_not(self, places: Path) -> None:
        user = places / "home" / ".config" / "sandbox-kernel" / "policy.toml"
        user.parent.mkdir(parents=True)
        user.write_text("nonsense")
        (places / "a.toml").write_text("")
        assert main(["policy", "check", "a.toml"]) == 0


class TestDocument:
    def test_docs_are_current(self) -> None:
        """Write them anew with: sandbox-kernel policy docs > docs/policy.md"""
        assert (ROOT / "docs" / "policy.md").read_text(encoding="utf-8") == document()

    def test_is_what_the_command_prints(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["policy", "docs"]) == 0
        assert capsys.readouterr().out == document()

    def test_names_every_key_and_preset(self) -> None:
        text = document()
        for key in KEYS:
            row = next(line for line in text.splitlines() if line.startswith(f"| `{key.partition('.')[2]}` |"))
            cells = [cell.strip() for cell in row.strip("|").split("|")]
            assert len(cells) == 4 and all(cells[:3]), row
            assert cells[3] or key == "network.mode"
        for name in presets():
            assert f"**`{name}`**" in text

    def test_its_example_is_a_policy(self, places: Path) -> None:
        example = document().partition("```toml\n")[2].partition("```")[0]
        (places / "example.toml").write_text(example)
        assert Policy.load(places / "example.toml").limits.memory == 2 * 1024**3


class TestHelp:
    @pytest.mark.parametrize(
        "command",
        [["--help"], ["policy", "--help"], ["policy", "show", "--help"], ["policy", "check", "--help"],
         ["doctor", "--help"], ["install", "--help"], ["run", "--help"]],
    )  # fmt: skip
    def test_teaches_with_examples(self, command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as caught:
            main(command)
        assert caught.value.code == 0
        text = capsys.readouterr().out
        assert "examples:" in text and text.count("sandbox-kernel ") >= 3
        assert max(map(len, text.splitlines())) <= 120

    def test_the_files_in_the_help_are_policies(self, places: Path, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            main(["policy", "--help"])
        example = capsys.readouterr().out.partition("a policy file:\n")[2].partition("\n\n")[0]
        (places / "example.toml").write_text("\n".join(line.removeprefix("  ") for line in example.splitlines()))
        assert Policy.load(places / "example.toml").limits.cell_time == 90


class TestInstall:
    """A kernelspec's policy is the one that its kernel resolves."""

    @pytest.mark.parametrize("policy", ["course.toml", "classroom"])
    def test_what_the_kernel_of_that_name_gets(self, places: Path, policy: str) -> None:
        (places / "course.toml").write_text('preset = "classroom"\n[limits]\nprocesses = 64\n')
        arguments = ["--name", "course101", "--policy", policy, "--display-name", "Course 101"]
        assert main(["install", "--prefix", str(places), *arguments]) == 0
        file = places / "share" / "jupyter" / "kernels" / "course101" / "kernel.json"
        spec = json.loads(file.read_text())
        assert spec["display_name"] == "Course 101"
        (places / "work").mkdir()
        found = Policy.resolve({**os.environ, **spec["env"]}, etc=places / "etc.toml", workspace=places / "work")
        assert found.policy.limits.processes == (64 if policy.endswith("toml") else 128)
        assert found.policy.limits.memory == 1024**3

    def test_a_preset_that_is_none_is_refused(self, places: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["install", "--prefix", str(places), "--policy", "clasroom"]) == 1
        assert "Did you mean 'classroom'?" in capsys.readouterr().err
        assert not (places / "share").exists()
