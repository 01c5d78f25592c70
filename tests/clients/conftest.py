"""Clients in environments of their own, servers on loopback, and a notebook for them."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from . import report

ENVIRONMENTS = Path(__file__).parents[2] / "build" / "clients"
INSTALL_S = 600.0

# Clients that would change the JupyterLab of the other tests, were they installed beside it: with extensions of
# servers and pages, and with other versions of what the tests use.
REQUIREMENTS: dict[str, tuple[str, ...]] = {
    "servers": ("voila>=0.5.8", "jupyter_kernel_gateway>=3.0.1", "nbgrader>=0.9.5"),
    "remote": ("jupyter-kernel-client>=1.0", "numpy>=2.0"),
    "mcp": ("jupyter-mcp-server>=2.0",),
}
# Of these only what the tests' own environment lacks is installed; it lies below theirs.
LAID_OVER: set[str] = set()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("clients")
            # (Not the fixtures' time: the first test of an environment waits until that is installed.)
            item.add_marker(pytest.mark.timeout(150, func_only=True))


class Client:
    """How a client is run: its programs, and what it needs to find the kernel."""

    def __init__(self, python: Path, environment: dict[str, str], folder: Path) -> None:
        self.python, self.folder = python, folder
        self.environment = environment | {"PATH": f"{python.parent}{os.pathsep}{environment['PATH']}"}

    def line(self, program: str, *arguments: str) -> list[str]:
        """The command line of a program of the environment."""
        return [str(self.python.with_name(program)), *arguments]

    def run(self, *command: str, check: bool = True, seconds: float = 120, **more: str) -> str:
        """Runs a program of the environment, and gives what it wrote to both streams."""
        done = subprocess.run(
            self.line(*command), cwd=self.folder, env=self.environment | more, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds,
        )  # fmt: skip
        assert not check or done.returncode == 0, done.stdout
        return done.stdout if check else f"exit {done.returncode}\n{done.stdout}"


@pytest.fixture(scope="session")
def kernelspecs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for JUPYTER_PATH, as a user makes it for Jupyters outside the kernel's environment."""
    prefix = tmp_path_factory.mktemp("prefix")
    kernel_command("install", "--prefix", str(prefix))
    return prefix / "share" / "jupyter"


@pytest.fixture(scope="session")
def installed() -> Callable[[str], Path]:
    """Gives the interpreter of a virtual environment, made once and kept until its `REQUIREMENTS` change."""

    def give(name: str) -> Path:
        wanted = "\n".join((sys.version, *REQUIREMENTS[name]))
        folder = ENVIRONMENTS / f"{name}-{hashlib.sha256(wanted.encode()).hexdigest()[:12]}"
        python = folder / "bin" / "python"
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            _do(sys.executable, "-m", "venv", str(folder))
            if name in LAID_OVER:
                ours = sysconfig.get_path("purelib")
                theirs = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
                Path(theirs, "below.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
            _do(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile",
                *REQUIREMENTS[name])  # fmt: skip
            (folder / "complete").touch()
        return python

    return give


def kernel_command(*arguments: str) -> None:
    """Runs ``sandbox-kernel``."""
    _do(str(Path(sys.executable).with_name("sandbox-kernel")), *arguments)


def _do(*command: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=INSTALL_S)
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.fixture
def here(kernelspecs: Path, tmp_path: Path) -> Client:
    """A client of the tests' own environment."""
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "JUPYTER_"))},
        "JUPYTER_PATH": str(kernelspecs), "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        environment[name] = str(tmp_path / "jupyter" / name.lower())
        Path(environment[name]).mkdir(parents=True, mode=0o700)
    folder = tmp_path / "work"
    folder.mkdir()
    return Client(Path(sys.executable), environment, folder)


@pytest.fixture
def servers(here: Client, installed: Callable[[str], Path]) -> Client:
    """voila, Jupyter Kernel Gateway, nbgrader."""
    return Client(installed("servers"), here.environment, here.folder)


@pytest.fixture
def remote(here: Client, installed: Callable[[str], Path]) -> Client:
    """jupyter-kernel-client, which reaches kernels through the websocket of their server."""
    return Client(installed("remote"), here.environment, here.folder)


@pytest.fixture
def mcp(here: Client, installed: Callable[[str], Path]) -> Client:
    """jupyter-mcp-server, and the JupyterLab that it works with."""
    return Client(installed("mcp"), here.environment, here.folder)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A file that no cell may read."""
    file = tmp_path / "outside.txt"
    file.write_text("a secret of the host")
    return file


@pytest.fixture
def notebook(here: Client, outside: Path) -> Path:
    """The report, see `report`, in the folder of the client."""
    return report.write(here.folder / "report.ipynb", outside)


Serve = Callable[..., int]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts a server: ``port = serve(servers, "voila", "--port={port}")``; it is ended with the test."""
    running: list[subprocess.Popen[bytes]] = []

    def begin(client: Client, *command: str, **more: str) -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        log = tmp_path / f"server{len(running)}.log"
        with log.open("wb") as file:
            running.append(subprocess.Popen(
                client.line(*(part.replace("{port}", str(port)) for part in command)),
                cwd=client.folder, env=client.environment | more, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
            ))  # fmt: skip
        end = time.monotonic() + 60
        while time.monotonic() < end and running[-1].poll() is None:
            with socket.socket() as probe:
                probe.settimeout(1)
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return port
            time.sleep(0.1)
        raise AssertionError(f"{command[0]} does not listen:\n{log.read_text(errors='replace')}")

    yield begin
    for process in running:
        process.terminate()
    for process in running:
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
