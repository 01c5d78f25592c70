"""HTML of the worker as HTML that can do nothing: no script, no request, nothing outside of its own box.

`nh3` takes out what acts; it is not enough alone. Names of classes and ids can have a meaning in the page, style values
can fetch and cover, MathJax typesets text, and deep nesting takes `nh3` quadratic time. Simple markup (a DataFrame's
table is) is recognised by one regular expression and passes as it is.
"""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Callable
from itertools import islice

import nh3

from . import css
from .latex import break_macros, is_too_much, untypeset
from .settings import Removed, Settings, words
from .svg import clean_svg

# ------------------------------------------------------------ what passes as it is

_SIMPLE_TAGS = (
    "abbr|b|bdi|blockquote|br|caption|center|cite|code|dd|del|dfn|div|dl|dt|em|figcaption|figure|h[1-6]|hr|i|ins|kbd|li"
    "|mark|ol|p|pre|q|s|samp|section|small|span|strike|strong|sub|summary|sup|table|tbody|td|tfoot|th|thead|tr|tt|u|ul"
    "|var"
)
_SIMPLE_ATTRIBUTES = (
    r'\s(?:border="\d{1,2}"|class="dataframe"|(?:col|row)span="\d{1,4}"|halign="(?:left|right)"|valign="top"'
    r'|style="text-align: (?:right|left|center);")'
)
_SIMPLE = re.compile(
    rf"(?:[^<&\x00]++|<(?:/?(?:{_SIMPLE_TAGS})|(?:table|tr|th|td)(?:{_SIMPLE_ATTRIBUTES}){{1,3}}+) ?/?>"
    r"|&(?:amp|lt|gt|quot|nbsp|#39|#x27);|&(?![#A-Za-z]))*+"
)
_EACH = re.compile(r"<(/?)([a-z1-6]+)")
_CELL = re.compile(r"<(t[dh])[ >][^<]*</\1>")
_PANDAS_STYLE = re.compile(r"<style scoped>\s*+(?:\.dataframe[^<{}]{0,100}+\{[^<{}]{0,300}+\}\s*+){1,4}+</style>\n?")
_OPEN_SIMPLE = 500
_ELEMENTS = 250_000  # more of them hold up a page for seconds

# ------------------------------------------------------------ what is cleaned

TAGS = words(
    """
    a abbr address article aside audio b bdi bdo big blockquote br caption center cite code col colgroup dd del details
    dfn div dl dt em figcaption figure font footer h1 h2 h3 h4 h5 h6 header hr i img input ins kbd label li main mark
    meter nav ol p pre progress q rp rt ruby s samp section small source span strike strong sub summary sup table tbody
    td tfoot th thead time tr tt u ul var video
    """
)
_EMPTIED = {
    "applet", "canvas", "embed", "frameset", "iframe", "math", "noembed", "noframes", "noscript", "object", "plaintext",
    "script", "select", "style", "svg", "template", "textarea", "title", "xmp",
}  # fmt: skip
_SIZE = {"width", "height"}
ATTRIBUTES = {
    "*": {"align", "class", "dir", "id", "lang", "style", "title", "valign"},
    "a": {"href"}, "audio": {"controls", "loop", "muted", "src"},
    "col": {"span", "width"}, "colgroup": {"span", "width"},
    "details": {"open"}, "font": {"color", "size"}, "img": {"alt", "src", *_SIZE}, "input": {"checked"},
    "label": {"for"}, "li": {"value"}, "meter": {"high", "low", "max", "min", "optimum", "value"},
    "ol": {"reversed", "start", "type"}, "progress": {"max", "value"}, "source": {"src", "type"},
    "table": {"border", "cellpadding", "cellspacing", "width"}, "td": {"bgcolor", "colspan", "rowspan", *_SIZE},
    "th": {"abbr", "bgcolor", "colspan", "rowspan", "scope", *_SIZE}, "time": {"datetime"}, "tr": {"bgcolor"},
    "video": {"controls", "loop", "muted", "src", *_SIZE},
}  # fmt: skip
_LINK = re.compile(r"(?:https?://|mailto:)[^\s\x00-\x1f\"'<>\\]{1,2000}", re.I)
_PICTURE = re.compile(r"data:image/(?:png|jpe?g|gif|webp|bmp|svg\+xml);base64,[A-Za-z0-9+/=\s]+", re.I)
_SOUND = re.compile(r"data:(?:audio|video)/[\w.+-]{1,40}(?:;\s?codecs=[\w.,\"-]{1,60})?;base64,[A-Za-z0-9+/=\s]+", re.I)
_ID = re.compile(r"[^\w-]")
_VALUE = re.compile(r"[\w #%.,/:+-]{0,100}")
_FREE = {"title", "alt", "abbr"}

# None of these can be written in itself, and yet come to stand there: what a table turns out of its rows ("foster
# parenting" in the HTML standard), or a bold text that goes on. That is another tree when it is read again, and what
# was looked at is to be what is shown.
_UNNESTED = re.compile(r"<(?:a|dd|dt|li|h[1-6])[\s>]")
# The outer one confines and has no name. The rules of a cell are all below the inner one's id, or for itself: one that
# makes the confining element ``display: contents`` would free all that is in it.
_BOX = '<div style="contain: content; overflow: auto"><div id="{scope}">{html}</div></div>'
_OWN = re.compile(_BOX.format(scope="(o[0-9a-f]{8})", html="(.*)") + r"\s*", re.S)
_NOTE = re.compile(r"<p><small>\[The sandbox removed from this output: [^<>&]{0,600}\]</small></p>\Z")
# Not from the tag's own "<" on: a title may hold ">". Where this is text, a box too many does no harm.
_MARKED = re.compile(r'\s(?:style|class|id|align|width|height)="')

# What a person is told of. The list is for the note only; what stays is decided by the lists above.
_TOLD = re.compile(
    r"<\s*(?P<tag>script|iframe|frame|object|embed|form|button|textarea|select|link|meta|base|canvas|math|applet|portal)"
    r"(?![\w-])|\s(?P<handler>on[a-z]{3,30})\s*=|(?P<url>(?:java|vb)script\s*:)|\s(?P<data>data-commandlinker)"
    r"|<img[^>]{0,200}?\ssrc\s*=\s*[\"']?(?!data:)(?P<src>\S)",
    re.I,
)
# What folium writes below its map's frame. Trust brings back nothing that was removed here.
_TRUST = re.compile(r"Make this Notebook Trusted to load map: File -(?:>|&gt;) Trust Notebook")
_KINDS = {"handler": "event handlers", "url": "script links", "data": "page commands", "src": "foreign images"}
_TOLD_LIMIT = 200


def is_simple(html: str) -> bool:
    """Whether this is markup without anything that could act, be covered or be typeset."""
    if _SIMPLE.fullmatch(html) is None:
        return False
    # What closes more than it has opened ends the output's own box where the whole of a notebook is one page.
    opened: list[str] = []
    for closing, name in _EACH.findall(_CELL.sub("", html)):
        if not closing and name not in ("br", "hr"):
            opened.append(name)
        elif closing and (not opened or opened.pop() != name):
            return False
        if len(opened) > _OPEN_SIMPLE:
            return False
    return not opened


def clean_html(html: str, removed: Removed, settings: Settings, *, scope: str = "") -> str | None:
    """The HTML without anything that acts; None when it is too long or too deeply nested to be looked at.

    Args:
        removed: what was taken out is counted here.
        scope: the prefix for ids; "" makes a new one.
    """
    if html.startswith("<div>\n<style scoped>"):  # of DataFrame.to_html; the page's own style does the same
        html = _PANDAS_STYLE.sub("", html, count=1)
    if html.count("<") > 2 * _ELEMENTS:
        removed["HTML with too many elements"] += 1
        return None
    if is_simple(html) and break_macros(html) == html:
        return untypeset(html) if is_too_much(html) else html
    if len(html) > settings.html_size:
        removed["HTML that is too long"] += 1
        return None
    html = html.encode("utf-8", "replace").decode().replace("\x00", "")
    note = _NOTE.search(html)
    html = html[: note.start()] if note else html
    own = _OWN.fullmatch(html)
    if own:
        scope, html = own[1], own[2]
    scope = scope or f"o{secrets.token_hex(4)}"
    for found in islice(_TOLD.finditer(html), _TOLD_LIMIT):
        removed[_kind(found)] += 1
    html = _TRUST.sub("", html)
    html, _ = cut(html, "<!--", "-->")
    html, sheets = cut(html, "<style", "</style")
    html, _ = cut(html, "<svg", "</svg", keep=lambda text: _picture(text, removed))
    if not bounded(html):
        removed["HTML that is nested too deeply"] += 1
        return None
    rules = []
    for sheet in sheets:
        text, dropped = css.clean_sheet(sheet.partition(">")[2], scope)
        if text:
            rules.append(text)
        if dropped:
            removed["style rules"] += dropped
    cleaned = _clean(html, scope)
    if _UNNESTED.search(cleaned):
        cleaned = _clean(cleaned, scope)
    cleaned = break_macros(cleaned)
    if is_too_much(cleaned) and not cleaned.startswith(untypeset("")[:-6]):
        cleaned = untypeset(cleaned)
    if rules:
        cleaned = f"<style>\n{chr(10).join(rules)}\n</style>{cleaned}"
    if rules or _MARKED.search(cleaned):
        # Whatever is inside neither paints nor takes clicks outside of this box.
        cleaned = _BOX.format(scope=scope, html=cleaned)
    return cleaned + (note.group() if note else "")


def _kind(found: re.Match[str]) -> str:
    return found["tag"].lower() if found["tag"] else _KINDS[str(found.lastgroup)]


def _clean(html: str, scope: str) -> str:
    return nh3.clean(
        html, tags=set(TAGS), clean_content_tags=_EMPTIED, attributes=ATTRIBUTES, attribute_filter=_filter(scope),
        link_rel="noopener noreferrer nofollow", url_schemes={"http", "https", "mailto", "data"}, url_relative="deny",
        set_tag_attribute_values={"a": {"target": "_blank"}, "input": {"type": "checkbox"}},
    )  # fmt: skip


def _filter(scope: str) -> Callable[[str, str, str], str | None]:
    prefix = f"{scope}-"

    def attribute(tag: str, name: str, value: str) -> str | None:
        if name == "style":
            return css.clean_declarations(value) or None
        if name == "class":
            return css.clean_class(value) or None
        if name in ("id", "for"):
            plain = _ID.sub("", value)[:200]
            return plain if plain.startswith(prefix) else f"{prefix}{plain}"
        if name == "href":
            return value if _LINK.fullmatch(value) else None
        if name == "src":
            return value if (_PICTURE if tag == "img" else _SOUND).fullmatch(value) else None
        if name in _FREE:
            return value[:2000]
        return value if _VALUE.fullmatch(value) or name in ("rel", "target") else None

    return attribute


def _picture(text: str, removed: Removed) -> str:
    drawing = clean_svg(f"<svg{text}</svg>", removed)
    if drawing is None:
        removed["drawings"] += 1
        return ""
    return f'<img src="data:image/svg+xml;base64,{base64.b64encode(drawing.encode()).decode()}" alt="">'


def cut(html: str, start: str, end: str, keep: Callable[[str], str] | None = None) -> tuple[str, list[str]]:
    """The HTML without the pieces from ``start`` to ``end``, and these pieces' insides.

    By plain search, one piece after the other: what a parser would see there does not matter, because what is left is
    cleaned afterwards. An opening without an end cuts the rest.

    Args:
        keep: makes of a piece's inside what takes its place.
    """
    lower = html.lower()
    if len(lower) != len(html):  # a few letters change their length, and the places would not fit
        lower = re.sub(r"[A-Z]", lambda found: found.group().lower(), html)
    if start not in lower:
        return html, []
    left: list[str] = []
    pieces: list[str] = []
    at = 0
    while (begin := lower.find(start, at)) >= 0:
        left.append(html[at:begin])
        inside = begin + len(start)
        stop = lower.find(end, inside)
        if stop < 0:
            return "".join(left), pieces
        piece = html[inside:stop]
        pieces.append(piece)
        if keep is not None:
            left.append(keep(piece))
        close = lower.find(">", stop + len(end) - 1)
        at = len(html) if close < 0 else close + 1
    left.append(html[at:])
    return "".join(left), pieces


# ------------------------------------------------------------ bounds

# Elements that end by themselves, or hold nothing, do not make the tree deep.
_FLAT = "br|hr|img|input|col|wbr|source|li|p|td|th|tr|tbody|thead|tfoot|colgroup|dd|dt|meta|link|option|rp|rt"
_DEEP_TAG = re.compile(rf"<(/?)(?!(?:{_FLAT})[\s/>])([A-Za-z][^\s/>]*)", re.I)
_FLAT_TAG = re.compile(rf"<(?:{_FLAT})[\s/>]|</p[\s>]", re.I)
_WELL_FORMED = re.compile(
    r"(?:[^<]++|</?[a-zA-Z][\w:-]*+(?:\s++[\w:@.-]++(?:=(?:\"[^\"]*+\"|'[^']*+'|[^\s\"'<>=`]++))?+)*+\s*+/?+>)*+"
)
_RAW = re.compile(
    r"<(?:script|title|textarea|xmp|iframe|noembed|noframes|noscript|plaintext|template|select|math|svg)", re.I
)
_FORMATTING = words(
    "a b big code em font i nobr s small strike strong tt u"
)
_DEPTH = 400
_FEW = 1000
_PRODUCT = 500_000


def bounded(html: str) -> bool:
    """Whether cleaning takes time in proportion to the length.

    Two things do not: depth (nh3 is quadratic in it), and unclosed formatting, which a parser repeats in every block
    that follows. Closing tags count only where we can be sure that a parser sees the same tags: few tags, or markup
    without any of the forms in which a tag can hide.
    """
    tags = _DEEP_TAG.findall(html)
    opened = sum(1 for closing, _ in tags if not closing)
    flat = len(_FLAT_TAG.findall(html))
    sure = _WELL_FORMED.fullmatch(html) is not None and _RAW.search(html) is None
    if not sure:
        formatting = sum(1 for closing, name in tags if not closing and name.lower() in _FORMATTING)
        return opened <= _FEW and formatting * (flat + opened) <= _PRODUCT
    stack: list[str] = []
    deepest = formatting = most = 0
    for closing, name in tags:
        name = name.lower()
        if not closing:
            stack.append(name)
            formatting += name in _FORMATTING
            deepest, most = max(deepest, len(stack)), max(most, formatting)
        elif stack and stack[-1] == name:
            stack.pop()
            formatting -= name in _FORMATTING
        if deepest > _DEPTH:
            return False
    return most * (flat + opened) <= _PRODUCT * 4
