"""Messages of widgets and other comms, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox_kernel.outputs.gate import Gate, Passed
from sandbox_kernel.outputs.settings import Settings
from sandbox_kernel.outputs.widget_table import BASE, CONTROLS, OUTPUT, TRAITS, VIEWS

PLACES = {"top", "left", "right", "bottom"}
SCRIPT = "<img src=x onerror=alert(1)>"


def identity(name: str, view: str | None = "", module: str = CONTROLS) -> dict[str, Any]:
    known = VIEWS.get((module, name), (module, ""))
    return {
        "_model_module": module, "_model_name": name, "_model_module_version": "2.0.0", "_view_module": known[0],
        "_view_name": known[1] if view == "" else view, "_view_module_version": "2.0.0",
    }  # fmt: skip


class Page:
    """A gate, and the comms that a page would know."""

    def __init__(self, **settings: Any) -> None:
        self.comms: dict[str, str] = {}
        self.gate = Gate(Settings(**settings), self.comms)

    def open(self, comm_id: str, state: Any, buffers: list[bytes] | None = None, **more: Any) -> Passed | None:
        content = {"comm_id": comm_id, "target_name": "jupyter.widget", "data": {"state": state, **more}}
        passed = self.gate.message("comm_open", content, {"version": "2.1.0", "x": 1}, buffers or [])
        if passed is not None:
            self.comms[comm_id] = "jupyter.widget"
        return passed

    def send(self, comm_id: str, data: Any, buffers: list[bytes] | None = None) -> Passed | None:
        return self.gate.message("comm_msg", {"comm_id": comm_id, "data": data}, {}, buffers or [])

    def state(self, comm_id: str, **state: Any) -> dict[str, Any]:
        passed = self.send(comm_id, {"method": "update", "state": state, "buffer_paths": []})
        assert passed is not None
        found: dict[str, Any] = passed.content["data"]["state"]
        return found


def opened(name: str, module: str = CONTROLS, **state: Any) -> dict[str, Any]:
    passed = Page().open("c", {**identity(name, module=module), **state})
    assert passed is not None
    found: dict[str, Any] = passed.content["data"]["state"]
    return found


def test_every_model_of_ipywidgets_is_known() -> None:
    widgets = pytest.importorskip("ipywidgets")
    for kind in vars(widgets).values():
        if not (isinstance(kind, type) and issubclass(kind, widgets.Widget)):
            continue
        defaults = {name: trait.default_value for name, trait in kind.class_traits(sync=True).items()}
        names = [defaults.get(f"_{part}") for part in ("model_module", "model_name", "view_module", "view_name")]
        if names[3] is None:  # drawn by nothing: links, and what only others derive from
            continue
        assert VIEWS[names[0], names[1]] == (names[2], names[3])
        assert {n for n in defaults if not n.startswith(("_model", "_view"))} - TRAITS <= PLACES


def test_a_model_passes_with_what_belongs_to_it() -> None:
    page = Page()
    passed = page.open("c", {**identity("IntSliderModel"), "value": 3, "unknown": 1}, target_module="http://e.org")
    assert passed is not None and passed.metadata == {"version": "2.1.0"}
    assert passed.content == {"comm_id": "c", "target_name": "jupyter.widget", "data": {
        "state": {"value": 3, **identity("IntSliderModel")}, "buffer_paths": []}}  # fmt: skip
    assert page.state("c", value=4) == {"value": 4}


REFUSED = [
    identity("TextModel", "HTMLView"), identity("TextModel", None) | {"_view_module": "http://e.org"},
    identity("HTMLModel", module="anywidget"), identity("AnyModel"), identity("LinkModel", None),
    identity("DirectionalLinkModel", None), identity("HTMLModel") | {"_view_module": BASE},
    identity("HTMLModel", module=BASE) | {"_view_module": CONTROLS, "_view_name": "HTMLView"},
    {}, {"_model_name": 1}, 7, None,
    identity("OutputModel", "HTMLView", OUTPUT),
]  # fmt: skip


@pytest.mark.parametrize("state", REFUSED, ids=range(len(REFUSED)))
def test_any_other_model_is_refused(state: Any) -> None:
    page = Page()
    assert page.open("c", state) is None
    bundle = {"application/vnd.jupyter.widget-view+json": {"model_id": "c"}, "text/plain": "w"}
    data, _ = page.gate.bundle(bundle, {})
    assert list(data) == ["text/plain"] and "widget" in data["text/plain"]
    assert page.send("c", {"method": "update", "state": {"value": 1}}) is None


def test_widgets_can_be_switched_off() -> None:
    assert Page(widgets="off").open("c", identity("IntSliderModel")) is None


def test_a_model_stays_what_it_is() -> None:
    page = Page()
    page.open("c", identity("TextModel"))
    assert page.state("c", **identity("HTMLModel"), value=SCRIPT) == {"value": SCRIPT}


TRAIT_CASES: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("HTMLModel", CONTROLS, {"value": SCRIPT}, {"value": "<img>"}),
    ("HTMLMathModel", CONTROLS, {"value": "$\\href{x}{y}$"}, {"value": "$\\\u200bhref{x}{y}$"}),
    ("HTMLModel", CONTROLS, {"value": {"a": SCRIPT}}, {"value": ""}),
    ("IntSliderModel", CONTROLS, {"description_allow_html": True}, {"description_allow_html": False}),
    ("IntSliderModel", CONTROLS, {"description_allow_html": 1}, {"description_allow_html": False}),
    ("IntSliderModel", CONTROLS, {"description_allow_html": "yes"}, {"description_allow_html": False}),
    ("VBoxModel", CONTROLS, {"_dom_classes": ["jp-Dialog", "widget-interact", 3]},
    {"_dom_classes": ["widget-interact"]}),
    ("ButtonModel", CONTROLS, {"icon": "check spin"}, {"icon": "check spin"}),
    ("ToggleButtonsModel", CONTROLS, {"icons": ["x jp-Dialog", "y"]}, {"icons": ["", "y"]}),
    ("ButtonModel", CONTROLS, {"button_style": "info"}, {"button_style": "info"}),
    ("ButtonModel", CONTROLS, {"button_style": "x jp-Dialog"}, {"button_style": ""}),
    ("ImageModel", CONTROLS, {"format": "url"}, {}), ("ImageModel", CONTROLS, {"format": "png"}, {"format": "png"}),
    ("ImageModel", CONTROLS, {"value": "http://e.org"}, {}), ("VideoModel", CONTROLS, {"format": "url"}, {}),
    ("LayoutModel", BASE, {"width": "50%", "border_top": "1px solid red"}, {"width": "50%",
    "border_top": "1px solid red"}),
    ("LayoutModel", BASE, {"width": "1px; background: url(x)", "top": "-5px", "margin": "-9px 0"}, {}),
    ("LayoutModel", BASE, {"margin": "2px", "overflow": "auto"}, {"margin": "2px", "overflow": "auto"}),
    ("HTMLStyleModel", CONTROLS, {"background": "url(http://e.org)", "font_size": "2em"}, {"font_size": "2em"}),
    ("ProgressStyleModel", CONTROLS, {"bar_color": "url(x)"}, {}),
    ("TextModel", CONTROLS, {"__proto__": {"a": 1}, "value": "x"}, {"value": "x"}),
    ("DropdownModel", CONTROLS, {"_options_labels": ["a", "b"], "index": 0}, {"_options_labels": ["a", "b"],
    "index": 0}),
    ("VBoxModel", CONTROLS, {"children": ["IPY_MODEL_gone"]}, {"children": []}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "module", "said", "shown"), TRAIT_CASES, ids=[f"{c[0]}-{next(iter(c[2]))}" for c in TRAIT_CASES]
)
def test_traits(name: str, module: str, said: dict[str, Any], shown: dict[str, Any]) -> None:
    found = opened(name, module, **said)
    assert {k: v for k, v in found.items() if k not in identity(name, module=module)} == shown


def test_a_box_is_shown_without_the_child_that_was_refused() -> None:
    page = Page()
    page.open("a", identity("TextModel"))
    page.open("b", identity("X", module="anywidget"))
    passed = page.open("c", {**identity("VBoxModel"), "children": ["IPY_MODEL_a", "IPY_MODEL_b"]})
    assert passed is not None and passed.content["data"]["state"]["children"] == ["IPY_MODEL_a"]


def test_outputs_of_an_output_widget() -> None:
    outputs = [
        {"output_type": "display_data", "data": {"text/html": SCRIPT, "application/javascript": "x"},
         "metadata": {"text/html": {"isolated": True}}},
        {"output_type": "stream", "name": "stdout", "text": "\x1b]0;t\x07a"}, {"output_type": "stream", "name": "x"},
        {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["t"]}, {"output_type": "other"}, 3,
    ]  # fmt: skip
    found = opened("OutputModel", OUTPUT, outputs=outputs)["outputs"]
    assert [o["output_type"] for o in found] == ["display_data", "stream", "error"]
    assert list(found[0]["data"]) == ["text/html"] and "onerror" not in str(found[0]) and found[0]["metadata"] == {}
    assert found[1]["text"] == "a"
    assert len(opened("OutputModel", OUTPUT, outputs=outputs * 1000)["outputs"]) <= 200


BUFFERS = [
    ("ImageModel", [["value"]], 1, True), ("ImageModel", [["value"], ["value"]], 1, False), ("HTMLModel", [["value"]],
    1, False),
    ("ImageModel", [["__proto__", "x"]], 1, False), ("ImageModel", [], 1, False), ("ImageModel", "value", 1, False),
    ("FileUploadModel", [["value", 0, "content"]], 1, True), ("FileUploadModel", [["value", "__proto__", "content"]],
    1, False),
]  # fmt: skip


@pytest.mark.parametrize(("name", "paths", "count", "passes"), BUFFERS, ids=range(len(BUFFERS)))
def test_buffers_go_where_binary_data_belongs(name: str, paths: Any, count: int, passes: bool) -> None:
    assert (Page().open("c", identity(name), [b"x"] * count, buffer_paths=paths) is not None) is passes
    page = Page()
    page.open("c", identity(name))
    data = {"method": "update", "state": {}, "buffer_paths": paths}
    assert (page.send("c", data, [b"x"] * count) is not None) is passes


@pytest.mark.parametrize("data", [{"method": "custom", "content": {"do": "focus"}}, {"method": "x", "state": {}}, {},
                                  {"method": "update"}, {"method": ["update"], "state": {}}])  # fmt: skip
def test_commands_to_widgets_do_not_pass(data: Any) -> None:
    page = Page()
    page.open("c", identity("TextModel"))
    assert page.send("c", data) is None


def test_the_states_that_a_page_asks_for() -> None:
    page = Page()
    page.comms["ctl"] = "jupyter.widget.control"
    state = {**identity("HTMLModel"), "value": SCRIPT}
    entry = {"model_name": "HTMLModel", "model_module": "http://e.org", "state": state}
    image = {"model_name": "x", "model_module": "y", "state": identity("ImageModel")}
    data = {
        "method": "update_states", "states": {"a": entry, "b": {"state": identity("X", module="anywidget")},
        "i": image},
        "buffer_paths": [["b", "state", "value"], ["i", "state", "value"], ["a", "state", "value"]],
    }  # fmt: skip
    passed = page.send("ctl", data, [b"1", b"2", b"3"])
    assert passed is not None
    assert passed.content["data"]["states"].keys() == {"a", "i"} and passed.buffers == [b"2"]
    assert passed.content["data"]["states"]["a"]["state"]["value"] == "<img>" and "e.org" not in str(passed)
    assert page.send("ctl", {"method": "custom"}) is None


class TestOtherComms:
    def test_pass_as_data(self) -> None:
        page = Page()
        data = {"a": 1, "__proto__": {}}
        content = {"comm_id": "c", "target_name": "mine", "target_module": "http://e.org", "data": data}
        passed = page.gate.message("comm_open", content, {"m": 2}, [b"x"])
        assert passed == Passed({"comm_id": "c", "target_name": "mine", "data": {"a": 1}}, {"m": 2}, [b"x"])

    @pytest.mark.parametrize("target", ["dash", "jupyter.widget.control", "jupyter.widgets", "a b", "", "x" * 300])
    def test_that_a_page_would_act_on(self, target: str) -> None:
        assert Page().gate.message("comm_open", {"comm_id": "c", "target_name": target, "data": {}}) is None

    def test_can_be_switched_off(self) -> None:
        page = Page(comms="widgets")
        assert page.gate.message("comm_open", {"comm_id": "c", "target_name": "mine", "data": {}}) is None
        page.comms["c"] = "mine"
        assert page.send("c", {}) is None

    def test_of_a_comm_that_is_not_open(self) -> None:
        assert Page().send("unknown", {}) is None
        assert Page().gate.message("comm_close", {"comm_id": "unknown"}) is None
