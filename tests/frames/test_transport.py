"""Frames as one piece of memory and as files from anybody."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sandbox_kernel import frames
from sandbox_kernel.frames import transport

from .same import assert_same

FRAME = pd.DataFrame({"a": np.arange(5000), "s": [f"name {n}" for n in range(5000)], "b": np.arange(5000) * 0.5})


def packed() -> bytes:
    return b"".join(transport.pack(*frames.dumps(FRAME)))


def test_a_file_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "prices.frame"
    path.write_text("older")
    frames.dump_file(FRAME, path)
    assert_same(FRAME, frames.load_file(path))
    assert_same(FRAME, frames.load_file(str(path)))
    assert os.listdir(tmp_path) == ["prices.frame"]
    assert path.stat().st_mode & 0o111 == 0


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "prices.frame"
    path.mkdir()
    with pytest.raises(OSError, match=r"prices\.frame"):
        frames.dump_file(FRAME, path)
    with pytest.raises(frames.FrameRefused):
        frames.dump_file(len, tmp_path / "other.frame")
    assert os.listdir(tmp_path) == ["prices.frame"]


def test_buffers_lie_where_arrays_can_use_them() -> None:
    memory = bytearray(packed())
    payload, buffers = transport.unpack(memory)
    start = np.frombuffer(memory, np.uint8).ctypes.data
    assert buffers and all(
        (np.frombuffer(buffer, np.uint8).ctypes.data - start) % transport.ALIGNMENT == 0 for buffer in buffers
    )
    assert_same(FRAME, frames.loads(payload, buffers))


def test_memory_that_is_off_by_one_is_copied() -> None:
    payload, buffers = frames.dumps(np.arange(1000.0))
    memory = bytearray(8001)
    memory[1:] = buffers[0]
    back = frames.loads(payload, [memoryview(memory)[1:]])
    assert back.flags.aligned and back.flags.writeable
    assert_same(np.arange(1000.0), back)


@pytest.mark.parametrize("change", [
    lambda raw: b"", lambda raw: raw[:7], lambda raw: raw[:20], lambda raw: raw[:-1], lambda raw: raw + b"\0",
    lambda raw: b"x" + raw[1:], lambda raw: raw[:8] + struct.pack("<Q", 2**63) + raw[16:],
    lambda raw: raw[:8] + struct.pack("<Q", 2**20) + raw[16:],
    lambda raw: raw[:16] + struct.pack("<Q", 2**64 - 1) + raw[24:],
    lambda raw: raw[:16] + struct.pack("<Q", 2**40) + raw[24:],
    lambda raw: raw[:24] + struct.pack("<Q", 2**64 - 64) + raw[32:],
    lambda raw: raw[:24] + struct.pack("<Q", 0) + raw[32:], lambda raw: b"\x80\x05N.",
])  # fmt: skip
def test_a_layout_that_lies(change: object, tmp_path: Path) -> None:
    raw = change(packed())  # type: ignore[operator]
    path = tmp_path / "x.frame"
    path.write_bytes(raw)
    with pytest.raises(frames.FrameRefused, match="not a frame"):
        frames.load_file(path)


def test_a_file_larger_than_the_budget_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x.frame"
    with open(path, "wb") as file:
        file.truncate(2**40)
    with pytest.raises(frames.FrameRefused, match="larger than 4 GiB"):
        frames.load_file(path)
    with pytest.raises(frames.FrameRefused, match="larger than 4 GiB"):
        frames.load_file(path, budget=frames.Budget(opcodes=5))


def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(frames.FrameRefused, match="no regular file"):
            frames.load_file(path)
