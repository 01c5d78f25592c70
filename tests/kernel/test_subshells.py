"""Subshells (JEP 91) through a client, with a real worker."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from sandbox_kernel.kernel.shells import UNUSED_S, Request, ShellsKernel

from .conftest import Running, Start

PATIENCE_S = 40.0


class Talk:
    """A client that has several requests in flight."""

    def __init__(self, kernel: Running) -> None:
        self.kernel, self.client = kernel, kernel.client
        self.replies: dict[str, dict[str, Any]] = {}
        self.messages: list[dict[str, Any]] = []

    def control(self, kind: str, **content: Any) -> dict[str, Any]:
        self.client.control_channel.send(self.client.session.msg(f"{kind}_request", content))
        return dict(self.client.get_control_msg(timeout=PATIENCE_S)["content"])

    def open(self) -> str:
        return str(self.control("create_subshell")["subshell_id"])

    def send(self, kind: str, content: dict[str, Any], shell: object = None, buffers: Any = None) -> str:
        message = self.client.session.msg(kind, content)
        if shell is not None:
            message["header"]["subshell_id"] = shell
        # (The channel's own send takes no buffers.)
        self.client.session.send(self.client.shell_channel.socket, message, buffers=buffers)
        return str(message["header"]["msg_id"])

    def execute(self, code: str, shell: object = None, **more: Any) -> str:
        content = {"silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False, **more}
        return self.send("execute_request", {"code": code, **content}, shell)

    def reply(self, request: str) -> dict[str, Any]:
        while request not in self.replies:
            message = self.client.get_shell_msg(timeout=PATIENCE_S)
            self.replies[message["parent_header"]["msg_id"]] = message["content"]
        return self.replies[request]

    def wait(self, wanted: Any) -> list[dict[str, Any]]:
        """IOPub's messages until one is wanted."""
        deadline = time.monotonic() + PATIENCE_S
        while not any(map(wanted, self.messages)):
            self.messages.append(self.client.get_iopub_msg(timeout=deadline - time.monotonic()))
        return self.messages

    def idle(self, request: str) -> list[dict[str, Any]]:
        """The messages of a request, up to its idle."""

        def mine(message: dict[str, Any]) -> bool:
            return bool(message["parent_header"].get("msg_id") == request)

        self.wait(lambda m: mine(m) and m["content"].get("execution_state") == "idle")
        return list(filter(mine, self.messages))

    def text(self, request: str) -> str:
        return "".join(m["content"]["text"] for m in self.idle(request) if m["msg_type"] == "stream")

    def see(self, request: str, text: str) -> None:
        self.wait(lambda m: m["parent_header"].get("msg_id") == request and text in m["content"].get("text", ""))


@pytest.fixture
def talk(start: Start) -> Iterator[Talk]:
    yield Talk(start())


def test_offered_opened_listed_and_closed(talk: Talk) -> None:
    talk.client.kernel_info()
    assert "kernel subshells" in talk.client.get_shell_msg(timeout=PATIENCE_S)["content"]["supported_features"]
    first, second = talk.open(), talk.open()
    assert talk.control("list_subshell")["subshell_id"] == [first, second]
    assert talk.control("delete_subshell", subshell_id=first) == {"status": "ok"}
    assert talk.control("delete_subshell", subshell_id=first)["status"] == "error"
    assert talk.control("delete_subshell", subshell_id=[1])["status"] == "error"
    assert talk.control("list_subshell")["subshell_id"] == [second]


def test_a_new_kernel_has_none(talk: Talk) -> None:
    talk.open()
    talk.kernel.manager.restart_kernel()
    # The control channel of the old client may still be on its way to the new process.
    talk.client = talk.kernel.manager.blocking_client()
    talk.client.start_channels()
    try:
        talk.client.wait_for_ready(timeout=PATIENCE_S)
        assert talk.control("list_subshell")["subshell_id"] == []
    finally:
        talk.client.stop_channels()


def test_there_is_a_maximum_and_it_is_told(start: Start) -> None:
    talk = Talk(start(policy="[limits]\nprocesses = 12\n"))
    for _ in range(3):
        assert talk.control("create_subshell")["status"] == "ok"
    refused = talk.control("create_subshell")
    assert refused["status"] == "error" and "may have no more" in refused["evalue"]
    talk.control("delete_subshell", subshell_id=talk.control("list_subshell")["subshell_id"][0])
    assert talk.control("create_subshell")["status"] == "ok"


@pytest.mark.parametrize("name", ["no-such-subshell", "", 7, ["a"], {"a": 1}])
def test_requests_for_a_subshell_that_is_not_there_are_answered(talk: Talk, name: object) -> None:
    request = talk.execute("1", name)
    assert talk.reply(request)["status"] == "error"
    states = [m["content"]["execution_state"] for m in talk.idle(request)]
    assert states == ["busy", "idle"]
    comm = talk.send("comm_msg", {"comm_id": "x", "data": {}}, name)
    talk.idle(comm)
    assert talk.reply(talk.execute("1"))["status"] == "ok"


def test_shells_run_at_the_same_time_in_order_and_fail_alone(talk: Talk) -> None:
    shell = talk.open()
    busy = talk.execute("import threading; over = threading.Event(); print('on', flush=True); over.wait(30); 'main'")
    queued = talk.execute("'after'")
    talk.see(busy, "on")
    failing = talk.execute("print('side'); 1/0", shell)
    aborted = talk.execute("2", shell)
    assert talk.reply(failing)["ename"] == "ZeroDivisionError"
    assert talk.reply(aborted)["status"] == "aborted"
    talk.reply(talk.execute("over.set()", shell))
    assert talk.reply(busy)["status"] == talk.reply(queued)["status"] == "ok"
    assert talk.text(failing) == "side\n" and talk.text(busy) == "on\n"


def test_a_widget_moves_while_a_cell_looks_at_it(talk: Talk) -> None:
    pytest.importorskip("ipywidgets")
    talk.kernel.good("import ipywidgets, time; slider = ipywidgets.IntSlider(1)", timeout=60)
    name = talk.kernel.good("slider.model_id").of("execute_result")[0]["data"]["text/plain"].strip("'")
    shell = talk.open()
    look = "print('on', flush=True)\nend = time.time() + 30\n"
    cell = talk.execute(look + "while slider.value == 1 and time.time() < end: time.sleep(.01)\nprint(slider.value)")
    talk.see(cell, "on")
    update = {"method": "update", "state": {"value": 7}, "buffer_paths": []}
    moved = talk.send("comm_msg", {"comm_id": name, "data": update}, shell)
    assert "7" in talk.text(cell)
    assert any(m["content"].get("data", {}).get("method") == "echo_update" for m in talk.idle(moved))


def test_large_buffers_of_a_comm_on_a_subshell_while_the_main_shell_is_busy(talk: Talk) -> None:
    talk.kernel.good("from comm import create_comm\nc = create_comm(target_name='t', comm_id='c')\n"
                     "c.on_msg(lambda m: c.send({'n': len(m['buffers'][0])}, buffers=m['buffers']))")  # fmt: skip
    shell = talk.open()
    cell = talk.execute("import time; print('on', flush=True); time.sleep(60)")
    talk.see(cell, "on")
    data = uuid.uuid4().bytes * 500_000
    sent = talk.send("comm_msg", {"comm_id": "c", "data": {}}, shell, buffers=[data])
    (answer,) = [m for m in talk.idle(sent) if m["msg_type"] == "comm_msg"]
    assert answer["content"]["data"] == {"n": len(data)} and bytes(answer["buffers"][0]) == data
    talk.kernel.manager.interrupt_kernel()
    assert talk.reply(cell)["ename"] == "KeyboardInterrupt"


def test_a_subshell_lives_on_when_the_worker_is_lost(talk: Talk) -> None:
    shell = talk.open()
    side = talk.execute("import time; print('on', flush=True); time.sleep(60)", shell)
    talk.see(side, "on")
    lost = talk.reply(talk.execute("import os; os._exit(3)"))
    assert lost["ename"] == talk.reply(side)["ename"] == "WorkerLost"
    assert "lost" in lost["evalue"] or "restored" in lost["evalue"]
    assert talk.reply(talk.execute("1", shell))["status"] == "ok"
    assert talk.control("list_subshell")["subshell_id"] == [shell]


def test_a_subshell_s_cell_has_the_limits_of_a_cell(start: Start) -> None:
    talk = Talk(start(policy="[limits]\ncell_time = 1\ninterrupt_grace = 1\n"))
    shell = talk.open()
    talk.kernel.good("kept = 1")
    reply = talk.reply(talk.execute("while True: pass", shell))
    assert reply["ename"] == "TimeLimit" and "kept" in reply["evalue"]
    reply = talk.reply(talk.execute("import time; time.sleep(60)", shell))  # nothing can be raised in there
    assert reply["ename"] == "TimeLimit" and "did not end" in reply["evalue"]
    assert talk.reply(talk.execute("1", shell))["status"] == "ok"


def test_each_cell_asks_its_own_client(talk: Talk) -> None:
    shell = talk.open()
    first = talk.execute("print('got', input('one '))", allow_stdin=True)
    question = talk.client.get_stdin_msg(timeout=PATIENCE_S)
    second = talk.execute("print('got', input('two '))", shell, allow_stdin=True)
    other = talk.client.get_stdin_msg(timeout=PATIENCE_S)
    for asked, answer in ((question, "1"), (other, "2")):
        message = talk.client.session.msg("input_reply", {"value": answer}, parent=asked)
        talk.client.stdin_channel.send(message)
    assert "got 1" in talk.text(first) and "got 2" in talk.text(second)


def test_a_cell_keeps_its_header_through_thousands_of_widget_messages(talk: Talk) -> None:
    talk.kernel.good("from comm import create_comm\nc = create_comm(target_name='t', comm_id='c')\nseen = []\n"
                     "c.on_msg(lambda m: seen.append(1))")  # fmt: skip
    shell = talk.open()
    cell = talk.execute("import time; print('on', flush=True)\nwhile len(seen) < 1200: time.sleep(.01)\nprint('whole')")
    talk.see(cell, "on")
    for _ in range(1200):
        talk.send("comm_msg", {"comm_id": "c", "data": {}}, shell)
    assert "whole" in talk.text(cell)


def test_a_subshell_that_nobody_uses_makes_room_for_another_one() -> None:
    """Pages that are loaded anew leave theirs behind."""
    kernel = ShellsKernel()
    told: list[list[str]] = []
    kernel.subshells_changed = told.append  # type: ignore[method-assign]
    kernel._most_subshells = 3

    def create() -> dict[str, Any]:
        return asyncio.run(kernel._create())

    first, second, third = (create()["subshell_id"] for _ in range(3))
    assert create()["ename"] == "TooManySubshells", "they were used a moment ago"
    shells = kernel._shells
    shells[first].used -= 3 * UNUSED_S
    shells[second].used -= 2 * UNUSED_S
    shells[first].active = Request([], {"header": {"msg_type": "execute_request"}})
    closed = shells[second]
    fourth = create()["subshell_id"]
    assert list(shells) == told[-1] == [first, third, fourth] and closed.closed, "the one that runs a cell stays"
    assert create()["status"] == "error"
