"""Each limit in a real kernel: its breach ends the cell with its own error, and the kernel lives on."""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

import psutil
import pytest

from ..kernel.conftest import LEVELS, Outcome, Running, Start
from ..waiting import wait_for

POLICY = """
[recovery]
checkpoints = "off"  # what a limit costs without them; with them: tests/kernel/test_recovery.py
[limits]
memory = "500MiB"
processes = 40
cell_time = "30s"
cell_cpu = "1500ms"
output = "200KiB"
output_total = "2MiB"
messages = 200
interrupt_grace = "1s"
"""


@pytest.fixture(params=LEVELS)
def kernel(start_shared: Start, request: pytest.FixtureRequest) -> Running:
    """None may count on what another has left."""
    return start_shared(request.param, policy=POLICY)


@pytest.fixture(params=LEVELS)
def hasty(start_shared: Start, request: pytest.FixtureRequest) -> Running:
    return start_shared(request.param, policy=POLICY.replace('"30s"', '"2s"'))


def breach(kernel: Running, code: str, name: str, rule: str, state: str) -> Outcome:
    """Runs a cell that is ended by a limit, and an ordinary one after it."""
    kernel.good("x = 1")
    outcome = kernel.run(code, timeout=50)
    assert outcome.reply["ename"] == name, outcome.reply
    assert rule in outcome.reply["evalue"] and f"are {state}" in outcome.reply["evalue"]
    assert [e["ename"] for e in outcome.of("error")] == [name], "one error is shown, and it is the limit's"
    assert kernel.run("x").ok == (state == "kept")
    assert kernel.good("print(6 * 7)").stdout == "42\n"
    return outcome


SPIN = "def f():\n    while True: pass\nf()"
DEAF = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"


def test_wall_time(hasty: Running) -> None:
    began = time.monotonic()
    breach(hasty, "import time\ntime.sleep(60)", "TimeLimit", "limits.cell_time = 2 s", "kept")
    assert time.monotonic() - began < 40


def test_wall_time_of_a_cell_that_is_deaf(hasty: Running) -> None:
    breach(hasty, DEAF + "time.sleep(60)", "TimeLimit", "limits.cell_time = 2 s", "lost")


def test_processor_time(kernel: Running) -> None:
    breach(kernel, SPIN, "TimeLimit", "limits.cell_cpu = 1.5 s", "kept")


def test_processor_time_of_children_one_after_the_other(kernel: Running) -> None:
    code = """
import os, time
while True:
    if os.fork() == 0:
        end = time.process_time() + 0.2
        while time.process_time() < end: pass
        os._exit(0)
    os.wait()
"""
    breach(kernel, code, "TimeLimit", "limits.cell_cpu = 1.5 s", "kept")


@pytest.fixture(params=LEVELS)
def narrow(start_shared: Start, request: pytest.FixtureRequest) -> Running:
    # (Private folders that are smaller, as with the presets: else they say how large a file may be.)
    sizes = 'disk = "32MiB"\ntmp = "32MiB"\nshm = "32MiB"\nhome = "32MiB"\n[files]\nworkspace = "read-write"\n'
    return start_shared(request.param, policy=POLICY + sizes)


def test_one_file_is_never_larger_than_the_disk_s_limit(narrow: Running) -> None:
    code = "import os\nwith open('one', 'wb') as file: {}"
    outcome = narrow.run(code.format("file.truncate(2 << 30)"))
    assert outcome.reply["ename"] == "OSError" and "[Errno 27]" in outcome.reply["evalue"], outcome.reply
    assert "A file may have 32 MiB: limits.file_size and limits.disk" in outcome.stderr
    outcome = narrow.run(code.format("os.posix_fallocate(file.fileno(), 0, 2 << 30)"))
    # (Where a file system cannot reserve, the C library writes to each block: then the look may come first.)
    assert outcome.reply["ename"] in ("OSError", "DiskLimit"), outcome.reply
    assert (narrow.folder / "one").stat().st_size <= 32 << 20
    narrow.good("import os\nos.remove('one')")


HELD = """
import time
held = []
while True:
    held.append(open('gone', 'wb'))
    os.remove('gone')
    held[-1].write(bytes(1 << 20))
    held[-1].flush()
    time.sleep(0.005)
"""


def test_files_that_were_removed_and_are_open_count(narrow: Running) -> None:
    if os.geteuid() != 0:
        pytest.skip("other processes' descriptors are only shown to root")
    narrow.good("import os")
    outcome = narrow.run(HELD, timeout=50)
    assert outcome.reply["ename"] == "DiskLimit" and "limits.disk = 32 MiB" in outcome.reply["evalue"], outcome.reply
    narrow.run("held.clear()")  # (where the worker lives on)
    assert narrow.good("print(6 * 7)").stdout == "42\n"


SHARED = "import mmap\nm = mmap.mmap(-1, 900 << 20)\nb = b'x' * (1 << 20)\nwhile True: m.write(b)"
CHILDREN = """
import os, time
for _ in range(6):
    if os.fork() == 0:
        b = bytearray(b'x') * (120 << 20)
        time.sleep(30)
        os._exit(0)
time.sleep(5)
"""


@pytest.mark.parametrize("code", [SHARED, CHILDREN], ids=["shared memory", "many children"])
def test_memory_that_no_single_process_s_limit_sees(kernel: Running, code: str) -> None:
    breach(kernel, code, "MemoryLimit", "limits.memory = 500 MiB", "lost")


# Forks that make what they inherited their own without the page faults by which that shows.
HIDDEN = """
import ctypes, mmap, os, time
size, huge = 150 << 20, 2 << 20
data = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
libc, start = ctypes.CDLL(None), ctypes.addressof(ctypes.c_char.from_buffer(data))
ctypes.memset(start, 1, size)
def give_back_for_huge_pages():
    libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), 14)
    for at in range(-(-start // huge) * huge, start + size - huge, huge):
        libc.madvise(ctypes.c_void_p(at), ctypes.c_size_t(huge), mmap.MADV_DONTNEED)
        ctypes.memset(at, 1, 1)
def collapse():
    end = time.monotonic() + 15
    for at in range(-(-start // huge) * huge, start + size - huge, huge):
        while libc.madvise(ctypes.c_void_p(at), ctypes.c_size_t(huge), 25) and time.monotonic() < end:
            time.sleep(0.001)  # another one is at the same pages
for _ in range(8):
    if os.fork() == 0:
        HOW()
        time.sleep(30)
        os._exit(0)
time.sleep(20)
"""


@pytest.mark.parametrize("how", ["give_back_for_huge_pages", "collapse"])
@pytest.mark.parametrize("level", LEVELS)
def test_memory_that_forks_hide(start_shared: Start, level: str, how: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only a root front can have the kernel count what a process holds")
    huge = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not huge.exists() or "[never]" in huge.read_text():
        pytest.skip("this machine has no huge pages")
    if how == "collapse" and tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) < (6, 1):
        pytest.skip("pages can be collapsed at once since Linux 6.1")
    kernel = start_shared(level, policy=POLICY.replace('cell_cpu = "1500ms"', ""))  # which it may use up on the way
    breach(kernel, HIDDEN.replace("HOW", how), "MemoryLimit", "limits.memory = 500 MiB", "lost")


def test_memory_in_files_counts_at_level_full(start: Start) -> None:
    if os.geteuid() != 0:
        pytest.skip("only a root front can see how full the sandbox's folders are")
    kernel = start("full", policy=POLICY.replace("[limits]", '[limits]\ntmp = "700MiB"\nfile_size = "1GiB"'))
    code = "with open('/tmp/big', 'wb') as f:\n    while True: f.write(b'x' * (1 << 20))"
    outcome = breach(kernel, code, "MemoryLimit", "limits.memory = 500 MiB", "lost")
    assert "files in memory-backed folders" in outcome.reply["evalue"]


def test_memory_of_one_process_is_an_ordinary_error(kernel: Running) -> None:
    kernel.good("x = 1")
    assert kernel.run("b = bytearray(900 << 20)").reply["ename"] == "MemoryError"
    assert kernel.good("x").ok


def test_a_fork_pool_on_shared_data_is_no_breach(kernel: Running) -> None:
    kernel.good("data = bytearray(b'x') * (150 << 20)")
    code = """
import os, time
pids = []
for i in range(6):
    pids.append(os.fork())
    if not pids[-1]:
        time.sleep(0.5)
        os._exit(data[i * 1000])
print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids])
"""
    assert kernel.good(code).stdout == f"{[ord('x')] * 6}\n"


def test_processes_are_refused_or_ended(kernel: Running) -> None:
    code = """
import os, time
pids = []
try:
    for _ in range(200):
        pids.append(os.fork())
        if pids[-1] == 0:
            time.sleep(60)
            os._exit(0)
except BlockingIOError:
    print('refused', len(pids))
time.sleep(1)
for pid in pids: os.kill(pid, 9); os.waitpid(pid, 0)
"""
    outcome = kernel.run(code)
    if outcome.ok:
        assert "refused" in outcome.stdout and int(outcome.stdout.split()[1]) < 45
    else:
        assert outcome.reply["ename"] == "ProcessLimit" and "limits.processes = 40" in outcome.reply["evalue"]
    assert kernel.run("1").reply["status"] == "ok" or kernel.good("2").ok


def test_too_much_text_is_cut_and_said(kernel: Running) -> None:
    outcome = kernel.good("for i in range(6000): print(f'{i:099}')\n'result'")
    assert 150_000 < len(outcome.stdout) <= 205_000
    first, last, _hint = [c["text"] for c in outcome.of("stream") if c["name"] == "stderr"]
    assert "limits.output = 200 KiB" in first and "KiB of text" in last
    assert outcome.stdout.startswith(f"{0:099}\n") and outcome.stdout.endswith(f"{5999:099}\n")


def test_an_endless_flood_is_ended(kernel: Running) -> None:
    # (Not by the limit of processor time, if the machine is slow.)
    code = "import os\nb = b'y' * 4000 + b'\\n'\nwhile True: os.write(1, b)"
    outcome = breach(kernel, code, "OutputLimit", "limits.output_total = 2 MiB", "kept")
    assert len(outcome.stdout) <= 205_000


FLOODS: dict[str, str] = {
    "prints": "while True: print('x' * 200)",
    "unfinished lines": "import sys\nwhile True: sys.stdout.write('.' * 200)",
    "both streams": "import sys\nwhile True: print('a' * 200); print('b' * 200, file=sys.stderr)",
    "displays": "while True: display('x' * 200)",
    "clearing": "from IPython.display import clear_output\nwhile True: clear_output(); print('x' * 200)",
    "updates": "h = display('a', display_id=True)\nwhile True: h.update('x' * 200)",
    "comms": "from comm import create_comm\nc = create_comm(target_name='t')\nwhile True: c.send({'x': 'y' * 200})",
    "large messages": "while True: display({'text/plain': 'x' * 20_000_000}, raw=True)",
    "large buffers": "from comm import create_comm\nc = create_comm(target_name='t')\n"
    "b = b'x' * 50_000_000\nwhile True: c.send({}, buffers=[b])",
    "raw": "import os\nwhile True: os.write(2, b'x' * 60000)",
    "a child": "import subprocess\nsubprocess.run(['cat', '/dev/zero'])",
}


@pytest.mark.parametrize("flood", FLOODS)
def test_the_front_stays_responsive_and_small_under_a_flood(start_shared: Start, flood: str) -> None:
    kernel = start_shared("auto", policy=POLICY.replace('"1500ms"', '"30s"').replace('"500MiB"', '"2GiB"'))
    kernel.good("1")
    before = _resident(kernel.pid)
    request = kernel.client.execute(FLOODS[flood])
    worst = 0.0
    largest = before
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        worst = max(worst, _control_round_trip(kernel))
        largest = max(largest, _resident(kernel.pid))
    if not kernel.client.shell_channel.msg_ready():  # (else it would hit the next cell)
        kernel.manager.interrupt_kernel()
    reply = kernel.client.get_shell_msg(timeout=60)
    while reply["parent_header"].get("msg_id") != request:
        reply = kernel.client.get_shell_msg(timeout=60)
    print(f"{flood}: worst answer {worst * 1000:.0f} ms, front +{(largest - before) >> 20} MiB")
    assert reply["content"]["status"] == "error"
    assert kernel.good("print('alive')").stdout == "alive\n"
    assert worst < 6.0
    assert largest - before < 400 << 20


def _control_round_trip(kernel: Running) -> float:
    began = time.monotonic()
    request = kernel.client.session.msg("kernel_info_request", {})
    kernel.client.control_channel.send(request)
    while kernel.client.get_control_msg(timeout=30)["parent_header"]["msg_id"] != request["header"]["msg_id"]:
        pass
    return time.monotonic() - began


def _resident(pid: int) -> int:
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_background_thread_goes_on_at_a_pace_and_cells_still_run(kernel: Running) -> None:
    kernel.good(
        "import threading, time\nstop = False\n"
        "def chat():\n    while not stop: print('z' * 2000)\nt = threading.Thread(target=chat); t.start()"
    )
    time.sleep(1)
    used = _cpu(kernel.pid)
    time.sleep(1)
    assert _cpu(kernel.pid) - used < 0.5, "the thread is made to wait"
    for _ in range(10):  # (the thread may use up the budget of a cell, so that a cell's own text is cut)
        if kernel.run("stop = True\nt.join(); 'joined'").ok:
            break
    assert kernel.good("print('quiet')").stdout.endswith("quiet\n")


def _cpu(pid: int) -> float:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return sum(map(int, file.read().rpartition(b")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")


LEFT_RUNNING = {
    "a thread": "import threading\ndef burn():\n    while True: pass\nthreading.Thread(target=burn).start()",
    "a forged reply": """
from sandbox_kernel.channel import framing
kernel = get_ipython().kernel
content = {"status": "ok", "execution_count": 1, "user_expressions": {}, "payload": []}
here = kernel.get_parent("shell")["header"]["msg_id"]
text = framing.dumps({"type": "reply", "id": here, "content": content, "execution_count": 2})
for packet in framing.split(text): kernel.session.link._socket.send(packet)
while True: pass
""",
}


@pytest.mark.parametrize("way", LEFT_RUNNING)
def test_what_goes_on_after_its_cell_is_ended_too(start_shared: Start, way: str) -> None:
    kernel = start_shared(policy=POLICY)
    kernel.good(LEFT_RUNNING[way])
    front = psutil.Process(kernel.pid)
    before = {child.pid for child in front.children(recursive=True)}
    with contextlib.suppress(AssertionError):  # (it may have ended before it was looked at)
        wait_for(lambda: not before <= {child.pid for child in front.children(recursive=True)}, 80)
    outcome = kernel.run("print(6 * 7)")
    # (A cell that was sent just then is the one that hears it.)
    said = outcome.stderr + str(outcome.reply.get("evalue"))
    assert "left running" in said and "limits.cell_cpu = 1.5 s" in said
    assert kernel.good("print(6 * 7)").stdout == "42\n"


def test_memory_taken_between_cells_is_told_by_the_next(kernel: Running) -> None:
    code = """
import threading, mmap, time
def take():
    time.sleep(1)
    m = mmap.mmap(-1, 900 << 20)
    while True: m.write(b'x' * (1 << 20))
threading.Thread(target=take).start()
"""
    front = psutil.Process(kernel.pid)
    kernel.good(code)
    before = {child.pid for child in front.children(recursive=True)}
    wait_for(lambda: not before <= {child.pid for child in front.children(recursive=True)})
    outcome = kernel.good("print(6 * 7)")
    assert outcome.stdout == "42\n"
    assert "limits.memory" in outcome.stderr and "variables of this session are lost" in outcome.stderr
