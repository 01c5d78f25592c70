"""Modules of the host: what code in the sandbox can call, and what it cannot."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sandbox_kernel import Sandbox

CALLS: list[Any] = []


def query(sql: str, *, limit: int = 3) -> pd.DataFrame:
    """Rows of the warehouse."""
    CALLS.append((sql, limit))
    return pd.DataFrame({"sql": [sql] * limit})


async def fail_later(kind: str) -> None:
    fail(kind)


async def later(value: Any) -> Any:
    await asyncio.sleep(0.01)
    return value


class OwnError(LookupError):
    """No kind of Python's own."""


def fail(kind: str) -> None:
    raise {
        "key": KeyError("no table 'x'"), "own": OwnError("own"), "exit": SystemExit("now"),
        "value": ValueError("bad"), "stop": StopIteration("no more"), "close": GeneratorExit("over"),
        "cancel": asyncio.CancelledError("gone"), "base": BaseException("odd"),
        "unicode": UnicodeDecodeError("utf-8", b"x", 0, 1, "odd"),
    }[kind]  # fmt: skip


MODULES = {
    "host": {
        "query": query, "later": later, "fail": fail, "fail_later": fail_later, "VERSION": 3,
        "TABLE": pd.Series([1, 2]),
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with Sandbox(modules=MODULES) as box:
        yield box


def test_functions_and_values(box: Sandbox) -> None:
    code = "import host\nfrom host import query\n(query('select 1', limit=2).shape, host.VERSION, host.TABLE.sum())"
    ex = box.run_code(code)
    assert ex.success and ex.results[0].text in ("((2, 1), 3, 3)", "((2, 1), 3, np.int64(3))")
    assert CALLS[-1] == ("select 1", 2)
    assert box.run_code("host.later([1, {'a': 2}])").results[0].text == "[1, {'a': 2}]"
    assert "Rows of the warehouse." in box.run_code("help(host.query)").stdout
    assert "query(sql: str, *, limit: int = 3)" in box.run_code("print(host.query.__doc__)").stdout.replace("'", "")


@pytest.mark.parametrize("name", ["call", "value", "error", "arguments", "print", "_x"])
def test_any_name_will_do_for_a_function(box: Sandbox, name: str) -> None:
    with_one = {"named": {name: lambda *given, **named: [list(given), named]}}
    ex = box.run_code(f"import named\nnamed.{name}(1, b=2)", modules=with_one)
    assert ex.success and ex.results[0].text == "[[1], {'b': 2}]"


def test_large_arguments_and_values(box: Sandbox) -> None:
    code = "import numpy as np\nx = np.arange(1_000_000.0)\nimport host\ny = host.later(x)\nbool((x == y).all())"
    assert box.run_code(code).results[0].text == "True"
    assert (box["y"] == np.arange(1_000_000.0)).all()


@pytest.mark.parametrize(
    ("kind", "name", "text"),
    [("key", "KeyError", "no table"), ("own", "LookupError", "own"), ("exit", "RuntimeError", "SystemExit: now"),
     ("value", "ValueError", "bad"), ("unicode", "RuntimeError", "UnicodeDecodeError: ")],
)  # fmt: skip
def test_exceptions_arrive_as_python_s_own_with_their_text_only(box: Sandbox, kind: str, name: str, text: str) -> None:
    ex = box.run_code(f"import host\nhost.fail({kind!r})")
    assert ex.error is not None and ex.error.name == name and text in ex.error.value
    assert __file__ not in ex.error.traceback and "sandbox_kernel" not in ex.error.traceback
    box.run_code("import sys\ne = sys.last_value\nparts = [repr(e.__cause__), repr(e.__context__), repr(vars(e))]")
    assert box["parts"] == ["None", "None", "{}"]


@pytest.mark.parametrize(
    ("kind", "name", "text"),
    [("stop", "StopIteration", "no more"), ("close", "RuntimeError", "over"), ("cancel", "RuntimeError", "gone"),
     ("base", "RuntimeError", "odd")],
)  # fmt: skip
def test_whatever_a_function_raises_the_cell_has_an_answer(box: Sandbox, kind: str, name: str, text: str) -> None:
    """Else it would wait for ever: while a function of the host works its clock stands still."""
    ex = box.run_code(f"import host\nhost.fail({kind!r})")
    assert ex.error is not None and ex.error.name == name and text in ex.error.value
    ex = box.run_code(f"host.fail_later({kind!r})")
    assert ex.error is not None and ex.error.name == "RuntimeError"


def test_more_calls_at_a_time_than_there_may_be_are_refused(box: Sandbox) -> None:
    refused = threading.Event()

    async def wait() -> None:
        while not refused.is_set():
            await asyncio.sleep(0.01)

    def told(text: str) -> None:
        if "at a time" in text:
            refused.set()

    code = "import slow, threading\ndef ask():\n    try: slow.wait()\n    except RuntimeError as e: print(e)\n"
    code += "threads = [threading.Thread(target=ask) for _ in range(70)]\n"
    ex = box.run_code(
        code + "[t.start() for t in threads]; [t.join() for t in threads]", modules={"slow": {"wait": wait}},
        on_stdout=told,
    )  # fmt: skip
    assert ex.success and refused.is_set() and box.run_code("host.later(1)").success


def test_what_cannot_pass_is_a_type_error_in_the_cell(box: Sandbox) -> None:
    ex = box.run_code("import host\nhost.query(lambda: 0)")
    assert ex.error is not None and ex.error.name == "TypeError" and "function" in ex.error.value
    with Sandbox(modules={"host": {"give": lambda: threading.Lock()}}) as other:
        ex = other.run_code("import host\nhost.give()")
        assert ex.error is not None and ex.error.name == "TypeError" and "lock" in ex.error.value


def test_values_are_read_only(box: Sandbox) -> None:
    for code in ("host.VERSION = 4", "del host.VERSION", "host.new = 1"):
        ex = box.run_code(f"import host\n{code}")
        assert ex.error is not None and ex.error.name == "AttributeError" and "read-only" in ex.error.value
    assert box.run_code("host.VERSION").results[0].text == "3"


def test_several_threads_call_at_once(box: Sandbox) -> None:
    code = "import host\nfrom concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(8) as pool:\n"
    ex = box.run_code(code + "    found = list(pool.map(host.later, range(40)))\nfound == list(range(40))")
    assert ex.success and ex.results[0].text == "True"


def test_a_fork_cannot_call(box: Sandbox) -> None:
    code = "import host, os, sys\npid = os.fork()\n"
    code += "if not pid:\n    try: host.later(1)\n    except RuntimeError as e: print(e)\n"
    ex = box.run_code(code + "    sys.stdout.flush(); os._exit(0)\nos.waitpid(pid, 0)")
    assert "forked" in ex.stdout and box.run_code("host.later(1)").success


def test_the_host_s_time_is_not_the_cell_s() -> None:
    with Sandbox(modules={"host": {"wait": lambda s: time.sleep(s)}}) as box:
        ex = box.run_code("import host\nhost.wait(1.0)\n'done'", timeout=0.5)
        assert ex.success and ex.duration_s >= 1.0
        ex = box.run_code("import time\nhost.wait(0.1)\ntime.sleep(60)", timeout=0.5)
        assert ex.timed_out and ex.duration_s < 30


def test_an_interrupt_ends_the_wait() -> None:
    started = threading.Event()

    def wait() -> None:
        started.set()
        time.sleep(1.0)

    async def forever() -> None:
        started.set()
        await asyncio.sleep(60)

    with Sandbox(modules={"host": {"wait": wait, "forever": forever}}) as box:
        for name in ("wait", "forever"):
            started.clear()
            timer = threading.Thread(target=lambda: (started.wait(), time.sleep(0.1), box.interrupt()))
            timer.start()
            ex = box.run_code(f"import host\nkept = 1\nhost.{name}()")
            timer.join()
            assert ex.error is not None and ex.error.name == "KeyboardInterrupt" and ex.duration_s < 30
        assert box["kept"] == 1


def test_modules_of_one_cell_are_gone_afterwards(box: Sandbox) -> None:
    ex = box.run_code("import extra, host\n(extra.f(2), host.VERSION)",
                      modules={"extra": {"f": lambda x: x + 1}, "host": {"VERSION": 9}})  # fmt: skip
    assert ex.results[0].text == "(3, 9)"
    ex = box.run_code("extra.f(2)")
    assert ex.error is not None and ex.error.name == "AttributeError" and "no function 'f' now" in ex.error.value
    ex = box.run_code("import extra")
    assert ex.error is not None and ex.error.name == "ModuleNotFoundError"
    assert box.run_code("import host\n(host.VERSION, host.query('x').shape)").results[0].text == "(3, (3, 1))"


def test_a_new_process_has_the_modules_too() -> None:
    with Sandbox(modules=MODULES) as box:
        box.run_code("import os; os._exit(1)")
        assert box.run_code("import host\nhost.VERSION").results[0].text == "3"
        box.restart()
        assert box.run_code("import host\nhost.later(4)").results[0].text == "4"


def test_a_function_cannot_use_the_sandbox_that_waits_for_it() -> None:
    boxes: list[Sandbox] = []

    def nested() -> Any:
        return boxes[0].run_code("1").text()

    def other() -> Any:
        return boxes[1].run_code("6 * 7").text()

    with Sandbox(modules={"host": {"nested": nested, "other": other}}) as first, Sandbox() as second:
        boxes += [first, second]
        ex = first.run_code("import host\nhost.nested()")
        assert ex.error is not None and ex.error.name == "RuntimeError" and "waits for it" in ex.error.value
        assert first.run_code("host.other()").results[0].text == "'42'"


@pytest.mark.parametrize(
    "modules",
    [{"os": {}}, {"a.b": {}}, {"sandbox_kernel": {}}, {"host": {"not a name": 1}}, {"host": {"__doc__": 1}},
     {"class": {}}, {"host": {1: 2}}],
)  # fmt: skip
def test_names_that_cannot_be_used(modules: Any) -> None:
    with pytest.raises(ValueError):
        Sandbox(modules=modules)
