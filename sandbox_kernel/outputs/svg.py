"""SVG drawings: elements and attributes of an allow-list, written anew from what a strict XML parser saw.

JupyterLab shows a drawing as a picture, in which nothing runs; other readers of a notebook put it into the page.
"""

from __future__ import annotations

import re
from typing import Any
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from . import css
from .settings import Removed, words

SIZE = 10_000_000
_DEPTH = 200
_ELEMENTS = 500_000
_SPACE = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"
_XML = "http://www.w3.org/XML/1998/namespace"

ELEMENTS = words(
    """
    svg g defs desc title symbol use path rect circle ellipse line polyline polygon text tspan textPath clipPath mask
    marker pattern linearGradient radialGradient stop image switch filter feBlend feColorMatrix feComposite feFlood
    feGaussianBlur feMerge feMergeNode feOffset style
    """
)
# Not shown by any reader, but written by many programs.
_SILENT = {"metadata"}
ATTRIBUTES = words(
    """
    alignment-baseline baseline-shift class clip-path clip-rule clipPathUnits color color-interpolation cx cy d
    direction display dominant-baseline dx dy fill fill-opacity fill-rule filter filterUnits flood-color flood-opacity
    font-family font-size font-stretch font-style font-variant font-weight fr fx fy gradientTransform gradientUnits
    height id image-rendering in in2 k1 k2 k3 k4 lengthAdjust letter-spacing marker-end marker-mid marker-start
    markerHeight markerUnits markerWidth mask maskContentUnits maskUnits mode offset opacity operator orient overflow
    pathLength patternContentUnits patternTransform patternUnits points preserveAspectRatio primitiveUnits r refX refY
    result rotate rx ry shape-rendering space spreadMethod startOffset stdDeviation stop-color stop-opacity stroke
    stroke-dasharray stroke-dashoffset stroke-linecap stroke-linejoin stroke-miterlimit stroke-opacity stroke-width
    style text-anchor text-decoration text-rendering textLength transform type values vector-effect version viewBox
    visibility width word-spacing writing-mode x x1 x2 y y1 y2
    """
)
_LOCAL = re.compile(r"url\(\s*[\"']?#([\w.:-]{1,200})[\"']?\s*\)")
_FUNCTION = re.compile(r"url\s*\(|image|expression|://|javascript|[\\<>]|@import", re.I)
_PICTURE = re.compile(r"data:image/(?:png|jpe?g|gif|webp|bmp);base64,[A-Za-z0-9+/=\s]+", re.I)
_REFERENCE = re.compile(r"#[\w.:-]{1,200}")
_SHEET_SELECTOR = re.compile(r"[\w\s.#*>:-]{1,2000}")
_SHEET_CHARS = 1_000_000
_VALUE_CHARS = 20_000


def clean_svg(text: str, removed: Removed) -> str | None:
    """The drawing, written anew; None when it is no well-formed one or too large."""
    if len(text) > SIZE:
        return None
    writer = _Writer(removed)
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartElementHandler = writer.start
    parser.EndElementHandler = writer.end
    parser.CharacterDataHandler = writer.text
    # Without a declaration of its own a document can name the five entities of XML only.
    parser.EntityDeclHandler = _refuse
    try:
        parser.Parse(_with_namespaces(text).encode("utf-8", "replace"), True)
    except (expat.ExpatError, _Refused, ValueError):
        return None
    return "".join(writer.parts) if writer.parts and writer.repeats.bounded() else None


class _Refused(Exception):
    pass


def _refuse(*_: Any) -> None:
    raise _Refused


def _with_namespaces(text: str) -> str:
    """Drawings inside of HTML need not say their namespaces."""
    start = text.find("<svg")
    if start < 0:
        return text
    end = text.find(">", start)
    head = text[start:end]
    extra = "" if "xmlns=" in head else f' xmlns="{_SPACE}"'
    if "xlink:" in text and "xmlns:xlink" not in head:
        extra += f' xmlns:xlink="{_XLINK}"'
    return f"{text[: start + 4]}{extra}{text[start + 4 :]}" if extra else text


class _Repeats:
    """What a drawing draws again, by ``use``, markers, patterns, masks and filters: a few lines can mean billions."""

    def __init__(self) -> None:
        self._open: list[tuple[str, str, int]] = []  # id, element, how many elements came before
        self._count = 0
        self._sizes: dict[str, int] = {}
        self._nested: set[str] = set()  # ids of elements that draw others again
        self._references: list[tuple[str, int]] = []

    def opened(self, element: str, name: str) -> None:
        self._open.append((name, element, self._count))
        self._count += 1

    def closed(self) -> None:
        name, _, before = self._open.pop()
        if name:
            self._sizes[name] = self._count - before

    def refer(self, target: str, times: int = 1) -> bool:
        """Note that the innermost open element draws ``target``; False when it may not, inside of such a thing."""
        self._nested.update(name for name, _, _ in self._open if name)
        self._references.append((target, times))
        return not any(element in _REPEATED for _, element, _ in self._open)

    def bounded(self) -> bool:
        """Whether what is drawn in the end is in proportion to what was written."""
        if any(target in self._nested for target, _ in self._references):
            return False
        return sum(self._sizes.get(target, 0) * times for target, times in self._references) <= _DRAWN


_REPEATED = {"pattern", "mask", "marker", "filter", "clipPath"}
_DRAWN = 1_000_000


class _Writer:
    def __init__(self, removed: Removed) -> None:
        self.removed = removed
        self.repeats = _Repeats()
        self.parts: list[str] = []
        self._depth = self._skipped = self._count = 0
        self._sheet: list[str] | None = None

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        self._count += 1
        if self._depth > _DEPTH or self._count > _ELEMENTS:
            raise _Refused
        space, _, local = name.rpartition(" ")
        if self._skipped or space != _SPACE or local not in ELEMENTS or (self._depth == 1 and local != "svg"):
            if not self._skipped and local not in _SILENT:
                self.removed["parts of a drawing"] += 1
            self._skipped += 1
            return
        if local == "style":
            self._sheet = []
            return
        self.repeats.opened(local, attributes.get("id", ""))
        vertices = len(attributes.get("d") or attributes.get("points") or "") // 4 + 1
        for full, value in attributes.items():
            if "url" not in value:
                continue
            if len(value) > _VALUE_CHARS:
                raise _Refused
            # A clip is a shape and costs what it says; it may stand anywhere.
            if full == "clip-path" or (full == "style" and "clip-path" in value):
                continue
            times = vertices if "marker" in full or "marker" in value else 1
            for found in _LOCAL.finditer(value):
                if not self.repeats.refer(found[1], times):
                    raise _Refused
        if local == "use":
            target = attributes.get("href") or attributes.get(f"{_XLINK} href") or ""
            if not self.repeats.refer(target.removeprefix("#")):
                raise _Refused
        words = [f"<{local}"]
        if self._depth == 1:
            words.append(f'xmlns="{_SPACE}" xmlns:xlink="{_XLINK}"')
        for full, value in attributes.items():
            kept = self._attribute(local, full, value)
            if kept:
                words.append(kept)
        self.parts.append(" ".join(words) + ">")

    def _attribute(self, element: str, full: str, value: str) -> str:
        space, _, name = full.rpartition(" ")
        if name == "href" and space in ("", _XLINK):
            wanted = _PICTURE if element == "image" else _REFERENCE
            if wanted.fullmatch(value):
                return f"xlink:href={quoteattr(value)}"
            self.removed["links of a drawing"] += 1
            return ""
        if (space not in ("", _XML)) or name not in ATTRIBUTES:
            if space == "" and not name.startswith(("aria-", "data-")):
                self.removed["event handlers" if name.startswith("on") else "attributes of a drawing"] += 1
            return ""
        if space == _XML:
            return f"xml:space={quoteattr(value)}" if name == "space" else ""
        if name == "style":
            value = _declarations(value)
        elif _FUNCTION.search(_LOCAL.sub("", value)) and name != "d":
            return ""
        return f"{name}={quoteattr(value)}"

    def end(self, name: str) -> None:
        self._depth -= 1
        if self._skipped:
            self._skipped -= 1
        elif self._sheet is not None:
            text, self._sheet = "".join(self._sheet), None
            rules = []
            for rule in text[:_SHEET_CHARS].split("}"):
                selector, brace, body = rule.rpartition("{")
                if brace and _SHEET_SELECTOR.fullmatch(selector):
                    # Below `svg`: a reader that puts the drawing into its page takes the rules for all of that page.
                    rules.append(f"svg {selector.strip().removeprefix('svg ')}{{{_declarations(body)}}}")
            if rules:
                self.parts.append(f'<style type="text/css">{escape(" ".join(rules))}</style>')
        else:
            self.repeats.closed()
            self.parts.append(f"</{name.rpartition(' ')[2]}>")

    def text(self, text: str) -> None:
        if self._skipped:
            return
        if self._sheet is not None:
            self._sheet.append(text)
        elif self.parts:
            self.parts.append(escape(text))


# Presentation properties that only drawings have.
_DRAWING = ATTRIBUTES - {"style", "class", "id", "d", "href", "points", "values", "type", "in", "in2"}


def _declarations(text: str) -> str:
    kept: list[str] = []
    if len(text) > _VALUE_CHARS:
        return ""
    for part in text.split(";"):
        name, colon, value = part.partition(":")
        name, value = name.strip().lower(), value.strip()
        if not colon or len(value) > css.STYLE_CHARS:
            continue
        plain = _LOCAL.sub("", value)
        known = name in _DRAWING or name in css.PROPERTIES
        if known and name != "position" and not _FUNCTION.search(plain) and not re.search(r"[{}@\\]|/\*", plain):
            kept.append(f"{name}: {value}")
    return "; ".join(kept)
