"""Forks, children and commands: their text arrives, and none of them is a second kernel."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from ..waiting import wait_for
from .front import Front


def test_fork_that_comes_out_of_its_cell_ends(k: Front) -> None:
    cell = k.good(
        "import os\nprint('both')\npid = os.fork()\nprint('after')\nif pid: status = os.waitpid(pid, 0)[1]"
    )
    assert cell.stdout == "both\nafter\n"
    k.read_pipes(lambda: k.raw["stdout"] == b"after\n")
    assert k.good("status").result == "0"


@pytest.mark.parametrize(
    ("end", "status"), [("1/0", 1), ("sys.exit(5)", 5), ("sys.exit()", 0), ("sys.exit('x')", 1)]
)
def test_status_of_such_a_fork(k: Front, end: str, status: int) -> None:
    k.good(f"import os, sys\npid = os.fork()\nif not pid: {end}\nstatus = os.waitpid(pid, 0)[1]")
    assert k.good("os.waitstatus_to_exitcode(status)").result == str(status)
    if end == "1/0":
        k.read_pipes(lambda: b"ZeroDivisionError" in k.raw["stderr"])


def test_fork_in_an_awaiting_cell(k: Front) -> None:
    name = k.begin(
        "import asyncio, os\npid = os.fork()\nawait asyncio.sleep(0.1)\nprint('mine' if pid else 'childs')\n"
        "if pid: os.waitpid(pid, 0)"
    )
    assert k.finish(name).stdout == "mine\n"
    for _ in range(20):
        assert k.good("1").result == "1"


def test_fork_displays_and_questions(k: Front) -> None:
    cell = k.good(
        "import os\npid = os.fork()\n"
        "if not pid:\n    display('lost')\n    try: input()\n"
        "    except Exception as e: print(type(e).__name__)\n    os._exit(0)\n"
        "os.waitpid(pid, 0);"
    )
    assert not cell.published("display_data")
    k.read_pipes(lambda: b"StdinNotImplementedError" in k.raw["stdout"])


def test_multiprocessing(k: Front) -> None:
    k.good(
        "import multiprocessing as mp\nctx = mp.get_context('fork')\n"
        "def f(n): print('child', n, flush=True); return n * n\n"
        "with ctx.Pool(2) as pool: squares = pool.map(f, range(4))"
    )
    assert k.good("squares").result == "[0, 1, 4, 9]"
    k.read_pipes(lambda: all(f"child {n}".encode() in k.raw["stdout"] for n in range(4)))


def test_child_does_not_hold_the_channel(k: Front) -> None:
    k.good("import os, time\npid = os.fork()\nif not pid: time.sleep(200); os._exit(0)")
    k.begin("os._exit(4)")
    with pytest.raises((EOFError, ConnectionResetError)):
        while True:
            k.receive()
    assert k.wait() == 4


def test_popen_to_the_streams(k: Front) -> None:
    k.good(
        "import subprocess, sys\n"
        "subprocess.run(['echo', 'to the pipe'], stdout=sys.stdout, stderr=sys.stderr);"
    )
    k.read_pipes(lambda: k.raw["stdout"] == b"to the pipe\n")


def test_commands(k: Front) -> None:
    assert k.good("!printf 'a\\nb\\n'; echo err >&2").stdout == "a\nb\nerr\n"
    k.good("!exit 3")
    assert k.good("_exit_code").result == "3"
    k.good("!kill -9 $$")
    assert k.good("_exit_code").result == "-9"
    assert k.good("x = 'v'\n!echo {x} $x $$HOME").stdout.startswith("v v /")
    assert k.good("lines = !printf 'a\\nb\\n'\nlist(lines)").result == "['a', 'b']"
    assert k.good("%system echo z").result == "['z']"
    assert k.good("%sx echo z").result == "['z']"
    assert "one" in k.good("%%bash\necho one; echo two >&2").stdout
    assert k.good("%%capture c\n!echo hidden").stdout == ""
    assert k.good("c.stdout").result == r"'hidden\n'"
    assert k.run("!sleep 1 &").reply["ename"] == "OSError"
    assert k.good("!cat").stdout == ""


def test_commands_stream_live_and_whole_characters(k: Front, tmp_path: Path) -> None:
    go = tmp_path / "go"
    name = k.begin(rf"!printf 'first\303'; while [ ! -e {go} ]; do sleep 0.02; done; printf '\251\n'")
    k.wait_text("first")
    go.touch()
    assert k.finish(name).stdout == "é\n"


def test_interrupt_ends_the_command_and_its_children(k: Front) -> None:
    nap = f"sleep {10**7 + k.pid}"
    name = k.begin(f"!{nap} & echo go; {nap}; echo never\nprint('never')")
    k.wait_text("go")
    k.interrupt()
    cell = k.finish(name)
    assert "never" not in cell.stdout and cell.reply["ename"] == "KeyboardInterrupt"
    wait_for(lambda: k.good(f"out = !ps -eo args | grep '[s]{nap[1:]}'\nlist(out)").result == "[]")


def test_a_loop_of_commands_can_be_interrupted(k: Front) -> None:
    name = k.begin("while True:\n    !echo go")
    k.wait_text("go")
    k.interrupt()
    assert k.finish(name).reply["ename"] == "KeyboardInterrupt"


def test_grandchild_does_not_hold_the_command(k: Front) -> None:
    begin = time.monotonic()
    assert k.good("!(sleep 90 &) ; echo done").stdout == "done\n"
    assert time.monotonic() - begin < 60


def test_children_get_default_signals(k: Front) -> None:
    k.good("import subprocess, signal, time\np = subprocess.Popen(['sleep', '30'])")
    k.good("p.send_signal(signal.SIGINT)")
    assert k.good("p.wait(60)").result == str(-signal.SIGINT)


def test_end_of_the_channel_ends_the_worker(k: Front) -> None:
    k.good("import atexit\natexit.register(print, 'not run')")
    k.socket.close()
    assert k.wait() == 0


def test_end_of_the_channel_while_waiting_for_input(k: Front) -> None:
    k.begin("input()")
    k.wait_for(lambda m: m.kind == "input_request")
    k.socket.close()
    assert k.wait() == 0


def test_end_of_the_channel_while_printing(k: Front) -> None:
    k.started("while True: print('x' * 1000)")
    k.socket.close()
    assert k.wait() == 0


def test_shutdown_runs_atexit_and_does_not_wait_for_threads(k: Front) -> None:
    k.good(
        "import atexit, threading, time\natexit.register(lambda: print('good bye'))\n"
        "threading.Thread(target=time.sleep, args=(200,)).start()"
    )
    cell = k.finish(k.ask("shutdown", restart=False))
    assert cell.reply == {} and any(m.fields.get("text") == "good bye" for m in cell.messages)
    assert k.wait() == 0


def test_shutdown_while_a_cell_awaits(k: Front) -> None:
    k.started("import asyncio\nawait asyncio.sleep(200)")
    k.finish(k.ask("shutdown", restart=True))
    assert k.wait() == 0
