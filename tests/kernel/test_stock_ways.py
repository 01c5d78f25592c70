"""What people do in the ordinary Python kernel, through the front: each as one small session."""

from __future__ import annotations

import time
from typing import Any

import pytest

from .conftest import LEVELS, Running, Start


@pytest.fixture
def kernel(start_shared: Start) -> Running:
    """None may count on what another has left, nor leave a cell that runs."""
    return start_shared()


def begin(kernel: Running, code: str, **options: Any) -> str:
    """Sends a cell and returns once the client is told that it runs."""
    name = kernel.client.execute(code, **options)
    while True:
        message = kernel.client.get_iopub_msg(timeout=50)
        if message["msg_type"] == "execute_input" and message["parent_header"]["msg_id"] == name:
            return str(name)


def reply_to(kernel: Running, name: str, timeout: float = 50) -> dict[str, Any]:
    while True:
        reply = kernel.client.get_shell_msg(timeout=timeout)
        if reply["parent_header"].get("msg_id") == name:
            return dict(reply["content"])


def control(kernel: Running, kind: str) -> dict[str, Any]:
    request = kernel.client.session.msg(kind, {})
    kernel.client.control_channel.send(request)
    while True:
        reply = kernel.client.get_control_msg(timeout=30)
        if reply["parent_header"]["msg_id"] == request["header"]["msg_id"]:
            return dict(reply["content"])


def first_text(kernel: Running, name: str, text: str) -> float:
    """When the client got a text of the cell."""
    while True:
        message = kernel.client.get_iopub_msg(timeout=50)
        if message["parent_header"].get("msg_id") == name and text in str(message["content"].get("text", "")):
            return time.monotonic()


def test_usage_counts_the_code_that_runs(kernel: Running) -> None:
    before = control(kernel, "usage_request")["kernel_memory"]
    kernel.good("held = bytearray(b'x') * (100 << 20)")
    assert control(kernel, "usage_request")["kernel_memory"] - before > 90 << 20
    name = begin(kernel, "del held\nwhile True: pass")
    control(kernel, "usage_request")  # the first figure of a process is none
    most = 0.0
    for _ in range(20):
        time.sleep(0.2)
        most = max(most, control(kernel, "usage_request")["kernel_cpu"])
        if most > 20:
            break
    assert most > 20
    kernel.manager.interrupt_kernel()
    reply_to(kernel, name)


def test_files_modules_and_their_changes(kernel: Running) -> None:
    kernel.good("%%writefile tool.py\nvalue = 1\nprint('ran as', __name__)")
    assert kernel.good("%run tool.py\nprint(value)").stdout == "ran as __main__\n1\n"
    kernel.good("%load_ext autoreload\n%autoreload 2\nimport tool")
    kernel.good("import pathlib\npathlib.Path('tool.py').write_text('value = 2222\\n');")
    assert kernel.good("print(tool.value)").stdout.endswith("2222\n")


@pytest.mark.parametrize("cell", ["!echo first; sleep 1; echo second", "%%bash\necho first; sleep 1; echo second"])
def test_commands_show_what_they_write_at_once(kernel: Running, cell: str) -> None:
    name = begin(kernel, cell)
    first = first_text(kernel, name, "first")
    second = first_text(kernel, name, "second")
    assert second - first > 0.7
    assert reply_to(kernel, name)["status"] == "ok"


def test_exit_ends_the_kernel_as_a_normal_end(start: Start) -> None:
    kernel = start()
    kernel.good("import atexit\natexit.register(lambda: open('left.txt', 'w').close());")
    reply = kernel.run("exit").reply
    assert reply["payload"] == [{"source": "ask_exit", "keepkernel": False}]
    assert kernel.manager.provisioner.process.wait(20) == 0
    assert (kernel.folder / "left.txt").exists()


def test_classes_of_cells_pickle_and_processes_use_them(kernel: Running) -> None:
    kernel.good("import dataclasses\n@dataclasses.dataclass\nclass Point:\n    x: int")
    kernel.good("def double(p): return Point(p.x * 2)")
    kernel.good("import pickle\nassert pickle.loads(pickle.dumps(Point(3))) == Point(3)")
    kernel.good("import multiprocessing as mp")
    code = "with mp.get_context('fork').Pool(2) as pool: print(pool.map(double, [Point(1)]))"
    assert kernel.good(code).stdout == "[Point(x=2)]\n"
    code = "import os\nif os.fork() == 0:\n    print('of the child', flush=True)\n    os._exit(0)\nos.wait();"
    assert kernel.good(code).stdout == "of the child\n"


def test_children_have_the_cells_streams_and_an_empty_standard_input(kernel: Running) -> None:
    kernel.good("import subprocess, sys")
    code = "subprocess.run(['echo', 'here'], stdout=sys.stdout)\nsubprocess.run(['cat'], timeout=8);"
    assert kernel.good(code).stdout == "here\n"
    assert kernel.good("print(repr(sys.stdin.read(1)))").stdout == "''\n"


def test_text_that_is_none_ends_at_once(kernel: Running) -> None:
    assert "lone" in kernel.good("print('\\ud800 lone')").stdout
    assert kernel.run("raise ValueError(chr(0xd8ff))").reply["ename"] == "ValueError"
    assert "\ufffd" in kernel.good("!head -c 5000 /dev/urandom").stdout
    assert kernel.good("print('fine')").stdout == "fine\n"


def test_an_answer_that_comes_late_reaches_no_later_question(kernel: Running) -> None:
    name = begin(kernel, "input('first? ')", allow_stdin=True)
    assert kernel.client.get_stdin_msg(timeout=30)["content"]["prompt"] == "first? "
    kernel.manager.interrupt_kernel()
    assert reply_to(kernel, name)["ename"] == "KeyboardInterrupt"
    kernel.client.input("late")
    name = begin(kernel, "print(input('second? '))", allow_stdin=True)
    assert kernel.client.get_stdin_msg(timeout=30)["content"]["prompt"] == "second? "
    kernel.client.input("right")
    first_text(kernel, name, "right")
    assert reply_to(kernel, name)["status"] == "ok"


def test_what_stands_behind_a_failed_cell_is_aborted_unless_it_says_otherwise(kernel: Running) -> None:
    names = [kernel.client.execute(code) for code in ("import time; time.sleep(0.5); 1/0", "x = 1", "x = 2")]
    assert [reply_to(kernel, name)["status"] for name in names] == ["error", "aborted", "aborted"]
    names = [kernel.client.execute(code, stop_on_error=False) for code in ("1/0", "x = 3", "1/0", "x")]
    assert [reply_to(kernel, name)["status"] for name in names] == ["error", "ok", "error", "ok"]


def test_payloads_and_session_facts(kernel: Running) -> None:
    asked = kernel.good("get_ipython().set_next_input('next')")
    passed = [{"source": "set_next_input", "text": "next", "replace": False}]
    assert asked.reply["payload"] == passed, "this client has no document that it would change"
    assert kernel.good("print?").reply["payload"][0]["source"] == "page"
    assert kernel.good("1").reply["payload"] == []
    shown = kernel.good("ip = get_ipython()\nprint(type(ip).__name__, 'IPKernelApp' in ip.config, __name__)").stdout
    assert shown == "ZMQInteractiveShell True __main__\n"


def test_cells_can_ask_for_the_messages_that_the_kernel_answers(start: Start) -> None:
    kernel = start()
    session = kernel.client.session
    request = session.msg("kernel_info_request", {})
    kernel.client.control_channel.send(request)
    while kernel.client.get_control_msg(timeout=30)["parent_header"]["msg_id"] != request["header"]["msg_id"]:
        pass
    kernel.good("k = get_ipython().kernel")
    asked = kernel.good("print(k.get_parent('control')['header']['msg_id'])").stdout
    assert asked.strip() == request["header"]["msg_id"]
    for channel in ("shell", "control"):
        assert kernel.good(f"print(k._parent_ident[{channel!r}])").stdout == f"[{session.bsession!r}]\n"


def test_many_requests_at_once_are_answered_in_order_and_each_is_busy_first(kernel: Running) -> None:
    """Replies pass no queue, and what says that a cell begins waits for the worker to have it: nothing is overtaken."""
    names = [kernel.client.execute(f"print({number})") for number in range(40)]
    replies = [kernel.client.get_shell_msg(timeout=50)["parent_header"]["msg_id"] for _ in names]
    assert replies == names
    seen: dict[str, list[str]] = {name: [] for name in names}
    while not all("idle" in found for found in seen.values()):
        message = kernel.client.get_iopub_msg(timeout=50)
        kind = message["content"].get("execution_state", message["msg_type"])
        kinds = seen.get(message["parent_header"].get("msg_id"), [])
        if kind != "stream" or "stream" not in kinds:  # (where the worker is slow a line comes in two pieces)
            kinds.append(kind)
    assert set(map(tuple, seen.values())) == {("busy", "execute_input", "stream", "idle")}


def test_what_is_asked_after_a_failed_cells_reply_is_not_aborted_with_the_rest(kernel: Running) -> None:
    for _ in range(20):
        failed = kernel.client.execute("1 / 0")
        assert reply_to(kernel, failed)["status"] == "error"
        assert reply_to(kernel, kernel.client.execute("1"))["status"] == "ok"


def test_an_empty_cell_has_no_number_and_no_place_in_the_history(kernel: Running) -> None:
    kernel.good("early = 1")
    first = kernel.good("first = 1").reply["execution_count"]
    for nothing in ("", "  \n"):
        kernel.good(nothing, user_expressions={"early": "early"})
    assert kernel.good("second = 2").reply["execution_count"] == first + 1
    request = kernel.client.history(hist_access_type="range", session=0, start=first - 1, stop=first + 2)
    history = reply_to(kernel, request)["history"]
    assert [(line, text) for _, line, text in history] == [
        (first - 1, "early = 1"), (first, "first = 1"), (first + 1, "second = 2"),
    ]  # fmt: skip
    assert len({session for session, _, _ in history}) == 1


def test_a_module_warns_once_however_many_copies_are_made_between_the_cells(kernel: Running) -> None:
    kernel.good("%%writefile warner.py\nimport warnings\ndef warn():\n    warnings.warn('only once')")
    assert "only once" in kernel.good("import warner; warner.warn()").stderr
    for name in ("one", "two"):
        kernel.good(f"%sandbox checkpoint {name}")
        assert "only once" not in kernel.good("warner.warn()").stderr


def test_config_shows_the_completer_by_its_name(kernel: Running) -> None:
    assert "IPCompleter\n" in kernel.good("%config").stdout
    assert "IPCompleter.use_jedi" in kernel.good("%config IPCompleter").stdout


def test_the_traceback_of_an_interrupted_question_shows_as_many_frames_as_the_ordinary_one(kernel: Running) -> None:
    name = kernel.client.execute("input('? ')", allow_stdin=True)
    kernel.client.get_stdin_msg(timeout=30)
    kernel.manager.interrupt_kernel()
    reply = reply_to(kernel, name)
    assert (reply["ename"], reply["evalue"]) == ("KeyboardInterrupt", "Interrupted by user")
    frames = [entry for entry in reply["traceback"] if "-> " in entry]
    assert len(frames) == 3, "the cell, raw_input and what it calls"
    assert "questions.py" not in "".join(frames)


def test_a_file_beside_the_notebook_hides_no_module_of_the_standard_library(start: Start) -> None:
    kernel = start("auto")
    for name in ("beside", "colorsys"):
        (kernel.folder / f"{name}.py").write_text("of = 'the notebook'\n")
    kernel.good("import beside, colorsys\nassert beside.of == 'the notebook' and not hasattr(colorsys, 'of')")
    kernel.good("import sys\nassert 'site-packages' in sys.path[sys.path.index('') + 1]")


@pytest.mark.parametrize("level", LEVELS)
def test_output_goes_to_the_streams_by_their_names_too(start: Start, level: str) -> None:
    kernel = start(level)
    assert kernel.good("with open('/dev/stdout', 'w') as out: print('by name', file=out)").stdout == "by name\n"
    assert kernel.good("print('error', file=open('/dev/stderr', 'w'), flush=True)").stderr == "error\n"
    shown = kernel.good("import subprocess\nsubprocess.run('echo x > /dev/stdout; echo y > /dev/stderr', shell=True);")
    assert (shown.stdout, shown.stderr) == ("x\n", "y\n")
