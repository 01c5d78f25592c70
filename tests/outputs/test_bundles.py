"""Mime bundles: raw messages by hand, as a worker can send them that does not care for IPython's API."""

from __future__ import annotations

import base64
import json
import re
import time
from typing import Any

import pytest

from sandbox_kernel.errors import ProtocolError
from sandbox_kernel.outputs.gate import Gate, gate
from sandbox_kernel.outputs.settings import Settings

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()


def shown(data: dict[str, Any], metadata: dict[str, Any] | None = None, **settings: Any) -> dict[str, Any]:
    content = gate("display_data", {"data": data, "metadata": metadata or {}}, (), Settings(**settings))
    assert content is not None
    return content


PASSED = [
    ("text/plain", "x"), ("text/html", "<b>1</b>"), ("text/markdown", "*m*"), ("text/latex", "$x$"),
    ("image/png", PNG), ("application/json", {"a": [1, None]}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), PASSED, ids=[p[0] for p in PASSED])
def test_passes_as_it_is(name: str, value: Any) -> None:
    assert shown({name: value})["data"] == {name: value}


@pytest.mark.parametrize("name", ["text/html", "text/markdown", "text/latex"])
@pytest.mark.parametrize("text", ["a \x1b]52;c;aGk=\x07b", "a \x9b2J b", "<b class=x>a\x1b[2J</b>", "# a\x1b[2J"])
def test_no_text_commands_a_terminal_that_prints_the_notebook(name: str, text: str) -> None:
    assert not {"\x1b", "\x9b"} & set("".join(shown({name: text})["data"].values()))


@pytest.mark.parametrize("html", ["</div></div><p>x</p>", "<div><s><b>x", "<p>x</p></p>", "<b><i>x</b></i>"])
def test_html_ends_where_its_own_elements_end(html: str) -> None:
    depth = 0
    for tag in re.findall("</?[a-z]", shown({"text/html": html})["data"]["text/html"]):
        depth += -1 if tag.startswith("</") else 1
        assert depth >= 0
    assert depth == 0


@pytest.mark.parametrize("text", ["*a **b " * 50_000, "- " * 20_000, "_a __" * 60_000, "1. " * 20_000])
def test_no_page_renders_markdown_that_holds_it_up(text: str) -> None:
    assert "text/markdown" not in shown({"text/markdown": text})["data"]


REFUSED: list[tuple[str, Any]] = [
    ("application/javascript", "alert(1)"), ("text/javascript", "alert(1)"), ("application/pdf", PNG),
    ("text/vnd.mermaid", "graph TD"), ("application/vnd.vega.v5+json", {"marks": []}),
    ("application/vnd.bokehjs_exec.v0+json", ""), ("application/vnd.x+json", {"a": 1}), ("TEXT/HTML", "<b>x</b>"),
    (" text/html", "<b>x</b>"), ("text/html;charset=utf-8", "<b>x</b>"), ("image/svg+xml", "<svg onload=x>"),
    ("text/html\0", "<b>x</b>"), ("text/html ", "<b>x</b>"), ("IMAGE/SVG+XML", "<svg onload=x>"),
    ("image/png;x=1", PNG),
    ("application/vnd.jupyter.stderr", "x"), ("application/vnd.jupyter.es-mod+javascript", "x"), ("module", "x"),
    ("application/xhtml+xml", "<b/>"), ("image/svg", "<svg onload=x>"), ("application/geo+json", {"a": 1}),
    ("application/vnd.vegalite.v5+json;x", {"a": 1}), ("application/vnd.jupyter.widget-state+json", {"state": {}}),
    ("image/png", ["AA", "AA\" onload=x"]),
    ("image/png", "x\" onerror=\"alert(1)"), ("image/png", {"a": 1}), ("text/html", {"a": 1}), ("text/html", 7),
    ("application/vnd.jupyter.widget-view+json", {"model_id": "unknown"}),
    ("application/vnd.plotly.v1+json", "text"), ("application/vnd.vegalite.v5+json", [1]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), REFUSED, ids=[f"{r[0]}-{type(r[1]).__name__}" for r in REFUSED])
def test_is_refused_and_said(name: str, value: Any) -> None:
    data = shown({name: value})["data"]
    assert list(data) == ["text/plain"]
    if not name.startswith("application/vnd.bokehjs"):
        assert data["text/plain"].startswith("[The sandbox removed") and "\n" not in data["text/plain"]


def test_the_note_is_bounded_and_plain() -> None:
    data = shown({f"application/x-{i}<script>{'y' * 500}": 1 for i in range(500)} | {"text/plain": "kept"})["data"]
    assert data["text/plain"].startswith("kept\n[The sandbox removed")
    assert "<" not in data["text/plain"] and len(data["text/plain"]) < 1000


def test_lists_of_strings_are_joined() -> None:
    assert shown({"text/html": ["<b>", "1</b>"]})["data"] == {"text/html": "<b>1</b>"}
    assert "script" not in shown({"text/html": ["<scr", "ipt>alert(1)</script>"]})["data"].get("text/html", "")


def test_metadata_is_made_anew() -> None:
    data = {"text/html": "<b>x</b>", "image/png": PNG, "application/json": {}}
    metadata = {
        "isolated": True, "text/html": {"isolated": True}, "unconfined": True,
        "image/png": {"width": 5, "height": "1 onload=x", "unconfined": True},
        "application/json": {"expanded": True, "root": "r", "x": 1},
    }  # fmt: skip
    assert shown(data, metadata)["metadata"] == {
        "image/png": {"width": 5}, "application/json": {"expanded": True, "root": "r"},
    }  # fmt: skip


def test_an_operator_may_name_further_types() -> None:
    name = "application/vnd.x+json"
    data = shown({name: {"a": 1, "__proto__": {"b": 2}}}, mimetypes=(name,))["data"]
    assert data == {name: {"a": 1}}


def test_html_can_be_switched_off() -> None:
    assert shown({"text/html": "<b>x</b>", "text/plain": "x"}, html="text")["data"] == {
        "text/plain": "x\n[The sandbox removed from this output: HTML]"
    }


def test_json_is_bounded() -> None:
    deep: Any = 1
    for _ in range(200):
        deep = {"k": deep}
    assert "application/json" not in shown({"application/json": deep})["data"]
    assert "application/json" not in shown({"application/json": [{}] * 100_000})["data"]


def test_a_fault_in_a_rule_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> str:
        raise RuntimeError

    monkeypatch.setattr("sandbox_kernel.outputs.bundles.clean_html", broken)
    data = shown({"text/html": "<script>x</script>"})["data"]
    assert list(data) == ["text/plain"] and "could not be checked" in data["text/plain"]


@pytest.mark.parametrize(
    ("msg_type", "content", "buffers"),
    [
        ("status", {}, []), ("execute_input", {}, []), ("display_data", {"data": 1}, []), ("display_data", {}, [b"x"]),
        ("error", {"ename": "x", "evalue": "y", "traceback": [1]}, []), ("execute_result", {"data": {}}, []),
        ("comm_open", {"comm_id": 1, "target_name": "x"}, []), ("comm_msg", {"comm_id": 7}, []),
    ],
)  # fmt: skip
def test_nonsense_is_a_protocol_error(msg_type: str, content: dict[str, Any], buffers: list[bytes]) -> None:
    with pytest.raises(ProtocolError):
        gate(msg_type, content, buffers)


def test_transient_holds_the_display_id_only() -> None:
    content = {"data": {}, "transient": {"display_id": "d", "x": 1}}
    assert gate("display_data", content) == {"data": {}, "metadata": {}, "transient": {"display_id": "d"}}
    long = gate("update_display_data", {"data": {}, "transient": {"display_id": "d" * 300}})
    assert long is not None and long["transient"] == {}


def test_what_was_removed_is_counted() -> None:
    session = Gate()
    for _ in range(3):
        session.message("display_data", {"data": {"application/javascript": "1"}})
    assert session.removed["script"] == 3


FIGURE = {"data": [{"type": "scatter", "x": [1, 2], "y": {"dtype": "f8", "bdata": "//8AAAAA8D8="}}], "layout": {}}
CHART = {"$schema": "https://vega.github.io/schema/vega-lite/v6.4.1.json", "mark": "bar",
         "data": {"values": [{"a": 1}]},
         "encoding": {"x": {"field": "a", "type": "quantitative"}}}  # fmt: skip
DOCS = {"d1": {"version": "3.9", "roots": [{"type": "object", "name": "Figure", "id": "p1", "attributes": {}}]}}
ITEMS = [{"docid": "d1", "roots": {"p1": "e1"}, "root_ids": ["p1"]}]

LINKS: list[dict[str, Any]] = [
    {"layout": {"images": [{"source": "http://e.org/x.png"}]}}, {"layout": {"map": {"style": "http://e.org/s"}}},
    {"layout": {"mapbox": {"layers": [{"source": "//e.org/t", "sourcetype": "raster"}]}}},
    {"layout": {"title": {"text": "<a href='http://e.org'>x</a>"}}}, {"config": {"plotlyServerURL": "http://e.org"}},
    {"layout": {"title": {"text": "<span style='background:url(http://e.org)'>x</span>"}}},
    {"data": [{"type": "scattergeo", "geojson": "http://e.org/g"}]},
    {"layout": {"font": {"family": "x;url(//e.org)"}}},
    {"layout": {"images": [{"source": ["http://e.org/x.png"]}]}}, {"config": {"topojsonURL": "http://e.org"}},
    {"layout": {"images": [{"source": "/api/contents"}]}}, {"layout": {"images": [{"source": " \thttp://e.org"}]}},
    {"layout": {"updatemenus": [{"buttons": [{"args": [{"images[0].source": "/api/contents"}]}]}]}},
    {"layout": {"updatemenus": [{"buttons": [{"args": ["images[0].source", "/api/contents"]}]}]}},
    {"layout": {"updatemenus": [{"buttons": [{"args2": ["map.style", "/api/contents"]}]}]}},
    {"layout": {"sliders": [{"steps": [{"args": ["mapbox.style", "/api/contents"]}]}]}},
    {"layout": {"updatemenus": [{"buttons": [{"args": ["map.style.sources.a.data", "/api/contents"]}]}]}},
    {"layout": {"map": {"style": {"sources": {"a": {"type": "geojson", "data": "/api/contents"}}}}}},
    {"layout": {"map": {"style": {"font-faces": {"a": "/api/contents"}}}}},
    {"layout": {"updatemenus": [{"buttons": [{"args": [{"map.style.font-faces.a": "/api/contents"}]}]}]}},
    {"layout": {"updatemenus": [{"buttons": [{"args2": ["images[0].source", "/api/contents"]}]}]}},
    {"layout": {"updatemenus": [{"buttons": [{"args": [{"updatemenus[0].buttons[0].args[1]": "/api/contents"}]}]}]}},
    {"layout": {"updatemenus": [{"buttons": [{"args": ["updatemenus[0].buttons[0].args2[1]", "/api/contents"]}]}]}},
]  # fmt: skip

CHARTS: list[dict[str, Any]] = [
    {"data": {"url": "http://e.org/d.json"}}, {"data": {"url": "/api/contents"}},
    {"usermeta": {"embedOptions": {"x": 1}}},
    {"mark": {"type": "image", "url": "http://e.org"}}, {"encoding": {"url": {"field": "u"}}},
    {"encoding": {"url": {"value": "/api/contents"}}}, {"encoding": {"href": {"value": "javascript:x"}}},
    {"datasets": {"d": [{"image": "/x.png"}]}, "encoding": {"tooltip": {"field": "image"}}},
    {"params": [{"name": "a", "bind": {"input": "text", "element": "#api"}}]},
    {"params": [{"name": "a", "select": {"type": "point", "on": "window:keydown"}}]},
    {"transform": [{"calculate": "event.view.alert(1)", "as": "x"}]},
    {"transform": [{"calculate": "datum['constr'+'uctor']", "as": "x"}]},
    {"mark": {"type": "bar", "cursor": "url(http://e.org/c.png), auto"}},
    {"datasets": {"d": [{"x": "http://e.org"}]}},
    {"encoding": {"tooltip": {"expr": "{'image': '/api/contents'}"}}}, {"config": {"loader": {"baseURL": "/api/"}}},
    {"data": {"values": "image,a\n/api/contents,1", "format": {"type": "csv"}}},
    {"data": {"name": "d"}, "datasets": {"d": "image,a\n/api/contents,1"}},
    {"encoding": {"tooltip": {"field": "a", "title": "[image]"}}}, {"encoding": {"x": {"field": "['image']"}}},
    {"mark": {"type": "bar", "cursor": {"expr": "'u'+'rl(/api/contents), auto'"}}},
    {"params": [{"name": "cursor", "expr": "'u'+'rl(/api/contents), auto'"}]},
    {"params": [{"name": [["cursor"]], "expr": "'u'+'rl(/api/contents), auto'"}]},
    {"transform": [{"filter": {"not": "event.view"}}, {"filter": {"and": ["event.view"]}}]},
    {"params": [{"name": "a", "select": {"type": "point", "toggle": "event.view"}}]},
    {"encoding": {"x": {"axis": {"format": "a", "formatType": "event.view||x"}}}},
    {"encoding": {"tooltip": {"field": "a", "format": '")&&{image: "/api/contents"}||("'}}},
    {"config": {"numberFormat": '")&&{image: "/api/contents"}||("', "timeFormatType": "event.view||x"}},
    {"data": {"values": [{"a": 1}], "format": {"parse": {"a": "date:'')||{image: '/api/contents'}||('x'"}}}},
    {"transform": [{"filter": {"field": "a", "equal": {"year": "1)||event.view||(1"}}}]},
    {"encoding": {"x": {"scale": {"type": "pow", "exponent": "1)||event.view||(1"}}}},
    {"transform": [{"impute": "a&&event.view", "key": "b"}]},
]  # fmt: skip


class TestFigures:
    def test_plotly(self) -> None:
        data = shown({"application/vnd.plotly.v1+json": FIGURE, "text/html": "<script>x</script>"})["data"]
        assert data == {"application/vnd.plotly.v1+json": FIGURE}

    @pytest.mark.parametrize("version", ["v5", "v5.20.1", "v6", "v6.4.1"])
    def test_vega_lite_comes_in_a_version_that_is_known(self, version: str) -> None:
        data = shown({f"application/vnd.vegalite.{version}+json": CHART})["data"]
        assert list(data) == ["application/vnd.vegalite.v5+json"]
        chart = data["application/vnd.vegalite.v5+json"]
        assert chart["mark"] == "bar" and chart["$schema"].endswith("/v5.json")

    def test_plotlys_page(self) -> None:
        page = f"<div><script>lib</script><script>Plotly.newPlot( 'i-1', {json.dumps(FIGURE['data'])}, {{}}, {{}})"
        assert shown({"text/html": f"{page}</script></div>"})["data"] == {"application/vnd.plotly.v1+json": FIGURE}

    def test_altairs_page(self) -> None:
        page = f"<div></div><script>(function(spec, o){{vegaEmbed(spec)}})({json.dumps(CHART)}, {{}});</script>"
        assert list(shown({"text/html": page, "text/plain": "t"})["data"]) == [
            "text/plain", "application/vnd.vegalite.v5+json"]  # fmt: skip

    def test_bokehs_script_is_drawn_by_the_library_of_the_front(self) -> None:
        script = f"const docs_json = {json.dumps(DOCS)};\n const render_items = {json.dumps(ITEMS)};\n evil()"
        bundle = {"application/javascript": script, "application/vnd.bokehjs_exec.v0+json": ""}
        html = shown(bundle)["data"]["text/html"]
        assert "evil" not in html and html.startswith('<div style="contain: content;')
        assert html.count("<iframe") == 1 and 'sandbox="allow-scripts"' in html and "allow-same-origin" not in html

    @pytest.mark.parametrize("name", ["<img src=x onerror=evil()>Tile", "CustomJS<b>", "a<script>.B", "<b>.C"])
    def test_a_note_names_no_model_as_cells_have_written_it(self, name: str) -> None:
        model = {"type": "object", "name": name, "id": "q"}
        figure = {**DOCS["d1"]["roots"][0], "attributes": {"x": model}}
        for roots in ([figure], [model], [figure, model]):
            script = f"docs_json = {json.dumps({'d1': {'roots': roots}})}; render_items = {json.dumps(ITEMS)};"
            data = shown({"text/html": f"<div><script>{script}</script></div>"})["data"]
            note = "".join(data.values()).partition("[The sandbox removed")[2]
            assert not set("<>") & set(note.removesuffix("</small></p>"))

    def test_models_that_are_not_bokehs_end_no_figure(self) -> None:
        figure, live = DOCS["d1"]["roots"][0], {"type": "object", "name": "panel.models.comm_manager.CommManager"}
        column = {"type": "object", "name": "Column", "id": "c1", "attributes": {"children": [live]}}
        note = "[The sandbox removed from this output: what panel draws by script of its own]"
        for roots, drawn in (([figure, live], True), ([live], False), ([column], False), ([figure, column], True)):
            script = f"docs_json = {json.dumps({'d1': {'roots': roots}})}; render_items = {json.dumps(ITEMS)};"
            data = shown({"text/html": f"<div><script>{script}</script></div>", "text/plain": "t"})["data"]
            html = data.get("text/html", "")
            assert ("<iframe" in html) == drawn and "CommManager" not in html
            assert note in (html if drawn else data["text/plain"])

    @pytest.mark.parametrize("figure", LINKS, ids=range(len(LINKS)))
    def test_a_plotly_figure_fetches_nothing(self, figure: dict[str, Any]) -> None:
        text = json.dumps(shown({"application/vnd.plotly.v1+json": figure})["data"])
        assert "e.org" not in text and "/api" not in text and "<a" not in text

    @pytest.mark.parametrize(
        "data",
        [[{"texttemplate": "%{customdata[0]}%{customdata[1]}>x</a>", "customdata": [["<", "a href='x'"]]}],
         [{"texttemplate": "<%{customdata[0]}>", "customdata": [["a href='x'"]]}],
         [{"cells": {"prefix": ["<"], "values": [["a href='x'"]]}}], [{"name": "<a"}], [{"name": "<<b>span"}]],
    )  # fmt: skip
    def test_plotly_puts_no_tag_together(self, data: list[dict[str, Any]]) -> None:
        found = json.dumps(shown({"application/vnd.plotly.v1+json": {"data": data}})["data"])
        assert "<" not in found.replace("<b>", "").replace("</b>", "")

    def test_texts_stay_with_their_points(self) -> None:
        data = [{"x": [1, 2, 3], "text": ["https://e.org/a", "b", "//e.org"]}]
        found = shown({"application/vnd.plotly.v1+json": {"data": data}})["data"]["application/vnd.plotly.v1+json"]
        assert found["data"] == [{"x": [1, 2, 3], "text": ["", "b", ""]}]

    def test_buttons_that_choose_a_map_are_kept(self) -> None:
        buttons = [{"args": ["map.style", "open-street-map"], "args2": [{"map.style": "white-bg"}]},
                   {"args": ["line.dash", "dot"]}, {"args": ["title.text", "a / b"]}]  # fmt: skip
        layout = {"updatemenus": [{"buttons": buttons}], "map": {"style": {"version": 8, "layers": [{"id": "a"}]}}}
        found = shown({"application/vnd.plotly.v1+json": {"data": [], "layout": layout}})["data"]
        assert found["application/vnd.plotly.v1+json"]["layout"] == layout

    def test_less_than_is_kept(self) -> None:
        data = [{"text": ["<5", "a < b", "a<b and c<d"], "contours": {"operation": "<"}, "name": "<b>x</b><br>y"}]
        found = shown({"application/vnd.plotly.v1+json": {"data": data}})["data"]["application/vnd.plotly.v1+json"]
        assert found["data"] == [{**data[0], "text": ["&lt;5", "a &lt; b", "a&lt;b and c&lt;d"]}]
        chart = {"mark": "bar", "data": {"values": [{"a<b": "c<d"}]}, "encoding": {"x": {"field": "a<b"}}}
        spec = shown({"application/vnd.vegalite.v5+json": chart})["data"]["application/vnd.vegalite.v5+json"]
        assert spec["data"]["values"] == [{"a<\u200bb": "c<\u200bd"}] and spec["encoding"]["x"]["field"] == "a<\u200bb"

    def test_a_control_of_a_chart_has_no_attributes_of_its_own(self) -> None:
        bind = {"input": "range", "min": 0, "max": 9, "step": 1, "name": "n"}
        evil = {"onfocus": "x()", "autofocus": "", "style": "position:fixed", "data-commandlinker-command": "x"}
        for said in (bind, {"a": bind}):
            given = {**bind, **evil} if said is bind else {"a": {**bind, **evil}}
            chart = {"mark": "bar", "params": [{"name": "a", "bind": given}]}
            data = shown({"application/vnd.vegalite.v5+json": chart})["data"]["application/vnd.vegalite.v5+json"]
            assert data["params"] == [{"name": "a", "bind": said}]
        for kind in ({}, {"input": ["text"]}, {"input": {"a": 1}}, {"input": None}, {"a": evil}):
            chart = {"mark": "bar", "params": [{"name": "a", "bind": {**kind, **evil, "onblur": ["x()"]}}]}
            text = json.dumps(shown({"application/vnd.vegalite.v5+json": chart})["data"])
            assert not re.search("on(focus|blur)|style|data-", text)
        chart = {"mark": "bar", "params": [{"name": "a", "bind": {"input": "image", "src": "/api/contents"}}]}
        assert "src" not in json.dumps(shown({"application/vnd.vegalite.v5+json": chart})["data"])

    def test_only_the_name_that_draws_pictures_is_another(self) -> None:
        chart = {"mark": "bar", "encoding": {"x": {"field": "Image"}, "y": {"field": "image"}}}
        data = shown({"application/vnd.vegalite.v5+json": chart})["data"]["application/vnd.vegalite.v5+json"]
        assert data["encoding"] == {"x": {"field": "Image"}, "y": {"field": "image_"}}

    def test_no_name_in_a_chart_begins_an_object(self) -> None:
        chart = {"mark": "boxplot", "data": {"values": [{'a"]||{b': 1}]}, "encoding": {"x": {"field": 'a"]||{b'}}}
        data = shown({"application/vnd.vegalite.v5+json": chart})["data"]["application/vnd.vegalite.v5+json"]
        assert data["encoding"]["x"]["field"] in data["data"]["values"][0] and "||{" not in json.dumps(data)

    def test_formats_of_a_chart_are_kept(self) -> None:
        parse = {"a": "date:'%Y-%m-%d %H:%M'", "b": 'utc:"%d.%m.%Y"', "c": "number", "d": None}
        chart = {
            "mark": "bar", "data": {"values": [{"a": "x", "date": "2020-01-01T00:00:00.000Z", "name": "Event (2020)"}],
                                    "format": {"parse": parse}},
            "transform": [{"filter": {"field": "a", "range": [{"year": 2012, "month": "jan"}, {"year": "2013"}]}}],
            "encoding": {"x": {"axis": {"format": "$,.2f", "formatType": "number"}},
                         "y": {"scale": {"type": "pow", "exponent": 0.5}}, "tooltip": {"format": "%b %d, %Y"}},
        }  # fmt: skip
        data = shown({"application/vnd.vegalite.v5+json": chart})["data"]["application/vnd.vegalite.v5+json"]
        assert {k: v for k, v in data.items() if k != "$schema"} == chart

    def test_no_column_of_a_chart_is_named_image(self) -> None:
        pivot = {"mark": "bar", "transform": [{"pivot": "k", "value": "v"}, {"pivot": "k['x']", "value": "v"}]}
        data = shown({"application/vnd.vegalite.v5+json": pivot})["data"]["application/vnd.vegalite.v5+json"]
        assert data["transform"] == [{"filter": "datum['k'] != 'image'"}, {"pivot": "k", "value": "v"}]

    @pytest.mark.parametrize("stream", ["div:click", "click[event.view.x]", "[*:mousedown, mouseup] > mousemove"])
    def test_a_chart_listens_to_itself(self, stream: str) -> None:
        def kept(on: str) -> Any:
            chart = {"mark": "bar", "params": [{"name": "a", "select": {"type": "point", "on": on}}]}
            data = shown({"application/vnd.vegalite.v5+json": chart})["data"]["application/vnd.vegalite.v5+json"]
            return data["params"][0]["select"].get("on")

        assert kept(stream) is None
        for good in ("pointerover", "[pointerdown[event.shiftKey], pointerup] > pointermove!", "symbol:click"):
            assert kept(good) == (None if "Key" in good else good)

    @pytest.mark.parametrize("chart", CHARTS, ids=range(len(CHARTS)))
    def test_a_chart_fetches_nothing_and_reaches_no_object(self, chart: dict[str, Any]) -> None:
        text = json.dumps(shown({"application/vnd.vegalite.v5+json": {"mark": "bar", **chart}})["data"])
        for word in ("e.org", "/api/contents", "element", "window", "event", "uctor", "usermeta", '"image"', "/api/"):
            assert word not in text


# ------------------------------------------------------------ frames for script

_FOREIGN = "foreign scripts, styles or images"
LOADED = [
    "<script src='https://e.org/a.js'></script>", "<div></div><SCRIPT async\n SRC = //e.org/a.js></script>",
    "<link rel=stylesheet href=\"http://e.org/a.css\"><script>1</script>", "<img src=https://e.org/x.png><canvas>",
    '<iframe srcdoc="&lt;script src=&quot;https://e.org/a.js&quot;&gt;&lt;/script&gt;"></iframe>',
    "<iframe srcdoc='&lt;head&gt;&lt;link x=&quot;1&quot; href=&#x27;//e.org/a.css&#x27;/&gt;'></iframe>",
]
OWN = [
    "<script>const a = 'https://e.org'; draw()</script>", "<a href='https://e.org'>x</a><script>1</script>",
    "<img src='data:image/png;base64,AA=='><script>1</script>", "<script>1</script><p>src=//e.org",
    "<iframe srcdoc='&lt;script&gt;1&lt;/script&gt; &lt;a href=//e.org&gt;'></iframe>", "<canvas></canvas>",
]


@pytest.mark.parametrize("html", LOADED)
def test_a_frame_that_may_stay_empty_says_why(html: str) -> None:
    framed = shown({"text/html": html}, html="frame")["data"]["text/html"]
    assert 'sandbox="allow-scripts"' in framed and f"[The sandbox removed from this output: {_FOREIGN}]" in framed


@pytest.mark.parametrize("html", OWN)
def test_a_frame_that_has_all_it_needs_says_nothing(html: str) -> None:
    framed = shown({"text/html": html}, html="frame")["data"]["text/html"]
    assert 'sandbox="allow-scripts"' in framed and "The sandbox removed" not in framed


@pytest.mark.parametrize("html", ["<script " + "src = " * 1_900_000, "<script>" + "&lt;img " * 1_400_000])
def test_a_frame_takes_no_more_time_than_its_length_needs(html: str) -> None:
    began = time.process_time()
    shown({"text/html": html}, html="frame")
    assert time.process_time() - began < 3
