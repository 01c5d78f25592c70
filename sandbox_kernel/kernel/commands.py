"""``%sandbox``: what the front itself answers. It shows or gives up state; nothing here can loosen anything.

The front looks at the code of the request, so no cell can make it answer; a `%sandbox` among other lines is answered by
the worker, which says that it must stand alone.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import NoCheckpoint, SandboxError, age_text, size_text
from ..policy import BUILT_IN, KEYS, Resolved
from ..report import brief_text, held_text, open_gate_text, removed_text, status_text
from ..session.copies import NAME_RULE, checkpoint_name
from ..session.session import Session
from .exports import export
from .transcript import Transcript

HELP = """\
%sandbox                  the isolation level, its layers, and what of the policy is not built in
%sandbox status           the same with what each probe tried and saw, and all keys of the policy
%sandbox output N [PAGE]  all text that cell N printed, also what was omitted; page by page, `last` for the last one
%sandbox export NAME      write a variable to NAME.frame, for `sandbox_kernel.frames.load_file`; a file may be named too
%sandbox files            files that cells made in the private layer: which were kept next to the notebook, or why not
%sandbox rollback [N]     undo the last cell, or the last N; with a name, go back to that checkpoint
%sandbox checkpoint NAME  keep the variables as they are now; without a name, the checkpoints that there are
%sandbox help             this list
It must stand alone in its cell.
"""
_TO_KEEP = "In a terminal of this machine `sandbox-kernel files --keep NAME` takes one out.\n"
_FILES = 200
_ALWAYS = ("limits.memory", "limits.cell_time", "files.workspace", "network.mode")  # of the policy, in the short form
_PAGE_BYTES = 1024 * 1024


def words_of(code: str) -> list[str] | None:
    """What follows ``%sandbox`` in a cell that has nothing else; None for any other cell."""
    text = code.strip()
    if not text.startswith("%sandbox") or "\n" in text:
        return None
    words = text.split()
    return words[1:] if words[0] == "%sandbox" else None


class Commands:
    """The words that ``%sandbox`` knows.

    Args:
        session: the sandbox.
        resolved: its policy.
        transcript: of the latest cells.
        removed: what the output gate took out since the session began: kind and how often.
        started: what was done with each start-up file, in words.
    """

    def __init__(
        self, session: Session, resolved: Resolved, transcript: Transcript, removed: Mapping[str, int] | None = None,
        started: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._session, self._resolved, self._transcript, self._started = session, resolved, transcript, started
        self._removed = {} if removed is None else removed
        self._known: dict[str, Callable[[Sequence[str]], str]] = {
            "status": self._status, "output": self._output, "files": self._no_more, "rollback": lambda _words: "",
            "checkpoint": lambda _words: "",
            "export": lambda _words: "", "help": lambda _words: HELP,
        }  # fmt: skip

    async def answer(self, words: Sequence[str], number: int, header: Mapping[str, Any]) -> str:
        """The text for these words, which a person wrote in the cell with this number.

        Args:
            header: of the request, as plain values.
        """
        if words[:1] == ["export"]:
            return await export(self._session, words[1:], header)
        if words[:1] == ["rollback"]:
            return await self._rollback(words[1:], number)
        if words == ["files"]:
            return await self._files()
        if words[:1] == ["checkpoint"]:
            return await self._checkpoint(words[1:])
        if not words:
            return self._told(brief=True)
        name, rest = words[0], words[1:]
        command = self._known.get(name)
        if command is None:
            near = difflib.get_close_matches(name, self._known, n=1)
            hint = f" Did you mean `%sandbox {near[0]}`?" if near else ""
            return f"%sandbox has no word {name!r}.{hint}\n{HELP}"
        return command(rest)

    def _no_more(self, _words: Sequence[str]) -> str:
        return "`%sandbox files` takes no further words: no cell can move files to the disk. " + _TO_KEEP

    async def _files(self) -> str:
        gate = self._session.files
        if not gate.layered:
            return "There is no private layer: files.workspace is not \"overlay\".\n"
        held = await asyncio.to_thread(gate.held)
        if not held:
            return "Cells have made no files in the notebook's folder.\n"
        rows = [(file.name, file.size, file.why) for file in held]
        return held_text(rows[:_FILES], len(rows[_FILES:])) + (_TO_KEEP if any(why for *_, why in rows) else "")

    async def _rollback(self, words: Sequence[str], number: int) -> str:
        cells = words[0] if words else "1"
        if len(words) == 1 and checkpoint_name(cells):
            return await self._back_to(cells)
        if len(words) > 1 or not _is_number(cells) or int(cells) < 1:
            return (
                "It is `%sandbox rollback`, `%sandbox rollback N`, where N is how many cells to undo, or "
                "`%sandbox rollback NAME` for a checkpoint.\n"
            )
        cell = number - 1 - int(cells)
        try:
            await self._session.checkpoints.rollback(cell)
        except NoCheckpoint as error:
            others = [f"`%sandbox rollback {number - 1 - copy}`" for copy in error.cells if copy < number - 1]
            return f"{error.explain()}{' Try ' + ' or '.join(others) + '.' if others else ''}\n"
        except SandboxError as error:
            return f"{error.explain()}\n"
        self._session.forget_loss()
        return f"The variables are as they were after cell [{cell}].\n"

    async def _back_to(self, name: str) -> str:
        try:
            await self._session.checkpoints.rollback(name)
        except SandboxError as error:
            return f"{error.explain()}\n"
        self._session.forget_loss()
        return f"The variables are as they were at the checkpoint {name!r}.\n"

    async def _checkpoint(self, words: Sequence[str]) -> str:
        checkpoints = self._session.checkpoints
        if not words:
            await checkpoints.settle()
            rows = [(name, row) for row in checkpoints.listed() for name in row["names"]]
            lines = [f"{name}: after cell [{row['cell']}], {age_text(row['age_s'])} ago" for name, row in rows]
            return "\n".join(lines or ["There is no checkpoint with a name."]) + "\n"
        if len(words) > 1 or not checkpoint_name(words[0]):
            return f"It is `%sandbox checkpoint NAME`. {NAME_RULE}\n"
        try:
            await checkpoints.name(words[0])
        except SandboxError as error:
            return f"{error.explain()}\n"
        return f"`%sandbox rollback {words[0]}` goes back to the variables as they are now.\n"

    def _status(self, words: Sequence[str]) -> str:
        if words:
            return f"`%sandbox status` takes no further words.\n{HELP}"
        return self._told(brief=False)

    def _told(self, *, brief: bool) -> str:
        box = self._session.supervisor
        if box.failed is not None:
            return f"There is no sandbox, so no cell is run. {box.failed.explain()}\n"
        values = self._resolved.policy.values()
        told = {key for key, value in values.items() if not brief or key in _ALWAYS or value != KEYS[key].default}
        found = [row for row in self._resolved.rows() if row[0] in told]
        rows = [(key, value if origin == BUILT_IN else f"{value}  ({origin})") for key, value, origin in found]
        tell = brief_text if brief else status_text
        text = tell(level=box.level, proofs=box.proofs, details=box.details, policy=rows)
        started = "".join(f"Start-up file {line}\n" for line in self._started)
        if self._resolved.policy.outputs.gate == "off":
            return open_gate_text(self._resolved.origins["outputs.gate"]) + text + started
        return text + started + (removed_text(self._removed) if self._removed or not brief else "")

    def _output(self, words: Sequence[str]) -> str:
        number, page = words[0] if words else "", words[1] if len(words) > 1 else "1"
        page = "0" if page == "last" else page
        if not (_is_number(number) and _is_number(page) and len(words) < 3) or words[1:] == ["0"]:
            return "It is `%sandbox output N`, where N is a cell's number, or `%sandbox output N PAGE`.\n"
        limits = self._resolved.policy.limits
        found = self._transcript.page(int(number), int(page), min(_PAGE_BYTES, max(limits.text // 4, 1)))
        if found is None:
            kept = size_text(limits.output_kept)
            return f"No text of cell {number} is kept (limits.output_kept = {kept} for the latest cells together).\n"
        text, pages = found
        if not text and int(page) > pages:
            return f"Cell {number} has {pages} pages of text.\n"
        if not text:
            return f"Cell {number} printed nothing.\n"
        shown = int(page) or pages
        next_one = f"; the next is `%sandbox output {number} {shown + 1}`" if shown < pages else ""
        foot = f"[Page {shown} of {pages} of the text of cell {number}{next_one}]\n" if pages > 1 else ""
        return text + ("\n" if foot and not text.endswith("\n") else "") + foot


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdecimal() and len(word) < 10


def output_hint(number: int) -> str:
    """The line under a cell whose output was cut."""
    return f"[All text that this cell printed: `%sandbox output {number}`]\n"
