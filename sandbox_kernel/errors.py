"""Every error that a person can meet, as one tree.

Each class builds its own sentence from data, so that one situation has one wording; `advice()` says what to
do next; all of them survive pickling (an error crosses process borders in the API and in test runners).
In a notebook they appear as ordinary ``error`` outputs whose ``ename`` is the class name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from typing import Any

LOST = "The variables of this session are lost; run the cells that made them again."
KEPT = "The variables of this session are kept."
# Exit status of a worker that ends because cells have changed what runs them. (One that programs do not use: 70 is what
# a worker ends with that could not begin, and code of the cells may end it with any.)
BROKEN_STATUS = 197
# What a terminal acts on, other than colours and ends of lines, and what turns the reading direction.
_ACTING = re.compile(
    r"[\x00-\x08\x0b-\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]|\r(?!\n)|\x1b(?!\[[0-9;:]{0,200}m)"
)
_LOOSE = ("open", "off", "in-process", "subprocess")  # choices of a policy that nobody should slip into


def inert(text: str) -> str:
    """The text as a terminal may get it: what would act there is written as an escape (``\\x1b``), colours stay."""
    return text if text.isprintable() else _ACTING.sub(lambda found: ascii(found[0])[1:-1], text)


def one_line(text: str) -> str:
    """The text on a line of its own, or in one: whatever is not printable is written as an escape."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def size_text(size: int) -> str:
    """``"4 GiB"``, ``"3.9 GiB"``, ``"61 MiB"``: three digits at most, as a person would say it."""
    value, unit = float(size), "bytes"
    for larger in ("KiB", "MiB", "GiB"):
        if value < 1000:
            break
        value, unit = value / 1024, larger
    return f"{value:.3g} {unit}"


def age_text(seconds: float) -> str:
    """``"0.3 s"``, ``"42 s"``, ``"5 min"``, ``"3 h"``."""
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"


def nearest(got: str, known: Iterable[str]) -> str:
    """The known word that was probably meant; "" when none is close. What loosens a sandbox has to be closer still."""
    words = {word: difflib.SequenceMatcher(None, got, word).ratio() for word in known}
    close = [word for word, ratio in words.items() if ratio >= (0.85 if word in _LOOSE else 0.7)]
    return max(close, key=words.__getitem__, default="")


class SandboxError(Exception):
    """Base class. Its text may hold words of cells, of a worker or out of files, and is `inert` whoever's they are.

    Attributes:
        state: ``"kept"``, ``"restored"``, ``"lost"``, or ``""`` where no session is concerned.
    """

    state: str = ""

    def __init__(self, message: str, **data: Any) -> None:
        message = inert(message)
        super().__init__(message)
        self.message = message
        self.data = data

    def __reduce__(self) -> tuple[Callable[..., SandboxError], tuple[Any, ...]]:
        return _rebuild, (type(self), self.message, self.data, self.state)

    def __str__(self) -> str:
        return self.message

    def advice(self) -> str:
        """What the reader can do next, as one sentence; empty when there is nothing to say."""
        return ""

    def explain(self) -> str:
        """The whole text for a person: what happened, what to do, whether the variables survived."""
        state = {"kept": KEPT, "lost": LOST, "restored": str(self.data.get("restored"))}.get(self.state, "")
        parts = (self.message, self.advice(), state, self.data.get("why_lost"))
        return inert(" ".join(part for part in parts if part))

    def restore(self, cell: int, age_s: float, missing: Iterable[str] = (), *, names: Iterable[str] = ()) -> None:
        """The variables were brought back.

        Args:
            cell: the number of the last cell whose effects they have; 0: of none.
            age_s: how long ago that was, in seconds.
            missing: what was not brought back with them, such as ``"thread 'load'"``.
            names: that somebody gave to this state.
        """
        self.state = "restored"
        self.data.update(cell=cell, names=tuple(names))
        after = f"as they were after cell [{cell}]" if cell else "as they were before the first cell"
        text = f"The variables of this session were restored {after}, {age_text(age_s)} ago."
        gone = ", ".join(missing)
        self.data["restored"] = f"{text} Not brought back: {gone}." if gone else text


def _rebuild(cls: type[SandboxError], message: str, data: dict[str, Any], state: str) -> SandboxError:
    # The subclasses' own __init__ build the message from data; calling them again would need the same
    # arguments in the same order, so the finished object is restored without them.
    error = cls.__new__(cls)
    SandboxError.__init__(error, message, **data)
    error.state = state
    return error


class PolicyError(SandboxError):
    """A policy that cannot be used: unknown key, wrong type, value out of range."""

    def __init__(self, where: str, problem: str, *, known: Iterable[str] = (), got: str = "") -> None:
        near = nearest(str(got), known)
        hint = f" Did you mean {near!r}?" if near else ""
        super().__init__(f"{where}: {problem}.{hint}", where=where, got=got)


class IsolationUnavailable(SandboxError):
    """The level that the policy asks for cannot be had (or could not be proven) on this machine."""

    def __init__(self, level: str, layer: str, saw: str, remedy: str = "") -> None:
        super().__init__(
            f"The isolation level {level!r} cannot be had here, so no cell is run: {layer}: {saw}.",
            level=level, layer=layer, saw=saw, remedy=remedy,
        )
        self.add_note(remedy or "`sandbox-kernel doctor` says what is missing here.")  # of a traceback in a program

    def advice(self) -> str:
        return str(self.data.get("remedy") or "")


class PolicyRefusal(SandboxError):
    """Something the policy does not allow was asked for."""


class LimitReached(SandboxError):
    """A limit of the policy ended the cell.

    Args:
        happened: what was seen, as a sentence without its full stop.
        rule: the limit's name in the policy, such as ``limits.cell_time``.
        limit: its value, as text.
        remedy: what the reader can change in the code.
        used: the same as a number, for programs: seconds, bytes or a count.
        allowed: the limit in the same unit.
    """

    state = "kept"

    def __init__(
        self, happened: str, *, rule: str, limit: str, remedy: str, used: float = 0, allowed: float = 0
    ) -> None:
        super().__init__(
            f"{happened}; {rule} = {limit}.", rule=rule, limit=limit, remedy=remedy, used=used, allowed=allowed
        )

    @property
    def rule(self) -> str:
        """The limit's name in the policy."""
        return str(self.data.get("rule", ""))

    def advice(self) -> str:
        if "." not in self.rule:  # an argument of the call, not a key of the policy
            return f"{self.data.get('remedy', '')}, or give it a larger {self.rule}."
        return f"{self.data.get('remedy', '')}, or ask whoever runs this kernel to raise {self.rule}."

    def lose(self, ignored_s: float | None = None) -> None:
        """The cell's process had to be killed, and with it the variables.

        Args:
            ignored_s: how long it was given after an interrupt, or None when it was killed at once.
        """
        if self.state == "lost":
            return
        self.state = "lost"
        if ignored_s is not None:
            self.message += f" It did not end within {ignored_s:g} s of an interrupt, so its process was replaced."


class TimeLimit(LimitReached):
    """The cell ran longer than the policy allows: by the clock (``limits.cell_time``) or by processor time."""

    def __init__(
        self, used_s: float, limit_s: float, *, rule: str = "limits.cell_time", left_running: bool = False
    ) -> None:
        what = "of processor time" if rule == "limits.cell_cpu" else "by the clock"
        happened = f"The cell was ended after {used_s:.3g} s {what}"
        if left_running:
            happened = f"What cells had left running was ended after {used_s:.3g} s of processor time"
        super().__init__(
            happened, rule=rule, limit=f"{limit_s:g} s",
            remedy="Make it do less at a time", used=used_s, allowed=limit_s,
        )


class MemoryLimit(LimitReached):
    """The session held more memory than the policy allows. Sizes in bytes."""

    def __init__(self, used: int, limit: int, *, files: int = 0, processes: int = 1) -> None:
        among = f" in {processes} processes" if processes > 1 else ""
        files_too = f" ({size_text(files)} of it files in memory-backed folders)" if files >= 1024**2 else ""
        super().__init__(
            f"The session was about to hold more than it may: {size_text(used)} of memory{among}{files_too}",
            rule="limits.memory", limit=size_text(limit), used=used, allowed=limit,
            remedy="Work on less data at a time (earlier results stay in memory through Out and _)",
        )


class OutputLimit(LimitReached):
    """The cell produced many times more output than the policy lets through."""

    def __init__(self, used: int, limit: int, *, rule: str = "limits.output_total") -> None:
        counted = rule == "limits.messages"
        made = f"{used:,} messages" if counted else size_text(used)
        super().__init__(
            f"The cell was ended because it went on writing: {made} of output, most of it omitted",
            rule=rule, limit=f"{limit:,}" if counted else size_text(limit), used=used, allowed=limit,
            remedy="Write to a file, or print less",
        )


class ProcessLimit(LimitReached):
    """The session had more processes and threads than the policy allows."""

    def __init__(self, used: int, limit: int) -> None:
        super().__init__(
            f"The session was ended because it had {used:,} processes and threads", rule="limits.processes",
            limit=f"{limit:,}", remedy="Use a smaller pool", used=used, allowed=limit,
        )


class DiskLimit(LimitReached):
    """The session wrote more to disk than the policy allows. Sizes in bytes."""

    def __init__(self, used: int, limit: int) -> None:
        super().__init__(
            f"The cell was ended because the session wrote {size_text(used)} to disk", rule="limits.disk",
            limit=size_text(limit), remedy="Delete what is no longer needed", used=used, allowed=limit,
        )


class WorkerLost(SandboxError):
    """The process that ran the cells is gone."""

    state = "lost"

    def __init__(self, cause: str) -> None:
        super().__init__(f"The process that ran this session's cells is gone: {cause}.", cause=cause)

    def advice(self) -> str:
        return "" if self.state == "restored" else "A fresh one is ready and the next cell will run."


class RolledBack(SandboxError):
    """The session went back to an earlier state because somebody asked for it."""

    state = "lost"  # until it is restored

    def __init__(self) -> None:
        super().__init__("The session was to go back to an earlier state.")


class NoCheckpoint(SandboxError):
    """There is no copy of the state that was asked for.

    Args:
        cell: the number of the last cell in that state, or its name.
        cells: those that there are copies of; names, when it is a name.
    """

    state = "kept"

    def __init__(self, cell: int | str, cells: Iterable[int | str], reason: str = "") -> None:
        cells = tuple(cells)
        if isinstance(cell, str):
            known = ", ".join(map(repr, cells))
            text = f"There is no checkpoint named {cell!r}" + (f": {reason}" if reason else "")
            super().__init__(f"{text}; there are {known}." if known else f"{text}.", cell=cell, cells=cells)
            return
        known = ", ".join(dict.fromkeys(f"[{number}]" for number in cells))  # (calls leave copies between cells, too)
        there = f"there are copies of the states after {known}" if known else "there is no copy"
        why = f" ({reason})" if reason else ""
        state = f"as it was after cell [{cell}]" if cell >= 0 else "of so long ago, when it had no cells yet"
        text = f"There is no copy of the session {state}; {there}{why}."
        super().__init__(text, cell=cell, cells=cells)

    @property
    def cells(self) -> tuple[int, ...]:
        """The numbers of the cells after which there are copies."""
        return tuple(cell for cell in self.data.get("cells", ()) if isinstance(cell, int))


class CopyRefused(SandboxError):
    """No copy of the session can be made: it cannot be forked, or get a checkpoint with a name.

    Args:
        reason: why, as a clause.
        remedy: what the reader can do about it, as a sentence.
    """

    state = "kept"

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(f"This session cannot be copied: {reason}.", reason=reason, remedy=remedy)

    def advice(self) -> str:
        return str(self.data.get("remedy", ""))


class ProtocolError(SandboxError):
    """The worker sent something that is not in the protocol; it is replaced."""

    state = "lost"

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"The process that ran this session's cells sent data that breaks the protocol ({problem}) "
            "and was ended.", problem=problem,
        )

    def advice(self) -> str:
        return "" if self.state == "restored" else "A fresh one is ready and the next cell will run."


class RequestTooLarge(SandboxError):
    """What a client asks for does not fit into a message to the worker."""

    state = "kept"

    def __init__(self, problem: str) -> None:
        super().__init__(f"This cannot be sent to the process that runs the cells: {problem}.", problem=problem)


class CellError(SandboxError):
    """A function of the session that the Python API called has raised.

    Attributes:
        name: of the exception's class, in the sandbox.
        value: its text.
        traceback: as a cell would show it.
        bases: the names of the classes that its class is derived from, the nearest first.
    """

    state = "kept"

    def __init__(self, name: str, value: str, traceback: str = "", bases: Iterable[str] = ()) -> None:
        text = f"{name}: {value}" if value else name
        super().__init__(text, name=name, value=value, traceback=traceback, bases=tuple(bases))

    @property
    def name(self) -> str:
        """Of the exception's class."""
        return str(self.data.get("name", ""))

    @property
    def value(self) -> str:
        """Its text."""
        return str(self.data.get("value", ""))

    @property
    def traceback(self) -> str:
        """As a cell would show it."""
        return str(self.data.get("traceback", ""))

    @property
    def bases(self) -> tuple[str, ...]:
        """The names of the classes that its class is derived from."""
        return tuple(self.data.get("bases", ()))


class FrameRefused(SandboxError):
    """A value cannot pass the frame gate, or what came through it is no frame.

    Args:
        problem: what is wrong, as a sentence without its full stop. It names the type of a value.
        where: the place of the value inside the whole, such as ``column 'a', row 3``.
        remedy: what the sender can do about it, as a sentence.
        in_order: it is a frame as honest senders write them, and only more than may be taken here, or of a package that
            is missing.
    """

    def __init__(self, problem: str, *, where: str = "", remedy: str = "", in_order: bool = False) -> None:
        text = f"{where}: {problem}" if where else problem
        super().__init__(f"{text[:1].upper()}{text[1:]}.", where=where, remedy=remedy)
        if remedy:
            self.add_note(remedy)  # of a traceback in a program, which shows no advice
        self.in_order = in_order

    def advice(self) -> str:
        return str(self.data.get("remedy", ""))
