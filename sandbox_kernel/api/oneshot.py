"""One piece of code in a sandbox of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import frames
from ..arguments import check_arguments, one_of
from ..code_rules import CodeRules, check
from ..code_rules.rules import refusal
from ..errors import CellError, FrameRefused, SandboxError
from ..policy import LEVELS
from . import in_process
from .asked import PolicyLike
from .core import AsyncSandbox
from .execution import Execution, ExecutionError, Result, plain_text
from .outcome import failed
from .sync import Sandbox
from .values import variable
from .verification import Verification, called, wanted


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
        verified: whether ``verify`` ran to its end; None without it. It is not run when the code did not end well.
        verification_error: why it did not.
        level: the isolation level that was had.
        value: what ``function`` returned.
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
    value: Any = None


@check_arguments
def execute_python(
    code: str, *, timeout: float = 5, level: str = "auto", inputs: Mapping[str, Any] | None = None,
    returns: Iterable[str] = (), verify: str | None = None, policy: PolicyLike = "assistant",
    strategy: str | None = None, function: str | None = None, args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None, functions_only: bool = False,
) -> ExecutionResult:  # fmt: skip
    """Run code in a fresh sandbox, which is gone afterwards.

    Args:
        code: as in a notebook.
        timeout: seconds, for the code, for the call of ``function`` and for ``verify``, each.
        level: the isolation level; one that cannot be had is an error. "in-process" is no sandbox: it runs code that is
            trusted in this process.
        inputs: variables that it finds.
        returns: variables to fetch afterwards.
        verify: code that runs when it has ended, in another sandbox that it has never touched: ``"assert total == 6"``.
            Its variables are copies of the inputs as they were given, of what was returned, and of other variables of
            the code that it reads; ``stdout`` is a text, ``result`` what ``function`` returned. Functions of the code
            that it calls run where the code ran. Built-in names are Python's own, whatever the code defines.
        policy: as of `Sandbox`.
        strategy: another name for ``level``.
        function: name of a function that the code defines, to be called with ``args`` and ``kwargs`` when the code has
            ended.
        args: what it is called with. Any value of `Sandbox.put` will do, a DataFrame for example.
        kwargs: the same by name.
        functions_only: refuse code with anything at top level but imports, definitions and a docstring.

    Raises:
        ValueError: there is no such level, or a name cannot be used.
        SyntaxError: ``verify`` is not Python.
        IsolationUnavailable: the level cannot be had here.
        FrameRefused: one of the inputs or arguments cannot pass.
    """
    level, returns, inputs = strategy or level, tuple(returns), dict(inputs or {})
    one_of("level", level, LEVELS)
    if function is not None:
        variable(function)
        frames.dumps((tuple(args), dict(kwargs or {})))  # what cannot pass is told before anything is started
    reads = [] if verify is None else wanted(verify, [*inputs, *returns, "stdout", "result"])
    execution = Execution()
    refused = refusal(check(code, CodeRules(functions_only=True))) if functions_only else None
    if refused is not None:
        failed(execution, refused)
        result = _result(execution, [], level)
        return result if verify is None else _unverified(result)
    if level == "in-process":
        if function is not None:
            raise ValueError("a function is called in a sandbox only")
        execution, blocked = in_process.run(code, timeout=timeout, inputs=inputs, returns=[*returns, *reads])
        given = _split(execution, reads)
        result = _result(execution, blocked, level)
        if verify is None or not result.success:
            return result if verify is None else _unverified(result)
        given |= {**inputs, **execution.returned, "stdout": execution.stdout}
        return _verified(result, in_process.run(verify, timeout=timeout, inputs=given, returns=())[0])
    named = None if level == "auto" else level
    with contextlib.ExitStack() as stack:
        judge = None
        if verify is not None:  # it starts beside the sandbox that it is to judge
            judge = stack.enter_context(Verification(policy, level=named, timeout=timeout))
        box = stack.enter_context(Sandbox(policy, level=named, timeout=timeout))
        execution = box.run_code(code, inputs=inputs, returns=[*returns, *reads])
        given = _split(execution, reads)
        value = None
        if function is not None and execution.exit_code == 0:
            value = box._wait(_called(box._box, execution, function, args, kwargs or {}))
            given["result"] = value
        result = _result(execution, execution.blocked_imports, str(box.status()["level"]))
        result.value = value
        if judge is None or verify is None or not result.success:
            return result if judge is None else _unverified(result)
        functions = sorted(called(verify) & set(reads) - given.keys())
        given |= {**inputs, **execution.returned, "stdout": execution.stdout}
        return _verified(result, judge.run(verify, given, box, functions))


def _split(execution: Execution, reads: Sequence[str]) -> dict[str, Any]:
    """Of what was fetched the part that only the verification reads, taken out."""
    for name in reads:
        execution.dropped.pop(name, None)
    return {name: execution.returned.pop(name) for name in reads if name in execution.returned}


async def _called(
    box: AsyncSandbox, execution: Execution, function: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """What the function returned; what it printed, and what went wrong, is added to the execution."""
    box._recorder.begin(execution, lambda kind, value: None)
    try:
        return await box.call(function, *args, **kwargs)
    except CellError as error:
        execution.error = ExecutionError(error.name, error.value, error.traceback)
        execution.exit_code = 1
    except FrameRefused as error:  # of what came back: the arguments have passed before
        failed(execution, error)
        execution.exit_code = 1
    except SandboxError as error:
        failed(execution, error)
    finally:
        box._recorder.end()
    return None


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


def _verified(result: ExecutionResult, execution: Execution) -> ExecutionResult:
    result.verified = execution.success
    if execution.error is not None:
        result.verification_error = f"{execution.error.name}: {execution.error.value}"
    result.success = result.success and result.verified
    return result


def _unverified(result: ExecutionResult) -> ExecutionResult:
    result.verified = False
    result.verification_error = "The verification was not run, because the code did not end well."
    return result
