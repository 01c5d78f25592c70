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
    """The HTML with the names of banned macros broken where a page would typeset it.

    MathJax looks for formulas in the text of a block, and for it a ``<wbr>`` is nothing: ``\\hr<wbr>ef`` is a link. So
    HTML comes here without that element. (To cut it out of written HTML is no way: a title can hold the same signs.)
    """
    if "\\" not in text or not _MATH.search(text):
        return text
    return MACRO.sub(lambda _: _BREAK, text)


# More formulas than this hold up a page for seconds.
_FORMULAS = 1000


def is_too_much(text: str) -> bool:
    """Whether a page would typeset more formulas in this text than it can without a stop."""
    return text.count("$") // 2 + text.count("\\(") + text.count("\\[") + text.count("\\begin") > _FORMULAS


def untypeset(html: str) -> str:
    """The HTML in an element that MathJax leaves alone."""
    return f'<div class="tex2jax_ignore mathjax_ignore">{html}</div>'
