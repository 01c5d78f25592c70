"""A control group of its own for the sandbox, where this process may divide the one it is in.

The watchdog bounds memory and processes everywhere, but looks from time to time; what is taken between two looks is not
seen. A control group is the kernel's own bound, without a gap. It is a second line only: groups are seldom delegated to
whoever starts a notebook (systemd's ``Delegate=yes``), and a group that holds further processes cannot be divided.

Source: the kernel's Documentation/admin-guide/cgroup-v2.rst, "Delegation" and "No Internal Process Constraint".
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from ..errors import MemoryLimit
from ..policy import Limits

CONTROLLERS = ("memory", "pids")
# The watchdog, whose error tells the person more, is to act first; the group stops what it could not see in time.
_MEMORY_ROOM = 17 / 16
_TOGETHER_S = 5.0
_FRONT, _SANDBOX = "sandbox-kernel-front", "sandbox-kernel-cells"


class Cgroup:
    """The sandbox's group, a child of the one that this process was started in.

    Attributes:
        folder: below cgroup2's mount.
    """

    def __init__(self, parent: Path, folder: Path, front: Path, memory: int) -> None:
        self._parent, self.folder, self._front, self._memory = parent, folder, front, memory
        self._kills = self._untold = 0
        self._until = 0.0  # when kills that nobody was told of are forgotten

    def add(self, pid: int) -> str:
        """Move a process into the group; what it forks from now on is in it, too.

        Returns:
            what holds now, in words; from the files, not from what was asked for.
        """
        try:
            (self.folder / "cgroup.procs").write_text(str(pid))
            if str(pid) not in (self.folder / "cgroup.procs").read_text().split():
                raise OSError("it is not there")
        except OSError as error:
            return f"no control group: the sandbox could not be moved into it ({error})"
        return "control group: " + ", ".join(
            f"{name} {_read(self.folder / name)}" for name in ("memory.max", "pids.max") if _read(self.folder / name)
        )

    def breach(self, status: int) -> MemoryLimit | None:
        """The error, if a process that has ended like that was killed by the kernel for want of memory.

        The kernel counts its kills and does not say whom: of several that end at about the same time (the workers of a
        session and its branches) as many are told as there were kills.

        Args:
            status: of the process, from waitpid(2).
        """
        before, self._kills = self._kills, _counter(self.folder / "memory.events", "oom_kill")
        now = time.monotonic()
        if self._kills > before:
            self._untold, self._until = self._kills - before, now + _TOGETHER_S
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        if not killed or not self._untold or now > self._until:
            return None
        self._untold -= 1
        return MemoryLimit(max(self._memory, int(_read(self.folder / "memory.peak") or 0)), self._memory)

    def close(self) -> None:
        """Kill what is left in it, and remove it; idempotent. This process goes back to where it was."""
        with contextlib.suppress(OSError):
            (self.folder / "cgroup.kill").write_text("1")
        _remove(self.folder)
        _undivide(self._parent, self._front)


def make_group(limits: Limits, *, own: Path | None = None, controllers: tuple[str, ...] = CONTROLLERS) -> Cgroup | None:
    """Make a group with these limits; None where it cannot be had, and then nothing has changed.

    This process moves into a child group as well, since only a group without processes can hand controllers down.

    Args:
        limits: `memory` (bytes) and `processes`.
        own: the group that this process is in; None: looked for.
        controllers: that must be there.
    """
    own = own_group() if own is None else own
    if own is None or not divisible(own, controllers):
        return None
    front, folder = own / f"{_FRONT}-{os.getpid()}", own / f"{_SANDBOX}-{os.getpid()}"
    try:
        front.mkdir()
        (front / "cgroup.procs").write_text(str(os.getpid()))
        if controllers:
            # Refused with EBUSY while any other process is in the group.
            (own / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in controllers))
        folder.mkdir()
        if "memory" in controllers:
            _bound(folder / "memory.max", int(limits.memory * _MEMORY_ROOM))
            with contextlib.suppress(FileNotFoundError):  # (no swap on this machine)
                _bound(folder / "memory.swap.max", 0)
        if "pids" in controllers:
            _bound(folder / "pids.max", limits.processes)
    except OSError:
        _remove(folder)
        _undivide(own, front)
        return None
    return Cgroup(own, folder, front, limits.memory)


def own_group() -> Path | None:
    """The folder of this process's group of version 2; None: there is none."""
    group = next((line[3:] for line in _read(Path("/proc/self/cgroup")).splitlines() if line.startswith("0::")), None)
    if group is None:
        return None
    for line in _read(Path("/proc/self/mountinfo")).splitlines():
        before, _, after = line.partition(" - ")
        root, mount = before.split()[3:5]
        if after.startswith("cgroup2 ") and (group + "/").startswith(root.rstrip("/") + "/"):
            return Path(mount) / os.path.relpath(group, root)
    return None


def divisible(group: Path, controllers: tuple[str, ...] = CONTROLLERS) -> bool:
    """Whether this user may make groups below it that have these controllers."""
    offered = _read(group / "cgroup.controllers").split()
    files = (group, group / "cgroup.procs", group / "cgroup.subtree_control")
    return set(controllers) <= set(offered) and all(os.access(file, os.W_OK) for file in files)


def _bound(file: Path, value: int) -> None:
    if not file.exists():
        raise FileNotFoundError(file)
    file.write_text(str(value))


def _undivide(own: Path, front: Path) -> None:
    """Back to one group. Only without controllers can the parent take its process again."""
    given = _read(own / "cgroup.subtree_control").split()
    with contextlib.suppress(OSError):
        if given:
            (own / "cgroup.subtree_control").write_text(" ".join(f"-{name}" for name in given))
        (own / "cgroup.procs").write_text(str(os.getpid()))
    _remove(front)


def _remove(group: Path) -> None:
    with contextlib.suppress(OSError):  # its processes may still be ending; an empty group costs nothing
        group.rmdir()


def _counter(file: Path, name: str) -> int:
    found = dict(line.split(maxsplit=1) for line in _read(file).splitlines() if " " in line)
    return int(found.get(name, "0"))


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
