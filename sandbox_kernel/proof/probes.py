"""Proofs of the wall: forbidden acts that are tried, and what the kernel answered.

A layer that was asked for is not yet a layer that holds, so the sandbox refuses to run cells until every
proof is good. `run_probes` runs in a forked child of the confined process; `outside_proofs` runs in the front
and believes nothing that the sandbox says. Every act is harmless if it succeeds: it asks for nothing, reads
what may be read anyway, or ends with the child. Nothing is imported on the way: a confined process may find
no modules.
"""

from __future__ import annotations

import errno
import os
import re
import resource
import socket
from collections.abc import Callable, Mapping
from types import MappingProxyType

from .. import linux
from ..frozen import Frozen

Proof = dict[str, object]  # layer: str, tried: str, saw: str, ok: bool

NAMESPACES = ("user", "pid", "net", "mnt", "ipc", "uts", "cgroup")
LAYER_OF_NAMESPACE = {
    "user": "user namespace", "pid": "pid namespace", "net": "network namespace", "mnt": "mount namespace",
    "ipc": "ipc namespace", "uts": "uts namespace", "cgroup": "cgroup namespace",
}  # fmt: skip
CAPABILITY_SETS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")

# Raw calls that the filter refuses although the kernel would take them or answer something else. By machine,
# because these have no libc wrapper everywhere; the rest of the numbers are shared from 424 on.
_NUMBERS = {
    "x86_64": {"unshare": 272, "ptrace": 101, "memfd_create": 319, "seccomp": 317, "keyctl": 250,
               "personality": 135, "ioctl": 16},
    "aarch64": {"unshare": 97, "ptrace": 117, "memfd_create": 279, "seccomp": 277, "keyctl": 219,
                "personality": 92, "ioctl": 29},
}  # fmt: skip
_SHARED_NUMBERS = {"io_uring_setup": 425, "clone3": 435, "landlock_create_ruleset": 444}


class Expected(Frozen):
    """What the launcher knows about the sandbox that it made.

    Attributes:
        namespaces: `namespace_ids` of the front.
        environment: the variables that the worker has, exactly.
        rlimits: soft and hard value by resource number.
        fds: open descriptors, exactly.
        canary: an existing file that file modes would let this uid read and that no Landlock rule grants; "" when
            Landlock is not part of the sandbox.
        front_pid: the front's process, as the host numbers it.
        landlock_abi: ABI of the enforced rules, 0 for none.
        mounts: options that each mount point must have, exactly these points; empty: not checked.
        dumpable: False when /proc/self must be closed to other processes of this uid.
        root_group: the front runs as an ordinary user who is in root's group, as some container platforms arrange it.
            Such a user cannot leave it (setgroups(2) needs a capability), and the worker gains nothing by it.
    """

    namespaces: Mapping[str, str] = MappingProxyType({})
    environment: Mapping[str, str] = MappingProxyType({})
    rlimits: Mapping[int, tuple[int, int]] = MappingProxyType({})
    fds: frozenset[int] = frozenset({0, 1, 2})
    canary: str = ""
    front_pid: int = 0
    landlock_abi: int = 0
    mounts: Mapping[str, frozenset[str]] = MappingProxyType({})
    dumpable: bool = False
    root_group: bool = False


def in_root_group() -> bool:
    """Whether this process, of an ordinary user, has the rights of root's group."""
    return os.geteuid() != 0 and 0 in {os.getgid(), os.getegid(), *os.getgroups()}


def namespace_ids(pid: int | str = "self") -> dict[str, str]:
    """The readable namespaces of a process by short name, such as ``{"net": "net:[4026531840]"}``."""
    found = {}
    for name in NAMESPACES:
        try:
            found[name] = os.readlink(f"/proc/{pid}/ns/{name}")
        except OSError:
            continue
    return found


def run_probes(level: str, expected: Expected) -> list[Proof]:
    """Try what the level forbids. For a forked child of the confined process; a few milliseconds.

    Args:
        level: a name of the policy's levels; decides which layers must be there.
    """
    proofs = [*_privilege_proofs(level, expected), *_limit_proofs(expected), *_descriptor_proofs(expected)]
    proofs.append(_environment_proof(expected))
    if level in ("full", "seccomp+landlock", "seccomp"):
        proofs += _seccomp_proofs(level)
    if level == "full":
        proofs += _namespace_proofs(expected)
    if level in ("seccomp+landlock", "landlock") or expected.landlock_abi:
        proofs += _landlock_proofs(level, expected)
    return proofs


def outside_proofs(pid: int, level: str, *, uid: int | None = None) -> list[Proof]:
    """What the front reads about a confined process from outside, without asking it.

    Args:
        pid: the process as the front numbers it.
        level: as for `run_probes`.
        uid: host uid that it must have; None: not checked.
    """
    try:
        status = read_status(pid)
    except OSError as error:
        return [_proof("no_new_privs", f"read /proc/{pid}/status", _say(error), False)]
    proofs = [
        _proof("no_new_privs", "NoNewPrivs seen from outside", status["NoNewPrivs"], status["NoNewPrivs"] == "1"),
        _capability_proof(status, "capability sets seen from outside", level),
    ]
    if level in ("full", "seccomp+landlock", "seccomp"):
        # Seccomp_filters is there since Linux 5.9; mode 2 is a filter in any case.
        seen = f"mode {status['Seccomp']}, filters {status.get('Seccomp_filters', '?')}"
        good = status["Seccomp"] == "2" and status.get("Seccomp_filters") != "0"
        proofs.append(_proof("seccomp", "filter seen from outside", seen, good))
    if uid is not None:
        uids = set(status["Uid"].split())
        proofs.append(
            _proof("capabilities", "uid seen from outside", " ".join(sorted(uids)), uids == {str(uid)})
        )
    if level == "full":
        columns = status.get("NSpid", "").split()
        depth = f"{len(columns)} pid numbers"
        proofs.append(_proof("pid namespace", "NSpid seen from outside", depth, len(columns) > 1))
        # The links can be read only with rights over a non-dumpable process, so by a root front.
        own, theirs = namespace_ids(), namespace_ids(pid)
        for name in NAMESPACES:
            if name in theirs:
                proofs.append(_differs(name, own.get(name, ""), theirs[name], "seen from outside"))
    return proofs


def read_status(pid: int | str = "self") -> dict[str, str]:
    """``/proc/PID/status`` as a dictionary."""
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        return {key: value.strip() for key, _, value in (line.partition(":") for line in file)}


# -- helpers -------------------------------------------------------------------------------------------------


def _proof(layer: str, tried: str, saw: str, ok: bool) -> Proof:
    return {"layer": layer, "tried": tried, "saw": saw, "ok": ok}


def _say(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, str(error.errno))


def _refused(layer: str, tried: str, act: Callable[[], object], *wanted: int) -> Proof:
    """Good when the act fails with one of the ``wanted`` errnos; any other failure proves nothing."""
    try:
        result = act()
    except OSError as error:
        return _proof(layer, tried, _say(error), error.errno in wanted)
    if isinstance(result, socket.socket):
        result.close()
    return _proof(layer, tried, "it was allowed", False)


def _differs(name: str, front: str, inside: str, where: str) -> Proof:
    good = bool(front) and bool(inside) and front != inside
    return _proof(
        LAYER_OF_NAMESPACE[name], f"namespace {where}", f"{inside or '?'}, front {front or '?'}", good
    )


def _capability_proof(status: Mapping[str, str], tried: str, level: str) -> Proof:
    held = [name for name in CAPABILITY_SETS if int(status.get(name, "0"), 16)]
    # An ordinary user cannot empty the bounding set outside a user namespace. It bounds what execve may give,
    # and under no_new_privs that is nothing. Uid 0 and the full level can, so they must.
    ordinary = level != "full" and "0" not in status["Uid"].split()
    if held == ["CapBnd"] and ordinary and status["NoNewPrivs"] == "1":
        return _proof("capabilities", tried, "all empty but CapBnd, which is idle under no_new_privs", True)
    return _proof("capabilities", tried, f"not empty: {', '.join(held)}" if held else "all empty", not held)


# -- the layers ----------------------------------------------------------------------------------------------


def _privilege_proofs(level: str, expected: Expected) -> list[Proof]:
    proofs = []
    privileges = linux.has_no_new_privs()
    proofs.append(_proof("no_new_privs", "read the flag", str(int(privileges)), privileges))
    dumpable = linux.prctl(linux.PR_GET_DUMPABLE)
    proofs.append(_proof("dumpable", "read the flag", str(dumpable), dumpable == int(expected.dumpable)))
    try:
        proofs.append(_capability_proof(read_status(), "read the capability sets", level))
    except OSError as error:
        proofs.append(_proof("capabilities", "read /proc/self/status", _say(error), False))
    groups = sorted({os.getgid(), os.getegid(), *os.getgroups()})
    own = ", which the user who started the kernel has" if in_root_group() and expected.root_group else ""
    good = not in_root_group() or expected.root_group
    proofs.append(_proof("capabilities", "look for root's group", f"groups {groups}{own}", good))
    return proofs


def _limit_proofs(expected: Expected) -> list[Proof]:
    proofs = []
    for number, wanted in expected.rlimits.items():
        have = resource.getrlimit(number)
        proofs.append(_proof("rlimits", f"read limit {number}", f"{have}", have == tuple(wanted)))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard + 1))
        except (ValueError, OSError) as error:  # Python turns EPERM into ValueError
            proofs.append(_proof("rlimits", "raise a hard limit", type(error).__name__, True))
        else:
            proofs.append(_proof("rlimits", "raise a hard limit", "it was allowed", False))
    return proofs


def _descriptor_proofs(expected: Expected) -> list[Proof]:
    try:
        listing = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            found = {int(name) for name in os.listdir(listing)} - {listing}
        finally:
            os.close(listing)
        # listdir of a descriptor works on a duplicate, which the listing shows too.
        found = {fd for fd in found if _is_open(fd)}
    except OSError:
        found = {fd for fd in range(resource.getrlimit(resource.RLIMIT_NOFILE)[0]) if _is_open(fd)}
    extra, gone = sorted(found - expected.fds), sorted(expected.fds - found)
    saw = (
        f"{len(found)} open"
        + (f", unexpected {extra}" if extra else "")
        + (f", missing {gone}" if gone else "")
    )
    return [_proof("descriptors", "list what is open", saw, not extra and not gone)]


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError as error:
        return error.errno != errno.EBADF
    return True


def _environment_proof(expected: Expected) -> Proof:
    have, wanted = dict(os.environ), dict(expected.environment)
    wrong = sorted(name for name in {*have, *wanted} if have.get(name) != wanted.get(name))
    saw = f"{len(have)} variables" + (f", not as planned: {', '.join(wrong)}" if wrong else "")
    return _proof("environment", "compare with the plan", saw, not wrong)


def _seccomp_proofs(level: str) -> list[Proof]:
    numbers = {**_NUMBERS[linux.MACHINE], **_SHARED_NUMBERS}

    def raw(name: str, *arguments: int) -> Callable[[], object]:
        return lambda: linux.raw_syscall(numbers[name], *arguments)

    parent = os.getppid() or 1

    def make(family: int, kind: int) -> Callable[[], object]:
        return lambda: socket.socket(family, kind)

    # What the kernel would answer without the filter is in the comments: never the wanted errno, unless
    # noted.
    rows: list[tuple[str, Callable[[], object], int]] = [
        ("socket(AF_INET)", make(socket.AF_INET, socket.SOCK_STREAM), errno.EPERM),  # success
        ("socket(AF_INET, DGRAM)", make(socket.AF_INET, socket.SOCK_DGRAM), errno.EPERM),  # success
        ("socket(AF_NETLINK)", make(socket.AF_NETLINK, socket.SOCK_RAW), errno.EPERM),  # success
        (
            "socketpair(DGRAM)",
            lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].close(),
            errno.EPERM,
        ),
        ("unshare(nothing)", raw("unshare", 0), errno.EPERM),  # success
        ("memfd_create", raw("memfd_create", 0, 0), errno.EPERM),  # EFAULT
        ("ptrace", raw("ptrace", 3, 0, 0, 0), errno.EPERM),  # ESRCH
        ("keyctl", raw("keyctl", 9999), errno.EPERM),  # EOPNOTSUPP
        ("seccomp", raw("seccomp", 9999, 0, 0), errno.EPERM),  # EINVAL
        ("landlock_create_ruleset", raw("landlock_create_ruleset", 0, 0, 1), errno.EPERM),  # the ABI
        ("io_uring_setup", raw("io_uring_setup", 0, 0), errno.EPERM),  # EFAULT; EPERM where switched off
        ("clone3", raw("clone3", 0, 0), errno.ENOSYS),  # EINVAL
        ("prctl(PR_GET_SECUREBITS)", lambda: linux.prctl(linux.PR_GET_SECUREBITS), errno.EPERM),  # success
        ("personality(nothing)", raw("personality", 0), errno.EPERM),  # success
        ("prlimit of another process", lambda: resource.prlimit(parent, resource.RLIMIT_CORE), errno.EPERM),
        ("TIOCSTI", raw("ioctl", -1, 0x5412, 0), errno.ENOTTY),  # EBADF
        ("TIOCSTI + 2**32", raw("ioctl", -1, 0x5412 + (1 << 32), 0), errno.ENOTTY),  # EBADF
    ]
    if level != "full":
        rows.append(("socket(AF_UNIX)", make(socket.AF_UNIX, socket.SOCK_STREAM), errno.EPERM))  # success
    proofs = [_refused("seccomp", f"call {tried}", act, wanted) for tried, act, wanted in rows]
    mode = linux.prctl(linux.PR_GET_SECCOMP)
    return [_proof("seccomp", "read the mode", str(mode), mode == 2), *proofs]


def _landlock_proofs(level: str, expected: Expected) -> list[Proof]:
    if not expected.landlock_abi:
        return [_proof("landlock", "ask for the ABI", "there is none", False)]
    if not expected.canary:
        return [_proof("landlock", "open a file that no rule grants", "there is no such file to try", False)]
    # stat is not checked by Landlock: it tells a refusal by Landlock from a missing file. EACCES alone could
    # be the file's mode, so the mode is looked at too.
    try:
        mode = os.stat(expected.canary).st_mode
        by_mode = os.access(expected.canary, os.R_OK)
    except OSError as error:
        return [_proof("landlock", f"find {expected.canary}", _say(error), False)]
    tried = f"open {expected.canary} (mode {mode & 0o7777:o})"

    def read() -> None:
        os.close(os.open(expected.canary, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))

    proof = _refused("landlock", tried, read, errno.EACCES)
    if not by_mode:
        proof.update(saw="the file's mode refuses it already", ok=False)
    proofs = [proof]
    if level != "full" and expected.landlock_abi >= 6 and expected.front_pid:
        proofs.append(
            _refused("landlock", "signal 0 to the front", lambda: os.kill(expected.front_pid, 0), errno.EPERM)
        )
    return proofs


def _namespace_proofs(expected: Expected) -> list[Proof]:
    inside = namespace_ids()
    proofs = [
        _differs(n, expected.namespaces.get(n, ""), inside.get(n, ""), "is not the front's")
        for n in NAMESPACES
    ]
    try:
        columns = read_status()["NSpid"].split()
        first = read_status(1)["Pid"]
        pids = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
        kept = len(columns) == 1 and first == "1" and os.getpid() in pids
        proofs.append(_proof("pid namespace", "list the processes in /proc", f"{len(pids)} processes", kept))
    except (OSError, KeyError) as error:
        proofs.append(_proof("pid namespace", "list the processes in /proc", repr(error), False))
        pids = []
    if expected.front_pid and expected.front_pid not in pids:
        act = lambda: os.kill(expected.front_pid, 0)  # noqa: E731
        proofs.append(_refused("pid namespace", "signal 0 to the front", act, errno.ESRCH))
    try:
        with open("/proc/self/net/dev", encoding="utf-8", errors="replace") as file:
            devices = sorted(line.partition(":")[0].strip() for line in file if ":" in line)
        with open("/proc/self/net/route", encoding="utf-8", errors="replace") as file:
            routes = len(file.readlines()) - 1
        saw = f"devices {', '.join(devices)}; {max(routes, 0)} routes"
        proofs.append(
            _proof("network namespace", "list devices and routes", saw, devices == ["lo"] and routes < 1)
        )
    except OSError as error:
        proofs.append(_proof("network namespace", "list devices and routes", _say(error), False))
    read_only = bool(os.statvfs("/").f_flag & os.ST_RDONLY)
    proofs.append(
        _proof("mount namespace", "look whether / can be written", "no" if read_only else "yes", read_only)
    )
    if expected.mounts:
        proofs.append(_mount_proof(expected.mounts))
    if not expected.dumpable:
        path = f"/proc/{os.getppid()}/environ"
        proofs.append(
            _refused(
                "dumpable", "read the parent's environment", lambda: open(path, "rb").close(), errno.EACCES
            )
        )
    try:
        with open("/proc/self/uid_map", encoding="utf-8") as file:
            maps = [line.split() for line in file]
        narrow = len(maps) == 1 and maps[0][2] == "1"
        proofs.append(
            _proof("user namespace", "count the mapped uids", str(sum(int(m[2]) for m in maps)), narrow)
        )
    except OSError as error:
        proofs.append(_proof("user namespace", "count the mapped uids", _say(error), False))
    return proofs


def _mount_proof(wanted: Mapping[str, frozenset[str]]) -> Proof:
    tried = "compare the mounts with the plan"
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            fields = [line.split(" ") for line in file]
    except OSError as error:
        return _proof("mount namespace", tried, _say(error), False)
    have: dict[str, set[str]] = {}
    for entry in fields:  # a later mount covers an earlier one on the same point
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), entry[4])
        have[point] = set(entry[5].split(","))
    wrong = sorted({*have} ^ {*wanted})
    wrong += sorted(point for point in {*have} & {*wanted} if not wanted[point] <= have[point])
    saw = f"{len(have)} mounts" + (f", not as planned: {', '.join(wrong)}" if wrong else "")
    return _proof("mount namespace", tried, saw, not wrong)
