"""Copies that lie: each costs the session that made it, and nothing else."""

from __future__ import annotations

import os
import time

import psutil
import pytest

from ..waiting import wait_for
from .conftest import Running, Start

# What a cell can do to the code that makes copies: it runs in its own process.
PATCH = """
import os, time, signal, socket
from sandbox_kernel.worker import checkpoint
from sandbox_kernel.channel.framing import encode
real = checkpoint.Copier._sleep
def adopted(self, fds, zygote):
    link = self._link
    os.setsid()
    os.dup2(fds[1], 1); os.dup2(fds[2], 2); link.renew(fds[0])
    while os.getppid() != zygote: time.sleep(0.001)
    return link
def sleep(self, fds, zygote):
    link = adopted(self, fds, zygote)
    {lie}
    while True: time.sleep(1)
checkpoint.Copier._sleep = sleep
x = 41
"""
LIES = {
    "a reply": "link.send(encode({'type': 'reply', 'id': 'x', 'content': {}, 'execution_count': 1}))",
    "output": "link.send(encode({'type': 'stream', 'parent': '', 'name': 'stdout', 'text': 'forged'}))",
    "raw output": "os.write(1, b'forged')",
    "junk": "link._socket.send(b'\\xff' * 100)",
    "sleeps twice": "[link.send(encode({'type': 'asleep', 'pid': os.getpid()})) for _ in range(2)]",
    "the zygote's pid": "link.send(encode({'type': 'asleep', 'pid': zygote if zygote > 1 else 2}))",
    "no process": "link.send(encode({'type': 'asleep', 'pid': 4194304}))",
    "never wakes": "link.send(encode({'type': 'asleep', 'pid': os.getpid()}))",
    "wakes as junk": "link.send(encode({'type': 'asleep', 'pid': os.getpid()})); link.wait(); os.write(3, b'junk')",
    "wakes too early": "link.send(encode({'type': 'ready', 'python': '', 'banner': '', 'execution_count': 1}))",
    "says nothing": "pass",
    "ends": "os._exit(0)",
}


def _beat(kernel: Running, seconds: float = 0.6) -> None:
    """Time for a copy; the kernel answers meanwhile."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        kernel.client.kernel_info(reply=True, timeout=30)
        time.sleep(0.05)


@pytest.mark.parametrize("lie", LIES)
def test_a_copy_that_lies(start: Start, lie: str) -> None:
    kernel = start("auto")
    shown = kernel.good(PATCH.format(lie=LIES[lie])).stdout
    _beat(kernel)
    began = time.monotonic()
    outcome = kernel.run("os._exit(3)")
    assert time.monotonic() - began < 28
    assert "variables of this session are lost" in outcome.reply["evalue"], "no lie is woken"
    assert "forged" not in shown + outcome.stdout
    assert kernel.good("print(6 * 7)").stdout == "42\n"
    _beat(kernel)
    wait_for(lambda: len(psutil.Process(kernel.pid).children(recursive=True)) <= 5)  # the liar is gone


@pytest.mark.parametrize("level", ["full", "seccomp+landlock"])
def test_a_copy_behind_another_process_does_not_outlive_its_time(start: Start, level: str) -> None:
    # The channel is served by a child of the process whose pid was told; that one is ended by the limit.
    kernel = start(level, policy='[limits]\ncell_time = "2s"\ninterrupt_grace = "500ms"\n')
    lie = (
        "if not os.fork():\n        os.setsid()\n        link.renew(os.dup(3))\n"
        "        link.wait(); link.receive()\n"
        "        link.send(encode({'type': 'ready', 'python': '', 'banner': '', 'execution_count': 3}))\n"
        "        while True: pass\n"
        "    link.send(encode({'type': 'asleep', 'pid': os.getpid()}))"
    )
    kernel.good(PATCH.format(lie=lie))
    _beat(kernel)
    kernel.run("os._exit(3)")
    kernel.run("'to the impostor'")
    assert kernel.good("print(6 * 7)").stdout == "42\n"
    time.sleep(0.5)
    burning = [p for p in psutil.Process(kernel.pid).children(recursive=True) if p.cpu_percent(0.3) > 50]
    assert not burning


@pytest.mark.parametrize("level", ["full", "seccomp+landlock"])
def test_daemons_of_a_lost_worker_end_while_its_copies_stay(start: Start, level: str) -> None:
    kernel = start(level)
    kernel.good("x = 41; import os, time")
    _beat(kernel)
    kernel.run(
        "if not os.fork():\n    os.setsid()\n    if not os.fork():\n        time.sleep(600)\n    os._exit(0)\n"
        "os.wait(); os._exit(3)"
    )
    kernel.good("assert x == 41")
    sleepers = [p for p in psutil.Process(kernel.pid).children(recursive=True) if _sleeps(p)]
    assert not sleepers


def _sleeps(process: psutil.Process) -> bool:
    # A copy waits in recv, the daemon in nanosleep.
    try:
        with open(f"/proc/{process.pid}/wchan") as file:
            return "nanosleep" in file.read()
    except OSError:
        return False


def test_a_cell_that_kills_its_copies_harms_only_itself(start: Start) -> None:
    kernel = start("auto")
    kernel.good("x = 41; import os, signal")
    _beat(kernel)
    outcome = kernel.run("os.kill(-1, signal.SIGKILL); import time; time.sleep(0.3); os._exit(3)")
    assert "are lost" in outcome.reply["evalue"] and os.path.exists(f"/proc/{kernel.pid}")
    kernel.good("1")
