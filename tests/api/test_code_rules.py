"""The policy's rules for code hold in the Python API, too."""

from __future__ import annotations

from sandbox_kernel import Sandbox

RULES = {"code": {"imports": {"deny": ["ctypes"]}, "forbid": ["eval"], "ticks": 5_000}}


def test_code_that_breaks_a_rule_is_not_run() -> None:
    with Sandbox(RULES) as sandbox:
        assert sandbox.run_code("x = 1").error is None
        refused = sandbox.run_code("x = 2\neval('1')")
        assert refused.error is not None and refused.error.name == "PolicyRefusal"
        assert "Line 2, column 1: `eval` is forbidden here." in refused.error.value and refused.state == "kept"
        endless = sandbox.run_code("while True: pass")
        assert endless.error is not None and endless.error.name == "TickLimit"
        assert sandbox.run_code("print(x)").logs.stdout == ["1\n"]
