"""The plan of one sandbox: plain data, complete and printable before anything is applied.

Nothing beyond it decides anything: mounts, limits and rules are carried out by `confine` as written here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from ..frozen import Frozen


class Bind(Frozen):
    """A file or folder of the host at its own path; always nosuid and nodev.

    ``mapped``: shown with its owner's id replaced by the worker's ("try": plain where that is refused;
    "must": the plan fails).
    """

    path: str
    writable: bool = False
    execute: bool = False
    mapped: Literal["", "try", "must"] = ""
    pin: bool = False  # shown as it is; a folder with a mount on it can be neither moved nor removed
    layer: int = 0  # bytes of a private layer that takes all writing, for overlayfs; 0: none


class Tmpfs(Frozen):
    """A private writable folder of at most ``size`` bytes."""

    path: str
    size: int
    mode: int = 0o1777


Access = Literal["list", "read", "read-exec", "read-write", "device"]  # the names of `landlock.RIGHTS`


class Grant(Frozen):
    """A Landlock rule: what may be done on and below ``path`` ("list": names in it and below, no content)."""

    access: Access
    path: str


Layers = frozenset[str]
LAYERS: dict[str, Layers] = {
    "full": frozenset({"namespaces", "landlock", "seccomp"}),
    "seccomp+landlock": frozenset({"landlock", "seccomp"}),
    "seccomp": frozenset({"seccomp"}),
    "landlock": frozenset({"landlock"}),
    "subprocess": frozenset(),
}
# In which "auto" tries them. Of the single layers Landlock comes first: what a cell can write in a home folder is
# executed at the next login, and no system call is needed to get out then.
ORDER = ("full", "seccomp+landlock", "landlock", "seccomp", "subprocess")
Strategy = Literal["self", "owner", "mapped", "root"]
STRATEGIES: dict[str, str] = {
    "self": "the uid that started the kernel",
    "owner": "the uid that owns the workspace",
    "mapped": "an unprivileged uid; root's files are shown as its own by id-mapped mounts",
    "root": "uid 0 without any capability",
}


class Identity(Frozen):
    """Who the worker is: host ids and how it gets at files of the front's user (`STRATEGIES`)."""

    strategy: Strategy
    uid: int
    gid: int


class Plan(Frozen):
    """Everything about one sandbox. Sizes in bytes.

    Attributes:
        level: the policy's word for it; ``layers`` are what it consists of.
        workspace: real path of the notebook's folder; "" when it is not shown (``notes`` say why).
        protected: paths inside the workspace that stay read-only; ``hidden``: those that are not visible at
            all; ``veiled``: those that the private layer hides, which may not exist yet; ``begun``: folders
            with which it begins.
        mirror: the private folder in which the workspace's files appear as links; "" where there is none.
        layered: there is a private layer over the workspace.
        scratch: at levels without namespaces, the private folder that the launcher makes and the zygote
            removes.
        rlimits: (number, value), soft and hard alike. ``processes`` is apart because it must be set last.
        notes: what this plan cannot give, one plain sentence each.
    """

    level: str
    layers: Layers
    identity: Identity
    workspace: str
    workspace_writable: bool
    cwd: str
    binds: tuple[Bind, ...]
    links: tuple[tuple[str, str], ...]
    tmpfs: tuple[Tmpfs, ...]
    files: tuple[tuple[str, str], ...]
    protected: tuple[str, ...]
    hidden: tuple[str, ...]
    veiled: tuple[str, ...]
    begun: tuple[str, ...]
    mirror: str
    layered: bool
    grants: tuple[Grant, ...]
    scratch: str
    environment: Mapping[str, str]
    rlimits: tuple[tuple[int, int], ...]
    processes: int
    landlock_abi: int
    bpf: bytes
    notes: tuple[str, ...]

    def describe(self) -> str:
        """The whole plan as text, a line for each thing that will be done."""
        who = self.identity
        lines = [
            f"level {self.level}: {', '.join(sorted(self.layers)) or 'no layer'}",
            f"uid {who.uid} gid {who.gid}: {STRATEGIES[who.strategy]}",
            f"workspace {self.workspace or '(not shown)'} {'rw' if self.workspace_writable else 'ro'}",
            f"start in {self.cwd}",
        ]
        for bind in self.binds:
            words = ["rw" if bind.writable else "ro", "exec" * bind.execute, "mapped" * bool(bind.mapped),
                     "layered" * bool(bind.layer)]  # fmt: skip
            lines.append(f"show {bind.path} {' '.join(filter(None, words))}")
        lines += [f"link {path} -> {target}" for path, target in self.links]
        lines += [f"private {t.path} {t.size} bytes mode {t.mode:o}" for t in self.tmpfs]
        lines += [f"file {path} ({len(text)} bytes)" for path, text in self.files]
        lines += [f"protect {path}" for path in self.protected] + [f"hide {path}" for path in self.hidden]
        lines += [f"veil {path}" for path in self.veiled] + [f"begin {path}" for path in self.begun]
        lines += [f"mirror {self.mirror}"] if self.mirror else []
        lines += [f"scratch {self.scratch}"] if self.scratch else []
        lines += [f"landlock {g.access} {g.path}" for g in self.grants]
        lines += [f"landlock abi {self.landlock_abi}", f"seccomp {len(self.bpf) // 8} instructions"]
        lines += [f"rlimit {number} = {value}" for number, value in self.rlimits]
        lines += [f"processes {self.processes}"]
        lines += [f"env {name}={value}" for name, value in sorted(self.environment.items())]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])
