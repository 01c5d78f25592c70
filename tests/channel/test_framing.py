"""Frames survive the trip unchanged, and whatever is not a frame is refused without harm."""

from __future__ import annotations

import json
import math
import struct
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_kernel.channel import framing
from sandbox_kernel.channel.framing import FIRST, LAST, MIB, PACKET_BYTES, Assembler, Bounds, Frame
from sandbox_kernel.errors import ProtocolError

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
sizes = st.sampled_from([0, 1, 7, 1000, PACKET_BYTES - 1, PACKET_BYTES, 3 * PACKET_BYTES + 5])
buffer_lists = st.lists(
    sizes.map(lambda size: bytes(range(256)) * (size // 256) + b"x" * (size % 256)), max_size=5
)


def receive(packets: list[bytes], assembler: Assembler | None = None) -> list[Frame]:
    assembler = assembler or Assembler()
    return [frame for frame in map(assembler.feed, packets) if frame is not None]


def packet(flags: int, payload: bytes) -> bytes:
    return bytes((flags,)) + payload


def first(text_bytes: int, sizes: tuple[int, ...], body: bytes, flags: int = FIRST | LAST) -> bytes:
    head = struct.pack("!IH", text_bytes, len(sizes)) + struct.pack(f"!{len(sizes)}I", *sizes)
    return packet(flags, head + body)


@given(obj=st.dictionaries(st.text(), values), buffers=buffer_lists)
@settings(deadline=None)
def test_round_trip(obj: dict[str, Any], buffers: list[bytes]) -> None:
    packets = list(framing.encode(obj, buffers))
    assert all(len(piece) == PACKET_BYTES for piece in packets[:-1])
    (frame,) = receive(packets)
    assert json.loads(frame.json) == json.loads(json.dumps(obj).encode("utf-8", "surrogatepass"))
    assert [bytes(view) for view in frame.buffers] == buffers


@pytest.mark.parametrize("extra", range(-8, 9))
def test_text_at_the_edge_of_a_packet(extra: int) -> None:
    text = json.dumps("x" * (PACKET_BYTES - 9 + extra)).encode()
    for buffers in ([], [b""], [b"y"]):
        (frame,) = receive(list(framing.split(text, buffers)))
        assert frame.json == text and [bytes(view) for view in frame.buffers] == buffers


def test_views_are_read_only() -> None:
    (frame,) = receive(list(framing.encode({}, [bytearray(100_000)])))
    with pytest.raises(TypeError):
        frame.buffers[0][0] = 1


@given(st.lists(st.tuples(buffer_lists, st.booleans()), min_size=1, max_size=6))
@settings(deadline=None)
def test_a_frame_that_was_cut_off_is_dropped(frames: list[tuple[list[bytes], bool]]) -> None:
    assembler, got, sent = Assembler(), [], []
    for number, (buffers, interrupted) in enumerate(frames):
        packets = list(framing.encode({"n": number}, buffers))
        if interrupted:
            packets = packets[:-1]
        else:
            sent.append(number)
        got += [json.loads(frame.json)["n"] for frame in receive(packets, assembler)]
    assert got == sent


@given(st.lists(st.binary(max_size=40) | st.binary(max_size=40).map(lambda b: b"\3" + b), max_size=8))
def test_junk_is_refused_or_a_frame(packets: list[bytes]) -> None:
    assembler = Assembler()
    for piece in packets:
        try:
            frame = assembler.feed(piece)
        except ProtocolError:
            continue
        assert frame is None or isinstance(frame, Frame)


@pytest.mark.parametrize(
    "packets",
    [
        [b""],
        [b"\3"],
        [b"\3" + bytes(PACKET_BYTES)],
        [packet(4, b"{}")],
        [packet(255, b"{}")],
        [packet(LAST, b"{}")],
        [packet(0, bytes(PACKET_BYTES - 1))],
        [packet(FIRST | LAST, b"\0\0")],
        [first(2, (), b"{} ")],
        [first(2, (), b"{")],
        [first(0, (), b"")],
        [first(2, (5,), b"{}1234")],
        [first(2, (5,), b"{}123456")],
        [packet(3, struct.pack("!IH", 2, 200) + b"{}")],
        [first(2, (100,), b"{}", flags=FIRST)],
        [first(100_000, (), b" " * (PACKET_BYTES - 7), flags=FIRST), packet(0, b"short, and not the last")],
        [first(70_000, (), b" " * (PACKET_BYTES - 7), flags=FIRST), packet(0, b" " * (PACKET_BYTES - 1))],
        [first(200_000, (), b" " * (PACKET_BYTES - 7), flags=FIRST), packet(LAST, b" ")],
    ],
)
def test_malformed_packets_are_refused(packets: list[bytes]) -> None:
    with pytest.raises(ProtocolError):
        receive(packets)


def test_sizes_are_checked_before_anything_is_kept() -> None:
    bounds = Bounds(json_bytes=1000, buffers=2, frame_bytes=5000)
    full = bytes(PACKET_BYTES - 1)
    for text_bytes, buffers in (
        (1001, ()),
        (100, (1, 1, 1)),
        (100, (4000, 901)),
        (2**32 - 1, ()),
        (2, (2**32 - 1,)),
    ):
        head = struct.pack("!IH", text_bytes, len(buffers)) + struct.pack(f"!{len(buffers)}I", *buffers)
        with pytest.raises(ProtocolError):
            Assembler(bounds).feed(packet(FIRST, (head + full)[: PACKET_BYTES - 1]))


def test_the_sender_sees_the_same_bounds() -> None:
    bounds = Bounds(json_bytes=1000, buffers=2, frame_bytes=5000, depth=3)
    for obj, buffers in (({"a": "x" * 1000}, []), ({}, [b""] * 3), ({}, [bytes(5000)]), ({"a": [[[1]]]}, [])):
        with pytest.raises(framing.FrameTooLarge):
            framing.encode(obj, buffers, bounds)
    framing.encode({"a": [[1]]}, [bytes(4000)], bounds)


def depth_of(obj: Any) -> int:
    if isinstance(obj, dict):
        return 1 + max(map(depth_of, obj.values()), default=0)
    if isinstance(obj, list):
        return 1 + max(map(depth_of, obj), default=0)
    return 0


@given(values)
def test_depth_is_that_of_the_value(obj: Any) -> None:
    text, depth = framing.dumps(obj), depth_of(obj)
    assert not framing.deeper_than(text, depth)
    assert depth == 0 or framing.deeper_than(text, depth - 1)


def test_depth_is_bounded_and_cheap() -> None:
    deep = b'{"a":' * 65 + b"1" + b"}" * 65
    with pytest.raises(ProtocolError):
        receive(list(framing.split(deep)))
    begin = time.process_time()
    assert not framing.deeper_than(b'"' + b'\\"[{' * (4 * MIB), 64)  # a string that never ends
    assert framing.deeper_than(b"[" * (16 * MIB), 64)
    assert not framing.deeper_than((b"[" * 64 + b"]" * 64) * (MIB // 8), 64)
    assert time.process_time() - begin < 5


def test_the_number_of_values_is_bounded() -> None:
    bounds = Bounds(values=100)
    for obj in ([0] * 90, {str(i): i for i in range(45)}, ["[,:{" * 1000] * 90):
        text = framing.dumps(obj)
        assert len(receive(list(framing.split(text)), Assembler(bounds))) == 1
        framing.check(text, [], bounds)
    for obj in ([0] * 110, [[]] * 60, {str(i): i for i in range(60)}):
        with pytest.raises(ProtocolError, match="values"):
            Assembler(bounds).feed(next(framing.split(framing.dumps(obj))))
        with pytest.raises(framing.FrameTooLarge, match="values"):
            framing.encode(obj, (), bounds)


def test_lone_surrogates_become_visible_text() -> None:
    (frame,) = receive(list(framing.encode({"a\udc80": "x\ud800y\\"})))
    assert json.loads(frame.json.decode("utf-8")) == {"a\\udc80": "x\\ud800y\\"}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_json_has_no_nan(bad: float) -> None:
    with pytest.raises(ValueError, match=r"[Oo]ut of range"):
        framing.encode({"a": bad})


def test_buffers_are_plain_contiguous_bytes() -> None:
    import array

    numbers = array.array("d", range(4))
    (frame,) = receive(list(framing.encode({}, [memoryview(numbers)])))
    assert bytes(frame.buffers[0]) == numbers.tobytes()
    with pytest.raises(ValueError, match="contiguous"):
        framing.encode({}, [memoryview(b"abcdef")[::2]])
