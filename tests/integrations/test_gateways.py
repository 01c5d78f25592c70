"""Jupyter Enterprise Gateway. (Kernel Gateway: tests/clients/test_servers.py.)"""

from __future__ import annotations

import json
import shutil
import sys
import urllib.error
from pathlib import Path

import nbformat
import pytest

from ..clients import report
from ..clients.conftest import Client, Serve
from ..clients.test_servers import TOKEN, execute_all, get

PROXY = "enterprise_gateway.services.processproxies.processproxy.LocalProcessProxy"


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="it wants pyzmq < 25, which does not build for 3.12")
def test_enterprise_gateway(
    enterprise: Client, kernelspecs: Path, notebook: Path, serve: Serve, tmp_path: Path
) -> None:
    folder = tmp_path / "jupyter" / "kernels" / report.KERNEL
    shutil.copytree(kernelspecs / "kernels" / report.KERNEL, folder)
    spec = json.loads((folder / "kernel.json").read_text())
    spec["metadata"]["process_proxy"] = {"class_name": PROXY, "config": {}}
    (folder / "kernel.json").write_text(json.dumps(spec))
    port = serve(
        enterprise, "jupyter-enterprisegateway", "--ip=127.0.0.1", "--port={port}", "--port_retries=0",
        f"--EnterpriseGatewayApp.auth_token={TOKEN}", JUPYTER_PATH=str(tmp_path / "jupyter"),
    )  # fmt: skip
    base = f"127.0.0.1:{port}/api/kernels"
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(f"http://{base}", {"name": report.KERNEL, "env": {"KERNEL_USERNAME": "root"}})
    refused.value.close()
    env = {"KERNEL_USERNAME": "ada", "SANDBOX_KERNEL_POLICY": "open"}
    started = json.loads(get(f"http://{base}", {"name": report.KERNEL, "env": env}))
    content = nbformat.read(notebook, as_version=4)
    content.cells.append(nbformat.v4.new_code_cell("%sandbox"))
    execute_all(f"{base}/{started['id']}/channels", content.cells)
    status = json.dumps(content.cells.pop().outputs)
    assert "limits.cell_time = " in status
    assert "preset open" not in status  # a request does not choose the policy
    nbformat.write(content, notebook)
    report.check(notebook)
    get(f"http://{base}/{started['id']}", method="DELETE")
