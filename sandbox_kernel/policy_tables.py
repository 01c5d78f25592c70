"""The tables of a policy: which keys there are, with their types, defaults and meanings.

`docs/policy.md` is made from the docstrings here.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from .policy_values import (
    DATA_FILES,
    SECRET_FILES,
    Count,
    CountOrNone,
    File,
    FileNames,
    HiddenNames,
    Modules,
    Names,
    Paths,
    Refused,
    RefusedBuiltins,
    RefusedModules,
    RefusedWords,
    Seconds,
    SecondsOrNone,
    Size,
    SizeOrNone,
    Types,
    Values,
)
from .quantities import GIB, MIB

Level = Literal["auto", "full", "seccomp+landlock", "seccomp", "landlock", "subprocess", "in-process"]
Floor = Literal["full", "seccomp+landlock", "landlock", "seccomp", "subprocess"]
LEVELS: tuple[str, ...] = get_args(Level)


class Isolation(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """``[isolation]``: which layers confine the worker.

    Attributes:
        level: "auto" takes the strongest level whose probes pass, down to `require`; a level given by name that
            cannot be had is an error, never a downgrade. "in-process" is for trusted code and for the Python API
            only.
        require: the weakest level that "auto" may take. Of the single layers "landlock" is taken before "seccomp".
    """

    level: Level = "auto"
    require: Floor = "seccomp+landlock"


class Limits(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """``[limits]``: sizes in bytes, times in seconds, counts as numbers; 0 means no limit where it is said.

    Attributes:
        memory: of all processes of the sandbox together, files in its memory-backed folders included; also the
            private memory of one process (RLIMIT_DATA), beyond which allocations raise MemoryError, and all large
            values together that a session was given and has not dropped.
        processes: processes and threads of the whole sandbox.
        open_files: descriptors of one process (RLIMIT_NOFILE).
        file_size: largest file that can be written (RLIMIT_FSIZE); never larger than `disk` allows.
        tmp: size of the private ``/tmp``.
        shm: size of the private ``/dev/shm``, which counts the files of `memfd_create`, too.
        home: size of the private home folder.
        disk: what cells may add to the notebook's folder (below ``full``: and to private ones); 0: no limit.
        cell_time: wall time of one cell; 0: no limit. ``# sandbox: timeout=30`` at the top of a cell (or
            ``{"sandbox": {"timeout": 30}}`` in its metadata, which a notebook can carry) gives it less, never more.
        cell_cpu: processor time of one cell, all its processes together; 0: no limit. What cells leave running may use
            a tenth of a core, and as much as this (or as ``cell_time``) beyond it.
        text: printed text that one cell shows, in bytes; of more its head and its tail are shown. One line may have a
            fifth of it.
        lines: lines of printed text that one cell shows; in the same way.
        output: bytes of text, displays and results that one cell shows; in the same way. What replaces something
            (a carriage return, ``clear_output``, an update, a message to a widget) is not counted but may come no
            faster than this in half a minute; beyond that the cell is made to wait.
        messages: displays and pieces of text that one cell shows; in the same way.
        output_total: bytes that one cell may write, shown or not; then it is ended.
        output_kept: text of the latest cells that is kept for ``%sandbox output``, all together.
        frame: largest value that is passed in or out of the sandbox at a time.
        interrupt_grace: how long a cell may go on after its time limit, or after a second interrupt, before its
            process is replaced.
    """

    memory: Size = 4 * GIB
    processes: Count = 256
    open_files: Count = 1024
    file_size: Size = 1 * GIB
    tmp: Size = 512 * MIB
    shm: Size = 256 * MIB
    home: Size = 64 * MIB
    disk: SizeOrNone = 896 * MIB
    cell_time: SecondsOrNone = 0.0
    cell_cpu: SecondsOrNone = 0.0
    text: Size = 56 * MIB
    lines: Count = 100_000
    output: Size = 56 * MIB
    messages: Count = 10_000
    output_total: Size = 1 * GIB
    output_kept: Size = 64 * MIB
    frame: Size = 1 * GIB
    interrupt_grace: Seconds = 4.0


class Files(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """``[files]``: what of the disk is visible.

    Attributes:
        workspace: "read-write" shows the notebook's folder as it is. "overlay" lets cells write as if it were theirs,
            but into a private layer as large as `limits.disk`, from which `keep` takes new files, and `aside` the rest.
            What other programs change in the folder meanwhile is seen; only a file that they replace while
            a cell holds it open keeps its old content under its name until it is closed. Where there can be no such
            layer (below ``full``) cells start in a private folder in which the notebook's files appear as links.
            "read-only" lets cells read it. "none" does not show it: cells start in an empty private folder.
        keep: names of the files that go from the private layer to the disk when a cell ends, with ``*`` for any text;
            only new files, never over one that no sandbox made.
        aside: what becomes of the other files that cells made in the private layer of a kernel. "shown": they are set
            aside in a folder of the user's (``sandbox-kernel/aside`` in ``$XDG_DATA_HOME``, else ``~/.local/share``),
            and later kernels over the same notebook's folder begin with them, so that a restart loses no file.
            "stored": they are only set aside. "none": they end with the kernel. A program's `Sandbox` sets none aside.
        hide: names of files and folders in the notebook's folder that cells do not see, with ``*`` for any text; below
            ``full`` not with "read-write". Folders that cannot be searched for them (too many entries, too deep)
            are hidden as a whole. Nothing is kept by such a name either. In a home folder, or in Jupyter's own, names
            that start with a dot and Jupyter's files are hidden in any case.
        read: further files and folders, shown read-only at their own path; absolute paths.
    """

    workspace: Literal["none", "read-only", "overlay", "read-write"] = "overlay"
    keep: FileNames = DATA_FILES
    aside: Literal["none", "stored", "shown"] = "shown"
    hide: HiddenNames = SECRET_FILES
    read: Paths = ()


class Network(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """``[network]``: what of the network cells can reach.

    Attributes:
        mode: "none": nothing, not even this machine; there is no other mode yet. It holds at the levels with seccomp;
            "landlock" closes TCP only, "subprocess" nothing.
    """

    mode: Literal["none"] = "none"


class Environment(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """``[environment]``: variables that reach the cells.

    Attributes:
        allow: names passed on from the launcher, besides the built-in harmless ones; a trailing ``*`` is a prefix.
        deny: names that never reach the cells, whatever else says so; a trailing ``*`` is a prefix. Names of
            several files add up.
        set: variables with fixed values. Those of several files add up; of one name the last value counts.
    """

    allow: Names = ()
    deny: Refused = ()
    set: Values = {}


class Code(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """``[code]``: what cells may say; guard rails that are checked before a cell runs, not the wall.

    Attributes:
        imports.allow: modules that cells may import, with everything below them; ``*`` stands for any text.
        imports.deny: modules that they may not, whatever `imports.allow` says. Names of several files add up.
        forbid: names ("eval"), attribute paths ("os.system") and keywords ("while") that may not occur. Those of
            several files add up.
        builtins.remove: built-in names that cells do not have. Names of several files add up.
        max_code_chars: characters of one cell; 0: no limit.
        functions_only: at top level only imports, definitions and a docstring.
        ticks: steps of one cell's own code, the same number on every machine: statements, turns of comprehensions,
            calls of lambdas; 0: no limit.
        dunder_attributes: "deny" refuses attributes that lead to Python's inside, such as ``__globals__`` or
            ``f_back``, in format strings too; ``__init__``, ``__name__`` and the like stay.
    """

    imports_allow: Modules = ("*",)
    imports_deny: RefusedModules = ()
    forbid: RefusedWords = ()
    builtins_remove: RefusedBuiltins = ()
    max_code_chars: CountOrNone = 0
    functions_only: bool = False
    ticks: CountOrNone = 0
    dunder_attributes: Literal["deny", "allow"] = "allow"


class Outputs(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """``[outputs]``: what of a cell's output reaches the page (see outputs.md).

    Attributes:
        gate: "off" passes all outputs as the stock kernel does: what cells display can act in the page of whoever
            opens it, with that person's rights. Only for outputs that no browser draws, or for trusted notebooks. The
            other keys of this table mean nothing then; an administrator's file with any of them forbids it.
        html: "sanitise" shows HTML without what acts; "text" shows none; "frame" shows HTML that has script in a frame
            without an origin, from which it can still look up host names and take the keyboard.
        widgets: "core" shows the widgets of ipywidgets itself, "off" none.
        comms: "any" passes comm messages of other targets as data: an extension of the page that listens to such a
            target acts on them. "widgets" passes only those of widgets.
        mimetypes: further mimetypes that pass as they are, for extensions of the page that are trusted with any data.
            A type with a rule of its own keeps it.
        html_size: longest HTML that is cleaned; plain tables and text may be longer.
        image_size: largest picture, as it is sent.
    """

    gate: Literal["on", "off"] = "on"
    html: Literal["text", "sanitise", "frame"] = "sanitise"
    widgets: Literal["off", "core"] = "core"
    comms: Literal["widgets", "any"] = "any"
    mimetypes: Types = ()
    html_size: Size = 8 * MIB
    image_size: Size = 20 * MIB


class Audit(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """``[audit]``: the log of what was run.

    Attributes:
        file: where the front writes one line for each cell; an absolute path, in which ``{pid}`` and ``{time}`` stand
            for the process that writes and its start. "" writes none. While the file cannot be written no cell is
            run. Kernels, the Python API, `run`, `mcp` and `grade` write it; sandboxes of one process share a file, and
            several processes at a time need ``{pid}``.
    """

    file: File = ""


class Worker(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """``[worker]``: the process that runs the cells.

    Attributes:
        python: the interpreter, 3.11 or newer, of an environment that has ipykernel; an absolute path. "" takes the
            kernel's own. It is started outside of the sandbox and confines itself: cells must not be able to write it.
        startup: "profile" runs the files in the ``startup`` folder of the user's IPython profile, inside the sandbox,
            before the first cell and for each fresh worker; nothing else of the profile (``ipython_config.py``,
            ``exec_lines``, extensions) is taken. A kernel for Jupyter only.
    """

    python: File = ""
    startup: Literal["none", "profile"] = "profile"


class Recovery(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """``[recovery]``: bringing variables back when the process that ran the cells is lost.

    Attributes:
        checkpoints: "on" keeps up to three frozen copies of the session, made while it is idle, at up to a twentieth of
            its time and within its memory limit; "off": a lost process costs the variables.
    """

    checkpoints: Literal["off", "on"] = "on"
