"""A JupyterLab on loopback, and its notebooks in a headless Chromium.

    def test_something(start_lab):
        notebook = start_lab(policy="[limits]\\ncpus = 1").open("print(6 * 7)", "1 / 0")
        notebook.run_all()
        expect(notebook.output(0)).to_have_text("42")
        notebook.screenshot("something")
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import Browser, Locator, Page

PICTURES = Path(__file__).parents[2] / "build" / "screenshots"
KERNEL = "sandboxed-python"

# Nothing is fetched, no toast covers a cell, and a cell that is out of view stays in the page.
SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "notebook-extension/tracker": {"windowingMode": "none"},
    "docmanager-extension/plugin": {"autosave": False},
}

CHROMIUM_FLAGS = (
    "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-proxy-server",
    # The page is on loopback; whatever else it names is not looked up.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)  # fmt: skip


class Lab:
    """A running server with a folder of its own. ``policy``: lines of the kernel's policy file."""

    def __init__(self, browser: Browser, base: Path, policy: str = "") -> None:
        self.browser, self.base = browser, base
        self.folder = base / "work"
        self.runtime = base / "runtime"
        self.pages: list[Page] = []
        for folder in (self.folder, self.runtime):
            folder.mkdir(parents=True)
        for name, values in SETTINGS.items():
            file = base / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(values))
        (base / "policy.toml").write_text(policy)
        self.token = secrets.token_hex(16)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")} | {
            "JUPYTER_TOKEN": self.token, "JUPYTER_RUNTIME_DIR": str(self.runtime),
            "JUPYTERLAB_SETTINGS_DIR": str(base / "settings"),
            "JUPYTERLAB_WORKSPACES_DIR": str(base / "workspaces"),
            "SANDBOX_KERNEL_POLICY": str(base / "policy.toml"),
        }  # fmt: skip
        self.log = base / "server.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--expose-app-in-browser",
                 "--ServerApp.ip=127.0.0.1", "--ServerApp.port=0", f"--ServerApp.root_dir={self.folder}",
                 f"--MultiKernelManager.default_kernel_name={KERNEL}", "--LabApp.extension_manager=readonly",
                 "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd=self.folder,
            )  # fmt: skip
        self.url = self._wait(60)

    def _wait(self, seconds: float) -> str:
        """The server's address; it writes that down as soon as it listens."""
        end = time.monotonic() + seconds
        file = self.runtime / f"jpserver-{self.process.pid}.json"
        while time.monotonic() < end and self.process.poll() is None:
            try:
                return str(json.loads(file.read_text())["url"])
            except (OSError, ValueError):
                time.sleep(0.1)
        self.close()
        raise AssertionError(f"JupyterLab did not start:\n{self.log.read_text(errors='replace')}")

    def open(self, *cells: str, name: str = "") -> Notebook:
        """A notebook with these code cells, in a tab of its own, its kernel ready."""
        name = name or f"notebook{len(self.pages)}.ipynb"
        notebook = new_notebook(cells=[new_code_cell(source) for source in cells])
        notebook.metadata["kernelspec"] = {"name": KERNEL, "display_name": "Sandboxed Python", "language": "python"}
        nbformat.write(notebook, self.folder / name)
        return self.open_file(name)

    def open_file(self, name: str) -> Notebook:
        """A notebook that lies in `folder`."""
        context = self.browser.new_context(viewport={"width": 1200, "height": 1000})
        page = context.new_page()
        self.pages.append(page)
        page.goto(f"{self.url}lab/workspaces/w{len(self.pages)}/tree/{name}?token={self.token}")
        notebook = Notebook(page, self.folder / name)
        notebook.wait_ready()
        return notebook

    def close(self) -> None:
        """Ends the tabs, the server and its kernels."""
        for page in self.pages:
            page.context.close()
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


# The notebook in front, as JupyterLab's own objects. Not by its menus: they are drawn anew in every release.
_PANEL = "window.jupyterapp.shell.currentWidget"
_KERNEL = f"{_PANEL}?.sessionContext?.session?.kernel"


class Notebook:
    """A notebook in a page. Cells are counted from 0."""

    def __init__(self, page: Page, path: Path) -> None:
        self.page, self.path = page, path

    def wait_ready(self, seconds: float = 60) -> None:
        """Until a kernel is connected and idle, and the cells are shown."""
        self.page.wait_for_function(
            f"() => window.jupyterapp && {_KERNEL}?.connectionStatus == 'connected' && {_KERNEL}.status == 'idle'",
            timeout=seconds * 1000,
        )
        self.cell(0).wait_for()

    def wait_idle(self, seconds: float = 60) -> None:
        """Until no cell is running or waiting to run."""
        self.page.wait_for_function(
            f"() => window.ran !== false && {_KERNEL}?.status == 'idle'"
            " && ![...document.querySelectorAll('.jp-InputPrompt')].some(p => p.textContent.includes('[*]'))",
            timeout=seconds * 1000,
        )

    def start_all(self) -> None:
        """Run all cells, without waiting for them."""
        self._command("notebook:run-all-cells")

    def run_all(self, seconds: float = 60) -> None:
        """Run all cells, and wait until they are done or one has failed."""
        self.start_all()
        self.wait_idle(seconds)

    def start(self, index: int) -> None:
        """Run one cell, without waiting for it."""
        self.page.evaluate(f"index => {{ {_PANEL}.content.activeCellIndex = index }}", index)
        self._command("notebook:run-cell")

    def run(self, index: int, seconds: float = 60) -> None:
        """Run one cell, and wait until it is done."""
        self.start(index)
        self.wait_idle(seconds)

    def _command(self, name: str) -> None:
        # Its promise is fulfilled when the cells have run: noted in the page, for a wait here has a time limit.
        self.page.evaluate(
            "name => { window.ran = false;"
            " window.jupyterapp.commands.execute(name).finally(() => { window.ran = true }) }", name
        )  # fmt: skip

    def cell(self, index: int) -> Locator:
        """A code cell."""
        return self.page.locator(".jp-Notebook .jp-CodeCell").nth(index)

    def output(self, index: int) -> Locator:
        """All that a cell shows below it, without the prompts."""
        return self.cell(index).locator(".jp-Cell-outputArea")

    def kernel_status(self) -> str:
        """What JupyterLab holds the kernel to be: "idle", "busy", "dead" and so on."""
        return str(self.page.evaluate(f"() => {_KERNEL}?.status"))

    def save(self) -> Any:
        """Saves the notebook, and gives what is on disk then."""
        self.page.evaluate(f"() => {_PANEL}.context.save()")
        return nbformat.read(self.path, as_version=4)

    def screenshot(self, name: str) -> Path:
        """A picture of the page below ``build/screenshots``."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=str(PICTURES / f"{name}.png"))
        return PICTURES / f"{name}.png"
