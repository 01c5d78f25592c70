"""Many cells that each die in another way, in one kernel's life.

``SANDBOX_KERNEL_SOAK=1000`` makes it that many deaths at each level (minutes); otherwise a short form runs.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from sandbox_kernel.session.checkpoints import KEPT

from ..kernel.conftest import LEVELS, Running, Start

DEATHS = int(os.environ.get("SANDBOX_KERNEL_SOAK") or 20)
POLICY = """
[limits]
memory = "300MiB"
processes = 24
open_files = 128
output = "64KiB"
messages = 200
interrupt_grace = "300ms"
tmp = "32MiB"
"""

# Each leaves something that would be missed: memory, files, children, descriptors, half a message.
# (Not by /proc/self: without namespaces a copy that was woken has none.)
JUNK = """
import os, stat
for fd in range(3, 128):
    try:
        if stat.S_ISSOCK(os.fstat(fd).st_mode):
            os.write(fd, os.urandom(500))
    except OSError: pass
import time; time.sleep(5)
"""
KILLS: dict[str, str] = {
    "segfault": "import ctypes; ctypes.string_at(0)",
    "exit": "import os, tempfile; open(f'{tempfile.gettempdir()}/left', 'wb').write(b'x' * 100_000); os._exit(3)",
    "abort": "import os; os.abort()",
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "memory": "import mmap\nm = mmap.mmap(-1, 1 << 30)\nwhile True: m.write(b'x' * (1 << 20))",
    "fatal error": "import ctypes; ctypes.pythonapi.Py_FatalError(b'x')",
    "junk": JUNK,
    "half a message": JUNK.replace("os.urandom(500)", "bytes([1, 0, 0, 255, 0, 0, 0]) + bytes(65529)"),
    "channel closed": "import os, time\nos.closerange(3, 128)\ntime.sleep(9)",
    "descriptors": "import os\nkept = []\ntry:\n    while True: kept.append(os.open('/dev/null', 0))\n"
    "except OSError: os._exit(4)",
    "flood": "import os\nos.set_blocking(1, True)\nfor _ in range(40): print('x' * 9000)\nos._exit(5)",
    "displays": "for i in range(400): display(i)\nimport os; os._exit(6)",
    "orphans": "import os, time\nfor _ in range(5):\n    if os.fork() == 0:\n        os.setsid(); time.sleep(99)\n"
    "os._exit(7)",
    "threads": "import threading, time, os\ntry:\n"
    "    while True: threading.Thread(target=time.sleep, args=(99,), daemon=True).start()\n"
    "except RuntimeError: os._exit(8)",
}
FORK_BOMB = "import os, time\nwhile True:\n    try: os.fork()\n    except OSError: time.sleep(0.2); os._exit(9)"


DEADLY = ("WorkerLost", "ProtocolError", "MemoryLimit", "ProcessLimit")


class Front:
    """What must not grow."""

    def __init__(self, pid: int) -> None:
        self.process = psutil.Process(pid)

    @property
    def memory(self) -> int:
        # (Not what is its own alone: a collection of garbage writes to the pages that are shared with the zygote,
        # which makes them its own, once.)
        return int(self.process.memory_info().rss)

    @property
    def descriptors(self) -> int:
        return self.process.num_fds()

    def below(self) -> list[psutil.Process]:
        return self.process.children(recursive=True)

    def zombies(self) -> int:
        return sum(_status(p) == psutil.STATUS_ZOMBIE for p in self.below())

    def settled(self, processes: int, more: int = 0) -> bool:
        """Waits until only so many processes are left, or up to so many more."""
        end = time.monotonic() + 30
        while not processes <= len(self.below()) <= processes + more or self.zombies():
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True


def _status(process: psutil.Process) -> str:
    try:
        return str(process.status())
    except psutil.NoSuchProcess:
        return ""


def _mounts() -> int:
    return len(Path("/proc/self/mountinfo").read_text().splitlines())


def _namespaces(processes: list[psutil.Process]) -> int:
    """In how many mount and pid namespaces they are; 0 when that may not be seen."""
    found = set()
    for process in processes:
        for kind in ("pid", "mnt"):
            with contextlib.suppress(OSError):
                found.add(os.readlink(f"/proc/{process.pid}/ns/{kind}"))
    return len(found)


def _files(processes: list[psutil.Process]) -> int:
    """Bytes in the private folders of the sandbox; 0 when they may not be seen."""
    used = 0
    for path in ("tmp", "dev/shm", "home/sandbox"):
        with contextlib.suppress(OSError):
            found = os.statvfs(f"/proc/{processes[0].pid}/root/{path}")
            if found.f_blocks * found.f_frsize <= 256 << 20:  # the host's own is larger
                used += (found.f_blocks - found.f_bfree) * found.f_frsize
    return used


def _deaths(level: str) -> Iterator[tuple[str, str]]:
    ways = list(KILLS.items()) + ([("fork bomb", FORK_BOMB)] if level == "full" else [])
    order = random.Random(7)
    while True:
        order.shuffle(ways)
        yield from ways


def _state(front: Front) -> dict[str, float]:
    return {
        "memory_mib": front.memory / 2**20, "descriptors": front.descriptors, "processes": len(front.below()),
        "mounts": _mounts(), "namespaces": _namespaces(front.below()), "files": _files(front.below()),
    }  # fmt: skip


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("checkpoints", ["off", "on"])
@pytest.mark.parametrize("level", LEVELS)
def test_a_kernel_outlives_its_workers(start: Start, level: str, checkpoints: str) -> None:
    kernel = start(level, policy=f'{POLICY}[recovery]\ncheckpoints = "{checkpoints}"\n')
    front, deaths = Front(kernel.pid), _deaths(level)
    # The zygote and the worker; copies come and go, with a channel, two pipes and a pidfd each.
    copies = KEPT + 1 if checkpoints == "on" else 0
    # Warm up: each way once, so that whatever is allocated once (code paths, caches, arenas) is there.
    for _ in range(len(KILLS) + (level == "full")):
        _die(kernel, *next(deaths))
    kernel.good("pass")  # the next worker is there, with all of its descriptors
    assert front.settled(2, copies), front.below()
    before = _state(front)
    began = time.monotonic()
    for at in range(DEATHS):
        _die(kernel, *next(deaths))
        if DEATHS >= 100 and at % 100 == 99:
            print(f"{level}: {at + 1} deaths, {time.monotonic() - began:.0f} s, {_state(front)}", flush=True)
    kernel.good("pass")
    assert front.settled(2, copies), front.below()
    # (The history's database opens files for a moment.)
    after = _state_with(front, before["descriptors"] + 4 * copies)
    print(f"{level}: {DEATHS} deaths in {time.monotonic() - began:.1f} s\nbefore {before}\nafter  {after}")
    assert front.zombies() == 0
    assert after["memory_mib"] < before["memory_mib"] * 1.1
    assert after["descriptors"] <= before["descriptors"] + 4 * copies
    for name in ("mounts", "namespaces", "files"):
        assert after[name] == before[name], name
    assert kernel.good("print(6 * 7)").stdout == "42\n"


def _state_with(front: Front, descriptors: int, seconds: float = 20.0) -> dict[str, float]:
    """Its state as soon as it has no more of them, or when the time is over."""
    end = time.monotonic() + seconds
    while (state := _state(front))["descriptors"] > descriptors and time.monotonic() < end:
        time.sleep(0.05)
    return state


def _die(kernel: Running, way: str, code: str) -> None:
    outcome = kernel.run(code, timeout=30)
    assert not outcome.ok, f"{way} did not die"
    assert outcome.reply["ename"] in DEADLY, (way, outcome.reply)
    told = outcome.reply["evalue"]
    assert "variables of this session are lost" in told or "variables of this session were restored" in told, way
