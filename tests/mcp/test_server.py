"""The server as a program, and the SDK's own client: over its streams, and over HTTP."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from sandbox_kernel.cli import main

COMMAND = str(Path(sys.executable).with_name("sandbox-kernel"))
TOKENS = ("the-token-of-the-first-client", "the-token-of-the-second-client")
ERAS = ("legacy", "auto")  # with a handshake; and with the newest protocol, where each request stands for itself

pytestmark = [pytest.mark.integrations, pytest.mark.timeout(150)]


class Answer:
    """Of one tool: its text, its pictures, whether it failed."""

    def __init__(self, result: Any) -> None:
        self.text = result.content[0].text
        self.rest = result.content[1:]
        self.failed = result.is_error
        self.state = (result.meta or {}).get("sandbox-kernel/state", "")
        self.session = (result.meta or {}).get("sandbox-kernel/session", "")
        self.shown = self.text.rpartition("\n")[0]


class Assistant:
    """A client; calls name their session where the protocol keeps none."""

    def __init__(self, client: Client, names_sessions: bool) -> None:
        self.client, self._names, self.session = client, names_sessions, ""

    async def call(self, tool: str, **arguments: Any) -> Answer:
        if self._names and self.session:
            arguments.setdefault("session", self.session)
        answer = Answer(await self.client.call_tool(tool, arguments))
        self.session = answer.session or self.session
        return answer


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with two tokens, room for three sessions, and a short text."""
    folder = tmp_path_factory.mktemp("mcp")
    (folder / "tokens").write_text("# clients\n" + "\n".join(TOKENS) + "\n")
    (folder / "policy.toml").write_text('preset = "assistant"\n[limits]\ncell_time = "20s"\nfile_size = "8MiB"\n')
    options = ("--token-file", str(folder / "tokens"), "--policy", str(folder / "policy.toml"), "--sessions", "3")
    with serving(*options, "--text", "4000") as url:
        yield url


class serving:
    """A server over HTTP on a free port."""

    def __init__(self, *options: str) -> None:
        self._options = options

    def __enter__(self) -> str:
        self._process = subprocess.Popen(
            [COMMAND, "mcp", "--http", "127.0.0.1:0", *self._options], stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stderr
        line = self._process.stderr.readline()
        assert line.startswith("sandbox-kernel: listening on http://127.0.0.1:"), line + self._process.stderr.read()
        return line.split()[3]

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        self.log = self._process.communicate(timeout=60)[1]


@asynccontextmanager
async def over_http(url: str, era: str, token: str = TOKENS[0]) -> AsyncIterator[Assistant]:
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as client:
        transport = streamable_http_client(url, http_client=client)
        async with Client(transport, mode=era, read_timeout_seconds=60) as connected:
            yield Assistant(connected, era != "legacy")


@asynccontextmanager
async def over_stdio(era: str, *options: str, **environment: str) -> AsyncIterator[Assistant]:
    # (The SDK gives a server a few variables of its own choice, not ours.)
    command = StdioServerParameters(command=COMMAND, args=["mcp", *options], env={"PATH": os.defpath, **environment})
    async with Client(command, mode=era, read_timeout_seconds=60) as connected:
        yield Assistant(connected, False)


def run(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 120))  # type: ignore[arg-type]


async def a_day_of_an_assistant(assistant: Assistant) -> None:
    """What any transport and protocol has to give."""
    call = assistant.call
    names = {tool.name for tool in (await assistant.client.list_tools()).tools}
    assert {"run_code", "put_file", "get_file", "list_variables", "describe_frame", "rollback", "reset"} <= names

    for _ in range(20):  # copies to go back to are left between cells while that is cheap
        await call("run_code", code="kept = 1")
        await call("run_code", code="kept = 2")
        answer = await call("rollback")
        if not answer.failed:
            break
        assert "There is no copy" in answer.text
        await asyncio.sleep(0.5)
    assert answer.state == "restored", answer.text
    assert (await call("run_code", code="kept")).shown == "1"

    mine = assistant.session
    await call("checkpoint", name="before")
    answer = await call("fork")
    assert not answer.failed, answer.text
    fork = answer.text.split()[2]
    await call("run_code", code="kept = 10", session=fork)
    assert (await call("run_code", code="kept", session=mine)).shown == "1"
    answer = await call("keep", fork=fork, session=mine)
    assert not answer.failed, answer.text
    assert (await call("run_code", code="kept", session=mine)).shown == "10"
    assert "There is no session" in (await call("run_code", code="1", session=fork)).text
    assistant.session = mine
    assert (await call("rollback", checkpoint="before")).state == "restored"
    assert (await call("run_code", code="kept")).shown == "1"
    await call("reset")

    answer = await call("put_file", path="data/sales.csv", content="region,amount\nnorth,120\nsouth,80\nnorth,50\n")
    assert not answer.failed, answer.text
    answer = await call("run_code", code="import pandas as pd\nsales = pd.read_csv('data/sales.csv')\nlen(sales)")
    assert (answer.shown, answer.state) == ("3", "kept")
    answer = await call("list_variables")
    assert answer.shown == "sales: DataFrame, 3 rows x 2 columns"
    answer = await call("describe_frame", name="sales")
    for part in ("amount", "int64", "missing", "83.3", "north"):
        assert part in answer.text

    answer = await call("run_code", code="print('\\x1b[31mred\\x1b[0m'); sales.profit")
    assert answer.failed
    assert "AttributeError" in answer.text
    assert "\x1b" not in answer.text
    assert answer.text.endswith("kept]") or "kept; session" in answer.text

    plot = "import matplotlib.pyplot as plt\nsales.amount.plot()\nplt.savefig('plot.png')\nplt.show()"
    answer = await call("run_code", code=plot)
    (image,) = answer.rest
    assert (image.type, image.mime_type) == ("image", "image/png")
    assert base64.b64decode(image.data).startswith(b"\x89PNG")
    (same,) = (await call("get_file", path="plot.png")).rest
    assert same.mime_type == "image/png"

    content = bytes(range(256)) * 4
    await call("put_file", path="raw.bin", content=base64.b64encode(content).decode(), encoding="base64")
    (file,) = (await call("get_file", path="raw.bin")).rest
    assert base64.b64decode(file.resource.blob) == content
    assert "raw.bin  1 KiB" in (await call("list_files")).text

    answer = await call("run_code", code="while True: pass", timeout=1)
    assert answer.failed
    assert "TimeLimit" in answer.text
    assert "variables of this session are kept" in answer.text
    answer = await call("run_code", code="import os; os._exit(7)")
    assert answer.failed
    assert answer.state in ("restored", "lost")
    assert f"variables of this session {'were' if answer.state == 'restored' else 'are'} {answer.state}" in answer.text
    assert (await call("reset")).state == "lost"
    assert "NameError" in (await call("run_code", code="sales")).text


def test_over_stdio() -> None:
    async def work() -> None:
        async with over_stdio("auto") as assistant:
            await a_day_of_an_assistant(assistant)

    run(work)


def test_over_stdio_with_a_handshake(tmp_path: Path) -> None:
    (tmp_path / "given.txt").write_text("from the host")

    async def work() -> None:
        async with over_stdio("legacy", "--workspace", str(tmp_path)) as assistant:
            await assistant.call("run_code", code="text = open('given.txt').read()")
            assert (await assistant.call("run_code", code="text")).shown == "'from the host'"
            # The preset shows a workspace for reading.
            assert (await assistant.call("put_file", path="given.txt", content="changed")).failed
            assert (await assistant.call("run_code", code="open('given.txt', 'w')")).failed
        assert (tmp_path / "given.txt").read_text() == "from the host"

    run(work)


def test_over_http(http: str) -> None:
    async def work() -> None:
        async with over_http(http, "legacy") as assistant:
            await a_day_of_an_assistant(assistant)
            await assistant.call("end_session")

    run(work)


@pytest.mark.security
@pytest.mark.parametrize("era", ERAS)
def test_two_clients_never_share_a_session(http: str, era: str) -> None:
    async def work() -> None:
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(over_http(http, era))
            second = await stack.enter_async_context(over_http(http, era, TOKENS[1]))
            same_token = await stack.enter_async_context(over_http(http, era))
            clients = (first, second, same_token)
            secrets = [f"{era} {number}" for number in range(3)]
            for client, secret in zip(clients, secrets, strict=True):
                await client.call("run_code", code=f"secret = {secret!r}\nopen('secret', 'w').write(secret)")
            assert len({client.session for client in clients}) == 3
            for client, secret in zip(clients, secrets, strict=True):
                assert (await client.call("run_code", code="secret")).shown == repr(secret)
                assert (await client.call("get_file", path="secret")).shown == secret
            for tool, more in (("run_code", {"code": "secret"}), ("get_file", {"path": "secret"}), ("reset", {})):
                answer = await second.call(tool, session=first.session, **more)
                assert answer.failed
                assert "There is no session" in answer.text
            for client in clients:
                await client.call("end_session")

    run(work)


@pytest.mark.security
def test_paths_lead_nowhere_outside(http: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("a secret of the host")

    async def work() -> None:
        async with over_http(http, "legacy") as assistant:
            await assistant.call("run_code", code=f"import os; os.symlink({str(secret)!r}, 'link')")
            for path in (
                f"../../../../../../../..{secret}", str(secret), "link", f"a/../../..{secret}", "/etc/shadow",
                "/proc/1/environ", "\0",
            ):  # fmt: skip
                answer = await assistant.call("get_file", path=path)
                assert "secret of the host" not in answer.text
                assert answer.failed or not answer.rest
                await assistant.call("put_file", path=path, content="changed")
            await assistant.call("end_session")
        assert secret.read_text() == "a secret of the host"

    run(work)


def test_what_is_too_much_is_cut_or_refused(http: str) -> None:
    async def work() -> None:
        async with over_http(http, "legacy") as assistant:
            answer = await assistant.call("run_code", code="for i in range(50_000): print('line', i)")
            assert len(answer.text) <= 4000
            assert answer.text.startswith("line 0\n")
            assert "line 49999" in answer.text
            plots = "import matplotlib.pyplot as plt\nfor i in range(12):\n    plt.plot([i]); plt.show()"
            answer = await assistant.call("run_code", code=plots)
            assert len(answer.rest) == 8
            assert "4 more images" in answer.text
            await assistant.call("run_code", code="open('big', 'wb').write(b'\\xff' * 6_000_000)")
            answer = await assistant.call("get_file", path="big")
            assert answer.failed
            assert not answer.rest
            # The server's own limits hold, whatever a call says.
            larger = "open('larger', 'wb').write(bytes(20 << 20))"
            answer = await assistant.call("run_code", code=larger, timeout=80_000)
            assert answer.failed
            assert "File too large" in answer.text
            answer = await assistant.call("run_code", code="1 + 1")
            assert answer.shown == "2"
            await assistant.call("end_session")

    run(work)


def test_wrong_calls_are_refused_in_words(http: str) -> None:
    async def work() -> None:
        async with over_http(http, "auto") as assistant:
            for tool, arguments in (
                ("run_code", {}), ("run_code", {"code": 3}), ("run_code", {"code": "1", "policy": "open"}),
                ("rollback", {"cells": -1}), ("rollback", {"checkpoint": "none"}), ("checkpoint", {"name": "../x"}),
                ("keep", {"fork": "nobody"}), ("put_file", {"path": "x", "content": "%", "encoding": "base64"}),
                ("get_file", {"path": "."}), ("get_file", {"path": "x/y"}), ("describe_frame", {"name": "no"}),
                ("describe_frame", {"name": "a.b()"}), ("put_file", {"path": "/sys/x", "content": ""}),
            ):  # fmt: skip
                answer = await assistant.call(tool, **arguments)
                assert answer.failed, (tool, arguments, answer.text)
                assert 10 < len(answer.text) < 700
                assert "Traceback" not in answer.text
            with pytest.raises(MCPError, match="There is no tool 'run_shell'"):
                await assistant.call("run_shell", command="id")
            assert (await assistant.call("run_code", code="1")).shown == "1"
            await assistant.call("end_session")

    run(work)


def test_a_call_that_its_client_gives_up_leaves_no_cell_behind(http: str) -> None:
    async def work() -> None:
        async with over_http(http, "legacy") as assistant:
            await assistant.call("run_code", code="x = 1")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await assistant.call("run_code", code="import time\nwhile True: time.sleep(0.1)")
            # (Its own limit is 20 s; the next call would wait for it.)
            answer = await assistant.call("run_code", code="x", timeout=10)
            assert answer.shown == "1"
            await assistant.call("end_session")

    run(work)


@pytest.mark.security
def test_without_a_token_there_is_nothing(http: str) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    accept = {"Accept": "application/json, text/event-stream"}
    for headers in ({}, {"Authorization": "Bearer"}, {"Authorization": "Bearer x" * 3}, {"Authorization": TOKENS[0]},
                    {"Authorization": f"Basic {TOKENS[0]}"}, {"Cookie": f"token={TOKENS[0]}"}):  # fmt: skip
        for method in ("POST", "GET", "DELETE", "OPTIONS"):
            answer = httpx2.request(method, http, json=call, headers=accept | headers)
            assert answer.status_code == 401
            assert "tool" not in answer.text
    assert httpx2.post(f"{http}?token={TOKENS[0]}", json=call, headers=accept).status_code == 401


@pytest.mark.security
def test_a_page_of_another_origin_is_refused(http: str) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = {"Authorization": f"Bearer {TOKENS[0]}", "Accept": "application/json, text/event-stream"}
    for more, status in (({"Origin": "https://evil.example"}, 403), ({"Host": "evil.example"}, 421)):
        assert httpx2.post(http, json=call, headers=headers | more).status_code == status


def test_a_body_without_end_is_not_read(http: str) -> None:
    headers = {"Authorization": f"Bearer {TOKENS[0]}", "Content-Type": "application/json"}
    host, port = http.split("/")[2].split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        lines = [f"POST /mcp HTTP/1.1\r\nHost: {host}:{port}", f"Content-Length: {10**12}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        assert connection.recv(4096).startswith(b"HTTP/1.1 413")


def test_there_are_no_more_sessions_than_the_server_has_room_for(http: str) -> None:
    async def work() -> None:
        async with over_http(http, "auto") as assistant:
            made = []
            for _ in range(3):  # one that names no session has none, and gets another
                assistant.session = ""
                await assistant.call("run_code", code="x = 1")
                made.append(assistant.session)
            assistant.session = ""
            answer = await assistant.call("run_code", code="x = 4")
            assert answer.failed
            assert "All 3 sessions" in answer.text
            for session in made:
                assert not (await assistant.call("end_session", session=session)).failed

    run(work)


def test_a_session_that_nobody_uses_ends() -> None:
    async def work(url: str) -> None:
        async with AsyncExitStack() as stack:
            token = "a-token-by-the-environment"
            first, second = [await stack.enter_async_context(over_http(url, "legacy", token)) for _ in range(2)]
            await first.call("run_code", code="x = 1")
            while (answer := await second.call("run_code", code="x = 2")).failed:
                assert "All 1 sessions" in answer.text
                await asyncio.sleep(0.2)
            while (answer := await first.call("run_code", code="'x' in globals()")).failed:
                assert "All 1 sessions" in answer.text
                await asyncio.sleep(0.2)
            assert "has ended: nobody used it for 1 s. Its variables are lost." in answer.text
            assert "False" in answer.text

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SANDBOX_KERNEL_MCP_TOKEN", "a-token-by-the-environment")
        with serving("--sessions", "1", "--idle", "1s") as url:
            run(lambda: work(url))


@pytest.mark.parametrize(("options", "told"), [
    (("--http", "0.0.0.0:0"), "can be reached from other machines"),
    (("--http", "[::]:0"), "can be reached from other machines"),
    (("--http", "127.0.0.1:0", "--token-file", "{empty}"), "One is made by: python3"),
    (("--http", "127.0.0.1:0", "--token-file", "/no/tokens"), "/no/tokens cannot be read: No such file or directory."),
    (("--token-file", "{empty}"), "is for --http"),
    (("--policy", "no-such-preset"), "no-such-preset"),
    (("--workspace", "/no/such/folder"), "is no folder"),
])  # fmt: skip
def test_it_does_not_start_with(
    options: tuple[str, ...], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").write_text("# nothing\n")
    assert main(["mcp", *(option.format(empty=tmp_path / "empty") for option in options)]) == 1
    assert told in capsys.readouterr().err
