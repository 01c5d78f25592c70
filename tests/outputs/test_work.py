"""What one message may cost the gate, which every other request waits for."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox_kernel.outputs import replies, specs
from sandbox_kernel.outputs.gate import Gate

from .test_widgets import Page, identity

PLOTLY, VEGA = "application/vnd.plotly.v1+json", "application/vnd.vegalite.v5+json"


def shown(gate: Gate, kind: str, value: Any) -> Any:
    return gate.bundle({kind: value}, {})[0].get(kind)


@pytest.mark.parametrize(
    ("kind", "figure"),
    [
        (PLOTLY, {"data": [{"text": ["a<b>"] * (specs.LOOKS + 1)}]}),
        (PLOTLY, {"data": [{"text": "<b>" * specs.MARKED_CHARS}]}),
        (PLOTLY, {"data": [{"text": "$\\" * specs.MARKED_CHARS}]}),
        (VEGA, {"data": {"values": [{"a": "x"}] * specs.LOOKS}, "mark": "bar"}),
    ],
    ids=["texts", "one text", "formulas", "rows"],
)
def test_a_figure_that_takes_too_long_is_not_shown(kind: str, figure: dict[str, Any]) -> None:
    gate = Gate()
    assert shown(gate, kind, figure) is None
    assert gate.removed["data that is too large"] == 1


def test_a_table_in_markdown_that_takes_too_long_is_shown_as_text() -> None:
    gate = Gate()
    assert "html" in next(iter(gate.bundle({"text/markdown": "|a|b|\n|-|-|\n" + "|1|2|\n" * 3000}, {})[0]))
    found, _ = gate.bundle({"text/markdown": "|a|b|\n|-|-|\n" + "|1|2|\n" * 40_000}, {})
    assert list(found) == ["text/plain"] and gate.removed["Markdown that is too long"] == 1


def test_many_dates_and_numbers_of_a_figure_are_shown() -> None:
    figure = {"data": [{"x": ["2026-11-30T08:00:00"] * (specs.LOOKS + 1), "y": [1.5] * (specs.LOOKS + 1)}]}
    assert shown(Gate(), PLOTLY, figure) == figure


@pytest.mark.parametrize("key", ["x", "style", "url", "bdata"])
@pytest.mark.parametrize(
    "text", ["//evil.example/x", "JavaScript:alert(1)", "java\u017fcript:1", "URL (x)", "<img src=x>", "a\n//b.example"]
)
def test_no_text_hides_among_many(key: str, text: str) -> None:
    def rest(texts: list[str]) -> Any:
        return shown(Gate(), PLOTLY, {"data": [{key: texts}]})["data"][0][key]

    alone, among = rest([text]), rest(["2026", text, "2027"])
    assert [one for one in among if one not in ("2026", "2027")] == alone
    assert text not in alone or (key, text) in {("x", "a\n//b.example")}


def test_traits_of_one_message_are_looked_at_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specs, "LOOKS", 100)
    state = {"_options_labels": ["a"] * 60, "description": "b", "titles": ["c"] * 60}
    page = Page()
    passed = page.open("c", {**identity("DropdownModel"), **state})
    assert passed is not None
    found = passed.content["data"]["state"]
    assert found["_options_labels"] == ["a"] * 60 and found["titles"] is None
    assert page.gate.removed["a widget's data"] == 1


def test_of_many_completions_only_those_that_are_passed_on_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []
    monkeypatch.setattr(replies, "clean_text", lambda text: looks.append(text) or text)
    reply = replies.complete_reply({"matches": ["x"] * 3 * replies.MATCHES})
    assert len(reply["matches"]) == len(looks) == replies.MATCHES


def test_a_traceback_of_very_many_lines_is_one_text() -> None:
    lines = [f"\x1b[31mline\x1b[0m\x1b]52;c;{n}\x07" for n in range(20_000)]
    passed = Gate().message("error", {"ename": "E", "evalue": "x", "traceback": lines})
    assert passed is not None
    assert passed.content["traceback"] == ["\n".join(["\x1b[31mline\x1b[0m"] * 20_000)]


def test_a_reply_has_no_more_expressions_than_a_client_asks_for() -> None:
    expressions = {str(n): {"status": "ok", "data": {"text/plain": "1"}, "metadata": {}} for n in range(2000)}
    reply, _ = Gate().execute_reply({"status": "ok", "user_expressions": expressions}, "")
    assert len(reply["user_expressions"]) == 1000


def test_kinds_that_a_worker_makes_up_are_not_all_kept_apart() -> None:
    gate = Gate()
    for n in range(1000):
        state = {**identity("DropdownModel"), "_model_module": f"made-up-{n}"}
        said = {"comm_id": str(n), "target_name": "jupyter.widget", "data": {"state": state}}
        assert gate.message("comm_open", said) is None
        gate.bundle({f"made/up-{n}": "x"}, {})
    assert len(gate.removed) <= 201
    assert gate.removed.total() == 2000
