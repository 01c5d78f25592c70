"""Linux calls that the standard library lacks, and their constants, in one place.

Every function raises OSError whose text names the call and its operands. A result is judged by the return
value alone, never by a leftover ``errno``. Numbers are from the kernel's uapi headers; calls with no libc
wrapper on glibc 2.31 or musl go through ``syscall(2)`` by number. Importing costs about a millisecond and
starts nothing.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

MACHINE = os.uname().machine

# Raw numbers, only of calls that are made here. From 424 on all architectures share one numbering.
_NUMBERS_BY_MACHINE = {
    "x86_64": {"renameat2": 316, "pivot_root": 155, "capget": 125, "capset": 126, "seccomp": 317},
    "aarch64": {"renameat2": 276, "pivot_root": 41, "capget": 90, "capset": 91, "seccomp": 277},
}
_SHARED_NUMBERS = {
    "open_tree": 428, "move_mount": 429, "fsconfig": 431, "fspick": 433, "close_range": 436, "mount_setattr": 442,
    "landlock_create_ruleset": 444, "landlock_add_rule": 445, "landlock_restrict_self": 446,
}  # fmt: skip
SYSCALLS: dict[str, int] = {**_NUMBERS_BY_MACHINE.get(MACHINE, {}), **_SHARED_NUMBERS}

# clone(2), unshare(2), setns(2)
CLONE_PTRACE = 0x00002000
CLONE_PARENT = 0x00008000
CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

# mount(2), umount2(2)
MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

# mount_setattr(2), open_tree(2), move_mount(2)
MOUNT_ATTR_RDONLY = 0x00000001
MOUNT_ATTR_NOSUID = 0x00000002
MOUNT_ATTR_NODEV = 0x00000004
MOUNT_ATTR_NOEXEC = 0x00000008
MOUNT_ATTR_IDMAP = 0x00100000
AT_FDCWD = -100
AT_SYMLINK_NOFOLLOW = 0x100
AT_EMPTY_PATH = 0x1000
AT_RECURSIVE = 0x8000
OPEN_TREE_CLONE = 1
OPEN_TREE_CLOEXEC = os.O_CLOEXEC
MOVE_MOUNT_F_EMPTY_PATH = 0x00000004

# fspick(2), fsconfig(2)
FSPICK_CLOEXEC = 1
FSPICK_EMPTY_PATH = 8
FSCONFIG_CMD_RECONFIGURE = 7

# statfs(2)
TMPFS_MAGIC = 0x01021994
OVERLAYFS_MAGIC = 0x794C7630

# prctl(2)
PR_SET_PDEATHSIG = 1
PR_GET_PDEATHSIG = 2
PR_GET_DUMPABLE = 3
PR_SET_DUMPABLE = 4
PR_SET_NAME = 15
PR_GET_NAME = 16
PR_GET_SECCOMP = 21
PR_SET_SECCOMP = 22
PR_CAPBSET_READ = 23
PR_CAPBSET_DROP = 24
PR_GET_SECUREBITS = 27
PR_SET_SECUREBITS = 28
PR_GET_TIMERSLACK = 30
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_GET_NO_NEW_PRIVS = 39
PR_SET_THP_DISABLE = 41
PR_GET_THP_DISABLE = 42
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
PR_SET_VMA = 0x53564D41
# NOROOT and NO_SETUID_FIXUP with their locks, KEEP_CAPS locked off, NO_CAP_AMBIENT_RAISE with its lock: uid 0
# is an ordinary number from here on, also across execve.
SECUREBITS_LOCKED_DOWN = 0b1110_1111

# seccomp(2)
SECCOMP_SET_MODE_FILTER = 1
SECCOMP_GET_NOTIF_SIZES = 3
SECCOMP_FILTER_FLAG_NEW_LISTENER = 1 << 3  # Linux 5.0
SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV = 1 << 5  # Linux 5.19
SECCOMP_FILTER_BYTES = 8  # sizeof(struct sock_filter)

# landlock_create_ruleset(2), landlock_add_rule(2)
LANDLOCK_CREATE_RULESET_VERSION = 1
LANDLOCK_RULE_PATH_BENEATH = 1

# close_range(2)
LAST_FD = 0xFFFFFFFF

_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long
_libc.prctl.restype = ctypes.c_int
_libc.prctl.argtypes = (ctypes.c_int, *(ctypes.c_ulong,) * 4)
_libc.mount.argtypes = (*(ctypes.c_char_p,) * 3, ctypes.c_ulong, ctypes.c_char_p)
_libc.umount2.argtypes = (ctypes.c_char_p, ctypes.c_int)
_libc.unshare.argtypes = (ctypes.c_int,)
_libc.setns.argtypes = (ctypes.c_int, ctypes.c_int)
_libc.sethostname.argtypes = (ctypes.c_char_p, ctypes.c_size_t)


def _failed(call: str, *operands: object) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{call}({', '.join(map(str, operands))}): {os.strerror(number)}")


def raw_syscall(number: int, *arguments: int | bytes | None) -> int:
    """One system call by number; its result, or OSError. For probes and for calls without a wrapper."""
    words = [ctypes.c_char_p(a) if isinstance(a, bytes) else ctypes.c_long(a or 0) for a in arguments]
    result: int = _syscall(ctypes.c_long(number), *words)
    if result == -1:
        raise _failed(f"syscall {number}")
    return result


def _call(name: str, *arguments: int | bytes | None, about: tuple[object, ...] = ()) -> int:
    if name not in SYSCALLS:
        raise OSError(38, f"{name}: no number known for the machine {MACHINE!r}")
    try:
        return raw_syscall(SYSCALLS[name], *arguments)
    except OSError:
        raise _failed(name, *about) from None


def _path(path: str | os.PathLike[str] | None) -> bytes | None:
    return None if path is None else os.fsencode(path)


# -- namespaces and mounts -----------------------------------------------------------------------------------


def unshare(flags: int) -> None:
    """Leave namespaces for new ones (CLONE_NEW* flags). NEWPID takes effect for the next child only."""
    if _libc.unshare(flags):
        raise _failed("unshare", hex(flags))


def setns(fd: int, flags: int) -> None:
    """Enter the namespace that ``fd`` (of /proc/PID/ns/* or a pidfd) names."""
    if _libc.setns(fd, flags):
        raise _failed("setns", fd, hex(flags))


def mount(
    source: str | os.PathLike[str] | None,
    target: str | os.PathLike[str],
    fstype: str | None = None,
    flags: int = 0,
    options: str | None = None,
) -> None:
    """mount(2). The kernel ignores other flags beside MS_BIND: use `mount_setattr` on the bind afterwards."""
    data = None if options is None else os.fsencode(options)
    kind = None if fstype is None else fstype.encode()
    if _libc.mount(_path(source), _path(target), kind, flags, data):
        raise _failed("mount", source, target, fstype, hex(flags), options)


def umount(target: str | os.PathLike[str], flags: int = 0) -> None:
    """umount2(2); ``MNT_DETACH`` for a tree that is still in use."""
    if _libc.umount2(_path(target), flags):
        raise _failed("umount2", target, hex(flags))


def pivot_root(new_root: str | os.PathLike[str], put_old: str | os.PathLike[str]) -> None:
    """``pivot_root(".", ".")``, then ``umount(".", MNT_DETACH)``, needs no folder for the old root."""
    _call("pivot_root", _path(new_root), _path(put_old), about=(new_root, put_old))


def open_tree(dirfd: int, path: str | os.PathLike[str], flags: int) -> int:
    """Descriptor of a mount (OPEN_TREE_CLONE: of a detached copy), which the caller closes. Linux 5.2+."""
    return _call("open_tree", dirfd, _path(path), flags, about=(dirfd, path, hex(flags)))


def move_mount(
    from_fd: int,
    from_path: str,
    to_fd: int,
    to_path: str | os.PathLike[str],
    flags: int = MOVE_MOUNT_F_EMPTY_PATH,
) -> None:
    """Attach the mount behind ``from_fd`` (default: ``from_path`` is "") at ``to_path``. Linux 5.2+."""
    _call("move_mount", from_fd, _path(from_path), to_fd, _path(to_path), flags, about=(from_fd, to_path))


def mount_setattr(
    dirfd: int,
    path: str | os.PathLike[str],
    flags: int = 0,
    *,
    attr_set: int = 0,
    attr_clr: int = 0,
    propagation: int = 0,
    userns_fd: int = 0,
) -> None:
    """Change a mount (``AT_RECURSIVE``: the whole tree, all or nothing). Linux 5.12+.

    Unlike a bind remount it changes only the named attributes: a remount in a user namespace that forgets one
    locked flag of the source gets EPERM. ``userns_fd`` counts only with ``MOUNT_ATTR_IDMAP``.
    """
    attributes = struct.pack("=4Q", attr_set, attr_clr, propagation, userns_fd)
    about = (dirfd, path, hex(flags), hex(attr_set), hex(attr_clr))
    _call("mount_setattr", dirfd, _path(path), flags, attributes, len(attributes), about=about)


def fspick(path: str | os.PathLike[str], dirfd: int = AT_FDCWD) -> int:
    """Descriptor by which the file system mounted at ``path`` can be reconfigured; the caller closes it. Linux 5.2+.

    With the path "" it is the one whose root ``dirfd`` is.
    """
    flags = FSPICK_CLOEXEC | (0 if os.fspath(path) else FSPICK_EMPTY_PATH)
    return _call("fspick", dirfd, _path(path), flags, about=(dirfd, path))


def fs_reconfigure(context: int) -> None:
    """Reconfigure what `fspick` returned, without any change: its names that nobody uses are looked up anew.

    Any process may that has CAP_SYS_ADMIN over the user namespace in which it was mounted. Linux 5.2+.
    """
    _call("fsconfig", context, FSCONFIG_CMD_RECONFIGURE, None, None, 0, about=(context,))


def fs_type(fd: int) -> int:
    """What kind of file system a descriptor's file lies in: f_type of fstatfs(2), such as `TMPFS_MAGIC`."""
    result = ctypes.create_string_buffer(256)  # struct statfs has 120 bytes
    if _libc.fstatfs(ctypes.c_int(fd), result):
        raise _failed("fstatfs", fd)
    return int(struct.unpack_from("@L", result)[0])


def inotify() -> int:
    """Descriptor for `inotify_add_watch`, of which events are read without waiting; the caller closes it."""
    if (fd := _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)) < 0:
        raise _failed("inotify_init1")
    return int(fd)


def inotify_add_watch(fd: int, path: str, mask: int) -> int:
    """Number of the watch, by which events (struct inotify_event, inotify(7)) name it."""
    if (watch := _libc.inotify_add_watch(fd, _path(path), ctypes.c_uint32(mask))) < 0:
        raise _failed("inotify_add_watch", path)
    return int(watch)


def sethostname(name: str) -> None:
    """Name of this UTS namespace."""
    raw = name.encode()
    if _libc.sethostname(raw, len(raw)):
        raise _failed("sethostname", name)


# -- this process --------------------------------------------------------------------------------------------


def prctl(option: int, arg2: int = 0, arg3: int = 0, arg4: int = 0, arg5: int = 0) -> int:
    """prctl(2) with integer arguments."""
    result: int = _libc.prctl(option, arg2, arg3, arg4, arg5)
    if result == -1:
        raise _failed("prctl", option, arg2)
    return result


def set_no_new_privs() -> None:
    """No execve gives rights from here on, in this process and all below it. Cannot be undone."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def has_no_new_privs() -> bool:
    """Whether `set_no_new_privs` holds."""
    return prctl(PR_GET_NO_NEW_PRIVS) == 1


def set_dumpable(dumpable: bool) -> None:
    """Non-dumpable: no core file, no ptrace, /proc/self owned by root. execve sets it back to dumpable."""
    prctl(PR_SET_DUMPABLE, int(dumpable))


def set_pdeathsig(signal: int) -> None:
    """Signal for this process when the *thread* that forked it ends (0: none). A change of uid clears it."""
    prctl(PR_SET_PDEATHSIG, signal)


def set_child_subreaper(on: bool = True) -> None:
    """Orphans below this process become its children."""
    prctl(PR_SET_CHILD_SUBREAPER, int(on))


def drop_bounding_set() -> None:
    """Empty the bounding set: no execve can give a capability back. Needs CAP_SETPCAP, so it comes first."""
    for capability in range(64):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError as error:
            if error.errno == 22:  # EINVAL: beyond the kernel's last capability
                return
            raise


def lock_securebits() -> None:
    """Make uid 0 an ordinary uid for good (`SECUREBITS_LOCKED_DOWN`). Needs CAP_SETPCAP."""
    prctl(PR_SET_SECUREBITS, SECUREBITS_LOCKED_DOWN)


def drop_capabilities() -> None:
    """Empty the ambient, effective, permitted and inheritable sets. Works without any capability."""
    try:
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    except OSError as error:
        if error.errno != 22:  # EINVAL: before Linux 4.3 there is no ambient set
            raise
    _call("capset", struct.pack("=Ii", _CAPABILITY_VERSION_3, 0), bytes(24), about=("all zero",))


def close_range(first: int, last: int = LAST_FD, flags: int = 0) -> None:
    """Close (or mark close-on-exec) the descriptors first..last. Linux 5.9+."""
    _call("close_range", first, last, flags, about=(first, last, hex(flags)))


# -- seccomp and Landlock ------------------------------------------------------------------------------------


def seccomp_set_filter(bpf: bytes, flags: int = 0) -> int:
    """Load raw BPF (array of struct sock_filter) for this thread. Needs no_new_privs or CAP_SYS_ADMIN.

    Returns:
        With ``SECCOMP_FILTER_FLAG_NEW_LISTENER`` the descriptor that hears of notifying calls, else 0.
    """
    code = ctypes.create_string_buffer(bpf, len(bpf))
    program = struct.pack("@HP", len(bpf) // SECCOMP_FILTER_BYTES, ctypes.addressof(code))
    return _call("seccomp", SECCOMP_SET_MODE_FILTER, flags, program, about=("SET_MODE_FILTER", hex(flags)))


def seccomp_notif_sizes() -> tuple[int, int]:
    """Bytes of this kernel's struct seccomp_notif and struct seccomp_notif_resp. Linux 5.0+."""
    sizes = ctypes.create_string_buffer(6)
    _call("seccomp", SECCOMP_GET_NOTIF_SIZES, 0, ctypes.addressof(sizes), about=("GET_NOTIF_SIZES",))
    request, response, _ = struct.unpack("=3H", sizes.raw)
    return request, response


def landlock_version() -> int:
    """The kernel's Landlock ABI, from 1. OSError ENOSYS: not built in; EOPNOTSUPP: switched off at boot."""
    return _call("landlock_create_ruleset", None, 0, LANDLOCK_CREATE_RULESET_VERSION, about=("version",))


def landlock_abi() -> int:
    """The kernel's Landlock ABI; 0 when it is absent, switched off or hidden by a filter."""
    try:
        return landlock_version()
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
            return 0
        raise


def landlock_create_ruleset(attributes: bytes) -> int:
    """Descriptor of a new ruleset from a struct landlock_ruleset_attr, cut to what the ABI knows."""
    return _call("landlock_create_ruleset", attributes, len(attributes), 0, about=(attributes.hex(),))


def landlock_add_path(ruleset: int, access: int, parent_fd: int) -> None:
    """Grant ``access`` on and below the file that ``parent_fd`` (O_PATH) names."""
    rule = struct.pack("=Qi", access, parent_fd)
    _call("landlock_add_rule", ruleset, LANDLOCK_RULE_PATH_BENEATH, rule, 0, about=(hex(access), parent_fd))


def landlock_restrict_self(ruleset: int, flags: int = 0) -> None:
    """Enforce the ruleset on this thread and everything it starts. Needs no_new_privs or CAP_SYS_ADMIN."""
    _call("landlock_restrict_self", ruleset, flags, about=(ruleset,))


def exchange(folder: int, one: str, other: str) -> None:
    """Let two names in a folder change places, in one step: renameat2(2), RENAME_EXCHANGE."""
    names = os.fsencode(one), os.fsencode(other)
    _call("renameat2", folder, names[0], folder, names[1], 2, about=(one, other))
