"""Messages of widgets: which models may exist in the page, and what each of their traits may hold.

A page builds whatever a comm message names. So a model passes only when it is one of ipywidgets' own, shown by the view
that belongs to it; links between models in the page are refused, for through them a text becomes markup without any
message that could be looked at.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from . import specs
from .latex import break_macros
from .markup import clean_html, clean_value
from .settings import Removed, Settings
from .widget_table import IDENTITY, MARKUP, MEDIA, TRAITS, VIEWS

TARGET, CONTROL = "jupyter.widget", "jupyter.widget.control"
MODELS = 20_000
OUTPUTS = 200
_DEPTH = 12
_TEXT = 2_000_000
_REFERENCE = "IPY_MODEL_"
_ENUM = re.compile(r"[a-z-]{0,20}")
_ICON = re.compile(r"[a-z0-9 -]{0,60}", re.I)
_VERSION = re.compile(r"[\^~]?\d{1,3}(?:\.\d{1,3}){0,2}|\*")
_NEGATIVE = re.compile(r"(?<![\w.)])-\s*[\d.]|calc|translate", re.I)
_CLASS = re.compile(r"(?:widget|jupyter-widgets?|mod|p-tab|lm-tab)-[a-z-]{1,40}|jupyter-button|o-[\w-]{1,80}|sr-only")
_CHOICES = {"bar_style", "box_style", "button_style", "tag_style", "orientation", "mapping", "behavior"}
_ICONS = {"icon", "icons"}
# Typeset by the page when it shows them.
_TYPESET = {"description", "titles", "_options_labels", "tooltip", "tooltips", "error", "readout"}
_SHOWN_TEXT = {"LabelModel", "ValidModel"}

CleanOutput = Callable[[dict[str, Any]], dict[str, Any] | None]


class Model(NamedTuple):
    """What a model was opened as."""

    module: str
    name: str


class Message(NamedTuple):
    """Data of a comm message and the buffers that go with it."""

    data: dict[str, Any]
    buffers: list[bytes]


class Widgets:
    """The models that exist in the page, by the id of their comm.

    Args:
        clean_output: passes one output of an Output widget, or drops it.
    """

    def __init__(self, settings: Settings, clean_output: CleanOutput) -> None:
        self._settings, self._clean_output = settings, clean_output
        self.models: OrderedDict[str, Model] = OrderedDict()
        self._work = specs.Work()  # of the message that is looked at

    def shown(self, model_id: object) -> bool:
        """Whether the page has this model."""
        return self._settings.widgets == "core" and isinstance(model_id, str) and model_id in self.models

    def closed(self, comm_id: str) -> None:
        """The model is gone."""
        self.models.pop(comm_id, None)

    def opened_by_client(self, comm_id: str, data: object) -> None:
        """The page made a model itself; what it is said the page."""
        state = data.get("state") if isinstance(data, dict) else None
        model = _model(state) if isinstance(state, dict) else None
        if model is not None:
            self._remember(comm_id, model)

    def open(self, comm_id: str, data: dict[str, Any], buffers: Sequence[bytes], removed: Removed) -> Message | None:
        """A ``comm_open`` for a model; None when the page must not have it."""
        self._work, state = specs.Work(), data.get("state")
        model = _model(state) if isinstance(state, dict) else None
        if model is None or self._settings.widgets != "core" or not isinstance(state, dict):
            removed[f"a widget of another kind than ipywidgets' own{_said(state)}"] += 1
            return None
        paths = _paths(data)
        if not _fitting(model, paths, len(buffers)):
            removed["a widget's binary data"] += 1
            return None
        self._remember(comm_id, model)
        cleaned = self._state(model, state, removed)
        for name in IDENTITY:
            value = state.get(name)
            if name.endswith("_version"):
                value = value if isinstance(value, str) and _VERSION.fullmatch(value) else "2.0.0"
            cleaned[name] = value
        return Message({"state": cleaned, "buffer_paths": paths}, list(buffers))

    def update(self, comm_id: str, data: dict[str, Any], buffers: Sequence[bytes], removed: Removed) -> Message | None:
        """A ``comm_msg`` for a model; only new states pass, no commands."""
        self._work = specs.Work()
        model, state, method = self.models.get(comm_id), data.get("state"), data.get("method")
        if model is None or not isinstance(state, dict) or method not in ("update", "echo_update"):
            if model is not None and method == "custom":
                removed["a command to a widget"] += 1
            return None
        paths = _paths(data)
        if not _fitting(model, paths, len(buffers)):
            removed["a widget's binary data"] += 1
            return None
        return Message(
            {"method": method, "state": self._state(model, state, removed), "buffer_paths": paths}, list(buffers)
        )

    def states(self, data: dict[str, Any], buffers: Sequence[bytes], removed: Removed) -> Message | None:
        """The answer with all models' states that a page asks for when it is loaded."""
        self._work, found = specs.Work(), data.get("states")
        if data.get("method") != "update_states" or not isinstance(found, dict):
            return None
        states: dict[str, Any] = {}
        for comm_id, entry in list(found.items())[:MODELS]:
            state = entry.get("state") if isinstance(entry, dict) else None
            if not isinstance(state, dict):
                continue
            model = _model(state)
            if model is None or self._settings.widgets != "core":
                continue
            self._remember(comm_id, model)
            cleaned = self._state(model, state, removed)
            cleaned.update({k: state[k] for k in IDENTITY if not k.endswith("_version")})
            version = state.get("_model_module_version")
            version = version if isinstance(version, str) and _VERSION.fullmatch(version) else "2.0.0"
            cleaned.update(_model_module_version=version, _view_module_version=version)
            states[comm_id] = {"model_name": model.name, "model_module": model.module,
                               "model_module_version": version, "state": cleaned}  # fmt: skip
        kept_paths, kept_buffers = [], []
        raw = data.get("buffer_paths")
        for path, buffer in zip(raw if isinstance(raw, list) else [], buffers, strict=False):
            known = isinstance(path, list) and len(path) > 2 and isinstance(path[0], str) and path[0] in states
            if not known or path[1] != "state":
                continue
            if _fitting(self.models[path[0]], [path[2:]], 1):
                kept_paths.append(path)
                kept_buffers.append(buffer)
        return Message({"method": "update_states", "states": states, "buffer_paths": kept_paths}, kept_buffers)

    def _remember(self, comm_id: str, model: Model) -> None:
        self.models[comm_id] = model
        while len(self.models) > MODELS:
            self.models.popitem(last=False)

    # ------------------------------------------------------------ traits

    def _state(self, model: Model, state: dict[str, Any], removed: Removed) -> dict[str, Any]:
        cleaned = {}
        for name, value in state.items():
            if name not in TRAITS:
                continue
            try:
                value = self._trait(model, name, value, removed)
            except specs.Unfit:
                value = None
                removed["a widget's data"] += 1
            if value is not _NOTHING:
                cleaned[name] = value
        return cleaned

    def _trait(self, model: Model, name: str, value: Any, removed: Removed) -> Any:
        if name == "description_allow_html":
            return False
        if name == "_dom_classes":
            return [c for c in value if isinstance(c, str) and _CLASS.fullmatch(c)] if isinstance(value, list) else []
        if name == "outputs":
            return self._outputs(value)
        if value is None or isinstance(value, (bool, int, float)):
            return value
        if model.name == "LayoutModel" or model.name.endswith("StyleModel"):
            return _style_value(name, value, removed)
        if name == "value" and model.name in MARKUP:
            return self._markup(value, removed)
        if model.name in MEDIA and name == "format":
            return value if isinstance(value, str) and value in MEDIA[model.name] else _NOTHING
        if model.name in MEDIA and name == "value":
            return _NOTHING  # comes as a buffer
        if name in _CHOICES and isinstance(value, str):
            return value if _ENUM.fullmatch(value) else ""
        if model.name == "TabModel" and name == "children" and not isinstance(value, list):
            return _NOTHING
        return specs.copy(value, self._rule(model, name), depth=_DEPTH, work=self._work)

    def _rule(self, model: Model, trait: str) -> specs.Rule:
        typeset = trait in _TYPESET or (trait == "value" and model.name in _SHOWN_TEXT)

        def rule(_key: str, value: Any) -> Any:
            if not isinstance(value, str):
                return value
            if value.startswith(_REFERENCE):
                # A model that was refused: what holds it is shown without it.
                return value if self.shown(value[len(_REFERENCE) :]) else specs.DROP
            if trait in _ICONS:
                return value if _ICON.fullmatch(value) and (trait == "icon" or " " not in value) else ""
            value = value[:_TEXT]
            return break_macros(value) if typeset else value

        return rule

    def _markup(self, value: Any, removed: Removed) -> str:
        if not isinstance(value, str):
            return ""
        if "<" not in value:
            return break_macros(value)
        return clean_html(value, removed, self._settings) or ""

    def _outputs(self, value: Any) -> list[dict[str, Any]]:
        kept = []
        for output in value[:OUTPUTS] if isinstance(value, list) else []:
            cleaned = self._clean_output(output) if isinstance(output, dict) else None
            if cleaned is not None:
                kept.append(cleaned)
        return kept


_NOTHING = specs.DROP


def _model(state: dict[str, Any]) -> Model | None:
    names = [state.get(name) for name in ("_model_module", "_model_name", "_view_module", "_view_name")]
    module, name, view_module, view = names
    if not isinstance(module, str) or not isinstance(name, str):
        return None
    known = VIEWS.get((module, name))
    if known is None or (view is not None and (view_module, view) != known):
        return None
    if view is None and view_module is not None and view_module != known[0]:
        return None
    return Model(module, name)


def _said(state: object) -> str:
    module = state.get("_model_module") if isinstance(state, dict) else None
    return f" ({module})" if isinstance(module, str) and re.fullmatch(r"[\w@/.-]{1,40}", module) else ""


def _paths(data: dict[str, Any]) -> list[list[Any]]:
    paths = data.get("buffer_paths", [])
    return paths if isinstance(paths, list) else []


def _fitting(model: Model, paths: list[Any], buffers: int) -> bool:
    """Whether buffers go only where this model takes binary data."""
    if len(paths) != buffers:
        return False
    for path in paths:
        if model.name in MEDIA and path == ["value"]:
            continue
        uploaded = model.name == "FileUploadModel" and isinstance(path, list) and len(path) == 3
        if not (uploaded and path[0] == "value" and type(path[1]) is int and path[2] == "content"):
            return False
    return True


# A box at another place than its own would cover what is there.
_PLACES = {"top", "left", "right", "bottom"}


def _style_value(name: str, value: Any, removed: Removed) -> Any:
    if not isinstance(value, str) or name in _PLACES:
        return _NOTHING
    known = name.replace("_", "-")
    known = {"bar-color": "color", "handle-color": "color", "button-color": "color", "text-color": "color",
             "description-width": "width", "button-width": "width", "object-fit": "display",
             "object-position": "background-position"}.get(known, known)  # fmt: skip
    cleaned = clean_value(known, value) if value else value
    if cleaned is None or (name == "margin" and _NEGATIVE.search(cleaned)):
        removed["style values of a widget"] += 1
        return _NOTHING
    return cleaned
