"""Run in an environment that has smolagents: an agent whose model has learnt its lines by heart."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any, ClassVar

from smolagents import CodeAgent, Tool
from smolagents.models import ChatMessage, MessageRole, Model
from smolagents.monitoring import LogLevel

from sandbox_kernel.adapters.smolagents import SandboxExecutor
from sandbox_kernel.errors import FrameRefused

OUTSIDE = Path(sys.argv[1])


class Script(Model):
    """Says one line after the other."""

    def __init__(self, *steps: str) -> None:
        super().__init__(model_id="script")
        self.steps, self.heard = list(steps), []

    def generate(self, messages: Any, **options: Any) -> ChatMessage:
        self.heard.append(str(messages[-1].content))
        code = self.steps.pop(0)
        return ChatMessage(role=MessageRole.ASSISTANT, content=f"Thought: next.\n<code>\n{code}\n</code>")


class Price(Tool):
    name = "price"
    description = "The price of a fruit."
    inputs: ClassVar = {"fruit": {"type": "string", "description": "which"}}
    output_type = "number"
    secret = OUTSIDE.read_text()
    threads: ClassVar[list[str]] = []

    def forward(self, fruit: str) -> float:
        self.threads.append(threading.current_thread().name)
        assert self.secret
        return {"apple": 1.5, "pear": 2.0}[fruit]


def agent(executor: SandboxExecutor, *steps: str, **more: Any) -> tuple[CodeAgent, Script]:
    model = Script(*steps)
    options = {"verbosity_level": LogLevel.OFF, "max_steps": len(steps), **more}
    return CodeAgent([Price()], model, executor=executor, **options), model


with SandboxExecutor(timeout=50, log_chars=5000) as executor:
    # Tools, variables from step to step, and the model's own mistake, which it gets to read.
    work, model = agent(
        executor,
        "prices = [price(f) for f in ('apple', 'pear')]\nprint('prices', prices)",
        "price('plum')",
        "1 / 0",
        "sum(prices) + start",
        "final_answer({'sum': sum(prices) + start})\nprint('never')",
    )
    assert work.run("How much?", additional_args={"start": 10}) == {"sum": 13.5}
    heard = "\n".join(model.heard)
    assert "prices [1.5, 2.0]" in heard
    assert "KeyError" in heard and "plum" in heard
    assert "ZeroDivisionError: division by zero" in heard
    assert "Last output from code snippet:\\n13.5" in heard
    assert Price.threads, "the tool runs in this process"

    # What a language model must not do, and what happens to the session.
    work, model = agent(
        executor,
        f"open({str(OUTSIDE)!r}).read()",
        "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9')",
        "import smolagents_tools; smolagents_tools.call('__class__', (), {})",
        "import os; os._exit(3)",
        "try:\n    final_answer(sum(prices))\nexcept Exception:\n    pass\nprint('never')",
    )
    assert work.run("And now?") == 3.5, "its variables came back with the process"
    heard = "\n".join(model.heard)
    assert Price.secret not in heard
    assert "not permitted" in heard or "No such file" in heard
    assert "there is no tool '__class__'" in heard
    assert "restored as they were after cell" in heard
    assert "never" not in model.heard[-1]

    # Values, not texts, and the limits on what crosses.
    assert executor("[1, {'a': (2, b'x')}]").output == [1, {"a": (2, b"x")}]
    assert executor("x = 3").output is None
    assert executor("object()").output.startswith("<object at")
    long = executor("for i in range(3000): print(i)").logs
    assert len(long) <= 5000 and long.startswith("0\n1\n")
    try:
        executor.send_variables({"bad": threading.Lock()})
    except FrameRefused as error:
        assert "lock" in str(error)
    else:
        raise AssertionError("a lock has passed")
    work.cleanup()
    assert executor.sandbox.closed

# A fresh process knows the tools, too.
with SandboxExecutor({"recovery": {"checkpoints": "off"}}) as executor:
    work, model = agent(executor, "x = 1", "import os; os._exit(3)", "x", "final_answer(price('pear'))")
    assert work.run("What is a pear?") == 2.0
    assert "lost" in model.heard[2] and "NameError" in model.heard[3]
print("smolagents: done")
