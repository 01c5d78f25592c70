"""Interrupts and other exceptions that come from nowhere: they hit the cell, once, and tear nothing."""

from __future__ import annotations

import time

import pytest

from .front import Front

BODIES = {
    "sleep": "import time; time.sleep(60)",
    "busy": "while True: pass",
    "lock": "import threading; l = threading.Lock(); l.acquire(); l.acquire()",
    "select": "import select; select.select([], [], [], 60)",
    "printing": "while True: print('x' * 50)",
    "displaying": "while True: display('x' * 100_000)",
}


@pytest.mark.parametrize("body", BODIES)
def test_sync_cells(k: Front, body: str) -> None:
    name = k.started(BODIES[body])
    k.interrupt()
    cell = k.finish(name)
    assert cell.reply["ename"] == "KeyboardInterrupt" and len(cell.published("error")) == 1
    assert k.good("print('next'); 1").stdout == "next\n"


AWAITS = {
    "sleep": "import asyncio; await asyncio.sleep(60)",
    "loop": "import asyncio\nfor i in range(2000): await asyncio.sleep(.05)",
    "event": "import asyncio; await asyncio.Event().wait()",
    "gather": "import asyncio; await asyncio.gather(asyncio.sleep(60), asyncio.sleep(90))",
    "blocking": "import time\nasync def f(): time.sleep(60)\nawait f()",
    "blocking task": "import asyncio, time\nasync def f(): time.sleep(60)\nawait asyncio.gather(f())",
    "busy": "async def f():\n    while True: pass\nawait f()",
    "thread": "import asyncio, time\nawait asyncio.to_thread(time.sleep, 100)",
}


@pytest.mark.parametrize("body", AWAITS)
def test_awaiting_cells_at_once(k: Front, body: str) -> None:
    name = k.started(AWAITS[body])
    begin = time.monotonic()
    k.interrupt()
    cell = k.finish(name)
    assert cell.reply["ename"] in ("KeyboardInterrupt", "CancelledError")
    assert time.monotonic() - begin < 45 and len(cell.published("error")) == 1
    assert k.good("import asyncio\nawait asyncio.sleep(0.01, 'fine')").result == "'fine'"


def test_background_tasks_of_other_cells_survive(k: Front) -> None:
    k.good(
        "import asyncio, time\nasync def tick():\n    while True:\n"
        "        time.sleep(0.03); await asyncio.sleep(0.001)\n"
        "task = asyncio.ensure_future(tick())\nawait asyncio.sleep(0)"
    )
    for _ in range(5):
        name = k.started("await asyncio.sleep(200)")
        k.interrupt()
        assert k.finish(name).reply["status"] == "error"
    assert k.good("task.done()").result == "False"


def test_exactly_one(k: Front) -> None:
    name = k.started(
        "import time\nn = 0\nend = time.time() + 2\nwhile time.time() < end:\n"
        "    try: time.sleep(.05)\n    except KeyboardInterrupt: n += 1\nn"
    )
    k.interrupt()
    assert k.finish(name).result == "1"


def test_caught_then_again(k: Front) -> None:
    name = k.started(
        "import time\ntry: time.sleep(60)\nexcept KeyboardInterrupt: print('one')\ntime.sleep(60)"
    )
    k.interrupt()
    k.wait_text("one")
    k.interrupt()
    assert k.finish(name).reply["ename"] == "KeyboardInterrupt"


def test_handlers(k: Front) -> None:
    k.good("import signal")
    assert k.good("signal.getsignal(signal.SIGINT) is signal.default_int_handler").result == "True"
    k.good("hits = []\nsignal.signal(signal.SIGINT, lambda *a: hits.append(1));")
    k.interrupt()
    time.sleep(0.05)
    assert (
        k.good("hits, signal.getsignal(signal.SIGINT) is signal.default_int_handler").result == "([], True)"
    )
    name = k.started("signal.signal(signal.SIGINT, lambda *a: hits.append(1))\nimport time; time.sleep(0.3)")
    k.interrupt()
    assert k.finish(name).reply["status"] == "ok"
    assert k.good("hits").result == "[1]"


def test_idle_worker_ignores_interrupts(k: Front) -> None:
    k.good("keep = 5")
    for _ in range(20):
        k.interrupt()
        time.sleep(0.005)
    assert k.good("import time; time.sleep(0.1); keep").result == "5"


def test_storm_of_interrupts_answers_every_cell_once(k: Front) -> None:
    """Interrupts at every moment of short cells: each has exactly one reply, and the worker stays usable."""
    for number in range(150):
        name = k.begin(
            "for i in range(30): print(i)" if number % 2 else "import asyncio\nawait asyncio.sleep(0.002)"
        )
        time.sleep(0.00007 * (number % 40))
        k.interrupt()
        cell = k.finish(name)
        assert cell.reply["status"] in ("ok", "error")
    assert k.good("1").result == "1"
    with pytest.raises(TimeoutError):
        k.wait_for(lambda m: m.kind == "reply", 0.2)


def test_alarm_in_a_print_storm(k: Front) -> None:
    k.good(
        "import signal\nclass Late(Exception): pass\n"
        "def late(*a): raise Late\nsignal.signal(signal.SIGALRM, late);"
    )
    for number in range(40):
        cell = k.run(
            f"signal.setitimer(signal.ITIMER_REAL, {0.001 + number * 0.0007})\n"
            "for i in range(10_000): print(i)"
        )
        assert cell.reply["ename"] == "Late" or cell.reply["status"] == "ok"
        # (IPython says so in its own words when the alarm's frame has a form that it cannot show.)
        numbers = [line for line in cell.stdout.partition("Unexpected exception formatting")[0].split("\n") if line]
        assert numbers == [str(i) for i in range(len(numbers))]
        assert k.good("1").result == "1"


def test_alarms_that_never_stop(k: Front) -> None:
    """A timer left running raises in the worker's own code too: while it replies and takes requests in."""
    k.good("import signal\ndef late(*a): raise RuntimeError('late')\nsignal.signal(signal.SIGALRM, late);")
    k.run("signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)")
    for _ in range(100):
        k.run("for i in range(20): print(i)", 5)
        time.sleep(0.003)
    for _ in range(50):
        if k.run("signal.setitimer(signal.ITIMER_REAL, 0)", 5).reply["status"] == "ok":
            break
    assert k.good("print('quiet')").stdout == "quiet\n"


def test_printing_in_a_handler_does_not_tear_the_frame_below(k: Front) -> None:
    """The handler runs inside the sending of frames of many packets, in the same thread."""
    k.good(
        "import signal\nfrom comm import create_comm\nc = create_comm(target_name='t')\n"
        "signal.signal(signal.SIGALRM, lambda *a: print('tick'))\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001);"
    )
    cell = k.good(
        "for i in range(60): c.send({}, buffers=[b'x' * 700_000])\nsignal.setitimer(signal.ITIMER_REAL, 0);"
    )
    assert sum(len(m.buffers[0]) for m in cell.messages if m.buffers) == 60 * 700_000
    assert cell.stdout.count("tick") > 3


def test_signal_just_before_the_wait_is_not_late(k: Front) -> None:
    """A handler of the cell runs although the loop sleeps."""
    k.good(
        "import asyncio, signal, time\nseen = asyncio.Event()\nloop = asyncio.get_event_loop()\n"
        "loop.add_signal_handler(signal.SIGUSR1, seen.set)"
    )
    assert (
        k.good(
            "import os\nos.kill(os.getpid(), signal.SIGUSR1)\nawait asyncio.wait_for(seen.wait(), 50)"
        ).result
        == "True"
    )
    k.good("loop.remove_signal_handler(signal.SIGUSR1);")
    name = k.started("await asyncio.sleep(200)")
    k.interrupt()
    assert k.finish(name).reply["status"] == "error"
