"""Nothing is sent unless an operator asked for it, and then exactly two words, once in the life of a process."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from jupyter_client.manager import KernelManager

from sandbox_kernel import __version__, telemetry

LEVELS = ("full", "seccomp+landlock")
# A program that uses a sandbox, and notes each address that any part of it connects to or sends to. (Its own sockets
# for the sandbox are pairs, which are never connected.)
PROGRAM = """
import sys
seen = []
sys.addaudithook(lambda event, args: seen.append((event, str(args[1:]))) if event in (
    "socket.connect", "socket.getaddrinfo", "socket.sendto", "socket.gethostbyname", "urllib.Request") else None)
from sandbox_kernel import Sandbox, execute_python
with Sandbox() as one, Sandbox() as two:
    text = one.run_code("import os; print([n for n in os.environ if 'SANDBOX' in n], 'sandbox_kernel.telemetry' in "
                        "__import__('sys').modules)").stdout
    two.run_code("1")
import threading
for thread in threading.enumerate():
    if thread.name == "telemetry":
        thread.join()
print(text.strip(), len([e for e in seen if e[0] == "urllib.Request"]), len(seen))
"""


class Hub:
    """A server on loopback that notes what it is sent, and answers when it may."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, dict[str, str], bytes]] = []
        self.may_answer = threading.Event()
        self.status = 204
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hub.heard.append((self.path, dict(self.headers), body))
                hub.may_answer.wait(30)
                self.send_response(hub.status)
                self.send_header("Location", f"{hub.url}/elsewhere")
                self.end_headers()

            do_GET = do_HEAD = do_POST

            def log_message(self, *_: Any) -> None:
                """Quiet."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()

    def close(self) -> None:
        self.may_answer.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub = Hub()
    yield hub
    hub.close()


def run_program(url: str | None) -> str:
    environment = {k: v for k, v in os.environ.items() if k != telemetry.URL_VARIABLE}
    if url is not None:
        environment[telemetry.URL_VARIABLE] = url
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout.strip()


def test_a_program_tells_two_words_once(hub: Hub) -> None:
    hub.may_answer.set()
    assert run_program(f"{hub.url}/kernels?site=a").startswith("[] False 1 ")
    ((path, headers, body),) = hub.heard
    told = json.loads(body)
    assert told == {"version": __version__, "level": told["level"]} and told["level"] in LEVELS
    assert path == "/kernels?site=a" and headers["User-Agent"] == "sandbox-kernel" and "Cookie" not in headers


@pytest.mark.parametrize("url", [None, "", "ftp://127.0.0.1/", "file:///etc/hostname"])
def test_without_being_asked_nothing_is_sent(url: str | None) -> None:
    assert run_program(url) == "[] False 0 0"


def test_a_kernel_tells_it_and_waits_for_nobody(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server takes what it is sent and does not answer; the kernel does not notice."""
    monkeypatch.setenv(telemetry.URL_VARIABLE, hub.url)
    manager = KernelManager(kernel_name="sandboxed-python")
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=50)
        shown: list[dict[str, Any]] = []
        code = "import os\nprint([name for name in os.environ if 'SANDBOX' in name])"
        reply = client.execute_interactive(code, timeout=50, output_hook=shown.append)
        assert reply["content"]["status"] == "ok"
        assert "".join(m["content"].get("text", "") for m in shown if m["msg_type"] == "stream") == "[]\n"
        end = time.monotonic() + 40
        while not hub.heard and time.monotonic() < end:
            time.sleep(0.02)
        ((_, _, body),) = hub.heard
        assert set(json.loads(body)) == {"version", "level"} and json.loads(body)["level"] in LEVELS
        assert client.execute_interactive("1", timeout=50)["content"]["status"] == "ok"
    finally:
        client.stop_channels()
        manager.shutdown_kernel()
    assert len(hub.heard) == 1


def test_who_is_not_there_harms_nobody() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    assert run_program(url).startswith("[] False 1 ")


def test_it_follows_nobody_elsewhere(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.may_answer.set()
    hub.status = 302
    monkeypatch.setattr(telemetry, "_told", set())
    thread = telemetry.tell("full", {telemetry.URL_VARIABLE: f"{hub.url}/here"})
    assert thread is not None
    thread.join(20)
    assert [path for path, _, _ in hub.heard] == ["/here"]
    assert telemetry.tell("full", {telemetry.URL_VARIABLE: hub.url}) is None, "once is enough"


def test_a_kernel_waits_for_its_level_only_when_it_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        level = "full"  # of a sandbox that was found wanting

        async def get_worker(self, *, stoppable: bool) -> None:
            raise RuntimeError

    told: list[str] = []
    monkeypatch.setattr(telemetry, "tell", lambda level, environment: told.append(level))

    async def start(environment: dict[str, str]) -> int:
        telemetry.watch(asyncio.get_running_loop(), Failing(), environment)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others)
        return len(others)

    assert asyncio.run(start({})) == 0 and told == []
    assert asyncio.run(start({telemetry.URL_VARIABLE: "http://127.0.0.1:1/"})) == 1 and told == ["none"]
