"""What does not cross is refused by the sender, with its place, its type and what to do."""

from __future__ import annotations

import collections
import enum
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sandbox_kernel import frames
from sandbox_kernel.frames import reduce

from .same import round_trip


class Local:
    pass


class Frame(pd.DataFrame):
    pass


class Column(pd.Series):
    pass


class Colour(enum.IntEnum):
    RED = 1


class Text(str):
    pass


Point = collections.namedtuple("Point", "x y")


def cycle() -> Any:
    it: list[Any] = []
    it.append({"k": it})
    return it


def cycle_of_arrays() -> Any:
    it = np.empty(1, object)
    it[0] = it
    return it


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    # What only the reader refused would look like a frame that was tampered with, and cost the session.
    "long range": (lambda: pd.DataFrame(index=range(10**12)), "pandas.RangeIndex longer than"),
    "far range": (lambda: pd.RangeIndex(-(2**63), 2**63 - 1, 2**61), "or so far out"),
    "many levels": (lambda: pd.MultiIndex.from_arrays([[1]] * 300), "pandas.MultiIndex of 300 levels"),
    "long axis": (lambda: np.zeros((0, 10**10)), "an axis longer than"),
    "function": (lambda: [len, lambda: 1], r"Value\[0\]: a value of type builtin_function_or_method"),
    "module": (lambda: {"m": np}, r"Value\['m'\]: a value of type module"),
    "class": (lambda: Local, "of type type"),
    "instance": (Local, r"test_refusals\.Local"),
    "generator": (lambda: (i for i in ()), "of type generator"),
    "lock": (threading.Lock, "lock"),
    "exception": (lambda: ValueError("x"), "ValueError"),
    "cycle": (cycle, "contains itself"),
    "cycle of arrays": (cycle_of_arrays, "contains itself"),
    "enum": (lambda: {"c": Colour.RED}, "Colour"),
    "subclass of str": (lambda: Text("x"), "Text"),
    "named tuple": (lambda: Point(1, 2), "Point"),
    "ordered dict": (collections.OrderedDict, "OrderedDict"),
    "frame subclass": (lambda: Frame({"a": [1]}), r"Frame cannot pass"),
    "series subclass": (lambda: Column([1]), r"Column cannot pass"),
    "object in a column": (lambda: pd.DataFrame({"b": [1, 2], "a": [1, Local()]}), r"Column 'a', row 1: .*Local"),
    "object in a long column": (lambda: pd.Series([1] * 5000 + [Local()], dtype=object), r"Row 5000: .*Local"),
    "object in a repeated column": (lambda: pd.Series([Local(), None] * 3000, dtype=object), r"Row 0: .*Local"),
    "deep in a column": (lambda: pd.DataFrame({("a", 1): [[{"k": Local()}]]}),
    r"Column \('a', 1\), row 0\[0\]\['k'\]: .*Local"),
    "in the index": (lambda: pd.Series([1], index=pd.Index([Local()], dtype=object)), "The index, row 0: .*Local"),
    "in the columns": (lambda: pd.DataFrame([[1]], columns=pd.Index([Local()], dtype=object)),
    "The columns, row 0: .*Local"),
    "in attrs": (lambda: with_attr(Local()), r"Attrs\['k'\]: .*Local"),
    "in a name": (lambda: pd.Series([1], name=(1, Local())), r"The name\[1\]: .*Local"),
    "in records": (lambda: [{"a": i, "b": Local() if i == 5 else i} for i in range(20)], r"Value\[5\]\['b'\]: .*Local"),
    "in rows": (lambda: [(i, Local() if i == 40 else i) for i in range(50)], r"Value\[40\]\[1\]: .*Local"),
    "in a long dict": (lambda: {f"k{i}": Local() if i == 700 else i for i in range(1000)}, r"Value\['k700'\]: .*Local"),
    "in a long list": (lambda: [1] * 1000 + [Local()], r"Value\[1000\]: .*Local"),
    "structured array": (lambda: np.zeros(2, [("a", "i4")]), r"dtype \[\('a', '<i4'\)\]"),
    "masked array": (lambda: np.ma.masked_array([1], [True]), "MaskedArray"),
    "long double": (lambda: np.zeros(2, "longdouble"), "dtype float128"),
    "long double scalar": (lambda: np.longdouble(1), "longdouble"),
    "memory map": (lambda: np.zeros(2).view(np.memmap), "memmap"),
    "matrix": (lambda: np.matrix([[1]]), "matrix"),
    "many dimensions": (lambda: np.zeros((1,) * 9), "9 dimensions"),
    "sparse objects": (lambda: pd.Series(pd.arrays.SparseArray(["a", "b"], fill_value="a")), r"dtype Sparse\["),
    "memoryview": (lambda: memoryview(b"x"), "memoryview"),
    "pickle buffer": (lambda: pickle.PickleBuffer(b"x"), "PickleBuffer"),
    "grouping": (lambda: pd.DataFrame({"a": [1]}).groupby("a"), "DataFrameGroupBy"),
}  # fmt: skip


def with_attr(value: Any) -> pd.DataFrame:
    frame = pd.DataFrame({"a": [1]})
    frame.attrs["k"] = value
    return frame


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("kind", REFUSED)
def test_refusals_say_where_and_what(kind: str) -> None:
    build, pattern = REFUSED[kind]
    value = build()
    with pytest.raises(frames.FrameRefused, match=pattern) as caught:
        frames.dumps(value)
    assert len(caught.value.explain()) < 400 and caught.value.message.endswith(".")


@pytest.mark.parametrize(("value", "advice"), [
    (Frame({"a": [1]}), "pandas.DataFrame(x)"), (Column([1]), "pandas.Series(x)"),
    (collections.OrderedDict(), "dict(x)"),
    (Colour.RED, "int(x)"), (Text("x"), "str(x)"), (np.ma.masked_array([1]), "numpy.asarray(x)"),
    (Local(), "plain values"),
])  # fmt: skip
def test_advice_says_what_to_convert_to(value: Any, advice: str) -> None:
    with pytest.raises(frames.FrameRefused) as caught:
        frames.dumps(value)
    assert advice in caught.value.advice()


class Spy:
    """A value whose methods tell when they are run."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise AssertionError("the sender ran a method of the value")

    __repr__ = __str__ = __getstate__ = __hash__ = __bool__ = __len__ = __reduce_ex__  # type: ignore[assignment]

    def __eq__(self, other: object) -> Any:
        raise AssertionError("the sender compared the value")


def test_no_method_of_a_value_is_run() -> None:
    for value in (Spy(), [Spy()], {"k": Spy()}, pd.Series([Spy()], dtype=object), [Spy(), 1] * 600):
        with pytest.raises(frames.FrameRefused, match="Spy"):
            frames.dumps(value)


def test_a_refusal_survives_pickling() -> None:
    with pytest.raises(frames.FrameRefused) as caught:
        frames.dumps([len])
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is frames.FrameRefused and again.explain() == caught.value.explain()


def test_deep_values_are_refused_where_they_are_sent() -> None:
    value: Any = 1
    for _ in range(57):
        value = [value]
    assert round_trip(value) == value
    with pytest.raises(frames.FrameRefused, match="nested more than 56 deep"):
        frames.dumps([[value]])


def test_what_is_shared_is_not_written_out_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduce, "VALUES", 50_000)
    value: Any = [{}]
    for _ in range(40):
        value = [value, value, {}]
    with pytest.raises(frames.FrameRefused, match="more than 50,000 containers"):
        frames.dumps(value)


@pytest.mark.parametrize("wrap", [
    lambda it: [it], lambda it: (it,), lambda it: {"k": it}, lambda it: pd.Series([it], dtype=object),
    lambda it: np.array([it, None], object), lambda it: [it] + [None] * 600,
    lambda it: [{"k": it}] + [{"k": 1}] * 8, lambda it: [(it, 1)] + [(2, 3)] * 40,
    lambda it: {1: {it}} if it == 1 else {1: it},
])  # fmt: skip
def test_what_the_sender_lets_through_is_shallow_enough_for_the_receiver(wrap: Callable[[Any], Any]) -> None:
    value: Any = 1
    for _ in range(70):
        value = wrap(value)
        try:
            payload, buffers = frames.dumps(value)
        except frames.FrameRefused as refusal:
            assert "nested more than" in str(refusal)
            return
        frames.loads(payload, buffers)
    pytest.fail("nothing was too deep")


def test_a_plain_pickle_reader_gets_nothing() -> None:
    payload, buffers = frames.dumps(pd.DataFrame({"a": [1]}))
    with pytest.raises(TypeError, match="read it with sandbox_kernel"):
        pickle.loads(payload, buffers=buffers)
