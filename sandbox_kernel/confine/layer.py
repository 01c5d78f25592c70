"""The private layer: an overlay in memory that takes all writing to a folder of the host."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import NamedTuple

from .. import linux
from ..plan.model import Plan
from ..plan.paths import inside

_QUIET = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
_LAYER = "dev/shm"  # in the new root: where the parts of a layer are put together, for a moment


class Layer(NamedTuple):
    """Descriptors of a private layer: its upper folder, and what it can be reconfigured by (see `linux.fspick`)."""

    upper: int
    context: int


def overlay(plan: Plan, lower: int, path: str, size: int) -> Layer:
    """Mount a private layer in memory over a folder of the host.

    The folders that overlayfs works on have no path in the finished sandbox: it keeps mounts of its own. Between the
    two lies a veil of "whiteouts", which are how overlayfs notes that a name is gone: a cell that makes such a name
    gets one of its own, and never what is below.

    Raises:
        OSError: also when a name is visible that should not be.
    """
    names = [os.path.relpath(veiled, path) for veiled in plan.veiled if inside(veiled, path)]
    begun = [os.path.relpath(folder, path) for folder in plan.begun if inside(folder, path)]
    inodes = inodes_for(size) + sum(name.count("/") + 1 for name in (*names, *begun))
    linux.mount("layer", _LAYER, "tmpfs", _QUIET, f"size={size},nr_inodes={inodes},mode=0755")
    for name in ("lower", "veil", "upper", "work"):
        os.mkdir(f"{_LAYER}/{name}")
    upper = os.open(f"{_LAYER}/upper", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in ("upper", "veil"):
        os.chmod(f"{_LAYER}/{name}", stat.S_IMODE(os.fstat(lower).st_mode) | 0o700)
        os.chown(f"{_LAYER}/{name}", plan.identity.uid, plan.identity.gid)
    linux.move_mount(lower, "", linux.AT_FDCWD, f"{_LAYER}/lower")
    os.close(lower)
    for name in names:
        _veil(name)
    for name in begun:
        with contextlib.suppress(OSError):  # it has been removed since the plan was made
            _make_folders("upper", name)
    target = path[1:]
    os.makedirs(target, exist_ok=True)
    # An ordinary user may set only this kind of extended attributes, and only in them overlayfs may keep its notes.
    options = f"lowerdir={_LAYER}/veil:{_LAYER}/lower,upperdir={_LAYER}/upper,workdir={_LAYER}/work,userxattr"
    linux.mount("workspace", target, "overlay", _QUIET, options)
    for name in names:
        if os.path.lexists(f"{target}/{name}"):
            raise OSError(errno.EEXIST, "a name that is to be hidden is visible through the private layer")
    linux.umount(f"{_LAYER}/lower", linux.MNT_DETACH)
    linux.umount(_LAYER, linux.MNT_DETACH)
    return Layer(upper, linux.fspick(target))


def _make_folders(part: str, name: str) -> None:
    """Make a folder of the lower one in another part of the layer; those on the way, too, look as they do there."""
    parts = name.split("/")
    for depth in range(1, len(parts) + 1):
        folder = "/".join(parts[:depth])
        made = f"{_LAYER}/{part}/{folder}"
        if not os.path.isdir(made):
            found = os.stat(f"{_LAYER}/lower/{folder}", follow_symlinks=False)
            os.mkdir(made)
            os.chmod(made, stat.S_IMODE(found.st_mode))
            with contextlib.suppress(OSError):  # ids that mean nothing in here
                os.chown(made, found.st_uid, found.st_gid)


def _veil(name: str) -> None:
    """Hide one name of the lower folder."""
    if folder := os.path.dirname(name):
        _make_folders("veil", folder)
    os.mknod(f"{_LAYER}/veil/{name}", stat.S_IFCHR, 0)


def inodes_for(size: int) -> int:
    """One for each 4 KiB, so that the number of files is bounded as well as their size."""
    return max(1024, size // 4096)
