"""Landlock: which files may be opened how; no TCP; signals and abstract sockets only among the confined.

Own bindings (`linux`), because the ``landlock`` package knows file rights only, takes a stale ``errno`` for a
failure and leaks the ruleset's descriptor; a test compares our constants with its.
"""

from __future__ import annotations

import errno
import os
import stat
import struct

from .. import linux
from ..frozen import Frozen

# File rights (linux/landlock.h), with the ABI that brought them.
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REMOVE_DIR, REMOVE_FILE = 1 << 4, 1 << 5
MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM = (1 << n for n in range(6, 13))
REFER = 1 << 13  # ABI 2
TRUNCATE = 1 << 14  # ABI 3
IOCTL_DEV = 1 << 15  # ABI 5
FILE_RIGHTS_BY_ABI = {1: (1 << 13) - 1, 2: REFER, 3: TRUNCATE, 5: IOCTL_DEV}

BIND_TCP, CONNECT_TCP = 1, 2  # ABI 4
SCOPE_ABSTRACT_SOCKETS, SCOPE_SIGNALS = 1, 2  # ABI 6

# The rights that make sense on something that is not a folder; more gives EINVAL.
ON_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV

# What a rule can grant. Nothing grants devices (MAKE_CHAR, MAKE_BLOCK, IOCTL_DEV), and nothing that can be
# written can be executed.
RIGHTS = {
    "list": READ_DIR,
    "read": READ_FILE | READ_DIR,
    "read-exec": READ_FILE | READ_DIR | EXECUTE,
    "read-write": READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | REFER | REMOVE_DIR | REMOVE_FILE
    | MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_SYM,
    "device": READ_FILE | WRITE_FILE,
}  # fmt: skip

_LOSSES = {
    1: "There is no Landlock here (Linux 5.13 brings it): files are not checked by it.",
    2: "Files cannot be moved from one folder to another (Linux 5.19 brings that right).",
    3: "Landlock does not check truncation (Linux 6.2 brings it).",
    4: "Landlock does not check TCP (Linux 6.7 brings it).",
    5: "Landlock does not check device commands (Linux 6.10 brings it).",
    6: "Landlock does not check signals and abstract sockets (Linux 6.12 brings it).",
}


class Rules(Frozen):
    """What is granted; everything else is refused.

    Attributes:
        entries: (path, name of `RIGHTS`), each for the path and all below it. Where two overlap both count. A
        final
            symbolic link is not followed, for one in the notebook's folder could name any file of its owner:
            give resolved paths. ``/proc/self`` means the process that applies the rules.
    """

    entries: tuple[tuple[str, str], ...]


def losses(abi: int) -> list[str]:
    """What this ABI lacks against ABI 6, one plain sentence each."""
    return [text for needed, text in _LOSSES.items() if abi < needed and (abi or needed == 1)]


def handled_rights(abi: int) -> int:
    """All file rights that the ABI knows: those that are refused unless granted."""
    return sum(rights for needed, rights in FILE_RIGHTS_BY_ABI.items() if abi >= needed)


def apply(rules: Rules, abi: int) -> list[str]:
    """Enforce ``rules`` on this thread and everything it starts, for good.

    Args:
        rules: paths that do not exist or cannot be reached are skipped.
        abi: what `linux.landlock_abi` returned, or less. 0 enforces nothing and says so in the result.

    Returns:
        `losses`, and a sentence for each entry that exists and could not be granted.

    Raises:
        PermissionError: no_new_privs is not set.
        OSError: the kernel refused the ruleset.
        KeyError: an unknown name of rights.
    """
    lost = losses(abi)
    if not abi:
        return lost
    if not linux.has_no_new_privs():
        raise PermissionError(errno.EPERM, "Landlock rules need no_new_privs")
    files = handled_rights(abi)
    net = BIND_TCP | CONNECT_TCP if abi >= 4 else 0
    scopes = SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS if abi >= 6 else 0
    known_bytes = 24 if abi >= 6 else 16 if abi >= 4 else 8  # an older kernel refuses what it does not know
    ruleset = linux.landlock_create_ruleset(struct.pack("=3Q", files, net, scopes)[:known_bytes])
    try:
        for path, name in rules.entries:
            problem = _grant(ruleset, path, RIGHTS[name] & files)
            if problem:
                lost.append(f"{path} is not granted: {problem}.")
        linux.landlock_restrict_self(ruleset)
    finally:
        os.close(ruleset)
    return lost


def _grant(ruleset: int, path: str, rights: int) -> str:
    """Add one rule; the result says why not, "" when it was added or there is no such path."""
    if f"{path}/".startswith("/proc/self/"):
        path = f"/proc/{os.getpid()}{path.removeprefix('/proc/self')}"
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        return os.strerror(error.errno or 0)
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISLNK(mode):
            return "it is a symbolic link"
        if not stat.S_ISDIR(mode):
            rights &= ON_FILES
        if rights:  # none are left for "list" on a file, which the kernel refuses with ENOMSG
            linux.landlock_add_path(ruleset, rights, fd)
    finally:
        os.close(fd)
    return ""
