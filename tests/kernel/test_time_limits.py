"""Time that a cell or its client gives the cell: it may only be less than the policy allows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from sandbox_kernel.kernel import cell_options as options
from sandbox_kernel.kernel.cell_options import cell_options, half_time

from .conftest import Outcome, Running, starting


@pytest.mark.parametrize(
    ("code", "seconds"),
    [
        ("# sandbox: timeout=30\n1", 30), ("\n\n# a title\n#sandbox:timeout=5min\n1", 300), ("1", 0),
        ("#  sandbox:  timeout=1.5,\n", 1.5), ("'# sandbox: timeout=30'", 0),
        ("# sandbox: timeout=30\n# sandbox: timeout=20", 20), ("%%time\n# sandbox: timeout=30", 30),
        ("# a title\n\n# more\n# sandbox: timeout=30\n1", 30), ('x = """\n# sandbox: timeout=30\n"""', 0),
        ("# sandbox is nice\n1", 0), ("# sandbox:\n1", 0), ("", 0),
    ],
)  # fmt: skip
def test_the_comment(code: str, seconds: float) -> None:
    assert cell_options(code, {}) == (seconds, [])


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("# sandbox: timout=30", "Did you mean timeout?"), ("# sandbox: memory=8GiB", "does not know 'memory'"),
        ("# sandbox: timeout=soon", "'soon' is not a positive time"), ("# sandbox: timeout=-1", "not a positive time"),
        ("# sandbox: timeout=0", "not a positive time"), ("# sandbox: timeout", "not a positive time"),
        ("# sandbox: timeout=inf", "not a positive time"),
        ("x = 1\n# sandbox: timeout=30", "must stand above"), ("sleep(9)  # sandbox: timeout=30", "must stand above"),
        ("%time f()\n# sandbox: timeout=30", "must stand above"),
    ],
)
def test_what_is_wrong_is_told(code: str, said: str) -> None:
    seconds, notes = cell_options(code, {})
    assert seconds == 0 and said in "".join(notes)


@pytest.mark.parametrize("metadata", [{"sandbox": None}, {"sandbox": []}, {"sandbox": {}}, {"cellId": "x"}])
def test_other_metadata_says_nothing(metadata: dict[str, Any]) -> None:
    assert cell_options("1", metadata) == (0, [])


def test_the_shortest_counts() -> None:
    assert cell_options("# sandbox: timeout=30\n1", {"sandbox": {"timeout": 10}})[0] == 10
    assert cell_options("# sandbox: timeout=3\n1", {"sandbox": {"timeout": "10s"}})[0] == 3
    assert cell_options("1", {"sandbox": {"timeout": [1]}})[1]


def test_half_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(seconds: float) -> list[str]:
        told: list[str] = []
        came = asyncio.Event()

        def show(text: str) -> None:
            told.append(text)
            came.set()

        with half_time(asyncio.get_running_loop(), seconds, show):
            if seconds >= options.NOTICE_S:
                await came.wait()
        return told

    monkeypatch.setattr(options, "NOTICE_S", 0.1)
    assert asyncio.run(main(0.2)) == ["[Half of this cell's time is over: it may run for 0.2 s]\n"]
    assert asyncio.run(main(0.05)) == asyncio.run(main(0)) == []


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with starting(tmp_path_factory.mktemp("times")) as start:
        kernel = start("seccomp+landlock", policy='[limits]\ncell_time = "5s"\n')
        kernel.good("import time")
        yield kernel


def _with_metadata(kernel: Running, code: str, metadata: dict[str, Any]) -> dict[str, Any]:
    message = kernel.client.session.msg("execute_request", {"code": code, "allow_stdin": False}, metadata=metadata)
    kernel.client.shell_channel.send(message)
    while True:
        reply: dict[str, Any] = kernel.client.get_shell_msg(timeout=60)
        if reply["parent_header"].get("msg_id") == message["header"]["msg_id"]:
            return dict(reply["content"])


def test_a_cell_can_have_less(kernel: Running) -> None:
    outcome = kernel.run("# sandbox: timeout=0.5\ntime.sleep(60)")
    assert outcome.reply["ename"] == "TimeLimit" and "timeout = 0.5 s" in outcome.reply["evalue"]
    assert kernel.good("time.sleep(0.8); print(1)").stdout == "1\n", "the next one has all of its time"


def test_nobody_can_have_more(kernel: Running) -> None:
    outcome: Outcome = kernel.run("# sandbox: timeout=300\ntime.sleep(60)")
    assert "limits.cell_time = 5 s" in outcome.reply["evalue"]
    assert "the limit stays 5 s (limits.cell_time), not 5 min" in outcome.stderr
    # JupyterLab sends what a downloaded notebook has in its cells.
    reply = _with_metadata(kernel, "time.sleep(60)", {"cellId": "1", "sandbox": {"timeout": 300}})
    assert "limits.cell_time = 5 s" in reply["evalue"]


def test_metadata_can_ask_for_less(kernel: Running) -> None:
    reply = _with_metadata(kernel, "time.sleep(60)", {"sandbox": {"timeout": 0.5}})
    assert reply["ename"] == "TimeLimit" and "timeout = 0.5 s" in reply["evalue"]


def test_unknown_words_are_told(kernel: Running) -> None:
    assert "does not know 'memory'" in kernel.good("# sandbox: memory=8GiB\n1").stderr
