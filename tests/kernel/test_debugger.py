"""The debugger of a running kernel, as JupyterLab uses it."""

from __future__ import annotations

import hashlib
import itertools
import json
import queue
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from sandbox_kernel.kernel.debugging import code_of, gate_answer
from sandbox_kernel.outputs.gate import Gate

from .conftest import Running, Start

CODE = "def f(a):\n    b = a * 2\n    c = b + 1\n    return c\nf(20)"
_SAY = """
from sandbox_kernel.channel import framing
link = get_ipython().kernel.session.link
def say(**message):
    for packet in framing.split(framing.dumps(message)):
        link._socket.send(packet)
"""


class Dap:
    """A debugger's client: requests on the control channel, events on IOPub."""

    def __init__(self, kernel: Running) -> None:
        self.kernel, self.client = kernel, kernel.client
        self._seq = itertools.count(1)
        self.seen: list[dict[str, Any]] = []

    def send(self, command: str, **arguments: Any) -> str:
        content = {"type": "request", "seq": next(self._seq), "command": command, "arguments": arguments}
        message = self.client.session.msg("debug_request", content)
        self.client.control_channel.send(message)
        return str(message["header"]["msg_id"])

    def control(self, request: str, timeout: float = 50) -> dict[str, Any]:
        deadline = time.monotonic() + timeout
        while True:
            reply = self.client.get_control_msg(timeout=max(0.01, deadline - time.monotonic()))
            if reply["parent_header"].get("msg_id") == request:
                return dict(reply["content"])

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        return self.control(self.send(command, **arguments))

    def wait_until_connected(self) -> None:
        """What is sent while the socket still believes in the kernel before the restart is lost."""
        for _ in range(20):
            request = self.client.session.msg("kernel_info_request", {})
            self.client.control_channel.send(request)
            try:
                self.control(request["header"]["msg_id"], timeout=1)
                return
            except queue.Empty:
                continue

    def begin(self) -> None:
        assert self.ask("initialize", clientID="test", adapterID="")["success"]
        assert self.ask("attach")["success"]

    def event(self, name: str, timeout: float = 50) -> dict[str, Any]:
        """The next event of this name."""
        deadline = time.monotonic() + timeout
        while True:
            message = self.client.get_iopub_msg(timeout=max(0.01, deadline - time.monotonic()))
            self.seen.append(message)
            if message["msg_type"] == "debug_event" and message["content"]["event"] == name:
                return dict(message["content"]["body"])

    def stop_in(self, code: str, line: int) -> str:
        """The execute request of a cell that stands at the breakpoint."""
        path = self.ask("dumpCell", code=code)["body"]["sourcePath"]
        self.ask("setBreakpoints", source={"path": path}, breakpoints=[{"line": line}])
        request = str(self.client.execute(code))
        self.event("stopped")
        return request

    def reply(self, request: str, timeout: float = 50) -> dict[str, Any]:
        deadline = time.monotonic() + timeout
        while True:
            reply = self.client.get_shell_msg(timeout=max(0.01, deadline - time.monotonic()))
            if reply["parent_header"].get("msg_id") == request:
                return dict(reply["content"])


def test_is_offered_and_works_at_each_level(kernel: Running) -> None:
    info = kernel.client.kernel_info(reply=True, timeout=30)["content"]
    assert "debugger" in info["supported_features"]
    dap = Dap(kernel)
    dap.begin()
    cell = dap.stop_in(CODE, 3)
    frame = dap.ask("stackTrace", threadId=1)["body"]["stackFrames"][0]
    assert (frame["name"], frame["line"]) == ("f", 3)
    request = kernel.client.session.msg("kernel_info_request", {})
    kernel.client.control_channel.send(request)
    assert dap.control(request["header"]["msg_id"])["status"] == "ok"
    assert dap.ask("continue", threadId=1)["success"]
    assert dap.reply(cell)["status"] == "ok"
    assert dap.ask("disconnect")["success"] and not dap.ask("debugInfo")["body"]["isStarted"]
    assert kernel.good("1").ok


def test_the_end_of_debugging_is_not_the_end_of_the_session(start: Start) -> None:
    kernel = start()
    kernel.good("x = 5")
    dap = Dap(kernel)
    dap.begin()
    refused = dap.ask("terminate")
    assert not refused["success"] and "restart" in refused["message"]
    assert dap.ask("disconnect", restart=False, terminateDebuggee=True)["success"]
    assert kernel.good("x").of("execute_result")[0]["data"]["text/plain"] == "5"
    dap.begin()


def test_every_request_is_busy_answered_and_idle(start: Start) -> None:
    dap = Dap(start())
    request = dap.send("debugInfo")
    assert dap.control(request)["success"]
    states = []
    while len(states) < 2:
        message = dap.client.get_iopub_msg(timeout=30)
        if message["parent_header"].get("msg_id") == request:
            states.append(message["content"]["execution_state"])
    assert states == ["busy", "idle"]


def test_an_interrupt_passes_a_request_that_waits(start: Start) -> None:
    kernel = start()
    dap = Dap(kernel)
    cell = kernel.begin("print('begun')\nwhile True: pass")
    waiting = dap.send("debugInfo")
    with pytest.raises(queue.Empty):
        dap.control(waiting, timeout=0.5)
    request = kernel.client.session.msg("interrupt_request", {})
    kernel.client.control_channel.send(request)
    assert dap.control(request["header"]["msg_id"])["status"] == "ok"
    assert dap.reply(cell)["ename"] == "KeyboardInterrupt"


def test_an_interrupt_ends_a_cell_at_a_breakpoint(kernel: Running) -> None:
    dap = Dap(kernel)
    dap.begin()
    cell = dap.stop_in(CODE, 3)
    kernel.manager.interrupt_kernel()
    reply = dap.reply(cell)
    assert reply["ename"] == "KeyboardInterrupt"
    dap.event("continued")
    cell = dap.stop_in(CODE, 3)  # the debugger goes on
    dap.ask("continue", threadId=1)
    assert dap.reply(cell)["status"] == "ok"


def test_a_restart_at_a_breakpoint(start: Start) -> None:
    kernel = start()
    dap = Dap(kernel)
    dap.begin()
    dap.stop_in(CODE, 3)
    kernel.manager.restart_kernel()
    kernel.client.wait_for_ready(timeout=60)
    dap.wait_until_connected()
    assert not dap.ask("debugInfo")["body"]["isStarted"]
    assert kernel.good("1").ok


def test_a_worker_that_dies_at_a_breakpoint_ends_the_session(start: Start) -> None:
    kernel = start()
    dap = Dap(kernel)
    dap.begin()
    cell = dap.stop_in(CODE, 3)
    frame = dap.ask("stackTrace", threadId=1)["body"]["stackFrames"][0]["id"]
    answer = dap.ask("evaluate", expression="__import__('os')._exit(3)", frameId=frame, context="repl")
    assert not answer["success"] and "exit code 3" in answer["message"]
    assert dap.reply(cell)["ename"] == "WorkerLost"
    assert dap.event("continued")["threadId"] == 1
    dap.event("terminated")
    assert not dap.ask("debugInfo")["body"]["isStarted"]
    dap.begin()
    cell = dap.stop_in(CODE, 3)
    dap.ask("continue", threadId=1)
    assert dap.reply(cell)["status"] == "ok"


def test_time_at_a_breakpoint_counts_and_is_said(start: Start) -> None:
    kernel = start("auto", policy='[limits]\ncell_time = "4s"\n')
    dap = Dap(kernel)
    dap.begin()
    cell = dap.stop_in("x = 1\ny = 2", 2)
    assert dap.reply(cell)["ename"] == "TimeLimit"
    dap.event("continued")
    kernel.client.execute("print('after')")
    said = ""
    while "after" not in said:
        dap.seen.append(kernel.client.get_iopub_msg(timeout=30))
        said = "".join(m["content"]["text"] for m in dap.seen if m["msg_type"] == "stream")
    assert "time at a breakpoint counts" in said
    assert kernel.good("x").ok  # the variables are kept


@pytest.mark.parametrize(
    "words",
    [
        "type='debug_event', event='stopped', body={'threadId': 1}",
        "type='reply', id='debug-999', content={'success': True, 'body': {}}, execution_count=0",
        "type='debug_event', event='evaluate', body={}",
    ],
)
def test_words_that_nobody_asked_for_cost_the_worker_not_the_front(start: Start, words: str) -> None:
    kernel = start()
    front = kernel.pid
    outcome = kernel.run(f"{_SAY}\nsay({words})\nimport time; time.sleep(10)")
    assert outcome.reply["ename"] == "ProtocolError" and not outcome.of("debug_event")
    assert kernel.pid == front and kernel.good("1").ok


def test_a_flood_of_events_is_bounded(start: Start) -> None:
    kernel = start("auto", policy="[limits]\nmessages = 1000\n")
    dap = Dap(kernel)
    dap.begin()
    front = psutil.Process(kernel.pid)
    before = front.memory_info().rss
    event = "say(type='debug_event', event='stopped', body=dict(threadId=1, a='x' * 500))"
    outcome = kernel.run(f"{_SAY}\nfor _ in range(50_000): {event}", timeout=50)
    assert len(outcome.of("debug_event")) < 5000 and front.memory_info().rss - before < 64 << 20
    assert kernel.good("1").ok


def test_code_in_debug_requests_is_held_to_the_rules_for_cells(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    kernel = start("auto", policy=f'[code]\nforbid = ["os.system"]\n[audit]\nfile = "{log}"\n')
    dap = Dap(kernel)
    dap.begin()
    cell = dap.stop_in(CODE, 3)
    frame = dap.ask("stackTrace", threadId=1)["body"]["stackFrames"][0]["id"]
    answer = dap.ask("evaluate", expression="import os; os.system('x')", frameId=frame, context="repl")
    assert not answer["success"] and "os.system" in answer["message"]
    answer = dap.ask("evaluate", expression="  )(", frameId=frame, context="repl")
    assert not answer["success"] and "not Python" in answer["message"]
    assert dap.ask("evaluate", expression="a + 1", frameId=frame, context="repl")["body"]["result"] == "21"
    dap.ask("continue", threadId=1)
    dap.reply(cell)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    outcomes = {line["code_sha256"]: line["outcome"] for line in lines if "code_sha256" in line}
    assert outcomes[hashlib.sha256(b"a + 1").hexdigest()] == "ok"
    assert outcomes[hashlib.sha256(b"import os; os.system('x')").hexdigest()] == "PolicyRefusal"


def test_all_code_of_a_request_is_found() -> None:
    points = [
        {"line": 1, "condition": "a > 1"}, {"line": 2, "hitCondition": ">= 3"}, {"hitCondition": "@HIT@ > b"},
        {"logMessage": "x {c} y {d[0]}"}, {"logMessage": "{ {e} "}, {"logMessage": "plain"}, {"line": 9}, "hostile",
    ]  # fmt: skip
    found = code_of({"command": "setBreakpoints", "arguments": {"breakpoints": points}})
    assert found == ["a > 1", "0 > b", "c", "d[0]", "{ {e} "]
    assert code_of({"command": "setVariable", "arguments": {"name": "n", "value": "v()"}}) == ["n", "v()"]
    assert code_of({"command": "attach", "arguments": {"guiEventLoop": "a.b"}}) == ["import a.b"]
    assert code_of({"command": "stackTrace", "arguments": {"threadId": 1}}) == code_of({"command": "x"}) == []


def test_what_a_client_renders_passes_the_gate() -> None:
    body = {"data": {"text/plain": "1", "text/html": "<b>x</b><script>alert(1)</script>"}, "metadata": [], "more": 1}
    answer = gate_answer(Gate(), {"command": "richInspectVariables", "success": True, "body": body})["body"]
    assert set(answer) == {"data", "metadata"} and "<b>x</b>" in answer["data"]["text/html"]
    assert "<script" not in answer["data"]["text/html"]
    body = {"data": ["text"]}
    assert gate_answer(Gate(), {"command": "richInspectVariables", "success": True, "body": body})["success"]
