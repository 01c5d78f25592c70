"""A long day of small cells in one kernel's life: nothing grows in the front, nothing is lost or comes out of order.

With ``SANDBOX_KERNEL_SOAK`` set it is 100,000 cells, or as many as ten minutes allow; otherwise a short form runs.
"""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import psutil
import pytest

from ..kernel.conftest import Running, Start
from ..waiting import wait_for

LONG = bool(os.environ.get("SANDBOX_KERNEL_SOAK"))
# (Until all is full that has a bound: the signatures against replays come last, with 8192 messages.)
CELLS, SECONDS, WARM = (100_000, 600.0, 10_000) if LONG else (1200, 300.0, 300)
# Requests under way at a time: a client does not wait for one cell before it sends the next.
WINDOW = 40

Output = tuple[str, Any]
Kind = tuple[Callable[[int], str], Callable[[int], list[Output]]]

# kind -> the code of cell number n, and what it must show, in this order.
KINDS: dict[str, Kind] = {
    "print": (lambda n: f"print({n})", lambda n: [("stdout", f"{n}\n")]),
    "result": (lambda n: f"{n} * 2", lambda n: [("result", str(n * 2))]),
    "silence": (lambda n: f"kept = {n}", lambda n: []),
    "both streams": (
        lambda n: f"import sys\nprint({n}, flush=True)\nprint('err {n}', file=sys.stderr, flush=True)\nprint('end')",
        lambda n: [("stdout", f"{n}\n"), ("stderr", f"err {n}\n"), ("stdout", "end\n")],
    ),
    "lines": (
        lambda n: f"for i in range(20): print({n}, i)",
        lambda n: [("stdout", "".join(f"{n} {i}\n" for i in range(20)))],
    ),
    "display": (
        lambda n: f"print('a')\nh = display({n}, display_id=True)\nh.update({n} + 1)\nprint('b')\n{n} + 2",
        lambda n: [("stdout", "a\n"), ("display", str(n)), ("update", str(n + 1)), ("stdout", "b\n"),
                   ("result", str(n + 2))],
    ),
    "error": (lambda n: f"print('so far')\nraise KeyError({n})",
              lambda n: [("stdout", "so far\n"), ("error", str(n))]),
    "clear": (lambda n: "from IPython.display import clear_output\nprint('x')\nclear_output()\nprint('y')",
              lambda n: [("stdout", "x\n"), ("clear", False), ("stdout", "y\n")]),
    "comm": (
        lambda n: f"from comm import create_comm\nc = create_comm('nobody')\nc.send({{'n': {n}}})\nc.close()",
        lambda n: [("comm_open", {}), ("comm_msg", {"n": n}), ("comm_close", {})],
    ),
    "program": (lambda n: f"!echo {n}", lambda n: [("stdout", f"{n}\n")]),
}  # fmt: skip
# Programs take far longer than all else; one in a hundred cells.
OFTEN = [kind for kind in KINDS if kind != "program"]


def kind_of(n: int) -> str:
    return "program" if n % 100 == 50 else OFTEN[n % len(OFTEN)]


@dataclass
class Sent:
    """A cell that was sent, and what has come of it."""

    n: int
    outputs: list[Output] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    reply: dict[str, Any] | None = None


def _output(message: dict[str, Any]) -> Output | None:
    content = message["content"]
    match message["msg_type"]:
        case "stream":
            return content["name"], content["text"]
        case "execute_result" | "display_data" | "update_display_data" as kind:
            names = {"execute_result": "result", "display_data": "display", "update_display_data": "update"}
            return names[kind], content["data"]["text/plain"]
        case "error":
            return "error", content["evalue"]
        case "clear_output":
            return "clear", content["wait"]
        case "comm_open" | "comm_msg" | "comm_close" as kind:
            return kind, content["data"]
    return None


class Soak:
    """Sends cells and other requests, and holds each answer against what it must be."""

    def __init__(self, kernel: Running) -> None:
        self.client = kernel.client
        self.waiting: dict[str, Sent] = {}
        self.order: deque[str] = deque()  # cells whose idle is still to come
        self.asked: dict[str, str] = {}
        self.count = itertools.count()
        self.done = self.answers = self.messages = self.executed = 0

    def send(self) -> None:
        """One more cell; now and then another request with it."""
        n = next(self.count)
        # (An error must not discard the cells that are under way.)
        msg_id = self.client.execute(KINDS[kind_of(n)][0](n), stop_on_error=False, allow_stdin=False)
        self.waiting[msg_id] = Sent(n)
        self.order.append(msg_id)
        others = {7: ("complete", ("impor", 5)), 17: ("inspect", ("print", 3)), 27: ("is_complete", ("if 1:",)),
                  37: ("kernel_info", ()), 47: ("comm_info", ())}  # fmt: skip
        if n % 50 in others:
            name, arguments = others[n % 50]
            self.asked[getattr(self.client, name)(*arguments)] = f"{name}_reply"

    def receive(self, end: float) -> None:
        """What has come by now, on both channels; waits when nothing has."""
        shell, iopub = self.client.shell_channel, self.client.iopub_channel
        if not shell.msg_ready() and not iopub.msg_ready():
            iopub.socket.poll(100)
            assert time.monotonic() < end, f"no answer to cell {self.waiting[self.order[0]].n}"
        for _ in range(200):
            if not iopub.msg_ready():
                break
            self._published(iopub.get_msg(timeout=0))
        for _ in range(200):
            if not shell.msg_ready():
                break
            self._replied(shell.get_msg(timeout=0))

    def _replied(self, message: dict[str, Any]) -> None:
        parent = message["parent_header"]["msg_id"]
        if parent in self.asked:
            assert message["msg_type"] == self.asked.pop(parent)
            assert message["content"]["status"] in ("ok", "incomplete")
            self.answers += 1
            return
        if parent not in self.waiting and message["msg_type"] == "kernel_info_reply":
            return  # to the client's question whether the kernel is ready, asked more than once
        sent = self.waiting[parent]
        assert message["msg_type"] == "execute_reply"
        assert sent.reply is None, f"cell {sent.n} has two replies"
        sent.reply = message["content"]
        self.executed += 1
        assert sent.reply["execution_count"] == sent.n + 1 == self.executed
        self._finish(parent)

    def _published(self, message: dict[str, Any]) -> None:
        self.messages += 1
        parent = message["parent_header"].get("msg_id", "")
        if parent not in self.waiting:
            assert message["msg_type"] == "status", f"not of a cell that runs: {message['msg_type']}"
            return
        # One cell after the other: nothing of a cell comes before the one ahead of it is idle.
        assert parent == self.order[0], f"cell {self.waiting[parent].n} before {self.waiting[self.order[0]].n}"
        sent = self.waiting[parent]
        if message["msg_type"] == "status":
            sent.states.append(message["content"]["execution_state"])
            if sent.states[-1] == "idle":
                self.order.popleft()
                self._finish(parent)
        elif (output := _output(message)) is not None:
            assert set(sent.states) == {"busy"}
            name = output[0]
            if name in ("stdout", "stderr") and sent.outputs and sent.outputs[-1][0] == name:
                output = name, sent.outputs.pop()[1] + output[1]
            sent.outputs.append(output)

    def _finish(self, msg_id: str) -> None:
        sent = self.waiting[msg_id]
        if sent.reply is None or sent.states[-1:] != ["idle"]:
            return
        del self.waiting[msg_id]
        kind = kind_of(sent.n)
        # (Busy is said again after each answer to another request that came beside the cell.)
        assert set(sent.states[:-1]) == {"busy"}
        assert sent.outputs == KINDS[kind][1](sent.n), f"cell {sent.n}, {kind}"
        assert sent.reply["status"] == ("error" if kind == "error" else "ok")
        self.done += 1

    def run(self) -> Iterator[int]:
        """Goes on until all is sent and answered; gives the number of cells done after each step."""
        deadline = time.monotonic() + SECONDS
        sent = 0
        while sent < CELLS and time.monotonic() < deadline:
            while len(self.waiting) < WINDOW and sent < CELLS:
                self.send()
                sent += 1
            self.receive(time.monotonic() + 30)
            yield self.done
        while self.waiting or self.asked:
            self.receive(time.monotonic() + 30)
        assert self.done == sent
        yield self.done


@pytest.mark.timeout(900)
def test_a_day_of_small_cells(start: Start) -> None:
    kernel = start()
    # (At a thousand results IPython drops the oldest, with a warning in the cell.)
    kernel.good("get_ipython().displayhook.cache_size = 10_000_000", store_history=False)
    front, soak, began = psutil.Process(kernel.pid), Soak(kernel), time.monotonic()
    sizes: list[float] = []
    descriptors = 0
    for done in soak.run():
        if done >= WARM + len(sizes) * (CELLS // 100):
            sizes.append(front.memory_info().rss / 2**20)
            descriptors = descriptors or front.num_fds()
            if LONG:
                print(f"{done} cells, {time.monotonic() - began:.0f} s, {sizes[-1]:.1f} MiB", flush=True)
    took = time.monotonic() - began
    print(f"{soak.done} cells, {soak.messages} messages published, {soak.answers} other answers in {took:.0f} s; "
          f"the front: {sizes[0]:.1f} MiB after {WARM} cells, {sizes[-1]:.1f} MiB at the end")  # fmt: skip
    assert soak.done > 2 * WARM, "too few to tell growth from a start"
    assert max(sizes) < sizes[0] * 1.1, sizes
    wait_for(lambda: front.num_fds() <= descriptors)  # (the history's database opens files for a moment)
    assert Counter(map(kind_of, range(soak.done))).keys() == KINDS.keys()
