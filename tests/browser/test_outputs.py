"""Outputs in a page: none acts there, and what people show is shown.

The attempts are run by the stock kernel as well. There each of them gets through, which is what makes it one.
"""

from __future__ import annotations

import http.server
import re
import threading
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import nbformat
import pytest
from nbconvert import HTMLExporter
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import Browser, Error, Page

from .conftest import StartLab
from .lab import Lab, Notebook

pytestmark = pytest.mark.timeout(400)

PRELUDE = """
import ipywidgets as w
import traitlets
from IPython.display import HTML, Javascript, Markdown, display
def show(name, value, **metadata):
    display({name: value, "text/plain": "t"}, raw=True, metadata={name: metadata} if metadata else {})
"""
_FILE = tomllib.loads(Path(__file__).with_name("attempts.toml").read_text())
SHOWN = tomllib.loads(Path(__file__).with_name("shown.toml").read_text())["cell"]


@dataclass(frozen=True)
class Attempt:
    """A cell that tries to act in the page; see attempts.toml."""

    name: str
    code: str
    click: bool = False
    hover: bool = False
    stock: bool = True

    @classmethod
    def of(cls, entry: dict[str, Any]) -> Attempt:
        return cls(**entry)


ATTEMPTS = [
    *(Attempt(f"html: {name}", f'HTML("""{html}""")') for name, html in _FILE["html"].items()),
    *map(Attempt.of, _FILE["attempt"]),
]
ESCAPES = [
    Attempt(name, f'HTML("""<p id=p>static</p><script>{text}</script>""")') for name, text in _FILE["frames"].items()
]
# What attempts call when they have reached the page.
HIT = "window.hit = n => { (window.fired ??= new Set()).add(n) };"


class Away(http.server.BaseHTTPRequestHandler):
    """Another place: notes what it is asked for."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(200)
        self.send_header("Access-Control-Allow-Origin", "*")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_POST = do_GET

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def away() -> Iterator[str]:
    """The address of `Away`."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Away) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def _cells(attempts: list[Attempt], away: str) -> list[str]:
    cells = [PRELUDE]
    for n, attempt in enumerate(attempts):
        code = attempt.code.replace("{hit}", f"top.hit({n})").replace("{n}", str(n))
        cells.append(code.replace("{away}", f"{away}/n{n}.").replace("{own}", f"/api/status?n{n}."))
    return cells


@dataclass
class Seen:
    """What attempts achieved, by their numbers."""

    page: Page
    answered: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        Away.asked.clear()
        self.page.on("response", lambda response: self.answered.append(response.url))
        self.page.on("dialog", lambda dialog: dialog.dismiss())

    def numbers(self) -> set[int]:
        asked = {int(found[1]) for url in self.answered + Away.asked if (found := re.search(r"[/?]n(\d+)\.", url))}
        return asked | set(self.page.evaluate("() => [...(window.fired ?? [])]"))


def _open(lab: Lab, kernel: str, cells: list[str], name: str) -> Notebook:
    document = new_notebook(cells=[new_code_cell(source) for source in cells])
    document.metadata["kernelspec"] = {"name": kernel, "display_name": kernel, "language": "python"}
    nbformat.write(document, lab.folder / name)
    return lab.open_file(name)


def _run(notebook: Notebook, attempts: list[Attempt]) -> Seen:
    seen = Seen(notebook.page)
    notebook.page.evaluate(f"() => {{ {HIT} }}")
    notebook.page.evaluate(
        "() => window.jupyterapp.commands.commandExecuted.connect((_, command) => {"
        " if (command.args?.hit !== undefined) hit(command.args.hit) })"
    )
    notebook.run_all(120)
    for n, attempt in enumerate(attempts):
        link = notebook.output(n + 1).get_by_text("CLICK")
        if attempt.click and link.count():
            link.first.click(timeout=5000)
        if attempt.hover:
            notebook.output(n + 1).locator("canvas").first.hover(timeout=5000)
    notebook.page.wait_for_timeout(3000)  # widgets and charts are drawn by and by; nothing says which is the last
    return seen


def test_the_attempts_get_through_without_the_gate(lab: Lab, away: str) -> None:
    found = _run(_open(lab, "python3", _cells(ATTEMPTS, away), "stock.ipynb"), ATTEMPTS).numbers()
    assert {a.name for n, a in enumerate(ATTEMPTS) if a.stock and n not in found} == set()


def test_no_output_acts(lab: Lab, browser: Browser, away: str) -> None:
    notebook = _open(lab, "sandboxed-python", _cells(ATTEMPTS, away), "gated.ipynb")
    seen = _run(notebook, ATTEMPTS)
    assert {ATTEMPTS[n].name for n in seen.numbers()} == set()
    for n, attempt in enumerate(ATTEMPTS):
        assert "Error" not in notebook.output(n + 1).inner_text(), attempt.name
    notebook.screenshot("attempts")

    # What was saved is clean for every later reader, also for one that puts all of it into its page.
    saved = notebook.save()
    for cell in saved.cells:
        cell.source = ""
    text, _ = HTMLExporter(sanitize_html=False).from_notebook_node(saved)
    context = browser.new_context()
    later = Seen(context.new_page())
    later.page.add_init_script(HIT)
    later.page.set_content(text, wait_until="domcontentloaded")
    later.page.wait_for_timeout(500)
    assert {ATTEMPTS[n].name for n in later.numbers()} == set()
    context.close()


COVERS = [
    "position:fixed;inset:0;z-index:99999;background:red",
    "position:absolute;top:-900px;left:-900px;width:9000px;height:9000px",
    "margin:-900px;width:9000px;height:9000px;position:relative;z-index:9",
    "transform:scale(50)", "box-shadow:0 0 0 9999px red", "outline:9999px solid red",
    "position:sticky;top:-900px;height:9000px",
]  # fmt: skip
RESTYLES = [
    'HTML("<style>html {display: contents!important; margin: -300px; height: 9000px}</style><b>x</b>")',
    'HTML("<style>body, #jp-top-panel, .jp-Notebook {display: none !important} * {opacity: .1}</style>x")',
    """HTML("<div class='jp-Dialog'>x</div><div id='jp-top-panel' class='lm-Widget'>y</div>")""",
    "b = w.Button(description='x', layout=w.Layout(margin='-900px', width='9000px', top='-500px'))\n"
    "b.add_class('jp-Dialog')\nb",
]
# Where a page is covered by an output: its chrome, and the editors of other cells.
_COVERED = """() => {
    const covered = [];
    const inOutput = (x, y) => !!document.elementFromPoint(x, y)?.closest('.jp-OutputArea');
    for (const [x, y] of [[60, 10], [400, 10], [10, 300], [600, 45]]) if (inOutput(x, y)) covered.push([x, y]);
    for (const editor of document.querySelectorAll('.jp-Notebook .jp-Cell .jp-InputArea-editor')) {
        editor.scrollIntoView({block: 'center'});
        const box = editor.getBoundingClientRect();
        if (inOutput(box.left + 40, box.top + box.height / 2)) covered.push(editor.textContent);
    }
    return covered;
}"""


def test_no_output_covers_or_restyles_the_page(lab: Lab) -> None:
    notebook = lab.open(PRELUDE, *(f'HTML("<div style={style!r}>x</div>")' for style in COVERS), *RESTYLES)
    notebook.run_all()
    notebook.page.wait_for_timeout(1000)
    assert notebook.page.evaluate(_COVERED) == []
    style = notebook.page.evaluate("() => ['display', 'opacity'].map(n => getComputedStyle(document.body)[n])")
    assert style[0] != "none" and style[1] == "1"
    notebook.screenshot("covers")


def test_what_people_show_is_shown(lab: Lab) -> None:
    notebook = lab.open(*(cell["code"] for cell in SHOWN))
    notebook.run_all(150)
    notebook.page.wait_for_timeout(2500)
    missing = []
    for n, cell in enumerate(SHOWN):
        try:
            shown = notebook.output(n).evaluate(f"el => !!({cell['check']})")
        except Error:
            shown = False
        if not shown:
            missing.append((cell["name"], notebook.output(n).inner_text()[:200]))
    notebook.screenshot("shown")
    assert missing == []


def test_a_frame_runs_script_that_reaches_nothing(start_lab: StartLab, away: str) -> None:
    lab = start_lab('[outputs]\nhtml = "frame"')
    notebook = _open(lab, "sandboxed-python", _cells(ESCAPES, away), "frames.ipynb")
    address = notebook.page.url
    title = notebook.page.title()
    seen = _run(notebook, ESCAPES)
    assert {ESCAPES[n].name for n in seen.numbers()} == set()
    assert notebook.page.url == address and len(notebook.page.context.pages) == 1
    assert title.partition(" ")[0] in notebook.page.title()
    frame = notebook.output(1).frame_locator("iframe").frame_locator("iframe")
    assert frame.locator("#p").inner_text() == "made by script"
    notebook.screenshot("frames")
