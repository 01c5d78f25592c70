"""For smolagents: what runs the code of a ``CodeAgent``.

    from smolagents import CodeAgent
    from sandbox_kernel.adapters.smolagents import SandboxExecutor

    with SandboxExecutor(timeout=30) as executor:
        CodeAgent(tools=[search], model=model, executor=executor).run("...")

The code runs in the sandbox, the tools in this process: they keep their keys and their network, and what they are
called with and return are copies that have passed the frame gate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from smolagents.local_python_executor import CodeOutput, InterpreterError, PythonExecutor

from ..api import Execution, Sandbox
from ..api.asked import PolicyLike
from ..api.execution import plain_text, shortened
from ..errors import SandboxError

_MODULE = "smolagents_tools"
_FINAL = "final_answer"
_LOG_CHARS = 50_000  # as of the framework's own executor
# A cell of its own for each set of tools. The code may change all of it, and gains nothing: it could call the module.
_DEFINITION = """\
def _define(name, told):
    import {module}
    def tool(*arguments, **named):
        value = {module}.call(name, arguments, named)
        if name == {final!r}:
            raise _FinalAnswer
        return value
    tool.__name__ = tool.__qualname__ = name
    tool.__doc__ = told
    return tool
class _FinalAnswer(BaseException):
    "The answer has been given: the rest of the cell is not run."
"""


class SandboxExecutor(PythonExecutor):
    """Runs an agent's code in one sandbox; variables live from step to step, and from run to run.

    Args:
        policy, level, workspace: as of `Sandbox`.
        timeout: seconds for each step; None: the policy's ``limits.cell_time``.
        log_chars: of what a step prints the agent gets so many characters, head and tail.

    Raises:
        IsolationUnavailable: the level cannot be had here.
    """

    def __init__(
        self, policy: PolicyLike = "assistant", *, level: str | None = None, workspace: str | Path | None = None,
        timeout: float | None = None, log_chars: int = _LOG_CHARS,
    ) -> None:  # fmt: skip
        self._tools: dict[str, Callable[..., Any]] = {}
        self._answers: list[Any] = []
        self._log_chars = log_chars
        self.state: dict[str, Any] = {}  # (the agent looks into it for what a step printed that then failed)
        self.sandbox = Sandbox(
            policy, level=level, workspace=workspace, timeout=timeout, modules={_MODULE: {"call": self._call}}
        )

    # ------------------------------------------------------------ what the agent calls

    def send_tools(self, tools: Mapping[str, Callable[..., Any]]) -> None:
        """Make the agent's tools, and the agents that it manages, known to its code.

        Raises:
            ValueError: a name cannot be a function's.
        """
        for name in tools:
            if not name.isidentifier():
                raise ValueError(f"{name!r} cannot be the name of a tool")
        self._tools = dict(tools)
        self._define()

    def send_variables(self, variables: Mapping[str, Any]) -> None:
        """Set variables of the session to copies of these values.

        Raises:
            FrameRefused: one is of a type that cannot pass.
        """
        for name, value in variables.items():
            self.sandbox.put(name, value)

    def __call__(self, code_action: str) -> CodeOutput:
        """Run one step.

        Raises:
            InterpreterError: it ended with an error; the text is what its author has to read.
        """
        self._answers.clear()
        execution = self.sandbox.run_code(code_action)
        if execution.state == "lost":
            self._define()
        logs = self.state["_print_outputs"] = self._logs(execution)
        if self._answers:
            return CodeOutput(output=self._answers[0], logs=logs, is_final_answer=True)
        if execution.error is not None:
            raise InterpreterError(shortened(_error_text(execution), self._log_chars))
        return CodeOutput(output=self._output(execution), logs=logs, is_final_answer=False)

    def cleanup(self) -> None:
        """End the sandbox; idempotent. (`CodeAgent.cleanup` calls it.)"""
        self.sandbox.close()

    def __enter__(self) -> SandboxExecutor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cleanup()

    # ------------------------------------------------------------ inside

    def _call(self, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """A tool, called by the code. All three are the code's words."""
        tool = self._tools.get(name) if isinstance(name, str) else None
        if tool is None:
            raise NameError(f"there is no tool {name!r}")
        value = tool(*arguments, **named)
        if name == _FINAL:
            self._answers.append(value)
            return None
        return value

    def _define(self) -> None:
        told = {name: str(getattr(tool, "description", "") or "") for name, tool in self._tools.items()}
        lines = [f"{name} = _define({name!r}, {text!r})" for name, text in told.items()]
        execution = self.sandbox.run_code("\n".join([_DEFINITION.format(module=_MODULE, final=_FINAL), *lines]))
        if execution.error is not None:
            raise SandboxError(f"The tools cannot be made known: {execution.error.name}: {execution.error.value}")

    def _logs(self, execution: Execution) -> str:
        parts = [execution.stdout, execution.stderr]
        parts += [result.text or "" for result in execution.results if not result.is_main_result]
        return shortened("\n".join(plain_text(part).rstrip("\n") for part in parts if part), self._log_chars)

    def _output(self, execution: Execution) -> Any:
        """The value of the last expression; its text where the value cannot pass."""
        main = next((result for result in execution.results if result.is_main_result), None)
        if main is None:
            return None
        if main.data is not None:
            return main.data
        try:
            return self.sandbox.get(f"_{execution.execution_count}")
        except (SandboxError, KeyError):
            return plain_text(main.text or "")


def _error_text(execution: Execution) -> str:
    error = execution.error
    assert error is not None  # noqa: S101
    last = plain_text(f"{error.name}: {error.value}")
    trace = plain_text(error.traceback)
    return trace if last in trace else f"{trace}\n{last}".strip()
