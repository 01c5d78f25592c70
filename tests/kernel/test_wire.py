"""The front's messages against those that jupyter_client makes."""

from __future__ import annotations

import json
import warnings
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from jupyter_client.session import Session, json_packer

from sandbox_kernel.kernel.wire import Wire, pack, unpack

VALUES: list[Any] = [
    {}, {"a": [1, -2.5, True, None, "é\u2028\x00"]}, {"t": (1, 2)}, {"s": {1}}, {1: "one", None: 2}, {"b": b"\x00\xff"},
    {"big": 2**70}, {"d": datetime(2026, 1, 2, 3, 4, 5, 6, UTC)}, {"d": datetime(2026, 1, 2, tzinfo=UTC)},
    {"d": datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=-3, minutes=-30)))}, {"escaped": "\udcff"},
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES)
def test_a_value_is_written_as_the_stock_session_writes_it(value: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # stock's, about what is no JSON by itself
        assert json.loads(pack(value).decode("utf-8", "surrogateescape")) == json.loads(
            json_packer(value).decode("utf-8", "surrogateescape")
        )


def test_what_no_json_can_say_is_an_error_as_in_stock() -> None:
    with pytest.raises((TypeError, ValueError)):
        pack({"o": object()})


def test_half_a_character_shows_its_number_as_in_what_cells_print() -> None:
    assert json.loads(pack({"code": "'\ud800'", "at": datetime(2026, 1, 2, tzinfo=UTC)}))["code"] == "'\\ud800'"


TEXTS = [
    b'{"a": [1, 1.5, "\\u00e9", null]}', b"[NaN, -Infinity]", b'"\\ud800"', b'"\xff"', b'{"a": 1, "a": 2}', b"1e400"
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_json_is_read_as_the_stock_session_reads_it(text: bytes) -> None:
    assert repr(unpack(text)) == repr(json.loads(text.decode("utf-8", "replace")))


def test_no_json_is_an_error() -> None:
    with pytest.raises(ValueError):
        unpack(b"{")


class _Stream:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[list[bytes]] = []

    def send_multipart(self, frames: list[bytes], copy: bool = True) -> None:
        self.sent.append(frames)


@pytest.mark.parametrize("ident", [None, b"topic", [b"one", b"two"]])
def test_a_message_says_what_the_stock_sessions_message_says(ident: Any) -> None:
    found = []
    reader = Session(key=b"k")
    parent = reader.msg("execute_request", {"code": "1"})
    for kind in (Wire, Session):
        stream: Any = _Stream()
        session = kind(key=b"k", session="s", username="u")
        returned = session.send(stream, "status", {"execution_state": "busy"}, parent, ident, metadata={"m": 1})
        idents, frames = reader.feed_identities(stream.sent[0])
        message = reader.deserialize(frames)  # raises where the signature is wrong
        assert returned is not None
        assert returned["header"]["msg_id"] == message["header"]["msg_id"]
        message["header"].pop("date")
        found.append((idents, message["header"], message["parent_header"], message["content"], message["metadata"]))
        assert set(returned) == {
            "header", "msg_id", "msg_type", "parent_header", "content", "metadata", "tracker"
        }  # fmt: skip
    assert found[0] == found[1]


def test_configured_packers_are_used() -> None:
    wire = Wire(key=b"k", packer="pickle")
    assert wire.pack is not pack
    assert wire.unpack(wire.pack({"a": 1})) == {"a": 1}
