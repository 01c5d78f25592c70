"""Cells and texts of cells that would hold up, bloat or mislead the front."""

from __future__ import annotations

import queue
import time

import psutil
import pytest

from sandbox_kernel.outputs.gate import gate

from .conftest import Start

# What a hostile cell says to the front by itself, past the kernel's own code.
_SAY = """
from sandbox_kernel.channel import framing
link = get_ipython().kernel.session.link
def say(**message):
    for packet in framing.split(framing.dumps(message)):
        link._socket.send(packet)
here = get_ipython().kernel.get_parent("shell")["header"]["msg_id"]
"""


def test_a_leap_of_the_count_costs_nothing(start: Start) -> None:
    kernel = start()
    front = psutil.Process(kernel.pid)
    before = front.memory_info().rss
    kernel.good("get_ipython().execution_count = 2**31 - 5")
    began = time.monotonic()
    outcome = kernel.good("'after'", timeout=50)
    assert outcome.of("execute_input")[0]["execution_count"] == 2**31 - 5
    assert time.monotonic() - began < 15 and front.memory_info().rss - before < 64 << 20
    request = kernel.client.history(raw=True, output=True, hist_access_type="tail", n=1)
    reply = kernel.client.get_shell_msg(timeout=30)
    assert reply["parent_header"]["msg_id"] == request
    assert reply["content"]["history"][-1][2] == ["'after'", "'after'"]


@pytest.mark.parametrize("count", ["-5", "10**30", "2**31", "True"])
def test_any_count_leaves_the_session_alive(start: Start, count: str) -> None:
    kernel = start()
    kernel.good(f"x = 7\nget_ipython().execution_count = {count}")
    assert kernel.good("x").of("execute_result")[0]["data"]["text/plain"] == "7"
    assert kernel.good("x + 1", user_expressions={"a": "x"}).of("execute_result")[0]["data"]["text/plain"] == "8"


def test_a_cell_of_many_magics_can_be_interrupted(start: Start) -> None:
    kernel = start()
    request = kernel.client.execute("!x\n" * 490 + "a = 1\n" * 20_000)
    while kernel.client.get_iopub_msg(timeout=50)["parent_header"].get("msg_id") != request:
        pass
    time.sleep(1)
    kernel.manager.interrupt_kernel()
    reply = kernel.client.get_shell_msg(timeout=50)
    while reply["parent_header"].get("msg_id") != request:  # (an answer to a late question whether it is ready)
        reply = kernel.client.get_shell_msg(timeout=50)
    assert reply["content"]["status"] == "error"
    kernel.good("1")


def test_a_client_that_cannot_be_asked_is_not_asked(start: Start) -> None:
    kernel = start()
    question = "say(type='input_request', parent=here, serial=1, prompt='password', password=True)"
    kernel.good(f"{_SAY}\n{question}\nimport time; time.sleep(0.2)", allow_stdin=False)
    with pytest.raises(queue.Empty):
        kernel.client.get_stdin_msg(timeout=0.5)


def test_a_cell_that_is_too_long_is_answered(start: Start) -> None:
    kernel = start()
    kernel.good("x = 1")
    outcome = kernel.run("'" + "y" * (33 << 20) + "'")
    assert outcome.reply["ename"] == "RequestTooLarge" and "kept" in outcome.reply["evalue"]
    assert kernel.good("x").of("execute_result")


def test_what_a_worker_can_leave_unfinished_is_bounded(start: Start) -> None:
    kernel = start()
    begun = "first = next(framing.split(b'{}', [memoryview(bytes(65 << 20))])); link._socket.send(first)"
    outcome = kernel.run(f"{_SAY}\n{begun}\nimport time; time.sleep(9)")
    assert outcome.reply["ename"] == "ProtocolError" and "a frame that is too long" in outcome.reply["evalue"]


def test_a_message_that_is_too_large_is_an_error_of_its_cell(start: Start) -> None:
    kernel = start()
    kernel.good("x = 1\nfrom comm import create_comm\nc = create_comm(target_name='t')")
    outcome = kernel.run("c.send({}, buffers=[bytes(65 << 20)])")
    assert outcome.reply["ename"] == "FrameTooLarge" and "67,108,864" in outcome.reply["evalue"]
    assert kernel.good("x").of("execute_result")


def test_a_frame_of_millions_of_values_is_refused(start: Start) -> None:
    kernel = start()
    front = psutil.Process(kernel.pid)
    before = front.memory_info().rss
    text = "b'{\"a\":[' + b'{},' * 10_000_000 + b'0]}'"
    outcome = kernel.run(f"{_SAY}\nfor p in framing.split({text}): link._socket.send(p)\nimport time; time.sleep(9)")
    assert outcome.reply["ename"] == "ProtocolError" and "too many values" in outcome.reply["evalue"]
    assert front.memory_info().rss - before < 256 << 20


def test_counts_that_no_client_can_hold_are_cut() -> None:
    for count, sent in ((10**400, 2**31), (-3, 0), (7, 7)):
        assert gate("execute_result", {"data": {}, "execution_count": count}, [])["execution_count"] == sent
