"""Servers that run a notebook for people who are not at its kernel."""

from __future__ import annotations

import json
import re
import secrets
import urllib.request
from pathlib import Path
from typing import Any

import nbformat
import websocket
from nbformat.v4 import new_code_cell, new_notebook, output_from_msg
from playwright.sync_api import Browser, expect

from ..browser.conftest import browser
from . import report
from .conftest import Client, Serve

__all__ = ["browser"]

TOKEN = secrets.token_hex(16)


def get(url: str, data: Any = None, method: str | None = None) -> bytes:
    body = None if data is None else json.dumps(data).encode()
    request = urllib.request.Request(url, body, {"Authorization": f"token {TOKEN}"}, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return bytes(answer.read())


def test_voila(servers: Client, notebook: Path, serve: Serve) -> None:
    port = serve(servers, "voila", "--no-browser", "--port={port}", "--Voila.ip=127.0.0.1", notebook.name)
    page = get(f"http://127.0.0.1:{port}/").decode()
    assert "<h1" in page
    for part in ("the squares add up to 5", "iVBORw0KGgo", "not readable, "):
        assert part in page
    assert len(re.findall(r"(?:<|\\u003c)tr", page)) == 4  # a template may hand outputs to its page as JSON
    assert "import pandas" not in page  # voila shows no sources


def test_voila_serves_widgets_that_call_the_kernel(servers: Client, serve: Serve, browser: Browser) -> None:
    source = (
        "import ipywidgets\n"
        "@ipywidgets.interact(x=(0, 50))\n"
        "def square(x=4):\n"
        "    print('squared', x * x)"
    )  # fmt: skip
    notebook = new_notebook(cells=[new_code_cell(source)], metadata={"kernelspec": report.KERNELSPEC})
    nbformat.write(notebook, servers.folder / "widgets.ipynb")
    port = serve(servers, "voila", "--no-browser", "--port={port}", "--Voila.ip=127.0.0.1", "widgets.ipynb")
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{port}/")
    expect(page.locator("body")).to_contain_text("squared 16", timeout=60_000)
    page.locator(".noUi-handle").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("body")).to_contain_text("squared 25")
    expect(page.locator("body")).not_to_contain_text("squared 16")
    page.context.close()


def test_kernel_gateway(servers: Client, notebook: Path, serve: Serve) -> None:
    port = serve(
        servers, "jupyter-kernelgateway", "--KernelGatewayApp.ip=127.0.0.1",
        "--KernelGatewayApp.port={port}", f"--KernelGatewayApp.auth_token={TOKEN}",
    )  # fmt: skip
    base = f"127.0.0.1:{port}/api/kernels"
    started = json.loads(get(f"http://{base}", {"name": report.KERNEL}))
    assert started["name"] == report.KERNEL
    content = nbformat.read(notebook, as_version=4)
    execute_all(f"{base}/{started['id']}/channels", content.cells)
    nbformat.write(content, notebook)
    report.check(notebook)
    get(f"http://{base}/{started['id']}", method="DELETE")


FAR_AWAY = """
import sys
import numpy as np
from jupyter_kernel_client.manager import KernelHttpManager
from sandbox_kernel import errors
from sandbox_kernel.client import pull, push
manager = KernelHttpManager(server_url=sys.argv[1], token=sys.argv[2])
manager.start_kernel(name=sys.argv[3])
client = manager.client
client.start_channels()
client.wait_for_ready(timeout=60)
push(client, "rows", np.arange(1 << 20))
client.execute_interactive("rows *= 2; words = {'a': [1, 2.5, None]}; f = lambda: 0", timeout=60)
assert (pull(client, "rows") == 2 * np.arange(1 << 20)).all() and pull(client, "words") == {"a": [1, 2.5, None]}
try:
    pull(client, "f")
except errors.FrameRefused as error:
    print(error)
client.stop_channels()
manager.shutdown_kernel(now=True)
"""


def test_variables_cross_the_websocket_of_a_server(here: Client, remote: Client, serve: Serve) -> None:
    port = serve(here, "jupyter-server", "--ip=127.0.0.1", "--port={port}", "--no-browser", "--allow-root",
                 f"--IdentityProvider.token={TOKEN}")  # fmt: skip
    project = str(Path(__file__).parents[2])
    said = remote.run(
        "python", "-c", FAR_AWAY, f"http://127.0.0.1:{port}", TOKEN, report.KERNEL, PYTHONPATH=project
    )  # fmt: skip
    assert "type function cannot pass the frame gate" in said


def execute_all(channels: str, cells: list[Any]) -> None:
    """Runs the code cells in the kernel whose websocket this is."""
    socket = websocket.create_connection(f"ws://{channels}", header=[f"Authorization: token {TOKEN}"], timeout=60)
    try:
        for cell in cells:
            if cell.cell_type == "code":
                execute(socket, cell)
    finally:
        socket.close()


def execute(socket: websocket.WebSocket, cell: nbformat.NotebookNode) -> None:
    """One cell by messages as text, its outputs put into the notebook."""
    header = {"msg_id": secrets.token_hex(8), "msg_type": "execute_request", "username": "", "session": "tests",
              "version": "5.3", "date": "2026-01-01T00:00:00Z"}  # fmt: skip
    content = {"code": cell.source, "silent": False, "store_history": True, "user_expressions": {},
               "allow_stdin": False, "stop_on_error": True}  # fmt: skip
    request = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell",
               "buffers": []}  # fmt: skip
    socket.send(json.dumps(request))
    replied = idle = False
    while not (replied and idle):
        message = json.loads(socket.recv())
        if message["parent_header"].get("msg_id") != header["msg_id"]:
            continue
        kind = message["header"]["msg_type"]
        if kind == "execute_reply":
            assert message["content"]["status"] == "ok", message["content"]
            cell.execution_count = message["content"]["execution_count"]
            replied = True
        elif kind == "status":
            idle = message["content"]["execution_state"] == "idle"
        elif kind in ("stream", "display_data", "execute_result", "error"):
            cell.outputs.append(output_from_msg({"header": message["header"], "content": message["content"]}))


def test_kernel_gateway_makes_an_api_of_a_notebook(servers: Client, outside: Path, serve: Serve) -> None:
    cells = (
        "import json\nseen = []",
        "# GET /squares/:n\n"
        "n = int(json.loads(REQUEST)['path']['n'])\n"
        "seen.append(n)\n"
        "print(json.dumps({'square': n * n, 'seen': seen}))",
        "# GET /outside\n" + report.OUTSIDE.format(path=str(outside)),
    )
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in cells], metadata={"kernelspec": report.KERNELSPEC})
    nbformat.write(notebook, servers.folder / "api.ipynb")
    port = serve(
        servers, "jupyter-kernelgateway", "--KernelGatewayApp.ip=127.0.0.1", "--KernelGatewayApp.port={port}",
        f"--KernelGatewayApp.auth_token={TOKEN}", "--KernelGatewayApp.api=kernel_gateway.notebook_http",
        "--KernelGatewayApp.seed_uri=api.ipynb",
    )  # fmt: skip
    assert json.loads(get(f"http://127.0.0.1:{port}/squares/7")) == {"square": 49, "seen": [7]}
    assert json.loads(get(f"http://127.0.0.1:{port}/squares/3")) == {"square": 9, "seen": [7, 3]}
    assert re.match(rb"not readable, \w+Error\n", get(f"http://127.0.0.1:{port}/outside"))
