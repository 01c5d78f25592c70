"""The sandbox's own file tree: a small tmpfs root with the planned folders of the host bound into it.

All sources are opened (as detached copies) before the first mount is made, so no mount can cover a source,
and a link swapped in later leads nowhere. The caller is in a mount namespace of its own; `build` checks that
first.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from typing import NamedTuple

from .. import linux
from ..plan.model import Bind, Plan, Tmpfs
from ..plan.paths import DEVICES, PROC_FROZEN, PROC_MASKED, inside
from . import namespaces

_SAFE = linux.MOUNT_ATTR_NOSUID | linux.MOUNT_ATTR_NODEV
_FROZEN = _SAFE | linux.MOUNT_ATTR_RDONLY | linux.MOUNT_ATTR_NOEXEC
_QUIET = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
_LAYER = "dev/shm"  # in the new root: where the parts of a layer are put together, for a moment
_BASES = ("/tmp", "/run", "/mnt", "/var", "/dev")  # noqa: S108 - only the place where the new root is put together

Step = Callable[[str], None]


class Layer(NamedTuple):
    """Descriptors of a private layer: its upper folder, and what it can be reconfigured by (see `linux.fspick`)."""

    upper: int
    context: int


def open_id_maps(plan: Plan) -> dict[tuple[int, int], int | OSError]:
    """A map for each owner of a bind that is shown as the worker's own, or why there is none.

    For the host's pid namespace only: it names a child by its pid in /proc.
    """
    maps: dict[tuple[int, int], int | OSError] = {}
    for bind in plan.binds:
        found = os.stat(bind.path)
        owner = (found.st_uid, found.st_gid)
        if bind.mapped and owner not in maps:
            try:
                maps[owner] = namespaces.id_map(owner, (plan.identity.uid, plan.identity.gid))
            except OSError as error:
                maps[owner] = error
    return maps


def build(
    plan: Plan, host_mount_namespace: int, maps: dict[tuple[int, int], int | OSError], step: Step
) -> tuple[list[str], dict[str, Layer]]:
    """Make the tree and change into it.

    Returns:
        What could not be done as planned, in sentences; and the private layers, by the path of the folder that each
        lies over.

    Args:
        plan: what to show.
        host_mount_namespace: inode number of the front's mount namespace.
        maps: what `open_id_maps` returned; they are closed here.
        step: told the name of each step before it is taken.

    Raises:
        OSError: a mount was refused.
        RuntimeError: this process still shares the front's mounts.
    """
    step("check the mount namespace")
    if os.stat("/proc/self/ns/mnt").st_ino == host_mount_namespace:
        raise RuntimeError("still in the mount namespace of the host")
    linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
    losses: list[str] = []
    step("copy the mounts to show")
    trees = _open_binds(plan, maps, losses)
    devices = [(f"dev/{name}", _open(f"/dev/{name}", linux.MOUNT_ATTR_NOSUID | linux.MOUNT_ATTR_NOEXEC
                                     | linux.MOUNT_ATTR_RDONLY)) for name in DEVICES]  # fmt: skip
    step("mount the new root")
    base = next(b for b in _BASES if os.path.isdir(b))
    linux.mount("sandbox", base, "tmpfs", _QUIET, "mode=0755,size=4m,nr_inodes=4096")
    os.chdir(base)
    layers = _furnish(plan, trees, devices, step)
    step("mount proc")
    os.mkdir("proc")
    linux.mount("proc", "proc", "proc", _QUIET)
    step("pivot_root")
    linux.pivot_root(".", ".")
    linux.umount(".", linux.MNT_DETACH)
    os.chdir("/")
    return losses, layers


def finish() -> None:
    """Mask what of /proc tells about the host, and freeze the root. Called in the final user namespace."""
    for name in PROC_MASKED:
        path = f"/proc/{name}"
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            continue
        if stat.S_ISDIR(mode):
            linux.mount("none", path, "tmpfs", _QUIET | linux.MS_RDONLY, "size=0,nr_inodes=1,mode=0555")
        elif stat.S_ISREG(mode):
            linux.mount("/dev/null", path, None, linux.MS_BIND)
    for path in PROC_FROZEN:
        if os.path.isdir(path):
            linux.mount(path, path, None, linux.MS_BIND)
            linux.mount_setattr(linux.AT_FDCWD, path, attr_set=_FROZEN)
    linux.mount_setattr(linux.AT_FDCWD, "/", attr_set=_FROZEN)


def _open(path: str, attributes: int, idmap: int = -1) -> int:
    """A detached copy of the mount tree at ``path``, with ``attributes`` added to every mount in it."""
    flags = linux.OPEN_TREE_CLONE | linux.OPEN_TREE_CLOEXEC | linux.AT_RECURSIVE | linux.AT_SYMLINK_NOFOLLOW
    fd = linux.open_tree(linux.AT_FDCWD, path, flags)
    try:
        if idmap >= 0:
            linux.mount_setattr(fd, "", linux.AT_EMPTY_PATH | linux.AT_RECURSIVE,
                                attr_set=linux.MOUNT_ATTR_IDMAP, userns_fd=idmap)  # fmt: skip
        linux.mount_setattr(fd, "", linux.AT_EMPTY_PATH | linux.AT_RECURSIVE, attr_set=attributes)
    except OSError as error:
        os.close(fd)
        raise OSError(error.errno, f"{path}: {error.strerror}") from None
    return fd


def _open_binds(plan: Plan, maps: dict[tuple[int, int], int | OSError], losses: list[str]) -> dict[str, int]:
    """The planned binds as detached mounts, by path."""
    trees: dict[str, int] = {}
    for bind in plan.binds:
        attributes = _SAFE
        attributes |= 0 if bind.writable else linux.MOUNT_ATTR_RDONLY
        attributes |= 0 if bind.execute else linux.MOUNT_ATTR_NOEXEC
        if bind.mapped:
            found = os.stat(bind.path)
            try:
                id_map = maps[found.st_uid, found.st_gid]
                if isinstance(id_map, OSError):
                    raise id_map
                trees[bind.path] = _open(bind.path, attributes, id_map)
                continue
            except OSError as error:
                if bind.mapped == "must":
                    raise OSError(error.errno, f"id-mapped mount of {bind.path}: {error.strerror}") from None
                losses.append(
                    f"{bind.path} is shown with the host's owners (id-mapped mount: {error.strerror})."
                )
        trees[bind.path] = _open(bind.path, attributes)
    for id_map in maps.values():
        if isinstance(id_map, int):
            os.close(id_map)
    return trees


def _furnish(
    plan: Plan, trees: dict[str, int], devices: list[tuple[str, int]], step: Step
) -> dict[str, Layer]:
    """Fill the new root, which is the current folder; returns the layers. Parents come before what lies in them."""
    layers: dict[str, Layer] = {}
    step("make /dev")
    os.mkdir("dev")
    os.mkdir("dev/shm")
    for name, text in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        os.symlink(text, f"dev/{name}")
    for name, fd in devices:
        _attach(fd, name, folder=False)
    for path, text in plan.files:
        os.makedirs(os.path.dirname(path[1:]), exist_ok=True)
        with open(path[1:], "x", encoding="utf-8") as file:
            file.write(text)
    os.close(os.open("canary", os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o444))
    for path, text in plan.links:
        if not os.path.lexists(path[1:]) and not any(inside(path, b.path) for b in plan.binds):
            os.makedirs(os.path.dirname(path[1:]) or ".", exist_ok=True)
            os.symlink(text, path[1:])
    things: list[Bind | Tmpfs | str] = [*plan.binds, *plan.tmpfs, *plan.hidden]
    writable = [b.path for b in plan.binds if b.writable and not b.layer]
    veils: list[str] = []
    for thing in sorted(things, key=_depth):
        path = thing if isinstance(thing, str) else thing.path
        step(f"show {path}")
        if isinstance(thing, str):
            if not os.path.exists(path[1:]):
                continue  # it was removed since the plan was made, or is a link that leads in a circle
            if not os.path.isdir(path[1:]):
                linux.mount("dev/null", path[1:], None, linux.MS_BIND)
            else:
                linux.mount("hidden", path[1:], "tmpfs", _QUIET, "size=64k,nr_inodes=64,mode=0755")
                veils.append(path[1:])
            continue
        target = path[1:]
        if any(inside(path, w) and path != w for w in writable) and not os.path.exists(target):
            raise FileNotFoundError(2, f"{path}: a place for a mount would have to be made in the workspace")
        if isinstance(thing, Bind) and thing.layer:
            layers[path] = _overlay(plan, trees[path], path, thing.layer)
        elif isinstance(thing, Bind):
            _attach(trees[path], target, folder=stat.S_ISDIR(os.fstat(trees[path]).st_mode))
        else:
            os.makedirs(target, exist_ok=True)
            options = f"size={thing.size},nr_inodes={_inodes(thing.size)},mode={thing.mode:o}"
            owner = f",uid={plan.identity.uid},gid={plan.identity.gid}"
            linux.mount("private", target, "tmpfs", _QUIET, options + owner)
    for veil in veils:
        linux.mount_setattr(linux.AT_FDCWD, veil, attr_set=_FROZEN)
    if not os.path.lexists("var/tmp"):
        os.makedirs("var", exist_ok=True)
        os.symlink("/tmp", "var/tmp")  # noqa: S108 - the private one
    return layers


def _overlay(plan: Plan, lower: int, path: str, size: int) -> Layer:
    """Mount a private layer in memory over a folder of the host.

    The folders that overlayfs works on have no path in the finished sandbox: it keeps mounts of its own. Between the
    two lies a veil of "whiteouts", which are how overlayfs notes that a name is gone: a cell that makes such a name
    gets one of its own, and never what is below.

    Raises:
        OSError: also when a name is visible that should not be.
    """
    names = [os.path.relpath(veiled, path) for veiled in plan.veiled if inside(veiled, path)]
    inodes = _inodes(size) + sum(name.count("/") + 1 for name in names)
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


def _veil(name: str) -> None:
    """Hide one name of the lower folder; the folders on the way look as they do there."""
    parts = name.split("/")
    for depth in range(1, len(parts)):
        folder = "/".join(parts[:depth])
        made = f"{_LAYER}/veil/{folder}"
        if not os.path.isdir(made):
            found = os.stat(f"{_LAYER}/lower/{folder}", follow_symlinks=False)
            os.mkdir(made)
            os.chmod(made, stat.S_IMODE(found.st_mode))
            with contextlib.suppress(OSError):  # ids that mean nothing in here
                os.chown(made, found.st_uid, found.st_gid)
    os.mknod(f"{_LAYER}/veil/{name}", stat.S_IFCHR, 0)


def _depth(thing: Bind | Tmpfs | str) -> tuple[int, str]:
    path = thing if isinstance(thing, str) else thing.path
    return path.count("/") if path != "/" else 0, path


def _inodes(size: int) -> int:
    """One for each 4 KiB, so that the number of files is bounded as well as their size."""
    return max(1024, size // 4096)


def _attach(fd: int, target: str, *, folder: bool) -> None:
    if folder:
        os.makedirs(target, exist_ok=True)
    elif not os.path.lexists(target):
        os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o444))
    linux.move_mount(fd, "", linux.AT_FDCWD, target)
    os.close(fd)
