"""A frame of its own, without an origin, for what needs script to be shown.

Two frames, one in the other. The inner one holds the content; its own policy lets it fetch nothing. A frame can still
navigate itself to any address, with data in it, and only its parent's policy can forbid that: so the outer frame,
whose text is the gate's alone, forbids all frames. (``about:srcdoc``, which the inner one is, is not subject to it.)
"""

from __future__ import annotations

import json
import re
import secrets
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Any

from . import specs
from .html import clean_html
from .settings import Removed, Settings

FRAME_BYTES = 12 << 20
HEIGHT, LEAST, MOST = 460, 120, 1000

_BASE = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:; media-src data: blob:;"
    " frame-src 'none'; child-src 'none'; worker-src 'none'; form-action 'none'; base-uri 'none'; object-src 'none';"
    " manifest-src 'none'; webrtc 'block'; "
)
# Script of the worker's: it runs, but has nothing to fetch from.
_ANY_SCRIPT = _BASE + "script-src 'unsafe-inline' 'unsafe-eval' data: blob:; connect-src data: blob:"
# Before anything else in the frame runs: connections that no content policy covers.
_PRELUDE = (
    "<script>for(const n of ['RTCPeerConnection','webkitRTCPeerConnection','RTCDataChannel','WebTransport',"
    "'SharedWorker','Worker'])try{Object.defineProperty(self,n,{value:undefined,writable:false,configurable:false})}"
    "catch(e){}document.currentScript.remove()</script>"
)
_HEIGHT = re.compile(r"height[\"']?\s*[:=]\s*[\"']?(\d{2,5})(?:px|[\"';,\s])", re.I)

# What a page would load by itself, also in a page within it (``srcdoc``), whose signs are written as entities. No tag
# is looked at beyond the next one, so that the time stays in proportion to the length (0.8 s for each million
# characters, where they are made for that).
_LOOK_CHARS = 500_000
_LOADS = re.compile(
    r"(?:<|&lt;)(?:script|link|img|iframe|frame|source|video|audio|embed|object)\b(?:(?!&lt;)[^<>])*?"
    r"\b(?:src|href|data)\s{0,9}=\s{0,9}(?:[\"']|&quot;|&#0?39;|&#x27;)?\s{0,9}(?:https?:)?//", re.I,
)  # fmt: skip


def frame(body: str, policy: str, height: int) -> str:
    """HTML that shows ``body``, a whole document, in the two frames. ``height`` in pixels."""
    inner = f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">{body}'
    outer = (
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_BASE)}script-src \'unsafe-inline\' '
        "'unsafe-eval' data: blob:; connect-src data: blob:\">"
        "<style>html,body{margin:0;height:100%;overflow:hidden}iframe{border:0;width:100%;height:100%}</style>"
        f'<iframe sandbox="allow-scripts" referrerpolicy="no-referrer" srcdoc="{escape(inner)}"></iframe>'
    )
    return (
        f'<div style="contain: content; resize: vertical; overflow: hidden; height: {height}px">'
        '<iframe sandbox="allow-scripts" referrerpolicy="no-referrer" style="border: 0; width: 100%; height: 100%"'
        f' srcdoc="{escape(outer)}"></iframe></div>'
    )


def scripted(html: str, removed: Removed) -> str | None:
    """HTML of the worker's with its script, in a frame (``html = "frame"``); None when it is too long."""
    if len(html) > FRAME_BYTES:
        removed["HTML that is too long"] += 1
        return None
    if _LOADS.search(html, 0, _LOOK_CHARS):  # else nobody knows why the frame stays empty
        removed["foreign scripts, styles or images"] += 1
    heights = [int(found[1]) for found in _HEIGHT.finditer(html[:200_000])]
    height = min(max([h + 20 for h in heights if h <= MOST], default=HEIGHT), MOST)
    return frame(_PRELUDE + html, _ANY_SCRIPT, max(height, LEAST))


# ------------------------------------------------------------ bokeh

_BOKEH_FILES = {
    "": "bokeh.min.js", "widgets": "bokeh-widgets.min.js", "tables": "bokeh-tables.min.js", "gl": "bokeh-gl.min.js",
}  # fmt: skip
# Models that are code, or that show markup by ways of their own.
_CODE_MODELS = re.compile(
    r"CustomJS\w*|HTMLTemplateFormatter|SetValue|OpenURL|CustomAction|ImageURL|\w*Tile\w*|Html|HTML\w*", re.A
)
_PACKAGE = re.compile(r"[a-z]\w{0,29}(?=\.)", re.A)
_WIDGETS = re.compile(
    r'"name": ?"(?:Button|Toggle|Dropdown|CheckboxGroup|RadioGroup|Select|Slider|RangeSlider|TextInput|Div|Paragraph'
    r"|PreText|Spinner|DatePicker|ColorPicker|MultiSelect|MultiChoice|AutocompleteInput|Tabs|Switch|[A-Z]\w*Slider"
    r'|[A-Z]\w*Group)"'
)
_TABLES = re.compile(r'"name": ?"(?:DataTable|TableColumn|DataCube)"')


@lru_cache(maxsize=8)
def _bokeh_script(part: str) -> str | None:
    """The library's own file, out of the package that is installed beside this one; None when there is none."""
    try:
        import bokeh
    except ImportError:
        return None
    path = Path(bokeh.__file__).parent / "server" / "static" / "js" / _BOKEH_FILES[part]
    try:
        return path.read_text(encoding="utf-8").replace("</script", "<\\/script")
    except OSError:
        return None


def bokeh(found: tuple[dict[str, Any], list[Any]], removed: Removed) -> str | None:
    """A bokeh document, drawn in a frame by the library that is installed here; None when it cannot be.

    Only script with this output's own number runs in that frame, and none is made from text: what is left of code or
    markup in the document stays dead.

    Raises:
        specs.Unfit: the data is too large or of the wrong form.
    """
    library = _bokeh_script("")
    if library is None:
        removed["a bokeh figure (install bokeh beside the kernel to see it)"] += 1
        return None
    docs, items = specs.copy(found[0], _bokeh_rule(removed)), specs.copy(found[1], _plain_rule)
    if not _only_own(docs, removed):
        return None
    text = json.dumps(docs)
    parts = [library]
    if _TABLES.search(text) or _WIDGETS.search(text):
        parts.append(_bokeh_script("widgets") or "")
    if _TABLES.search(text):
        parts.append(_bokeh_script("tables") or "")
    height = _bokeh_height(docs)
    number = secrets.token_hex(16)
    roots = [div for item in items if isinstance(item, dict) for div in _roots(item)]
    scripts = "".join(f'<script nonce="{number}">{part}</script>' for part in parts if part)
    data = json.dumps([docs, items]).replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    body = (
        f"<body>{''.join(roots)}{scripts}"
        f'<script nonce="{number}">const [docs, items] = {data};Bokeh.embed.embed_items(docs, items)</script></body>'
    )
    policy = f"{_BASE}script-src 'nonce-{number}'; connect-src data:"
    return frame(body, policy, height)


def _only_own(docs: dict[str, Any], removed: Removed) -> bool:
    """Leave in each document what consists of bokeh's own models; whether anything is left.

    Packages such as panel add models, whose names begin with the package's. Without their script one of them ends the
    drawing of all.
    """
    left = False
    for document in docs.values():
        roots = document.get("roots") if isinstance(document, dict) else None
        if not isinstance(roots, list):
            continue
        own = []
        for root in roots:
            if foreign := _foreign_model(root):
                removed[f"what {foreign} draws by script of its own"] += 1
            else:
                own.append(root)
        document["roots"] = own
        left = left or bool(own)
    return left


def _foreign_model(root: Any) -> str:
    """The package that a model in it belongs to when that is not bokeh, else ""."""
    packages: list[str] = []

    def look(_key: str, value: Any) -> Any:
        if isinstance(value, dict) and value.get("type") == "object" and "." in (name := str(value.get("name"))):
            package = _PACKAGE.match(name)
            packages.append(package[0] if package else "a package")
        return value

    specs.copy(root, look)
    return min(packages, default="")


def _roots(item: dict[str, Any]) -> list[str]:
    roots = item.get("roots")
    if not isinstance(roots, dict):
        return []
    return [
        f'<div id="{escape(str(element))}" data-root-id="{escape(str(root))}" style="display: contents"></div>'
        for root, element in list(roots.items())[:100]
    ]


def _bokeh_height(docs: dict[str, Any]) -> int:
    heights = [HEIGHT - 20]

    def look(key: str, value: Any) -> Any:
        if isinstance(value, dict) and isinstance(value.get("height"), (int, float)):
            heights.append(int(min(value["height"], MOST)))
        return value

    specs.copy(docs, look)
    found = heights[1:] or heights
    return max(LEAST, min(max(found) + 60, MOST))


def _plain_rule(_key: str, value: Any) -> Any:
    return value


def _bokeh_rule(removed: Removed) -> specs.Rule:
    settings = Settings()

    def rule(key: str, value: Any) -> Any:
        if isinstance(value, dict) and isinstance(value.get("name"), str) and "type" in value:
            if _CODE_MODELS.fullmatch(value["name"]):
                removed[f"bokeh's {value['name']}"[:60]] += 1
                return None
        elif isinstance(value, str) and specs.is_markup(value):
            return clean_html(value, removed, settings) or ""
        return value

    return rule
