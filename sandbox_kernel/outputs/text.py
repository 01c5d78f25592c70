"""Plain text: what a terminal or a page would act on is taken out, colours stay."""

from __future__ import annotations

import re

# In this order: a string that a terminal takes as a command of any length (window titles, links, the clipboard,
# device control), control sequences other than colours, controls that make a terminal answer or change its letters, and
# characters that turn the reading direction, with which a line can be made to look like another one. The other controls
# do nothing.
_ACTING = re.compile(
    r"\x1b[\]P_^X][^\x07\x1b\x9c]{0,4096}(?:\x07|\x1b\\|\x9c|$)"
    r"|\x9b[0-?]*[ -/]*[@-~]?"
    r"|\x1b\[(?![0-9;:]{0,200}m)[0-?]{0,200}[ -/]{0,20}[@-~]?"
    r"|\x1b(?!\[[0-9;:]{0,200}m)[ -/]{0,20}[0-~]?"
    r"|[\x05\x0e\x0f\x80-\x84\x86-\x9f]"
    r"|[\u202a-\u202e\u2066-\u2069]"
)
_SUSPECT = re.compile(r"[\x05\x0e\x0f\x1b\x80-\x84\x86-\x9f\u202a-\u202e\u2066-\u2069]")
_BEGINNINGS = re.compile(r"[\x1b\x80-\x84\x86-\x9f]")
_UNFINISHED = re.compile(r"\x1b(?:\[[0-9;:]{0,200})?\Z")


def clean_text(text: str) -> str:
    """The text without what acts: of the sequences that terminals know only colours stay (``ESC [ ... m``)."""
    if text.isascii() and text.isprintable():
        return text
    if _SUSPECT.search(text) is None:
        return text
    return _ACTING.sub("", text)


def without_commands(text: str) -> str:
    """Text of another kind (HTML, Markdown, LaTeX) without the characters that begin a terminal's commands.

    A page ignores them. But a saved notebook is printed in terminals, too (``nbconvert --to markdown --stdout``).
    """
    if text.isascii() and "\x1b" not in text:
        return text
    return _BEGINNINGS.sub("", text)


def split_unfinished(text: str) -> tuple[str, str]:
    """The text, and a control sequence at its end whose rest may come with the next message."""
    if "\x1b" not in text[-202:]:
        return text, ""
    found = _UNFINISHED.search(text, max(0, len(text) - 202))
    return (text[: found.start()], found.group()) if found else (text, "")


def joined(value: object) -> str | None:
    """A text as Jupyter allows it: one string or a list of strings. None for anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return "".join(value)
    return None
