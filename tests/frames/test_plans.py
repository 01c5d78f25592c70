"""A payload that comes again is not decoded again. What comes of it must be the same, and nobody else's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sandbox_kernel import frames
from sandbox_kernel.frames import decode, plans

from .assembler import Buffer, call, labels, payload
from .same import assert_same
from .test_round_trip import CASES

TABLE = pd.DataFrame(np.arange(400.0).reshape(100, 4), columns=list("abcd"))


@pytest.fixture(autouse=True)
def no_plans() -> Iterator[None]:
    plans._plans.clear()
    yield
    plans._plans.clear()


def load(value: Any, budget: frames.Budget = frames.DEFAULT_BUDGET) -> Any:
    data, buffers = frames.dumps(value)
    return frames.loads(data, [bytearray(buffer) for buffer in buffers], budget=budget)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The payloads that were decoded from now on."""
    seen, whole = [], decode._decode

    def spy(data: bytes, *rest: Any) -> Any:
        seen.append(data)
        return whole(data, *rest)

    monkeypatch.setattr(decode, "_decode", spy)
    return seen


@pytest.mark.parametrize("name", CASES)
def test_what_comes_a_third_time_is_the_same(name: str) -> None:
    value = CASES[name]()
    for _ in range(4):
        assert_same(value, load(value))


def test_a_table_of_the_same_kind_is_not_decoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = counted(monkeypatch)
    for number in range(5):
        assert_same(TABLE + number, load(TABLE + number))
    assert len(decoded) == 2, "once to see it, once to follow"
    load((TABLE, "text"))
    load((TABLE,))
    assert len(decoded) == 4, "another payload"


def test_nothing_is_shared_between_what_one_plan_made() -> None:
    first = None
    for _ in range(4):
        back = load((TABLE, np.arange(200), ("constant", 1)))
        if first is not None:
            assert not np.shares_memory(first[0].to_numpy(), back[0].to_numpy())
            assert not np.shares_memory(first[1], back[1])
        back[0].iloc[0, 0], back[1][0] = -1.0, -1
        back[0].columns.name = "changed"
        with contextlib.suppress(ValueError):  # a later pandas does not let its labels be changed
            back[0].columns.array[0] = "z"
        first = back
    assert_same((TABLE, np.arange(200), ("constant", 1)), load((TABLE, np.arange(200), ("constant", 1))))


@pytest.mark.parametrize("value", [[TABLE], {"k": TABLE}, {1}, TABLE.set_flags(allows_duplicate_labels=False),
                                   bytearray(b"x"), None, "text", (1, "a")])  # fmt: skip
def test_what_can_be_changed_is_made_anew(value: Any) -> None:
    made = [load(value) for _ in range(4)]
    for back in made:
        assert_same(value, back)
    if isinstance(value, (list, dict, set, bytearray)):
        assert len(set(map(id, made))) == len(made)
        assert set(plans._plans.values()) == {plans._NONE}


def test_tables_with_attrs_do_not_share_them() -> None:
    table = TABLE.copy()
    table.attrs["a"] = [1]
    for _ in range(4):
        back = load(table)
        assert back.attrs == {"a": [1]}
        back.attrs["a"].append(2)


def test_the_constructors_look_at_each_buffer_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = payload(call("array", "|b1", (3,), "C", Buffer()))
    for _ in range(3):
        assert frames.loads(honest, [bytearray(b"\0\1\1")]).tolist() == [False, True, True]
    decoded = counted(monkeypatch)
    assert frames.loads(honest, [bytearray(b"\1\1\1")]).all() and not decoded
    for buffers in ([b"\0\1\2"], [b"\0\1"], [], [b"\0\1\1", b""], [b"\0\1\1"] * 2):
        with pytest.raises(frames.FrameRefused) as caught:
            frames.loads(honest, [bytearray(buffer) for buffer in buffers])
        plans._plans.clear()
        with pytest.raises(frames.FrameRefused) as again:
            frames.loads(honest, [bytearray(buffer) for buffer in buffers])
        assert str(again.value) == str(caught.value), "as the decoder says it"
        for _ in range(2):
            frames.loads(honest, [bytearray(b"\0\1\1")])


def test_a_smaller_budget_holds_for_a_known_payload() -> None:
    long = payload(call("frame", ("texts", ("python", "NA", ("s", 0, "\0", b"")), None), labels(50), (), None, True))
    for _ in range(3):
        frames.loads(long)
    for budget in (frames.Budget(unfolded_bytes=8), frames.Budget(opcodes=5), frames.Budget(wire_bytes=10)):
        with pytest.raises(frames.FrameRefused, match=r"too much|may have|may take"):
            frames.loads(long, budget=budget)
    data, buffers = frames.dumps(TABLE.iloc[:, 0].astype("U9").to_numpy())
    frames.loads(data, buffers)
    frames.loads(data, buffers)
    with pytest.raises(frames.FrameRefused):
        frames.loads(data, [bytes(buffer) for buffer in buffers], budget=frames.Budget(memory_bytes=8))


def test_there_is_an_end_to_what_is_remembered() -> None:
    for number in range(1000):
        for _ in range(3):
            frames.loads(payload((number, "x")))
    frames.loads(payload(("x" * 2000,)))
    assert len(plans._plans) <= 64 and max(map(len, plans._plans)) <= 1024
