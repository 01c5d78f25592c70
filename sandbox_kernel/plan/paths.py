"""Paths of the host: which there are, how they are named, and which of them belong to what."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Iterable, Iterator, Mapping

from ..frozen import Frozen

USER = "sandbox"  # the name that workers have
HOMES = ("/home/sandbox", "/var/sandbox")  # the second where the workspace is or contains the first
# Folders of the system, shown read-only at every level. The store folders are those of Nix and Guix, whose
# interpreters need libraries from sibling folders.
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
ETC = (
    "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "timezone", "mime.types", "ssl/certs", "fonts",
    "alternatives", "locale.alias", "matplotlibrc",
)  # fmt: skip
DEVICES = ("null", "zero", "full", "random", "urandom")
# A workspace that is one of these, or contains one, would show or open the machine itself.
MACHINE = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/etc",
    "/proc",
    "/sys",
    "/dev",
    "/boot",
    "/run",
    "/var/lib",
)
# Places of private folders in the sandbox.
PRIVATE = ("/tmp", "/var/tmp", *HOMES)  # noqa: S108
# Kernel interfaces that tell about the machine (addresses, keys, boot arguments) or act on it.
PROC_MASKED = (
    "kallsyms", "kcore", "keys", "key-users", "cmdline", "config.gz", "timer_list",
    "sched_debug", "latency_stats", "sysrq-trigger", "kmsg", "modules", "interrupts", "acpi", "scsi",
    "driver", "fs", "irq", "bus",
)  # fmt: skip
PROC_FROZEN = ("/proc/sys", "/proc/sysvipc")  # read-only
# What of /proc numeric libraries and psutil need where there is no private /proc.
PROC_READ = (
    "cpuinfo", "meminfo", "stat", "uptime", "loadavg", "version", "filesystems", "sys/kernel/osrelease",
    "sys/kernel/ostype", "sys/kernel/version", "sys/kernel/pid_max", "sys/vm/overcommit_memory",
)  # fmt: skip
# What a process may read of its own entry there. Not "net" (the machine's connections and ports), and not what is
# below "task", where the same is to be had again.
PROC_SELF_READ = (
    "cgroup", "cmdline", "comm", "fd", "fdinfo", "limits", "maps", "mountinfo", "mounts", "oom_score", "schedstat",
    "smaps", "smaps_rollup", "stat", "statm", "status",
)  # fmt: skip

# How many processors there are, which share a core, and how much of them this container may use.
PROCESSORS = ("/sys/devices/system/cpu", "/sys/fs/cgroup/cpu.max")
LOCAL_READ = (
    "/etc/passwd", "/etc/group", "/etc/hosts", "/etc/nsswitch.conf", "/sys/fs/cgroup",
    PROCESSORS[0],
    *(f"/proc/{name}" for name in PROC_READ),
)  # fmt: skip

# In a home or in Jupyter's runtime folder: settings, keys, connection files.
SECRET_NAMES = (
    ".", "kernel-", "nbserver-", "jpserver-", "jupyter_cookie_secret", "notebook_cookie_secret",
    "notebook_secret",
)  # fmt: skip


def inside(path: str, folder: str) -> bool:
    """Whether ``path`` is ``folder`` or lies below it (both absolute and normal)."""
    return folder == "/" or path == folder or path.startswith(folder + "/")


def home_of(launcher_env: Mapping[str, str]) -> str:
    """Real path of the home folder of whoever runs this."""
    try:
        return os.path.realpath(launcher_env.get("HOME") or pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:  # a uid without an account, as containers have
        return "/nonexistent"


def links_along(path: str) -> tuple[list[tuple[str, str]], str]:
    """The symbolic links met on the way to ``path``, each with its text, and the real path they lead to."""
    links: list[tuple[str, str]] = []
    parts, done = [p for p in path.split("/") if p], ""
    while parts:
        step = f"{done}/{parts.pop(0)}"
        if len(links) < 40 and os.path.islink(step):
            text = os.readlink(step)
            links.append((step, text))
            whole = os.path.normpath(os.path.join(done or "/", text, *parts))
            parts, done = [p for p in whole.split("/") if p], ""
        else:
            done = step
    return links, done or "/"


def existing(paths: Iterable[str], links: list[tuple[str, str]]) -> list[str]:
    """Real paths of those that exist, once each; the links on the way are added to ``links``."""
    found: dict[str, None] = {}
    for path in paths:
        met, real = links_along(os.path.abspath(path))
        if os.path.exists(real):
            links += met
            found[real] = None
    return list(found)


class Python(Frozen):
    """An interpreter, as it sees itself (the names are those of `sys`).

    Attributes:
        libraries: folders of the shared libraries that it has loaded. They need not lie below a prefix: one that was
            built to find its own elsewhere (by RPATH, as Spack's, or one that was moved) cannot be started without.
    """

    executable: str
    prefixes: tuple[str, ...]
    path: tuple[str, ...]
    libraries: tuple[str, ...] = ()

    @classmethod
    def this(cls) -> Python:
        """The one that runs this."""
        prefixes = (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)
        return cls(sys.executable, prefixes, tuple(sys.path), libraries("self"))


def libraries(pid: int | str) -> tuple[str, ...]:
    """Folders named "lib..." from which a process has loaded shared libraries (proc_pid_maps(5)).

    (Not those of other names: a library in a folder of somebody's work is no reason to show all that lies there.)
    """
    folders = set()
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            folder, _, name = line.rstrip("\n").partition("/")[2].rpartition("/")
            if ".so" in name and os.path.basename(folder).startswith("lib"):
                folders.add(f"/{folder}")
    return tuple(sorted(folders))


def interpreter(notes: list[str], home: str, python: Python) -> list[str]:
    """Everything that running this interpreter with its packages needs, and this package."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    paths = [python.executable, package]
    for prefix in dict.fromkeys(python.prefixes):
        real = os.path.realpath(prefix)
        if any(inside(place, real) for place in (home, *PRIVATE, "/etc", "/proc")):
            # An interpreter installed right into / or a home: showing all of that would be no sandbox.
            paths += [os.path.join(prefix, name) for name in ("bin", "lib", "lib64")]
        else:
            paths.append(prefix)
    for entry in (*python.path, *python.libraries):
        if not os.path.isabs(entry) or not os.path.exists(entry):
            continue
        real = os.path.realpath(entry)
        if any(inside(place, real) for place in (home, *PRIVATE, *MACHINE)):
            kind = "on the import path" if entry in python.path else "a folder of loaded libraries"
            notes.append(f"{entry} is {kind} but holds private folders, so it is not shown.")
        else:
            paths.append(entry)
    return paths


def import_trap(workspace: str, links: Iterable[tuple[str, str]], code: Iterable[str], python: Python) -> str:
    """What of the import path a cell could replace by a folder of its own, else "".

    That is an entry which does not exist yet, or a link on the way to one, in the workspace and not in a part of
    it that is read-only anyway. The next kernel would import it outside of any sandbox.
    """
    code = tuple(code)
    entries: list[str] = [*sys.path, *python.path, *filter(None, [sys.pycache_prefix])]
    for entry in entries:
        if os.path.isabs(entry):
            while not os.path.lexists(entry):
                entry = os.path.dirname(entry)
            met, real = links_along(entry)
            missing = real != "/" and not any(inside(real, c) for c in code)
            if missing and inside(real, workspace):
                return entry
            links = (*links, *met)
    for path, _ in links:
        if inside(path, workspace) and path != workspace and not any(inside(path, c) for c in code):
            return path
    return ""


def above(workspace: str, places: Iterable[str]) -> list[str]:
    """The folders between the workspace and ``places`` in it, both ends left out."""
    found = set()
    for place in places:
        parent = os.path.dirname(place)
        while inside(parent, workspace) and parent != workspace:
            found.add(parent)
            parent = os.path.dirname(parent)
    return sorted(found)


def visible_workspace(real: str, hidden: set[str], notes: list[str]) -> str:
    """The workspace if it may be shown, else ""."""
    machine = any(inside(m, real) for m in MACHINE)
    virtual = any(inside(real, m) for m in ("/proc", "/sys", "/dev"))
    virtual = virtual and not real.startswith("/dev/shm/")  # noqa: S108
    if machine or virtual or any(inside(real, h) and real != h for h in hidden):
        notes.append(
            f"The folder {real} holds the machine's or Jupyter's own files, so it is not shown; cells start "
            "in an empty private folder."
        )
        return ""
    return real


def reachable(path: str, uid: int, gid: int) -> bool:
    """Whether file modes let these ids enter every folder on the way to ``path``, and run or enter it."""
    while True:
        found = os.stat(path)
        shift = 6 if found.st_uid == uid else 3 if found.st_gid == gid else 0
        if not found.st_mode >> shift & 1:
            return False
        if path == "/":
            return True
        path = os.path.dirname(path)


def etc_files(uid: int, gid: int, home: str) -> Iterator[tuple[str, str]]:
    """What name look-ups need, without the host's users, groups and names: path and text."""
    user = f"{USER}:x:{uid}:{gid}:sandbox:{home}:/bin/sh\n"
    root = "root:x:0:0:root:/root:/usr/sbin/nologin\n"
    yield "/etc/passwd", user if uid == 0 else root + user
    yield "/etc/group", f"{USER}:x:{gid}:\n" + ("" if gid == 0 else "root:x:0:\n")
    yield "/etc/hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n"
    yield "/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"
    yield "/etc/hostname", "sandbox\n"
