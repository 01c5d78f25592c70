"""Mime bundles: an allow-list of types, each with a rule of its own; the rest is named in one line instead."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from typing import Any

from . import markup, recognise, specs
from .latex import is_plain_math, is_too_much
from .markdown import is_plain_markdown, render
from .markup import clean_html, clean_svg
from .settings import Removed, Settings
from .text import clean_text, joined, without_commands

MIMETYPES = 40
_NAME = re.compile(r"[a-z0-9]{1,40}/[a-z0-9.+_-]{1,100}")
_RASTER = {"image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp"}
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]*+={0,2}+\s*+")
_PLOTLY = "application/vnd.plotly.v1+json"
_WIDGET = "application/vnd.jupyter.widget-view+json"
_TEXTS = {"text/plain", "text/html", "image/svg+xml", "text/markdown", "text/latex"}
_SCRIPT = {"application/javascript", "text/javascript", "application/x-javascript", "text/ecmascript"}
# Stand beside a script and name what it is for.
_BESIDE_SCRIPT = ("application/vnd.bokehjs_", "application/vnd.holoviews_")
# A library of the page is loaded. Its figures are drawn without that, so nobody misses anything.
_LOADING = {"application/vnd.bokehjs_load.v0+json", "application/vnd.holoviews_load.v0+json"}
_SCRIPTED_HTML = re.compile(r"<\s*(?:script|iframe|canvas|object|embed)[\s>/]", re.I)
_PIXELS = 20_000
_BANNER_CHARS = 5000
_LATEX_CHARS = 200_000
# In a formula the space means nothing. A program that takes the text for HTML sees no tag any more.
_TAG_START = re.compile(r"<(?=[A-Za-z!/?])")
_STRIP = re.compile(r"<[^<>]*>")

# The other entries of a chart's menu send it to a page elsewhere or open a page that is made of it.
_CHART_OPTIONS = {"embed_options": {"actions": {"export": True, "source": False, "compiled": False, "editor": False}}}

Shown = Callable[[object], bool]


def clean_bundle(
    data: dict[str, Any], metadata: dict[str, Any], settings: Settings, removed: Removed, shown: Shown
) -> tuple[dict[str, Any], dict[str, Any]]:
    """``data`` and ``metadata`` of an output, without what acts.

    Args:
        removed: what was taken out is counted here, and said in the output.
        shown: whether the page has the widget with this id.
    """
    lost = Removed()
    bundle = _Bundle(settings, lost, shown)
    # The text first: it is what is left when nothing else may be shown.
    if _LOADING & data.keys():
        data = {name: value for name, value in data.items() if name not in _SCRIPT | _LOADING}
        removed["script that loads a library"] += 1
    for name, value in sorted(data.items(), key=lambda item: item[0] != "text/plain")[:MIMETYPES]:
        bundle.take(name, value)
    if len(data) > MIMETYPES:
        lost["further types"] += 1
    out = bundle.finish()
    removed.add(lost)
    return out, _metadata(out, metadata)


class _Bundle:
    def __init__(self, settings: Settings, removed: Removed, shown: Shown) -> None:
        self._settings, self._removed, self._shown = settings, removed, shown
        self.out: dict[str, Any] = {}
        # What is worth saying only when nothing else of the bundle shows the same.
        self._figure = self._silent = False

    def take(self, name: str, value: Any) -> None:
        try:
            self._take(name, value)
        except specs.Unfit as reason:
            self._removed[str(reason)] += 1

    def _take(self, name: str, value: Any) -> None:
        settings, removed, out = self._settings, self._removed, self.out
        if name in _RASTER:
            self._picture(name, value)
        elif name == "application/json":
            out[name] = specs.clean_tree(value)
        elif name == _PLOTLY:
            out[name], self._figure = specs.clean_plotly(value, removed), True
        elif specs.VEGA_LITE.fullmatch(name):
            out[specs.SHOWN_AS], self._figure = specs.clean_vega_lite(value, removed), True
        elif name == _WIDGET:
            self._widget(value)
        elif (text := joined(value)) is not None and self._text(name, text):
            pass
        elif name in settings.mimetypes and name not in _TEXTS:
            out[name] = specs.clean_any(value)
        elif name.startswith(_BESIDE_SCRIPT):
            self._silent = True
        else:
            removed[name if _NAME.fullmatch(name) else "an unknown type"] += 1

    def _text(self, name: str, text: str) -> bool:
        """Whether this is a type of text that has a rule."""
        out = self.out
        if name == "text/plain":
            out[name] = clean_text(text)
            return True
        text = without_commands(text)
        if name == "text/html":
            self._html(text)
        elif name == "image/svg+xml":
            drawing = clean_svg(text, self._removed)
            if drawing is None:
                self._removed["a drawing that is not well-formed"] += 1
            else:
                out[name] = drawing
        elif name == "text/markdown":
            self._markdown(text)
        elif name == "text/latex":
            if is_plain_math(text) and len(text) <= _LATEX_CHARS and not is_too_much(text):
                out[name] = _TAG_START.sub("< ", text)
            else:
                self._removed["LaTeX macros"] += 1
                out.setdefault("text/plain", clean_text(text))
        elif name in _SCRIPT:
            self._script(text)
        else:
            return False
        return True

    def _picture(self, name: str, value: Any) -> None:
        text = joined(value)
        if text is None or _BASE64.fullmatch(text) is None:
            self._removed["a picture that is none"] += 1
        elif len(text) > self._settings.image_size:
            self._removed["a picture that is too large"] += 1
        else:
            self.out[name] = text

    def _widget(self, value: Any) -> None:
        model_id = value.get("model_id") if isinstance(value, dict) else None
        if self._shown(model_id):
            self.out[_WIDGET] = {"version_major": 2, "version_minor": 0, "model_id": model_id}
        else:
            self._removed["a widget (only those of ipywidgets itself are shown)"] += 1

    def _html(self, text: str) -> None:
        settings, out = self._settings, self.out
        if self._figure_of(text):
            return
        if len(text) < _BANNER_CHARS and "Loading BokehJS" in text:
            return  # the script that would replace this line is not run, and not needed
        if settings.html == "text":
            self._removed["HTML"] += 1
            return
        if settings.html == "frame" and _SCRIPTED_HTML.search(text):
            framed = markup.scripted(text, self._removed)
        else:
            framed = clean_html(text, self._removed, settings)
        if framed is not None and (framed.strip() or not text.strip()):
            out["text/html"] = framed
        elif framed is None:
            out.setdefault("text/plain", clean_text(_STRIP.sub("", text[: settings.html_size])[:100_000]))

    def _markdown(self, text: str) -> None:
        if is_plain_markdown(text):
            self.out["text/markdown"] = text
            return
        html = render(text, self._removed, self._settings)
        if html is not None:
            html = clean_html(html, self._removed, self._settings)
        if html is None:
            self.out.setdefault("text/plain", clean_text(text))
        else:
            self.out.setdefault("text/html", html)

    def _script(self, text: str) -> None:
        if not self._figure_of(text):
            self._removed["script"] += 1

    def _figure_of(self, text: str) -> bool:
        """Whether the script (or page) draws a figure whose data could be shown without it."""
        out, removed = self.out, self._removed
        if "<script" in text[-200_000:] or not text.lstrip().startswith("<"):
            if (figure := recognise.plotly(text)) is not None:
                out[_PLOTLY], self._figure = specs.clean_plotly(figure, removed), True
                return True
            if (chart := recognise.vega_lite(text)) is not None:
                out[specs.SHOWN_AS], self._figure = specs.clean_vega_lite(chart, removed), True
                return True
            if (document := recognise.bokeh(text)) is not None:
                drawn = markup.bokeh(document, removed)
                if drawn is not None:
                    out["text/html"], self._figure = drawn, True
                return True
        return False

    def finish(self) -> dict[str, Any]:
        """The bundle, with a line on what it lost."""
        out = self.out
        if self._figure and (_PLOTLY in out or specs.SHOWN_AS in out):
            out.pop("text/html", None)  # the same figure, as script
            for kind in ("script", "HTML"):
                self._removed.pop(kind, None)
        if not out and not self._removed and self._silent:
            self._removed["script"] += 1
        note = self._removed.note()
        if not note:
            return out
        if "text/html" in out:
            out["text/html"] = _with_note(out["text/html"], note)
        elif not any(name in out for name in _SHOWN_FIRST) and "text/markdown" not in out:
            plain = out.get("text/plain")
            out["text/plain"] = f"{plain}\n{note}" if plain else note
        return out


_SHOWN_FIRST = {*_RASTER, "image/svg+xml", _PLOTLY, specs.SHOWN_AS, _WIDGET, "application/json", "text/latex"}


def _with_note(html: str, note: str) -> str:
    return f"{html}<p><small>{escape(note, quote=False)}</small></p>"  # (it may name what cells have named)


def _metadata(out: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
    """Sizes of pictures and how a JSON tree is opened; ``isolated`` and its like would open a frame with an origin."""
    kept: dict[str, Any] = {}
    for name in out:
        found = metadata.get(name)
        if name == specs.SHOWN_AS:
            kept[name] = _CHART_OPTIONS
            continue
        if not isinstance(found, dict):
            continue
        if name in _RASTER:
            sizes = {k: v for k in ("width", "height") if _is_size(v := found.get(k))}
            if found.get("needs_background") in ("light", "dark"):
                sizes["needs_background"] = found["needs_background"]
            if sizes:
                kept[name] = sizes
        elif name == "application/json":
            tree = {"expanded": found["expanded"]} if isinstance(found.get("expanded"), bool) else {}
            if isinstance(root := found.get("root"), str):
                tree["root"] = root[:100]
            if tree:
                kept[name] = tree
    if metadata.get("needs_background") in ("light", "dark"):
        kept["needs_background"] = metadata["needs_background"]
    return kept


def _is_size(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= _PIXELS
