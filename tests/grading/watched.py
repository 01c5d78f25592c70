"""Runs a command and prints, as JSON, its exit status, what it wrote, and which processes it has left."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36


def left() -> list[str]:
    """Command lines of what lives below this process; what has ended is collected."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) != os.getpid():
                continue
            if fields[0] == "Z":
                os.waitpid(int(name), os.WNOHANG)
            else:
                found.append(Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
        except (OSError, ChildProcessError):
            continue
    return found


def main() -> None:
    """The arguments: a file whose appearance is the moment for SIGINT, or "-"; the command."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # whatever loses its parent is ours
    moment, *command = sys.argv[1:]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if moment != "-":
        end = time.monotonic() + 60
        while not Path(moment).exists() and time.monotonic() < end:
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
    output, _ = running.communicate()
    end = time.monotonic() + 10
    while left() and time.monotonic() < end:
        time.sleep(0.05)
    json.dump({"status": running.returncode, "output": output, "left": left()}, sys.stdout)


if __name__ == "__main__":
    main()
