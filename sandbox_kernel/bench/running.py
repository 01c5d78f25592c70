"""A kernel of either kind, started and asked as a client does it, and what it costs."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import zmq
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager
from jupyter_client.session import Session

STOCK, OURS = "stock", "sandboxed"
_ARGV = {
    STOCK: [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
    OURS: [sys.executable, "-P", "-m", "sandbox_kernel", "-f", "{connection_file}"],
}
_ANSWER_MS = 120_000
# jupyter_client's sockets try again every 100 ms, which would round the time of a start up to that.
_RECONNECT_MS = 5


class Unanswered(Exception):
    """A kernel that did not answer, or whose cell failed."""


@dataclass
class Ran:
    """One cell.

    Attributes:
        seconds: from sending it until its reply and its idle state were there.
        seen: text of its streams and results, each with the moment (wall clock) at which it came.
    """

    seconds: float
    ok: bool
    seen: list[tuple[float, str]] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(text for _, text in self.seen)


class Kernel:
    """A running kernel.

    Args:
        kind: `STOCK` or `OURS`.
        folder: for its kernelspec, its work and its history.
        environment: further variables.

    Attributes:
        start_s, start_cpu_s: from the launch to the first result, and the processor time of all processes in it.
    """

    def __init__(self, kind: str, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        spec, work = folder / "kernels" / kind, folder / "work"
        for path in (spec, work):
            path.mkdir(parents=True, exist_ok=True)
        about = {"argv": _ARGV[kind], "display_name": kind, "language": "python",
                 "metadata": {"supported_encryption": ["curve"]}}  # fmt: skip
        (spec / "kernel.json").write_text(json.dumps(about), encoding="utf-8")
        self._manager = KernelManager(
            kernel_name=kind, kernel_spec_manager=KernelSpecManager(kernel_dirs=[str(spec.parent)])
        )
        self._log = (folder / f"{kind}.log").open("ab")
        began = time.monotonic()
        self._manager.start_kernel(
            cwd=str(work), stdout=self._log, stderr=self._log,
            env={**os.environ, "IPYTHONDIR": str(folder / "ipython"), **(environment or {})},
        )  # fmt: skip
        self._session = Session(key=self._manager.session.key)
        self._shell, self._iopub = self._connect(zmq.DEALER, "shell"), self._connect(zmq.SUB, "iopub")
        try:
            self._receive(self._ask("kernel_info_request", {}))
            self.start_s = self._receive(self._execute("1+1"))[1] - began
            self.start_cpu_s = self.cpu_s()
            self.run("None")  # (IOPub may have been late for the first)
        except BaseException:
            self.close()
            raise

    def _connect(self, kind: int, channel: str) -> zmq.Socket[bytes]:
        socket: zmq.Socket[bytes] = zmq.Context.instance().socket(kind)
        socket.linger = 0
        socket.reconnect_ivl = _RECONNECT_MS
        if kind == zmq.SUB:
            socket.subscribe(b"")
        socket.connect(f"tcp://{self._manager.ip}:{getattr(self._manager, f'{channel}_port')}")
        return socket

    # ------------------------------------------------------------ cells

    def run(self, code: str) -> Ran:
        """Run a cell; waits for all that belongs to it."""
        began = time.monotonic()
        sent = self._execute(code)
        reply: dict[str, Any] = {}
        seen: list[tuple[float, str]] = []
        idle = False
        poller = zmq.Poller()
        poller.register(self._shell, zmq.POLLIN)
        poller.register(self._iopub, zmq.POLLIN)
        while not (reply and idle):
            ready = dict(poller.poll(_ANSWER_MS))
            if not ready:
                raise Unanswered(f"no answer to {code[:60]!r}")
            if self._iopub in ready:
                message = self._read(self._iopub)
                content = message["content"]
                if message["parent_header"].get("msg_id") != sent:
                    continue
                if message["msg_type"] == "status":
                    idle = content["execution_state"] == "idle"
                elif message["msg_type"] == "stream":
                    seen.append((time.time(), content["text"]))
                elif message["msg_type"] == "execute_result":
                    seen.append((time.time(), content["data"]["text/plain"]))
            elif self._shell in ready:
                message = self._read(self._shell)
                if message["parent_header"].get("msg_id") == sent:
                    reply = message["content"]
        return Ran(time.monotonic() - began, reply["status"] == "ok", seen)

    def good(self, code: str) -> Ran:
        """As `run`; a cell that fails ends the measurement."""
        ran = self.run(code)
        if not ran.ok:
            raise Unanswered(f"the cell failed: {code[:60]!r}")
        return ran

    def _execute(self, code: str) -> str:
        return self._ask("execute_request", {
            "code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False,
            "stop_on_error": True,
        })  # fmt: skip

    def _ask(self, kind: str, content: dict[str, Any]) -> str:
        sent: Any = self._session.send(self._shell, kind, content)
        return str(sent["header"]["msg_id"])

    def _receive(self, sent: str) -> tuple[dict[str, Any], float]:
        while self._shell.poll(_ANSWER_MS):
            message = self._read(self._shell)
            if message["parent_header"].get("msg_id") == sent:
                return message, time.monotonic()
        raise Unanswered("the kernel did not start")

    def _read(self, socket: zmq.Socket[bytes]) -> dict[str, Any]:
        message: dict[str, Any] = self._session.deserialize(self._session.feed_identities(socket.recv_multipart())[1])
        return message

    # ------------------------------------------------------------ costs

    def processes(self) -> list[psutil.Process]:
        """All of the kernel's."""
        provisioner: Any = self._manager.provisioner
        top = psutil.Process(provisioner.process.pid)
        return [top, *top.children(recursive=True)]

    def cpu_s(self) -> float:
        """Processor time of all of them, and of their children that have ended."""
        total = 0.0
        for process in self.processes():
            try:
                times, tasks = process.cpu_times(), f"/proc/{process.pid}/task"
                total += times.children_user + times.children_system
                total += sum(int(Path(tasks, t, "schedstat").read_text().split()[0]) for t in os.listdir(tasks)) / 1e9
            except (OSError, psutil.Error):  # it has just ended
                continue
        return total

    def pss_bytes(self) -> int:
        """Memory of all of them; a page that several share counts once."""
        total = 0
        for process in self.processes():
            try:
                total += int(process.memory_full_info().pss)
            except psutil.Error:
                continue
        return total

    def close(self) -> None:
        """End it."""
        self._shell.close()
        self._iopub.close()
        self._manager.shutdown_kernel(now=True)
        self._manager.cleanup_resources()
        self._log.close()
