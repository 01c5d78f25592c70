"""What a cell gave: its results, its text and its error, under the names that E2B's code interpreter made usual."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import size_text
from ..session.denials import Denial

TEXT_CHARS = 20_000
_BRIEF = 200  # characters of a text in a result's repr
# Terminal sequences: colours and cursor movements, titles and links, and what is left of them.
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")

_TEXTS = {
    "text/plain": "text", "text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg",
    "text/latex": "latex", "application/javascript": "javascript",
}  # fmt: skip
_BYTES = {"image/png": "png", "image/jpeg": "jpeg", "application/pdf": "pdf"}


@dataclass
class Logs:
    """What was printed, in pieces as they came."""

    stdout: list[str] = field(default_factory=list)
    stderr: list[str] = field(default_factory=list)


@dataclass
class ExecutionError:
    """What ended the cell.

    Attributes:
        name: of the exception's class in the sandbox, or of this package's error (``TimeLimit``, ``WorkerLost``, ...).
        value: its text.
        traceback: as the cell's author would see it, with colours.
    """

    name: str
    value: str
    traceback: str = ""


@dataclass(repr=False)
class Result:
    """One display, or the value of the cell's last expression. What the cell did not give is None.

    Attributes:
        png, jpeg, pdf: as bytes.
        json: as plain values.
        data: the value itself, when it is a DataFrame, Series, Index or array that passes the frame gate.
        extra: other types, by their MIME type.
        is_main_result: it is the value of the last expression.
    """

    text: str | None = None
    html: str | None = None
    markdown: str | None = None
    svg: str | None = None
    png: bytes | None = None
    jpeg: bytes | None = None
    pdf: bytes | None = None
    latex: str | None = None
    json: Any = None
    javascript: str | None = None
    data: Any = None
    extra: dict[str, Any] = field(default_factory=dict)
    is_main_result: bool = False

    @classmethod
    def of(cls, bundle: Mapping[str, Any], *, main: bool) -> Result:
        """A result out of a MIME bundle that has passed the output gate."""
        result = cls(is_main_result=main)
        for kind, value in bundle.items():
            if kind in _TEXTS and isinstance(value, str):
                setattr(result, _TEXTS[kind], value)
            elif kind in _BYTES and isinstance(value, str) and (data := _decoded(value)) is not None:
                setattr(result, _BYTES[kind], data)
            elif kind == "application/json":
                result.json = value
            else:
                result.extra[kind] = value
        return result

    def formats(self) -> list[str]:
        """The names of the attributes that are filled."""
        names = (*_TEXTS.values(), *_BYTES.values(), "json", "data")
        return [name for name in names if getattr(self, name) is not None] + list(self.extra)

    def __repr__(self) -> str:
        """What is filled, in a line: a picture as its size, a long text as its beginning."""
        # (The names of other types are the cell's choice, and a repr is printed to terminals.)
        parts = [f"{name if name.isidentifier() else repr(name)}={_brief(self[name])}" for name in self.formats()]
        return f"Result({', '.join([*parts, f'is_main_result={self.is_main_result}'])})"

    def __getitem__(self, name: str) -> Any:
        return self.extra[name] if name in self.extra else getattr(self, name)


def _brief(value: Any) -> str:
    if isinstance(value, bytes):
        return f"<{size_text(len(value))}>"
    if isinstance(value, str):
        return repr(value) if len(value) <= _BRIEF else f"{value[:_BRIEF]!r}..."
    return f"<{type(value).__name__}>"


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode(text)
    except (binascii.Error, ValueError):
        return None


@dataclass
class Execution:
    """One run of `run_code`.

    Attributes:
        results: displays and the value of the last expression, in the order in which they came.
        logs: what was printed.
        error: None when the cell ran to its end.
        execution_count: the cell's number.
        duration_s: wall time, that of host tools included.
        cpu_time_s: processor time of all its processes, to about 10 ms.
        peak_memory_bytes: the most that the sandbox was seen to hold while the cell ran.
        timed_out: the time limit of the call or of the policy ended it.
        denials: what the sandbox refused to it, by kind of system call.
        state: "kept": the session's variables are there; "restored": as they were after an earlier cell, which the
            error names; "lost": they are gone with the process that held them;
            "restored": they are those of an earlier moment.
        exit_code: as of a program: 0; 1 after an exception, or what the cell gave to ``sys.exit``; that of the process
            when the cell ended it, or minus the number of the signal that did (-9 for a limit).
        blocked_imports: modules that the policy's rules for code refused.
        returned: the values that ``returns=`` asked for, by name.
        files_kept: files that it made or changed and that were written into the workspace, see ``files.keep``.
        dropped: why a name in ``returns=`` is not among them.
    """

    results: list[Result] = field(default_factory=list)
    logs: Logs = field(default_factory=Logs)
    error: ExecutionError | None = None
    execution_count: int = 0
    duration_s: float = 0.0
    cpu_time_s: float = 0.0
    peak_memory_bytes: int = 0
    timed_out: bool = False
    denials: list[Denial] = field(default_factory=list)
    state: str = "kept"
    exit_code: int = 0
    blocked_imports: list[str] = field(default_factory=list)
    returned: dict[str, Any] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    files_kept: list[str] = field(default_factory=list)

    @property
    def success(self) -> bool:
        """Whether the cell ran to its end."""
        return self.error is None

    @property
    def stdout(self) -> str:
        """All that was printed to standard output."""
        return "".join(self.logs.stdout)

    @property
    def stderr(self) -> str:
        """All that was printed to standard error."""
        return "".join(self.logs.stderr)

    def text(self, limit: int = TEXT_CHARS) -> str:
        """Everything as plain text for a language model: no terminal sequences, at most ``limit`` characters.

        What is cut is cut out of the middle and marked with its size; the error's last lines are never cut away.
        """
        parts = [plain_text(self.stdout), plain_text(self.stderr)]
        for result in self.results:
            shown = result.text or result.markdown or result.latex or result.html or ""
            pictures = [name for name in ("png", "jpeg", "svg", "pdf") if getattr(result, name) is not None]
            parts.append(plain_text(shown) + "".join(f" [{name} image]" for name in pictures))
        if self.error is not None:
            trace = plain_text(self.error.traceback)
            last = plain_text(f"{self.error.name}: {self.error.value}")
            parts.append(trace if last in trace or not last else f"{trace}\n{last}".strip())
        return shortened("\n".join(part.rstrip("\n") for part in parts if part), limit)


def plain_text(text: str) -> str:
    """Without terminal sequences; of a line that was written over with carriage returns only the last state."""
    lines = _ANSI.sub("", text).replace("\r\n", "\n").split("\n")
    return _CONTROL.sub("", "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines))


def shortened(text: str, limit: int) -> str:
    """At most ``limit`` characters, head and tail, with a line between them that tells how much is missing."""
    if len(text) <= limit:
        return text
    mark = f"\n[... {len(text) - limit:,} characters left out ...]\n"
    room = max(0, limit - len(mark))
    head = room * 2 // 5
    return (text[:head] + mark + text[len(text) - (room - head) :])[:limit] if room else text[-limit:] if limit else ""
