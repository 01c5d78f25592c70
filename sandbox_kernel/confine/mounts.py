"""The sandbox's own file tree: a small tmpfs root with the planned folders of the host bound into it.

All sources are opened (as detached copies) before the first mount is made, so no mount can cover a source,
and a link swapped in later leads nowhere. The caller is in a mount namespace of its own; `build` checks that
first.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from .. import linux
from ..plan.model import Bind, Plan, Tmpfs
from ..plan.paths import DEVICES, PROC_FROZEN, PROC_MASKED, inside
from . import namespaces
from .layer import Layer, inodes_for, overlay

_SAFE = linux.MOUNT_ATTR_NOSUID | linux.MOUNT_ATTR_NODEV
_FROZEN = _SAFE | linux.MOUNT_ATTR_RDONLY | linux.MOUNT_ATTR_NOEXEC
_QUIET = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
_BASES = ("/tmp", "/run", "/mnt", "/var", "/dev")  # noqa: S108 - only the place where the new root is put together

Step = Callable[[str], None]


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
    _empty_file("canary")
    for path, text in plan.links:
        if not os.path.lexists(path[1:]) and not any(inside(path, b.path) for b in plan.binds):
            os.makedirs(os.path.dirname(path[1:]) or ".", exist_ok=True)
            os.symlink(text, path[1:])
    layers: dict[str, Layer] = {}
    covers: list[str] = []
    writable = [b.path for b in plan.binds if b.writable and not b.layer]
    shown: list[Bind | Tmpfs] = [*plan.binds, *plan.tmpfs]
    places: list[tuple[str, Bind | Tmpfs | None]] = [*((t.path, t) for t in shown), *((p, None) for p in plan.hidden)]
    for path, thing in sorted(places, key=lambda place: _depth(place[0])):
        step(f"show {path}")
        target = path[1:]
        if thing is None:
            covers += _cover(target)
            continue
        if any(inside(path, w) and path != w for w in writable) and not os.path.exists(target):
            raise FileNotFoundError(2, f"{path}: a place for a mount would have to be made in the workspace")
        if isinstance(thing, Tmpfs):
            os.makedirs(target, exist_ok=True)
            options = f"size={thing.size},nr_inodes={inodes_for(thing.size)},mode={thing.mode:o}"
            owner = f",uid={plan.identity.uid},gid={plan.identity.gid}"
            linux.mount("private", target, "tmpfs", _QUIET, options + owner)
        elif thing.layer:
            layers[path] = overlay(plan, trees[path], path, thing.layer)
        else:
            _attach(trees[path], target, folder=stat.S_ISDIR(os.fstat(trees[path]).st_mode))
    for cover in covers:  # only now: places for mounts may have been made in them
        linux.mount_setattr(linux.AT_FDCWD, cover, attr_set=_FROZEN)
    if not os.path.lexists("var/tmp"):
        os.makedirs("var", exist_ok=True)
        os.symlink("/tmp", "var/tmp")  # noqa: S108 - the private one
    return layers


def _cover(target: str) -> list[str]:
    """Put something empty over what is hidden; a folder's cover is returned, to be frozen at the end."""
    if not os.path.exists(target):
        return []  # it was removed since the plan was made, or is a link that leads in a circle
    if not os.path.isdir(target):
        linux.mount("dev/null", target, None, linux.MS_BIND)
        return []
    linux.mount("hidden", target, "tmpfs", _QUIET, "size=64k,nr_inodes=64,mode=0755")
    return [target]


def _depth(path: str) -> tuple[int, str]:
    return path.count("/") if path != "/" else 0, path


def _empty_file(path: str) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o444))


def _attach(fd: int, target: str, *, folder: bool) -> None:
    if folder:
        os.makedirs(target, exist_ok=True)
    elif not os.path.lexists(target):
        os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
        _empty_file(target)
    linux.move_mount(fd, "", linux.AT_FDCWD, target)
    os.close(fd)
