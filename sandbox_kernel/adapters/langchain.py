"""For LangChain: the sandbox as a tool. It needs langchain-core only.

    from sandbox_kernel.adapters.langchain import SandboxTool

    with SandboxTool(timeout=30) as python:
        agent = create_agent(model, tools=[python])
"""

from __future__ import annotations

import base64
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Literal

from langchain_core.tools import BaseTool
from pydantic import BaseModel, Field, PrivateAttr

from ..api import Execution, Sandbox
from ..api.asked import PolicyLike

_DESCRIPTION = (
    "Run Python in a sandbox, as a notebook cell. Variables, imports and files stay from one call to the next. The "
    "value of the last expression is shown, and what is printed. The network and the machine's files are out of reach."
)


class RunPython(BaseModel):
    """What the tool takes."""

    code: Annotated[str, Field(description="Python source", max_length=1_000_000)]


class SandboxTool(BaseTool):
    """One sandbox whose variables live from call to call: make one for each conversation, and close it.

    The message to the model is text, or with ``images=True`` a list of text and images; its ``artifact`` is the
    `Execution`, for the program. An error in the code is such a message, too, and raises nothing.

    Args:
        policy, level, workspace, timeout: as of `Sandbox`.
        text_chars: the longest text of a message; of more head and tail are given.
        images: whether the model can look at figures.

    Raises:
        IsolationUnavailable: the level cannot be had here.
    """

    name: str = "python"
    description: str = _DESCRIPTION
    args_schema: Any = RunPython
    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    text_chars: int = 20_000
    images: bool = False
    _sandbox: Sandbox = PrivateAttr()

    def __init__(
        self, policy: PolicyLike = "assistant", *, level: str | None = None, workspace: str | Path | None = None,
        timeout: float | None = None, **fields: Any,
    ) -> None:  # fmt: skip
        super().__init__(**fields)
        self._sandbox = Sandbox(policy, level=level, workspace=workspace, timeout=timeout)

    @property
    def sandbox(self) -> Sandbox:
        """What runs the code: to put data in, or to look at variables."""
        return self._sandbox

    def _run(self, code: str) -> tuple[str | list[dict[str, Any]], Execution]:
        execution = self._sandbox.run_code(code)
        text = execution.text(self.text_chars) or "(no output)"
        pictures = [("image/png", r.png) if r.png is not None else ("image/jpeg", r.jpeg) for r in execution.results]
        shown = [(kind, data) for kind, data in pictures if data is not None]
        if not self.images or not shown:
            return text, execution
        blocks: list[dict[str, Any]] = [{"type": "text", "text": text}]
        for kind, data in shown:
            blocks.append({"type": "image", "base64": base64.b64encode(data).decode(), "mime_type": kind})
        return blocks, execution

    def close(self) -> None:
        """End the sandbox; idempotent."""
        self._sandbox.close()

    def __enter__(self) -> SandboxTool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
