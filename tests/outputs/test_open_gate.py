"""`outputs.gate = "off"`: script reaches the client that asked for it, and no other; messages stay bounded."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox_kernel.errors import ProtocolError
from sandbox_kernel.outputs.open_gate import OpenGate, make_gate
from sandbox_kernel.outputs.settings import Settings

from ..kernel.conftest import Start, start  # noqa: F401 - a fixture

SCRIPT = "<script>parent.fetch('/api/terminals', {method: 'POST'})</script><img src=x onerror='alert(1)'>"
CELL = f"""
from IPython.display import HTML, Javascript, display
display(HTML({SCRIPT!r}), metadata={{"isolated": True}})
display(Javascript("alert(1)"))
print("\\x1b]0;a title\\x07text")
"""
BUNDLES: list[dict[str, Any]] = [
    {"text/html": SCRIPT}, {"application/javascript": "alert(1)"}, {"application/vnd.x+json": {"__proto__": [1]}},
    {"application/pdf": "AAAA"}, {"text/plain": "\x1b[2J"}, {"image/svg+xml": "<svg onload='x'/>"},
]  # fmt: skip


@pytest.fixture
def gate() -> OpenGate:
    made = make_gate(Settings(gate="off"))
    assert isinstance(made, OpenGate) and not isinstance(make_gate(Settings()), OpenGate)
    return made


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda bundle: next(iter(bundle)))
def test_displays_pass_as_they_are_only_without_the_gate(gate: OpenGate, bundle: dict[str, Any]) -> None:
    content = {"data": bundle, "metadata": {"isolated": True}}
    passed, cleaned = gate.message("display_data", content), make_gate(Settings()).message("display_data", content)
    assert passed is not None and cleaned is not None
    assert passed.content == {**content, "transient": {}}
    assert cleaned.content["data"] != bundle and not cleaned.content["metadata"]


def test_widgets_of_any_kind_pass(gate: OpenGate) -> None:
    state = {"_model_module": "anywidget", "_model_name": "AnyModel", "_esm": "export default {}"}
    opened = {"comm_id": "a", "target_name": "jupyter.widget", "data": {"state": state}, "target_module": "m"}
    passed = gate.message("comm_open", opened, {"version": "2.1.0"}, [b"x"])
    assert passed is not None and passed.content == opened and passed.buffers == [b"x"]
    gate.comms["a"] = "jupyter.widget"
    said = {"comm_id": "a", "data": {"method": "custom", "content": 1}}
    passed = gate.message("comm_msg", said)
    assert passed is not None and passed.content == said
    assert gate.message("comm_msg", {**said, "comm_id": "b"}) is None, "there is no such comm"


@pytest.mark.parametrize(
    ("kind", "content"),
    [("status", {"execution_state": "idle"}), ("display_data", {"data": "text"}), ("error", {"ename": 1}),
     ("execute_result", {"data": {}, "execution_count": "1"}), ("comm_open", {"comm_id": 1, "target_name": "x"}),
     ("comm_open", {"comm_id": "a" * 2000, "target_name": "x"})],
)  # fmt: skip
def test_what_a_message_may_be_stays_fixed(gate: OpenGate, kind: str, content: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        gate.message(kind, content)


def test_payloads_pass_but_no_name_that_an_editors_shell_would_run(gate: OpenGate) -> None:
    payloads: list[dict[str, Any]] = [
        {"source": "page", "data": {"text/html": SCRIPT}, "start": 0},
        {"source": "set_next_input", "text": "import os", "replace": False},
        {"source": "edit_magic", "filename": "a.py; id", "line_number": 1}, {"text": "no source"},
    ]  # fmt: skip
    reply, instead = gate.execute_reply({"status": "ok", "payload": payloads, "user_expressions": {}}, "x")
    assert reply["payload"] == payloads[:2] and not instead


def test_the_script_reaches_the_client_only_with_it(start: Start) -> None:  # noqa: F811
    opened = start(policy='[outputs]\ngate = "off"\n')
    displays = opened.good(CELL).of("display_data")
    assert [d["data"].get("text/html") for d in displays] == [SCRIPT, None]
    assert displays[0]["metadata"] == {"isolated": True} and displays[1]["data"]["application/javascript"] == "alert(1)"
    assert opened.good(CELL).stdout == "\x1b]0;a title\x07text\n"
    status = opened.good("%sandbox").stdout
    assert status.startswith("WARNING: outputs are not checked") and "policy0.toml" in status.splitlines()[0]
    usual = start()
    outcome = usual.good(CELL)
    shown = str([d["data"] for d in outcome.of("display_data")])
    assert "<script" not in shown and "onerror" not in shown and "alert" not in shown and outcome.stdout == "text\n"
    assert "WARNING" not in usual.good("%sandbox").stdout
