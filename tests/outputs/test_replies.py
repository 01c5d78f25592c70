"""Replies, Markdown and LaTeX."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox_kernel.outputs.gate import Gate, gate
from sandbox_kernel.outputs.latex import break_macros, is_plain_math
from sandbox_kernel.outputs.markdown import is_plain_markdown

REPLY: dict[str, Any] = {"status": "ok", "execution_count": 1, "user_expressions": {}, "payload": []}
SCRIPT = "<img src=x onerror=alert(1)>"


def payload(code: str = "1", **fields: Any) -> tuple[list[dict[str, Any]], str]:
    reply, shown = Gate().execute_reply({**REPLY, "payload": [fields]}, code)
    found: list[dict[str, Any]] = reply["payload"]
    return found, shown


def test_pages_are_plain_text() -> None:
    data = {"text/plain": f"\x1b]0;t\x07{SCRIPT}", "text/html": SCRIPT, "application/javascript": "x"}
    assert payload(source="page", data=data, start=3) == (
        [{"source": "page", "data": {"text/plain": SCRIPT}, "start": 3}], "")  # fmt: skip
    assert payload(source="page", data={"text/html": SCRIPT}) == ([], "")
    assert payload(source="page", data=7) == ([], "")


def test_text_for_a_new_cell_is_shown_instead() -> None:
    passed, shown = payload(source="set_next_input", text="import os", replace=True)
    assert passed == [] and shown.endswith("import os\n") and shown.startswith("[This cell wants")


def test_a_client_without_a_document_gets_it() -> None:
    found = [{"source": "set_next_input", "text": "next", "replace": False}]
    reply, shown = Gate().execute_reply({**REPLY, "payload": found}, "1", document=False)
    assert reply["payload"] == found and shown == ""


@pytest.mark.parametrize("code", ["%load a.py", " %recall 3\n", "%rep"])
def test_a_magic_that_asks_for_text_gets_it(code: str) -> None:
    passed, shown = payload(code, source="set_next_input", text="x = 1", replace=True)
    assert passed == [{"source": "set_next_input", "text": "x = 1", "replace": True}] and shown == ""


@pytest.mark.parametrize("code", ["%load a.py\nx", "x = 1 # %load", "%loaded", "%%load a", "a;%load b"])
def test_what_only_looks_like_one_does_not(code: str) -> None:
    assert payload(code, source="set_next_input", text="x = 1", replace=True)[0] == []


def test_other_payloads() -> None:
    assert payload(source="ask_exit", keepkernel=True)[0] == [{"source": "ask_exit", "keepkernel": True}]
    edit = {"source": "edit_magic", "filename": "/tmp/a.py", "line_number": 3}
    assert payload(**edit)[0] == [edit]
    for name in ("a; touch b", "$(id)", "a`id`", "a\nb", "a'b", 'a"b', "", 7):
        assert payload(**{**edit, "filename": name})[0] == []
    assert payload(source="other", x=1)[0] == [] and payload(source=["page"])[0] == []


def test_user_expressions_are_bundles() -> None:
    said = {"a": {"status": "ok", "data": {"text/html": f"{SCRIPT}x"}, "metadata": {"isolated": True}},
            "b": {"status": "error", "ename": "E", "evalue": "\x1b]0;t\x07v", "traceback": ["t", 3], "x": 1}, "c": {}}
    found = Gate().execute_reply({**REPLY, "user_expressions": said}, "1")[0]["user_expressions"]
    assert "onerror" not in found["a"]["data"]["text/html"] and found["a"]["metadata"] == {}
    assert found["b"] == {"status": "error", "ename": "E", "evalue": "v", "traceback": ["t"]}
    assert found["c"]["status"] == "error"


def test_help_is_plain_text() -> None:
    said = {"status": "ok", "found": True, "data": {"text/html": SCRIPT, "text/plain": SCRIPT}, "metadata": {"x": 1}}
    assert Gate().inspect_reply(said) == {"status": "ok", "found": True, "data": {"text/plain": SCRIPT}, "metadata": {}}
    assert Gate().inspect_reply({**said, "data": {"text/html": SCRIPT}})["found"] is False


def test_completions_are_short_texts() -> None:
    kinds = [{"text": "a", "type": SCRIPT, "start": 0, "end": 1, "x": 1}, {"text": 7}, 3, {"text": "b", "start": "0"}]
    said = {"status": "ok", "matches": ["a", "\x1b]0;t\x07b", "c" * 1000], "cursor_start": 0, "cursor_end": 1,
            "metadata": {"_jupyter_types_experimental": kinds, "x": 1}}  # fmt: skip
    found = Gate().complete_reply(said)
    assert found["matches"] == ["a", "b"]
    assert found["metadata"] == {"_jupyter_types_experimental": [
        {"text": "a", "start": 0, "end": 1, "type": "<unknown>"}, {"text": "b"}]}  # fmt: skip
    assert Gate().complete_reply({**said, "matches": ["x"] * 5000, "metadata": {}})["metadata"] == {}


def test_an_indent_is_space() -> None:
    said = {"status": "incomplete", "indent": "    "}
    assert Gate.is_complete_reply(said) == said
    assert Gate.is_complete_reply({**said, "indent": "import os"}) == {"status": "incomplete"}


class TestMarkdown:
    @pytest.mark.parametrize("text", ["*m*", "a **b** `c`"[:7], "- a\n- b", "x $a_1$ y"])
    def test_plain_text_is_left_to_the_page(self, text: str) -> None:
        assert is_plain_markdown(text)
        content = gate("display_data", {"data": {"text/markdown": text}})
        assert content is not None and content["data"] == {"text/markdown": text}

    @pytest.mark.parametrize("text", ["# h", "h\n===", "[a](b)", "<b>", "![a](b)", "```\nx\n```", "~~~mermaid", "http://a",
                                      "&lt;", "a | b", "$\\href{a}{b}$", "www.a.b"])  # fmt: skip
    def test_everything_else_is_rendered_here(self, text: str) -> None:
        assert not is_plain_markdown(text)

    def test_rendered(self) -> None:
        text = "# Head\n\n**b** `c<d` $a_1 + b_2$ [l](https://e.org)\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n"
        text += "$$\\int_0^1 x<y$$\n"
        content = gate("display_data", {"data": {"text/markdown": text}})
        assert content is not None
        html = content["data"]["text/html"]
        for part in ("<h1>Head</h1>", "<strong>b</strong>", "<code>c&lt;d</code>", "$a_1 + b_2$", "<td>1</td>",
                     "$$\\int_0^1 x&lt;y$$", 'href="https://e.org"'):  # fmt: skip
            assert part in html

    @pytest.mark.parametrize(
        "text", [f"# x\n{SCRIPT}", "[x](javascript:alert(1))", "```mermaid\ngraph TD; A-->B\n```",
        "![x](http://e.org/b.png)",
                 "# $\\href{javascript:alert(1)}{x}$", "<script>alert(1)</script>",
                 "[x]: javascript:x\n\n[x]"])  # fmt: skip
    def test_what_acts_is_gone(self, text: str) -> None:
        content = gate("display_data", {"data": {"text/markdown": text}})
        assert content is not None and "text/markdown" not in content["data"]
        for word in ("onerror", 'href="javascript', "e.org", "<script", "\\href", 'class="language'):
            assert word not in str(content["data"]).replace("\\\\\u200b", "")

    @pytest.mark.parametrize("text", ["[" * 100_000, "*a" * 100_000, "> " * 50_000 + "x", "`" * 100_000, "- " * 50_000,
                                      "![" * 50_000, "<" * 100_000, "\\\\[" * 50_000, "$" * 200_001, "$a\\" * 50_000,
                                      "|" * 50_000 + "\n" + "|-" * 50_000, "#" * 100_000, "[a](" * 30_000])  # fmt: skip
    def test_hostile_text_does_not_take_long(self, text: str) -> None:
        assert gate("display_data", {"data": {"text/markdown": f"# x\n{text}"}}) is not None


def test_latex() -> None:
    assert is_plain_math("$\\frac{a}{b} \\left( x \\right) \\text{data}$") and not is_plain_math("$\\href{a}{b}$")
    for macro in ("def", "require", "style", "class", "cssId", "bbox", "unicode", "htmlData", "newcommand", "gdef"):
        assert not is_plain_math(f"$\\{macro}{{x}}$")
    assert break_macros("C:\\data and \\style") == "C:\\data and \\style"
    assert break_macros("$\\style{a}{b}$ \\styles") == "$\\\u200bstyle{a}{b}$ \\styles"
    content = gate("display_data", {"data": {"text/latex": "$a<b$ $x$<script>alert(1)</script>"}})
    assert content["data"] == {"text/latex": "$a< b$ $x$< script>alert(1)< /script>"}  # some programs make HTML of it
    content = gate("display_data", {"data": {"text/latex": "$\\href{a}{b}$", "text/plain": "p"}})
    assert content is not None and list(content["data"]) == ["text/plain"]
