"""What comes by the channel in one turn: small writes are handled as one, in order and with nothing lost."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import time
from collections.abc import Sequence
from typing import Any

import pytest

from sandbox_kernel.channel import schema
from sandbox_kernel.channel.framing import PACKET_BYTES, encode, packet_of, stream_head
from sandbox_kernel.errors import ProtocolError
from sandbox_kernel.session import link as link_module
from sandbox_kernel.session.link import _MERGED_BYTES, WorkerLink
from sandbox_kernel.session.text_packets import TextPackets


def write(text: str, parent: str = "a", name: str = "stdout") -> dict[str, Any]:
    return {"type": "stream", "parent": parent, "name": name, "text": text}


CLEAR = {"type": "publish", "parent": "a", "msg_type": "clear_output", "content": {"wait": False}, "metadata": {}}


def received(*packets: bytes, later: Sequence[bytes] = ()) -> list[Any]:
    """What a link hands on of these packets, sent before it reads: (parent, name, text, size), a kind, or an error.

    Args:
        later: packets that are sent once it has read the others; waits for what they bring.
    """

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
            known = len(found)
            for packet in later:
                far.send(packet)
            while later and len(found) == known:
                await asyncio.sleep(0.001)
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


HEAD = stream_head("a", "stdout")
LIKE_TEXT = [packet_of(HEAD + text + b"}") for text in (
    b'"x"', b'"\xc3\xa4\\n"', b'""', b' "x"', b'"x" ', b'"x","text":"y"', b'"x","name":"stderr"', b'"x","other":1',
    b"1", b"null", b'["x"]', b'"x', b'x"', b"", b'"x"}', b'"x"}{"', b'"\\ud800"', b'"\xff"', b'"a\nb"',
    b'"' + b"x" * PACKET_BYTES + b'"',
)]  # fmt: skip
GOOD = LIKE_TEXT[0]
LIKE_TEXT += [
    GOOD[:-1], GOOD + b" ", b"\2" + GOOD[1:], b"\1" + GOOD[1:], b"\7" + GOOD[1:], GOOD[:6] + b"\1" + GOOD[7:], GOOD[:7],
    b"\3", *encode(write("x", "b")), *encode(CLEAR),
    next(encode(write("x" * PACKET_BYTES))),
]  # fmt: skip


@pytest.mark.parametrize("packet", LIKE_TEXT, ids=range(len(LIKE_TEXT)))
def test_text_is_read_quickly_as_it_would_be_otherwise(packet: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    *begun, _ = encode(write("y" * PACKET_BYTES))
    packets = [*sent(write("1"), write("2")), packet, *sent(write("3"), write("4")), *begun, *sent(write("5"))]
    found = received(*packets)
    monkeypatch.setattr(TextPackets, "read", lambda *_: None)
    assert list(map(str, found)) == list(map(str, received(*packets)))


def test_the_quick_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox_kernel.session.text_packets._text_of", lambda _text: "quick ")
    first, _, last = received(*sent(write("1"), write("2"), CLEAR, write("3")))
    assert (first[2], last[2]) == ("1quick ", "quick ")


def test_what_comes_while_text_gathers_arrives() -> None:
    many = sent(*(write(f"{i}\n") for i in range(40)))
    found = received(*many, later=sent(write("x")))
    assert "".join(text for _, _, text, _ in found).endswith("39\nx")


def slow(messages: int, seconds: float) -> tuple[WorkerLink, socket.socket, list[str]]:
    """A link whose messages take that much processor time each, and what it and other callbacks of the loop did."""
    did: list[str] = []

    def take(*_: Any) -> None:
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass
        did.append("message")

    link = WorkerLink(
        asyncio.get_running_loop(), 1, on_message=take, on_raw=lambda *_: None, on_broken=lambda _: None,
        pressed=lambda: False,
    )  # fmt: skip
    far = socket.socket(fileno=os.dup(link.far_ends()[0]))
    for _ in range(messages):
        far.send(b"".join(encode(CLEAR)))
    return link, far, did


def test_a_turn_ends_when_messages_take_long() -> None:
    async def run() -> list[str]:
        link, far, did = slow(6, 0.025)
        link.start()
        while did.count("message") < 6:
            await asyncio.sleep(0)
            did.append("other")
        link.close()
        far.close()
        return did

    did = asyncio.run(run())
    assert "message message" not in " ".join(did)


def test_what_a_dead_worker_left_is_not_looked_at_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "_LAST_S", 0.1)

    async def run() -> list[str]:
        link, far, did = slow(20, 0.03)
        link.drain()
        link.close()
        far.close()
        return did

    assert 3 <= len(asyncio.run(run())) <= 6


def test_a_request_goes_without_its_descriptors_when_the_kernel_takes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.ETOOMANYREFS, "Too many references: cannot splice")

    monkeypatch.setattr(socket, "send_fds", refused)

    async def run() -> list[bytes]:
        link, far, _ = slow(0, 0.0)
        given, owned = os.pipe()
        link.send({"op": "room"}, fds=[owned], owned=True)
        link.send({"op": "next"})
        found = [far.recv(PACKET_BYTES) for _ in range(2)]
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(owned)
        os.close(given)
        link.close()
        far.close()
        return found

    room, after = asyncio.run(run())
    assert b"room" in room and b"next" in after
