"""The rules for HTML, drawings and style values, imported with the first output that needs one of them.

They take a tenth of a kernel's start, and many a session shows nothing but text. An import that fails refuses the
output, as any other fault in a rule does (see `Gate.bundle`); so that it is told at once, `require` looks at start
whether the library is there.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Any

from .settings import Removed, Settings


@cache
def require() -> None:
    """Find the library for HTML without importing it.

    Raises:
        ImportError: it is not installed.
    """
    if importlib.util.find_spec("nh3") is None:
        raise ImportError("the output gate needs the Python package nh3")


def clean_html(text: str, removed: Removed, settings: Settings) -> str | None:
    """See `html.clean_html`."""
    from . import html

    return html.clean_html(text, removed, settings)


def clean_svg(text: str, removed: Removed) -> str | None:
    """See `svg.clean_svg`."""
    from . import svg

    return svg.clean_svg(text, removed)


def clean_value(name: str, value: str) -> str | None:
    """See `css.clean_value`."""
    from . import css

    return css.clean_value(name, value)


def scripted(text: str, removed: Removed) -> str | None:
    """See `embed.scripted`."""
    from . import embed

    return embed.scripted(text, removed)


def bokeh(document: tuple[dict[str, Any], list[Any]], removed: Removed) -> str | None:
    """See `embed.bokeh`."""
    from . import embed

    return embed.bokeh(document, removed)
