"""A sender that lies. By kind: names, opcodes, sizes, nesting, hashing, raw memory, structure, text.

Every payload must be refused with `FrameRefused`, fast, without much memory and without a side effect. The first
test shows that the pieces are well-formed: each lie below is one change away from a payload that is read.
"""

from __future__ import annotations

import pickle
import re
import struct
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sandbox_kernel import frames
from sandbox_kernel.frames import decode

from .assembler import (
    Buffer,
    Raw,
    array,
    call,
    int64,
    labels,
    name,
    numbers,
    payload,
    series,
    strings,
    text,
    value,
    words,
)
from .same import assert_crosses, assert_same

I2 = array("<i4", struct.pack("<2i", 1, 2), 2)
TWO_BYTES = array("|b1", b"\0\1", 2)
EMPTY_INDEX = words()
PARTS = ("texts", ("pyarrow", "nan", strings("a", "b")), None), ("range", (0, 1, 1), None)

HONEST: dict[str, Any] = {
    "numbers": int64(1, 2, 3),
    "series": series(int64(1, 2), 2),
    "frame": call("frame", words("a", "b"), labels(2), (int64(1, 2), int64(3, 4)), None, True),
    "block": call("frame", words("a", "b"), labels(1), array("<i8", bytes(16), 1, 2), {"k": 1}, False),
    "parts": call("frame", *PARTS, ("<i8", (1, 2), "C", bytes(16)), None, True),
    "series of parts": call("series", int64(1), PARTS[1], "x", None, True),
    "categorical": call("extension", "categorical", array("|i1", b"\0\1\xff", 3), words("a", "b"), False),
    "zoned": call("extension", "zoned", array("<M8[ns]", bytes(8), 1), call("zone", "zoneinfo", "Europe/Paris")),
    "period": call("extension", "period", int64(1), "M"),
    "interval": call("extension", "interval", int64(1), int64(2), "left"),
    "sparse": call("extension", "sparse", "integer", 5, int64(1, 2), I2, 0),
    "masked": call("extension", "masked", int64(1, 2), TWO_BYTES),
    "string": call("extension", "string", "python", "NA", strings("a", "b")),
    "labels": call("index", "texts", ("python", "NA", strings("a", "b")), "x"),
    "few labels": call("index", "texts", ("pyarrow", "nan", strings("a", "b")), ("x", 1)),
    "multi": call("index", "multi", ((words("a"), numbers(1, 2)), (int64(0, 0), int64(0, 1)), None, ("x", None)), None),
    "codes": call("objects", "array", (3,), ("c", 3, "B", b"\0\1\0", strings("a", "b"))),
    "mixed": call("objects", "array", (3,), ("m", 3, b"\0\1\0", (strings("a", "b"), ("N", 1)))),
    "records": call("objects", "records", 2, ("a", "b"), (("N", 2), strings("x", "y"))),
    "dict": call("objects", "dict", ("q", 2, struct.pack("<2q", 1, 2)), strings("x", "y")),
    "decimal": call("value", "decimal", "1.5"),
    "offset": call("value", "offset", "2B"),
    "frequency": call("index", "array", (array("<M8[ns]", struct.pack("<2q", 0, 86400 * 10**9), 2), "D"), None),
}  # fmt: skip


@pytest.mark.parametrize("kind", HONEST)
def test_the_honest_pieces_are_read(kind: str) -> None:
    frames.loads(payload(HONEST[kind]))


def resident(*, reset: bool = False) -> int:
    """The largest memory of this process so far, in KiB."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    found = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1])


def refused(data: bytes, buffers: Any = (), **options: Any) -> frames.FrameRefused:
    """The refusal, which has to come soon, cheaply and without an import."""
    modules = set(sys.modules)
    before, began = resident(reset=True), time.process_time()
    with pytest.raises(frames.FrameRefused) as caught:
        frames.loads(data, buffers, **options)
    used, grown = time.process_time() - began, resident() - before
    assert used < 20 and grown < 256 * 1024, (used, grown)
    new = {module for module in set(sys.modules) - modules if not module.startswith(("zoneinfo", "importlib",
    "dateutil",
           "_strptime", "calendar", "locale", "pandas", "numpy", "pytz", "tzdata", "encodings"))}  # fmt: skip
    assert not new
    assert 0 < len(str(caught.value)) < 400
    return caught.value


def test_a_refusal_keeps_nothing_of_what_was_read() -> None:
    refusal = refused(payload([1, 2, name("array")]))
    assert refusal.__context__ is None and refusal.__cause__ is None


# --- names ----------------------------------------------------------------------------------------------------

FOREIGN = [
    ("os", "system"), ("posix", "system"), ("builtins", "eval"), ("builtins", "getattr"), ("pickle", "loads"),
    ("pandas", "read_pickle"), ("pandas.core.frame", "DataFrame"), ("numpy", "ndarray"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy._core.multiarray", "_reconstruct"), ("copyreg", "_reconstructor"), ("antigravity", "x"),
    ("sandbox_kernel.frames", "loads"), ("sandbox_kernel.frames.names", "array.__globals__"),
    ("sandbox_kernel.frames.names", "_refuse"), ("sandbox_kernel.frames.names ", "array"),
    ("sandbox_kernel.frames.Names", "array"), ("sandbox_kernel.frames.construct", "build_value"),
]  # fmt: skip


@pytest.mark.parametrize(("module", "word"), FOREIGN)
def test_no_other_name_is_known(module: str, word: str) -> None:
    refused(payload(name(word, module)))
    refused(payload(call(name(word, module), "touch x")))
    refused(b"\x80\x05c" + module.encode() + b"\n" + word.encode() + b"\n)R.")


class Exploit:
    def __reduce__(self) -> Any:
        return Path("canary").touch, ()


def test_an_ordinary_exploit_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        refused(pickle.dumps(Exploit(), protocol))
    assert not list(tmp_path.iterdir())
    pickle.loads(pickle.dumps(Exploit()))
    assert list(tmp_path.iterdir())  # with the gate off, it does


@pytest.mark.parametrize("it", [
    name("array"), [name("array")], (name("array"), name("frame")), {"k": name("value")}, Raw(name("array") + b")RR"),
    Raw(name("array") + b"NR"), Raw(name("array") + b"]R"), Raw(int64(1) + b")R"), Raw(b"\x8c\x01a)R"),
    Raw(b"]" + name("array") + b"a"), call("objects", "list", ("v", 1, [name("array")])),
    call("value", name("value"), "1"), call("array"), call("array", *[name("array")] * 4),
    Raw(text("array") + name("array") + b"\x93"), Raw(b"]]\x93"),
])  # fmt: skip
def test_a_name_is_good_for_one_call_and_nothing_else(it: Any) -> None:
    refused(payload(it))


# --- opcodes ----------------------------------------------------------------------------------------------------

ALLOWED = set(b"N\x88\x89JKMG\x8a\x8b\x8cX\x8dCB\x8e\x96](ae)\x85\x86\x87t}su\x8f\x90\x91\x93R\x97\x98\x95.")


@pytest.mark.parametrize("code", sorted(set(range(256)) - ALLOWED))
def test_opcodes_that_no_frame_needs(code: int) -> None:
    tail = b"\x00\x00\x00\x00\x00\x00\x00\x00\n\n"
    for before in (b"", b"]", b"]]", b"]]]", bytes(int64(1)) + b"}", b"(", b"]("):
        refused(b"\x80\x05" + before + bytes([code]) + tail + b".")


@pytest.mark.parametrize("change", [
    b"}b", b"}b0", bytes(value({"_mgr": None})) + b"b", bytes(value(1)) + b"a", b"(" + bytes(value(1)) + b"e",
    bytes(value("k") + value(1)) + b"s", b"(" + bytes(value("k") + value(1)) + b"u", b"(" + bytes(value(1)) + b"\x90",
])  # fmt: skip
@pytest.mark.parametrize("kind", [*HONEST, "list"])
def test_nothing_changes_what_was_constructed(kind: str, change: bytes) -> None:
    it = HONEST.get(kind, call("objects", "list", ("N", 3)))
    refused(payload(Raw(it + change)))


@pytest.mark.parametrize("data", [
    b"", b"\x80", b"\x80\x05", b"\x80\x05.", b"\x80\x04N.", b"N.", b"\x80\x05NN.", b"\x80\x05N", b"\x80\x05N.N",
    b"\x80\x05(N.",
    b"\x80\x05e.", b"\x80\x05t.", b"\x80\x05\x85.", b"\x80\x05N\x86.", b"\x80\x05a.", b"\x80\x05]a.", b"\x80\x05s.",
    b"\x80\x05}Ns.",
    b"\x80\x05u.", b"\x80\x05}(Nu.", b"\x80\x05N(Nu.", b"\x80\x05](N\x90.", b"\x80\x05R.", b"\x80\x05\x93.",
    b"\x80\x05\x97.",
    b"\x80\x05N\x98.", b"\x80\x05\x91.", b"\x80\x05\x8c\x20abc", b"\x80\x05K", b"\x80\x05J\0", b"\x80\x05G\0\0",
    b"\x80\x05N.\x80\x05N.",
    b"\x80\x05\x80\x05N.", b"\x80\x05}(]Nu.", b"\x80\x05}]Ns.", b"\x80\x05\x8f(]\x90.", b"\x80\x05(}\x91.",
])  # fmt: skip
def test_programs_that_do_not_end_with_one_value(data: bytes) -> None:
    refused(data)


# --- sizes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [100, 2**16, 2**31 - 1])
@pytest.mark.parametrize("code", [b"B", b"X", b"\x8b"])
def test_lengths_that_are_not_there(code: bytes, size: int) -> None:
    refused(b"\x80\x05" + code + struct.pack("<I", size) + b"xx.")


@pytest.mark.parametrize("size", [100, 2**31, 2**40, 2**63 - 1, 2**63, 2**64 - 1])
@pytest.mark.parametrize("code", [b"\x8d", b"\x8e", b"\x96", b"\x95"])
def test_long_lengths_that_are_not_there(code: bytes, size: int) -> None:
    refused(b"\x80\x05" + code + struct.pack("<Q", size) + b"xx.")


def test_an_integer_has_bounds() -> None:
    refused(b"\x80\x05\x8b" + struct.pack("<i", -5) + b"xxxxx.")
    refused(b"\x80\x05\x8b" + struct.pack("<i", 100_000) + b"\1" * 100_000 + b".")
    with pytest.raises(frames.FrameRefused, match="int of more than 4,096 bytes"):
        frames.dumps({"a": [1, 2**100_000]})
    assert frames.loads(*frames.dumps(2**32_000)) == 2**32_000


@pytest.mark.parametrize("it", [
    array("<i8", bytes(8), 2), array("<i8", bytes(9), 1), array("<i8", bytes(8), -1), array("<i8", b"", 2**31),
    array("<i8", bytes(8), 2**62, 4), array("<i8", b"", 2**40, 0), array("<i8", bytes(8), *[1] * 9),
    call("array", "<i8", (True,), "C", bytes(8)), call("array", "<i8", (1.0,), "C", bytes(8)),
    call("array", "<i8", [1], "C", bytes(8)), call("array", "<i8", (1,), "K", bytes(8)),
    call("array", "<i8", (1,), ["C"], bytes(8)), call("array", "<i8", (1,), "C", "xxxxxxxx"),
    call("array", "<i8", (1,), "C", int64(1)), call("array", ["<i8"], (1,), "C", bytes(8)),
    call("objects", "list", ("N", 2**31)), call("objects", "list", ("N", 2**30)), call("objects", "list", ("N", -1)),
    call("objects", "list", ("N", 2**62)), call("objects", "list", ("N", True)), call("objects", "list", ("N", 2.0)),
    call("objects", "array", (2**31,), ("N", 2**31)), call("objects", "array", (3,), ("N", 2)),
    call("index", "range", (0, 2**31 + 1, 1), None), call("index", "range", (0, 2**63, 2**62), None),
    call("index", "range", (0, 5, 0), None), call("index", "range", (0, 5, 1.0), None),
    call("frame", EMPTY_INDEX, labels(2**31 + 5), (), None, True),
    call("extension", "sparse", "integer", 2**31, int64(), array("<i4", b"", 0), 0),
    call("value", "range", 0, "x", 1), call("value", "decimal", "1" * 20_001),
    call("value", "fraction", "1" * 4001, "1"),
])  # fmt: skip
def test_sizes_that_do_not_add_up(it: Raw) -> None:
    refused(payload(it))


def test_many_small_containers_are_a_matter_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty set has 216 bytes, and one for its opcode."""
    refused(b"\x80\x05(" + b"\x8f" * 4_000_000 + b"t.")
    monkeypatch.setattr(decode, "CONTAINER_BYTES", 1024**2)
    for code in (b"]", b"}", b"](e", b"}(u", b"N\x85", b"NN\x86", b"}NNs", b"\x8f(N\x90", b"(N\x91"):
        assert "memory" in str(refused(b"\x80\x05(" + code * 150_000 + b"t."))


def test_steps_are_counted() -> None:
    refused(b"\x80\x05](" + b"N" * 1000 + b"e.", budget=frames.Budget(opcodes=1000))
    refused(b"\x80\x05" + b"](" * 3 + b"N" * 10**6, budget=frames.Budget(opcodes=10**5))


def test_the_budget_holds_before_anything_is_built() -> None:
    frame = pd.DataFrame({"s": pd.Series(["a"] * 1_000_000, dtype=object)})
    data, buffers = frames.dumps(frame)
    assert "memory" in str(refused(data, buffers, budget=frames.Budget(memory_bytes=8_000_000)))
    frames.loads(data, buffers, budget=frames.Budget(memory_bytes=20_000_000))
    assert "977 KiB" in str(refused(data, buffers, budget=frames.Budget(wire_bytes=1_000_000)))


HUGE = labels(2**28)  # 2 GiB as numbers
SPARSE = call("extension", "sparse", "integer", 2**28, int64(), array("<i4", b"", 0), 0)


@pytest.mark.parametrize("it", [
    HUGE, [labels(2**26)] * 3, call("frame", EMPTY_INDEX, HUGE, (), None, True),
    call("frame", HUGE, labels(0), array("<f8", b"", 0, 2**28), None, True),
    call("frame", words("a"), HUGE, (SPARSE,), None, True), series(SPARSE, 2**28), SPARSE,
    array("<f8", b"", 2**28, 0), array("<f8", b"", 2**14, 2**14, 0), array("<U0", b"", 2**28), array("|S0", b"", 2**28),
    call("objects", "array", (2**28, 0), ("N", 0)),
])  # fmt: skip
def test_what_is_large_only_once_it_is_used_is_counted(it: Raw) -> None:
    """A range of labels has twenty bytes here, and gigabytes as soon as somebody prints what it belongs to."""
    assert "once it is used" in str(refused(payload(it)))


def test_labels_with_data_behind_them_are_not_counted() -> None:
    frame = pd.DataFrame({"a": np.ones(100_000, "i1")})
    small = frames.Budget(unfolded_bytes=1000)
    for table in (frame, frame["a"], pd.DataFrame(np.ones((100_000, 2), "i1"))):
        assert_same(table, frames.loads(*frames.dumps(table), budget=small))
    refused(*frames.dumps(frame[[]]), budget=small)
    many = pd.DataFrame({number: pd.arrays.SparseArray([0] * 999 + [1]) for number in range(50)})
    assert_same(many, frames.loads(*frames.dumps(many), budget=frames.Budget(unfolded_bytes=18_000)))


def test_ranges_that_pandas_makes_arrays_of_are_paid_at_once() -> None:
    refused(payload(call("extension", "categorical", array("|i1", b"\0\1", 2), labels(2**31), False)))
    refused(payload(call("index", "multi", ((labels(2**31),), (int64(0, 1),), None, ("x",)), None)))


@pytest.mark.parametrize("it", [
    call("extension", "string", "pyarrow", "NA", ("c", 4096, "B", bytes(4096), ("s", 1, "\0", b"x" * 2**20))),
    call("extension", "string", "pyarrow", "NA", ("m", 4097, bytes(4096) + b"\1", (
        ("c", 4096, "B", bytes(4096), ("s", 1, "\0", b"x" * 2**20)), ("s", 1, "\0", b"y")))),
    call("extension", "arrow", "string", ("c", 4096, "B", bytes(4096), ("s", 1, "\0", b"x" * 2**20)), None),
])  # fmt: skip
def test_a_long_text_in_many_rows_costs_what_arrow_makes_of_it(it: Raw) -> None:
    pytest.importorskip("pyarrow")
    assert "memory" in str(refused(payload(it), budget=frames.Budget(memory_bytes=2**30)))


def test_a_long_number_in_many_rows_is_read_once() -> None:
    texts = ("c", 4096, "H", bytes(8192), ("s", 1, "\0", b"1" * 10_000))
    first, *_, last = frames.loads(payload(call("objects", "list", ("D", 4096, texts))))
    assert first is last


# --- nesting ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("down", "up"), [
    (b"](", b"e"), (b"(", b"t"), (b"}(K\1", b"u"), (b"]", b"a"), (b"}K\1", b"s"), (b"", b"\x85"), (b"K\1", b"\x86"),
    (b"N]", b"\x86"),
    (b"(", b"\x91"), (name("objects") + text("list") + text("v") + b"K\1]", b"a\x87\x86R"),
])  # fmt: skip
@pytest.mark.parametrize("levels", [64, 100, 5_000, 200_000])
def test_deep_nesting_by_every_means(down: bytes, up: bytes, levels: int) -> None:
    refused(b"\x80\x05" + down * (levels + 1) + b"N" + up * (levels + 1) + b".")


def test_wide_values_are_not_deep() -> None:
    pairs = b"](" + b"K\1\x85K\2\x86" * 900 + b"e"
    assert len(frames.loads(b"\x80\x05" + pairs + b".")) == 900
    assert frames.loads(b"\x80\x05" + b"](" * 60 + b"e" * 60 + b".")


# --- hashing ----------------------------------------------------------------------------------------------------

PRIME = 2**61 - 1


def same_hash(count: int) -> list[int]:
    return [PRIME * (number + 1) for number in range(count)]


def walkers(count: int) -> list[int]:
    """Keys with hashes of their own that meet each other in a dict: a run of places, and keys that walk along it."""
    mask = 2 ** (count * 3 // 2).bit_length() - 1
    place, run = 0, []
    for _ in range(count // 2):
        run.append(place)
        place = (5 * place + 1) & mask
    taken, keys, candidate = set(run), list(run), mask + 1
    early = set(run[: count // 8])
    while len(keys) < count:
        candidate += mask + 1
        position, perturb, probes = candidate & mask, candidate, 0
        while perturb and position in taken:
            perturb >>= 5
            position = (5 * position + perturb + 1) & mask
            probes += 1
        if not perturb and position in early:
            keys.append(candidate)
    return keys


def dict_of(keys: list[int]) -> Raw:
    return Raw(b"}" + b"".join(
        b"(" + b"".join(value(key) + b"N" for key in keys[start : start + 1000]) + b"u" for start in range(0,
        len(keys), 1000)
    ))  # fmt: skip


def test_keys_that_collide() -> None:
    keys = same_hash(60_000)
    refused(payload(dict_of(keys)))
    refused(payload(Raw(b"}" + b"".join(value(key) + b"Ns" for key in keys))))
    refused(payload(Raw(b"\x8f(" + b"".join(map(value, keys)) + b"\x90")))
    refused(payload(Raw(b"(" + b"".join(map(value, keys)) + b"\x91")))
    refused(payload(call("objects", "dict", ("v", len(keys), keys), ("N", len(keys)))))
    refused(payload(call("objects", "set", ("v", len(keys), keys))))
    refused(payload(Raw(b"\x8f(" + b"".join(value((key,)) for key in keys) + b"\x90")))


def test_honest_keys_do_not_collide() -> None:
    numbers = {key: None for key in range(300_000)}
    assert frames.loads(payload(dict_of(list(numbers)))) == numbers
    for keys in (range(0, 2**60, 2**43), map(float, range(50_000)), ((n, -n) for n in range(50_000))):
        them = dict.fromkeys(keys)
        assert frames.loads(*frames.dumps(them)) == them


def colliding_int64(count: int) -> bytes:
    """Numbers with one hash in the tables of pandas, which is ``key >> 33 ^ key ^ key << 11`` in 32 bits."""
    low = np.arange(4 * count, dtype=np.uint64)
    high = (np.uint64(0x12345678) ^ low ^ (low << np.uint64(11))) & np.uint64(0xFFFFFFFF)
    return ((high << np.uint64(33)) | low)[high < 2**31][:count].tobytes()


@pytest.mark.parametrize("kind", ["categories", "levels", "flags"])
def test_labels_that_collide(kind: str) -> None:
    count = 200_000
    index = call("index", "array", (array("<i8", colliding_int64(count), count), None), None)
    refused(payload({
        "categories": call("extension", "categorical", int64(0), index, False),
        "levels": call("index", "multi", ((index,), (int64(0),), None, (None,)), None),
        "flags": call("series", array("|i1", bytes(count), count), index, None, None, False),
    }[kind]))  # fmt: skip


def test_honest_labels_do_not_collide() -> None:
    labels = np.random.default_rng(1).permutation(60_000)
    for categories in (labels, labels * 0.5, [f"k{label}" for label in labels], pd.to_datetime(labels)):
        assert_crosses(pd.Series(pd.Categorical.from_codes(np.arange(60_000), categories=categories)))


# --- raw memory -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [
    "O", "|O8", "|O", "V8", "|V8", "object", "f8", "float64", "<f16", "<c32", "<M8[25s]", "<M8[fortnight]", "T",
    "<i16", "=i8", "U",
    "<U9999999", "<U-1", "|S99999999", "i8,i8", "(2,)i8", "<i8\0", "", "category", "datetime64[ns, UTC]",
    "int64[pyarrow]", "|b8",
])  # fmt: skip
def test_dtypes_outside_the_closed_set(code: str) -> None:
    refused(payload(array(code, bytes(16), 2)))
    refused(payload(array(code, b"", 0)))
    refused(payload(call("value", "numpy", code, bytes(8))))


@pytest.mark.parametrize("it", [
    array("|b1", b"\0\1\xfe", 3), array("<U1", struct.pack("<I", 0x110000), 1), array("<U1", b"\xff" * 4, 1),
    array(">U1", struct.pack("<I", 0x41), 1), call("value", "numpy", "|b1", b"\2"),
    call("value", "numpy", "<U1", b"\xff" * 4),
    call("objects", "list", ("?", 2, b"\0\2")), call("extension", "masked", int64(1), array("|u1", b"\1", 1)),
    call("extension", "masked", array("|b1", b"\2", 1), array("|b1", b"\1", 1)),
])  # fmt: skip
def test_bytes_that_no_value_has(it: Raw) -> None:
    refused(payload(it))


def test_buffers_are_used_once_and_all() -> None:
    one = call("array", "<i8", (2,), "C", Buffer())
    assert list(frames.loads(payload(one), [bytes(16)])) == [0, 0]
    for it, buffers in [
        (one, []), (one, [bytes(16)] * 2), (one, [bytes(15)]), (one, [bytes(17)]), (one, [b""]),
        (Buffer(), [bytes(16)]),
        ([Buffer()], [bytes(16)]), ({"a": (Buffer(),)}, [b"x"]),
        (call("objects", "list", ("v", 1, [Buffer()])), [b"x"]),
        (None, [b"x"]), (call("value", "uuid", Buffer()), [bytes(16)]),
        (call("array", "<i8", (1,), "C", (Buffer(),)), [bytes(8)]),
        (call("frame", words("a"), labels(1), Buffer(), None, True), [bytes(8)]), (Raw(b"\x97\x98\x98"), [b""]),
        (call("value", "surrogates", Buffer()), [b"x"]), ({Raw(b"\x97"): 1}, [b"x"]),
    ]:  # fmt: skip
        refused(payload(it), buffers)


# --- structure --------------------------------------------------------------------------------------------------


def categorical(codes: Raw, categories: Any = None) -> Raw:
    return call("extension", "categorical", codes, categories or words("a", "b"), False)


@pytest.mark.parametrize("it", [
    categorical(array("|i1", b"\x02", 1)), categorical(array("|i1", b"\xfe", 1)), categorical(int64(10**9)),
    categorical(int64(-(10**12))), categorical(array("<f8", bytes(8), 1)), categorical(int64(0), words("a", "a")),
    categorical(int64(0), series(int64(0), 1)), categorical(array("<i8", bytes(8), 1, 1)),
    categorical(int64(0), HONEST["multi"]),
    call("extension", "categorical", int64(0), words("a"), 1),
])  # fmt: skip
def test_codes_without_a_category(it: Raw) -> None:
    refused(payload(it))


def multi(levels: Any, codes: Any, sortorder: Any = None, names: Any = (None, None)) -> Raw:
    return call("index", "multi", (levels, codes, sortorder, names), None)


@pytest.mark.parametrize("it", [
    multi((words("a"), words("b")), (int64(0), int64(1))), multi((words("a"), words("b")), (int64(0), int64(-2))),
    multi((words("a"), words("b")), (int64(0), int64(10**12))),
    multi((words("a"), words("b")), (int64(0), int64(0, 0))),
    multi((words("a", "a"), words("b")), (int64(0), int64(0))), multi((words("a"),), (int64(0), int64(0))),
    multi((words("a"), words("b")), (int64(0), int64(0)), names=(None,)), multi((), (), names=()),
    multi((words("a"), words("b")), (int64(0), int64(0)), names=([], None)),
    multi((words("a"), words("b")), (int64(0), int64(0)), 7),
    multi((words("a"), words("b")), (int64(0), int64(0)), True),
    multi((words("a"), HONEST["multi"]), (int64(0), int64(0))),
    multi([words("a"), words("b")], (int64(0), int64(0))), multi((words("a"), int64(1)), (int64(0), int64(0))),
    multi((words("a"), words("b")), (array("<f8", bytes(8), 1), int64(0))),
])  # fmt: skip
def test_levels_and_codes_that_do_not_fit(it: Raw) -> None:
    refused(payload(it))


def sparse(places: bytes, length: Any = 5, kind: str = "integer", data: Raw | None = None, fill: Any = 0) -> Raw:
    return call("extension", "sparse", kind, length, data or int64(1, 2), array("<i4", places, len(places) // 4), fill)


@pytest.mark.parametrize("kind", ["integer", "block"])
@pytest.mark.parametrize("places", [(1, 1), (2, 1), (-5, 1), (1, 5), (1, 2**30), (1,), (1, 2, 3)])
def test_sparse_places_out_of_order_or_range(places: tuple[int, ...], kind: str) -> None:
    refused(payload(sparse(struct.pack(f"<{len(places)}i", *places), kind=kind)))


@pytest.mark.parametrize("it", [
    sparse(struct.pack("<2i", 1, 2), -1), sparse(struct.pack("<2i", 1, 2), 5.0), sparse(struct.pack("<2i", 1, 2), True),
    sparse(struct.pack("<2i", 1, 2), kind="x"), sparse(struct.pack("<2i", 1, 2), fill=[0]),
    sparse(struct.pack("<2i", 1, 2), fill=None),
    sparse(struct.pack("<2i", 1, 2), fill=int64(1)),
    call("extension", "sparse", "integer", 5, int64(1, 2), int64(1, 2), 0),
    call("extension", "sparse", "integer", 5, call("objects", "array", (2,), ("N", 2)), array("<i4", bytes(8), 2), 0),
    call("extension", "masked", int64(1), TWO_BYTES),
    call("extension", "masked", array("<c8", bytes(8), 1), array("|b1", b"\0", 1)),
    call("extension", "masked", array("<M8[ns]", bytes(8), 1), array("|b1", b"\0", 1)),
    call("extension", "masked", int64(1), int64(1)),
    call("extension", "zoned", int64(1), call("zone", "zoneinfo", "UTC")),
    call("extension", "zoned", array("<M8[ns]", bytes(8), 1), "UTC"),
    call("extension", "zoned", call("objects", "array", (1,), ("N", 1)), call("zone", "zoneinfo", "UTC")),
    call("extension", "zoned", array("<M8[D]", bytes(8), 1), call("zone", "zoneinfo", "UTC")),
    call("extension", "interval", int64(2), int64(1), "left"),
    call("extension", "interval", int64(1), int64(1, 2), "left"),
    call("extension", "interval", int64(1), int64(2), "x"),
    call("extension", "interval", words("a"), words("b"), "left"),
    call("extension", "period", array("<f8", bytes(8), 1), "M"), call("extension", "period", int64(1), "x" * 100),
    call("extension", "string", "x", "NA", strings("a")), call("extension", "string", "python", "x", strings("a")),
    call("extension", "string", "python", "NA", ("q", 1, bytes(8))),
    call("extension", "string", "python", "NA", ("v", 1, [1])),
    call("extension", "string", "python", "NA", ("m", 2, b"\0\1", (strings("a"), ("q", 1, bytes(8))))),
    call("extension", "arrow", "list<item: int64>", int64(1), TWO_BYTES),
    call("extension", "arrow", "int64", I2, TWO_BYTES),
    call("extension", "arrow", ["int64"], I2, TWO_BYTES), call("extension", "x"), call("extension"),
    call("extension", []),
    call("extension", "numpy", 1), call("extension", "numpy", array("<i8", bytes(8), 1, 1)),
])  # fmt: skip
def test_extension_arrays_that_are_none(it: Raw) -> None:
    refused(payload(it))


@pytest.mark.parametrize("it", [
    series(int64(1, 2), 3), series(array("<i8", bytes(16), 1, 2), 1), series(array("<U1", bytes(8), 2), 2),
    series(Raw(value([1, 2])), 2),
    call("series", int64(1), 1, None, None, True), call("series", int64(1), labels(1), [], None, True),
    call("series", int64(1), labels(1), None, [], True), call("series", int64(1), labels(1), None, None, 1),
    call("series", int64(1), labels(1), None, None), call("series", HONEST["series"], labels(2), None, None, True),
    call("frame", words("a"), labels(2), (int64(1),), None, True),
    call("frame", words("a", "b"), labels(1), (int64(1),), None, True),
    call("frame", words("a"), labels(1), (int64(1), int64(2)), None, True),
    call("frame", words("a"), labels(1), [int64(1)], None, True),
    call("frame", words("a"), labels(1), array("<i8", bytes(8), 1), None, True),
    call("frame", words("a"), labels(2), array("<i8", bytes(8), 1, 1), None, True),
    call("frame", words("a"), labels(1), array("<U2", bytes(8), 1, 1), None, True),
    call("frame", words("a"), labels(1), None, None, True),
    call("frame", ("a",), labels(1), (int64(1),), None, True), call("frame", words("a"), (0,), (int64(1),), None, True),
    call("frame", words("a", "a"), labels(1), (int64(1), int64(2)), None, False),
    call("frame", words("a"), labels(1), (HONEST["frame"],), None, True),
    call("index", "array", (int64(1), "D"), None), call("index", "array", (array("<i8", bytes(8), 1, 1), None), None),
    call("index", "array", (words("a"), None), None), call("index", "array", [int64(1), None], None),
    call("index", "x", (), None),
    *(call("frame", words("a"), index, array("<i8", bytes(8), 1, 1), None, True)
      for index in (("range", (0, 1, 1)), ("x", (), None), (), ("range", (0, 2, 1), None), PARTS[1:], [labels(1)],
                    ("array", (1, None), None), ("range", (0, 1, 1), None, None))),
    *(call("frame", *PARTS, data, None, True)
      for data in (("<i8", (1, 2), "C", bytes(15)), ("<i8", (2, 1), "C", bytes(16)), ("|O", (1, 2), "C", bytes(16)),
                   ("<i8", (1, 2), "X", bytes(16)), ("<i8", (1, 2), "C", "x" * 16), ("<U2", (1, 2), "C", bytes(16)),
                   ("<i8", (1, 2), "C"), ("|b1", (1, 2), "C", b"\0\2"), ("<i8", (1, -2), "C", b""))),
    call("series", int64(1), ("range", (0, 2, 1), None), None, None, True),
    call("index", "texts", ("python", "NA", strings("a")), []), call("index", "texts", ("x", "NA", strings("a")), 1),
    call("index", "texts", ("pyarrow", None, strings("a")), 1), call("index", "texts", ("pyarrow", "nan", int64(1)), 1),
    call("index", "texts", ("pyarrow", "nan", ("s", 2, "\0", b"a")), 1), call("index", "texts", ("pyarrow", "nan"), 1),
    call("index", "texts", ("pyarrow", "nan", ("s", 1, [], b"a")), 1), call("index", "texts", strings("a"), 1),
    call("index", "texts", ("pyarrow", "nan", ("s", 1, "\0", b"\xff")), 1),
    call("index", "texts", ("pyarrow", "nan", ("q", 1, bytes(8))), 1),
    call("index", "array", (int64(1), None), []), call("index", "array", (int64(1), None), {}),
    call("index", "array", (1, None), None),
    call("objects", "array", (2,), ("c", 2, "B", b"\0\2", strings("a", "b"))),
    call("objects", "list", ("c", 2, "B", b"\0\2", strings("a", "b"))),
    call("objects", "list", ("c", 1, "b", b"\xff", strings("a"))),
    call("objects", "list", ("c", 1, "B", b"\0", ("v", 1, [[]]))),
    call("objects", "array", (1,), ("c", 1, "B", b"\0", ("v", 1, [[]]))),
    call("objects", "array", (1,), ("c", 1, "B", b"\0", ("m", 1, b"\0", (("v", 1, [[]]),)))),
    call("objects", "list", ("m", 2, b"\0\1", (("N", 2),))),
    call("objects", "array", (2,), ("m", 2, b"\0\1", (("N", 2),))),
    call("objects", "list", ("m", 2, b"\0\1", (("N", 1), ("N", 2)))),
    call("objects", "list", ("m", 1, b"\0", (("m", 1, b"\0", (("N", 1),)),))),
    call("objects", "list", ("v", 1, (1,))), call("objects", "list", ("v", 2, [1])), call("objects", "list", ["N", 1]),
    call("objects", "list", ("N",)), call("objects", "list", ("x", 1)), call("objects", "list", ([], 1)),
    call("objects", []),
    call("objects", "records", 1, ("a", "a"), (("N", 1), ("N", 1))), call("objects", "records", 1, ("a",), (("N", 2),)),
    call("objects", "records", 1, (1,), (("N", 1),)), call("objects", "records", 1, ("a", "b"), (("N", 1),)),
    call("objects", "records", 1, (), ()), call("objects", "dict", ("N", 2), ("N", 2)),
    call("objects", "dict", ("N", 1), ("N", 2)),
    call("objects", "dict", ("v", 1, [[]]), ("N", 1)), call("objects", "set", ("v", 1, [{}])),
    call("objects", "tuples", 2, (("N", 1),)),
])  # fmt: skip
def test_tables_and_columns_that_do_not_fit(it: Raw) -> None:
    refused(payload(it))


def nested(depth: int) -> Any:
    label: Any = "x"
    for _ in range(depth):
        label = (label,)
    return label


@pytest.mark.parametrize("place", ["label", "name", "series", "level", "category"])
def test_labels_that_would_double_with_each_tuple(place: str) -> None:
    """Arrow writes them as text of text of text: a table with one of 40 tuples could not be saved."""

    def frame(label: Any) -> Raw:
        column = call("objects", "array", (1,), ("v", 1, [label]))
        index = call("index", "array", (column, None), None)
        return {
            "label": call("frame", index, labels(1), (int64(1),), None, True),
            "name": call("index", "range", (0, 1, 1), label),
            "series": call("series", int64(1), labels(1), label, None, True),
            "level": call("index", "multi", ((words("a"),), (int64(0),), None, (label,)), None),
            "category": call("extension", "categorical", array("|i1", b"\0", 1), index, False),
        }[place]

    frames.loads(payload(frame(nested(8))))
    assert refused(payload(frame(nested(9)))).in_order, "an honest sender may have one"


def test_a_calendar_frequency_is_not_checked_for_many_labels() -> None:
    many = array("<M8[ns]", bytes(8 * 60_000), 60_000)
    refused(payload(call("index", "array", (many, "B"), None)))


# --- text -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("raw", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"a\x80"])
def test_text_is_strict(raw: bytes) -> None:
    refused(b"\x80\x05\x8c" + bytes([len(raw)]) + raw + b".")
    refused(b"\x80\x05X" + struct.pack("<I", len(raw)) + raw + b".")
    refused(payload(call("objects", "list", ("s", 1, "\0", raw))))
    refused(payload([call("value", "surrogates", Raw(b"\x8c" + bytes([len(raw)]) + raw))]))


MANY = b"\0".join([b"x"] * 600)


@pytest.mark.parametrize("column", [
    ("s", 601, "\0", MANY), ("s", 599, "\0", MANY), ("s", 600, "x", MANY), ("s", 600, "", MANY), ("s", 600, "ab", MANY),
    ("s", 600, "\0", MANY[:-1] + b"\xff"), ("s", 600, "\0", MANY[:-1] + b"\xed\xa0\x80"), ("s", 600, "\0", 5),
    ("c", 600, "B", bytes(599), strings("a")), ("c", 600, "B", bytes(599) + b"\1", strings("a")),
    ("c", 600, "b", bytes(600), strings("a")),
    ("c", 600, "B", bytes(600), strings("a"), 1), ("c", 600, "B", bytes(600), ("q", 1, bytes(8))),
    ("c", 600, "B", bytes(600), ("c", 1, "B", b"\0", strings("a"))), ("c", 600, "B", bytes(600)), ("s", 600),
    ("s", "600", "\0", MANY),
    ("m", 601, bytes(600) + b"\2", (("s", 600, "\0", MANY), ("N", 1))),
    ("m", 601, bytes(601), (("s", 600, "\0", MANY), ("N", 1))),
    ("m", 601, bytes(600) + b"\1", (("s", 600, "\0", MANY), ("N", 2))),
    ("m", 602, bytes(600) + b"\1", (("s", 600, "\0", MANY), ("N", 1))),
    ("m", 601, bytes(600) + b"\1", (("s", 601, "\0", MANY), ("N", 1))),
    ("m", 601, bytes(600) + b"\1", (("s", 600, "\0", MANY), ("q", 1, bytes(8)))),
    ("m", 601, bytes(600) + b"\1", (("s", 600, "\0", MANY), ("N", 1, 1))),
    ("m", 601, bytes(600) + b"\1", (("s", 600, "\0", MANY),)),
    ("m", 600, bytes(600), (("m", 600, bytes(600), (("s", 600, "\0", MANY), ("N", 0))), ("N", 0))),
    ("m", 600, bytes(600), ()),
])  # fmt: skip
def test_many_strings_are_checked_too(column: Any) -> None:
    for storage in ("python", "pyarrow"):
        for missing in ("NA", "nan"):
            refused(payload(call("extension", "string", storage, missing, column)))


@pytest.mark.parametrize("separator", ["", "ab", 1, None, b"\0"])
def test_a_separator_is_one_character(separator: Any) -> None:
    refused(payload(call("objects", "list", ("s", 2, separator, b"a\0b"))))


@pytest.mark.parametrize("library", ["zoneinfo", "pytz", "dateutil"])
@pytest.mark.parametrize("key", [
    "/etc/passwd", "../../../etc/passwd", "Europe/../../../../etc/passwd", "/dev/zero", "Europe/Paris\0x", "",
    "x" * 65, "\ud800", ".", "..",
    "Europe", "tzdata.zi", "EST5EDT4,M3.2.0,M11.1.0", "tzlocal()", -1441 * 60_000_000, 2**70, True, None, 1.0, b"UTC",
    ["UTC"],
])  # fmt: skip
def test_zones_are_no_paths(library: str, key: Any) -> None:
    refused(payload(call("zone", library, key)))


@pytest.mark.parametrize("it", [
    call("zone", "datetime", 86_400_000_000), call("zone", "datetime", "UTC"), call("zone", "datetime", 0, "x" * 65),
    call("zone", "os", "x"),
    call("zone", "datetime", 0, 1), call("zone", []), call("zone"), call("zone", "zoneinfo", "UTC", "x"),
    call("value", "decimal", "1_0"), call("value", "decimal", "1E+9999999999"), call("value", "decimal", "x"),
    call("value", "decimal", 1),
    call("value", "decimal", " 1"), call("value", "decimal", "\uff11"), call("value", "fraction", "1", "0"),
    call("value", "fraction", 1, 2), call("value", "date", 0), call("value", "date", 2**40),
    call("value", "datetime", 2020, 13, 1, 0, 0, 0, 0, 0, None),
    call("value", "datetime", 2020, 1, 1, 0, 0, 0, 0, 2, None),
    call("value", "datetime", 2020, 1, 1, 0, 0, 0, 0, 0, "UTC"), call("value", "datetime", 2020, 1, 1),
    call("value", "time", 25, 0, 0, 0, 0, None),
    call("value", "timedelta", 10**9, 0, 0), call("value", "timedelta", 1.5, 0, 0), call("value", "uuid", b"x"),
    call("value", "complex", 1, 2),
    call("value", "slice", "a", 1, 1), call("value", "range", 0, 1, 0), call("value", "timestamp", 2**63, "ns", None),
    call("value", "timestamp", 1, "D", None), call("value", "timestamp", 1, "ns", "UTC"),
    call("value", "pandas timedelta", 2**70, "s"),
    call("value", "period", 1, "nonsense"), call("value", "period", 1.5, "M"), call("value", "period", 2**70, "M"),
    call("value", "interval", 2, 1, "left"),
    call("value", "interval", [], [], "left"), call("value", "offset", "x"), call("value", "offset", "D" * 100),
    call("value", "offset", "99999999999D"),
    call("value", "numpy", "<i8", b"x"), call("value", "x"), call("value"), call("value", []), call("value", "NA", 1),
])  # fmt: skip
def test_scalars_that_are_none(it: Raw) -> None:
    refused(payload(it))
