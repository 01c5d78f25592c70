"""Random sequences of cells with random deaths: the variables are those of the state that the session names.

20 sequences; SANDBOX_KERNEL_SEQUENCES=200 for as many, chosen anew each time.
"""

from __future__ import annotations

import copy
import os
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from sandbox_kernel import Execution, Sandbox
from sandbox_kernel.errors import NoCheckpoint

COUNT = int(os.environ.get("SANDBOX_KERNEL_SEQUENCES", "20"))
POLICY = {"limits": {"memory": "500MiB", "cell_time": "60s", "interrupt_grace": "200ms"}}
DEAF = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('deaf')\nwhile True: time.sleep(0.1)"
DEATHS = {
    "segmentation fault": "import ctypes; ctypes.string_at(0)",
    "os._exit": "import os; os._exit(7)",
    "SIGKILL": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    # (Shared memory: of private memory the worker's own soft limit makes a MemoryError, which costs nothing.)
    "memory": "import mmap\nhog = []\nwhile True:\n hog.append(mmap.mmap(-1, 8 << 20)); hog[-1].write(bytes(8 << 20))",
    "time": DEAF,
    "interrupts": DEAF,
}
NAMES = ("red", "green")
pytestmark = pytest.mark.timeout(60 + 6 * COUNT)


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    """The one that all sequences use, each from an empty session."""
    with Sandbox(POLICY) as sandbox:
        yield sandbox


class Sequences(RuleBasedStateMachine):
    """The model: `state` is what the variables must be, `at` the cell after which they were so.

    (No rule has a precondition: what there is depends on when copies were made, and Hypothesis repeats its draws.)
    """

    box: Sandbox

    @initialize()
    def begin(self) -> None:
        """An empty session."""
        self.box.restart()
        self.at = 0
        self.state: dict[str, Any] = {}
        self.named: dict[str, tuple[int, dict[str, Any]]] = {}
        self.after: dict[int, dict[str, Any]] = {0: {}}
        self._cell("x, words, table = 0, [], {}", {"x": 0, "words": [], "table": {}})

    def _cell(self, code: str, state: dict[str, Any], *, error: str = "") -> None:
        execution = self.box.run_code(code)
        if execution.state != "kept":  # a watchdog that was late, say
            self._lost(execution)
            return
        assert (execution.error.name if execution.error else "") == error, execution.error
        self.state, self.at = state, execution.execution_count
        self.after[self.at] = copy.deepcopy(state)
        self._compare()

    def _lost(self, execution: Execution) -> None:
        """The model goes where the session says that it is."""
        assert execution.error is not None
        text = execution.error.value
        if execution.state == "lost":
            assert "variables of this session are lost" in text, text
            self.at, self.state, self.after, self.named = 0, {}, {0: {}}, {}
            return
        found = re.search(r"restored as they were (?:after cell \[(\d+)\]|before the first cell)", text)
        assert execution.state == "restored" and found, text
        self.at = int(found.group(1) or 0)
        self.state = copy.deepcopy(self.after[self.at])

    def _compare(self) -> None:
        for name in ("x", "words", "table"):
            try:
                held = self.box[name]
            except KeyError:
                held = None
            assert held == self.state.get(name), (name, held, self.state, self.at)

    def _copy(self) -> dict[str, Any]:
        return copy.deepcopy(self.state)

    @rule(value=st.integers(0, 9))
    def assign(self, value: int) -> None:
        """A name is bound anew."""
        self._cell(f"x = {value}", {**self._copy(), "x": value})

    @rule(value=st.integers(0, 9), fails=st.booleans())
    def append(self, value: int, fails: bool) -> None:
        """An object changes; what a cell did before it failed stays done."""
        state = self._copy()
        if "words" in state:
            state["words"].append(value)
        error = "" if "words" in state and not fails else "ZeroDivisionError" if "words" in state else "NameError"
        self._cell(f"words.append({value})" + ("; 1 / 0" if fails else ""), state, error=error)

    @rule(key=st.sampled_from("abc"), value=st.integers(0, 9))
    def mutate(self, key: str, value: int) -> None:
        """Another one does."""
        state = self._copy()
        state.get("table", {})[key] = value
        self._cell(f"table[{key!r}] = {value}", state, error="" if "table" in state else "NameError")

    @rule()
    def delete(self) -> None:
        """A name goes."""
        state = self._copy()
        error = "NameError" if state.pop("x", None) is None else ""
        self._cell("del x", state, error=error)

    @rule()
    def rest(self) -> None:
        """Time for a copy."""
        time.sleep(0.2)

    @rule(cells=st.integers(1, 3))
    def rollback(self, cells: int) -> None:
        """Undo cells, as far as there are copies."""
        try:
            self.box.rollback(cells)
        except NoCheckpoint:
            pass
        else:
            self.at -= cells
            self.state = copy.deepcopy(self.after[self.at])
        self._compare()

    @rule(name=st.sampled_from(NAMES))
    def checkpoint(self, name: str) -> None:
        """Keep a state."""
        self.box.checkpoint(name)
        self.named[name] = self.at, self._copy()

    @rule(name=st.sampled_from(NAMES))
    def back_to(self, name: str) -> None:
        """Go back to it."""
        try:
            self.box.rollback(name)
        except NoCheckpoint as error:
            assert name not in self.named or "memory" in str(error), error
            self.named.pop(name, None)
        else:
            self.at, self.state = copy.deepcopy(self.named[name])
        self._compare()

    @rule(way=st.sampled_from(sorted(DEATHS)), value=st.integers(0, 9))
    def die(self, way: str, value: int) -> None:
        """The worker is lost in the middle of a cell."""
        before, at = self._copy(), self.at
        pressed = []

        def press(_text: str) -> None:
            if way == "interrupts" and not pressed:
                pressed.append(1)
                self.box.interrupt()
                self.box.interrupt()

        execution = self.box.run_code(
            f"x = {value}; late = True\n{DEATHS[way]}", timeout=0.5 if way == "time" else None, on_stdout=press
        )
        assert execution.error is not None and execution.state != "kept", (way, execution)
        self._lost(execution)
        if execution.state == "restored":
            assert self.at <= at
            if self.at == at:
                assert self.state == before
        self._compare()
        with pytest.raises(KeyError):
            self.box["late"]


def test_the_variables_are_those_of_the_state_that_is_named(box: Sandbox) -> None:
    Sequences.box = box
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Sequences,
        settings=settings(
            max_examples=COUNT, stateful_step_count=9, deadline=None, derandomize=COUNT == 20, database=None,
            suppress_health_check=list(HealthCheck), phases=[Phase.generate],
        ),
    )  # fmt: skip
