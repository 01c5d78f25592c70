"""Files that were not kept outlive the kernel: `import mymodule` works after a restart, at either level."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel.cli import main

from .conftest import LEVELS, Running, Start, starting

POLICY = '[files]\nworkspace = "overlay"\n'


@pytest.fixture(scope="module", params=LEVELS)
def kernel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    top = tmp_path_factory.mktemp("aside")
    folder: Path = top / "work"
    (folder / "sub").mkdir(parents=True)
    (folder / "data.csv").write_text("theirs")
    with starting(top) as start:
        yield start(request.param, policy=POLICY, folder=folder)


def _again(kernel: Running, *, now: bool) -> None:
    kernel.manager.restart_kernel(now=now)
    kernel.client.wait_for_ready(timeout=60)


def test_a_restart_loses_no_file(kernel: Running, capsys: pytest.CaptureFixture[str]) -> None:
    outcome = kernel.good(
        "import os\nopen('mymod.py', 'w').write('x = 1'); open('sub/m.pkl', 'w').write('model')\n"
        "os.remove('data.csv'); open('data.csv', 'w').write('changed')",
        allow_stdin=True,
    )
    assert "[Cells have that after a restart, too. " in outcome.stderr
    _again(kernel, now=False)
    code = "import mymod; print(mymod.x, open('sub/m.pkl').read(), open('data.csv').read())"
    outcome = kernel.good(code, allow_stdin=True)
    assert outcome.stdout == "1 model changed\n"
    assert outcome.stderr == "[Here again, from an earlier session: data.csv, mymod.py, sub/m.pkl]\n"
    assert {str(p.relative_to(kernel.folder)) for p in kernel.folder.rglob("*")} == {"sub", "data.csv"}
    assert (kernel.folder / "data.csv").read_text() == "theirs"
    # They are the cells' own files, as before.
    kernel.good("import os; os.rename('mymod.py', 'sub/other.py'); open('sub/m.pkl', 'a').write(' 2')")
    kernel.good("import sys; sys.path.insert(0, 'sub'); import other; print(other.x)")
    _again(kernel, now=True)  # with no moment to do anything in
    outcome = kernel.good("import os; print(sorted(os.listdir('sub')), open('sub/m.pkl').read())")
    assert outcome.stdout == "['m.pkl', 'other.py'] model 2\n"
    assert outcome.stderr == "", "a document that is made again does not say so"
    assert main(["files", kernel.manager.connection_file]) == 0
    assert "sub/other.py  5 bytes  only inside: made in an earlier session\n" in capsys.readouterr().out


def test_a_person_takes_out_what_was_left(kernel: Running, capsys: pytest.CaptureFixture[str]) -> None:
    kernel.good("open('left.py', 'w').write('y = 1'); open('mine.py', 'w').write('cell')")
    folder = str(kernel.folder)
    (kernel.folder / "mine.py").write_text("theirs")
    assert main(["files", "--aside", folder]) == 0
    assert "left.py" in capsys.readouterr().out
    assert main(["files", "--aside", folder, "--keep", "left.py", "--keep", "mine.py", "--keep", "../x"]) == 1
    out = capsys.readouterr().out
    assert "'left.py': kept" in out and "'mine.py': not kept, a file of that name" in out
    assert "'../x': not kept, hidden or unprintable name" in out
    assert (kernel.folder / "left.py").read_text() == "y = 1" and (kernel.folder / "mine.py").read_text() == "theirs"
    assert main(["files", "--aside", folder, "--forget"]) == 0
    assert "but for what belongs to 1 kernels that run" in capsys.readouterr().out
    kernel.manager.shutdown_kernel()
    assert main(["files", "--aside", folder, "--keep", "mine.py", "--forget"]) == 1
    assert "Nothing is forgotten" in capsys.readouterr().out
    assert main(["files", "--aside", folder, "--keep", "mine.py", "--replace"]) == 0
    assert (kernel.folder / "mine.py").read_text() == "cell"
    assert main(["files", "--aside", folder, "--forget"]) == 0
    capsys.readouterr()
    assert main(["files", "--aside", folder]) == 0
    assert "Nothing is set aside" in capsys.readouterr().out
    assert main(["files", "--aside", "/nowhere"]) == 1 and main(["files", "--forget"]) == 1


def test_where_nothing_can_be_set_aside_it_is_said(start: Start) -> None:
    kernel = start("full", policy=POLICY, env={"XDG_DATA_HOME": "/proc/no folder"})
    said = kernel.good("open('mymod.py', 'w').write('x = 1')", allow_stdin=True).stderr
    assert "[That ends with the kernel. In a terminal" in said
    assert "[Ends with the kernel, since it could not be set aside (there is no folder for that): mymod.py]" in said
    kernel.good("import mymod")


@pytest.mark.parametrize("policy", ['aside = "none"\n', 'workspace = "read-only"\n'])
def test_nothing_stays_where_the_policy_says_so(
    tmp_path_factory: pytest.TempPathFactory, policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with starting(tmp_path_factory.mktemp("none")) as start:
        kernel = start("full", policy=POLICY + policy if "aside" in policy else f"[files]\n{policy}")
        kernel.run("open('mymod.py', 'w').write('x = 1')", allow_stdin=True)
        kernel.manager.shutdown_kernel()
        assert main(["files", "--aside", str(kernel.folder)]) == 0
        assert "Nothing is set aside" in capsys.readouterr().out
