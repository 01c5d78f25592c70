"""Start, state between cells, interrupt, death, shutdown: seen from a client, at both levels."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from .conftest import LEVELS, Running, Start


@pytest.fixture(params=LEVELS)
def kernel(start_shared: Start, request: pytest.FixtureRequest) -> Running:
    """None may count on what another has left, nor leave a cell that runs."""
    return start_shared(request.param)


def _family(pid: int) -> list[psutil.Process]:
    front = psutil.Process(pid)
    return [front, *front.children(recursive=True)]


def _gone(processes: list[psutil.Process], within: float = 30.0) -> bool:
    end = time.monotonic() + within
    while time.monotonic() < end:
        if not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes):
            return True
        time.sleep(0.05)
    return False


def test_names_stay_between_cells(kernel: Running) -> None:
    kernel.good("x = 41\ndef f(): return x + 1")
    outcome = kernel.good("f()")
    assert outcome.of("execute_result")[0]["data"]["text/plain"] == "42"


def test_streams_displays_and_results_keep_their_order(kernel: Running) -> None:
    outcome = kernel.good("print('a')\ndisplay('b')\nprint('c')\n'd'")
    kinds = [m["msg_type"] for m in outcome.messages if m["msg_type"] != "status"]
    assert kinds == ["execute_input", "stream", "display_data", "stream", "execute_result"]


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("import os; os._exit(7)", "exit code 7"),
        ("import os; os.kill(os.getpid(), 9)", "SIGKILL"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
        ("import os; os.abort()", "SIGABRT"),
    ],
)
@pytest.mark.parametrize("level", LEVELS)
def test_a_death_costs_the_cell_and_is_told_in_words(start_shared: Start, level: str, code: str, cause: str) -> None:
    kernel = start_shared(level, policy='[recovery]\ncheckpoints = "off"\n')
    kernel.good("x = 1")
    outcome = kernel.run(f"print('before')\n{code}")
    assert outcome.reply["ename"] == "WorkerLost"
    assert cause in outcome.reply["evalue"] and "variables of this session are lost" in outcome.reply["evalue"]
    assert outcome.of("error")[0]["evalue"] == outcome.reply["evalue"]
    assert outcome.stdout == "before\n"
    assert kernel.run("x").reply["ename"] == "NameError"


@pytest.mark.parametrize("checkpoints", ["off", "on"])
def test_cells_that_change_what_runs_them_do_not_end_the_session(start_shared: Start, checkpoints: str) -> None:
    kernel = start_shared("full", policy=f'[recovery]\ncheckpoints = "{checkpoints}"\n')
    kernel.run("ip = type(get_ipython())\nip.run_cell = ip.run_cell_async = ip._run_cell = lambda *a, **k: None")
    for _ in range(20):  # with checkpoints the newest copies are as broken, and are given up one by one
        outcome = kernel.run("print(6 * 7)")
        if outcome.ok:
            break
    assert outcome.ok and outcome.stdout == "42\n"


LAST_REPLY = """
from sandbox_kernel.channel import framing
kernel = get_ipython().kernel
content = {"status": "ok", "execution_count": 1, "user_expressions": {}, "payload": []}
here = kernel.get_parent("shell")["header"]["msg_id"]
text = framing.dumps({"type": "reply", "id": here, "content": content, "execution_count": 2, "last": True})
for packet in framing.split(text): kernel.session.link._socket.send(packet)
while True: pass
"""


def test_no_cell_is_sent_to_a_worker_that_says_it_ends(start_shared: Start) -> None:
    """Whenever it does: here it lied, and is ended."""
    kernel = start_shared("full", policy='[recovery]\ncheckpoints = "off"\n')
    kernel.good(LAST_REPLY)
    outcome = kernel.good("print(6 * 7)")
    assert outcome.stdout == "42\n"
    assert "no other cell could be run in it" in outcome.stderr


def test_interrupt_is_one_keyboard_interrupt_and_keeps_the_state(kernel: Running) -> None:
    # (A bare `while True: pass` in a try block will not do: CPython leaves its jump out of the block.)
    kernel.good("hits = 0\ndef spin():\n    while True: pass")
    for code in ("spin()", "import time; time.sleep(30)", "import asyncio; await asyncio.sleep(30)"):
        cell = f"print('begun')\ntry:\n    {code}\nexcept BaseException as e:\n    hits += 1; raise"
        request = kernel.begin(cell)
        time.sleep(0.2)  # (until it is in the block)
        began = time.monotonic()
        kernel.manager.interrupt_kernel()
        reply = _reply(kernel, request)
        assert reply["status"] == "error" and reply["ename"] in ("KeyboardInterrupt", "CancelledError")
        assert time.monotonic() - began < 20
    assert kernel.good("hits").of("execute_result")[0]["data"]["text/plain"] == "3"


def _reply(kernel: Running, request: str, timeout: float = 50) -> dict[str, object]:
    while True:
        message = kernel.client.get_shell_msg(timeout=timeout)
        if message["parent_header"].get("msg_id") == request:
            content: dict[str, object] = message["content"]
            return content


def test_a_cell_that_ignores_two_interrupts_is_replaced(start: Start) -> None:
    kernel = start("auto", policy='[limits]\ninterrupt_grace = "1s"\n')
    deaf = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    request = kernel.begin(deaf + "print('begun')\nwhile True: pass")
    kernel.manager.interrupt_kernel()
    time.sleep(0.5)
    kernel.manager.interrupt_kernel()
    reply = _reply(kernel, request)
    assert reply["ename"] == "WorkerLost" and "second interrupt" in str(reply["evalue"])
    assert kernel.good("1 + 1").ok


@pytest.mark.parametrize("level", LEVELS)
def test_the_front_answers_while_a_cell_burns_every_core(start: Start, level: str) -> None:
    kernel = start(level)
    kernel.begin(
        "import os\nprint('begun', flush=True)\nfor _ in range(os.cpu_count()):\n    if os.fork() == 0:\n"
        "        while True: pass\nwhile True: pass"
    )
    time.sleep(0.5)
    for _ in range(3):
        began = time.monotonic()
        request = kernel.client.session.msg("kernel_info_request", {})
        kernel.client.control_channel.send(request)
        while kernel.client.get_control_msg(timeout=50)["parent_header"]["msg_id"] != request["header"]["msg_id"]:
            pass
        assert time.monotonic() - began < 15
    # (The client counts a beat that took longer than a second as none.)
    end = time.monotonic() + 20
    while not kernel.client.hb_channel.is_beating() and time.monotonic() < end:
        time.sleep(0.1)
    assert kernel.client.hb_channel.is_beating()


@pytest.mark.parametrize("level", LEVELS)
def test_sigkill_of_the_front_leaves_no_process(start: Start, level: str) -> None:
    kernel = start(level)
    kernel.good(
        "import os, time\nfor setsid in (False, True):\n    if os.fork() == 0:\n        if setsid: os.setsid()\n"
        "        time.sleep(300); os._exit(0)"
    )
    family = _family(kernel.pid)
    assert len(family) >= 5
    os.kill(kernel.pid, signal.SIGKILL)
    assert _gone(family)


@pytest.mark.parametrize("level", LEVELS)
def test_shutdown_runs_exit_handlers_and_leaves_no_process(start: Start, level: str) -> None:
    kernel = start(level)
    kernel.good("import atexit\n_ = atexit.register(lambda: open('bye.txt', 'w').write('bye'))")
    family = _family(kernel.pid)
    kernel.manager.shutdown_kernel()
    assert _gone(family)
    assert (kernel.folder / "bye.txt").read_text() == "bye"


@pytest.mark.parametrize("level", LEVELS)
def test_restart_gives_an_empty_namespace(start: Start, level: str) -> None:
    kernel = start(level)
    kernel.good("x = 1")
    kernel.manager.restart_kernel()
    kernel.client.wait_for_ready(timeout=60)
    assert kernel.run("x").reply["ename"] == "NameError"


def test_junk_on_the_channel_costs_the_worker_not_the_front(kernel: Running) -> None:
    front = kernel.pid
    outcome = kernel.run(
        "import os\nfor fd in map(int, os.listdir('/proc/self/fd')):\n"
        "    try:\n        if fd > 2 and os.readlink(f'/proc/self/fd/{fd}').startswith('socket:'):\n"
        "            os.write(fd, b'junk' * 100)\n    except OSError: pass\nimport time; time.sleep(10)"
    )
    assert outcome.reply["ename"] == "ProtocolError"
    assert kernel.pid == front and kernel.good("1").ok


def test_status_shows_the_level_and_what_each_probe_saw(kernel: Running) -> None:
    text = kernel.good("%sandbox status").stdout
    brief = kernel.good("%sandbox").stdout
    assert "isolation level" in brief.splitlines()[0] and len(brief) < 2000 < len(text) and "NO " not in brief
    assert "isolation level" in text and "seccomp" in text and "landlock" in text
    assert "NO " not in text


def test_a_bad_policy_refuses_cells_and_names_the_key(start: Start, tmp_path: Path) -> None:
    kernel = start("auto", policy="[limits]\nmemry = 5\n")
    outcome = kernel.run("open('made.txt', 'w').write('x')")
    assert outcome.reply["ename"] == "PolicyError"
    assert "memry" in outcome.reply["evalue"] and "'memory'" in outcome.reply["evalue"]
    assert not (kernel.folder / "made.txt").exists()


def test_a_kernel_that_is_shut_down_right_after_its_start_ends_at_once(start: Start) -> None:
    for _ in range(3):
        kernel = start()
        kernel.client.shutdown()
        began = time.monotonic()
        while kernel.manager.is_alive():
            assert time.monotonic() - began < 30
            time.sleep(0.02)
