"""What a start may not do, because it would take time that a person waits for."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import zmq
from jupyter_client import write_connection_file

from sandbox_kernel.kernel.app import SandboxApp

LAUNCHED = """
import json, sys
from sandbox_kernel.deferred import defer
defer()
import sandbox_kernel.kernel.launch
assert "sandbox_kernel.kernel.front" not in sys.modules, "it is imported while the sandbox is made"
import sandbox_kernel.kernel.app
print(json.dumps([*sys.modules]))
"""
# Each takes milliseconds, and few sessions need them.
NOT_AT_START = (
    "jupyter_client.manager", "jupyter_client.client", "jupyter_client.asynchronous", "psutil", "jedi", "sqlite3",
    "nh3", "markdown_it", "debugpy", "numpy", "pandas", "matplotlib", "sandbox_kernel.outputs.html",
    "sandbox_kernel.outputs.css", "sandbox_kernel.verify", "sandbox_kernel.frames", "sandbox_kernel.api",
)  # fmt: skip


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout


def test_what_few_need_is_not_imported_at_start() -> None:
    loaded = set(json.loads(python(LAUNCHED)))
    assert "ipykernel.kernelapp" in loaded
    assert [name for name in NOT_AT_START if name in loaded] == []


@pytest.mark.parametrize(
    "code",
    [
        "import jupyter_client; print(jupyter_client.KernelManager.__name__)",
        "from jupyter_client import KernelManager; print(KernelManager.__name__)",
        "from jupyter_client import *; print(KernelManager.__name__)",
        "import jupyter_client.session, jupyter_client as j\nprint([n for n in dir(j) if n == 'KernelManager'][0])",
        "from jupyter_client.manager import KernelManager; print(KernelManager.__name__)",
        "from jupyter_client import write_connection_file, KernelManager; print(KernelManager.__name__)",
        "import jupyter_client; assert jupyter_client.__version__ and not hasattr(jupyter_client, 'nothing')\n"
        "print(jupyter_client.KernelManager.__name__)",
        "import jupyter_client, importlib; print(importlib.reload(jupyter_client).KernelManager.__name__)",
    ],
)  # fmt: skip
def test_what_was_put_off_is_there_when_it_is_asked_for(code: str) -> None:
    assert python(f"from sandbox_kernel.deferred import defer\ndefer()\n{code}") == "KernelManager\n"


def test_what_is_loaded_or_missing_is_left_alone() -> None:
    code = "import sys, jupyter_client as j\nfrom sandbox_kernel.deferred import defer\ndefer([j.__name__, 'no'])\n"
    assert python(f"{code}print(sys.modules['jupyter_client'] is j, 'no' in sys.modules)") == "True False\n"


def _taken() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


def test_a_port_that_somebody_took_meanwhile_is_told_in_words(tmp_path: Path) -> None:
    file = str(tmp_path / "connection.json")
    with _taken() as other:
        port = other.getsockname()[1]
        write_connection_file(file, iopub_port=port)
        done = subprocess.run(
            [sys.executable, "-P", "-m", "sandbox_kernel", "-f", file], cwd=tmp_path, capture_output=True, text=True,
            timeout=100,
        )  # fmt: skip
    assert done.returncode == 1
    assert f"sandbox-kernel: port {port} was free" in done.stderr and "start the kernel again" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_somebody_had_for_a_moment_is_waited_for() -> None:
    app = SandboxApp(transport="tcp", ip="127.0.0.1")
    other = _taken()
    port = other.getsockname()[1]
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        soon = threading.Timer(0.3, other.close)
        soon.start()
        assert app._bind_socket(router, port) == port
        soon.join()
        assert not other.fileno() >= 0, "it came free first"
