"""One piece of code in a sandbox of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..policy import LEVELS
from . import in_process
from .core import PolicyLike
from .execution import Execution, ExecutionError, Result, plain_text
from .sync import Sandbox


@dataclass
class ExecutionResult:
    """What `execute_python` gives.

    Attributes:
        success: it ran to its end, or left with exit code 0, and what ``verify`` says holds.
        stdout, stderr: what was printed; the traceback of an error is part of the latter.
        exit_code: as of a program: 0, 1 after an exception, what it gave to ``sys.exit``, minus the number of the
            signal that ended it.
        timed_out: its time was up.
        cpu_time: of all its processes, in seconds.
        peak_memory_kb: the most that it was seen to hold.
        blocked_imports: modules that rules for code refused to it.
        returned, dropped: as of `Execution`.
        error: None when it ran to its end.
        results: displays and the value of the last expression.
        verified: whether ``verify`` ran to its end; None without it.
        verification_error: why it did not.
        level: the isolation level that was had.
    """

    success: bool
    stdout: str
    stderr: str
    exit_code: int
    timed_out: bool
    cpu_time: float
    peak_memory_kb: int
    blocked_imports: list[str]
    returned: dict[str, Any] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    error: ExecutionError | None = None
    results: list[Result] = field(default_factory=list)
    verified: bool | None = None
    verification_error: str = ""
    level: str = ""


def execute_python(
    code: str, *, timeout: float = 5, level: str = "auto", inputs: Mapping[str, Any] | None = None,
    returns: Iterable[str] = (), verify: str | None = None, policy: PolicyLike = "assistant",
    strategy: str | None = None,
) -> ExecutionResult:  # fmt: skip
    """Run code in a fresh sandbox, which is gone afterwards.

    Args:
        code: as in a notebook.
        timeout: seconds.
        level: the isolation level; one that cannot be had is an error. "in-process" is no sandbox: it runs code that is
            trusted in this process.
        inputs: variables that it finds.
        returns: variables to fetch afterwards.
        verify: code that runs when it has ended, in another process, with the inputs and what was returned as
            variables, and ``stdout`` as a text: ``"assert total == 6"``.
        policy: as of `Sandbox`.
        strategy: another name for ``level``.

    Raises:
        ValueError: there is no such level.
        IsolationUnavailable: it cannot be had here.
        FrameRefused: one of the inputs cannot pass.
    """
    level, returns = strategy or level, tuple(returns)
    if level not in LEVELS:
        raise ValueError(f"{level!r} is no isolation level; there are {', '.join(LEVELS)}")
    if level == "in-process":
        execution, blocked = in_process.run(code, timeout=timeout, inputs=inputs or {}, returns=returns)
        result = _result(execution, blocked, level)
        if verify is not None:
            given = {**(inputs or {}), **execution.returned, "stdout": execution.stdout}
            _verified(result, in_process.run(verify, timeout=timeout, inputs=given, returns=())[0])
        return result
    with Sandbox(policy, level=None if level == "auto" else level, timeout=timeout) as box:
        execution = box.run_code(code, inputs=inputs, returns=returns)
        result = _result(execution, execution.blocked_imports, str(box.status()["level"]))
        if verify is not None:
            box.restart()
            given = {**(inputs or {}), **execution.returned, "stdout": execution.stdout}
            _verified(result, box.run_code(verify, inputs=given))
    return result


def _result(execution: Execution, blocked: list[str], level: str) -> ExecutionResult:
    stderr, error = execution.stderr, execution.error
    if error is not None and error.name != "SystemExit":
        stderr += plain_text(error.traceback or f"{error.name}: {error.value}").rstrip("\n") + "\n"
    return ExecutionResult(
        success=execution.exit_code == 0, stdout=execution.stdout, stderr=stderr, exit_code=execution.exit_code,
        timed_out=execution.timed_out, cpu_time=execution.cpu_time_s,
        peak_memory_kb=execution.peak_memory_bytes // 1024, blocked_imports=blocked, returned=execution.returned,
        dropped=execution.dropped, error=error, results=execution.results, level=level,
    )  # fmt: skip


def _verified(result: ExecutionResult, execution: Execution) -> None:
    result.verified = execution.success
    if execution.error is not None:
        result.verification_error = f"{execution.error.name}: {execution.error.value}"
    result.success = result.success and result.verified
