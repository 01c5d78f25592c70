"""The command line: kernelspecs and notebooks in the terminal."""

from __future__ import annotations

import base64
import io
import json
import os
import signal
import struct
import subprocess
import sys
import sysconfig
from pathlib import Path

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from rich.console import Console

from sandbox_kernel.cli import main
from sandbox_kernel.cli.results import OutputFolder, clean, page
from sandbox_kernel.cli.show import Terminal, describe_image, overwritten, printable
from sandbox_kernel.cli.stop import Stop
from sandbox_kernel.cli.tables import read_table

from .waiting import wait_for

# Ordinary kernel: what the command does with a notebook does not depend on where its cells run.
STOCK = ["--kernel", "python3"]


def spec_in(prefix: Path, name: str = "sandboxed-python") -> dict[str, object]:
    folder = prefix / "share" / "jupyter" / "kernels" / name
    assert {path.name for path in folder.iterdir()} == {
        "kernel.json", "logo-32x32.png", "logo-64x64.png", "logo-svg.svg",
    }  # fmt: skip
    loaded: dict[str, object] = json.loads((folder / "kernel.json").read_text(encoding="utf-8"))
    return loaded


@pytest.mark.parametrize(("words", "among"), [([], "grade"), (["policy"], "check"), (["audit"], "verify")])
def test_a_command_without_its_verb_says_which_there_are(
    words: list[str], among: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    said = capsys.readouterr()
    assert not said.out and f"    {among} " in said.err and "--help" in said.err


class TestInstall:
    def test_writes_a_kernelspec_that_jupyter_finds(self, tmp_path: Path) -> None:
        assert main(["install", "--prefix", str(tmp_path)]) == 0
        assert spec_in(tmp_path) == {
            "argv": [sys.executable, "-P", "-m", "sandbox_kernel", "-f", "{connection_file}"],
            "display_name": "Sandboxed Python",
            "language": "python",
            "metadata": {"debugger": True, "supported_encryption": ["curve"]},
        }
        kernels = tmp_path / "share" / "jupyter" / "kernels"
        found = KernelSpecManager(kernel_dirs=[str(kernels)]).find_kernel_specs()
        assert Path(found["sandboxed-python"]) == kernels / "sandboxed-python"

    def test_can_be_read_by_everyone(self, tmp_path: Path) -> None:
        before = os.umask(0o022)
        try:
            main(["install", "--prefix", str(tmp_path)])
        finally:
            os.umask(before)
        folder = tmp_path / "share" / "jupyter" / "kernels" / "sandboxed-python"
        assert folder.stat().st_mode & 0o777 == 0o755
        assert all(path.stat().st_mode & 0o444 == 0o444 for path in folder.iterdir())

    def test_user_goes_to_the_users_folder(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["install", "--user", "--name", "for-me"]) == 0
        data = Path(os.environ["JUPYTER_DATA_DIR"])
        assert (data / "kernels" / "for-me" / "kernel.json").is_file()
        assert str(data) in capsys.readouterr().out

    def test_named_kernel_has_its_policy(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "course.toml").write_text('[limits]\nmemory = "1GiB"\n')
        monkeypatch.chdir(tmp_path)
        arguments = ["install", "--prefix", "here", "--name", "Course", "--policy", "course.toml"]
        assert main(arguments) == 0
        spec = spec_in(tmp_path / "here", "course")
        assert spec["env"] == {"SANDBOX_KERNEL_POLICY": str(tmp_path / "course.toml")}
        assert spec["display_name"] == "Sandboxed Python (Course)"

    def test_display_name_is_taken_as_it_is(self, tmp_path: Path) -> None:
        main(["install", "--prefix", str(tmp_path), "--name", "course", "--display-name", "Statistics 1"])
        assert spec_in(tmp_path, "course")["display_name"] == "Statistics 1"

    def test_dollar_in_the_policys_path_reaches_the_kernel(self, tmp_path: Path) -> None:
        policy = tmp_path / "a $HOME of policies" / "p.toml"
        policy.parent.mkdir()
        policy.touch()
        main(["install", "--prefix", str(tmp_path), "--policy", str(policy)])
        kernels = tmp_path / "share" / "jupyter" / "kernels"
        # The substitution is the provisioner's, so let Jupyter start a process that tells what it got.
        path = kernels / "sandboxed-python" / "kernel.json"
        spec = json.loads(path.read_text(encoding="utf-8"))
        code = "import os, sys; open(sys.argv[1], 'w').write(os.environ['SANDBOX_KERNEL_POLICY'])"
        spec["argv"] = [sys.executable, "-c", code, str(tmp_path / "got")]
        path.write_text(json.dumps(spec), encoding="utf-8")
        manager = KernelManager(kernel_name="sandboxed-python")
        manager.kernel_spec_manager = KernelSpecManager(kernel_dirs=[str(kernels)])
        manager.start_kernel()
        manager.provisioner.process.wait(timeout=80)  # type: ignore[union-attr]
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()
        assert (tmp_path / "got").read_text() == str(policy)

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ('[limits]\nmemroy = "1GiB"\n', "Did you mean 'memory'?"),
            ("[limits\n", "is not valid TOML"),
            ('[isolation]\nlevel = "none"\n', "none"),
        ],
    )
    def test_unusable_policy_is_refused_and_nothing_written(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
    ) -> None:
        policy = tmp_path / "p.toml"
        policy.write_text(text)
        assert main(["install", "--prefix", str(tmp_path / "env"), "--policy", str(policy)]) == 1
        assert words in capsys.readouterr().err
        assert not (tmp_path / "env").exists()

    def test_missing_policy_is_refused(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["install", "--prefix", str(tmp_path), "--policy", str(tmp_path / "none.toml")]) == 1
        said = capsys.readouterr().err
        assert f"There is no {tmp_path / 'none.toml'}. Write it first" in said and "classroom, open" in said

    @pytest.mark.parametrize("name", ["..", ".", "", "a/b", "-x y", "a b", "../../x"])
    def test_name_that_would_leave_the_folder_is_refused(
        self, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["install", "--prefix", str(tmp_path), f"--name={name}"]) == 1
        assert "cannot name a kernelspec" in capsys.readouterr().err
        assert list(tmp_path.iterdir()) == []

    def test_unwritable_place_is_a_sentence(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["install", "--prefix", "/proc/nowhere"]) == 1
        assert "could not be written" in capsys.readouterr().err

    @pytest.mark.parametrize("command", [["install"], ["run", "x.ipynb"]])
    def test_refuses_off_linux(
        self, command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(sys, "platform", "darwin")
        assert main(command) == 1
        assert "Linux" in capsys.readouterr().err


class TestHelp:
    def test_names_every_command_and_shows_examples(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as stop:
            main(["--help"])
        assert stop.value.code == 0
        text = capsys.readouterr().out
        assert "examples:" in text
        assert "{" not in text
        assert [word for word in ("install", "run", "grade") if f"\n    {word} " not in text] == []

    @pytest.mark.parametrize("command", ["install", "run", "grade"])
    def test_each_command_shows_examples(self, command: str, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            main([command, "--help"])
        assert f"  sandbox-kernel {command}" in capsys.readouterr().out

    def test_script_is_installed(self) -> None:
        script = Path(sysconfig.get_path("scripts")) / "sandbox-kernel"
        done = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=80)
        assert done.stdout.startswith("sandbox-kernel ")

    def test_names_of_files_are_no_commands_to_the_terminal(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """As a shell's ``*`` gives them; who handed the file in chose its name."""
        handed_in = tmp_path / "\x1b]52;c;eA==\x07.txt"
        handed_in.touch()
        (tmp_path / "tests.py").write_text("def test_a(student):\n    pass\n")
        assert main(["grade", str(handed_in), "--tests", str(tmp_path / "tests.py")]) == 2
        said = capsys.readouterr().err
        assert "is no .ipynb or .py file" in said and "\x1b" not in said and "\x07" not in said

    def test_a_reader_that_leaves_is_no_error(self) -> None:
        """As with `sandbox-kernel policy docs | head -1`."""
        reading, writing = os.pipe()
        os.close(reading)
        script = Path(sysconfig.get_path("scripts")) / "sandbox-kernel"
        done = subprocess.run([script, "policy", "docs"], stdout=writing, stderr=subprocess.PIPE, text=True, timeout=80)
        os.close(writing)
        assert (done.returncode, done.stderr) == (141, "")

    def test_importing_the_command_needs_no_extra(self) -> None:
        code = (
            "import sys, sandbox_kernel.cli\n"
            "print([m for m in ('nbclient', 'nbconvert', 'nbformat', 'rich') if m in sys.modules])"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=80)
        assert done.stdout.strip() == "[]"


def sandbox_kernel(*arguments: str | Path) -> subprocess.Popen[str]:
    """Start the command as a process of its own."""
    code = "import sys; from sandbox_kernel.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def write(path: Path, *cells: nbformat.NotebookNode) -> Path:
    notebook = new_notebook(cells=list(cells))
    notebook.metadata["kernelspec"] = {"name": "elsewhere", "display_name": "Elsewhere", "language": "python"}
    nbformat.write(notebook, path)
    return path


class TestRun:
    def test_shows_cells_and_writes_results(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "data.txt").write_text("from the notebook's folder")
        path = write(
            tmp_path / "n.ipynb",
            new_markdown_cell("# A title"),
            new_code_cell("print(open('data.txt').read())"),
            new_code_cell("6 * 7"),
            new_code_cell("1 / 0", metadata={"tags": ["raises-exception"]}),
        )
        before = path.read_bytes()
        assert main(["run", str(path), *STOCK, "--html", "--output", str(tmp_path / "out")]) == 0
        shown = capsys.readouterr().out
        for words in ("A title", "cell 1 of 3", "from the notebook's folder", "42", "ZeroDivisionError: "):
            assert words in shown
        assert path.read_bytes() == before
        executed = nbformat.read(tmp_path / "out" / "n.ipynb", as_version=4)
        nbformat.validate(executed)
        assert executed.cells[2].outputs[0].data["text/plain"] == "42"
        assert executed.metadata.kernelspec.name == "python3"
        assert "A title" in (tmp_path / "out" / "n.html").read_text(encoding="utf-8")

    def test_failing_cell_stops_the_notebook(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        stale = [new_output("stream", name="stdout", text="from an earlier run")]
        cells = [new_code_cell("nowhere"), new_code_cell("print('on')", outputs=stale)]
        path = write(tmp_path / "n.ipynb", *cells)
        assert main(["run", str(path), *STOCK, "--output", str(tmp_path / "out")]) == 1
        shown = capsys.readouterr().out
        assert "NameError: name 'nowhere' is not defined" in shown
        executed = nbformat.read(tmp_path / "out" / "n.ipynb", as_version=4)
        assert executed.cells[0].outputs[0].ename == "NameError"
        assert executed.cells[1].outputs == []

    def test_allow_errors_goes_on(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = write(tmp_path / "n.ipynb", new_code_cell("nowhere"), new_code_cell("print('went', 'on')"))
        arguments = ["run", str(path), *STOCK, "--allow-errors", "--output", str(tmp_path / "out")]
        assert main(arguments) == 0
        assert "went on" in capsys.readouterr().out

    def test_the_other_notebooks_still_run(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        broken = tmp_path / "broken.ipynb"
        broken.write_text("{}")
        good = write(tmp_path / "good.ipynb", new_code_cell("print('go', 'od')"))
        missing = tmp_path / "missing.ipynb"
        out = tmp_path / "out"
        assert main(["run", str(missing), str(broken), str(good), *STOCK, "--output", str(out)]) == 1
        shown = " ".join(capsys.readouterr().out.split())
        assert "No such file" in shown and "is not a notebook" in shown and "go od" in shown
        assert [path.name for path in out.iterdir()] == ["good.ipynb"]

    def test_slow_cell_is_stopped(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = write(tmp_path / "n.ipynb", new_code_cell("import time; time.sleep(50)"))
        assert main(["run", str(path), *STOCK, "--timeout", "1", "--output", str(tmp_path / "out")]) == 1
        assert "longer than 1 s" in " ".join(capsys.readouterr().out.split())

    def test_unknown_kernel_is_a_sentence(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = write(tmp_path / "n.ipynb", new_code_cell("1"))
        assert main(["run", str(path), "--kernel", "nobody"]) == 1
        assert "no kernelspec named 'nobody'" in capsys.readouterr().err

    def test_kernel_that_does_not_start_is_a_sentence(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = tmp_path / "kernels" / "stillborn"
        folder.mkdir(parents=True)
        argv = [sys.executable, "-c", "raise SystemExit(3)"]
        spec = {"argv": argv, "display_name": "x", "language": "python"}
        (folder / "kernel.json").write_text(json.dumps(spec))
        monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
        path = write(tmp_path / "n.ipynb", new_code_cell("1"))
        done = sandbox_kernel("run", path, "--kernel", "stillborn", "--output", tmp_path / "out")
        stdout, stderr = done.communicate(timeout=80)
        assert done.returncode == 1
        assert "did not start, so no cell was run" in " ".join(stdout.split())
        assert "Traceback" not in stderr
        assert list((tmp_path / "out").iterdir()) == []

    def test_interrupt_ends_the_kernel_and_the_command(self, tmp_path: Path) -> None:
        code = "import os, pathlib, time; pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(300)"
        path = write(tmp_path / "n.ipynb", new_code_cell(code), new_code_cell("2"))
        running = sandbox_kernel("run", path, path.with_name("m.ipynb"), *STOCK, "--output", tmp_path / "out")
        pid = tmp_path / "pid"
        wait_for(lambda: pid.exists() and pid.read_text(), 80)
        running.send_signal(signal.SIGINT)
        _, stderr = running.communicate(timeout=80)
        assert running.returncode == 130
        assert stderr.endswith("sandbox-kernel: interrupted\n")
        assert "nbclient" not in stderr
        assert not Path("/proc", pid.read_text()).exists()

    def test_same_names_are_refused(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["run", "a/n.ipynb", "b/n.ipynb", *STOCK, "--output", str(tmp_path / "out")]) == 1
        assert "overwrite" in capsys.readouterr().err

    def test_notebook_itself_is_not_overwritten(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = write(tmp_path / "n.ipynb", new_code_cell("1"))
        before = path.read_bytes()
        assert main(["run", str(path), *STOCK, "--output", str(tmp_path)]) == 1
        assert "would be overwritten" in capsys.readouterr().err
        assert path.read_bytes() == before

    def test_missing_package_names_the_extra(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for name in [name for name in sys.modules if name.startswith(("rich.", "sandbox_kernel.cli."))]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "rich", None)
        monkeypatch.setitem(sys.modules, "rich.console", None)
        assert main(["run", "n.ipynb"]) == 1
        assert "pip install '.[lab]'" in capsys.readouterr().err


class TestResults:
    """A cell may have prepared the folder that results are written to."""

    def test_link_in_the_way_is_replaced_and_not_followed(self, tmp_path: Path) -> None:
        victim = tmp_path / "victim"
        victim.write_text("precious")
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "n.ipynb").symlink_to(victim)
        with OutputFolder(tmp_path / "out") as folder:
            folder.write_notebook("n", new_notebook())
        assert victim.read_text() == "precious"
        assert not (tmp_path / "out" / "n.ipynb").is_symlink()

    def test_folder_that_is_a_link_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "out").symlink_to(tmp_path)
        with pytest.raises(Stop, match="symbolic link"), OutputFolder(tmp_path / "out"):
            pass

    def test_folder_swapped_for_a_link_meanwhile_is_not_followed(self, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        with OutputFolder(tmp_path / "out") as folder:
            (tmp_path / "out").rename(tmp_path / "moved")
            (tmp_path / "out").symlink_to(tmp_path / "elsewhere")
            folder.write_notebook("n", new_notebook())
        assert list((tmp_path / "elsewhere").iterdir()) == []


class TestPage:
    HOSTILE = (
        "<b>kept</b><script>steal()</script><img src=x onerror=steal()><iframe src=//a.example></iframe>"
        "<a href='javascript:steal()'>link</a><form action=//a.example><input type=password></form>"
        "<meta http-equiv=refresh content='0;url=//a.example'><svg onload=steal()></svg>"
    )

    def test_forbids_script_first_of_all(self) -> None:
        html = page(new_notebook(), title="t")
        policy = html.index("Content-Security-Policy")
        assert "default-src 'none'" in html
        assert policy < html.index("<script")

    def test_nothing_hostile_is_left(self) -> None:
        data = {"text/html": self.HOSTILE, "text/vnd.mermaid": self.HOSTILE}
        data["application/javascript"] = "steal()"
        cells = [
            new_code_cell("1", outputs=[new_output("display_data", data=data)]),
            new_markdown_cell(self.HOSTILE),
        ]
        html = page(new_notebook(cells=cells), title="t")
        body = html[html.index("<body") :]
        assert body.count("<b>kept</b>") == 2
        for bad in ("steal()", "onerror", "<iframe", "javascript:", "<form", "password", "refresh", "onload"):
            assert bad not in body, bad

    def test_tables_and_their_styles_stay(self) -> None:
        table = "<table border='1' class='dataframe'><thead><tr><th>x</th></tr></thead></table>"
        html = f"<style>.a{{color:red}}</style>{table}"
        assert "<style>.a{color:red}</style>" in clean(html)
        assert "<thead><tr><th>x</th></tr></thead>" in clean(html)

    def test_pictures_stay_and_other_data_links_go(self) -> None:
        assert 'src="data:image/png;base64,AA=="' in clean("<img src='data:image/png;base64,AA=='>")
        assert "data:" not in clean("<a href='data:text/html,<script>1</script>'>x</a>")

    def test_sizes_of_pictures_are_numbers(self) -> None:
        """nbconvert writes them without quotes."""
        outs = [
            new_output("display_data", {mime: "AAAA"}, metadata=metadata)
            for mime, metadata in (
                ("image/png", {"image/png": {"width": 30, "height": "1 onerror=x"}}),
                ("image/jpeg", {"width": "1 onload=x", "filenames": {"image/jpeg": "/x"}}),
            )
        ]
        notebook = new_notebook(cells=[new_code_cell("", outputs=outs)])
        text = page(notebook, title="t")
        assert 'width="30"' in text or "width=30" in text
        assert "onerror" not in text and "onload" not in text and 'src="/x"' not in text

    def test_widget_state_is_left_out_and_the_notebook_unchanged(self) -> None:
        notebook = new_notebook()
        state = {"state": {}, "version_major": 2, "version_minor": 0}
        notebook.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": state}
        assert "html-manager" not in page(notebook, title="t")
        assert "widgets" in notebook.metadata


class TestTerminal:
    @pytest.mark.parametrize(
        "hostile",
        [
            "\x1b]0;title\x07x", "\x1b[2Jx", "\x1b]52;c;cGF3bmVk\x1b\\x", "\x9b2Jx", "\x1bPq\x1b\\x",
            "\x1b[6nx", "\x1bcx", "\x07x", "a\rx",
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("colours", [False, True])
    def test_no_control_sequence_gets_through(self, hostile: str, colours: bool) -> None:
        clean_text = printable(hostile, colours=colours)
        assert not [char for char in clean_text if ord(char) < 32 or 127 <= ord(char) < 160]
        assert clean_text.endswith("x")

    def test_sequence_hidden_in_a_sequence_stays_harmless(self) -> None:
        assert "\x1b" not in printable("\x1b\x1b[0m[2J")
        assert printable("\x1b\x1b[31m]52;c;eA==\x07", colours=True).count("\x1b") == 1

    def test_colours_are_kept_where_asked(self) -> None:
        assert printable("\x1b[31mred\x1b[0m", colours=True) == "\x1b[31mred\x1b[0m"
        assert printable("\x1b[31mred\x1b[0m") == "red"

    def test_progress_bars_show_their_last_state(self) -> None:
        assert overwritten("10 %\r50 %\r100 %\nnext\r\n") == "100 %\nnext\n"

    def shown(self, *outputs: nbformat.NotebookNode, expected: bool = False, width: int = 80) -> str:
        stream = io.StringIO()
        terminal = Terminal(Console(file=stream, width=width, highlight=False))
        for out in outputs:
            terminal.output(out, expected=expected)
        return stream.getvalue()

    def test_pieces_of_a_line_stay_one_line(self) -> None:
        pieces = [new_output("stream", name="stdout", text=text) for text in ("a", "b\n", "\n", "c\n")]
        assert self.shown(*pieces) == "ab\n\nc\n"

    def test_markup_in_output_is_text(self) -> None:
        assert "[red]x[/red]" in self.shown(new_output("stream", name="stdout", text="[red]x[/red]\n"))

    @pytest.mark.parametrize(
        "text", ["<http://a/%1b]52;c;eA==%07>", "<http://a/%c2%9d0;t%07>", "# &#x202e;txt", "|a|\n|-|\n|<http://a/%1b[2J>|"]
    )
    def test_what_markdown_decodes_is_no_command(self, text: str) -> None:
        shown = io.StringIO()
        terminal = Terminal(Console(file=shown, force_terminal=True, color_system=None, width=100))
        terminal.cell(new_markdown_cell(text))
        terminal.output(new_output("display_data", {"text/markdown": text}), expected=False)
        assert not {"\x1b", "\x07", "\x9d", "\u202e"} & set(shown.getvalue())

    def test_wide_table_falls_back_to_text(self) -> None:
        cells = "".join(f"<th>column number {index}</th>" for index in range(9))
        html = f"<table><thead><tr>{cells}</tr></thead><tbody><tr>{cells}</tr></tbody></table>"
        out = new_output("execute_result", data={"text/html": html, "text/plain": "as text"})
        assert "as text" in self.shown(out)
        assert "column number 8" in self.shown(out, width=400)

    def test_error_shows_name_and_message(self) -> None:
        out = new_output("error", ename="ValueError", evalue="bad\x1b[2J", traceback=["line 1", "line 2"])
        assert "line 1" in self.shown(out)
        assert self.shown(out, expected=True).strip() == "ValueError: bad"


class TestImages:
    def test_png(self) -> None:
        data = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 640, 480)
        assert describe_image("image/png", base64.b64encode(data).decode()) == "image (png, 640 x 480)"

    def test_jpeg(self) -> None:
        data = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x11\x08" + struct.pack(">HH", 30, 40) + b"\x03"
        assert describe_image("image/jpeg", base64.b64encode(data).decode()) == "image (jpeg, 40 x 30)"

    def test_svg(self) -> None:
        assert describe_image("image/svg+xml", '<svg width="12pt" height="8.4pt">') == "image (svg, 12 x 8)"

    @pytest.mark.parametrize("junk", ["", "!", "iVBORw0KGgo=", "/9j/", "\x1b]0;x\x07"])
    @pytest.mark.parametrize("mime", ["image/png", "image/jpeg", "image/gif", "image/svg+xml"])
    def test_junk_has_no_size(self, mime: str, junk: str) -> None:
        assert " x " not in describe_image(mime, junk)


class TestTables:
    def test_reads_what_pandas_writes(self) -> None:
        pandas = pytest.importorskip("pandas")
        index = pandas.Index(["p", "q"], name="who")
        frame = pandas.DataFrame({"a": [1, 2], "b": ["x & y", "<z>"]}, index=index)
        table = read_table(frame._repr_html_())
        assert table is not None
        assert table.header == ["who", "a", "b"]
        assert table.rows == [["p", "1", "x & y"], ["q", "2", "<z>"]]
        assert table.label_columns == 1
        html = "<table><thead><tr><th>a</th></tr></thead><tr><td> <b>4</b> (of <i>5</i>)\n</td></tr></table>"
        words = read_table(html)
        assert words is not None and words.rows == [["4 (of 5)"]], "the blanks beside a tag are text"
        long = read_table(pandas.DataFrame({"a": range(100)})._repr_html_())
        assert long is not None and long.after == ["100 rows \N{MULTIPLICATION SIGN} 1 columns"]

    @pytest.mark.parametrize(
        "html",
        [
            "", "<p>no table</p>", "<table>", "<table><td>x</td></table>",
            "<table><tr><td>x</td></tr></table>",
            "<table><thead><tr><th colspan=2>x</th></tr></thead><tr><td>1</td><td>2</td></tr></table>",
            "<table><thead><tr><th>x</th></tr></thead><tr><td>1</td><td>2</td></tr></table>",
            "<table>" * 5, "<table></td></th><td>",
        ],
    )  # fmt: skip
    def test_anything_else_is_left_to_the_text(self, html: str) -> None:
        assert read_table(html) is None
