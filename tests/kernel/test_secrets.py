"""What the launcher knows must not be in the worker: not in its memory, its environment or its /proc."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import LEVELS, Start

# The needles reach the cell with 77 added to each byte, and so is each piece of memory before it is searched: the
# plain text of a needle never exists in the worker unless it was there before. (XOR would not do: the altered copy
# of the altered needles is the plain text.)
SCAN = """
import ctypes
table = bytes((b + 77) % 256 for b in range(256))
def scan(needles):
    found = set()
    for line in open("/proc/self/maps"):
        span, mode, *rest = line.split()
        if not mode.startswith("r") or (rest and rest[-1] in ("[vvar]", "[vvar_vclock]", "[vsyscall]")):
            continue
        low, high = (int(x, 16) for x in span.split("-"))
        for at in range(low, high, 1 << 20):
            try:
                piece = ctypes.string_at(at, min((1 << 20) + 64, high - at))
            except OSError:
                continue
            veiled = piece.translate(table)
            found |= {i for i, needle in enumerate(needles) if needle in veiled}
    return sorted(found)
print(scan(NEEDLES))
"""


def _veiled(needles: list[str]) -> list[bytes]:
    return [bytes((b + 77) % 256 for b in needle.encode()) for needle in needles]


@pytest.mark.parametrize("level", LEVELS)
def test_planted_secrets_are_nowhere_in_the_worker(start: Start, level: str) -> None:
    planted = {"AWS_SECRET_ACCESS_KEY": "wJalrXUt-planted-1", "REPORT_LABEL": "label-planted-2"}
    kernel = start(level, env=planted)
    connection = json.loads(Path(kernel.manager.connection_file).read_text())
    needles = [*planted.values(), connection["key"], kernel.manager.connection_file]
    control = kernel.good("marker = 'marker-' + 'planted-0'").reply["execution_count"]
    assert control
    code = SCAN.replace("NEEDLES", repr(_veiled([*needles, "marker-planted-0"])))
    assert kernel.good(code, timeout=60).stdout.strip() == "[4]", "only the marker that the cell made itself"
    code = "import os, subprocess\nprint(dict(os.environ), subprocess.run(['env'], capture_output=True))"
    outcome = kernel.good(code)
    assert not [n for n in needles if n in outcome.stdout]


@pytest.mark.parametrize("level", LEVELS)
def test_proc_tells_nothing_of_the_launcher(start: Start, level: str) -> None:
    kernel = start(level, env={"REPORT_LABEL": "label-planted-3"})
    code = """
import glob
for f in glob.glob('/proc/[0-9]*/environ') + glob.glob('/proc/[0-9]*/cmdline') + ['/proc/self/environ']:
    try: print(open(f, 'rb').read())
    except OSError: pass
"""
    text = kernel.good(code).stdout
    assert "label-planted-3" not in text and kernel.manager.connection_file not in text


@pytest.mark.parametrize("level", LEVELS)
def test_the_kernel_object_holds_no_key(start: Start, level: str) -> None:
    kernel = start(level)
    assert kernel.good("print(get_ipython().kernel.session.key)").stdout.strip() == "b''"
