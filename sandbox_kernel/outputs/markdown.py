"""Markdown, rendered here and cleaned as HTML: a page that renders it runs what HTML it holds."""

from __future__ import annotations

import re
from functools import lru_cache
from html import escape
from typing import Any

from .latex import is_plain_math, is_too_much
from .settings import Removed, Settings

SIZE = 1 << 20
_LINES = 50_000
# Without these a text holds no markup, link, picture, heading (whose text becomes an id) or drawing language.
_ACTING = re.compile(r"[<\[\]&`~#|]|^\s*(?:=|-)+\s*$|://|www\.|\\(?![,;!{}$_*])|@", re.M)
# Mathematics is cut out first: an underscore in it is no emphasis.
_MATH = re.compile(
    r"\$\$(?:[^$\\]|\\.){1,20000}?\$\$|\\\\\[.{1,20000}?\\\\\]|\\\\\(.{1,2000}?\\\\\)"
    r"|\\begin\{([a-zA-Z]{1,30}\*?)\}.{0,20000}?\\end\{\1\}"
    r"|(?<![\\$\w])\$(?![\s\d$][^$\n]{0,2000}\s\$)(?:[^$\\\n]|\\.){1,2000}\$(?![\w$])",
    re.S,
)
_CODE = re.compile(r"(```|~~~).*?(?:\1|\Z)|(?<!`)`[^`\n]+`(?!`)", re.S)
_MATH_LIMIT = 5000
_OPENINGS = 2000
_MARKS = 20_000
_PAGE_MARKS = 2000
_CELLS = 40_000  # of tables


def is_plain_markdown(text: str) -> bool:
    """Whether a page may render this itself: emphasis, lists and simple mathematics."""
    if len(text) > SIZE or sum(text.count(mark) for mark in "*_+-.") > _PAGE_MARKS:
        return False  # JupyterLab's renderer takes time with the square of them, and holds the page up
    return _ACTING.search(text) is None and is_plain_math(text) and not is_too_much(text)


@lru_cache(maxsize=1)
def _renderer() -> Any | None:
    """markdown-it, or mistune (which comes with JupyterLab); None when neither is installed."""
    try:
        from markdown_it import MarkdownIt
    except ImportError:
        pass
    else:
        return MarkdownIt("commonmark", {"html": True, "maxNesting": 20}).enable(["table", "strikethrough"]).render
    try:
        import mistune
    except ImportError:
        return None
    return mistune.create_markdown(escape=False, plugins=["table", "strikethrough"])


def render(text: str, removed: Removed, settings: Settings) -> str | None:
    """The text as HTML that has yet to be cleaned; None when it cannot be rendered.

    Args:
        removed: what was taken out is counted here.
    """
    renderer = _renderer()
    if renderer is None:
        removed["Markdown markup (install markdown-it-py to see it)"] += 1
        return None
    if len(text) > min(SIZE, settings.html_size) or text.count("\n") > _LINES or _nested(text):
        removed["Markdown that is too long"] += 1
        return None
    formulas: list[str] = []
    marked = _cut_math(text, formulas)
    html = str(renderer(marked))
    return _PLACE.sub(lambda found: escape(formulas[int(found[1])]) if int(found[1]) < len(formulas) else "", html)


_PLACE = re.compile("\ue000(\\d{1,6})\ue001")


def _cut_math(text: str, formulas: list[str]) -> str:
    text = text.replace("\ue000", "").replace("\ue001", "")
    if "$" not in text and "\\" not in text:
        return text
    if sum(text.count(opening) for opening in ("\\\\[", "\\\\(", "\\begin", "```", "~~~")) > _OPENINGS:
        return text
    pieces, at = [], 0
    for code in _CODE.finditer(text):
        pieces += [_replace(text[at : code.start()], formulas), code.group()]
        at = code.end()
    pieces.append(_replace(text[at:], formulas))
    return "".join(pieces)


def _replace(text: str, formulas: list[str]) -> str:
    def place(found: re.Match[str]) -> str:
        if len(formulas) >= _MATH_LIMIT:
            return found.group()
        formulas.append(found.group().replace("\\\\", "\\", 1) if found.group().startswith("\\\\") else found.group())
        return f"\ue000{len(formulas) - 1}\ue001"

    return _MATH.sub(place, text)


_BRACKETS = re.compile(r"[\[\]()*_~`!<>]{60,}|^[ \t>*+-]{200,}", re.M)


def _nested(text: str) -> bool:
    """Whether it holds runs of markup such as only hostile texts have; renderers take long over them."""
    marks = sum(text.count(mark) for mark in "*_[`~<")
    return _BRACKETS.search(text) is not None or marks > _MARKS or text.count("|") > _CELLS
