"""``%sandbox files`` and `sandbox-kernel files`: a person sees and takes out files; no cell can."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel.cli import main

from .conftest import LEVELS, Running, starting


@pytest.fixture(scope="module", params=LEVELS)
def kernel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with starting(tmp_path_factory.mktemp("asked")) as start:
        kernel = start(request.param, policy='[files]\nworkspace = "overlay"\n')
        (kernel.folder / "mine.py").write_text("theirs")
        kernel.good(
            "import os\nopen('out.csv', 'w').write('x' * 2048)\nopen('model.py', 'w').write('y = 1')\n"
            "os.makedirs('deep'); open('deep/n.ipynb', 'w').write('{}')\nos.symlink('/etc/passwd', 'door.py')\n"
            "os.path.lexists('mine.py') and os.remove('mine.py'); open('mine.py', 'w').write('cell')"
        )
        yield kernel


def test_the_list(kernel: Running, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["files", kernel.manager.connection_file]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert lines["out.csv"].split()[1:] == ["2", "KiB", "kept"]
    assert "only inside: not among files.keep" in lines["model.py"] and "door.py" not in lines
    shown = kernel.good("%sandbox files").stdout
    assert [line in shown for line in lines.values()] == [True] * len(lines)
    assert "sandbox-kernel files --keep" in shown


def test_a_person_keeps_what_is_no_data(kernel: Running, capsys: pytest.CaptureFixture[str]) -> None:
    file = kernel.manager.connection_file
    assert main(["files", file, "--keep", "model.py", "--keep", "deep/n.ipynb", "--list"]) == 0
    assert (kernel.folder / "model.py").read_text() == "y = 1" and (kernel.folder / "deep" / "n.ipynb").exists()
    assert "'model.py': kept" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("mine.py", "a file of that name exists and is not the sandbox's"), ("door.py", "no ordinary file"),
        ("missing.py", "there is no such file"),
        ("../outside.py", "hidden or unprintable name"), ("/etc/passwd", "hidden or unprintable name"),
        ("deep", "no ordinary file"), ("deep/../model.py", "hidden or unprintable name"), (".env", "hidden"),
        ("", "hidden or unprintable name"),
    ],
)  # fmt: skip
def test_the_other_rules_hold(kernel: Running, capsys: pytest.CaptureFixture[str], name: str, why: str) -> None:
    assert main(["files", kernel.manager.connection_file, "--keep", name]) == 1
    assert f"not kept, {why}" in capsys.readouterr().out
    assert (kernel.folder / "mine.py").read_text() == "theirs"


def test_a_person_has_a_file_replaced(kernel: Running, capsys: pytest.CaptureFixture[str]) -> None:
    (kernel.folder / "second.py").write_text("theirs")
    kernel.good("os.path.lexists('second.py') and os.remove('second.py'); open('second.py', 'w').write('cell')")
    file = kernel.manager.connection_file
    assert main(["files", file, "--keep", "second.py"]) == 1
    assert main(["files", file, "--keep", "second.py", "--replace"]) == 0
    assert (kernel.folder / "second.py").read_text() == "cell" and "'second.py': kept" in capsys.readouterr().out


def test_without_a_name_it_is_the_latest_that_runs(
    kernel: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels that were killed leave their connection files behind."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    shutil.copy(kernel.manager.connection_file, tmp_path / "kernel-runs.json")
    with socket.create_server(("127.0.0.1", 0)) as place:
        port = place.getsockname()[1]  # nobody listens there any more
    stale = {**json.loads((tmp_path / "kernel-runs.json").read_text()), "control_port": port}
    for n, text in enumerate((json.dumps(stale), "no JSON"), 1):
        (tmp_path / f"kernel-stale{n}.json").write_text(text)
        os.utime(tmp_path / f"kernel-stale{n}.json", (2e9 + n, 2e9 + n))
    assert main(["files"]) == 0
    assert "out.csv" in capsys.readouterr().out
    (tmp_path / "kernel-runs.json").unlink()
    assert main(["files"]) == 1
    said = capsys.readouterr().err
    assert "no Sandboxed Python answers, of 2 kernels" in said and "files --aside" in said


def test_no_words_of_a_cell_keep_anything(kernel: Running) -> None:
    assert "no cell can" in kernel.good("%sandbox files --keep model.py").stdout


ATTEMPT = """
import json, os
from jupyter_client.blocking import BlockingKernelClient
known = {known}
client = BlockingKernelClient()
try:
    if known:
        client.load_connection_info(known)
    else:
        client.load_connection_file({file!r})
    client.start_channels(shell=False, iopub=False, stdin=False, hb=False, control=True)
    client.control_channel.send(client.session.msg('sandbox_files_request', {{'keep': ['taken.py']}}))
    print(client.get_control_msg(timeout=3)['content']['status'])
except BaseException as error:
    print(type(error).__name__)
"""


@pytest.mark.parametrize("stolen", [False, True])
@pytest.mark.parametrize("level", [*LEVELS, "subprocess"])
def test_a_cell_cannot_ask(tmp_path_factory: pytest.TempPathFactory, level: str, stolen: bool) -> None:
    """Not even one that was told the key; without the wall it works."""
    top: Path = tmp_path_factory.mktemp("attempt")
    with starting(top) as start:
        kernel = start(level, policy='require = "subprocess"\n[files]\nworkspace = "overlay"\n')
        file = kernel.manager.connection_file
        known = json.loads(Path(file).read_text()) if stolen else None
        kernel.good("open('taken.py', 'w').write('x')")
        kernel.run(ATTEMPT.format(known=known, file=file))
        assert (kernel.folder / "taken.py").exists() is (level == "subprocess")


def test_a_kernel_that_is_none_of_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    assert main(["files", "nosuch"]) == 1
    assert "there is no connection file kernel-nosuch*.json" in capsys.readouterr().err
    for name in ("kernel-ab1.json", "kernel-ab2.json"):
        (tmp_path / name).write_text("no JSON")
    assert main(["files", "ab"]) == 1 and "2 kernels begin with 'ab'" in capsys.readouterr().err
    assert main(["files", "ab1"]) == 1 and "cannot be used" in capsys.readouterr().err
