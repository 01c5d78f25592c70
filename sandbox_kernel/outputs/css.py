"""Style values and style sheets: an allow-list of properties, functions and selectors.

A value may not fetch anything nor leave its box: ``nh3`` filters names of properties, not their values. A style
sheet's rules are all put below the id of the output that they belong to, so that none can match outside of it.
"""

from __future__ import annotations

import re
from functools import lru_cache

from .settings import words

STYLE_CHARS = 2000
_RULES = 100_000
_SELECTORS = 200_000

PROPERTIES = words(
    """
    align-content align-items align-self background background-clip background-color background-image background-origin
    background-position background-repeat background-size border border-bottom border-bottom-color
    border-bottom-left-radius border-bottom-right-radius border-bottom-style border-bottom-width border-collapse
    border-color border-left border-left-color border-left-style border-left-width border-radius border-right
    border-right-color border-right-style border-right-width border-spacing border-style border-top border-top-color
    border-top-left-radius border-top-right-radius border-top-style border-top-width border-width bottom box-shadow
    box-sizing caption-side clear clip-path color column-gap cursor direction display empty-cells fill fill-opacity flex
    flex-basis flex-direction flex-flow flex-grow flex-shrink flex-wrap float font font-family font-feature-settings
    font-size font-stretch font-style font-variant font-variant-numeric font-weight gap grid grid-area
    grid-auto-columns grid-auto-flow grid-auto-rows grid-column grid-column-end grid-column-gap grid-column-start
    grid-gap grid-row grid-row-end grid-row-gap grid-row-start grid-template grid-template-areas grid-template-columns
    grid-template-rows height hyphens justify-content justify-items justify-self left letter-spacing line-height
    list-style-position list-style-type margin margin-bottom margin-left margin-right margin-top max-height max-width
    min-height min-width opacity order outline outline-color outline-style outline-width overflow overflow-wrap
    overflow-x overflow-y padding padding-bottom padding-left padding-right padding-top place-content place-items
    place-self position right row-gap stroke stroke-opacity stroke-width tab-size table-layout text-align
    text-decoration text-indent text-overflow text-transform top transform unicode-bidi vertical-align visibility
    white-space width word-break word-spacing word-wrap z-index
    """
)
_FUNCTIONS = words(
    "rgb rgba hsl hsla linear-gradient repeating-linear-gradient radial-gradient calc min max clamp minmax repeat "
    "translate translatex translatey rotate scale inset color-mix var"
)
_POSITIONS = {"relative", "static", "sticky"}

# A character with a meaning to the tokenizer could make a browser read the declaration differently than we do.
_FORBIDDEN = re.compile(r"[\\@{}<>;\x00-\x08\x0b-\x1f\x7f]|/\*|\*/|url|image|expression|attr\(|env\(|src\(|//", re.I)
_FUNCTION = re.compile(r"([\w-]*)\s*\(")
_BRACKET = re.compile(r"[()\[\]]")
_QUOTED = re.compile(r"\"[^\"'\n]*\"|'[^\"'\n]*'")
_IMPORTANT = re.compile(r"\s*!\s*important\s*\Z", re.I)
_CUSTOM = re.compile(r"--[a-z0-9_-]{1,80}", re.I)


def clean_value(name: str, value: str, *, sheet: bool = False) -> str | None:
    """The value when it is harmless for this property; else None. ``name`` in lower case.

    Args:
        sheet: it comes from a style sheet, where ``content`` and custom properties make sense.
    """
    value = value.strip()
    if not value or len(value) > STYLE_CHARS or _FORBIDDEN.search(value):
        return None
    custom = sheet and _CUSTOM.fullmatch(name)
    if name not in PROPERTIES and not custom and not (sheet and name == "content"):
        return None
    bare = _QUOTED.sub("", value)
    if '"' in bare or "'" in bare or not _balanced(bare):
        return None
    for found in _FUNCTION.finditer(bare):
        called = found[1].lower()
        if called and (called not in _FUNCTIONS or (called == "var" and not sheet)):
            return None
    if name == "position" and _IMPORTANT.sub("", value).lower() not in _POSITIONS:
        return None
    return value


def _balanced(text: str) -> bool:
    # A bracket that is left open would swallow the rules that follow.
    waiting = []
    for found in _BRACKET.findall(text):
        if found in "([":
            waiting.append(found)
        elif not waiting or waiting.pop() != ("(" if found == ")" else "["):
            return False
    return not waiting


@lru_cache(maxsize=4096)
def clean_declarations(text: str, *, sheet: bool = False) -> str:
    """The harmless declarations of a ``style`` attribute or a rule, as ``name: value; ...``."""
    if len(text) > 20 * STYLE_CHARS or "/*" in text:
        return ""
    kept = []
    for part in text.split(";"):
        name, colon, value = part.partition(":")
        name = name.strip()
        if not colon or not name:
            continue
        name = name if name.startswith("--") else name.lower()
        cleaned = clean_value(name, value, sheet=sheet)
        if cleaned is not None:
            kept.append(f"{name}: {cleaned}")
    return "; ".join(kept)


# ------------------------------------------------------------ style sheets

_NAME = r"-?[A-Za-z_][\w-]*+"
_PSEUDO = (
    r":{1,2}(?:before|after|marker|first-letter|first-line)"
    r"|:(?:hover|focus|active|checked|empty|first-child|last-child|only-child|first-of-type|last-of-type|only-of-type)"
    rf"|:nth-(?:last-)?(?:child|of-type)\([0-9n+ a-z-]{{1,20}}\)|:not\((?:[.#]{_NAME}|\[[\w-]+\]|{_NAME}|:[a-z-]+)\)"
)
_ATTRIBUTE = r"\[[\w-]++(?:[~|^$*]?=(?:\"[\w .:-]*+\"|'[\w .:-]*+'|[\w-]++))?\]"
_COMPOUND = rf"(?:(?:{_NAME}|\*)(?:[#.]{_NAME}|{_PSEUDO}|{_ATTRIBUTE})*+|(?:[#.]{_NAME}|{_PSEUDO}|{_ATTRIBUTE})++)"
_SELECTOR = re.compile(rf"{_COMPOUND}(?:\s*+[>~+]\s*+{_COMPOUND}|\s++{_COMPOUND})*+")
_REFERENCE = re.compile(rf"([#.])({_NAME})")
_ROOT = re.compile(r"(?::root|:host|html|body)(?![\w-])", re.I)
_STYLER = re.compile(r"#(T_[\w-]++)")
_STRING = re.compile(r"\"[^\"]*\"|'[^']*'")
_COMMENT = re.compile(r"/\*[^*]*\*+(?:[^/*][^*]*\*+)*/")

CLASSES = re.compile(
    r"dataframe|data|row\d{1,7}|col\d{1,7}|level\d{1,3}|row_heading|col_heading|blank|index_name|pd-t|tex2jax_ignore"
    r"|mathjax_ignore"
    r"|o-[\w-]{1,100}"
)
_ANY_CLASS = re.compile(r"[\w-]{1,100}")


@lru_cache(maxsize=4096)
def clean_class(text: str) -> str:
    """The classes of an element. Names that a page could know get a prefix and with it lose their meaning there."""
    names = text.split()[:50]
    return " ".join(n if CLASSES.fullmatch(n) else f"o-{n}" for n in names if _ANY_CLASS.fullmatch(n))


def clean_sheet(text: str, scope: str) -> tuple[str, int]:
    """The harmless rules of a style sheet, each below ``#scope``; and how many were dropped.

    Args:
        scope: the id of the output's own element, also the prefix of all ids in it.
    """
    text = _COMMENT.sub("", text)
    kept, dropped, at = [], 0, 0
    if "/*" in text or "<" in text:
        return "", 1
    for _ in range(_RULES):
        opening = text.find("{", at)
        if opening < 0:
            break
        selector, closing = text[at:opening].strip(), text.find("}", opening)
        if closing < 0:
            dropped += 1
            break
        if selector.startswith("@") or "{" in text[opening + 1 : closing]:
            at, dropped = _block_end(text, opening), dropped + 1
            continue
        scoped = _scoped(selector, scope)
        body = clean_declarations(text[opening + 1 : closing], sheet=True)
        if scoped and body:
            kept.append(f"{scoped} {{{body}}}")
        elif not scoped:
            dropped += 1
        at = closing + 1
    return "\n".join(kept), dropped


def _block_end(text: str, opening: int) -> int:
    depth, at = 1, opening + 1
    for found in re.compile(r"[{}]").finditer(text, at):
        depth += 1 if found.group() == "{" else -1
        at = found.end()
        if depth == 0:
            return at
    return len(text)


def _scoped(selectors: str, scope: str) -> str:
    if len(selectors) > _SELECTORS:
        return ""
    found = [_one(part.strip(), scope) for part in selectors.split(",")]
    return "" if "" in found else ", ".join(found)


def _one(selector: str, scope: str) -> str:
    own = f"#{scope}"
    if selector == own:  # an output that has passed already
        return own
    if selector.startswith(f"{own} "):
        selector = selector[len(own) + 1 :]
    if _STYLER.fullmatch(selector):
        return f"{own} #{scope}-{selector[1:]}"
    root = _ROOT.match(selector)
    rest = selector[root.end() :].strip() if root else selector
    if rest and not _SELECTOR.fullmatch(rest):
        return ""

    def renamed(found: re.Match[str]) -> str:
        if found[1] == "#":
            return found.group() if found[2].startswith(f"{scope}-") else f"#{scope}-{found[2]}"
        return "." + (clean_class(found[2]) or "o-")

    pieces, at = [], 0
    for quoted in _STRING.finditer(rest):  # what looks like a class inside of [title="a.b"] is none
        pieces += [_REFERENCE.sub(renamed, rest[at : quoted.start()]), quoted.group()]
        at = quoted.end()
    pieces.append(_REFERENCE.sub(renamed, rest[at:]))
    return f"{own} {''.join(pieces)}".rstrip()
