"""``sys.stdout`` and ``sys.stderr``: complete, in order, at once, and on the right cell."""

from __future__ import annotations

import time

import pytest

from .front import Front


def test_order_of_streams_and_displays(shared: Front) -> None:
    cell = shared.good("import sys\nprint('1'); sys.stderr.write('2'); display(3); print('4', flush=True); 5")
    seen = [
        m.fields.get("text") or m.fields["content"]["data"]["text/plain"]
        for m in cell.messages[:-1]
        if m.fields.get("text") != "\n"
    ]
    assert seen == ["1", "2", "3", "4", "5"]


def test_text_comes_at_once_and_without_newline(k: Front) -> None:
    name = k.begin("import time\nprint('now', end='')\ntime.sleep(60)")
    k.wait_text("now")
    k.interrupt()
    k.finish(name)


@pytest.mark.parametrize(
    "text", ["\\r\\x1b[31m\\0\\b\\x7f", "日本 😀", "\\u2028", '"quoted" \\\\ \\t', "x" * 70_000]
)
def test_every_character_arrives(shared: Front, text: str) -> None:
    assert shared.good(f"print('{text}')").stdout == eval(f"'{text}'") + "\n"


def test_long_text_is_sent_in_pieces(shared: Front) -> None:
    cell = shared.good("import sys\nn = sys.stdout.write('\\0é' * 3_000_000)")
    assert cell.stdout == "\0é" * 3_000_000
    assert shared.good("n").result == "6000000"


def test_interface(shared: Front) -> None:
    shared.good("import sys, io")
    assert shared.run("sys.stdout.write(b'x')").reply["ename"] == "TypeError"
    assert (
        shared.good("isinstance(sys.stdout, io.TextIOBase), sys.stdout.errors is None").result
        == "(True, False)"
    )
    assert shared.good("sys.stdout.fileno(), sys.stderr.fileno()").result == "(1, 2)"
    assert (
        shared.good("sys.stdout.writable(), sys.stdout.readable(), sys.stdout.closed").result
        == "(True, False, False)"
    )
    assert shared.good("sys.stdout.writelines(['a', 'b'])").stdout == "ab"
    assert shared.good("sys.stdout.close(); print('still here')").stdout == "still here\n"
    assert shared.good("sys.stdout.name, sys.stderr.name").result == "('stdout', 'stderr')"
    assert (
        shared.good(
            "from contextlib import redirect_stdout\nwith redirect_stdout(io.StringIO()) as f: print('q')"
        ).stdout
        == ""
    )


def test_ten_thousand_lines(shared: Front) -> None:
    cell = shared.good(
        "import time\nbegin = time.process_time()\nfor i in range(10_000): print(i)\n"
        "taken = time.process_time() - begin"
    )
    assert cell.stdout == "".join(f"{i}\n" for i in range(10_000))
    assert float(shared.good("taken").result) < 6.0  # 0.12 when nothing else runs


def test_threads_lose_no_line(k: Front) -> None:
    cell = k.good(
        "import threading\n"
        "def talk(n):\n    for i in range(500): print(f'{n}:{i}\\n', end='')\n"
        "threads = [threading.Thread(target=talk, args=(n,)) for n in range(8)]\n"
        "for t in threads: t.start()\nfor t in threads: t.join()"
    )
    lines = cell.stdout.splitlines()
    assert sorted(lines) == sorted(f"{n}:{i}" for n in range(8) for i in range(500))
    for n in range(8):
        assert [line for line in lines if line.startswith(f"{n}:")] == [f"{n}:{i}" for i in range(500)]


def test_threads_and_large_buffers_do_not_mix(k: Front) -> None:
    cell = k.good(
        "import threading\nfrom comm import create_comm\n"
        "c = create_comm(target_name='t')\n"
        "def talk():\n    for i in range(300): print('line', i)\n"
        "def load(b):\n    for i in range(5): c.send({}, buffers=[b * 300_000])\n"
        "threads = [threading.Thread(target=talk), threading.Thread(target=load, args=(b'x',)), "
        "threading.Thread(target=load, args=(b'y',))]\n"
        "for t in threads: t.start()\nfor t in threads: t.join()"
    )
    buffers = [m.buffers[0] for m in cell.messages if m.buffers]
    assert sorted(buffers) == [b"x" * 300_000] * 5 + [b"y" * 300_000] * 5


def test_threads_print_to_the_latest_cell_unless_pinned(k: Front) -> None:
    first = k.good(
        "import threading, time\ngo = threading.Event()\nip = get_ipython()\nparent = ip.get_parent()\n"
        "def plain():\n    go.wait(); print('plain')\n"
        "def pinned():\n    token = ip.set_thread_parent(parent); go.wait(); print('pinned')\n"
        "    display('shown'); ip.reset_thread_parent(token)\n"
        "threads = [threading.Thread(target=f) for f in (plain, pinned)]\nfor t in threads: t.start()"
    )
    second = k.good("go.set()\nfor t in threads: t.join()")
    parents = {
        m.fields["text"]: m.parent for m in second.messages if m.kind == "stream" and m.fields["text"] != "\n"
    }
    assert parents == {"plain": second.id, "pinned": first.id}
    assert [m.parent for m in second.messages if m.kind == "publish"] == [first.id]


def test_hooks_change_and_drop_text(shared: Front) -> None:
    cell = shared.good(
        "import sys\n"
        "def hook(m):\n    m['content']['text'] = m['content']['text'].upper(); return m\n"
        "sys.stdout.register_hook(hook); print('loud'); sys.stdout.unregister_hook(hook)\n"
        "drop = lambda m: None\n"
        "sys.stdout.register_hook(drop); print('gone'); sys.stdout.unregister_hook(drop)\n"
        "print('plain')"
    )
    assert cell.stdout == "LOUD\nplain\n"


def test_thread_and_logging_output_on_stderr(shared: Front) -> None:
    cell = shared.good(
        "import logging, threading\nlogging.getLogger('x').warning('logged')\n"
        "t = threading.Thread(target=lambda: 1/0); t.start(); t.join()"
    )
    assert "logged" in cell.stderr and "ZeroDivisionError" in cell.stderr


def test_raw_descriptors_are_pipes(k: Front) -> None:
    k.good(
        "import os, sys\nos.write(1, b'raw one'); os.write(2, b'raw two'); print('text', file=sys.__stdout__)"
    )
    k.read_pipes(lambda: k.raw == {"stdout": b"raw onetext\n", "stderr": b"raw two"})


def test_unretrieved_task_error_is_shown(k: Front) -> None:
    k.good("import asyncio, gc\nasync def f(): raise ValueError('lost task')\nt = asyncio.ensure_future(f())")
    time.sleep(0.1)
    cell = k.good("del t\ngc.collect();")
    # (Since 3.12 it is said in the context of the task, so it belongs to the cell that has made it.)
    assert "lost task" in "".join(m.fields["text"] for m in cell.messages if m.kind == "stream")


def test_replaced_stdout_does_not_hinder_the_reply(k: Front) -> None:
    k.good(
        "import sys\nkeep = sys.stdout\n"
        "class Bad:\n    def write(self, s): 1/0\n    flush = write\nsys.stdout = Bad()"
    )
    assert k.run("1").reply["status"] in ("ok", "error")
    k.run("sys.stdout = keep")
    assert k.good("print('back')").stdout == "back\n"


_PRINTS = """
import sys
print('a', 1)
print('b', end='')
sys.stderr.write('c')
print('')
display(2)
print('d')
print('e', file=sys.stderr)
"""


def test_what_is_printed_is_noted_as_ipython_does(shared: Front) -> None:
    noted = "[(o.output_type, o.bundle) for o in get_ipython().history_manager.outputs[len(In) - 2]]"
    shared.good("sh = get_ipython(); ours = sh._tee")
    shared.good(_PRINTS)
    shared.good(f"first = {noted}")
    shared.good("sh._tee = type(sh)._tee.__get__(sh)")
    shared.good(_PRINTS)
    shared.good(f"second = {noted}; sh._tee = ours")
    assert shared.good("first == second, len(first) > 3, 'write' in vars(sys.stdout)").result == "(True, True, True)"


def test_a_stream_of_ones_own_gets_what_ipython_hands_to_it(shared: Front) -> None:
    shared.good(
        "import sys\nclass Own:\n  text = []\n  def write(self, string, *, loud=False):\n"
        "    self.text.append((string, loud))\n  def flush(self): pass\nkept, sys.stdout = sys.stdout, Own()"
    )
    shared.good("sys.stdout.write('x', loud=True)")
    assert shared.good("own, sys.stdout = sys.stdout, kept\nown.text").result == "[('x', True)]"


def test_an_interrupt_at_the_edge_of_a_cell_leaves_nothing_in_the_streams_way(shared: Front) -> None:
    assert shared.good(
        "import sys\nbefore = sys.stdout.write\ntry:\n    with get_ipython()._tee('stdout'): raise KeyboardInterrupt\n"
        "except KeyboardInterrupt: pass\nsys.stdout.write is before"
    ).result == "True"
