"""What comes by the channel in one turn: small writes are handled as one, in order and with nothing lost."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

import pytest

from sandbox_kernel.channel import schema
from sandbox_kernel.channel.framing import encode
from sandbox_kernel.errors import ProtocolError
from sandbox_kernel.session.link import _MERGED_BYTES, WorkerLink


def write(text: str, parent: str = "a", name: str = "stdout") -> dict[str, Any]:
    return {"type": "stream", "parent": parent, "name": name, "text": text}


CLEAR = {"type": "publish", "parent": "a", "msg_type": "clear_output", "content": {"wait": False}, "metadata": {}}


def received(*packets: bytes) -> list[Any]:
    """What a link hands on of these packets, sent before it reads: (parent, name, text, size), a kind, or an error."""

    async def run() -> list[Any]:
        found: list[Any] = []

        def take(message: schema.Message, _buffers: list[memoryview], size: int) -> None:
            if isinstance(message, schema.Stream):
                found.append((message.parent, message.name, message.text, size))
            else:
                found.append(type(message).__name__)

        link = WorkerLink(
            asyncio.get_running_loop(), 1, on_message=take, on_raw=lambda *_: None, on_broken=found.append,
            pressed=lambda: False,
        )  # fmt: skip
        with socket.socket(fileno=os.dup(link.far_ends()[0])) as far:
            for packet in packets:
                far.send(packet)
            link.start()
            for _ in range(20):
                await asyncio.sleep(0)
        link.close()
        return found

    return asyncio.run(run())


def sent(*messages: dict[str, Any]) -> list[bytes]:
    return [packet for message in messages for packet in encode(message)]


def test_writes_of_one_stream_become_one() -> None:
    packets = sent(*(write(f"{i}\n") for i in range(40)))
    ((_, _, text, size),) = received(*packets)
    assert text == "".join(f"{i}\n" for i in range(40))
    assert size == sum(len(packet) - 7 for packet in packets), "each is charged"


def test_what_is_between_keeps_its_place() -> None:
    texts = write("3"), write("4", name="stderr"), write("5", "b"), write("6", "b")
    found = received(*sent(write("1"), write("2"), CLEAR, *texts))
    assert [f if isinstance(f, str) else f[:3] for f in found] == [
        ("a", "stdout", "12"), "Publish", ("a", "stdout", "3"), ("a", "stderr", "4"), ("b", "stdout", "56"),
    ]  # fmt: skip


def test_much_is_not_held() -> None:
    found = received(*sent(*(write("x" * 20_000) for _ in range(8))))
    assert sum(len(text) for _, _, text, _ in found) == 160_000
    assert all(size < _MERGED_BYTES + 20_100 for *_, size in found)


@pytest.mark.parametrize("nonsense", [b"\x03\x00\x00\x00\x02\x00\x00[]", b"junk of a cell"])
def test_what_came_before_nonsense_is_shown(nonsense: bytes) -> None:
    *before, error = received(*sent(write("1"), write("2")), nonsense)
    assert [found[2] for found in before] == ["12"]
    assert isinstance(error, ProtocolError)
