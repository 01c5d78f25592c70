"""Variables in and out of a running kernel, by its client."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from jupyter_client import AsyncKernelClient
from jupyter_client.manager import start_new_kernel

from sandbox_kernel import frames
from sandbox_kernel.client import TARGET, pull, pull_async, push, push_async
from sandbox_kernel.errors import FrameRefused, SandboxError

from .conftest import LEVELS, Start


@pytest.mark.parametrize("level", LEVELS)
def test_there_and_back(start: Start, level: str) -> None:
    kernel = start(level, policy='[limits]\nframe = "16MiB"\n')
    client = kernel.client
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    push(client, "df", frame)
    kernel.good("df['a'] *= 10")
    pd.testing.assert_frame_equal(pull(client, "df"), frame.assign(a=[10, 20]))
    large = np.arange(1 << 20)
    push(client, "large", large)
    assert (pull(client, "large") == large).all()
    with pytest.raises(KeyError, match="nothing"):
        pull(client, "nothing")
    with pytest.raises(FrameRefused, match="function"):
        push(client, "f", lambda: 0)
    with pytest.raises(FrameRefused, match=r"limits\.frame"):
        push(client, "x", bytes(20 << 20))
    kernel.good("g = (i for i in [])\nbig = bytes(20 << 20)")
    with pytest.raises(FrameRefused, match="generator"):
        pull(client, "g")
    with pytest.raises(FrameRefused, match=r"limits\.frame"):
        pull(client, "big")
    with pytest.raises(ValueError, match="cannot be the name"):
        push(client, "a b", 1)
    assert kernel.good("print(1)").stdout == "1\n"


def test_the_front_holds_a_large_value_once(start: Start) -> None:
    kernel = start("full")
    kernel.good("import numpy as np\nlarge = np.ones(12 << 20)")
    status = Path(f"/proc/{kernel.pid}/status")

    def peak() -> int:
        return int(status.read_text().split("VmHWM:")[1].split()[0]) << 10

    before = peak()
    assert pull(kernel.client, "large").nbytes == 96 << 20
    assert peak() - before < 144 << 20


@pytest.mark.parametrize("level", LEVELS)
def test_a_variable_as_a_file(start: Start, level: str) -> None:
    kernel = start(level)
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    kernel.good("import os, pandas as pd\ndf = pd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})")
    kernel.good("f = lambda: 0; os.mkdir('sub')")
    assert "df was written to df.frame" in kernel.good("%sandbox export df").stdout
    pd.testing.assert_frame_equal(frames.load_file(kernel.folder / "df.frame"), frame)
    kernel.good("df['a'] *= 10; os.chdir('/')")
    kernel.good("%sandbox export df sub/other.frame")
    assert frames.load_file(kernel.folder / "sub/other.frame")["a"].tolist() == [10, 20]
    for words, said in (("f", "function"), ("nothing", "no variable 'nothing'"), ("df /etc/df.frame", "/etc/"),
                        ("df ../df.frame", "df.frame"), ("df missing/df.frame", "missing")):  # fmt: skip
        text = kernel.good(f"%sandbox export {words}").stdout
        assert text.startswith("Nothing was written: ") and said in text
    for words in ("", "a-b", "df a b"):
        assert kernel.good(f"%sandbox export {words}").stdout.startswith("It is `%sandbox export NAME`")
    assert {path.name for path in kernel.folder.rglob("*")} == {"df.frame", "sub", "other.frame"}
    assert not (kernel.folder.parent / "df.frame").exists()


def test_not_while_a_cell_runs(start: Start) -> None:
    kernel = start()
    kernel.good("x = 1")
    cell = kernel.begin("import time; print('begun'); time.sleep(60)")
    for act in (lambda: pull(kernel.client, "x"), lambda: push(kernel.client, "x", 2)):
        with pytest.raises(SandboxError, match="A cell runs"):
            act()
    kernel.manager.interrupt_kernel()
    while kernel.client.get_shell_msg(timeout=30)["parent_header"]["msg_id"] != cell:
        pass
    assert kernel.good("x", timeout=30).of("execute_result")[0]["data"]["text/plain"] == "1"


def test_for_asyncio(start: Start) -> None:
    kernel = start()

    async def test() -> None:
        client = AsyncKernelClient(connection_file=kernel.manager.connection_file)
        client.load_connection_file()
        client.start_channels()
        try:
            await client.wait_for_ready(timeout=30)
            await push_async(client, "x", {"a": [1, 2]})
            assert await pull_async(client, "x") == {"a": [1, 2]}
            with pytest.raises(KeyError):
                await pull_async(client, "y")
        finally:
            client.stop_channels()

    asyncio.run(asyncio.wait_for(test(), 50))


def test_another_kernel_says_that_it_does_not_know(start: Start) -> None:
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        with pytest.raises(SandboxError, match="no sandboxed kernel"):
            push(client, "x", 1, timeout=50)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def _ask(kernel: Any, data: Any, buffers: list[bytes]) -> dict[str, Any]:
    client = kernel.client
    message = client.session.msg("comm_open", {"comm_id": "c", "target_name": TARGET, "data": data})
    message["buffers"] = buffers
    client.shell_channel.send(message)
    while True:
        heard = client.get_iopub_msg(timeout=50)
        if heard["msg_type"] == "comm_msg" and heard["parent_header"].get("msg_id") == message["header"]["msg_id"]:
            answer: dict[str, Any] = heard["content"]["data"]
            return answer


def test_what_is_no_request_is_refused(start: Start) -> None:
    kernel = start()
    kernel.good("x = 1")
    odd: list[Any] = [
        None, {}, [], {"op": "pull"}, {"op": "pull", "name": 5}, {"op": "pull", "name": "x y"},
        {"op": "exec", "name": "x"}, {"op": "push", "name": "x"}, {"op": "push", "name": "__import__()"},
    ]  # fmt: skip
    for data in odd:
        assert _ask(kernel, data, [])["status"] == "error"
    assert _ask(kernel, {"op": "push", "name": "x"}, [b"a", b"b"])["status"] == "error"
    told = _ask(kernel, {"op": "push", "name": "x"}, [pickle.dumps([1])])
    assert (told["status"], told["ename"]) == ("error", "FrameRefused")
    assert pull(kernel.client, "x") == 1


def test_a_worker_that_sends_no_frame_does_no_harm_to_the_client(start: Start) -> None:
    kernel = start()
    kernel.good(
        "import gc\nfrom sandbox_kernel.channel.framing import encode\n"
        "values = next(o for o in gc.get_objects() if type(o).__name__ == 'Values')\n"
        "def evil(request):\n    import pickle\n"
        "    values._link.send(encode({'type': 'value', 'id': request.id, 'room': 0}, [pickle.dumps(print)]))\n"
        "values.handlers['get'] = evil"
    )
    with pytest.raises(FrameRefused, match="not a frame"):
        pull(kernel.client, "x")
    assert kernel.good("print(1)").stdout == "1\n"
