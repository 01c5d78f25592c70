"""Every sentence that a person reads about the sandbox, in one place."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .errors import BROKEN_STATUS, one_line, size_text

# Why a worker ended, for the other cells that ran in it; the error's name is put in.
BYSTANDER = "it was ended because of another cell, which ran at the same time ({})"
_SHOWN_FILES = 10
_BRIEF_CHARS = 90
# Why a file stays in the private layer.
NOT_DATA = "not among files.keep"
_THERE = "a file of that name exists and is not the sandbox's"
CAN_BE_KEPT = (NOT_DATA, _THERE)
EARLIER = "made in an earlier session"
_AFTERWARDS = {
    "shown": "Cells have that after a restart, too.", "stored": "That is set aside when the kernel ends.",
    "none": "That ends with the kernel.",
}  # fmt: skip
_HOW = ("[{} In a terminal, `sandbox-kernel files --keep NAME` puts a file next to the "
        "notebook; with --replace over the one that is there.]\n")


def describe_exit(status: int) -> str:
    """Why a worker ended, in words, out of its wait status (see waitpid(2))."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        cause = {
            "SIGSEGV": "a crash in native code (segmentation fault)",
            "SIGABRT": "native code called abort()",
            "SIGBUS": "a bus error in native code",
            "SIGFPE": "a floating-point error in native code",
            "SIGILL": "an illegal instruction in native code",
            "SIGKILL": "it was killed; often the machine was short of memory",
            "SIGSYS": "it made a system call of a foreign architecture, which the sandbox ends at once",
            "SIGXCPU": "it used up its processor time",
            "SIGXFSZ": "it wrote a file larger than the policy allows",
        }.get(name, "it was ended by a signal")
        return f"{cause} ({name})"
    if os.WEXITSTATUS(status) == BROKEN_STATUS:
        return "cells had changed what runs them, so that no other cell could be run in it"
    return f"the code ended the process itself (exit code {os.WEXITSTATUS(status)})"


def omitted_here(rule: str) -> str:
    """The line at which a cell's output stops; ``rule`` such as ``limits.text = 64 MiB``."""
    return f"[Output is omitted from here on, {rule}; its last part is shown when the cell has ended]\n"


def omitted_in_line(characters: int) -> str:
    """What stands in a line for the end that it has lost."""
    return f" [... {characters:,} characters of this line omitted]"


def omitted_total(text_bytes: int, messages: int, rule: str) -> str:
    """The line that says, once the cell has ended, how much of its output is missing."""
    parts = [f"{size_text(text_bytes)} of text"] if text_bytes else []
    parts += [f"{messages:,} display{'s' * (messages != 1)}"] if messages else []
    return f"[Omitted here: {' and '.join(parts)}; {rule}]\n"


def leftovers_ended(limit: int) -> str:
    """The line in a cell that says why processes of earlier cells are gone."""
    return (
        "[Processes that earlier cells had left running were ended: the session was about to hold more memory than "
        f"limits.memory = {size_text(limit)}; the variables are kept]\n"
    )


def time_at_breakpoints() -> str:
    """The line beside a time limit's error while somebody debugs."""
    return "[A debug session is open: time at a breakpoint counts towards limits.cell_time]\n"


def debug_answer_cut(size: int, limit: int) -> str:
    """Why the debugger's answer to a request is not shown."""
    return f"The answer is {size_text(size)} long and may be {size_text(limit)} (limits.output)."


def debug_events_cut() -> str:
    """What a debugger's client hears when events were dropped."""
    return "Some events of the debugger were dropped: there were too many of them (limits.messages, limits.output).\n"


def traceback_lines(name: str, text: str) -> list[str]:
    """The traceback of an error of ours: one red line, none of our own frames."""
    return [f"\x1b[0;31m{name}\x1b[0m: {text}"]


def status_text(
    *, level: str, proofs: Sequence[Mapping[str, Any]], details: Mapping[str, Any], policy: Iterable[tuple[str, str]]
) -> str:
    """What ``%sandbox status`` prints: the level, what each probe tried and saw, what is missing, the whole policy."""
    lines = [f"Sandboxed Python: isolation level {level}, proven by {len(proofs)} probes"]
    for proof in proofs:
        mark = "ok " if proof.get("ok") else "NO "
        lines.append(f"  {mark} {proof.get('layer', '')}: {proof.get('tried', '')} -> {proof.get('saw', '')}")
    for note in details.get("notes", ()):
        lines.append(f"  note: {note}")
    lines.append("Policy:")
    lines.extend(f"  {name} = {value}" for name, value in policy)
    return "\n".join(lines) + "\n"


def brief_text(
    *, level: str, proofs: Sequence[Mapping[str, Any]], details: Mapping[str, Any], policy: Iterable[tuple[str, str]]
) -> str:
    """What ``%sandbox`` prints: the level, its layers, what is missing, and the part of the policy that is told."""
    weak = "" if level in ("full", "seccomp+landlock") else "; it is no sandbox against hostile code"
    layers = ", ".join(dict.fromkeys(str(proof.get("layer", "")) for proof in proofs))
    lines = [f"Sandboxed Python: isolation level {level}, proven by {len(proofs)} probes{weak}", f"  layers: {layers}"]
    lines += [f"  NO  {proof.get('layer', '')}: {proof.get('tried', '')}" for proof in proofs if not proof.get("ok")]
    lines += [f"  note: {note}" for note in details.get("notes", ())]
    lines.append("Policy:")
    cut = ((name, value if len(value) <= _BRIEF_CHARS else f"{value[:_BRIEF_CHARS]}...") for name, value in policy)
    lines += [f"  {name} = {value}" for name, value in cut]
    lines.append("`%sandbox status` shows each probe and all keys of the policy, `%sandbox help` what else there is.")
    return "\n".join(lines) + "\n"


def open_gate_text(origin: str) -> str:
    """The warning of ``%sandbox`` and of the doctor where outputs pass unchecked; `origin` says who decided that."""
    return (
        f"WARNING: outputs are not checked (outputs.gate = off, {origin}): what a cell displays can act in the page of "
        "whoever opens it, with that person's rights\n"
    )


def removed_text(removed: Mapping[str, int]) -> str:
    """The line of ``%sandbox`` about outputs: what was taken out of them, and how often."""
    counts = sorted(removed.items(), key=lambda item: (-item[1], item[0]))
    said = ", ".join(f"{kind} x{count}" for kind, count in counts[:20])
    return f"Removed from outputs: {said or 'nothing'}\n"


def files_text(
    kept: Sequence[str], inside: Sequence[tuple[str, str]], *, how: bool = False, stays: str = "none"
) -> str:
    """The lines under a cell about the files it made in the private layer; "" when it made none.

    Args:
        kept: paths of those that were written next to the notebook.
        inside: paths of those that were not, and why.
        how: say, too, how a person gets them there.
        stays: `files.aside` of the policy.
    """
    lines = [f"[Kept next to the notebook: {_some(kept)}]\n"] if kept else []
    reasons: dict[str, list[str]] = {}
    for path, why in inside:
        reasons.setdefault(why, []).append(path)
    lines += [f"[Only inside the sandbox ({why}): {_some(paths)}]\n" for why, paths in reasons.items()]
    return "".join(lines) + _HOW.format(_AFTERWARDS[stays]) * how


def aside_text(again: Sequence[str], unseen: Sequence[str], lost: Mapping[str, str]) -> str:
    """The lines under a cell about what earlier sessions have left, and about what could not be set aside.

    Args:
        again: paths of the files that cells see again.
        unseen: and of those that they do not.
        lost: files that end with the kernel, and why.
    """
    lines = [f"[Here again, from an earlier session: {_some(again)}]\n"] if again else []
    if unseen:
        lines.append(f"[Set aside from an earlier session, and not here: {_some(unseen)}; "
                     "`sandbox-kernel files --aside` lists such files]\n")  # fmt: skip
    reasons: dict[str, list[str]] = {}
    for path, why in lost.items():
        reasons.setdefault(why, []).append(path)
    lines += [f"[Ends with the kernel, since it could not be set aside ({why}): {_some(paths)}]\n"
              for why, paths in reasons.items()]  # fmt: skip
    return "".join(lines)


def unkept_text(error: OSError) -> str:
    """Why a file in the private layer could not be written next to the notebook."""
    return {
        errno.EEXIST: _THERE,
        errno.ENOSPC: "the disk is full", errno.EDQUOT: "the disk is full", errno.EFBIG: "too much was kept already",
        errno.EACCES: "the folder cannot be written", errno.EPERM: "the folder cannot be written",
        errno.EROFS: "the folder cannot be written",
        errno.ENOENT: "there is no such file",
        errno.ELOOP: "there is a link in its path", errno.ENOTDIR: "there is no folder of that name",
    }.get(error.errno or 0, error.strerror or "it could not be read")  # fmt: skip


def held_text(files: Iterable[tuple[str, int, str]], more: int = 0) -> str:
    """A line for each file in the private layer: path, size in bytes, and why it is not on the disk ("": it is)."""
    rows = [(_some([name]), size_text(size), f"only inside: {why}" if why else "kept") for name, size, why in files]
    wide = [max((len(row[at]) for row in rows), default=0) for at in (0, 1)]
    lines = [f"{name:<{wide[0]}}  {size:>{wide[1]}}  {state}\n" for name, size, state in rows]
    return "".join(lines) + (f"and {more:,} more\n" if more else "")


def _some(paths: Sequence[str]) -> str:
    shown = ", ".join(map(one_line, paths[:_SHOWN_FILES]))
    return f"{shown}, and {len(paths) - _SHOWN_FILES} more" if len(paths) > _SHOWN_FILES else shown
