"""LaTeX: pages typeset it with MathJax, also inside of HTML; macros that style, link or define are not passed."""

from __future__ import annotations

import re

_BANNED = (
    "href|url|require|style|class|cssId|data|html[A-Za-z]*|[gx]?def|let|newcommand|renewcommand|providecommand"
    "|newenvironment|renewenvironment|DeclareMathOperator|unicode|bbox|mmlToken|toggle|texttip|mathtip|includegraphics"
    "|[rR]ule|Space|csname|input|include|write|catcode|loop|expandafter|special|message|begingroup"
)
MACRO = re.compile(rf"\\(?=(?:{_BANNED})(?![A-Za-z]))")
# Without one of these nothing in a text is typeset.
_MATH = re.compile(r"\$|\\[(\[]|\\begin")
# Breaks the macro's name, and looks like nothing.
_BREAK = "\\\u200b"


def is_plain_math(text: str) -> bool:
    """Whether none of the banned macros occurs."""
    return MACRO.search(text) is None


def break_macros(text: str) -> str:
    """The text with the names of banned macros broken where a page would typeset it."""
    if "\\" not in text or not _MATH.search(text):
        return text
    return MACRO.sub(lambda _: _BREAK, text)
