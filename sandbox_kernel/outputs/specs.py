"""Figures as data: plotly and Vega-Lite specifications, JSON trees. Copied deeply, without what fetches or acts."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from .latex import break_macros
from .settings import Removed, words

DEPTH = 60
NODES = 2_000_000
TREE_NODES = 40_000
# Of one message, so that a page's other requests are answered within a second meanwhile.
LOOKS = 400_000  # values that a rule is asked about one by one
MARKED_CHARS = 4_000_000  # of texts that may hold markup or formulas
_POISON = {"__proto__", "constructor", "prototype"}
DROP: Any = object()  # what a rule returns to leave a value out
_PLAIN = {int, float, bool, type(None)}
_MARKUP = re.compile(r"<[A-Za-z/!?]")
_ADDRESS = re.compile(r"\s*(?:[a-z][a-z0-9+.-]{0,30}:)?//|\s*(?:java|vb)script\s*:", re.I)
_DATA_PICTURE = re.compile(r"data:image/(?:png|jpe?g|gif|webp|bmp);base64,[A-Za-z0-9+/=\s]+", re.I)
_MARKUP_START = re.compile(r"<(?=[A-Za-z/!?])")
_BASE64 = re.compile(r"[A-Za-z0-9+/=]*")
_CSS_URL = re.compile(r"\burl\s*\(", re.I)
_TAG = re.compile(r"<[A-Za-z/!?][^<>]*>")
_KEPT = frozenset(
    {"<br>", "<br/>", "<br />", *(f"<{slash}{tag}>" for tag in ("b", "i", "sub", "sup", "em") for slash in ("", "/"))}
)


class Unfit(Exception):
    """The data is too large, too deep or of the wrong shape; the text says which, in words of ours."""


class Work:
    """What may still be looked at in one message."""

    def __init__(self) -> None:
        self._looks, self._chars = LOOKS, MARKED_CHARS

    def take(self, value: Any) -> None:
        """A rule is about to be asked about this value.

        Raises:
            Unfit: that was enough.
        """
        self._looks -= 1
        if type(value) is str and ("<" in value or "\\" in value):
            self._chars -= len(value)
        if self._looks < 0 or self._chars < 0:
            raise Unfit("data that is too large")


Rule = Callable[[str, Any], Any]


def copy(
    value: Any, rule: Rule, *, depth: int = DEPTH, nodes: int = NODES, rename: Callable[[str], str] = str,
    passes: Callable[[str, str], bool] | None = None, work: Work | None = None,
) -> Any:  # fmt: skip
    """A deep copy in which ``rule(key, value)`` may replace each value other than numbers, or drop it (`DROP`).

    Args:
        passes: whether the rule changes none of the texts of a list, given its key and all of them in one.
        work: of the message, when this is not all of it.

    Raises:
        Unfit: it is deeper or has more nodes than allowed, or takes too long.
    """
    left, work = nodes, work or Work()

    def walk(key: str, value: Any, depth: int) -> Any:
        nonlocal left
        kind = type(value)
        if kind in _PLAIN:
            return value
        work.take(value)
        value = rule(key, value)
        if value is DROP:
            return DROP
        if not isinstance(value, (dict, list)):
            return value
        if depth <= 0:
            raise Unfit("data that is nested too deeply")
        left -= len(value)
        if left < 0:
            raise Unfit("data that is too large")
        if isinstance(value, dict):
            kept = {rename(name): walk(name, v, depth - 1) for name, v in value.items() if name not in _POISON}
            return {name: v for name, v in kept.items() if v is not DROP}
        if value and all(type(item) in _PLAIN for item in value):
            return list(value)
        if passes and value and all(type(item) is str for item in value) and passes(key, "\n".join(value)):
            return list(value)
        return [v for v in (walk(key, item, depth - 1) for item in value) if v is not DROP]

    return walk("", value, depth)


def is_markup(text: str) -> bool:
    """Whether a page that takes this text as HTML would see more than text."""
    return _MARKUP.search(text) is not None


def clean_tree(value: Any) -> Any:
    """The value of ``application/json``.

    Raises:
        Unfit: see `copy`.
    """
    return copy(value, lambda _key, value: value, nodes=TREE_NODES)


_OPEN = re.compile(r"<(?!(?:br ?/?|/?(?:b|i|sub|sup|em))>)", re.I)


# ------------------------------------------------------------ plotly

_PLOTLY_LINKS = {
    "url", "urls", "href", "source", "topojsonurl", "plotlyserverurl", "tiles", "glyphs", "sprite", "geojson", "data",
}  # fmt: skip
# An attribute can be named by its path: ``images[0].source``. Buttons of a figure set attributes that are named so.
_PATH = re.compile(r"[^.\[\]]*\Z")
_ARGUMENTS = {"args", "args2"}  # the second ones are those of a button that is pressed again
_SETS_ARGUMENTS = re.compile(r"[.\]]args2?\b|\bstyle[.\[]")  # what another button does, or a part of a map's style
_PLOTLY_CONFIG = {"responsive", "displayModeBar", "scrollZoom", "staticPlot", "displaylogo", "editable"}
_BARE = re.compile(r"[\w-]{1,60}")
_BARE_PATH = re.compile(r"[\w.\[\]-]{1,60}")
_LOADED = re.compile(r"[/\\:]")
_FONT = re.compile(r"[\w ,.'\"-]{0,300}")


def clean_plotly(value: Any, removed: Removed) -> dict[str, Any]:
    """A plotly figure: ``data``, ``layout``, ``frames`` and six switches of ``config``.

    Raises:
        Unfit: it is no figure, or too large.
    """
    if not isinstance(value, dict) or not isinstance(value.get("data", []), list):
        raise Unfit("a figure of an unknown form")

    def rule(key: str, value: Any) -> Any:
        low = _last(key)
        if _SETS_ARGUMENTS.search(key):
            return _dropped(removed)
        if key in _ARGUMENTS and isinstance(value, list):
            texts = [v for v in value if isinstance(v, str)]
            named = {_last(v) for v in texts}
            if named & _PLOTLY_LINKS or any(map(_SETS_ARGUMENTS.search, texts)) or (
                "style" in named and not all(map(_BARE_PATH.fullmatch, texts))
            ):  # fmt: skip
                return _dropped(removed)
        if low == "style" and isinstance(value, dict):  # of a map, which can load by keys of any name, also from here
            return copy(value, lambda _key, v: _dropped(removed) if isinstance(v, str) and _LOADED.search(v) else v)
        if low == "bdata" and isinstance(value, str):  # an array of numbers
            return value if _BASE64.fullmatch(value) else DROP
        if low in _PLOTLY_LINKS and isinstance(value, str) and not _DATA_PICTURE.fullmatch(value):
            return _dropped(removed)
        if low == "style" and isinstance(value, str) and not _BARE.fullmatch(value):
            return _dropped(removed)
        if isinstance(value, str):
            return _figure_text(key, value, removed)
        return value

    figure = {name: value[name] for name in ("data", "layout", "frames") if isinstance(value.get(name), (list, dict))}
    cleaned: dict[str, Any] = copy(figure, rule, passes=_passes_plotly)
    config = value.get("config")
    if isinstance(config, dict):
        cleaned["config"] = {k: v for k, v in config.items() if k in _PLOTLY_CONFIG and isinstance(v, bool)}
    return cleaned


def _last(path: str) -> str:
    found = None if path.isalnum() else _PATH.search(path)
    return path.lower() if found is None else found[0].lower()


def _passes_plotly(key: str, texts: str) -> bool:
    """Whether the rule leaves such texts as they are: dates and categories, by the hundred thousand."""
    acting = _PLOTLY_LINKS | {"bdata", "style", "family"} | _ARGUMENTS
    if _last(key) in acting or _SETS_ARGUMENTS.search(key) or not texts.isascii():
        return False
    low = texts.lower()
    return not any(sign in low for sign in ("<", "\\", "//", "script", "url"))


def _figure_text(key: str, value: str, removed: Removed) -> Any:
    if ("<" not in value and len(value) < 4) or _DATA_PICTURE.fullmatch(value):
        return value
    if key == "operation" and value in ("<", "<="):
        return value
    if _ADDRESS.match(value) or _CSS_URL.search(value):
        _dropped(removed)
        return ""  # without it the texts of a list would belong to other points
    if key == "family" and not _FONT.fullmatch(value):
        return DROP
    # plotly puts texts together: "<" of a template or of a tick's prefix, and a tag's name out of the data. Where it is
    # written as an entity it becomes a character only when tags have been told from text.
    return break_macros(_OPEN.sub("&lt;", _with_few_tags(value, removed, _KEPT)))


def _with_few_tags(value: str, removed: Removed, keep: frozenset[str]) -> str:
    """The text without tags other than these bare ones; what is left is looked at again until nothing changes.

    A tag that has no end stays, for the caller to break: most are no tags, but comparisons.
    """
    for _ in range(5):
        if not _MARKUP.search(value):
            return value
        cut = _TAG.sub(lambda found: found.group() if found.group().lower() in keep else "", value)
        if cut == value:
            return value
        removed["markup of a figure"] += 1
        value = cut
    return ""


def _dropped(removed: Removed) -> Any:
    removed["links of a figure"] += 1
    return DROP


# ------------------------------------------------------------ Vega-Lite

VEGA_LITE = re.compile(r"application/vnd\.vegalite\.v([3-6])(?:\.\d{1,3}){0,2}\+json")
SHOWN_AS = "application/vnd.vegalite.v5+json"
SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
_VEGA_LINKS = {"url", "href", "usermeta", "patch", "loader", "baseurl", "$schema", "defaultstyle", "element", "source"}
_EXPRESSIONS = {
    "expr", "signal", "calculate", "filter", "test", "update", "labelexpr", "init", "toggle", "and", "or", "not",
}  # fmt: skip
_KEYS_HELD = re.compile(r"\bevent\.(?:shift|alt|ctrl|meta)Key\b")
# Vega's expressions can call listed functions only, but some of those, and some objects, lead out of the language.
_EXPRESSION = re.compile(
    r"\b(?:event|view|constructor|prototype|toString|valueOf|window|document|call|apply|bind|modify|setdata|lookup"
    r"|vlSelection\w*|containerSize|screen|windowSize|import|treePath|treeAncestors|image)\b|[\\`{]|\[[^\]]{0,300}\+",
    re.I,
)
_STREAMS = {"on", "events", "clear", "between", "translate", "zoom", "type"}
_STREAM = re.compile(r"window|document|body|scope|timer|key", re.I)
# What precedes the colon names marks of the chart; anything else selects elements of the page.
_SOURCE = re.compile(
    r"(?:\A|[\s,\[{>])(?!(?:view|@[\w-]+|arc|area|group|line|path|rect|rule|shape|symbol|text|trail):)[^\s,\[\]{}>:]*:"
)
_FUNCTION = re.compile(r"[A-Za-z]\w{0,40}")
# Vega-Lite writes these into expressions as they are, between quotes or without any: how numbers and dates are written
# and read; parts of dates and numbers of scales; names of columns, views and tables.
_FORMAT = re.compile(r"[^\"'`\\{}\n\r]*")
_PARSE = re.compile(r"number|boolean|string|date|flatten|(?:date|utc): ?(['\"]?)[^\"'`\\{}\n\r]*\1")
_PARTS = words("year quarter month date day hours minutes seconds milliseconds step exponent constant base")
_NAMES = words(
    "field fields name as groupby impute fold flatten key density regression loess on quantile stack sort data row"
    " column repeat argmin argmax shape lookup"
)
_PUT_IN = re.compile(
    r"\bevent\s*[.\[)\]]|\b(?:modify|setdata|lookup|vlSelection\w*|containerSize|screen|windowSize|treePath"
    r"|treeAncestors)\s*\(", re.I,
)  # fmt: skip
# A control below a chart. Whatever else is said of one becomes an attribute of its element: ``onfocus``, ``style``.
_CONTROL = {"input", "name", "min", "max", "step", "options", "labels", "debounce", "placeholder"}
_INPUTS = words(
    "checkbox color date datetime-local email month number radio range search select tel text time week"
)


def clean_vega_lite(value: Any, removed: Removed) -> dict[str, Any]:
    """A Vega-Lite specification, as one of version 5, which front ends know.

    Raises:
        Unfit: it is no specification, or too large.
    """
    if not isinstance(value, dict):
        raise Unfit("a figure of an unknown form")

    pivots = False

    def rule(key: str, value: Any) -> Any:
        nonlocal pivots
        low = key.lower()
        pivots = pivots or low == "pivot"
        if low == "bind" and isinstance(value, dict):
            return _controls(value, removed)
        if low in ("params", "signals") and isinstance(value, list):
            # This one is the style of the page's cursor, which can be an address. (A list's text is a name, too.)
            value = [v for v in value if not (isinstance(v, dict) and _is_cursor(v.get("name")))]
        if low == "cursor" and isinstance(value, dict):
            return _dropped(removed)
        if low == "parse" and isinstance(value, dict):
            return {k: v for k, v in value.items() if v is None or (isinstance(v, str) and _PARSE.fullmatch(v))}
        if isinstance(value, dict) and (low == "datasets" or isinstance(value.get("values"), str)):
            # Data in a text of its own (CSV) names columns that nobody has looked at.
            value = {k: [] if isinstance(v, str) and (low == "datasets" or k == "values") else v
                     for k, v in value.items()}  # fmt: skip
        if low in _VEGA_LINKS:
            # `source` is a data set's name in a Vega specification, an event's element in a stream.
            return DROP if low == "$schema" else _dropped(removed)
        if low == "data" and isinstance(value, dict) and "url" in value:
            _dropped(removed)
            return {"values": []}  # an empty chart; without any data it would be an error
        if not isinstance(value, str):
            return value
        streams = low in _STREAMS
        if (low in _EXPRESSIONS or (streams and "[" in value)) and _EXPRESSION.search(_KEYS_HELD.sub("", value)):
            removed["expressions of a figure"] += 1
            return DROP if streams else "true" if low in ("filter", "test", "and", "or", "not") else ""
        if low.endswith("formattype") and not _FUNCTION.fullmatch(value):  # stands in an expression as it is
            return DROP
        if (low.endswith("format") and not _FORMAT.fullmatch(value)) or (
            low in _PARTS and not value.isalnum() and _EXPRESSION.search(value)
        ) or (low in _NAMES and _PUT_IN.search(value)):  # fmt: skip
            removed["expressions of a figure"] += 1
            return DROP
        if low in ("mark", "type") and value == "image":
            _dropped(removed)
            return "point"
        if streams and (_STREAM.search(value) or _SOURCE.search(value)):
            return DROP
        if _ADDRESS.match(value) or value[:5].lower() == "data:" or _CSS_URL.search(value):
            return _dropped(removed)
        value = untagged(value)
        return _name(value) if low in _NAMES else _no_image(value)

    def untagged(text: str) -> str:
        return _MARKUP_START.sub("<\u200b", _with_few_tags(text, removed, frozenset())) if "<" in text else text

    # Columns as the texts that name them.
    cleaned: dict[str, Any] = copy(value, rule, rename=lambda name: _name(untagged(name)))
    if pivots:
        cleaned = copy(cleaned, _guard_pivots)
    cleaned["$schema"] = SCHEMA
    return cleaned


def _is_cursor(name: Any) -> bool:
    while isinstance(name, list) and len(name) == 1:
        name = name[0]
    return bool(name == "cursor")


def _controls(bind: dict[str, Any], removed: Removed) -> dict[str, Any]:
    """What is said of the control of a parameter, or of the controls for its fields."""
    if not isinstance(bind.get("input"), str):
        # Controls for fields; or a control of no kind, of which the page would make one of text.
        kept = {k: _controls(v, removed) if isinstance(v, dict) else v for k, v in bind.items()
                if isinstance(v, dict) or (k == "legend" and isinstance(v, str))}  # fmt: skip
    else:
        kept = {k: v for k, v in bind.items() if k in _CONTROL}
    if isinstance(kept.get("input"), str) and kept["input"] not in _INPUTS:
        kept["input"] = "text"
    if kept.keys() != bind.keys() or kept.get("input") != bind.get("input"):
        removed["attributes of a figure's controls"] += 1
    return kept


def _name(name: str) -> str:
    # Within an expression a name of this kind could begin an object, such as a tooltip's with a picture.
    return _no_image(name.replace("{", "(").replace("}", ")"))


def _no_image(name: str) -> str:
    # A tooltip draws the address in a column of this name as a picture. The signs are those of a path to it.
    return "image_" if re.sub(r"[\s\\\[\]'\"]", "", name) == "image" else name


def _guard_pivots(key: str, value: Any) -> Any:
    """Keep that name from the columns that a pivot makes of values, which may come out of expressions."""
    if key != "transform" or not isinstance(value, list):
        return value
    steps: list[Any] = []
    for step in value:
        if isinstance(step, dict) and "pivot" in step:
            name = step["pivot"]
            if not isinstance(name, str) or not re.fullmatch(r"[\w -]+", name):
                continue
            steps.append({"filter": f"datum['{name}'] != 'image'"})
        steps.append(step)
    return steps


def clean_any(value: Any) -> Any:
    """Data of a type that the operator allows: copied, without names that reach into a page's objects.

    Raises:
        Unfit: see `copy`.
    """
    return copy(value, lambda _key, value: value)
