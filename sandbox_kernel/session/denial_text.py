"""What a person reads at the end of a cell about things that the sandbox refused to it.

Two sources: the calls that were refused and counted (`denial_line`), and the error that ended a cell, from whose text
the cause is guessed (`file_hint`). The texts of errors come from the worker: what is quoted of them is cut and plain.
"""

from __future__ import annotations

import errno
import os
import re
import resource
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import size_text
from ..plan.make import in_force
from ..plan.model import Plan

if TYPE_CHECKING:
    from .denials import Denial

_NO_POLICY = "no policy allows it"
_SENTENCES = 3  # in one line
_EXAMPLES = 3  # in one sentence
_LOCAL = "local sockets"
_WORDS: dict[str, tuple[str, str]] = {
    "network": ("Network access is blocked by the sandbox policy",
                'network.mode is "none" and has no other value yet: put what cells need into their folder, as files'),
    _LOCAL: ("Local sockets cannot be made at this isolation level",
             "the level full has them, see isolation.level in the policy"),
    "pairs": ("Datagram socket pairs are refused in the sandbox", _NO_POLICY),
    "namespaces": ("New namespaces are refused in the sandbox", _NO_POLICY),
    "mounts": ("Mounts and changes of root are refused in the sandbox", _NO_POLICY),
    "other processes": ("Tracing and reading other processes is refused in the sandbox", _NO_POLICY),
    "identity": ("A change of user, group or capabilities is refused in the sandbox", _NO_POLICY),
    "kernel interfaces": ("Kernel interfaces of system software are refused in the sandbox", _NO_POLICY),
    "memory files": ("Files that exist only in memory, which no limit counts, are refused in the sandbox",
                     "tempfile and multiprocessing.shared_memory work, and memfd_create at the level full when it "
                     "asks for nothing but MFD_CLOEXEC"),
    "the machine": ("Control of the machine itself is refused in the sandbox", _NO_POLICY),
}  # fmt: skip


def denial_line(denials: Sequence[Denial]) -> str | None:
    """One line (without its end) about refused system calls, or None when there were none."""
    groups: dict[str, list[Denial]] = {}
    for denial in denials:
        groups.setdefault(_group(denial), []).append(denial)
    sentences = []
    for kind, found in sorted(groups.items(), key=lambda item: list(_WORDS).index(item[0])):
        what, advice = _WORDS[kind]
        examples = [f"{f'{d.call} {d.detail}'.strip()}, {_attempts(d.count)}" for d in found[:_EXAMPLES]]
        if len(found) > _EXAMPLES:
            examples.append(f"others, {_attempts(sum(d.count for d in found[_EXAMPLES:]))}")
        sentences.append(f"{what} ({'; '.join(examples)}); {advice}.")
    if len(sentences) > _SENTENCES:
        rest = list(groups.values())
        rest.sort(key=lambda found: list(_WORDS).index(_group(found[0])))
        more = sum(d.count for found in rest[_SENTENCES:] for d in found)
        sentences[_SENTENCES:] = [f"Further system calls were refused ({_attempts(more)})."]
    return " ".join(sentences) or None


def _group(denial: Denial) -> str:
    if denial.kind != "network":
        return denial.kind if denial.kind in _WORDS else "kernel interfaces"
    if denial.call == "socketpair":
        return "pairs"
    return "network" if denial.rule == "network.mode" else _LOCAL


def _attempts(count: int) -> str:
    return f"{count:,} attempt{'s' * (count != 1)}"


class PlanFacts(msgspec.Struct, frozen=True):
    """What of a plan bears on errors about files. All paths absolute.

    Attributes:
        level: of the plan.
        cwd: the folder that cells start in.
        workspace: the notebook's folder, "" when it is not shown.
        writable: whether cells may change it.
        closed_top: no new names can be made directly in it.
        shown: everything that is visible read-only, links included.
        private: the sandbox's own writable folders.
        home: the one of them that is HOME.
        hidden: paths inside the workspace and data folders that are not visible.
        protected: paths inside the workspace that are read-only.
        mirror: the private folder in which the notebook's files appear as links; "" where there is none.
        layered: whether there is a private layer over the notebook's folder.
        process_memory: bytes that one process may hold, 0 where that is not known.
        open_files, file_size, processes: limits that follow from the policy; 0 as above.
    """

    level: str
    cwd: str
    workspace: str
    writable: bool
    closed_top: bool
    shown: tuple[str, ...]
    private: tuple[str, ...]
    home: str
    hidden: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    mirror: str = ""
    layered: bool = False
    process_memory: int = 0
    open_files: int = 0
    file_size: int = 0
    processes: int = 0

    @classmethod
    def in_force(cls, plans: Sequence[Plan], level: str, details: Mapping[str, Any]) -> PlanFacts | None:
        """The facts of that plan which the zygote reported "ready" for."""
        plan = in_force(plans, level, details)
        return None if plan is None else cls.of(plan)

    @classmethod
    def of(cls, plan: Plan) -> PlanFacts:
        """The facts of a plan."""
        home, limits = plan.environment["HOME"], dict(plan.rlimits)
        shown = [b.path for b in plan.binds] + [path for path, _ in plan.links]
        shown += [g.path for g in plan.grants if g.access in ("read", "read-exec")]
        shown = [p for p in shown if p not in (plan.workspace, "/etc", "/proc", "/proc/self")]
        private = [t.path for t in plan.tmpfs] or [plan.environment["TMPDIR"], home, *filter(None, [plan.mirror])]
        return cls(
            level=plan.level, cwd=plan.cwd, workspace=plan.workspace, writable=plan.workspace_writable,
            closed_top=any(g.access == "list" and g.path == plan.workspace for g in plan.grants),
            shown=tuple(dict.fromkeys(shown)), private=tuple(private), home=home,
            hidden=(*plan.hidden, *plan.veiled), protected=plan.protected, mirror=plan.mirror, layered=plan.layered,
            process_memory=limits.get(resource.RLIMIT_DATA, 0), open_files=limits.get(resource.RLIMIT_NOFILE, 0),
            file_size=limits.get(resource.RLIMIT_FSIZE, 0), processes=plan.processes,
        )  # fmt: skip


_NAMES = frozenset({"PermissionError", "FileNotFoundError", "OSError"})
_NUMBERS = frozenset({errno.EACCES, errno.EPERM, errno.ENOENT, errno.EROFS})
_TEXT = 4096
# Python's and pyarrow's form with a quoted path and perhaps a second one; polars' form.
_QUOTED = re.compile(r"\[Errno (\d{1,3})\][^'\"\n]{0,200}(['\"])([^\n]{1,1000}?)\2(?: -> (['\"])([^\n]{1,1000}?)\4)?")
_RUST = re.compile(r"\(os error (\d{1,3})\): ([^\n]{1,1000})")


def file_hint(ename: str, evalue: str, plan_facts: PlanFacts) -> str | None:
    """A line about a cell's last error, when it looks like a file that the sandbox does not give.

    It is a guess from the text: nothing is looked up, for the answer would tell the cell's author what lies on the
    host's disk. An ordinary missing or unreadable file gets None.
    """
    if ename not in _NAMES:
        return None
    number, paths = _parse(evalue[:_TEXT])
    if number not in _NUMBERS:
        return None
    for path in paths:
        if "\0" not in path and not path.startswith("~"):
            hint = _hint(number, path, plan_facts)
            if hint is not None:
                return hint
    return None


# Python's own; numpy's, pyarrow's and duckdb's kinds of it.
_NO_MEMORY = frozenset({"MemoryError", "_ArrayMemoryError", "ArrowMemoryError", "OutOfMemoryException"})
_NO_PROCESS = frozenset({
    ("RuntimeError", "can't start new thread"), ("BlockingIOError", "[Errno 11] Resource temporarily unavailable"),
})  # fmt: skip

# Of what makes POSIX semaphores and shared memory: the text names no file, and so do few others.
_NO_SEMAPHORE = ("PermissionError", f"[Errno {errno.EACCES}] Permission denied")


def limit_hint(ename: str, evalue: str, facts: PlanFacts) -> str | None:
    """A line about the limit behind a cell's last error, when it says that there was no more of something."""
    if "inotify" in evalue:  # the same numbers for what may be watched, which is no matter of the policy
        return None
    if ename in _NO_MEMORY and facts.process_memory:
        return (f"One process may hold {size_text(facts.process_memory)} of memory in this sandbox: seven eighths of "
                "limits.memory in the policy.")  # fmt: skip
    if (ename, evalue) in _NO_PROCESS and facts.processes:
        return f"The sandbox may have {facts.processes:,} processes and threads: limits.processes in the policy."
    if (ename, evalue) == _NO_SEMAPHORE and "landlock" in facts.level:
        return ("Was this about multiprocessing (pools, queues, locks) or shared memory? They need the isolation level "
                "full. Threads and plain Process objects work here.")  # fmt: skip
    if ename == "OSError" and evalue.startswith(f"[Errno {errno.EMFILE}]") and facts.open_files:
        return f"One process may have {facts.open_files:,} files open: limits.open_files in the policy."
    if ename == "OSError" and evalue.startswith(f"[Errno {errno.EFBIG}]") and facts.file_size:
        return f"A file may have {size_text(facts.file_size)}: limits.file_size and limits.disk in the policy."
    if ename == "OSError" and evalue.startswith(f"[Errno {errno.EOVERFLOW}]") and facts.layered:
        return ("A file in the notebook's folder that belongs to another user or group can be read here, not changed. "
                "Write to a new name, or remove it first: that takes it away from the sandbox only.")  # fmt: skip
    if (ename, evalue) == ("OperationalError", "attempt to write a readonly database") and facts.mirror:
        return ("A database of the notebook's folder can be read here, not changed. Make a copy of it "
                "(`shutil.copy(name, new_name)`) and open that. Cells change the folder itself where the policy says "
                'files.workspace = "read-write".')  # fmt: skip
    if ename == "OSError" and evalue.startswith(f"[Errno {errno.ENOSPC}]") and facts.level == "full":
        return ("The private folders of the sandbox have fixed sizes: limits.tmp, limits.shm, limits.home, limits.disk "
                "in the policy.")  # fmt: skip
    return None


def explanation(denials: Sequence[Denial], error: tuple[str, str] | None, facts: PlanFacts | None) -> str:
    """What the sandbox refused to the cell that just ended, in lines; "" when there is nothing to say.

    Args:
        denials: refused calls.
        error: name and value of the error that ended the cell.
        facts: of the plan in force.
    """
    hint = None
    if error is not None and facts is not None:
        hint = limit_hint(*error, facts) or file_hint(*error, facts)
    return "".join(f"{text}\n" for text in (denial_line(list(denials)), hint) if text)


def _parse(text: str) -> tuple[int, list[str]]:
    if match := _QUOTED.search(text):
        return int(match[1]), [path for path in (match[3], match[5]) if path]
    if match := _RUST.search(text):
        return int(match[1]), [match[2].strip()]
    return 0, []


def _hint(number: int, path: str, facts: PlanFacts) -> str | None:
    whole = os.path.normpath(os.path.join(facts.cwd, path))
    name = _plain(path)
    # Where there is a mount namespace what is not shown is not there; Landlock alone says EACCES, and only then.
    full = facts.level == "full"
    refused = number in (errno.EROFS, errno.EACCES)
    linked = facts.mirror and _within(whole, (facts.mirror,))
    original = os.path.join(facts.workspace, os.path.relpath(whole, facts.mirror)) if linked else whole
    if _within(original, facts.hidden):
        return (f"{name} is hidden in the sandbox, as settings, keys and Jupyter's own files are; see files.hide in "
                "the policy.")  # fmt: skip
    if linked:
        return _in_mirror(number, name)
    # One may lie in another: a workspace below /tmp, packages in the workspace. The innermost counts.
    depths = {
        "workspace": _depth(whole, (facts.workspace,) if facts.workspace else ()),
        "private": _depth(whole, facts.private),
        "shown": _depth(whole, [p for p in facts.shown if p not in facts.protected]),
    }
    place = max(depths, key=lambda name: depths[name])
    if depths[place] == 0:
        place = ""
    if place == "private":
        return _in_private(number, whole, facts)
    if place == "workspace":
        return _in_workspace(number, whole, name, facts)
    if place == "shown":
        if refused and (number == errno.EROFS or not full):
            return f"{name} is shown to the sandbox read-only. Cells can write to {_writable(facts)}."
        return None
    if number == errno.ENOENT and not full:
        return None
    if _within(whole, ("/proc",)):
        if number == errno.ENOENT:
            return None
        return f"This part of /proc is closed in the sandbox ({name}); {_NO_POLICY}."
    if _within(whole, ("/sys", "/dev")):
        return f"Devices and interfaces of the kernel are not shown in the sandbox ({name}); {_NO_POLICY}."
    if _within(whole, ("/etc",)):
        return f"The sandbox sees only a small part of /etc ({name} may not be in it); no policy shows more."
    if number == errno.EROFS:
        return f"{name} lies outside the folders of the sandbox. Cells can write to {_writable(facts)}."
    if number == errno.EACCES:  # of reading or of writing: which, the text does not say
        return (f"{name} lies outside the folders of the sandbox. Cells can write to {_writable(facts)}; an operator "
                "can show further folders read-only, see files.read in the policy.")  # fmt: skip
    return (f"{name} lies outside the folders that the sandbox shows. If it exists, an operator can show its folder "
            "read-only: see files.read in the policy.")  # fmt: skip


def _in_private(number: int, whole: str, facts: PlanFacts) -> str | None:
    inner = os.path.relpath(whole, facts.home)
    if number != errno.ENOENT or not _within(whole, (facts.home,)) or inner.startswith("."):
        return None  # (with a dot: a library's settings; "." itself)
    return (f"The home folder of the sandbox ({_plain(facts.home)}) is its own and starts empty: files of your home "
            "are not in it. An operator can show folders read-only: see files.read in the policy.")  # fmt: skip


def _in_mirror(number: int, name: str) -> str | None:
    if number not in (errno.EROFS, errno.EACCES):
        return None
    return (f"{name} belongs to the notebook's folder, whose files cells can read but not change. Write to a new name, "
            "or remove it first: that takes it away from the sandbox only. Cells change the folder itself where the "
            'policy says files.workspace = "read-write".')  # fmt: skip


def _in_workspace(number: int, whole: str, name: str, facts: PlanFacts) -> str | None:
    if number not in (errno.EROFS, errno.EACCES):
        return None
    if facts.mirror:
        return (f"The notebook's folder itself cannot be changed here ({name}), nor can its hidden and its newest "
                "files be read by this name. Leave the folder out: in the folder that cells start in they can write, "
                "and new data is kept next to the notebook.")  # fmt: skip
    if not facts.writable:
        return f"The notebook's folder is read-only in this sandbox ({name}); see files.workspace in the policy."
    if facts.level == "full" and number == errno.EACCES:
        return None  # the file's own mode
    if _within(whole, facts.protected):
        return f"{name} belongs to the kernel's own interpreter or packages, which cells cannot change; {_NO_POLICY}."
    if facts.closed_top and os.path.dirname(whole) == facts.workspace:
        return (f"No new names can be made directly in the notebook's folder at this isolation level ({name}), "
                "because it holds hidden or protected files. Folders in it can be written.")  # fmt: skip
    return None


def _writable(facts: PlanFacts) -> str:
    places = ["the notebook's folder"] if facts.workspace and facts.writable else []
    places += ["the folder that they start in"] if facts.mirror else []
    return " and ".join([*places, "the folders of tempfile"])


def _depth(path: str, folders: Sequence[str]) -> int:
    """Length of the longest of the folders that the path is in, 0 for none."""
    return max((len(f) for f in folders if _within(path, (f,))), default=0)


def _within(path: str, folders: Sequence[str]) -> bool:
    return any(path == f or path.startswith(f + "/") for f in folders)


def _plain(path: str) -> str:
    """The path for a line of text, in quotes: at most 120 characters of it."""
    return repr(path if len(path) <= 120 else f"{path[:60]}...{path[-57:]}")
