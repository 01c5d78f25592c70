"""Code in a sandbox of its own, at every level, and sandboxes that are ready before they are needed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import pytest

from sandbox_kernel import Sandbox, SandboxPool, execute_python, linux
from sandbox_kernel.errors import IsolationUnavailable

from ..waiting import children, wait_for

LEVELS = ("full", "seccomp+landlock", "landlock", "seccomp", "subprocess", "in-process")


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_by_its_name(level: str) -> None:
    code = "import sys\nprint('out', x)\nprint('err', file=sys.stderr)\ny = x + 1"
    result = execute_python(code, strategy=level, inputs={"x": 1}, returns=["y", "z"], timeout=30)
    assert (result.success, result.stdout, result.stderr, result.exit_code) == (True, "out 1\n", "err\n", 0)
    assert result.level == level and result.returned == {"y": 2} and set(result.dropped) == {"z"}
    assert not result.timed_out and result.peak_memory_kb > 1000 and result.cpu_time >= 0
    failed = execute_python("def f():\n    raise ValueError('boo')\nf()", level=level)
    assert not failed.success and failed.exit_code == 1 and "ValueError: boo" in failed.stderr
    assert "raise ValueError" in failed.stderr or level == "in-process"


@pytest.mark.parametrize(("code", "status"), [("import sys; sys.exit(3)", 3), ("raise SystemExit", 0),
                                              ("import os; os._exit(4)", 4), ("import os; os.kill(os.getpid(), 9)", -9),
                                              ("raise SystemExit('bye')", 1), ("1/0", 1)])  # fmt: skip
def test_exit_codes_are_a_program_s(code: str, status: int) -> None:
    result = execute_python(code, policy={"recovery": {"checkpoints": "off"}})
    assert (result.exit_code, result.success) == (status, status == 0)


@pytest.mark.parametrize("level", ["auto", "in-process"])
def test_the_time_is_up(level: str) -> None:
    result = execute_python("print('begun')\nwhile True: pass", timeout=0.3, level=level)
    assert result.timed_out and not result.success and result.exit_code == -9 and result.stdout == "begun\n"
    assert result.error is not None and result.error.name == "TimeLimit"


def test_auto_is_a_sandbox_and_nothing_is_left(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("planted")
    before = children()
    result = execute_python(f"print(open({str(secret)!r}).read())")
    assert not result.success and "planted" not in result.stdout and result.level in ("full", "seccomp+landlock")
    wait_for(lambda: children() <= before)


def test_a_level_is_never_replaced_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"level is .fully., and must be one of"):
        execute_python("1", level="fully")

    monkeypatch.setattr(linux, "landlock_abi", lambda: 0)  # a kernel without Landlock
    with pytest.raises(IsolationUnavailable, match="landlock"):
        execute_python("1", level="seccomp+landlock")
    assert execute_python("1", level="seccomp").success


def test_rules_for_code_are_told() -> None:
    policy = {"code": {"imports": {"deny": ["ctypes"]}}}
    result = execute_python("import ctypes", policy=policy)
    assert not result.success and result.blocked_imports == ["ctypes"]
    result = execute_python("import json, csv\ntry: import subprocess\nexcept PermissionError: print('no')",
                            level="in-process")  # fmt: skip
    assert result.success and result.blocked_imports == ["subprocess"] and result.stdout == "no\n"


@pytest.mark.parametrize("level", ["auto", "in-process"])
def test_verification_runs_apart(level: str) -> None:
    code = "total = df['a'].sum()\nimport builtins\nbuiltins.abs = lambda x: 0\nprint(total)"
    inputs = {"df": pd.DataFrame({"a": [1, 2, 3]})}
    good = execute_python(code, inputs=inputs, returns=["total"], verify="assert total == 6 and stdout == '6\\n'",
                          level=level)  # fmt: skip
    assert good.success and good.verified is True, good.verification_error
    if level == "auto":
        spoilt = execute_python(code, inputs=inputs, returns=["total"], verify="assert abs(-1) == 1")
        assert spoilt.verified is True, "the code's changes do not reach its verification"
    bad = execute_python(code, inputs=inputs, returns=["total"], verify="assert total == 7, 'wrong'", level=level)
    assert not bad.success and bad.verified is False and bad.verification_error == "AssertionError: wrong"
    assert execute_python("1").verified is None


@pytest.fixture(autouse=True)
def _abs() -> object:
    import builtins

    before = builtins.abs
    yield
    builtins.abs = before


class TestPool:
    def test_everybody_gets_a_fresh_one(self) -> None:
        before = children(), {t.name for t in threading.enumerate()}
        with SandboxPool(2) as pool, ThreadPoolExecutor(3) as threads:

            def work(number: int) -> str | None:
                with pool.acquire() as box:
                    ex = box.run_code("'x' in globals()")
                    box.run_code(f"x = {number}")
                    return ex.results[0].text

            assert set(threads.map(work, range(6))) == {"False"}
        wait_for(lambda: children() <= before[0] and {t.name for t in threading.enumerate()} <= before[1])
        with pytest.raises(RuntimeError, match="closed"):
            pool.acquire()

    def test_what_was_taken_goes_on_after_the_pool(self) -> None:
        with SandboxPool(1, modules={"host": {"N": 4}}) as pool:
            box = pool.acquire()
        with box:
            assert box.run_code("import host\nhost.N").results[0].text == "4"

    def test_what_cannot_start_is_an_error_for_who_asks(self) -> None:
        with SandboxPool(1, level="in-process") as pool, pytest.raises(IsolationUnavailable):
            pool.acquire()
        with pytest.raises(ValueError, match="size"):
            SandboxPool(0)


def test_a_process_that_forks_can_use_its_own(tmp_path: Path) -> None:
    script = tmp_path / "host.py"
    script.write_text(
        "import os, sys\nfrom sandbox_kernel import Sandbox\nbox = Sandbox()\nbox.run_code('x = 1')\n"
        "pid = os.fork()\nif not pid:\n    with Sandbox() as own:\n        print(own.run_code('2').results[0].text)\n"
        "        sys.stdout.flush()\n    os._exit(0)\nassert os.waitpid(pid, 0)[1] == 0\n"
        "print(box.run_code('x').results[0].text)\nbox.close()\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=50, env={**os.environ})
    assert done.stdout.split() == ["2", "1"], done.stderr


def test_import_of_the_package_alone_is_cheap() -> None:
    code = "import sys, sandbox_kernel; print({'asyncio', 'msgspec', 'IPython', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=True)
    assert done.stdout.strip() == "set()"
    assert "Sandbox" in dir(__import__("sandbox_kernel")) and Sandbox.__module__ == "sandbox_kernel.api.sync"
