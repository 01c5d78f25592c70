"""The debugger, inside one worker: pydevd over a socket pair, asked from beside the cells."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sandbox_kernel.channel import schema

from .front import ANSI, Cell, Front, Message

CODE = "def f(a):\n    b = a * 2\n    c = b + 1\n    return c\nf(20)"
ENDLESS = "import time\ni = 0\nwhile True:\n    i += 1\n    time.sleep(0.001)"
THREADS = "import os; len(os.listdir('/proc/self/task'))"  # pydevd hides its own from `threading`


class Debugger:
    """A client of the debugger, as the front relays it."""

    def __init__(self, front: Front) -> None:
        self.front = front
        self.messages: list[Message] = []
        self._seq = itertools.count(1)

    def send(self, command: str, **arguments: Any) -> str:
        content = {"type": "request", "seq": next(self._seq), "command": command, "arguments": arguments}
        return self.front.ask("debug", "debug_request", content=content)

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        name = self.send(command, **arguments)
        self.until(lambda m: m.kind == "reply" and m.fields["id"] == name)
        return schema.check_reply("debug", self.messages[-1].fields["content"])

    def until(self, wanted: Callable[[Message], bool]) -> Message:
        self.messages += self.front.wait_for(wanted)
        return self.messages[-1]

    def stopped(self) -> dict[str, Any]:
        found = self.until(lambda m: m.kind == "debug_event" and m.fields["event"] == "stopped")
        body: dict[str, Any] = found.fields["body"]
        return body

    def events(self) -> list[str]:
        return [m.fields["event"] for m in self.messages if m.kind == "debug_event"]

    def begin(self) -> None:
        assert self.ask("initialize", clientID="test", adapterID="")["success"]
        assert self.ask("attach")["success"]

    def breakpoint_at(self, code: str, *lines: int) -> str:
        path = str(self.ask("dumpCell", code=code)["body"]["sourcePath"])
        answer = self.ask("setBreakpoints", source={"path": path}, breakpoints=[{"line": line} for line in lines])
        assert [point["verified"] for point in answer["body"]["breakpoints"]] == [True] * len(lines)
        return path

    def stop_in(self, code: str, line: int) -> tuple[str, list[dict[str, Any]]]:
        """The running cell, and the frames at its breakpoint."""
        self.breakpoint_at(code, line)
        cell = self.front.begin(code)
        thread = self.stopped()["threadId"]
        return cell, list(self.ask("stackTrace", threadId=thread)["body"]["stackFrames"])

    def finish(self, cell: str) -> Cell:
        while not any(m.kind == "reply" and m.fields["id"] == cell for m in self.messages):
            self.messages.append(self.front.receive())
        end = next(i for i, m in enumerate(self.messages) if m.kind == "reply" and m.fields["id"] == cell)
        return Cell(cell, self.messages[: end + 1])


@pytest.fixture
def debugger(shared: Front) -> Iterator[Debugger]:
    client = Debugger(shared)
    client.begin()
    yield client
    client.ask("disconnect")


def test_a_client_that_only_asks_makes_no_thread_and_loads_nothing(k: Front) -> None:
    answer = Debugger(k).ask("debugInfo")["body"]
    assert answer["isStarted"] is False and answer["hashMethod"] == "Murmur2"
    path = k.good("def f(): pass\nf.__code__.co_filename").result.strip("'")
    assert path.startswith(answer["tmpFilePrefix"]) and path.endswith(answer["tmpFileSuffix"])
    assert k.good("import sys; {'debugpy', 'pydevd'} & set(sys.modules)").result == "set()"
    assert alone(k)


def test_variables_are_shown_without_a_session(k: Front) -> None:
    k.good("here = 5\nclass R:\n    def _repr_html_(self): return '<b>'\nrich = R()")
    client = Debugger(k)
    variables = {v["name"]: v["value"] for v in client.ask("inspectVariables")["body"]["variables"]}
    assert variables["here"] == "5" and "In" not in variables
    assert client.ask("richInspectVariables", variableName="rich")["body"]["data"]["text/html"] == "<b>"
    assert client.ask("modules")["body"]["totalModules"] > 10
    assert alone(k)


def test_requests_that_need_a_session_are_refused_without_one(k: Front) -> None:
    answer = Debugger(k).ask("stackTrace", threadId=1)
    assert not answer["success"] and "not started" in answer["message"]


def alone(k: Front) -> bool:
    """Whether the worker has one thread, at most after a moment: the last one ends after it has said so."""
    deadline = time.monotonic() + 30
    while (found := k.good(THREADS).result) != "1" and time.monotonic() < deadline:
        time.sleep(0.02)
    return found == "1"


def test_a_session_leaves_nothing_behind(k: Front) -> None:
    state = (
        "import os, sys, threading\n(sys.gettrace(), threading.gettrace(), sys.breakpointhook is sys.__breakpointhook__"
        ", sorted(os.environ), len(os.listdir('/proc/self/fd')), sys.settrace.__name__)"
    )
    before = k.good(state).result
    client = Debugger(k)
    for _ in range(3):
        client.begin()
        assert int(k.good(THREADS).result) > 1
        assert client.ask("debugInfo")["body"]["isStarted"] is True
        assert client.ask("disconnect", restart=False, terminateDebuggee=False)["success"]
        assert client.ask("debugInfo")["body"]["isStarted"] is False
    assert alone(k)
    assert k.good(state).result == before


def test_no_port_is_opened(debugger: Debugger) -> None:
    sockets = (
        "import os\nnames = set()\nfor fd in os.listdir('/proc/self/fd'):\n"
        "    try: names.add(os.readlink(f'/proc/self/fd/{fd}'))\n    except OSError: pass\n"
        "rows = [line.split() for kind in ('tcp', 'tcp6') for line in open(f'/proc/self/net/{kind}')]\n"
        "{f'socket:[{row[9]}]' for row in rows} & names"
    )
    control = "import socket; s = socket.create_server(('127.0.0.1', 0))\n"
    k = debugger.front
    assert k.good(control + sockets).result != "set()"
    assert k.good("s.close()\n" + sockets).result == "set()"


def test_a_breakpoint_stops_the_cell_and_not_the_answers(debugger: Debugger) -> None:
    cell, frames = debugger.stop_in(CODE, 3)
    assert (frames[0]["name"], frames[0]["line"]) == ("f", 3) and frames[1]["name"] == "<module>"
    scopes = debugger.ask("scopes", frameId=frames[0]["id"])["body"]["scopes"]
    reference = next(s for s in scopes if s["name"] == "Locals")["variablesReference"]
    found = debugger.ask("variables", variablesReference=reference)["body"]["variables"]
    assert {v["name"]: v["value"] for v in found} == {"a": "20", "b": "40"}
    assert debugger.ask("evaluate", expression="a + b", frameId=frames[0]["id"])["body"]["result"] == "60"
    shown = debugger.ask("richInspectVariables", variableName="b", frameId=frames[0]["id"])["body"]
    assert shown["data"]["text/plain"] == "40"
    debugger.ask("copyToGlobals", srcVariableName="b", dstVariableName="copied", srcFrameId=frames[0]["id"])
    assert debugger.ask("debugInfo")["body"]["stoppedThreads"]
    debugger.ask("next", threadId=1)
    debugger.stopped()
    assert debugger.ask("stackTrace", threadId=1)["body"]["stackFrames"][0]["line"] == 4
    debugger.ask("continue", threadId=1)
    assert debugger.finish(cell).result == "41"
    assert debugger.front.good("copied").result == "40"


def test_the_source_of_a_cell_and_exceptions(debugger: Debugger) -> None:
    path = debugger.breakpoint_at(CODE)
    assert debugger.ask("source", source={"path": path})["body"]["content"] == CODE
    assert not debugger.ask("source", source={"path": "/nowhere.py"})["success"]
    debugger.ask("setExceptionBreakpoints", filters=["raised"])
    cell = debugger.front.begin("try:\n    1 / 0\nexcept ZeroDivisionError:\n    print('caught')")
    assert debugger.stopped()["reason"] == "exception"
    debugger.ask("setExceptionBreakpoints", filters=[])
    debugger.ask("continue", threadId=1)
    assert debugger.finish(cell).stdout == "caught\n"


def test_an_unknown_request_is_answered(debugger: Debugger) -> None:
    answer = debugger.ask("makeCoffee")
    assert not answer["success"] and "makeCoffee" in answer["message"]
    answer = debugger.ask("evaluate")  # without what it needs
    assert not answer["success"] and answer["message"]


@pytest.mark.parametrize("handler", ["", "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"])
def test_an_interrupt_ends_the_cell_that_stands_at_a_breakpoint(debugger: Debugger, handler: str) -> None:
    for _ in range(2):
        cell, _frames = debugger.stop_in(handler + ENDLESS, 4 + handler.count("\n"))
        debugger.front.interrupt()
        ended = debugger.finish(cell)
        assert ended.reply["ename"] == "KeyboardInterrupt"
        text = ANSI.sub("", "\n".join(ended.reply["traceback"]))
        assert "pydevd" not in text and "sandbox_kernel" not in text and "i += 1" in text
        assert debugger.events()[-1] == "continued"
        assert debugger.ask("debugInfo")["body"]["stoppedThreads"] == []
    debugger.breakpoint_at(handler + ENDLESS)
    assert debugger.front.good("i > 0").result == "True"


SLOW_QUEUE = (
    "import queue, threading, time\nget = queue.Queue.get\n"
    "def slow(self, block=True, timeout=None):\n"
    "    end = time.monotonic() + 0.2\n"
    "    while threading.current_thread() is threading.main_thread() and time.monotonic() < end: pass\n"
    "    return get(self, block, timeout)\n"
    "slow.__code__ = slow.__code__.replace(co_filename=queue.__file__)\nqueue.Queue.get = slow"
)


def test_an_interrupt_within_the_wait_at_a_breakpoint_does_not_leave_the_thread_stopped(debugger: Debugger) -> None:
    """The wait calls the standard library; it stands in its queue here whenever the signal comes."""
    front = debugger.front
    front.good(SLOW_QUEUE)
    try:
        cell, _frames = debugger.stop_in(ENDLESS, 4)
        front.interrupt()
        ended = debugger.finish(cell)
        assert ended.reply["ename"] == "KeyboardInterrupt"
        assert "pydevd" not in ANSI.sub("", "\n".join(ended.reply["traceback"]))
        debugger.breakpoint_at(ENDLESS)
        assert front.good("i > 0").result == "True"
    finally:
        front.good("queue.Queue.get = get")


def test_requests_that_come_with_the_end_of_a_session_are_answered(debugger: Debugger) -> None:
    cell, frames = debugger.stop_in(CODE, 3)
    thread = debugger.send("evaluate", expression="__import__('time').sleep(1)", frameId=frames[0]["id"])
    names = [thread, *(debugger.send(c) for c in ("disconnect", "threads", "disconnect", "debugInfo", "initialize"))]
    debugger.finish(cell)
    for name in names:
        if not any(m.kind == "reply" and m.fields["id"] == name for m in debugger.messages):
            debugger.until(lambda m, name=name: m.kind == "reply" and m.fields["id"] == name)  # type: ignore[misc]
    assert debugger.front.good("1").result == "1"


def test_a_cell_that_comes_while_the_debugger_reads_is_run(debugger: Debugger) -> None:
    """The session's thread takes the request; the main loop has looked just before, and sleeps."""
    front = debugger.front
    front.good(
        "import threading, time\n"
        "from sandbox_kernel.worker.link import Link\nreceive = Link.receive\n"
        "class Later:\n"
        "    def __init__(self, link): self.link = link\n"
        "    def __enter__(self): time.sleep(0.2); return self.link.__enter__()\n"
        "    def __exit__(self, *error): return self.link.__exit__(*error)\n"
        "def slow(self):\n"
        "    if threading.current_thread() is threading.main_thread():\n"
        "        return None\n"
        "    lock = self._receiving\n"
        "    self._receiving = Later(lock)\n"
        "    try: receive(self)\n"
        "    finally: self._receiving = lock\n"
        "Link.receive = slow"
    )
    try:
        assert front.good("2").result == "2"
    finally:
        front.good("Link.receive = receive")


def test_an_interrupt_of_an_expression_leaves_the_breakpoint(debugger: Debugger) -> None:
    cell, frames = debugger.stop_in(CODE, 3)
    asked = debugger.send("evaluate", expression="[print('go'), [0 for _ in iter(int, 1)]]", frameId=frames[0]["id"],
                          context="repl")  # fmt: skip
    debugger.until(lambda m: m.kind == "stream" and "go" in m.fields["text"])
    debugger.front.interrupt()
    answer = debugger.until(lambda m: m.kind == "reply" and m.fields["id"] == asked).fields["content"]
    assert "KeyboardInterrupt" in str(answer)
    assert debugger.ask("evaluate", expression="a", frameId=frames[0]["id"])["body"]["result"] == "20"
    debugger.ask("continue", threadId=1)
    assert debugger.finish(cell).result == "41"


def test_a_client_that_leaves_lets_the_cell_go_on(debugger: Debugger) -> None:
    cell, _frames = debugger.stop_in(CODE, 3)
    assert debugger.ask("disconnect")["success"]
    assert debugger.finish(cell).result == "41"
    assert alone(debugger.front)


def test_a_running_cell_can_be_paused(debugger: Debugger) -> None:
    cell = debugger.front.started(ENDLESS)
    assert debugger.ask("pause", threadId=1)["success"]
    debugger.stopped()
    debugger.front.interrupt()
    assert debugger.finish(cell).reply["ename"] == "KeyboardInterrupt"


def test_a_pause_between_cells_does_not_stop_the_worker(debugger: Debugger) -> None:
    assert debugger.ask("pause", threadId=1)["success"]
    cell = debugger.front.begin("x = 1\nx + 1")
    debugger.stopped()
    assert debugger.ask("stackTrace", threadId=1)["success"]
    debugger.ask("continue", threadId=1)
    assert debugger.finish(cell).result == "2"


def test_a_thread_of_the_cells_is_debugged(debugger: Debugger) -> None:
    code = (
        "import threading\ndef work():\n    z = 3\n    print(z)\nt = threading.Thread(target=work)\nt.start()\nt.join()"
    )
    cell, frames = debugger.stop_in(code, 4)
    assert frames[0]["name"] == "work"
    names = [t["name"] for t in debugger.ask("threads")["body"]["threads"]]
    assert "MainThread" in names and "Debugging" not in names
    debugger.ask("continue", threadId=1)
    assert debugger.finish(cell).reply["status"] == "ok"


def test_a_forked_child_does_not_stop(debugger: Debugger) -> None:
    code = (
        "import os\ndef f():\n    return 7\npid = os.fork()\nif not pid:\n    os._exit(f())\n"
        "os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])"
    )
    debugger.breakpoint_at(code, 3)
    assert debugger.front.good(code).result == "7"
    cell, _frames = debugger.stop_in(CODE, 3)  # and the worker still does
    debugger.ask("continue", threadId=1)
    assert debugger.finish(cell).result == "41"


def test_breakpoint_stops_in_the_debugger_that_is_there(debugger: Debugger) -> None:
    cell = debugger.front.begin("y = 4\nbreakpoint()\ny")
    debugger.stopped()
    debugger.ask("continue", threadId=1)
    assert debugger.finish(cell).result == "4"


def test_breakpoint_is_pdbs_without_a_session(k: Front) -> None:
    client = Debugger(k)
    client.ask("inspectVariables")  # debugpy is loaded
    client.begin()
    client.ask("disconnect")
    cell = k.begin("y = 4\nbreakpoint()\ny")
    question = k.wait_for(lambda m: m.kind == "input_request")[-1]
    k.send({"op": "input_reply", "serial": question.fields["serial"], "value": "c"})
    assert k.finish(cell).result == "4"


def test_an_answer_that_has_no_json_does_not_end_the_debugger(debugger: Debugger) -> None:
    mime = "{'a/b': object(), 'c/d': float('nan')}"
    debugger.front.good(f"class R:\n    def _repr_mimebundle_(self, **k): return {mime}\nr = R()")
    debugger.ask("richInspectVariables", variableName="r")
    assert debugger.ask("debugInfo")["success"]


def test_interrupts_do_not_reach_a_finished_cell(debugger: Debugger) -> None:
    cell, _frames = debugger.stop_in(CODE, 3)
    debugger.ask("continue", threadId=1)
    debugger.finish(cell)
    debugger.front.interrupt()
    time.sleep(0.05)
    assert debugger.front.good("1").result == "1"
