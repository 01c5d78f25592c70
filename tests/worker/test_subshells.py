"""Subshells: at the same time, apart where they must be, and reachable while the main thread runs a cell."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ..waiting import wait_for
from .front import Cell, Front, front

ECHO = (
    "from comm import create_comm\nimport threading\nc = create_comm(target_name='t', comm_id='c1')\n"
    "where = []\n"
    "c.on_msg(lambda m: (where.append(threading.current_thread().name), c.send({'echo': m['content']['data']})))"
)


def message(k: Front, data: Any, **more: Any) -> str:
    return k.ask("comm", "comm_msg", metadata={}, content={"comm_id": "c1", "data": data}, **more)


@pytest.fixture
def two() -> Iterator[Front]:
    """A worker with the subshells "a" and "b"."""
    with front() as worker:
        worker.open_subshells("a", "b")
        yield worker


def replies(messages: list[Any]) -> list[str]:
    return [m.fields["id"] for m in messages if m.kind == "reply"]


def test_a_subshell_can_be_opened_while_a_cell_sleeps(k: Front) -> None:
    busy = k.started("import threading, time; over = threading.Event()\nwhile not over.is_set(): time.sleep(20)")
    k.open_subshells("a")
    cell = k.run("x = 5; x", shell="a")
    assert cell.result == "5" and busy not in replies(cell.messages)
    k.interrupt()
    k.finish(busy)
    assert k.good("x").result == "5"


def test_a_session_without_subshells_has_one_thread(k: Front) -> None:
    assert k.good("import os; len(os.listdir('/proc/self/task'))").result == "1"
    k.open_subshells("a")
    assert k.run("import threading; threading.active_count()", shell="a").result == "2"
    k.open_subshells()
    # The thread ends after it was asked to.
    assert wait_for(lambda: k.good("threading.active_count()").result == "1")


def test_cells_of_several_shells_run_at_the_same_time(two: Front) -> None:
    # Each waits for the two others.
    code = "print({0!r}); meet.wait(10); {0!r}"
    two.good("import threading; meet = threading.Barrier(3)")
    ids = {two.begin(code.format(shell), **({"shell": shell} if shell else {})): shell for shell in ("", "a", "b")}
    messages = []
    while len(replies(messages)) < 3:
        messages.append(two.receive())
    for name, shell in ids.items():
        cell = Cell(name, [m for m in messages if m.parent == name or m.fields.get("id") == name])
        assert cell.reply["status"] == "ok" and cell.stdout == f"{shell}\n" and cell.result == repr(shell)


def test_results_and_errors_of_shells_do_not_mix(two: Front) -> None:
    two.good("import time\nclass Slow:\n def __repr__(self):\n  time.sleep(.4); return 'slow'")
    slow = two.begin("Slow()", shell="a")
    time.sleep(0.1)
    assert two.run("'quick'").result == "'quick'"
    assert two.finish(slow).result == "slow"
    failing = two.begin("import time\ntry:\n 1/0\nfinally:\n  time.sleep(.3)", shell="a")
    time.sleep(0.1)
    two.good("1")
    reply = two.finish(failing).reply
    assert reply["ename"] == "ZeroDivisionError" and "ZeroDivisionError" in "".join(reply["traceback"])


def test_payloads_stay_with_their_cell(two: Front) -> None:
    name = two.begin("get_ipython().set_next_input('mine'); import time; time.sleep(.4)")
    time.sleep(0.15)
    assert two.run("1", shell="a").reply["payload"] == []
    (payload,) = two.finish(name).reply["payload"]
    assert payload["text"] == "mine"


def test_threads_print_into_the_shell_that_started_them(two: Front) -> None:
    code = "import threading, time\ndef f():\n    time.sleep(.3); print('from a'); display('shown')\n"
    name = two.begin(code + "t = threading.Thread(target=f); t.start(); t.join()", shell="a")
    time.sleep(0.1)
    main = two.run("import time; time.sleep(.5); print('main')")
    messages = main.messages if name in replies(main.messages) else main.messages + two.finish(name).messages
    cell = Cell(name, messages)
    assert cell.stdout == "from a\n" and Cell(main.id, messages).stdout == "main\n"
    (shown,) = [m for m in messages if m.fields.get("msg_type") == "display_data"]
    assert shown.parent == name


def test_a_comm_is_handled_while_the_main_shell_sleeps(two: Front) -> None:
    two.good(ECHO)
    busy = two.started("import time; time.sleep(30)")
    for number in range(3):
        cell = two.finish(message(two, number, shell="a"))
        assert cell.published("comm_msg")[0]["data"] == {"echo": number} and busy not in replies(cell.messages)
        assert [m.parent for m in cell.messages if m.kind == "publish"] == [cell.id]
    two.interrupt()
    two.finish(busy)
    assert two.good("set(where)").result == "{'subshell-a'}"


def test_a_comm_comes_to_the_thread_that_it_was_made_on_when_that_is_free(two: Front) -> None:
    two.good(ECHO.replace("c.send(", "print("))
    two.finish(message(two, 1, shell="a"))
    assert two.good("where").result == "['MainThread']"


def test_an_awaiting_cell_gets_the_answer_that_came_over_a_subshell(two: Front) -> None:
    two.good(ECHO)
    name = two.started(
        "import asyncio\nanswer = asyncio.get_running_loop().create_future()\n"
        "c.on_msg(lambda m: answer.set_result(m['content']['data']))\nc.send({})\nawait asyncio.wait_for(answer, 10)"
    )
    message(two, "yes", shell="a")
    assert two.finish(name).result == "'yes'"


def test_an_awaiting_cell_of_a_subshell_gets_the_answer_that_came_over_the_main_shell(two: Front) -> None:
    two.good(ECHO)
    name = two.begin(
        "import asyncio\nanswer = asyncio.get_running_loop().create_future()\n"
        "c.on_msg(lambda m: answer.set_result(m['content']['data']))\nc.send({})\nprint('go')\n"
        "await asyncio.wait_for(answer, 10)", shell="a",
    )  # fmt: skip
    two.wait_text("go")
    message(two, "yes")
    assert two.finish(name).result == "'yes'"


def test_a_comm_passes_an_awaiting_cell_of_its_subshell(two: Front) -> None:
    two.run(ECHO, shell="a")
    code = "import asyncio\nwhile not where: await asyncio.sleep(.01)\n'seen'"
    name = two.begin(code, shell="a")
    message(two, 1, shell="a")
    assert two.finish(name).result == "'seen'"


def test_questions_of_two_shells(two: Front) -> None:
    first, second = two.begin("input('one ')"), two.begin("input('two ')", shell="a")
    asked: dict[str, int] = {}
    while len(asked) < 2:
        question = two.receive()
        if question.kind == "input_request":
            asked[question.parent] = question.fields["serial"]
    two.send({"op": "input_reply", "serial": asked[second], "value": "B"})
    assert two.finish(second).result == "'B'"
    two.send({"op": "input_reply", "serial": asked[first], "value": "A"})
    assert two.finish(first).result == "'A'"
    assert two.run("input()", allow_stdin=False, shell="a").reply["ename"] == "StdinNotImplementedError"


def test_one_shell_may_ask_while_another_may_not(two: Front) -> None:
    name = two.begin("import time; time.sleep(.3); input('q')", shell="a")
    time.sleep(0.1)
    refused = two.begin("import time; time.sleep(.5); input()", allow_stdin=False)
    (question,) = [m for m in two.wait_for(lambda m: m.kind == "input_request") if m.kind == "input_request"]
    two.send({"op": "input_reply", "serial": question.fields["serial"], "value": "yes"})
    assert two.finish(name).result == "'yes'"
    assert two.finish(refused).reply["ename"] == "StdinNotImplementedError"


def test_sigint_spares_subshells(two: Front) -> None:
    spared = two.begin("print('on'); import time; time.sleep(1); 'fine'", shell="a")
    two.wait_text("on")
    hit = two.started("import time; time.sleep(9)")
    two.interrupt()
    assert two.finish(hit).reply["ename"] == "KeyboardInterrupt"
    assert two.finish(spared).result == "'fine'"


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("print('go')\nwhile True: pass", "KeyboardInterrupt"),
        ("print('go')\nimport asyncio; await asyncio.sleep(30)", "CancelledError"),
        ("import asyncio; await asyncio.sleep(0); print('go')\nwhile True: pass", "KeyboardInterrupt"),
        ("print('go'); input()", "KeyboardInterrupt"),
    ],
)
def test_a_subshell_can_be_interrupted_by_name(two: Front, code: str, name: str) -> None:
    two.good("import threading; over = threading.Event()")
    spared = two.begin("over.wait(20)")
    hit = two.begin(code, shell="a")
    two.wait_text("go")
    two.send({"op": "interrupt", "shell": "a", "request": hit})
    cell = two.finish(hit)
    assert cell.reply["ename"] == name and spared not in replies(cell.messages)
    two.begin("over.set()", shell="a")
    assert two.finish(spared).result == "True"


def test_an_interrupt_for_a_request_that_has_ended_hits_nothing(two: Front) -> None:
    done = two.run("1", shell="a").id
    name = two.begin("print('go')\nimport time\nfor _ in range(50): time.sleep(.01)\n'whole'", shell="a")
    two.wait_text("go")
    two.send({"op": "interrupt", "shell": "a", "request": done})
    assert two.finish(name).result == "'whole'"


def test_the_magic_lists_them(two: Front) -> None:
    cell = two.run("%subshell", shell="b")
    assert "subshell id: b" in cell.stdout and "subshell list: ['a', 'b']" in cell.stdout
    assert "subshell id: None" in two.good("%subshell").stdout


def test_a_subshell_that_is_closed_ends_its_request_first(two: Front) -> None:
    name = two.begin("print('go'); import time; time.sleep(.4); 'done'", shell="a")
    two.wait_text("go")
    two.open_subshells("b")
    assert two.finish(name).result == "'done'"
    assert two.run("'b'", shell="b").result == "'b'"
    two.good("import threading, time\nwhile 'subshell-a' in [t.name for t in threading.enumerate()]: time.sleep(.01)")
    assert two.run("1", shell="a").reply["ename"] == "RuntimeError"


def test_context_variables_and_tasks_stay_in_their_shell(two: Front) -> None:
    two.good("import asyncio, contextvars; v = contextvars.ContextVar('v', default=0); v.set(1);")
    assert two.run("v.get(), v.set(2)", shell="a").result.startswith("(0,")
    assert two.run("v.get()", shell="a").result == "2" and two.good("v.get()").result == "1"
    late = "async def f():\n    await asyncio.sleep(.2); print('late')\ntask = asyncio.create_task(f())"
    name = two.run(late, shell="a").id
    messages = two.wait_text("late")
    assert messages[-1].parent == name


def test_what_ends_a_thread_does_not_end_a_subshell(two: Front) -> None:
    assert two.run("raise SystemExit", shell="a").reply["ename"] == "SystemExit"
    two.run("import asyncio, sys; asyncio.get_running_loop().call_soon(sys.exit)", shell="a")
    assert two.run("'alive'", shell="a").result == "'alive'"


def test_a_fork_in_a_subshell_is_no_second_kernel(two: Front) -> None:
    code = "import os\npid = os.fork()\nif not pid: raise SystemExit(7)\n"
    cell = two.run(code + "os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])", shell="a")
    assert cell.result == "7"
    assert two.good("os.getpid()").result == str(two.pid)
    assert os.path.exists(f"/proc/{two.pid}")
