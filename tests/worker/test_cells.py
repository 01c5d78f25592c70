"""Requests and their answers: the stock kernel's behaviour, over the channel."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest

from .front import Front, front


def test_ready(k: Front) -> None:
    ready: dict[str, Any] = k.ready.fields  # type: ignore[attr-defined]
    assert ready["python"] == sys.version.split()[0] and ready["execution_count"] == 1
    assert "IPython" in ready["banner"]


def test_result_and_counts(k: Front) -> None:
    cell = k.good("6 * 7")
    assert cell.result == "42" and cell.reply["execution_count"] == 1 and cell.next_count == 2
    (content,) = cell.published("execute_result")
    assert content["execution_count"] == 1
    assert k.good("_ + 1; _1, In[1], Out[1]").result == "(42, '6 * 7', 42)"
    assert k.good("5;").published("execute_result") == []


def test_error_is_equal_in_message_and_reply(shared: Front) -> None:
    cell = shared.run("def f():\n    1/0\nf()")
    (content,) = cell.published("error")
    assert cell.reply["status"] == "error" and cell.reply["ename"] == "ZeroDivisionError"
    assert all(content[name] == cell.reply[name] for name in ("ename", "evalue", "traceback"))
    text = "\n".join(content["traceback"])
    assert "sandbox_kernel" not in text and "ipykernel" not in text


@pytest.mark.parametrize(
    "code", ["raise SystemExit(3)", "raise KeyboardInterrupt", "raise BaseException", "x y"]
)
def test_every_kind_of_exception_is_an_error_reply(shared: Front, code: str) -> None:
    assert shared.run(code).reply["status"] == "error"
    assert shared.good("1").result == "1"


def test_silent_and_unstored(k: Front) -> None:
    cell = k.good("print('seen'); 7", silent=True, store_history=False)
    assert cell.stdout == "seen\n" and not cell.published("execute_result") and cell.next_count == 1
    cell = k.good("8", store_history=False)
    assert cell.result == "8" and cell.next_count == 1


def test_user_expressions(shared: Front) -> None:
    cell = shared.good("a = 2", user_expressions={"ok": "a + 1", "bad": "nope"})
    answers = cell.reply["user_expressions"]
    assert answers["ok"]["data"]["text/plain"] == "3" and answers["bad"]["ename"] == "NameError"


def test_payloads(k: Front) -> None:
    (page,) = k.good("len?").reply["payload"]
    assert page["source"] == "page" and "text/plain" in page["data"]
    (following,) = k.good("get_ipython().set_next_input('y = 1')").reply["payload"]
    assert following["source"] == "set_next_input" and following["text"] == "y = 1"
    (leaving,) = k.good("exit").reply["payload"]
    assert leaving["source"] == "ask_exit"
    time.sleep(0.2)  # stock stops its loop a moment after; the front decides here
    assert k.good("1").result == "1"


def test_display(shared: Front) -> None:
    cell = shared.good(
        "print('a')\nh = display('x', display_id='d')\nprint('b')\nfrom IPython.display import clear_output\n"
        "h.update('y')\nclear_output(wait=True)\n'r'"
    )
    kinds = [m.fields.get("msg_type", m.kind) for m in cell.messages if m.fields.get("text") != "\n"]
    assert kinds == [
        "stream", "display_data", "stream", "update_display_data", "clear_output", "execute_result", "reply",
    ]  # fmt: skip
    assert cell.published("display_data")[0]["transient"] == {"display_id": "d"}


def test_display_hooks_and_capture(shared: Front) -> None:
    cell = shared.good("%%capture out\nprint('hidden'); display('shown')\n1/1")
    assert not cell.stdout and not cell.published("display_data", "execute_result")
    assert shared.good("out.stdout, len(out.outputs)").result == "('hidden\\n', 2)"
    cell = shared.good(
        "pub = get_ipython().display_pub\nhook = lambda m: None\npub.register_hook(hook)\n"
        "display('gone')\npub.unregister_hook(hook)\ndisplay('there')"
    )
    assert len(cell.published("display_data")) == 1


def test_values_that_json_has_no_word_for(shared: Front) -> None:
    code = (
        "import datetime, math\nfrom IPython.display import display\n"
        "display({'application/json': {'n': math.nan, 1: b'x', 't': datetime.datetime(2026, 1, 1)}},"
        "raw=True)"
    )
    (content,) = shared.good(code).published("display_data")
    assert (
        content["data"]["application/json"]["n"] == "nan"
        and content["data"]["application/json"]["1"] == "eA=="
    )


@pytest.mark.parametrize(
    "value",
    ["'x' * (40 * 2**20)", "__import__('functools').reduce(lambda a, _: [a], range(70), 1)", "object()"],
)
def test_a_display_that_cannot_be_sent_is_the_cells_error(shared: Front, value: str) -> None:
    cell = shared.run(
        f"from IPython.display import display\ndisplay({{'application/json': {value}}}, raw=True)"
    )
    assert cell.reply["status"] == "error" and not cell.published("display_data")
    assert shared.good("1").result == "1"


def test_messages_of_ones_own(shared: Front) -> None:
    shared.good("session = get_ipython().kernel.session")
    assert shared.run("session.send(None, 'display_data', [1])").reply["ename"] == "TypeError"
    cell = shared.good(
        "session.send(None, 'status', {'execution_state': 'idle'})\nsession.send(None, 'made_up', {});"
    )
    assert len(cell.messages) == 1
    cell = shared.good("display({'application/json': {'n': 2**70}}, raw=True)")
    assert cell.published("display_data")[0]["data"]["application/json"]["n"] == 2**70


def test_huge_errors_and_replies_are_cut(shared: Front) -> None:
    cell = shared.run("raise ValueError('x' * (40 * 2**20))")
    assert cell.reply["ename"] == "ValueError" and 10_000 < len(cell.reply["evalue"]) <= 1_000_000
    cell = shared.run("", user_expressions={"big": "'x' * (40 * 2**20)"})
    assert cell.reply["status"] == "error" and "cannot be sent" in cell.reply["evalue"]


def test_traceback_hooks_of_users(shared: Front) -> None:
    shared.good("class E(Exception):\n    def _render_traceback_(self): return [1, None]")
    cell = shared.run("raise E")
    assert cell.reply["status"] == "error" and cell.published("error")[0]["traceback"] == ["1", "None"]
    assert shared.good("1").result == "1"


def test_lone_surrogates(shared: Front) -> None:
    cell = shared.good("print('a\\ud800b')\n'\\udcff'")
    assert cell.stdout == "a\\ud800b\n"
    cell = shared.good("display({'text/plain': 'q\\udc80'}, raw=True)")
    assert cell.published("display_data")[0]["data"]["text/plain"] == "q\\udc80"


# -- what libraries look at


def test_environment_detection(shared: Front) -> None:
    shared.good("ip = get_ipython()")
    assert (
        shared.good("type(ip).__module__, type(ip).__name__").result
        == "('ipykernel.zmqshell', 'ZMQInteractiveShell')"
    )
    assert shared.good("'IPKernelApp' in ip.config").result == "True"
    cell = shared.good("ip.kernel.get_parent()['header']['msg_id'], ip.get_parent()['header']['msg_id']")
    assert cell.result == repr((cell.id, cell.id))
    assert shared.good("import sys\n'ipykernel' in sys.modules, '' in sys.path").result == "(True, True)"
    assert (
        shared.good("from ipykernel.ipkernel import IPythonKernel as K\nisinstance(ip.kernel, K)").result
        == "True"
    )
    assert (
        shared.good("ip.kernel.session.key, ip.kernel.get_parent()['header']['date'].year").result
        == "(b'', 2026)"
    )
    assert (
        shared.good("__name__, sys.stdout.encoding, sys.stdout.isatty()").result
        == "('__main__', 'UTF-8', False)"
    )
    assert shared.good("import ipykernel.iostream as i\nisinstance(sys.stdout, i.OutStream)").result == "True"


def test_environment_variables() -> None:
    with front({"JPY_SESSION_NAME": "/a/b.ipynb"}) as k:
        cell = k.good("import os\n[os.environ.get(n) for n in ('PAGER', 'TERM', 'MPLBACKEND')], __session__")
        expected = (["cat", "xterm-color", "module://matplotlib_inline.backend_inline"], "/a/b.ipynb")
        assert cell.result.replace("\n", "") == repr(expected)


def test_nothing_heavy_is_loaded_and_no_thread_runs(k: Front) -> None:
    heavy = ("debugpy", "_pydevd_bundle", "numpy")
    inherited = [name for name in heavy if name in sys.modules]  # the worker is a fork of this process
    code = f"import sys, threading\n[m for m in {heavy!r} if m in sys.modules], threading.active_count()"
    assert k.good(code).result == f"({inherited!r}, 1)"
    assert not k.raw["stdout"] and not k.raw["stderr"]


def test_debugger_of_the_kernel_is_ipythons(shared: Front) -> None:
    assert (
        shared.good("import pdb, IPython.core.debugger as d\npdb.Pdb is d.InterruptiblePdb").result == "True"
    )
    assert (
        "ipykernel"
        in shared.good("import sys, ipykernel.debugger\nsys.breakpointhook.__module__, 'ipykernel'").result
    )


def test_faulthandler_can_be_enabled(shared: Front) -> None:
    shared.good("import faulthandler\nfaulthandler.enable(); faulthandler.disable()")


def test_matplotlib_appears_without_magic_or_warning(k: Front) -> None:
    pytest.importorskip("matplotlib")
    cell = k.good("import matplotlib.pyplot as plt\nplt.plot([1, 2]);")
    (figure,) = cell.published("display_data")
    assert "image/png" in figure["data"] and not cell.stderr and not k.raw["stderr"]
    assert len(k.good("plt.plot([2, 1]); plt.show(); plt.plot([3, 1]);").published("display_data")) == 2
    k.good("%matplotlib inline")
    k.good("%config InlineBackend.figure_format = 'svg'")
    (figure,) = k.good("plt.plot([1, 2]);").published("display_data")
    assert "image/svg+xml" in figure["data"]
    assert "InlineBackend.figure_formats" in k.good("%config InlineBackend").stdout


# -- async


def test_top_level_await_and_one_loop(k: Front) -> None:
    assert (
        k.good("import asyncio\nloop = asyncio.get_event_loop()\nawait asyncio.sleep(0.01, 5)").result == "5"
    )
    assert k.good("loop is asyncio.get_event_loop(), loop.is_running()").result == "(True, True)"
    cell = k.run("async def f(): pass\nc = f()\ntry: asyncio.run(c)\nfinally: c.close()")
    assert cell.reply["ename"] == "RuntimeError"


def test_tasks_run_between_cells_and_print_to_their_own(k: Front) -> None:
    first = k.good(
        "import asyncio\nasync def later():\n    await asyncio.sleep(0.2); print('from task'); display('d')\n"
        "t = asyncio.ensure_future(later())"
    )
    second = k.good("print('second')")
    assert "from task" not in second.stdout
    messages = k.wait_for(lambda m: m.kind == "publish")
    assert [m.fields["text"] for m in messages[:-1]] == ["from task", "\n"]
    assert {m.parent for m in messages} == {first.id}


def test_context_variables_persist(k: Front) -> None:
    k.good("import contextvars\nv = contextvars.ContextVar('v')\nv.set(3);")
    assert k.good("v.get()").result == "3"


def test_cells_do_not_overlap(k: Front) -> None:
    one = k.begin("import asyncio\norder = ['a']; await asyncio.sleep(0.1); order.append('b')")
    two = k.begin("order.append('c')")
    k.finish(one)
    k.finish(two)
    assert k.good("order").result == "['a', 'b', 'c']"


def test_completion_waits_for_its_turn(k: Front) -> None:
    one = k.begin("import asyncio\nawait asyncio.sleep(0.1); zebra_one = 1")
    two = k.ask("complete", "complete_request", content={"code": "zebra_", "cursor_pos": 6})
    k.finish(one)
    assert k.finish(two).reply["matches"] == ["zebra_one"]


def test_exceptions_in_tasks_do_not_end_the_worker(k: Front) -> None:
    for name in ("SystemExit", "KeyboardInterrupt", "BaseException"):
        k.good(f"import asyncio\nasync def f(): raise {name}('in task')\nt = asyncio.ensure_future(f())")
        time.sleep(0.05)
        assert k.good("t.done()").result == "True"
    k.good("asyncio.get_event_loop().call_soon(lambda: 1/0);")
    k.good("asyncio.get_event_loop().stop()")
    k.good("for t in asyncio.all_tasks(): t.cancel()")
    assert k.good("1").result == "1"


# -- small requests


def test_completion_has_types(shared: Front) -> None:
    shared.good("def zap_function(a): pass")
    reply = shared.finish(shared.ask("complete", content={"code": "zap_f", "cursor_pos": 5})).reply
    assert reply["matches"] == ["zap_function"] and (reply["cursor_start"], reply["cursor_end"]) == (0, 5)
    (typed,) = reply["metadata"]["_jupyter_types_experimental"]
    assert typed["type"] == "function"


def test_inspection(shared: Front) -> None:
    content = {"code": "len", "cursor_pos": 3, "detail_level": 0}
    reply = shared.finish(shared.ask("inspect", content=content)).reply
    assert reply["found"] and "number of items" in reply["data"]["text/plain"]
    assert not shared.finish(shared.ask("inspect", content={"code": "nope_", "cursor_pos": 5})).reply["found"]


@pytest.mark.parametrize(
    ("code", "status"), [("1", "complete"), ("for i in x:", "incomplete"), ("x y z", "invalid")]
)
def test_is_complete(shared: Front, code: str, status: str) -> None:
    assert shared.finish(shared.ask("is_complete", content={"code": code})).reply["status"] == status


def test_failing_small_requests_are_answered(shared: Front) -> None:
    shared.good("get_ipython().Completer.completions, keep = None, get_ipython().Completer.completions")
    reply = shared.finish(shared.ask("complete", content={"code": "le", "cursor_pos": 2})).reply
    assert reply["matches"] == [] and reply["status"] == "ok"
    shared.good("get_ipython().Completer.completions = keep")
    assert shared.finish(shared.ask("nonsense")).reply == {}


def test_interrupt_of_a_completion(k: Front) -> None:
    k.good("class Slow:\n    def __dir__(self):\n        import time; print('go'); time.sleep(200)\nslow = Slow()")
    name = k.ask("complete", content={"code": "slow.", "cursor_pos": 5})
    k.wait_text("go\n")
    k.interrupt()
    assert k.finish(name).reply["status"] == "ok"


# -- the module that cells are run in


def test_cells_are_run_in_a_real_main_module(shared: Front) -> None:
    shared.good(
        "import __main__, types\n"
        "assert type(__main__) is types.ModuleType and __main__.__dict__ is globals() is get_ipython().user_ns\n"
        "assert __spec__ is None and __loader__ is None and 'interactive' in __doc__"
    )


# -- history and magics


def test_store_keeps_variables_by_name(k: Front) -> None:
    k.good("kept = [3]\n%store kept\ndel kept\n%store -r kept\nassert kept == [3]")


def test_history_magics_work_from_memory(k: Front) -> None:
    k.good("a = 10")
    k.good("b = a + 1")
    assert k.good("%history").stdout.splitlines() == ["a = 10", "b = a + 1", "%history"]
    assert k.good("%history -l 2").stdout.splitlines() == ["b = a + 1", "%history"]
    assert "b = a + 1" in k.good("%history -g b*").stdout
    k.good("%macro m 1-2")
    assert "a = 10" in k.good("print(m)").stdout
    k.good("a = 50")
    k.good("%rerun 2")
    assert k.good("b").result == "51"
    assert k.good("%recall 1").reply["payload"][0]["text"] == "a = 10"
    assert k.good("get_ipython().history_manager.enabled").result == "False"
    assert "b = a + 1" not in k.good("%history ~1/1-5").stdout
    k.good("%reset -f")
    assert k.run("a").reply["ename"] == "NameError"


@pytest.mark.parametrize(
    "magic", ["%connect_info", "%qtconsole", "%subshell", "%config", "%lsmagic", "%who", "%pinfo len"]
)
def test_magics_without_a_connection_do_not_fail(shared: Front, magic: str) -> None:
    assert "key" not in shared.good(magic).stdout
