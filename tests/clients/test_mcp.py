"""An assistant that works in a notebook by jupyter-mcp-server, which speaks to a Jupyter server."""

from __future__ import annotations

import json
import secrets
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
import pytest

from . import report
from .conftest import Client, Serve, kernel_command

TOKEN = secrets.token_hex(16)


class Assistant:
    """The client's side of the Model Context Protocol: a JSON object on each line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self.number = process, 0
        about = {"name": "tests", "version": "1"}
        self.request("initialize", protocolVersion="2025-03-26", capabilities={}, clientInfo=about)
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _write(self, message: dict[str, Any]) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def request(self, method: str, **params: Any) -> Any:
        self.number += 1
        self._write({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})
        assert self.process.stdout
        for line in self.process.stdout:
            message = json.loads(line)
            if message.get("id") == self.number and "method" not in message:
                assert "error" not in message, message
                return message["result"]
        raise AssertionError("jupyter-mcp-server ended")

    def call(self, tool: str, **arguments: Any) -> str:
        """The text that a tool gives."""
        result = self.request("tools/call", name=tool, arguments=arguments)
        text = "\n".join(part["text"] for part in result["content"] if part["type"] == "text")
        assert not result.get("isError"), text
        return text


@contextmanager
def assistant(client: Client, port: int) -> Iterator[Assistant]:
    url = f"http://127.0.0.1:{port}"
    with (client.folder.parent / "mcp.log").open("wb") as log:
        process = subprocess.Popen(
            client.line("jupyter-mcp-server", f"--jupyter-url={url}", f"--jupyter-token={TOKEN}"), text=True,
            cwd=client.folder, env=client.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
        )  # fmt: skip
    try:
        yield Assistant(process)
    finally:
        process.kill()
        process.communicate()


# jupyter-mcp-server asks for a kernel by the name "python3", whatever the notebook names, unless the notebook is
# already open with a kernel. So there are two ways to give it the sandbox.
@pytest.mark.parametrize("way", ["the notebook is open", "the kernel is named python3"])
def test_an_assistant_works_in_a_notebook(mcp: Client, notebook: Path, outside: Path, serve: Serve, way: str) -> None:
    if way == "the kernel is named python3":
        prefix = mcp.folder.parent / "prefix"
        kernel_command("install", "--prefix", str(prefix), "--name", "python3")
        mcp.environment["JUPYTER_PATH"] = str(prefix / "share" / "jupyter")
    port = serve(
        mcp, "jupyter-lab", "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1", "--ServerApp.port={port}",
        f"--IdentityProvider.token={TOKEN}",
    )  # fmt: skip
    if way == "the notebook is open":
        open_as_a_page_does(port, notebook.name)
    with assistant(mcp, port) as work:
        work.call("use_notebook", notebook_name="report", notebook_path=notebook.name, mode="connect")
        for index in range(1, 7):
            shown = work.call("execute_cell", cell_index=index, timeout=60)
            assert "Error" not in shown.replace("not readable, FileNotFoundError", ""), shown
        added = report.OUTSIDE.format(path=str(outside))
        shown = work.call("insert_execute_code_cell", cell_index=7, cell_source=added, timeout=60)
        assert "not readable, " in shown
        assert "a secret" not in shown
        shown = work.call("execute_code", code="print('rows', len(table))\n1 / 0", timeout=60)
        assert "rows 3" in shown
        assert "ZeroDivisionError" in shown
        work.call("delete_cell", cell_indices=[7])
    # The server saves what its clients did a moment later.
    end = time.monotonic() + 20
    while not _saved(notebook) and time.monotonic() < end:
        time.sleep(0.1)
    report.check(notebook)


def _saved(path: Path) -> bool:
    return [cell.get("execution_count") for cell in nbformat.read(path, as_version=4).cells[1:]] == [1, 2, 3, 4, 5, 6]


def open_as_a_page_does(port: int, name: str) -> None:
    """Starts the kernel that the notebook names."""
    body = {"path": name, "name": name, "type": "notebook", "kernel": {"name": report.KERNEL}}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/sessions", json.dumps(body).encode(), {"Authorization": f"token {TOKEN}"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 201
