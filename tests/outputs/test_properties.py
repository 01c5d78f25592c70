"""Whatever a worker makes up: what passes has no address and no markup that acts, and passes again unchanged."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_kernel.outputs.bundles import clean_bundle
from sandbox_kernel.outputs.gate import Gate
from sandbox_kernel.outputs.settings import Removed, Settings
from sandbox_kernel.outputs.svg import clean_svg
from sandbox_kernel.outputs.widget_table import TRAITS, VIEWS

_STRINGS = st.sampled_from(
    ["http://away.org/x", "//away.org", "/api/contents", "javascript:alert(1)", "data:text/html,x", "image", "point",
     "a",
     "<img src=x onerror=alert(1)>", "<<b>script>alert(1)</script>", "url(http://away.org)", "event.view.alert(1)",
     "IPY_MODEL_x", " \thttps://away.org", "HTTP://AWAY.ORG", "<a href='http://away.org'>x</a>", "window:keydown",
     "red",
     "$\\href{javascript:x}{y}$", "x; background: url(http://away.org)", "\x1b]0;t\x07", "jp-Dialog", "\\u0075rl(x)"]
)  # fmt: skip
_NAMES = st.sampled_from(
    ["data", "layout", "url", "href", "source", "mark", "encoding", "image", "images", "style", "text", "tooltip",
     "type",
     "expr", "signal", "calculate", "usermeta", "on", "bind", "element", "title", "__proto__", "constructor", "frames",
     "value", "values", "config", "topojsonURL", "layers", "children", "description", "params", "transform", "field"]
)  # fmt: skip
_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(_STRINGS, st.integers(), st.none(), st.booleans(), st.floats(allow_nan=False)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_NAMES, inner, max_size=5)), max_leaves=25,
)  # fmt: skip
_TYPES = st.sampled_from(
    ["application/vnd.plotly.v1+json", "application/vnd.vegalite.v5+json", "application/vnd.vegalite.v6.1.0+json",
     "text/html", "text/plain", "text/markdown", "text/latex", "image/svg+xml", "image/png", "application/javascript",
     "application/vnd.jupyter.widget-view+json", "application/x-y", "text/vnd.mermaid", "application/pdf", ""]
)  # fmt: skip
_ACTING = re.compile(r"away\.org|onerror|<script|__proto__|data:text/html|\burl\(", re.I)
PASSING = {
    "application/vnd.plotly.v1+json", "application/vnd.vegalite.v5+json", "text/html", "text/plain", "text/markdown",
    "text/latex", "image/svg+xml", "image/png",
}  # fmt: skip


@given(st.dictionaries(_TYPES, _VALUES, max_size=5), st.dictionaries(_TYPES, _VALUES, max_size=3))
@settings(max_examples=300, deadline=None)
def test_bundles(data: dict[str, Any], metadata: dict[str, Any]) -> None:
    def clean(data: dict[str, Any], metadata: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        return clean_bundle(data, metadata, Settings(), Removed(), lambda _: False)

    out, kept = clean(data, metadata)
    assert out.keys() <= PASSING and kept.keys() <= out.keys()
    # What is only text may hold any text.
    figures = {k: v for k, v in out.items() if k.startswith(("application/", "image/"))}
    assert not _ACTING.search(json.dumps(figures))
    tags = "".join(re.findall(r"<[^<>]*>", out.get("text/html", "")))
    assert "onerror" not in tags and "away.org" not in re.sub(r'href="[^"]*"', "", tags)
    assert clean(out, kept) == (out, kept)


_STATES = st.dictionaries(st.sampled_from([*sorted(TRAITS), "__proto__", "x"]), _VALUES, max_size=6)


@given(st.sampled_from(sorted(VIEWS)), _STATES)
@settings(max_examples=300, deadline=None)
def test_widgets(model: tuple[str, str], state: dict[str, Any]) -> None:
    module, view = VIEWS[model]
    own = {"_model_module": model[0], "_model_name": model[1], "_view_module": module, "_view_name": view,
           "_model_module_version": "2.0.0", "_view_module_version": "2.0.0"}  # fmt: skip
    content = {"comm_id": "c", "target_name": "jupyter.widget", "data": {"state": {**state, **own}}}
    page = Gate()
    passed = page.message("comm_open", content, {})
    assert passed is not None and not page.removed["a message that could not be checked"]
    found = passed.content["data"]["state"]
    assert found.keys() <= TRAITS | own.keys() and {k: found[k] for k in own} == own
    assert found.get("description_allow_html", False) in (False, None)
    assert all(c.startswith(("widget-", "jupyter-", "mod-", "o-")) for c in found.get("_dom_classes") or [])
    if model[1] in ("HTMLModel", "HTMLMathModel"):
        assert "onerror" not in str(found.get("value")) and "\\href" not in str(found.get("value"))
    if model[1] == "LayoutModel" or model[1].endswith("StyleModel"):
        assert not _ACTING.search(json.dumps(found)) and ";" not in json.dumps(found)
    again = Gate().message("comm_open", {**content, "data": passed.content["data"]}, {})
    assert again is not None and again.content == passed.content


_PARTS = st.lists(
    st.sampled_from(
        ["<g id='a'>", "</g>", "<rect fill='url(#a)' onclick='x'/>", "<use href='#a'/>",
         "<use href='http://away.org#a'/>", "x",
         "<script>x</script>", "<style>*{fill:url(http://away.org)} .a{fill:red}</style>",
         "<path d='M0 0' style='fill:red'/>",
         "<image href='http://away.org'/>", "<a href='javascript:x'>", "</a>", "<foreignObject>", "</foreignObject>",
         "&lt;",
         "<pattern id='b'>", "</pattern>", "<!-- x -->", "<![CDATA[<script>]]>",
         "<text style='fill:red;position:fixed'>",
         "</text>", "<animate attributeName='href'/>", "<svg>", "</svg>", "<metadata>http://away.org</metadata>"]
    ), max_size=12,
)  # fmt: skip


@given(_PARTS)
@settings(max_examples=300, deadline=None)
def test_drawings(parts: list[str]) -> None:
    kept = clean_svg(f"<svg>{''.join(parts)}</svg>", Removed())
    if kept is None:
        return
    assert not re.search(r"away\.org|<script|onclick|<a |foreign|<animate|position|javascript", kept)
    assert clean_svg(kept, Removed()) == kept
