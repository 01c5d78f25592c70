"""`sandbox-kernel run -j`: many notebooks at a time, and going on where a run has ended."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from sandbox_kernel.cli import main
from sandbox_kernel.cli.signing import is_ours, sign, user_key

from .grading.watched import __file__ as WATCHED

STOCK = ["--kernel", "python3"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def write(name: str, *codes: str) -> str:
    nbformat.write(new_notebook(cells=[new_code_cell(code) for code in codes]), name)
    return name


def outputs(name: str) -> str:
    cells = nbformat.read(f"executed/{name}", as_version=4).cells
    return "".join(out.get("text", "") for cell in cells for out in cell.get("outputs", ()))


@pytest.mark.timeout(240)  # six kernels
def test_many_at_a_time_and_again(capsys: pytest.CaptureFixture[str]) -> None:
    log = "open('log', 'a').write('x')"
    good = write("good.ipynb", log, "print('well', 'done')")
    bad = write("bad.ipynb", log, "print('so', 'far')", "1 / 0", "print('never')")
    names = [good, bad, "missing.ipynb"]
    assert main(["run", *names, *STOCK, "-j", "2", "--html"]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    for words in ("good.ipynb 2 of 2 cells ok", "ZeroDivisionError", "No such file"):
        assert words in shown
    assert (outputs(good), outputs(bad)) == ("well done\n", "so far\n")
    assert Path("executed/good.html").exists()
    assert Path("log").read_text() == "xx"

    Path("executed/good.html").unlink()
    assert main(["run", *names, *STOCK, "--resume", "--html"]) == 1
    assert "1 of 3 are done already" in capsys.readouterr().err
    assert Path("log").read_text() == "xxx", "what failed is tried again"
    assert Path("executed/good.html").exists()

    # A cell can write where the results lie. What it leaves there is not believed, even if it looks executed.
    other = write("other.ipynb", log, "print('really')")
    forged = nbformat.read("executed/good.ipynb", as_version=4)
    nbformat.write(forged, "executed/other.ipynb")
    changed = nbformat.read("executed/good.ipynb", as_version=4)
    changed.cells[1].outputs[0].text = "forged\n"
    nbformat.write(changed, "executed/good.ipynb")
    assert main(["run", good, other, *STOCK, "--resume"]) == 0
    assert (outputs(good), outputs(other)) == ("well done\n", "really\n")
    assert Path("log").read_text() == "xxxxx"


@pytest.mark.timeout(120)
def test_a_policy_holds_for_the_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "p.toml").write_text("[limits]\ncell_time = '1s'\n")
    (tmp_path / "n").mkdir()
    name = write("n/slow.ipynb", "import time; time.sleep(100)")
    write("n/quick.ipynb", "2 + 2")
    assert main(["install", "--prefix", str(tmp_path / "env"), "--name", "sandboxed-python"]) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(tmp_path / "env" / "share" / "jupyter"))
        arguments = ["--policy", "policies/p.toml", "-j", "2"]
        assert main(["run", name, "n/quick.ipynb", *arguments]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "TimeLimit" in shown and "limits.cell_time = 1 s" in shown and "n/quick.ipynb 1 of 1 cells ok" in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*STOCK, "--policy", "classroom"], "is not a sandboxed one"),
        (["--kernel", "course", "--policy", "classroom"], "has a policy of its own"),
        (["--kernel", "plain", "--policy", "clasroom"], "Did you mean 'classroom'?"),
        (["--kernel", "plain", "--policy", "./none.toml"], "none.toml"),
    ],
)
def test_a_policy_that_would_not_hold_is_refused(
    tmp_path: Path, arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "env" / "share" / "jupyter"))
    for more in (["--name", "plain"], ["--name", "course", "--policy", "strict"]):
        assert main(["install", "--prefix", str(tmp_path / "env"), *more]) == 0
    assert main(["run", write("n.ipynb", "1"), *arguments]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.timeout(120)
def test_ctrl_c_leaves_no_process(tmp_path: Path) -> None:
    codes = ("open('began', 'w').close()", "import time; time.sleep(1000)")
    names = [write(f"{number}.ipynb", *codes) for number in range(3)]
    code = "import sys; from sandbox_kernel.cli import main; sys.exit(main())"
    command = [sys.executable, WATCHED, str(tmp_path / "began"), sys.executable, "-c", code, "run", *names, *STOCK]
    done = subprocess.run([*command, "-j", "2"], capture_output=True, text=True, timeout=100)
    found = json.loads(done.stdout)
    assert (found["status"], found["left"]) == (130, [])
    assert found["output"].endswith("sandbox-kernel: interrupted\n")


class TestSigning:
    def test_only_the_same_results_of_the_same_notebook(self) -> None:
        key, notebook = user_key(), new_notebook(cells=[new_code_cell("1")])
        assert not is_ours(notebook, "a", key)
        sign(notebook, "a", key)
        again = nbformat.reads(nbformat.writes(notebook), as_version=4)
        assert is_ours(again, "a", key)
        assert not is_ours(again, "b", key)
        assert not is_ours(again, "a", b"another key")
        again.cells[0].source = "2"
        assert not is_ours(again, "a", key)

    def test_the_key_is_the_users_own(self, tmp_path: Path) -> None:
        assert user_key() == user_key()
        path = tmp_path / "state" / "sandbox-kernel" / "run.key"
        assert path.stat().st_mode & 0o777 == 0o600
        assert [file.name for file in path.parent.iterdir()] == ["run.key"]
