"""JupyterHub: users' servers, each with this kernel only, through the Hub's proxy."""

from __future__ import annotations

import json
import re
import secrets
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
import websocket

from ..clients import report
from ..clients.conftest import Client, Serve, kernel_command
from ..clients.test_servers import execute

TOKEN = secrets.token_hex(16)
DOCUMENT = Path(__file__).parents[2] / "docs" / "deployment.md"

# What the test adds to the documented fragment.
MORE = """
import os
c.JupyterHub.ip = c.JupyterHub.hub_ip = "127.0.0.1"
c.JupyterHub.port, c.JupyterHub.hub_port = {port}, {hub}
c.ConfigurableHTTPProxy.command = ["configurable-http-proxy"]
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{api}"
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = {home!r} + "/{{username}}"
c.Spawner.args += ["--allow-root"]
c.Spawner.start_timeout = c.Spawner.http_timeout = 120
c.JupyterHub.services = [{{"name": "tests", "api_token": {token!r}}}]
c.JupyterHub.load_roles = [
    {{"name": "tests", "scopes": ["admin:users", "admin:servers", "access:servers"], "services": ["tests"]}}
]
"""


def request(url: str, data: Any = None) -> tuple[int, Any]:
    """Status and content."""
    body = None if data is None else json.dumps(data).encode()
    asked = urllib.request.Request(url, body, {"Authorization": f"token {TOKEN}", "Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            text = answer.read().decode()
            return answer.status, json.loads(text) if text[:1] in ("[", "{") else text
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(errors="replace")


def wait_for(condition: Callable[[], Any], seconds: float = 200) -> Any:
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.5)
    return found


@pytest.mark.timeout(300, func_only=True)
def test_users_have_this_kernel_and_no_other(hub: Client, serve: Serve, free_ports: Callable[[int], list[int]]) -> None:
    kernel_command("install", "--prefix", str(hub.python.parents[1]))
    home = hub.folder / "home"
    for user in ("ada", "bob"):
        (home / user / "work").mkdir(parents=True)
    diary = home / "bob" / "work" / "diary.txt"
    diary.write_text("a secret of Bob's")
    (fragment,) = re.findall(r"```python jupyterhub_config.py\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    sooner = fragment.replace("cull_idle_timeout=3600", "cull_idle_timeout=5").replace("interval=60", "interval=1")
    assert sooner.count("cull_") == 2 and sooner != fragment
    hub_port, api = free_ports(2)
    values = {"port": "{port}", "hub": hub_port, "api": api, "home": str(home), "token": TOKEN}
    port = serve(
        hub, "python", "-c",
        "import sys; open('config.py', 'w').write(sys.argv[1]); "
        "from jupyterhub.app import main; sys.argv[1:] = ['-f', 'config.py']; main()",
        sooner + MORE.format(**values), JUPYTER_PATH="",
    )  # fmt: skip
    base = f"http://127.0.0.1:{port}"
    wait_for(lambda: request(f"{base}/hub/api/")[0] == 200)
    assert request(f"{base}/hub/api/users/ada", {})[0] == 201
    assert request(f"{base}/hub/api/users/ada/server", {})[0] in (201, 202)
    wait_for(lambda: request(f"{base}/hub/api/users/ada")[1]["servers"].get("", {}).get("ready"))
    server = f"{base}/user/ada/api"

    assert list(request(f"{server}/kernelspecs")[1]["kernelspecs"]) == [report.KERNEL]
    for name in ("python3", "../python3"):
        status, told = request(f"{server}/kernels", {"name": name})
        assert status >= 400, told
    assert request(f"{server}/terminals", {})[0] == 404

    path = report.write(home / "ada" / "work" / "report.ipynb", diary)
    status, started = request(f"{server}/sessions", {"path": path.name, "name": "", "type": "notebook", "kernel": {}})
    assert (status, started["kernel"]["name"]) == (201, report.KERNEL)
    kernel = started["kernel"]["id"]
    content = nbformat.read(path, as_version=4)
    policy = nbformat.v4.new_code_cell("%sandbox")
    socket = websocket.create_connection(
        f"ws://127.0.0.1:{port}/user/ada/api/kernels/{kernel}/channels",
        header=[f"Authorization: token {TOKEN}"], timeout=60,
    )  # fmt: skip
    try:
        for cell in content.cells:
            if cell.cell_type == "code":
                execute(socket, cell)
        execute(socket, policy)
    finally:
        socket.close()
    nbformat.write(content, path)
    report.check(path)
    assert "limits.cell_time = 2 min" in json.dumps(policy.outputs)  # the preset's
    # Its user has left, and it is culled with its sandbox.
    wait_for(lambda: not request(f"{server}/kernels")[1])
    shutil.rmtree(home / "ada" / "work")
