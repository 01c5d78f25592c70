"""Values and files in and out of a session, and what cannot pass."""

from __future__ import annotations

import datetime as dt
import gc
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.api.execution import plain_text
from sandbox_kernel.api.values import refusal
from sandbox_kernel.errors import CellError, FrameRefused, TimeLimit, WorkerLost
from sandbox_kernel.session.exchange import INLINE_BYTES

from ..waiting import wait_for
from .conftest import LEVELS

FRAME = pd.DataFrame(
    {"n": np.arange(6), "s": list("abcdef"), "t": pd.date_range("2024-01-01", periods=6, tz="Europe/Zurich"),
     "c": pd.Categorical(list("xyxyxy"))}, index=pd.Index(range(10, 16), name="id"),
)  # fmt: skip


@pytest.mark.parametrize("level", LEVELS)
def test_a_frame_there_and_back(level: str) -> None:
    with Sandbox(level=level) as box:
        box["df"] = FRAME
        assert box.run_code("df['n'] += 1; list(df.dtypes.astype(str))").success
        pd.testing.assert_frame_equal(box["df"], FRAME.assign(n=FRAME["n"] + 1))
        big = np.arange(INLINE_BYTES, dtype="f8")  # eight times what travels in a message
        box["big"] = big
        assert box.run_code("big[0] = 7; big.flags.writeable, float(big.sum())").results[0].text == (
            f"(True, {big.sum() + 7})"
        )
        back = box["big"]
        assert back[0] == 7 and back.flags.writeable and (back[1:] == big[1:]).all()
        assert big[0] == 0, "a copy"


@pytest.mark.parametrize(
    "value",
    [None, 1.5, 2**80, "text\u20ac", b"raw", [1, (2, {"k": {3, 4}})], dt.date(2024, 2, 29),
     pd.Series([1, None, 3], dtype="Int64"), "x" * (INLINE_BYTES + 1)],
)  # fmt: skip
def test_plain_values(sandbox: Sandbox, value: Any) -> None:
    sandbox["value"] = value
    back = sandbox["value"]
    assert type(back) is type(value)
    assert back.equals(value) if isinstance(value, pd.Series) else back == value


@pytest.mark.parametrize("extra", [-100, -1, 0, 1, 100])
def test_around_the_size_at_which_the_way_changes(sandbox: Sandbox, extra: int) -> None:
    value = os.urandom(INLINE_BYTES + extra)
    sandbox["value"] = value
    assert sandbox["value"] == value


def test_inputs_and_returns(sandbox: Sandbox) -> None:
    code = "total = df['n'].sum() + offset\nf = lambda: 0"
    ex = sandbox.run_code(code, inputs={"df": FRAME, "offset": 100}, returns=["total", "f", "missing"])
    assert ex.returned == {"total": 115} and set(ex.dropped) == {"f", "missing"}
    assert "function" in ex.dropped["f"] and "missing" in ex.dropped["missing"]
    ex = sandbox.run_code("made = 1\n1/0", returns=["made"])
    assert ex.returned == {"made": 1} and ex.error is not None
    with pytest.raises(FrameRefused, match="function"):
        sandbox.run_code("ran = True", inputs={"first": 1, "f": lambda: 0})
    for name in ("ran", "first"):
        with pytest.raises(KeyError, match=name):
            sandbox.get(name)


def test_inputs_that_never_arrive_leave_no_memory_behind(sandbox: Sandbox) -> None:
    large = b"x" * (INLINE_BYTES + 1)

    def held() -> int:
        return sum("/memfd:frame" in os.readlink(f"/proc/self/fd/{fd.name}") for fd in os.scandir("/proc/self/fd"))

    before = held()
    for inputs, returns, error in (
        ({"a": large, "b": lambda: 0}, [], FrameRefused), ({"a": large, "not a name": 1}, [], ValueError),
        ({"a": large}, ["not a name"], ValueError),
    ):  # fmt: skip
        with pytest.raises(error):
            sandbox.run_code("1", inputs=inputs, returns=returns)
        assert held() == before
    assert sandbox.run_code("1", inputs={"a": large, "b": large}).success and held() == before
    closed = Sandbox()
    closed.close()
    with pytest.raises(RuntimeError, match="closed"):
        closed.run_code("1", inputs={"a": large})
    assert held() == before


def test_a_table_as_a_result_comes_as_data(sandbox: Sandbox) -> None:
    ex = sandbox.run_code("import pandas as pd\npd.DataFrame({'a': [1, 2]})")
    assert ex.results[0].html and ex.results[0].data.to_dict("list") == {"a": [1, 2]}
    assert sandbox.run_code("pd.Series([1.5])").results[0].data[0] == 1.5
    assert sandbox.run_code("import numpy\nnumpy.ones(3)").results[0].data.sum() == 3
    assert sandbox.run_code("numpy.ones(8 << 20)").results[0].data is None, "too large to be sent unasked"
    assert sandbox.run_code("'text'").results[0].data is None


def test_what_is_not_there_or_cannot_pass(sandbox: Sandbox) -> None:
    with pytest.raises(KeyError, match="nothing"):
        sandbox["nothing"]
    with pytest.raises(FrameRefused, match="type function"):
        sandbox["f"] = lambda: 0
    assert sandbox.run_code("g = (i for i in range(3))").success
    with pytest.raises(FrameRefused, match="type generator"):
        sandbox["g"]
    for name in ("", "a b", "a.b", "1x", "__import__('os')"):
        with pytest.raises(ValueError, match="cannot be the name"):
            sandbox.put(name, 1)
        with pytest.raises(ValueError, match="cannot be the name"):
            sandbox.get(name)
    assert sandbox.run_code("1").state == "kept"


class TestCall:
    def test_a_coroutine_whose_first_step_was_lost_is_begun_again(self, sandbox: Sandbox) -> None:
        """What a handler of the cells raises between two steps of the loop takes the next one with it."""
        code = """
import gc
server = next(o for o in gc.get_objects() if type(o).__name__ == "Server" and hasattr(o, "_serve_rest"))
make, lost, ran = server._loop.create_task, [], []
class Lost:
    def done(self): return False
    def add_done_callback(self, callback): pass
def losing(coro, **options):
    if "_serve_rest" not in repr(coro) or lost: return make(coro, **options)
    lost.append(coro.close())
    server._loop.call_later(0.05, server._revive)
    return Lost()
server._loop.create_task = losing
async def f(x): ran.append(1); return x"""
        assert sandbox.run_code(code).success
        assert sandbox.call("f", 3, timeout=10) == 3 and sandbox["ran"] == [1] and sandbox["lost"] == [None]
        assert sandbox.run_code("server._loop.create_task = make").success

    def test_a_function_that_waits_beside_the_loop_it_is_called_in(self, sandbox: Sandbox) -> None:
        code = "import asyncio\nran = []\nasync def later(): ran.append(1)\n"
        code += "def start():\n    asyncio.get_running_loop().create_task(later())\n"
        code += "def future():\n    return asyncio.get_running_loop().run_in_executor(None, len, 'four')\n"
        code += "def printing():\n    print('said')"
        assert sandbox.run_code(code).success
        assert sandbox.call("start") is None and sandbox.call("future") == 4
        assert sandbox.call("printing") is None and sandbox["ran"] == [1]

    def test_values_in_and_out(self, sandbox: Sandbox) -> None:
        code = "def f(df, by, *, scale=1):\n    return df.groupby(by, observed=True)['n'].sum() * scale\n"
        code += "async def g(x):\n    import asyncio; await asyncio.sleep(0.01)\n    return [x]\n"
        code += "class Model:\n    def predict(self, x): return x * 2\nmodel = Model()"
        assert sandbox.run_code(code).success
        assert sandbox.call("f", FRAME, "c", scale=10).to_dict() == {"x": 60, "y": 90}
        assert sandbox.call("g", 5) == [5]
        assert sandbox.call("model.predict", np.arange(3)).tolist() == [0, 2, 4]

    def test_an_error_of_the_function(self, sandbox: Sandbox) -> None:
        assert sandbox.run_code("def broken(x):\n    return 1 / x\ndef fails(name): raise eval(name)('who')").success
        with pytest.raises(CellError, match="division by zero") as caught:
            sandbox.call("broken", 0)
        assert caught.value.name == "ZeroDivisionError" and "return 1 / x" in plain_text(caught.value.traceback)
        assert "sandbox_kernel" not in caught.value.traceback
        for name in ("KeyError", "FileNotFoundError"):
            with pytest.raises(CellError, match="who"):
                sandbox.call("fails", name)
        with pytest.raises(CellError, match="'nothing' is not defined"):
            sandbox.call("nothing")
        with pytest.raises(FrameRefused, match="function"):
            sandbox.call("broken", lambda: 0)
        assert sandbox.run_code("def gives(): return gives").success
        with pytest.raises(FrameRefused, match="function"):
            sandbox.call("gives")

    def test_the_answers_are_never_in_the_session(self, sandbox: Sandbox) -> None:
        """A grader's hidden cases: the submission sees one case at a time, and nothing of the expected results."""
        assert sandbox.run_code("seen = []\ndef solve(x):\n    seen.append(x)\n    return sorted(x)").success
        cases = [([3, 1], [1, 3]), ([], [])]
        assert all(sandbox.call("solve", given) == expected for given, expected in cases)
        assert sandbox["seen"] == [[3, 1], []]

    def test_limits_hold(self) -> None:
        with Sandbox({"limits": {"interrupt_grace": 30}}) as box:  # a busy machine takes its time
            box.run_code("import os, time\ndef slow(): time.sleep(60)\ndef die(): os._exit(1)\n"
                         "async def aslow():\n    import asyncio; await asyncio.sleep(60)")  # fmt: skip
            for name in ("slow", "aslow"):
                with pytest.raises(TimeLimit, match=r"timeout = 0\.2 s") as caught:
                    box.call(name, timeout=0.2)
                assert caught.value.state == "kept"
            with pytest.raises(WorkerLost):
                box.call("die")
            assert box.run_code("2").results[0].text == "2"


class TestFiles:
    def test_there_and_back(self, sandbox: Sandbox) -> None:
        sandbox.put_file("data/in.csv", "a,b\n1,2\n")
        assert sandbox.run_code("import pandas as pd\npd.read_csv('data/in.csv').to_csv('data/out.csv')").success
        assert sandbox.get_file("data/out.csv") == b",a,b\n0,1,2\n"
        assert sandbox.files("data") == {"in.csv": 8, "out.csv": 11}
        assert sandbox.files()["data"] == -1
        large = os.urandom(3 << 20)
        sandbox.put_file("large.bin", large)
        assert sandbox.get_file("large.bin") == large

    def test_names_are_meant_from_the_first_folder(self, sandbox: Sandbox) -> None:
        sandbox.run_code("import os, tempfile; os.chdir(tempfile.mkdtemp())")
        sandbox.put_file("first.txt", "1")
        assert "first.txt" in sandbox.files()

    def test_errors_are_python_s_own(self, sandbox: Sandbox) -> None:
        for call in (sandbox.get_file, sandbox.files):
            with pytest.raises(FileNotFoundError, match="nowhere"):
                call("nowhere")
        with pytest.raises(IsADirectoryError):
            sandbox.get_file(".")
        with pytest.raises(OSError):
            sandbox.put_file("/usr/new.txt", "x")

    def test_a_file_of_the_host_is_out_of_reach(self, sandbox: Sandbox, tmp_path: Any) -> None:
        secret = tmp_path / "secret.txt"
        secret.write_text("planted")
        with pytest.raises(OSError):
            sandbox.get_file(str(secret))
        sandbox.run_code(f"import os; os.symlink({str(secret)!r}, '/tmp/link.txt')")
        with pytest.raises(OSError):
            sandbox.get_file("/tmp/link.txt")


class TestSizes:
    def test_the_policy_s_limit_holds_both_ways(self) -> None:
        with Sandbox({"limits": {"frame": "1MiB"}}) as box:
            with pytest.raises(FrameRefused, match=r"limits\.frame"):
                box["x"] = bytes(2 << 20)
            box.run_code("x = bytes(2 << 20)")
            with pytest.raises(FrameRefused, match=r"limits\.frame"):
                box["x"]
            box["x"] = bytes(1000 << 10)
            assert len(box["x"]) == 1000 << 10

    def test_the_limit_on_files_is_no_limit_on_values(self) -> None:
        with Sandbox({"limits": {"file_size": "1MiB", "frame": "16MiB"}}) as box:
            box["x"] = np.arange(1 << 20)
            assert (box["x"] == np.arange(1 << 20)).all()
            assert box.run_code("open('/tmp/x', 'wb').write(bytes(2 << 20))").error is not None

    def test_what_is_no_longer_used_is_freed(self) -> None:
        policy = {"limits": {"memory": "600MiB", "frame": "256MiB"}, "recovery": {"checkpoints": "off"}}
        with Sandbox(policy) as box:
            count = "import numpy, os; len(os.listdir('/proc/self/fd'))"
            inside = int(box.run_code(count).results[0].text or "")
            for at in range(8):  # of each time 100 MB
                box["x"] = np.zeros(100 << 17)
                assert box["x"].nbytes == 100 << 20
                if at == 0:  # (what is opened once is there now)
                    gc.collect()
                    fds = len(os.listdir("/proc/self/fd"))
            wait_for(lambda: len(os.listdir("/proc/self/fd")) <= fds)
            assert int(box.run_code(count).results[0].text or "") <= inside + 1, "the variable that lives"


def test_waits_for_the_cell_that_runs() -> None:
    with Sandbox() as box, ThreadPoolExecutor(1) as pool:
        run = pool.submit(box.run_code, "import time; time.sleep(0.5); x = 3")
        wait_for(lambda: box.status()["state"] == "busy")
        assert box["x"] == 3 and run.result().success


def test_a_short_time_limit_for_code_is_none_for_values() -> None:
    with Sandbox(timeout=0.05, modules={"host": {"N": 1}}) as box:
        box["df"] = FRAME  # makes the sandbox import pandas
        pd.testing.assert_frame_equal(box["df"], FRAME)
        assert box.run_code("import time; time.sleep(5)").timed_out


def test_a_refused_value_says_what_can_cross() -> None:
    text = "A value of type a.A cannot pass the frame gate."
    error = refusal({"status": "error", "ename": "FrameRefused", "evalue": text})
    assert isinstance(error, FrameRefused) and str(error) == text and "DataFrames" in error.__notes__[0]
    text = "A value of 9 GiB is larger than 1 GiB."
    too_large = refusal({"status": "error", "ename": "FrameRefused", "evalue": text})
    assert not hasattr(too_large, "__notes__")


KEPT = """
import gc
import numpy as np
from sandbox_kernel.api.values import pack
from sandbox_kernel.errors import FrameRefused
def refused(array):
    try:
        pack((array, array.astype("M8[ns]")), 1000)
    except FrameRefused as error:
        kept = error  # a cycle: error, its traceback, this frame
for _ in range(20):
    refused(np.zeros(100_000))
    gc.collect()
print("alive")
"""


def test_an_exception_that_is_kept_does_not_crash_the_program() -> None:
    """Its frames hold the buffers of the value; Python crashes when it clears them in the wrong order."""
    done = subprocess.run([sys.executable, "-c", KEPT], capture_output=True, text=True, timeout=50)
    assert done.stdout == "alive\n", done.stderr
