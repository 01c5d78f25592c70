"""What this machine offers to a sandbox: facts that are read or tried, each with what to do where it is missing."""

from __future__ import annotations

import errno
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .. import linux
from ..confine import landlock
from ..launch.cgroup import divisible, own_group

WATCHED = "limits are watched by the front instead"


@dataclass(frozen=True)
class Fact:
    """One thing that was looked at.

    Attributes:
        ok: whether it is as good as can be.
        how: what an operator can do about it; "" when there is nothing to do.
    """

    name: str
    tried: str
    saw: str
    ok: bool
    how: str = ""

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def facts() -> list[Fact]:
    """Everything, in the order of the layers. For a process with one thread: some of it is tried in forks."""
    return [*_namespaces(), *_landlock(), _seccomp(), _control_groups()]


def about() -> str:
    """The machine in one line."""
    uid = os.geteuid()
    who = "root (uid 0)" if uid == 0 else f"uid {uid}"
    return f"Linux {platform.release()} {platform.machine()}, Python {platform.python_version()} in {sys.prefix}, {who}"


def _namespaces() -> list[Fact]:
    """Tried and not concluded from settings: a filter or a security module may refuse what every setting allows."""

    def user() -> None:
        linux.unshare(linux.CLONE_NEWUSER)

    def mount() -> None:
        linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNS)
        linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
        linux.mount("none", "/proc/self/fd" if not os.path.isdir("/tmp") else "/tmp", "tmpfs")  # noqa: S108

    found = _attempt(user)
    limit = _read("/proc/sys/user/max_user_namespaces")
    how = ""
    if found:
        hints = []
        if limit == "0" or found == "ENOSPC":
            hints.append("raise sysctl user.max_user_namespaces")
        if _read("/proc/sys/kernel/unprivileged_userns_clone") == "0":
            hints.append("set sysctl kernel.unprivileged_userns_clone=1")
        if _read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1":
            hints.append("set sysctl kernel.apparmor_restrict_unprivileged_userns=0 or give Python an AppArmor profile")
        if not hints:
            hints.append("permit unshare (in a container: in its seccomp profile)")
        how = f"For the level `full`: {'; '.join(hints)}."
    saw = f"{found or 'it was allowed'} (max_user_namespaces {limit or 'unknown'})"
    facts = [Fact("user namespaces", "unshare(CLONE_NEWUSER)", saw, not found, how)]
    if not found:
        refused = _attempt(mount)
        how = "" if not refused else (
            "For the level `full`: permit mount in user namespaces (an AppArmor or seccomp profile refuses it)."
        )  # fmt: skip
        facts.append(Fact("mounts", "mount a tmpfs in a namespace", refused or "it was allowed", not refused, how))
    return facts


def _landlock() -> list[Fact]:
    abi = linux.landlock_abi()
    if abi:
        lost = " ".join(landlock.losses(abi))
        how = "A newer kernel brings what is missing." if lost else ""
        return [Fact("Landlock", "ask for the ABI", f"ABI {abi}: {lost}" if lost else f"ABI {abi}", not lost, how)]
    modules = _read("/sys/kernel/security/lsm")
    how = "Use Linux 5.13 or newer with Landlock among the boot parameter's modules: lsm=landlock,..."
    if "landlock" in modules.split(","):
        how = "The kernel has it, so something hides it: permit the landlock_* calls (a container's seccomp profile)."
    return [Fact("Landlock", "ask for the ABI", "there is none", False, how)]


def _seccomp() -> Fact:
    actions = _read("/proc/sys/kernel/seccomp/actions_avail").split()
    wanted = {"kill_process", "errno", "allow", "user_notif"}
    missing = sorted(wanted - set(actions))
    how = "Use a kernel with CONFIG_SECCOMP_FILTER, 5.0 or newer." if missing else ""
    saw = f"lacks {', '.join(missing)}" if missing else ", ".join(actions)
    return Fact("seccomp", "read the actions that the kernel has", saw, not missing, how)


def _control_groups() -> Fact:
    """A bonus: the memory limit holds without it."""
    tried = "look for a control group of version 2 that this user may divide"
    group = own_group()
    if group is None:
        return Fact("control groups", tried, f"there is none; {WATCHED}", True)
    offered = _read(str(group / "cgroup.controllers")).split()
    saw = f"{group} has {', '.join(offered) or 'no controllers'}"
    if divisible(group):
        return Fact("control groups", tried, f"{saw}; kernels get one of their own if nothing else runs in it", True)
    return Fact("control groups", tried, f"{saw}, and cannot be divided by this user; {WATCHED}", True)


def audit_log(file: str) -> Fact:
    """Whether a kernel of this user could write the log that the policy asks for (see `sandbox_kernel.audit`)."""
    folder = Path(file).parent
    how = f"Make the folder so that the users of kernels may write there: install -d -m 1733 {folder}"
    if not folder.is_dir():
        return Fact("audit log", f"look for the folder of {file}", f"{folder} is no folder", False, how)
    if not os.access(folder, os.W_OK | os.X_OK):
        return Fact("audit log", f"ask for {folder}", "this user cannot write there", False, how)
    return Fact("audit log", f"ask for {folder}", "this user can write there", True)


def _attempt(act: Callable[[], None]) -> str:
    """Do it in a child; "" when it was allowed, else the errno's name."""
    pid = os.fork()
    if pid == 0:
        try:
            act()
            os._exit(0)
        except OSError as error:
            os._exit(min(error.errno or 255, 255))
        finally:
            os._exit(255)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return "" if code == 0 else errno.errorcode.get(code, f"exit code {code}")


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
