"""``input()`` and ``getpass()``: the answer reaches who asked, an interrupt ends the wait."""

from __future__ import annotations

import time
from typing import Any

import pytest

from .front import Front


def asked(k: Front, patience_s: float = 60) -> dict[str, Any]:
    return k.wait_for(lambda m: m.kind == "input_request", patience_s)[-1].fields


def answer(k: Front, question: dict[str, Any], value: str) -> None:
    k.send({"op": "input_reply", "serial": question["serial"], "value": value})


def test_input_and_getpass(k: Front) -> None:
    name = k.begin("a = input('name? ')\nimport getpass\nb = getpass.getpass('word? ')\na, b")
    question = asked(k)
    assert question["prompt"] == "name? " and not question["password"] and question["parent"] == name
    answer(k, question, "Ünal 😀")
    question = asked(k)
    assert question["prompt"] == "word? " and question["password"]
    answer(k, question, "secret")
    assert k.finish(name).result == "('Ünal 😀', 'secret')"


def test_text_comes_before_the_question(k: Front) -> None:
    name = k.begin("print('before', end='')\ninput('?')")
    messages = k.wait_for(lambda m: m.kind == "input_request")
    assert [m.kind for m in messages] == ["stream", "input_request"]
    answer(k, messages[-1].fields, "x")
    k.finish(name)


def test_end_of_file(k: Front) -> None:
    name = k.begin("input()")
    answer(k, asked(k), "\x04")
    assert k.finish(name).reply["ename"] == "EOFError"


def test_refusals(k: Front) -> None:
    assert k.run("input()", allow_stdin=False).reply["ename"] == "StdinNotImplementedError"
    assert (
        k.run("import getpass; getpass.getpass()", allow_stdin=False).reply["ename"]
        == "StdinNotImplementedError"
    )
    name = k.begin("input()")
    k.send({"op": "input_refused", "serial": asked(k)["serial"], "reason": "nobody is there"})
    cell = k.finish(name)
    assert cell.reply["ename"] == "StdinNotImplementedError" and cell.reply["evalue"] == "nobody is there"
    assert k.run("import sys; sys.stdin.read()").result == "''"


@pytest.mark.parametrize("code", ["input('?')", "import asyncio\nawait asyncio.sleep(0)\ninput('?')"])
def test_interrupt_ends_the_wait_and_a_late_answer_is_dropped(k: Front, code: str) -> None:
    name = k.begin(code)
    late = asked(k)
    time.sleep(0.05)
    k.interrupt()
    cell = k.finish(name)
    assert cell.reply["ename"] == "KeyboardInterrupt" and len(cell.published("error")) == 1
    answer(k, late, "late")
    name = k.begin("input('again? ')")
    question = asked(k)
    answer(k, late, "late again")
    answer(k, question, "fresh")
    assert k.finish(name).result == "'fresh'"


def test_caught_interrupt_and_own_handlers(k: Front) -> None:
    name = k.begin("try: input()\nexcept KeyboardInterrupt: print('caught')\ninput()")
    asked(k)
    time.sleep(0.05)
    k.interrupt()
    answer(k, asked(k), "x")
    assert k.finish(name).result == "'x'"
    name = k.begin(
        "import signal\nhits = []\nsignal.signal(signal.SIGINT, lambda *a: hits.append(1))\ninput(), hits"
    )
    question = asked(k)
    k.interrupt()
    time.sleep(0.1)
    answer(k, question, "y")
    assert k.finish(name).result == "('y', [1])"


def test_alarm_while_waiting(k: Front) -> None:
    name = k.begin(
        "import signal\ndef late(*a): raise TimeoutError('too slow')\nsignal.signal(signal.SIGALRM, late)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.1)\ninput()"
    )
    assert k.finish(name).reply["ename"] == "TimeoutError"
    assert k.good("1").result == "1"


def test_requests_that_come_while_waiting_are_served_after(k: Front) -> None:
    name = k.begin("a = input()")
    question = asked(k)
    following = k.begin("a * 2")
    word = k.ask("complete", content={"code": "le", "cursor_pos": 2})
    time.sleep(0.05)
    answer(k, question, "ab")
    k.finish(name)
    assert k.finish(following).result == "'abab'"
    assert "len" in k.finish(word).reply["matches"]


def test_long_answers(k: Front) -> None:
    name = k.begin("len(input())")
    answer(k, asked(k), "é" * 300_000)
    assert k.finish(name).result == "300000"


def test_prompt_that_is_no_text(k: Front) -> None:
    name = k.begin("input([1, 2])")
    question = asked(k)
    answer(k, question, "")
    assert question["prompt"] == "[1, 2]" and k.finish(name).result == "''"


def test_two_threads_ask_while_the_main_thread_is_busy(k: Front) -> None:
    name = k.begin(
        "import threading\ngot = {}\n"
        "def ask(n): got[n] = input(str(n))\n"
        "threads = [threading.Thread(target=ask, args=(n,)) for n in range(2)]\n"
        "for t in threads: t.start()\nfor t in threads: t.join()\nsorted(got.items())"
    )
    questions = sorted((asked(k), asked(k)), key=lambda q: str(q["prompt"]), reverse=True)
    for question in questions:
        answer(k, question, "answer " + question["prompt"])
    assert k.finish(name).result == "[(0, 'answer 0'), (1, 'answer 1')]"


def test_thread_asks_while_a_cell_awaits(k: Front) -> None:
    name = k.begin("import asyncio\nawait asyncio.to_thread(input, 'q')")
    answer(k, asked(k), "z")
    assert k.finish(name).result == "'z'"


def test_pdb(k: Front) -> None:
    name = k.begin("def f():\n    inner = 41\n    breakpoint()\n    return inner\nf()")
    question = asked(k)
    assert "ipdb" in question["prompt"]
    answer(k, question, "p inner + 1")
    messages = k.wait_for(lambda m: m.kind == "input_request")
    assert "42" in "".join(m.fields.get("text", "") for m in messages)
    answer(k, messages[-1].fields, "c")
    assert k.finish(name).result == "41"


def test_interrupts_during_answers_tear_nothing(k: Front) -> None:
    """The interrupt comes together with the answer and other requests, which must all survive."""
    for number in range(40):
        name = k.begin("input()")
        question = asked(k)
        words = [k.ask("is_complete", content={"code": "1"}, filling="x" * 100_000) for _ in range(2)]
        if number % 2:
            k.interrupt()
            answer(k, question, "x" * 100_000)
        else:
            answer(k, question, "x" * 100_000)
            k.interrupt()
        assert k.finish(name).reply["status"] in ("ok", "error")
        for word in words:
            k.finish(word)
    assert k.good("1").result == "1"
