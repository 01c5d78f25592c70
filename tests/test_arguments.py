"""Arguments of the Python API: what is wrong is told before anything is started, by the argument's name."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

import sandbox_kernel
from sandbox_kernel import AsyncSandbox, AsyncSandboxPool, Sandbox, SandboxPool, arguments, client, execute_python
from sandbox_kernel.errors import PolicyError, nearest
from sandbox_kernel.grading import grade
from sandbox_kernel.policy_layers import presets
from sandbox_kernel.verify import VerificationSpec, check_spec, verify_function

# Any value is right, or it is checked by what knows more about it.
FREE = {"self", "arguments", "named", "value", "policy", "spec", "client", "name", "functions_only"}
TAKERS = [
    AsyncSandbox.__init__, Sandbox.__init__, SandboxPool.__init__, AsyncSandboxPool.__init__, execute_python, grade,
    check_spec, verify_function, AsyncSandbox.run_code, Sandbox.run_code, AsyncSandbox.put, AsyncSandbox.get,
    AsyncSandbox.call, AsyncSandbox.variables, AsyncSandbox.describe, AsyncSandbox.put_file, AsyncSandbox.get_file,
    AsyncSandbox.files, AsyncSandbox.rollback, AsyncSandbox.adopt, Sandbox.adopt, client.push, client.pull,
]  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object, **__: object) -> None:
        raise AssertionError("a sandbox was started")

    monkeypatch.setattr("sandbox_kernel.api.core.start", start)
    monkeypatch.setattr("sandbox_kernel.api.oneshot.Sandbox", start)


@pytest.mark.parametrize("function", TAKERS, ids=lambda function: function.__qualname__)
def test_every_argument_has_its_rule(function: Callable[..., Any]) -> None:
    assert hasattr(function, "__wrapped__"), "it is not decorated"
    assert set(inspect.signature(function).parameters) - FREE <= arguments.RULES.keys()


def test_nothing_public_is_forgotten() -> None:
    taken = {function.__qualname__ for function in TAKERS}
    for name in ("AsyncSandbox", "AsyncSandboxPool"):
        kind = getattr(sandbox_kernel, name)
        for method, function in inspect.getmembers(kind, inspect.isfunction):
            some = set(inspect.signature(function).parameters) - {"self"}
            if not method.startswith("_") and some and method != "checkpoint":  # (its name has a rule of its own)
                assert any(taker.endswith(f".{method}") for taker in taken), f"{name}.{method}"


OF_ALL = [
    (dict(timeout=-1), ValueError, "timeout is -1, and must be a finite number of seconds above 0"),
    (dict(timeout=0), ValueError, "timeout is 0,"),
    (dict(timeout=float("nan")), ValueError, "timeout is nan,"),
    (dict(timeout=float("inf")), ValueError, "timeout is inf,"),
    (dict(timeout=True), TypeError, "timeout is True"),
    (dict(timeout="5"), TypeError, "timeout is '5' (str), and must be a number of seconds above 0; did you mean 5?"),
    (dict(level=3), TypeError, "level is 3"),
    (dict(timeot=5), TypeError, "no argument 'timeot'; did you mean 'timeout'?"),
]  # fmt: skip
OF_SANDBOXES = [
    (dict(level="ful"), PolicyError, "Did you mean 'full'?"),
    (dict(policy="strct"), PolicyError, "Did you mean 'strict'?"),
    (dict(policy=5), TypeError, "policy is 5, and must be a preset's name (assistant, "),
    (dict(policy={"limts": {}}), PolicyError, "Did you mean 'limits'?"),
    (dict(policy={"limits": {"memry": 1}}), PolicyError, "Did you mean 'memory'?"),
    (dict(policy={1: 2}), PolicyError, "1 is not the name of a table"),
    (dict(policy={"limits": {1: 2}}), PolicyError, "limits.1: there is no such key"),
]  # fmt: skip
SANDBOXES = (Sandbox, AsyncSandbox, SandboxPool, AsyncSandboxPool)


def _executed(**wrong: Any) -> None:
    execute_python("1", **wrong)


def _graded(**wrong: Any) -> None:
    grade("work.py", "tests.py", **wrong)


@pytest.mark.parametrize(("take", "wrong", "kind", "said"), [
    *((take, *row) for take in SANDBOXES for row in (*OF_ALL, *OF_SANDBOXES)),
    *((take, *row) for take in (_executed, _graded) for row in OF_ALL),
    (_executed, dict(level="ful"), ValueError, "did you mean 'full'?"),
    (_executed, dict(returns="total"), TypeError, "did you mean ['total']?"),
    (_executed, dict(args=5), TypeError, "args is 5"),
    (_graded, dict(loading=-1), ValueError, "loading is -1"),
    (_graded, dict(files={"a": 5}), TypeError, "files['a'] is 5"),
    (_graded, dict(guard=5), TypeError, "guard is 5"),
])  # fmt: skip
def test_a_wrong_argument_is_named(
    take: Callable[..., Any], wrong: dict[str, Any], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind) as caught:
        take(**wrong)
    assert said in str(caught.value)


def test_a_folder_must_be_there(tmp_path: Any) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"projct', which is not there.* did you mean '.*/project'"):
        Sandbox(workspace=tmp_path / "projct")
    with pytest.raises(ValueError, match="is a file and no folder"):
        AsyncSandboxPool(workspace=tmp_path / "file")
    with pytest.raises(ValueError, match="not there"):
        Sandbox(workspace="/nowhere/at/all")


CALLS: list[tuple[Callable[[AsyncSandbox], Any], type[Exception], str]] = [
    (lambda box: box.run_code(5), TypeError, "code is 5"),  # type: ignore[arg-type]
    (lambda box: box.run_code("1", returns="total"), TypeError, "did you mean ['total']?"),
    (lambda box: box.run_code("1", inputs=[1]), TypeError, "inputs is [1]"),  # type: ignore[arg-type]
    (lambda box: box.run_code("1", inputs={1: 2}), TypeError, "inputs has the key 1"),  # type: ignore[dict-item]
    (lambda box: box.run_code("1", modules=5), TypeError, "modules is 5"),  # type: ignore[arg-type]
    (lambda box: box.run_code("1", on_stdout=5), TypeError, "on_stdout is 5"),  # type: ignore[arg-type]
    (lambda box: box.put("a b", 1), ValueError, "did you mean 'a_b'?"),
    (lambda box: box.put("class", 1), ValueError, "'class' cannot be the name"),
    (lambda box: box.put("a", 1, timeout=-1), ValueError, "timeout is -1"),
    (lambda box: box.get(None), ValueError, "None cannot be the name"),  # type: ignore[arg-type]
    (lambda box: box.call("f()"), ValueError, "did you mean 'f'?"),
    (lambda box: box.call(len), TypeError, "function is "),  # type: ignore[arg-type]
    (lambda box: box.put_file("a", 5), TypeError, "data is 5"),  # type: ignore[arg-type]
    (lambda box: box.put_file("", "text"), ValueError, "path is ''"),
    (lambda box: box.get_file(b"x"), TypeError, "did you mean 'x'?"),  # type: ignore[arg-type]
    (lambda box: box.rollback(0), ValueError, "to is 0, and must be 1 or more"),
    (lambda box: box.rollback(1.5), TypeError, "to is 1.5"),  # type: ignore[arg-type]
    (lambda box: box.adopt(5), TypeError, "branch is 5"),  # type: ignore[arg-type, type-var]
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "said"), CALLS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_call_is_checked(call: Callable[[AsyncSandbox], Any], kind: type[Exception], said: str) -> None:
    async def begin() -> None:
        await call(AsyncSandbox())

    with pytest.raises(kind) as caught:
        asyncio.run(begin())
    assert said in str(caught.value)


def test_a_function_of_the_session_has_its_own_words() -> None:
    """`call` hands names on; "level" is the function's there, whatever it means elsewhere."""
    with pytest.raises(AssertionError, match="was started"):
        asyncio.run(AsyncSandbox().call("f", level=3, size=-1, policy=5))


def test_claims_are_checked() -> None:
    pytest.importorskip("z3")
    with pytest.raises(TypeError, match="spec is 'x > 0'"):
        check_spec("x > 0")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="invariants is 'x > 1'"):
        check_spec(VerificationSpec("x > 0", "x > 5", invariants="x > 1"))
    with pytest.raises(TypeError, match="the postcondition is 6"):
        check_spec(VerificationSpec("x > 0", 6))
    with pytest.raises(ValueError, match="timeout_s is -1"):
        check_spec(VerificationSpec("x > 0", "x > 5"), timeout_s=-1)


@pytest.mark.parametrize(("typo", "near"), [
    ("strct", "strict"), ("asistant", "assistant"), ("clasroom", "classroom"), ("standart", "standard"),
    ("opn", "open"),
    ("oven", ""), ("token", ""), ("pencil", ""), ("none", ""), ("safe", ""), ("online", ""), ("", ""),
])  # fmt: skip
def test_only_what_is_close_is_suggested(typo: str, near: str) -> None:
    """And the preset without a gate has to be closer still."""
    assert nearest(typo, presets()) == near
