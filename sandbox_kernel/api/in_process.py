"""Level "in-process": code in this very process. Guard rails for code that is trusted, and no sandbox."""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import io
import resource
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from .execution import Execution, ExecutionError

# What a script that only computes has no use for, and what starts programs, opens connections or writes memory.
BLOCKED = frozenset({
    "subprocess", "ctypes", "multiprocessing", "socket", "ssl", "http", "urllib", "requests", "ftplib", "smtplib",
    "telnetlib", "asyncio", "signal", "fcntl", "pty", "shutil", "mmap", "resource", "gc",
})  # fmt: skip
_END_S = 1.0


class _TimedOut(BaseException):
    """Raised in the thread that runs too long."""


def run(
    code: str, *, timeout: float | None, inputs: Mapping[str, Any], returns: Sequence[str]
) -> tuple[Execution, list[str]]:
    """Run code; what was done, and the imports that were refused.

    Standard output and error of the whole process are taken over meanwhile. Code that ignores its time limit, or waits
    in C, goes on in its thread.
    """
    execution = Execution(execution_count=1)
    blocked: list[str] = []
    names: dict[str, Any] = {"__name__": "__main__", **inputs}
    names["__builtins__"] = {**vars(builtins), "__import__": _guarded(names, blocked)}
    out, err = io.StringIO(), io.StringIO()

    def work() -> None:
        began = time.thread_time()
        try:
            exec(compile(code, "<code>", "exec", dont_inherit=True), names)  # noqa: S102 - what this level is
        except _TimedOut:
            pass
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else int(error.code is not None)
            execution.error = ExecutionError("SystemExit", str(error.code or 0)) if status else None
            execution.exit_code = status
        except BaseException as error:
            trace = error.__traceback__.tb_next if error.__traceback__ is not None else None
            text = "".join(traceback.format_exception(type(error), error, trace))
            execution.error = ExecutionError(type(error).__name__, str(error), text)
            execution.exit_code = 1
        finally:
            execution.cpu_time_s = time.thread_time() - began

    thread = threading.Thread(target=work, name="in-process", daemon=True)
    began = time.monotonic()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        thread.start()
        thread.join(timeout)
        if thread.is_alive():
            execution.timed_out = True
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(_TimedOut))
            thread.join(_END_S)
            execution.error = ExecutionError("TimeLimit", f"The code was ended after {timeout:g} s.")
            execution.exit_code = -9
    execution.duration_s = time.monotonic() - began
    execution.peak_memory_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    execution.logs.stdout, execution.logs.stderr = [out.getvalue()], [err.getvalue()]
    for name in returns:
        if name in names:
            execution.returned[name] = names[name]
        else:
            execution.dropped[name] = f"there is no variable {name!r}"
    return execution, blocked


def _guarded(names: dict[str, Any], blocked: list[str]) -> Any:
    """``__import__`` that refuses some modules to the code itself, not to the modules that it imports."""

    def guarded(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        if globals is names and name.partition(".")[0] in BLOCKED:
            blocked.append(name)
            raise PermissionError(f"importing {name} is not allowed at the level in-process")
        return builtins.__import__(name, globals, locals, fromlist, level)

    return guarded



