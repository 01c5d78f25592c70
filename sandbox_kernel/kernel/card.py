"""``%sandbox`` as a card, for clients that show HTML: drawn by the front, from its own knowledge, without script.

Everything that is not a constant of this module is escaped, whoever said it.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from ..errors import size_text
from ..policy import BUILT_IN, Resolved
from ..session.denials import Denial
from ..session.session import Session
from .cell import plain_header
from .commands import Commands
from .publisher import Publisher

_KINDS = 50  # of refused calls that are counted apart; their names are the filter's, so there are few
_SHOWN = 8
_BOX = (
    "border:1px solid #9e9e9e;border-radius:6px;padding:8px 14px;max-width:760px;line-height:1.5;"
    "font-family:sans-serif;font-size:13px"
)
_TITLE = "font-size:15px;font-weight:bold"
_HEAD = "text-align:left;vertical-align:top;padding:2px 14px 2px 0;white-space:nowrap"
_CELL = "text-align:left;vertical-align:top;padding:2px 0"
_WARN = "background-color:#b71c1c;color:#ffffff;padding:2px 6px"
_FULL, _EMPTY = "background-color:#2e7d32;height:6px", "background-color:#bdbdbd;height:6px;width:160px"


class Card:
    """The figures of one kernel, and how they are shown.

    Args:
        session: the sandbox.
        resolved: its policy.
        removed: what the output gate took out since the session began: kind and how often.
        commands, publisher: what answers ``%sandbox`` in words, and where the words go.
        publish: sends a message: its type, content, parent, metadata and buffers.
    """

    def __init__(
        self, session: Session, resolved: Resolved, removed: Mapping[str, int], commands: Commands,
        publisher: Publisher, publish: Callable[..., None],
    ) -> None:  # fmt: skip
        self._session, self._resolved, self._removed = session, resolved, removed
        self._commands, self._publisher, self._publish = commands, publisher, publish
        self._refused: Counter[str] = Counter()
        self._cells, self._last_s = 0, 0.0
        self._display_id = ""

    def note(self, seconds: float, denials: Sequence[Denial]) -> None:
        """A cell has ended."""
        self._cells += 1
        self._last_s = seconds
        for denial in denials:
            name = f"{denial.call} {denial.detail}".strip()
            if name in self._refused or len(self._refused) < _KINDS:
                self._refused[name] += denial.count

    async def answer(
        self, words: Sequence[str] | None, number: int, parent: dict[str, Any], *, document: bool
    ) -> None:
        """What a ``%sandbox`` cell is answered. In a document the status is a card, which later cells bring up to date.

        Args:
            words: of the cell, see `words_of`.
            number: of the cell.
            parent: its request.
            document: whether its client shows it in a document.
        """
        if words is not None and not (document and list(words) in ([], ["status"]) and self._session.supervisor.level):
            text = await self._commands.answer(words, number, plain_header(parent["header"]))
            self._publisher.stream(parent["header"]["msg_id"], "stdout", text)
        elif words is not None or (document and self._display_id):
            text = await self._commands.answer(words or [], number, {})
            self._publisher.flush()
            kind = "update_display_data" if words is None else "display_data"
            if words is not None:
                self._display_id = f"sandbox-{secrets.token_hex(8)}"
            content = {"data": {"text/plain": text, "text/html": self.html()}, "metadata": {},
                       "transient": {"display_id": self._display_id}}  # fmt: skip
            self._publish(kind, content, parent, {}, [])

    # ------------------------------------------------------------ drawing

    def html(self) -> str:
        """The card as it is now."""
        box, dog, limits = self._session.supervisor, self._session.watchdog, self._resolved.policy.limits
        good = sum(bool(proof.get("ok")) for proof in box.proofs)
        layers = list(dict.fromkeys(str(proof.get("layer", "")) for proof in box.proofs if proof.get("layer")))
        shown = {key: (value, origin) for key, value, origin in self._resolved.rows()}
        # (The value "none" would read as no time at all.)
        may_take = f"a cell may take {shown['limits.cell_time'][0]}" if limits.cell_time else "a cell has no time limit"
        rows = [
            ("Proven", escape(f"{good} of {len(box.proofs)} attempts were refused or saw nothing")),
            ("Layers", escape(", ".join(layers))),
            ("Memory", _bar(dog.memory, limits.memory, shown["limits.memory"][0])),
            ("Processes", escape(f"{dog.usage.processes} of {shown['limits.processes'][0]}")),
            ("Time", escape(f"{dog.usage.cpu_s:.1f} s of processor time; the last cell took {self._last_s:.2f} s; "
                            f"{may_take}")),
            ("Network", escape(shown["network.mode"][0])),
            ("Files", escape(f"the notebook's folder: {shown['files.workspace'][0]}; "
                             "the home folder and /tmp are empty again after a restart")),
            ("Refused", _counts(self._refused)),
            ("Removed from outputs", _counts(self._removed)),
        ]  # fmt: skip
        row = f'<tr><th style="{_HEAD}">{{}}</th><td style="{_CELL}">{{}}</td></tr>'
        body = "".join(row.format(name, value) for name, value in rows)
        return (
            f'<div style="{_BOX}"><div style="{_TITLE}">Sandboxed Python: isolation level {escape(box.level)}</div>'
            f"{self._warning(shown)}<table>{body}</table>{self._proofs()}{self._policy(shown)}</div>"
        )

    def _warning(self, shown: Mapping[str, tuple[str, str]]) -> str:
        if self._resolved.policy.outputs.gate != "off":
            return ""
        said = f"Outputs are not checked (outputs.gate = off, {shown['outputs.gate'][1]})."
        return f'<div style="{_WARN}">{escape(said)}</div>'

    def _proofs(self) -> str:
        box = self._session.supervisor
        lines = [f"{'ok' if proof.get('ok') else 'NO'} {proof.get('layer', '')}: {proof.get('tried', '')} → "
                 f"{proof.get('saw', '')}" for proof in box.proofs]  # fmt: skip
        lines += [f"note: {note}" for note in box.details.get("notes", ())]
        return _folded("What it tried, and what it saw", lines)

    def _policy(self, shown: Mapping[str, tuple[str, str]]) -> str:
        lines = [f"{key} = {value}" + (f"  ({origin})" if origin != BUILT_IN else "")
                 for key, (value, origin) in shown.items()]  # fmt: skip
        return _folded("Policy", lines)


def _folded(title: str, lines: Sequence[str]) -> str:
    return f"<details><summary>{title}</summary><pre>{escape(chr(10).join(lines))}</pre></details>"


def _bar(used: int, limit: Any, limit_text: str) -> str:
    text = escape(f"{size_text(used)} of {limit_text}")
    if not isinstance(limit, int) or limit <= 0:
        return text
    percent = min(100, round(100 * used / limit))
    return f'{text}<div style="{_EMPTY}"><div style="{_FULL};width:{percent}%"></div></div>'


def _counts(counts: Mapping[str, int]) -> str:
    every = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    said = ", ".join(f"{name} x{count:,}" for name, count in every[:_SHOWN])
    more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return escape(f"{said}{more}" or "nothing")
