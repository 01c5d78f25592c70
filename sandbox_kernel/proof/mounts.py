"""Which mount points a finished sandbox may have, by the plan alone; `probes` compares them with those there are."""

from __future__ import annotations

import os
import re

from ..plan.model import Plan
from ..plan.paths import DEVICES, PROC_FROZEN, PROC_MASKED, inside


def expected(plan: Plan) -> dict[str, frozenset[str]]:
    """Every mount point that the finished sandbox may have, with the options that it must have.

    Mounts of the host below a shown folder come with it and must be as restricted as the folder.
    """
    quiet, frozen = {"nosuid", "nodev", "noexec"}, {"ro", "nosuid", "nodev", "noexec"}
    wanted: dict[str, set[str]] = {"/": frozen, "/proc": quiet}
    wanted |= {f"/dev/{name}": {"ro", "nosuid", "noexec"} for name in DEVICES}
    wanted |= {private.path: {"rw"} | quiet for private in plan.tmpfs}
    for bind in plan.binds:
        options = {"nosuid", "nodev"} | (set() if bind.execute else {"noexec"})
        wanted[bind.path] = options | (set() if bind.writable else {"ro"})
    for path in plan.hidden:
        if os.path.exists(path):
            wanted[path] = frozen if os.path.isdir(path) else {"ro", "nosuid", "noexec"}
    for name in PROC_MASKED:
        if os.path.lexists(f"/proc/{name}"):
            wanted[f"/proc/{name}"] = {"ro", "nosuid", "noexec"}
    wanted |= {path: frozen for path in PROC_FROZEN if os.path.isdir(path)}
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), line.split(" ")[4])
            around = [bind for bind in plan.binds if inside(point, bind.path)]
            if around and point not in wanted:
                wanted[point] = wanted[around[-1].path]
    return {point: frozenset(options) for point, options in wanted.items()}
