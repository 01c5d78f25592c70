"""The notebooks that are shipped run on the kernel that is shipped."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import nbformat
import pytest
from jupyter_client.kernelspec import NATIVE_KERNEL_NAME, KernelSpecManager, NoSuchKernel
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
KERNEL = "sandboxed-python"
HOSTS = {"assistant_session"}  # what runs around sandboxes, on an ordinary kernel


def text_of(cell: nbformat.NotebookNode) -> str:
    return "".join(out.text for out in cell.outputs if out.output_type == "stream")


def kinds_of(cell: nbformat.NotebookNode) -> set[str]:
    return {mime for out in cell.outputs for mime in out.get("data", {})}


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory) -> dict[str, nbformat.NotebookNode]:
    """The tour's code cells by id, executed in a folder of its own."""
    try:
        KernelSpecManager().get_kernel_spec(KERNEL)
    except NoSuchKernel:
        pytest.fail(f"the kernelspec {KERNEL} is not installed in this environment: pip install --editable .")
    folder = tmp_path_factory.mktemp("tour")
    cells = execute("tour", folder)
    assert (folder / "tour_output" / "people.csv").is_file()
    return cells


def execute(name: str, folder: Path) -> dict[str, nbformat.NotebookNode]:
    """The code cells of a notebook by id, executed on the kernel that it names."""
    shutil.copy(NOTEBOOKS / f"{name}.ipynb", folder)
    notebook = nbformat.read(folder / f"{name}.ipynb", as_version=4)
    asyncio.run(NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}}).async_execute())
    return {cell.id: cell for cell in notebook.cells if cell.cell_type == "code"}


pytestmark = pytest.mark.timeout(240)


def test_is_stored_without_outputs_and_for_this_kernel() -> None:
    for path in NOTEBOOKS.glob("*.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        assert notebook.metadata.kernelspec.name == (NATIVE_KERNEL_NAME if path.stem in HOSTS else KERNEL)
        assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells)


def test_every_cell_ran(tour: dict[str, nbformat.NotebookNode]) -> None:
    assert len(tour) >= 25
    failed = {name for name, cell in tour.items() for out in cell.outputs if out.output_type == "error"}
    assert failed == {"escape-uncaught"}
    assert [name for name, cell in tour.items() if not cell.execution_count] == []


def test_status_names_the_level(tour: dict[str, nbformat.NotebookNode]) -> None:
    shown = text_of(tour["status"]) + "".join(
        out.data.get("text/plain", "") for out in tour["status"].outputs if "data" in out
    )
    assert "full" in shown or "seccomp+landlock" in shown


def test_no_cell_prints_a_warning(tour: dict[str, nbformat.NotebookNode]) -> None:
    noise = {
        name: out.text
        for name, cell in tour.items()
        for out in cell.outputs
        if out.output_type == "stream" and out.name == "stderr"
        and not out.text.startswith("[Kept next to the notebook: tour_output/")
    }
    # What the sandbox refused is told at the end of the cells that try to leave, and nowhere else.
    assert set(noise) <= {"escape-read", "escape-network", "escape-process", "escape-write", "escape-uncaught"}
    assert noise.get("escape-network", "").startswith("Network access is blocked by the sandbox policy")


def test_tables_and_figures_come_rich(tour: dict[str, nbformat.NotebookNode]) -> None:
    assert {"text/html", "text/plain"} <= kinds_of(tour["load"])
    for name in ("histogram", "correlation", "residuals", "wine"):
        assert "image/png" in kinds_of(tour[name]), name
    assert "text/html" in kinds_of(tour["report"]), "Markdown is made into HTML, and cleaned, before it is sent"
    assert "442" in text_of(tour["after"])


@pytest.mark.parametrize("name", ["escape-read", "escape-network", "escape-process", "escape-write"])
def test_attempts_to_leave_are_refused_in_words(tour: dict[str, nbformat.NotebookNode], name: str) -> None:
    lines = "".join(out.text for out in tour[name].outputs if out.get("name") == "stdout").splitlines()
    assert len(lines) >= 2
    assert [line for line in lines if not line.startswith("refused   ")] == []
    # A connection that ran into its time limit was let out and met nobody.
    assert "timed out" not in text_of(tour[name])


def test_an_uncaught_refusal_is_an_ordinary_error(tour: dict[str, nbformat.NotebookNode]) -> None:
    (error,) = (out for out in tour["escape-uncaught"].outputs if out.output_type == "error")
    assert error.ename in {"FileNotFoundError", "PermissionError"}
    assert "/etc/shadow" in error.evalue


def test_nothing_was_written_outside() -> None:
    for folder in ("/", "/usr"):
        assert not Path(folder, "sandbox-tour-was-here").exists()


def test_the_course_lab(tmp_path: Path) -> None:
    cells = execute("course_lab", tmp_path)
    failed = {name: out.ename for name, cell in cells.items() for out in cell.outputs if out.output_type == "error"}
    assert list(failed) == ["limit"] and failed["limit"] in ("MemoryError", "MemoryLimit")
    assert "holds" in text_of(cells["ex1-check"]) and "holds" in text_of(cells["ex3-check"])
    assert "image/png" in kinds_of(cells["ex2"]) and "text/html" in kinds_of(cells["load"])
    assert "150 flowers and 150 guesses are still here" in text_of(cells["after"])
    answers = (tmp_path / "lab_answers.csv").read_text().splitlines()
    assert len(answers) == 151 and answers[0].endswith("species,guess")


def test_the_assistants_session(tmp_path: Path) -> None:
    """The host is an ordinary kernel; what the model wrote runs in its sandbox."""
    cells = execute("assistant_session", tmp_path)
    assert not [out for cell in cells.values() for out in cell.outputs if out.output_type in ("error", "stderr")]
    table = cells["attempts"].outputs[0].data["text/plain"]
    assert "printed None" in table and "FileNotFoundError" in table and "TimeLimit" in table and "URLError" in table
    assert cells["check"].outputs[0].data["text/plain"] == "{'honest': True, 'wrong': False, 'sly': False}"
    assert "KeyError" in text_of(cells["turn2"]) and text_of(cells["turn3"]).strip() == "bmi is body mass index"
    assert text_of(cells["undo"]) == "0 rows, and after the rollback 442\n"
    assert "image/png" in kinds_of(cells["picture"])
