"""Comms both ways, with their buffers, their parents, and while a cell awaits."""

from __future__ import annotations

import os
import time
from typing import Any

from .front import Cell, Front

TARGET = (
    "got = []\n"
    "def target(comm, message):\n"
    "    print('opened', message['content']['data'])\n"
    "    @comm.on_msg\n    def _(m):\n"
    "        got.append(m); print('got', m['content']['data']); "
    "comm.send({'echo': m['content']['data']}, buffers=m['buffers'])\n"
    "get_ipython().kernel.comm_manager.register_target('t', target)"
)


def comm(k: Front, msg_type: str, data: Any, buffers: tuple[bytes, ...] = (), **more: Any) -> str:
    content = {"comm_id": "c1", "data": data, **more}
    return k.ask("comm", msg_type, buffers, metadata={"m": 1}, content=content)


def test_open_message_close(k: Front) -> None:
    k.good(TARGET)
    cell = k.finish(comm(k, "comm_open", {"a": 1}, target_name="t"))
    assert cell.stdout == "opened {'a': 1}\n"
    cell = k.finish(comm(k, "comm_msg", {"b": 2}))
    assert cell.stdout == "got {'b': 2}\n" and cell.reply == {}
    (sent,) = cell.published("comm_msg")
    assert sent == {"comm_id": "c1", "data": {"echo": {"b": 2}}}
    assert {m.parent for m in cell.messages[:-1]} == {cell.id}
    assert k.good("got[0]['metadata'], got[0]['header']['msg_type']").result == "({'m': 1}, 'comm_msg')"
    k.finish(comm(k, "comm_close", {}))
    assert k.good("get_ipython().kernel.comm_manager.comms").result == "{}"


def test_unknown_target_is_closed(k: Front) -> None:
    cell = k.finish(comm(k, "comm_open", {}, target_name="nobody"))
    assert len(cell.published("comm_close")) == 1


def test_opened_by_the_cell(k: Front) -> None:
    cell = k.good(
        "from comm import create_comm\nc = create_comm(target_name='x', data={'d': 1}, metadata={'v': 2})"
    )
    (message,) = [m for m in cell.messages if m.fields.get("msg_type") == "comm_open"]
    assert message.fields["content"]["target_name"] == "x" and message.fields["metadata"] == {"v": 2}
    assert k.good("c.close()").published("comm_close")
    assert k.good("c = create_comm(target_name='x'); del c\nimport gc; gc.collect();").published("comm_open")


def test_large_buffers(k: Front) -> None:
    k.good(TARGET)
    k.finish(comm(k, "comm_open", {}, target_name="t"))
    buffers = (os.urandom(8 << 20), b"", os.urandom(3))
    cell = k.finish(comm(k, "comm_msg", {}, buffers))
    assert [m.buffers for m in cell.messages if m.buffers] == [list(buffers)]


def test_handled_while_a_cell_awaits(k: Front) -> None:
    k.good(TARGET)
    k.finish(comm(k, "comm_open", {}, target_name="t"))
    name = k.begin(
        "import asyncio\nwhile len(got) < 2: await asyncio.sleep(0.01)\nprint('went on')\nlen(got)"
    )
    waiting = k.begin("'next'")
    time.sleep(0.05)
    first, second = comm(k, "comm_msg", 1), comm(k, "comm_msg", 2)
    messages = k.finish(name).messages
    cell = Cell(name, messages)
    assert cell.result == "2" and cell.stdout == "went on\n"
    assert Cell(first, messages).stdout == "got 1\n" and Cell(second, messages).stdout == "got 2\n"
    assert {m.fields["id"] for m in messages if m.kind == "reply"} == {first, second, name}
    assert k.finish(waiting).result == "'next'"


def test_thread_output_goes_to_the_cell_after_an_aside(k: Front) -> None:
    k.good(TARGET)
    k.finish(comm(k, "comm_open", {}, target_name="t"))
    name = k.begin(
        "import asyncio\nwhile not got: await asyncio.sleep(0.01)\nawait asyncio.sleep(0.05)\n"
        "await asyncio.to_thread(print, 'task'); import threading\n"
        "t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()"
    )
    time.sleep(0.05)
    comm(k, "comm_msg", 1)
    assert k.finish(name).stdout == "task\nthread\n"


def test_a_failing_handler_is_reported(k: Front) -> None:
    k.good("def target(comm, m): 1/0\nget_ipython().kernel.comm_manager.register_target('bad', target)")
    cell = k.finish(comm(k, "comm_open", {}, target_name="bad"))
    assert "ZeroDivisionError" in cell.stderr and cell.published("comm_close")


def test_widgets(k: Front) -> None:
    import pytest

    pytest.importorskip("ipywidgets")
    cell = k.good(
        "import ipywidgets as w\nout = w.Output()\ns = w.IntSlider(value=3)\n"
        "display(s)\nwith out: print('inside')"
    )
    assert len(cell.published("comm_open")) >= 4
    assert "application/vnd.jupyter.widget-view+json" in cell.published("display_data")[0]["data"]
    update = {"method": "update", "state": {"value": 7}, "buffer_paths": []}
    model = k.good("s.model_id").result.strip("'")
    k.finish(k.ask("comm", "comm_msg", content={"comm_id": model, "data": update}, metadata={}))
    assert k.good("s.value").result == "7"
