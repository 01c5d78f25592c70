"""From a policy to plans: everything about a sandbox is decided here, before anything is applied.

`make_plans` reads the host (who runs it, which folders exist, who owns the workspace) and returns the plans
to try in order.
"""

from __future__ import annotations

import functools
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from .. import linux
from ..errors import IsolationUnavailable
from ..seccomp import program
from ..seccomp.table import notes as filter_notes
from . import limits
from .model import LAYERS, ORDER, Access, Bind, Grant, Identity, Plan, Tmpfs
from .paths import (  # fmt: skip
    DEVICES,
    ETC,
    HOMES,
    LOCAL_READ,
    PROC_SELF_READ,
    PROCESSORS,
    SECRET_NAMES,
    SYSTEM,
    USER,
    Python,
    above,
    etc_files,
    existing,
    home_of,
    import_trap,
    inside,
    interpreter,
    links_along,
    reachable,
    visible_workspace,
)
from .workspace import PLACES, Hidden, Patterns, grant_around, secrets_below, strange_folders, veiled_paths

if TYPE_CHECKING:  # the process that is confined may have no msgspec
    from ..policy import Policy

# Worker of a root front: an id that owns nothing on an ordinary host. Not 65534, which inside a user
# namespace stands for every id without a map: all of the system's files would seem to be the worker's.
NOBODY = 65533


def make_plans(
    policy: Policy,
    workspace: str | os.PathLike[str] | None,
    *,
    launcher_env: Mapping[str, str],
    hidden: Iterable[str] = (),
    python: Python | None = None,
) -> list[Plan]:
    """The plans to try, best first, for this process's user on this host.

    Args:
        policy: what is allowed.
        workspace: the notebook's folder; None: cells start in a private one.
        launcher_env: the variables that may reach the cells; those of the policy and HOME, USER, LOGNAME,
            SHELL and TMPDIR of the sandbox are added.
        hidden: further paths that must not be visible (Jupyter's runtime folder). The workspace itself may be
            among them (it is the home or the runtime folder): then `SECRET_NAMES` in it are hidden.
        python: the interpreter that runs the cells; None: this one.

    Raises:
        IsolationUnavailable: the level is not one with a process of its own.
        OSError: the workspace does not exist.
    """
    level = policy.isolation.level
    if level == "in-process":
        raise IsolationUnavailable(level, "process", "this level has no process of its own")
    names = levels_of(level, policy.isolation.require)
    asked = "" if workspace is None else os.path.abspath(workspace)
    asked = asked if policy.files.workspace != "none" else ""
    real = asked and os.path.realpath(asked, strict=True)
    python, layered = python or Python.this(), bool(real) and policy.files.workspace == "overlay"
    # Plans differ in how they hide, not in what: the search is made once.
    search = functools.cache(functools.partial(secrets_below, patterns=Patterns(policy.files.hide)))
    return [
        _assemble(name, who, policy, asked, launcher_env, hidden, python, mirrored, search)
        for name in names
        for who in _identities("namespaces" in LAYERS[name], real, python)
        # An overlay may be refused: by an old kernel, or because the folder is on too many of them already.
        for mirrored in ((False, True) if layered and "namespaces" in LAYERS[name] else (layered,))
    ]


def levels_of(level: str, require: str) -> tuple[str, ...]:
    """The levels that may be taken, best first: a named one alone, for "auto" every one that has what
    ``require`` has."""
    if level != "auto":
        return (level,)
    return tuple(name for name in ORDER if LAYERS[name] >= LAYERS[require])


def in_force(plans: Iterable[Plan], level: str, details: Mapping[str, Any]) -> Plan | None:
    """The plan for which the zygote reported "ready", with these details."""
    said = level, details.get("uid_strategy"), bool(details.get("layered"))
    return next((p for p in plans if (p.level, p.identity.strategy, p.layered) == said), None)


def _identities(namespaces: bool, workspace: str, python: Python) -> Iterator[Identity]:
    """Who the worker may be, best first. Uid 0 is bound by no process limit, hence only the last resort."""
    uid = os.geteuid()
    if uid != 0:
        yield Identity("self", uid, os.getegid())
        return
    owner, owner_group = _owner(workspace) if workspace else (0 if namespaces else NOBODY, NOBODY)
    # Group 0 would come with the rights of root's group; the owner's own bits are enough.
    group = owner_group or NOBODY
    # Without mounts the owner must be able to go to the interpreter as it lies: not below root's private
    # home.
    needed = [os.path.realpath(p) for p in (*python.prefixes, python.executable, *python.libraries, workspace or "/")]
    if owner != 0 and (namespaces or all(reachable(p, owner, group) for p in needed)):
        yield Identity("owner", owner, group)
    elif namespaces:
        yield Identity("mapped", NOBODY, NOBODY)
    if owner == 0 or not namespaces:
        yield Identity("root", 0, 0)


def _owner(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_uid, found.st_gid


def _assemble(
    level: str, who: Identity, policy: Policy, asked: str, launcher_env: Mapping[str, str], hidden: Iterable[str],
    python: Python, mirrored: bool, search: Callable[..., Hidden],
) -> Plan:  # fmt: skip
    layers, notes = LAYERS[level], list[str]()
    namespaces = "namespaces" in layers
    home = home_of(launcher_env)
    hide = {os.path.realpath(h) for h in hidden if os.path.exists(h)}
    links, real = links_along(asked) if asked else ([], "")
    workspace = visible_workspace(real, hide, notes) if real else ""
    mirrored = mirrored and bool(workspace)
    layered = policy.files.workspace == "overlay" and bool(workspace) and not mirrored
    writable = layered or (policy.files.workspace == "read-write" and bool(workspace))

    # What is shown: real paths, and the links by which they are named.
    system, code = existing(SYSTEM, links), existing(interpreter(notes, home, python), links)
    data = existing(policy.files.read, links)
    for path in [d for d in data if any(inside(place, d) for place in ("/tmp", "/etc", "/proc", "/dev"))]:  # noqa: S108
        data.remove(path)
        notes.append(f"{path} holds folders that are private to the sandbox, so it is not shown.")
    etc = existing((f"/etc/{name}" for name in ETC), links)
    etc = [e for e in etc if not any(inside(e, folder) for folder in system)]
    processors = [p for p in PROCESSORS if os.path.exists(p)]
    if workspace in code:
        writable, layered, mirrored = False, False, layered or mirrored
        notes.append("The workspace is on the kernel's own import path, so it is read-only.")
    elif writable and not layered and (trap := import_trap(workspace, links, code, python)):
        writable = False
        notes.append(f"{trap} is on the kernel's own import path and could be put there by a cell, so the workspace "
                     "is read-only.")
    if workspace and (real in hide or inside(home, workspace)):
        for folder in {real} & hide | ({home} if inside(home, workspace) else set()):
            with os.scandir(folder) as entries:
                hide |= {os.path.realpath(e.path) for e in entries if e.name.startswith(SECRET_NAMES)}
        notes.append(
            "The workspace is or contains the home or Jupyter's runtime folder: existing names in it "
            "that start with a dot, and Jupyter's own files, are hidden" + (
                "." if layered or not writable else "; new ones can be made.")
        )
    secret = Hidden()
    if workspace and (namespaces or not writable):
        secret = search(workspace, skip=(*code, *data))
        hide |= secret.paths
        notes += filter(None, [secret.note(workspace)])
    if secret.too_many:
        hide.add(workspace)  # a folder of files.read may hold it
        code, data = [c for c in code if c != workspace], [d for d in data if d != workspace]
        workspace, writable, layered, mirrored = "", False, False, False
    shown = [p for p in (workspace, *data) if p]
    hide = {h for h in hide if h not in code and any(inside(h, s) and h != s for s in shown)}
    protected = {c for c in code if workspace and c != workspace and inside(c, workspace)}
    later = Patterns(policy.files.hide).later()
    veiled = veiled_paths(workspace, hide, secret.links, later, (*code, *data)) if layered else set()
    begun = strange_folders(workspace, who.gid, {*hide, *code}) if layered and who.strategy == "self" else []

    binds = {p: Bind(p) for p in (*etc, *processors)} | {p: Bind(p, mapped=_mapped(p, who)) for p in data}
    if workspace:
        binds[workspace] = Bind(
            workspace, writable, mapped=_mapped(workspace, who, must=writable and not layered),
            layer=(policy.limits.disk or policy.limits.memory) if layered else 0,
        )  # fmt: skip
        if writable and not layered:  # (in a private layer nothing that is moved or removed reaches the disk)
            binds |= {p: Bind(p, True, mapped=binds[workspace].mapped, pin=True)
                      for p in above(workspace, hide | protected) if p not in binds}
    for path in code:
        binds[path] = Bind(path, workspace == path and writable, True, mapped=_mapped(path, who))
    binds |= {p: Bind(p, execute=True) for p in system}

    inner_home = next(
        h for h in HOMES if not workspace or (not inside(h, workspace) and not inside(workspace, h))
    )
    tmp, scratch = ("/var/tmp" if workspace == "/tmp" else "/tmp"), ""  # noqa: S108
    private = [Tmpfs(tmp, policy.limits.tmp), Tmpfs(inner_home, policy.limits.home, 0o700)]
    private += [Tmpfs("/dev/shm", policy.limits.shm)]  # noqa: S108
    if not namespaces:
        parent = launcher_env.get("TMPDIR", "")
        if not os.path.isdir(parent) or not os.access(parent, os.W_OK | os.X_OK):
            parent = "/tmp"  # noqa: S108
        scratch = os.path.join(os.path.realpath(parent), f"sandbox-{secrets.token_hex(8)}")
        tmp, inner_home, private = os.path.join(scratch, "tmp"), os.path.join(scratch, "home"), []
        notes += _losses(level, who)
        if real and who.strategy == "root" and os.stat(real).st_uid != 0 and not os.stat(real).st_mode & 0o002:
            notes.append("The workspace belongs to another user and cannot be written.")
    place = ""
    if mirrored or policy.files.workspace == "none":
        place = os.path.join(scratch, "notebook")
        if namespaces:
            place = next(p for p in PLACES if not workspace or not inside(workspace, p))
            private.append(Tmpfs(place, policy.limits.disk or policy.limits.memory, 0o700))
    if mirrored:
        notes.append("There is no private layer over the notebook's folder here: cells start in a private folder, in "
                     "which its files appear as links; what is there already cannot be changed in place.")
    environment = {**launcher_env, **policy.environment.set}
    environment |= {"HOME": inner_home, "USER": USER, "LOGNAME": USER, "SHELL": "/bin/sh", "TMPDIR": tmp}
    if "PATH" not in policy.environment.set:
        environment["PATH"] = _search_path(environment.get("PATH", ""), python)

    access: Access = "read-write" if writable else "read"
    # Where there are mounts, they hide and protect; rules that go around would only take new names away.
    grants = grant_around(access, workspace, () if namespaces else hide | protected) if workspace else []
    if len(grants) > 1 and writable:
        notes.append(
            "No new names can be made at the top of the workspace, because it holds protected paths."
        )
    grants += [Grant("read-exec", p) for p in (*system, *code)]
    grants += [grant for p in data for grant in grant_around("read", p, () if namespaces else hide)]
    grants += [Grant("device", f"/dev/{name}") for name in DEVICES]
    if namespaces:
        grants += [Grant("list", "/"), *(Grant("read", p) for p in ("/etc", "/proc", *processors))]
        grants += [Grant("read-write", t.path) for t in private]
    else:
        grants += [Grant("read-write", path) for path in (tmp, inner_home, place) if path]
        grants += [Grant("read", p) for p in (*etc, *existing(LOCAL_READ, []))]
        # The link stays as it is: it means another folder in each worker.
        grants += [Grant("list", "/proc/self"), *(Grant("read", f"/proc/self/{n}") for n in PROC_SELF_READ)]
    abi = linux.landlock_abi()
    notes += filter_notes(level, abi) if "seccomp" in layers else []
    return Plan(
        level=level, layers=layers, identity=who, workspace=workspace, workspace_writable=writable,
        cwd=place or workspace or (inner_home if asked else tmp), mirror=place if mirrored else "", layered=layered,
        binds=_outermost(binds.values()) if namespaces else (),
        links=tuple(dict.fromkeys(links)) if namespaces else (), tmpfs=tuple(private),
        files=tuple(etc_files(who.uid, who.gid, inner_home)) if namespaces else (),
        protected=tuple(sorted(protected)), hidden=tuple(sorted(hide - veiled)), veiled=tuple(sorted(veiled)),
        begun=tuple(begun),
        grants=tuple(dict.fromkeys(grants)),
        scratch=scratch, environment=environment, rlimits=limits.planned(policy.limits, [t.size for t in private]),
        processes=policy.limits.processes, landlock_abi=abi,
        bpf=_compiled(level, abi) if "seccomp" in layers else b"", notes=tuple(notes),
    )  # fmt: skip


def _search_path(given: str, python: Python) -> str:
    """Last of all, the interpreter's own folder: the "python" of the launcher's path may be one that is not shown."""
    folders = (given or "/usr/local/bin:/usr/bin:/bin").split(":")
    own = os.path.dirname(python.executable)
    return ":".join(folders if not own or own in folders else [*folders, own])


@functools.cache
def _compiled(level: str, abi: int) -> bytes:
    return program.compile_filter(level=level, landlock_abi=abi, told=True)


def _mapped(path: str, who: Identity, must: bool = False) -> Literal["", "try", "must"]:
    """Whether ``path`` needs its owner's id shown as the worker's."""
    found = os.stat(path)
    if who.strategy not in ("owner", "mapped") or found.st_uid == who.uid:
        return ""
    needed = 0o5 if os.path.isdir(path) else 0o4
    return "must" if must or found.st_mode & needed != needed else "try"


def _outermost(binds: Iterable[Bind]) -> tuple[Bind, ...]:
    """The binds, parents first, without those that an enclosing one already shows in the same way."""
    kept: list[Bind] = []
    for bind in sorted(binds, key=lambda b: (b.path.count("/"), b.path)):
        around = [k for k in kept if inside(bind.path, k.path)]
        if around and (around[-1].writable, around[-1].execute, around[-1].mapped) == (
            bind.writable, bind.execute, bind.mapped
        ) and not bind.pin:  # fmt: skip
            continue
        kept.append(bind)
    return tuple(kept)


def _losses(level: str, who: Identity) -> Iterator[str]:
    """What a level without namespaces cannot give."""
    yield "There are no namespaces: process numbers in use can be found out, and leftovers are hunted."
    if "landlock" in LAYERS[level]:
        yield "POSIX shared memory (/dev/shm) is refused, because it cannot be made private without a mount."
    else:
        yield "Files that the user can read or write are open to the cells, whatever [files] says."
    if "seccomp" not in LAYERS[level]:
        yield "System calls are not filtered: UDP and local sockets are open."
    yield "The private folder for temporary files has no size limit of its own."
    if who.uid == 0:
        yield "The worker keeps uid 0 (without capabilities), which no process limit binds."
    else:
        yield "The process limit counts all processes of this user."
