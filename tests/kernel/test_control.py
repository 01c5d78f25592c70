"""Requests on the control channel: those that must be answered at once, and those that the shell answers."""

from __future__ import annotations

from typing import Any

from .conftest import Running, Start


def ask(kernel: Running, kind: str, **content: Any) -> str:
    """Sends a request on the control channel."""
    message = kernel.client.session.msg(kind, content)
    kernel.client.control_channel.send(message)
    return str(message["header"]["msg_id"])


def answer(kernel: Running) -> dict[str, Any]:
    message: dict[str, Any] = kernel.client.get_control_msg(timeout=50)
    return message


def test_cells_on_the_control_channel_run_in_order(start: Start) -> None:
    kernel = start()
    sent = [ask(kernel, "execute_request", code=f"print({n}); {n}", silent=False) for n in range(3)]
    replies = [answer(kernel) for _ in sent]
    assert [reply["parent_header"]["msg_id"] for reply in replies] == sent
    assert [reply["content"]["status"] for reply in replies] == ["ok"] * 3
    seen: dict[str, list[Any]] = {msg_id: [] for msg_id in sent}
    while seen[sent[-1]][-1:] != ["idle"]:
        message = kernel.client.get_iopub_msg(timeout=50)
        content = message["content"]
        told = content.get("execution_state") or content.get("text") or content.get("data", {}).get("text/plain")
        if told:
            seen.setdefault(message["parent_header"]["msg_id"], []).append(told)
    assert [seen[msg_id] for msg_id in sent] == [["busy", f"{n}\n", str(n), "idle"] for n in range(3)]


def test_the_control_channel_goes_on_while_a_cell_of_its_own_runs(start: Start) -> None:
    kernel = start()
    running = ask(kernel, "execute_request", code="print('on')\nwhile True: pass")
    info = ask(kernel, "kernel_info_request")
    assert answer(kernel)["parent_header"]["msg_id"] == info
    while kernel.client.get_iopub_msg(timeout=50)["msg_type"] != "stream":
        pass
    ask(kernel, "interrupt_request")
    kinds = {}
    for _ in range(2):
        reply = answer(kernel)
        kinds[reply["msg_type"]] = reply
    assert kinds["interrupt_reply"]["content"]["status"] == "ok"
    assert kinds["execute_reply"]["parent_header"]["msg_id"] == running
    assert kinds["execute_reply"]["content"]["ename"] == "KeyboardInterrupt"
    kernel.client.kernel_info(reply=True, timeout=50)  # what stands right behind a failed cell is aborted, as in stock
    assert kernel.good("print(6 * 7)").stdout == "42\n"


def test_other_requests_of_the_shell_are_answered_there(start: Start) -> None:
    kernel = start()
    kernel.good("name_of_mine = 1")
    for kind, content, expected in (
        ("complete_request", {"code": "name_of", "cursor_pos": 7}, "name_of_mine"),
        ("inspect_request", {"code": "name_of_mine", "cursor_pos": 12}, "int"),
        ("is_complete_request", {"code": "if 1:"}, "incomplete"),
        ("history_request", {"hist_access_type": "tail", "n": 3, "output": False, "raw": True}, "name_of_mine = 1"),
    ):
        sent = ask(kernel, kind, **content)
        reply = answer(kernel)
        assert reply["parent_header"]["msg_id"] == sent
        assert reply["msg_type"] == kind.replace("request", "reply")
        assert expected in str(reply["content"]), kind


def test_a_completion_on_the_control_channel_beside_a_cell_is_answered_there(start: Start) -> None:
    kernel = start()
    kernel.client.execute("print('on')\nwhile True: pass")
    while kernel.client.get_iopub_msg(timeout=50)["msg_type"] != "stream":
        pass
    sent = ask(kernel, "complete_request", code="impor", cursor_pos=5)
    reply = answer(kernel)
    assert reply["parent_header"]["msg_id"] == sent
    assert reply["content"]["status"] == "ok"
