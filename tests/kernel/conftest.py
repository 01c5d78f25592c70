"""A kernel started as a Jupyter client starts it, at any level, with a folder of its own."""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from jupyter_client import BlockingKernelClient, KernelManager
from jupyter_client.kernelspec import KernelSpecManager

SPEC = Path(__file__).parents[2] / "kernelspec"
LEVELS = ("full", "seccomp+landlock")


class Outcome:
    """What one cell showed."""

    def __init__(self, reply: dict[str, Any], messages: list[dict[str, Any]]) -> None:
        self.reply = reply["content"]
        self.messages = messages

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [m["content"] for m in self.messages if m["msg_type"] == kind]

    @property
    def stdout(self) -> str:
        return "".join(c["text"] for c in self.of("stream") if c["name"] == "stdout")

    @property
    def stderr(self) -> str:
        return "".join(c["text"] for c in self.of("stream") if c["name"] == "stderr")

    @property
    def ok(self) -> bool:
        return bool(self.reply["status"] == "ok")


class Running:
    """A running kernel and its client."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient, folder: Path) -> None:
        self.manager, self.client, self.folder = manager, client, folder

    @property
    def pid(self) -> int:
        return int(self.manager.provisioner.process.pid)

    def run(self, code: str, timeout: float = 30, **options: Any) -> Outcome:
        messages: list[dict[str, Any]] = []
        options.setdefault("allow_stdin", False)
        reply = self.client.execute_interactive(code, timeout=timeout, output_hook=messages.append, **options)
        return Outcome(reply, messages)

    def begin(self, code: str, text: str = "begun", **options: Any) -> str:
        """Begins a cell, and waits until it has printed this text; gives its id."""
        options.setdefault("allow_stdin", False)
        request = str(self.client.execute(code, **options))
        seen = ""
        while text not in seen:
            message = self.client.get_iopub_msg(timeout=30)
            if message["parent_header"].get("msg_id") == request and message["msg_type"] == "stream":
                seen += message["content"]["text"]
        return request

    def good(self, code: str, timeout: float = 30, **options: Any) -> Outcome:
        outcome = self.run(code, timeout, **options)
        assert outcome.ok, "\n".join(outcome.reply.get("traceback", []))
        return outcome


Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts kernels: ``start(level="full", env={...})``; all are ended afterwards."""
    with starting(tmp_path) as begin:
        yield begin


def _is_ready(kernel: Running, log: Path) -> bool:
    """Waits for it, as the client's `wait_for_ready`, which waits a while for messages that do not come.

    False: a program beside the tests took a port that was chosen for the kernel, before the kernel could.
    """
    client, end, request = kernel.client, time.monotonic() + 60, ""
    while True:
        if not kernel.manager.is_alive() and "another program has it now" in log.read_text():
            return False
        alive = kernel.manager.is_alive()
        assert time.monotonic() < end and alive, f"the kernel does not answer; it says: {log.read_text()[-2000:]}"
        request = client.kernel_info()
        with contextlib.suppress(queue.Empty):
            while client.get_shell_msg(timeout=1)["parent_header"].get("msg_id") != request:
                pass
            while True:
                message = client.get_iopub_msg(timeout=1)
                state = message["content"].get("execution_state")
                if state == "idle" and message["parent_header"].get("msg_id") == request:
                    return True


@contextlib.contextmanager
def starting(tmp_path: Path) -> Iterator[Start]:
    """As `start`, for a fixture that lasts longer."""
    specs = tmp_path / "kernels"
    shutil.copytree(SPEC, specs / "sandboxed-python")
    running: list[Running] = []
    logs: list[BinaryIO] = []

    def begin(
        level: str = "auto", *, policy: str = "", env: dict[str, str] | None = None, folder: Path | None = None
    ) -> Running:
        folder = folder or tmp_path / f"work{len(running)}"
        folder.mkdir(exist_ok=True)
        for _ in range(5):
            if (kernel := start(level, policy, env or {}, folder)) is not None:
                return kernel
        raise AssertionError("other programs take the ports of each kernel")

    def start(level: str, policy: str, env: dict[str, str], folder: Path) -> Running | None:
        file = tmp_path / f"policy{len(running)}.toml"
        file.write_text(f'[isolation]\nlevel = "{level}"\n{policy}')
        manager = KernelManager(
            kernel_name="sandboxed-python", kernel_spec_manager=KernelSpecManager(kernel_dirs=[str(specs)])
        )
        base = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
        ipython = {"IPYTHONDIR": str(tmp_path / "ipython")}
        path = tmp_path / f"kernel{len(running)}.log"
        log = path.open("wb")
        logs.append(log)  # a restart writes into it again
        manager.start_kernel(
            cwd=str(folder), env={**base, **ipython, "SANDBOX_KERNEL_POLICY": str(file), **env},
            stdout=log, stderr=log,
        )  # fmt: skip
        client = manager.blocking_client()
        client.start_channels()
        kernel = Running(manager, client, folder)
        running.append(kernel)
        return kernel if _is_ready(kernel, path) else None

    yield begin
    for kernel in running:
        kernel.client.stop_channels()
        process = kernel.manager.provisioner.process if kernel.manager.has_kernel else None
        if process is not None:  # (else the manager looks each 0.1 s whether it has ended)
            process.kill()
            process.wait()
        kernel.manager.shutdown_kernel(now=True)
        kernel.manager.cleanup_resources()
    for log in logs:
        log.close()


@pytest.fixture(scope="module")
def start_shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """As `start`, for kernels that serve all tests of a module: one for each choice of options, while it lives."""
    with starting(tmp_path_factory.mktemp("shared")) as begin:
        made: dict[str, Running] = {}

        def give(level: str = "auto", **options: Any) -> Running:
            key = repr((level, options))
            if key not in made or not made[key].manager.is_alive():
                made[key] = begin(level, **options)
            return made[key]

        yield give


@pytest.fixture(params=LEVELS)
def kernel(start: Start, request: pytest.FixtureRequest) -> Running:
    """One kernel at each level that `auto` may choose."""
    return start(request.param)
