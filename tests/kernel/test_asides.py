"""What is answered while a cell runs, and what a completion may cost."""

from __future__ import annotations

import queue
import time
from typing import Any

import pytest

from sandbox_kernel.kernel.answers import place
from sandbox_kernel.kernel.asides import WAIT_S

from .conftest import Running, Start


@pytest.mark.parametrize(
    ("code", "position", "at"),
    [("ab", 1, 1), ("ab", 9, 2), ("ab", -1, 0), ("ab", None, 2), ("ab", "1", 2), ("", 0, 0), (5, 1, 0)],
)
def test_a_cursor_is_in_the_text(code: object, position: object, at: int) -> None:
    assert place(code, position) == at


@pytest.fixture
def busy(start: Start) -> Running:
    kernel = start()
    kernel.good("x = 1\nclass Slow:\n    def __dir__(self):\n        import time\n        time.sleep(60)\ns = Slow()")
    kernel.client.execute("import time\nwhile True: time.sleep(0.05)")
    while kernel.client.get_iopub_msg(timeout=30)["content"].get("code", "")[:6] != "import":
        pass
    return kernel


def ask(kernel: Running, kind: str, **content: Any) -> tuple[dict[str, Any], float, list[str]]:
    """The reply's content, seconds, and the states that clients were told."""
    client = kernel.client
    message = client.session.msg(f"{kind}_request", content)
    began = time.monotonic()
    client.shell_channel.send(message)
    while True:
        reply = client.get_shell_msg(timeout=50)
        if reply["parent_header"].get("msg_id") == message["header"]["msg_id"]:
            break
    took_s = time.monotonic() - began
    states = []
    while not states or states[-1] != "idle":
        told = client.get_iopub_msg(timeout=30)
        if told["msg_type"] == "status" and told["parent_header"]["msg_id"] == message["header"]["msg_id"]:
            states.append(told["content"]["execution_state"])
    return reply["content"], took_s, states


def test_what_the_front_knows_is_answered_beside_a_running_cell(busy: Running) -> None:
    assert ask(busy, "kernel_info")[0]["implementation"] == "sandboxed-python"
    history = ask(busy, "history", hist_access_type="tail", n=2, raw=True, output=False)[0]["history"]
    assert [entry[2][:6] for entry in history] == ["x = 1\n", "import"]
    assert ask(busy, "comm_info")[0] == {"status": "ok", "comms": {}}
    for code, answer in (("for i in x:", "incomplete"), ("1 +* 2", "invalid"), ("x = 2", "complete")):
        reply, _, states = ask(busy, "is_complete", code=code)
        assert reply["status"] == answer and states == ["busy", "idle"]
    assert reply == {"status": "complete"}
    # The last word about the kernel is that it is busy: the cell still runs.
    assert busy.client.get_iopub_msg(timeout=30)["content"] == {"execution_state": "busy"}
    busy.manager.interrupt_kernel()


def test_each_request_is_busy_once_and_the_last_word_is_still_true(start: Start) -> None:
    client = start().client
    cell = client.execute("import time; time.sleep(2)")
    asked = client.history(hist_access_type="tail", n=1)
    told: list[tuple[str, str]] = []
    while told[-1:] != [(cell, "idle")]:
        message = client.get_iopub_msg(timeout=50)
        if message["msg_type"] == "status":
            told.append((message["parent_header"]["msg_id"], message["content"]["execution_state"]))
    assert [state for name, state in told if name == cell] == ["busy", "idle"]
    end = told.index((asked, "idle"))
    assert [state for name, state in told if name == asked] == ["busy", "idle"]
    assert told[end + 1][0] not in (cell, asked) and told[end + 1][1] == "busy"


def test_replies_behind_a_short_cell_come_in_the_order_of_their_requests(start: Start) -> None:
    kernel = start()
    kernel.good("import time")
    client, began = kernel.client, time.monotonic()
    sent = [client.execute("time.sleep(0.2); raise ValueError")]
    sent += [client.kernel_info(), client.comm_info(), client.inspect("print")]
    replies: dict[str, str] = {}
    while len(replies) < len(sent):
        reply = client.get_shell_msg(timeout=50)
        name = reply["parent_header"]["msg_id"]
        if name in sent:  # (some are of the fixture's)
            replies[name] = reply["content"]["status"]
        if name == sent[0]:
            took_s = time.monotonic() - began
    assert [replies[name] for name in sent] == ["error", "ok", "ok", "ok"]
    if took_s < WAIT_S:  # a machine that stalls makes it a long cell
        assert list(replies) == sent


def test_a_completion_beside_a_running_cell_is_given_up_after_a_moment(busy: Running) -> None:
    reply, took_s, states = ask(busy, "complete", code="x.", cursor_pos=2)
    assert reply == {"status": "ok", "matches": [], "metadata": {}, "cursor_start": 2, "cursor_end": 2}
    assert took_s > 0.9 and states == ["busy", "idle"]
    assert ask(busy, "inspect", code="x", cursor_pos=1, detail_level=0)[0]["found"] is False
    busy.manager.interrupt_kernel()
    reply, _, _ = ask(busy, "complete", code="x.nume", cursor_pos=6)
    while not reply["matches"]:  # (until the interrupt has landed)
        reply, _, _ = ask(busy, "complete", code="x.nume", cursor_pos=6)
    assert reply["matches"] == ["numerator"] or reply["matches"] == ["x.numerator"]


def test_a_completion_that_never_ends_costs_neither_state_nor_the_next_cell(start: Start) -> None:
    kernel = start()
    code = "x = 1\nclass Slow:\n    def __dir__(self):\n        import time\n        time.sleep(60)\ns = Slow()"
    kernel.good(code)
    reply, took_s, _ = ask(kernel, "complete", code="s.", cursor_pos=2)
    assert reply["matches"] == [] and 9 < took_s < 30
    began = time.monotonic()
    assert kernel.good("x").of("execute_result")[0]["data"]["text/plain"] == "1"
    assert time.monotonic() - began < 25
    with pytest.raises(queue.Empty):  # the late answer is dropped
        kernel.client.get_shell_msg(timeout=0.5)


def test_what_waits_for_another_completion_is_not_given_up(start: Start) -> None:
    kernel = start()
    code = "import time\nclass Slow:\n    def __dir__(self): time.sleep(2); return ['late']\ns = Slow()"
    kernel.good(code)
    first = kernel.client.complete("s.", 2)
    second = kernel.client.inspect("s", 1)
    answers = [kernel.client.get_shell_msg(timeout=50) for _ in range(2)]
    assert [m["parent_header"]["msg_id"] for m in answers] == [first, second]
    assert answers[1]["content"]["found"] is True


def test_requests_with_the_wrong_types_cost_no_state(start: Start) -> None:
    kernel = start()
    kernel.good("kept = 1")
    for position in ("x", -5, 1 << 70, [1]):
        assert ask(kernel, "complete", code="kep", cursor_pos=position)[0]["status"] == "ok"
        assert ask(kernel, "inspect", code="kept", cursor_pos=position)[0]["status"] == "ok"
    client = kernel.client
    for content in ({"comm_id": "a"}, {"comm_id": ["a"], "target_name": ["t"]}, {}):
        client.shell_channel.send(client.session.msg("comm_open", content))
    client.shell_channel.send(client.session.msg("execute_request", {"code": 5}))
    assert ask(kernel, "comm_info")[0]["comms"] == {}
    assert kernel.good("kept").of("execute_result")[0]["data"]["text/plain"] == "1"
    assert ask(kernel, "history", hist_access_type="tail", n=1)[0]["history"][0][2] == "kept"
