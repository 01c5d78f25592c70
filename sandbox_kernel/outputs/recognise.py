"""Figures that libraries hand over as script: their data is found, the script around it is not used.

plotly, altair and bokeh write their figures as JSON into a script that calls them. Showing the JSON needs none of that
script. What is found here is as untrusted as any other data and is cleaned as such.
"""

from __future__ import annotations

import json
import re
from typing import Any

_DECODER = json.JSONDecoder()
_GAP = re.compile(r"[\s,]*")
_STRING = re.compile(r"\s*(?:\"[\w-]{1,100}\"|'[\w-]{1,100}'|[\w.]{1,60})\s*,")
_LOOK = 20  # places that are tried before it is called no figure


def plotly(script: str) -> dict[str, Any] | None:
    """The figure of a script with ``Plotly.newPlot("id", data, layout, config)``."""
    for name in ("Plotly.newPlot(", "Plotly.react(", "Plotly.plot("):
        at = script.rfind(name)
        if at < 0:
            continue
        target = _STRING.match(script, at + len(name))
        if target is None:
            continue
        values = _values(script, target.end(), 3)
        if values and isinstance(values[0], list):
            figure: dict[str, Any] = {"data": values[0]}
            if len(values) > 1 and isinstance(values[1], dict):
                figure["layout"] = values[1]
            return figure
    return None


def vega_lite(script: str) -> dict[str, Any] | None:
    """The specification of a script that altair writes for ``vegaEmbed``."""
    if "vegaEmbed" not in script:
        return None
    at = len(script)
    for _ in range(_LOOK):
        at = max(script.rfind(word, 0, at) for word in ("spec = {", "spec={", ")({"))
        if at < 0:
            return None
        values = _values(script, script.index("{", at), 1)
        if values and isinstance(values[0], dict) and _is_specification(values[0]):
            return values[0]
    return None


def _is_specification(value: dict[str, Any]) -> bool:
    schema = value.get("$schema")
    if isinstance(schema, str) and "vega-lite" not in schema:
        return False
    return any(key in value for key in ("mark", "layer", "hconcat", "vconcat", "concat", "facet", "repeat", "spec"))


def bokeh(script: str) -> tuple[dict[str, Any], list[Any]] | None:
    """``(docs_json, render_items)`` of a script that bokeh writes for a notebook or a page."""
    found: list[Any] = []
    for name in ("docs_json = ", "render_items = "):
        at = script.rfind(name)
        values = _values(script, at + len(name), 1) if at >= 0 else []
        if not values:
            return None
        value = values[0]
        if isinstance(value, str):  # within a page it is a string of JSON
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                return None
        found.append(value)
    docs, items = found
    return (docs, items) if isinstance(docs, dict) and isinstance(items, list) else None


def _values(script: str, at: int, count: int) -> list[Any]:
    values: list[Any] = []
    for _ in range(count):
        start = _GAP.match(script, at)
        try:
            value, at = _DECODER.raw_decode(script, start.end() if start else at)
        except (ValueError, RecursionError):
            break
        values.append(value)
    return values
