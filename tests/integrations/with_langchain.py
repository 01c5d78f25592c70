"""Run in an environment that has langchain-core: a tool that a scripted model calls."""

from __future__ import annotations

import asyncio
import base64
import sys
from pathlib import Path
from typing import Any

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from sandbox_kernel import Execution
from sandbox_kernel.adapters.langchain import SandboxTool

OUTSIDE = Path(sys.argv[1])
PICTURE = base64.b64encode(
    base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    )
).decode()


def call(code: str) -> Any:
    return {"name": "python", "args": {"code": code}, "id": "call", "type": "tool_call"}


with SandboxTool(timeout=50) as python:
    assert python.args == {"code": {"description": "Python source", "maxLength": 1_000_000, "title": "Code",
                                    "type": "string"}}  # fmt: skip
    # A conversation: the model's lines are fixed, the answers are the sandbox's.
    look = f"open({str(OUTSIDE)!r}).read()"
    steps = ("x = [3, 1, 2]", "print(max(x)); sorted(x)", "y", look, "import os; os._exit(1)")
    model = GenericFakeChatModel(messages=iter([AIMessage("", tool_calls=[call(step)]) for step in steps]))
    messages: list[Any] = [HumanMessage("Sort them.")]
    answers = []
    for _ in steps:
        said = model.invoke(messages)
        (answer,) = [python.invoke(asked) for asked in said.tool_calls]
        assert isinstance(answer, ToolMessage) and answer.tool_call_id == "call"
        assert isinstance(answer.artifact, Execution)
        messages += [said, answer]
        answers.append(answer.content)
    assert answers[0] == "(no output)"
    assert answers[1] == "3\n[1, 2, 3]"
    assert "NameError: name 'y' is not defined" in answers[2]
    assert OUTSIDE.read_text() not in answers[3] and "Error" in answers[3]
    assert "were restored as they were after cell" in answers[4]
    assert messages[-1].artifact.state == "restored"

    assert python.invoke({"code": "x"}) == "[3, 1, 2]"
    assert python.invoke("len(x)") == "3"
    assert asyncio.run(python.ainvoke(call("x.append(9); x"))).content == "[3, 1, 2, 9]"
    for wrong in ({"code": 3}, {}, {"code": "x" * 1_000_001}):
        try:
            python.invoke(wrong)
        except ValueError as error:
            assert "validation error" in str(error)
        else:
            raise AssertionError(f"taken: {wrong}")
    python.sandbox["given"] = {"a": 1}
    assert python.invoke({"code": "given"}) == "{'a': 1}"

show = f"from IPython.display import display, Image; import base64\ndisplay(Image(base64.b64decode({PICTURE!r})))"
with SandboxTool(images=True, text_chars=500) as python:
    text, image = python.invoke(call(show)).content
    assert text["type"] == "text" and image["mime_type"] == "image/png"
    assert base64.b64decode(image["base64"]).startswith(b"\x89PNG")
    assert len(python.invoke({"code": "for i in range(2000): print(i)"})) <= 500
assert python.sandbox.closed
print("langchain: done")
