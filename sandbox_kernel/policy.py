"""The policy: plain data that says what a sandbox may do.

A policy is a TOML file (or a preset's name) whose tables are the classes below. Everything has a default, so an
empty file is a valid policy. Unknown keys are errors that name the nearest known key; sizes are written
``"4GiB"``, times ``"30s"``. `preset = "NAME"` at the top of a file starts from that preset instead of the
defaults below it.

Where it comes from, later ones win: built-in defaults < ``/etc/sandbox-kernel/policy.toml`` (the administrator's)
< ``sandbox-kernel/policy.toml`` in the user's configuration folder < ``SANDBOX_KERNEL_POLICY`` in the environment
of whoever starts the kernel (a path or a preset's name) < arguments of the API. What the administrator's file says
the others may only tighten. Nothing that a notebook, a cell or the notebook's folder can carry is ever read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

import msgspec

from .errors import PolicyError
from .launcher import ADMINISTRATOR, POLICY_VARIABLE, policy_files
from .policy_layers import BUILT_IN as BUILT_IN
from .policy_layers import Layers, is_path, preset_file, read_toml
from .policy_values import (
    Count,
    CountOrNone,
    File,
    Key,
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
    without,
)  # fmt: skip
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
            private memory of one process (RLIMIT_DATA), beyond which allocations raise MemoryError.
        processes: processes and threads of the whole sandbox.
        open_files: descriptors of one process (RLIMIT_NOFILE).
        file_size: largest file that can be written (RLIMIT_FSIZE).
        tmp: size of the private ``/tmp``.
        shm: size of the private ``/dev/shm``.
        home: size of the private home folder.
        disk: what cells may add to the notebook's folder (below ``full``: and to private ones); 0: no limit.
        cell_time: wall time of one cell; 0: no limit.
        cell_cpu: processor time of one cell, all its processes together; 0: no limit. What cells leave running may use
            a tenth of a core, and as much as this (or as ``cell_time``) beyond it.
        text: printed text that one cell shows, in bytes; of more its head and its tail are shown. One line may have a
            sixth of it.
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
    text: Size = 64 * MIB
    lines: Count = 100_000
    output: Size = 64 * MIB
    messages: Count = 10_000
    output_total: Size = 1 * GIB
    output_kept: Size = 64 * MIB
    frame: Size = 1 * GIB
    interrupt_grace: Seconds = 4.0


class Files(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """``[files]``: what of the disk is visible.

    Attributes:
        workspace: "read-write" shows the notebook's folder as it is; "read-only" lets cells read it.
        read: further files and folders, shown read-only at their own path; absolute paths.
    """

    workspace: Literal["read-only", "read-write"] = "read-write"
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
            for the kernel's process and start. "" writes none. While the file cannot be written no cell is run.
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


class Policy(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """All tables together."""

    isolation: Isolation = Isolation()
    limits: Limits = Limits()
    files: Files = Files()
    network: Network = Network()
    environment: Environment = Environment()
    code: Code = Code()
    outputs: Outputs = Outputs()
    recovery: Recovery = Recovery()
    audit: Audit = Audit()
    worker: Worker = Worker()

    @classmethod
    def load(cls, source: str | Path | None) -> Policy:
        """Read one policy file or take a preset, without regard to any other file (see `resolve`).

        Args:
            source: path of a TOML file, name of a preset, or None or "" for the defaults.

        Raises:
            PolicyError: unreadable file, unknown preset, unknown key, wrong type or value.
        """
        if not source:
            return cls()
        path = str(source) if is_path(source) else preset_file(str(source), "policy")
        return cls.from_tables(read_toml(path), where=path)

    @classmethod
    def from_tables(cls, tables: Mapping[str, Any], *, where: str = "policy") -> Policy:
        """Build a policy from plain dictionaries (the shape of a parsed TOML file).

        Raises:
            PolicyError: unknown key (with the nearest known one), wrong type, value out of range.
        """
        layers = Layers(KEYS)
        layers.add_tables(tables, where)
        return _built(layers.values)

    @classmethod
    def resolve(
        cls, launcher_env: Mapping[str, str], *, etc: Path = Path(ADMINISTRATOR),
        overrides: Override | Sequence[Override] = None, workspace: str | Path | None = None,
    ) -> Resolved:  # fmt: skip
        """The policy that holds for a sandbox started with this environment.

        Args:
            launcher_env: HOME, XDG_CONFIG_HOME and SANDBOX_KERNEL_POLICY are looked at.
            etc: the administrator's file.
            overrides: what the API's caller asks for, later ones win; of a `Policy` what differs from the defaults.
            workspace: the notebook's folder; no policy file may lie where its cells could write it. None: there
                is none.

        Raises:
            PolicyError: a file or value that cannot be used, or one that would loosen the administrator's.
        """
        layers = Layers(KEYS, launcher_env, workspace)
        administrators, users = policy_files(launcher_env, str(etc))
        if administrators:
            layers.add_administrator(administrators)
        if users:
            layers.add_file(users)
        source = launcher_env.get(POLICY_VARIABLE, "")
        if source and not is_path(source):
            layers.add_preset(source, POLICY_VARIABLE)
        elif source and not Path(source).is_absolute():
            raise PolicyError(POLICY_VARIABLE, f"{source!r} is not an absolute path, and the folder in which a kernel "
                              "starts is not searched for policies")  # fmt: skip
        elif source:
            layers.add_file(source)
        for override in overrides if isinstance(overrides, (list, tuple)) else (overrides,):
            if isinstance(override, Policy):
                asked = {k: v for k, v in override.values().items() if v != KEYS[k].default}
                layers.add_values(asked, "argument")
            elif isinstance(override, Mapping):
                layers.add_tables(override, "argument")
            elif override and is_path(override):
                layers.add_tables(read_toml(str(override)), str(override))
            elif override:
                layers.add_preset(str(override), "policy")
        return Resolved(_built(layers.values), layers.origins)

    def values(self) -> dict[str, Any]:
        """``{"limits.memory": 4294967296, ...}``, in the order of the tables."""
        return {name: getattr(getattr(self, name.partition(".")[0]), key.field) for name, key in KEYS.items()}


Override = Policy | Mapping[str, Any] | str | Path | None


@dataclass(frozen=True)
class Resolved:
    """A policy and where each of its values came from.

    Attributes:
        policy: what holds.
        origins: for each key such as "limits.memory" the file, preset or "built-in default" that decided.
    """

    policy: Policy = field(default_factory=Policy)
    origins: Mapping[str, str] = field(default_factory=lambda: dict.fromkeys(KEYS, BUILT_IN))

    def to_json(self) -> str:
        """One line that `from_json` takes; holds what differs from the defaults."""
        values = {k: KEYS[k].write(v) for k, v in self.policy.values().items() if v != KEYS[k].default}
        return json.dumps({"values": values, "origins": {k: v for k, v in self.origins.items() if v != BUILT_IN}},
                          ensure_ascii=False)  # fmt: skip

    @classmethod
    def from_json(cls, text: str) -> Resolved:
        """The inverse of `to_json`; "" stands for the defaults, ``{"preset": NAME}`` for a preset alone.

        Raises:
            PolicyError: the text is `refusal_to_json`'s, or there is no such preset.
        """
        said = json.loads(text or '{"values": {}, "origins": {}}')
        if "preset" in said:
            layers = Layers(KEYS)
            layers.add_preset(said["preset"], POLICY_VARIABLE)
            return cls(_built(layers.values), layers.origins)
        if "refusal" in said:
            error = PolicyError("", "")
            error.message, error.args, error.data = said["refusal"], (said["refusal"],), said["data"]
            raise error
        values = {k: KEYS[k].parse(v, "policy") for k, v in said["values"].items()}
        return cls(_built(values), {**dict.fromkeys(KEYS, BUILT_IN), **said["origins"]})

    def rows(self) -> list[tuple[str, str, str]]:
        """(key, value with its unit, origin) for every key."""
        return [(k, KEYS[k].show(v), self.origins[k]) for k, v in self.policy.values().items()]


def refusal_to_json(error: PolicyError) -> str:
    """An error in the place of a policy, for `Resolved.from_json` to raise again."""
    return json.dumps({"refusal": error.message, "data": error.data}, ensure_ascii=False)


def _keys() -> dict[str, Key]:
    found = {}
    for table in msgspec.structs.fields(Policy):
        for name, annotation in get_type_hints(type(table.default), include_extras=True).items():
            key = Key.of(table.name, name, annotation, getattr(table.default, name))
            found[key.name] = key
    return found


KEYS: dict[str, Key] = _keys()


def _built(values: Mapping[str, Any]) -> Policy:
    refused = values.get("environment.deny", ())
    values = {**values, "environment.set": without(values.get("environment.set", {}), refused)}
    tables: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        tables.setdefault(name.partition(".")[0], {})[KEYS[name].field] = value
    return msgspec.convert(tables, Policy)
