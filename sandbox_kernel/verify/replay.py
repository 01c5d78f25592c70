"""Counterexamples are tried out before anybody is told of them."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import SandboxError
from .interpret import Interpreter, Raised, StepsUsedUp
from .subset import Outside, Program, is_kind_of

Replay = Callable[[str], str]
_MARK = "sandbox_kernel replay: "
_LONGEST = 10_000
_NOTHING = "no result came back"


@dataclass(frozen=True)
class Replayed:
    """What a function did with the arguments of a counterexample.

    Attributes:
        violates: whether that breaks the contract.
        outcome: "returns 3", "raises ValueError", or why nothing can be said.
        by: "sandbox", "evaluator" or "caller".
    """

    violates: bool
    outcome: str
    by: str


def default_replay(code: str, program: Program, name: str, values: Mapping[str, Any], pre: ast.expr, post: ast.expr,
                   raises: Sequence[str]) -> Replayed:  # fmt: skip
    """Replay in the sandbox where this package has one and it can be had, else with the evaluator."""
    import sandbox_kernel

    execute: Callable[[str], Any] | None = getattr(sandbox_kernel, "execute_python", None)
    if execute is not None:
        run = replay_with(_in_sandbox(execute), by="sandbox")
        try:
            seen = run(code, program, name, values, pre, post, raises)
            if seen.outcome != _NOTHING:  # rules for code, or a limit, can keep the program from running
                return seen
        except (SandboxError, RuntimeError, OSError):  # no sandbox can be had here; the evaluator needs none
            pass
    return evaluated(program, name, values, pre, post, raises)


def _in_sandbox(execute: Callable[[str], Any]) -> Replay:
    return lambda text: str(execute(text).stdout)


def replay_with(run: Replay, *, by: str = "caller") -> Callable[..., Replayed]:
    """Replay with a function that runs a program and returns what it prints."""

    def replayed(code: str, program: Program, name: str, values: Mapping[str, Any], pre: ast.expr, post: ast.expr,
                 raises: Sequence[str]) -> Replayed:  # fmt: skip
        interpreter = Interpreter(program)
        try:
            if not interpreter.condition(pre, copy.deepcopy(dict(values))):
                return Replayed(False, "the precondition does not hold for it", by)
        except (Outside, StepsUsedUp):
            return Replayed(False, "the precondition cannot be evaluated", by)
        # What comes back is text of the code's own making: a literal is read from it and nothing else.
        lines = [line for line in run(_program(code, name, values)).splitlines() if line.startswith(_MARK)]
        kind, _, text = lines[-1].removeprefix(_MARK).partition(" ") if lines else ("", "", "")
        if kind == "raised":
            return Replayed(not is_kind_of(text, tuple(raises)), f"raises {text}", by)
        try:
            result = ast.literal_eval(text) if kind == "returned" and len(text) <= _LONGEST else _MARK
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            result = _MARK
        if result is _MARK:
            return Replayed(False, _NOTHING, by)
        return _judged(Interpreter(program), values, result, post, by)

    return replayed


def _program(code: str, name: str, values: Mapping[str, Any]) -> str:
    return f"""{code}

try:
    _found = {name}(**{dict(values)!r})
except BaseException as _error:
    print("\\n{_MARK}raised", type(_error).__name__)
else:
    print("\\n{_MARK}returned", repr(_found))
"""


def evaluated(program: Program, name: str, values: Mapping[str, Any], pre: ast.expr, post: ast.expr,
              raises: Sequence[str]) -> Replayed:  # fmt: skip
    """Replay with the evaluator."""
    by = "evaluator"
    try:
        if not Interpreter(program).condition(pre, copy.deepcopy(dict(values))):
            return Replayed(False, "the precondition does not hold for it", by)
        try:
            result = Interpreter(program).call(name, copy.deepcopy(dict(values)))
        except Raised as raised:
            return Replayed(not is_kind_of(raised.name, tuple(raises)), f"raises {raised.name}", by)
    except StepsUsedUp:
        return Replayed(False, "it does not end within the steps of the evaluator", by)
    except Outside as outside:
        return Replayed(False, f"the evaluator does not know {outside.what}", by)
    return _judged(Interpreter(program), values, result, post, by)


def _judged(interpreter: Interpreter, values: Mapping[str, Any], result: Any, post: ast.expr, by: str) -> Replayed:
    try:
        holds = interpreter.condition(post, {**copy.deepcopy(dict(values)), "result": result})
    except (Outside, StepsUsedUp):
        return Replayed(False, "the postcondition cannot be evaluated", by)
    return Replayed(not holds, f"returns {result!r}", by)
