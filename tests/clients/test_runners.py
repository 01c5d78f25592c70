"""Programs that execute a whole notebook."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import nbformat
import pexpect
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError
from nbformat.v4 import new_code_cell, new_notebook

from . import report
from .conftest import Client


def small(path: Path, *sources: str) -> Path:
    notebook = new_notebook(cells=[new_code_cell(source) for source in sources])
    notebook.metadata["kernelspec"] = report.KERNELSPEC
    nbformat.write(notebook, path)
    return path


def execute(path: Path, **options: Any) -> nbformat.NotebookNode:
    """By nbclient's API."""
    notebook: nbformat.NotebookNode = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(path.parent)}}
    client = NotebookClient(notebook, kernel_name=report.KERNEL, resources=resources, **options)
    asyncio.run(client.async_execute())
    return notebook


def test_nbclient(notebook: Path) -> None:
    nbformat.write(execute(notebook, timeout=90), notebook)
    report.check(notebook)


def test_nbclient_program(here: Client, notebook: Path) -> None:
    here.run("jupyter-execute", "--inplace", "--timeout=90", str(notebook))
    report.check(notebook)


def test_nbclient_ends_at_the_first_error(tmp_path: Path) -> None:
    path = small(tmp_path / "error.ipynb", "1 / 0", "open('came here.txt', 'w')")
    with pytest.raises(CellExecutionError, match=r"ZeroDivisionError.*division by zero"):
        execute(path, timeout=60)
    assert not (tmp_path / "came here.txt").exists()


def test_nbclient_time_limit(tmp_path: Path) -> None:
    path = small(tmp_path / "slow.ipynb", "import time\ntime.sleep(60)", "'next'")
    with pytest.raises(CellTimeoutError):
        execute(path, timeout=6)
    done = execute(path, timeout=6, interrupt_on_timeout=True, allow_errors=True)
    assert done.cells[0].outputs[-1].ename == "KeyboardInterrupt"
    assert done.cells[1].outputs[0].data["text/plain"] == "'next'"


def test_nbclient_stores_the_state_of_widgets(tmp_path: Path) -> None:
    path = small(
        tmp_path / "widgets.ipynb",
        "import ipywidgets\nslider = ipywidgets.IntSlider(4)\nheld = ipywidgets.Output()\n"
        "ipywidgets.VBox([slider, held])",
        "slider.value = 6\nwith held:\n    print('held')",
    )
    done = execute(path, timeout=60)
    assert done.cells[1].outputs == []
    state = done.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"].values()
    by_model = {model["model_name"]: model["state"] for model in state}
    assert by_model["IntSliderModel"]["value"] == 6
    assert [out["text"] for out in by_model["OutputModel"]["outputs"]] == ["held\n"]


def test_nbconvert(here: Client, notebook: Path) -> None:
    here.run("jupyter-nbconvert", "--execute", "--to=html", "--ExecutePreprocessor.timeout=90", str(notebook))
    page = notebook.with_suffix(".html").read_text()
    for part in ("<h1", "data:image/png;base64,", "the squares add up to 5", "a line for the log", "not readable, "):
        assert part in page
    assert page.count("<tr") == 4
    here.run("jupyter-nbconvert", "--execute", "--to=notebook", "--inplace", str(notebook))
    report.check(notebook)


def test_nbconvert_fails_with_the_notebook(here: Client) -> None:
    path = small(here.folder / "error.ipynb", "undefined_name")
    shown = here.run("jupyter-nbconvert", "--execute", "--to=html", str(path), check=False)
    assert shown.startswith("exit 1\n")
    assert "name 'undefined_name' is not defined" in shown
    assert not path.with_suffix(".html").exists()
    here.run("jupyter-nbconvert", "--execute", "--allow-errors", "--to=html", str(path))
    assert "NameError" in path.with_suffix(".html").read_text()


def test_papermill(here: Client, notebook: Path) -> None:
    done = notebook.with_name("done.ipynb")
    here.run("papermill", str(notebook), str(done), "-p", "rows", "7", "--no-progress-bar", "--cwd", str(here.folder))
    report.check(done, rows=7)
    cells = nbformat.read(done, as_version=4).cells
    assert [cell.metadata.tags for cell in cells[1:3]] == [["parameters"], ["injected-parameters"]]
    assert all(cell.metadata.papermill.status == "completed" for cell in cells)


def test_papermill_keeps_what_ran_before_an_error(here: Client) -> None:
    path = small(here.folder / "error.ipynb", "print('first')", "1 / 0", "print('third')")
    shown = here.run("papermill", str(path), "done.ipynb", "--no-progress-bar", check=False)
    assert shown.startswith("exit 1\n")
    assert "division by zero" in shown
    cells = nbformat.read(here.folder / "done.ipynb", as_version=4).cells
    statuses = [cell.metadata.papermill.status for cell in cells if "status" in cell.metadata.get("papermill", {})]
    assert statuses == ["completed", "failed", "pending"]


def test_jupyter_run(here: Client, outside: Path) -> None:
    code = report.TABLE.replace("rows", "4") + "\n" + report.OUTSIDE.format(path=str(outside))
    (here.folder / "script.py").write_text(code)
    shown = here.run("jupyter-run", f"--kernel={report.KERNEL}", "script.py")
    assert "not readable, " in shown
    assert "a secret" not in shown
    (here.folder / "fails.py").write_text("print('so far')\n1 / 0")
    shown = here.run("jupyter-run", f"--kernel={report.KERNEL}", "fails.py", check=False)
    assert not shown.startswith("exit 0\n")
    assert "so far" in shown
    assert "ZeroDivisionError" in shown


def test_jupyter_console(here: Client, outside: Path) -> None:
    terminal = pexpect.spawn(
        here.line("jupyter-console")[0], [f"--kernel={report.KERNEL}"], cwd=str(here.folder), timeout=60,
        env=here.environment | {"TERM": "xterm", "NO_COLOR": "1"}, encoding="utf-8", dimensions=(50, 160),
    )  # fmt: skip
    try:
        terminal.expect(r"In \[.*1.*\]:")
        for line, expected in (
            ("6 * 7", r"42"),
            ("name = input('who' + '? ')", r"who\? "),
            ("world", r"In \[.*3.*\]:"),
            ("print('hello', name)", r"hello world"),
            (f"print(open({str(outside)!r}).read())", r"(FileNotFound|Permission)Error"),
            ("import time; print('now ' + 'asleep'); time.sleep(60)", r"now asleep"),
        ):
            terminal.send(line + "\r")
            terminal.expect(expected)
        terminal.sendintr()
        terminal.expect("KeyboardInterrupt")
        terminal.expect(r"In \[.*\]:")
        terminal.send("exit\r")
        terminal.expect(pexpect.EOF)
    finally:
        terminal.close(force=True)
