"""``%sandbox`` in a document: a card that the front draws, and that later cells bring up to date."""

from __future__ import annotations

import re
import time
from collections import Counter
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox_kernel.kernel.card import Card
from sandbox_kernel.policy import Policy
from sandbox_kernel.session.denials import Denial

from .conftest import Running, Start

HOSTILE = "<img src=x onerror=alert(1)></pre></details><script>alert(2)</script>\"'&"
TAGS = {"div", "table", "tr", "th", "td", "details", "summary", "pre"}


class Reader(HTMLParser):
    """Tags, attributes and text of a card."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self.open.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def a_card(text: str = "", removed: dict[str, int] | None = None, **tables: Any) -> Card:
    proofs = [{"ok": True, "layer": f"layer{text}", "tried": f"tried{text}", "saw": f"saw{text}"}]
    box = SimpleNamespace(level=f"full{text}", proofs=proofs, details={"notes": [f"note{text}"]})
    dog = SimpleNamespace(memory=300 << 20, usage=SimpleNamespace(processes=3, cpu_s=1.25))
    resolved = Policy.resolve({}, overrides=[tables])
    session: Any = SimpleNamespace(supervisor=box, watchdog=dog)
    nobody: Any = None
    return Card(session, resolved, Counter(removed or {}), nobody, nobody, nobody)


@pytest.mark.security
def test_whatever_it_is_told_is_text() -> None:
    card = a_card(HOSTILE, {HOSTILE: 2}, environment={"set": {"A": HOSTILE}})
    card.note(0.5, [Denial(HOSTILE, HOSTILE, 3, "", "")])
    read = Reader(card.html())
    assert set(read.tags) == TAGS and read.attributes == {"style"} and read.open == []
    assert read.text.count("<script>") == 10, "the texts are shown as they are"


def test_it_is_plain_about_the_figures() -> None:
    card = a_card("", {"script": 4}, limits={"memory": "600MiB", "cell_time": "2min"})
    for number in range(30):
        card.note(1.5, [Denial(f"call{number}", "", 1, "", ""), Denial("socket", "AF_INET", 2, "", "")])
    text = Reader(card.html()).text
    for part in ("isolation level full", "1 of 1 attempts", "300 MiB of 600 MiB", "script x4", "may take 2 min",
                 "the last cell took 1.50 s", "socket AF_INET x60", "and 23 more",
                 "limits.memory = 600 MiB  (argument)"):
        assert part in text, part
    assert "width:50%" in card.html()
    for number in range(1000):
        card.note(0, [Denial(f"invented{number}", "", 1, "", "")])
    assert len(card.html()) < 20_000


def test_no_limit_is_not_taken_for_no_time() -> None:
    text = Reader(a_card().html()).text
    assert "a cell has no time limit" in text and "may take" not in text


def test_an_open_gate_is_said_loudly() -> None:
    assert "Outputs are not checked" in Reader(a_card(outputs={"gate": "off"}).html()).text
    assert "not checked" not in Reader(a_card().html()).text


def run_in_document(kernel: Running, code: str) -> list[dict[str, Any]]:
    """What a client that names its cells is sent for one of them."""
    client = kernel.client
    content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
    message = client.session.msg("execute_request", {**content, "stop_on_error": True}, metadata={"cellId": "a"})
    client.shell_channel.send(message)
    heard: list[dict[str, Any]] = []
    end = time.monotonic() + 50
    while time.monotonic() < end:
        answer = client.get_iopub_msg(timeout=50)
        if answer["parent_header"].get("msg_id") == message["header"]["msg_id"]:
            heard.append(answer)
            if answer["msg_type"] == "status" and answer["content"]["execution_state"] == "idle":
                client.get_shell_msg(timeout=50)
                return heard
    raise AssertionError("the cell did not end")


def test_in_a_document_it_is_a_card_that_later_cells_renew(start: Start) -> None:
    kernel = start("auto")
    kernel.good("x = bytearray(1)")
    (card,) = (m["content"] for m in run_in_document(kernel, "%sandbox") if m["msg_type"] == "display_data")
    assert "isolation level" in card["data"]["text/plain"] and "Policy:" in card["data"]["text/plain"]
    assert set(Reader(card["data"]["text/html"]).tags) == TAGS
    code = "import socket\ntry: socket.create_connection(('192.0.2.1', 9), 1)\nexcept OSError: pass"
    heard = run_in_document(kernel, code)
    (renewed,) = (m["content"] for m in heard if m["msg_type"] == "update_display_data")
    assert renewed["transient"] == card["transient"] != {}
    refused = re.search(r"Refused</th><td[^>]*>([^<]*)", renewed["data"]["text/html"])
    assert refused is not None and ("socket" in refused[1] or "nothing" in refused[1])
    # A client that names no cell, a console for example, reads lines, and renews nothing.
    plain = kernel.good("%sandbox")
    assert "isolation level" in plain.stdout and not plain.of("display_data") + plain.of("update_display_data")
    assert not kernel.good("1").of("update_display_data")
    assert [m for m in run_in_document(kernel, "%sandbox help") if m["msg_type"] == "stream"]
