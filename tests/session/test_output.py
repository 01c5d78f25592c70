"""What of a cell's output is shown, to the byte and to the message."""

from __future__ import annotations

import random
from typing import Any

import pytest

from sandbox_kernel.channel.schema import InputRequest, Publish
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.policy import Limits
from sandbox_kernel.session import limits
from sandbox_kernel.session.limits import prefix, sent_bytes, short_error, short_reply, suffix
from sandbox_kernel.session.output import Output


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Screen:
    """A sink that keeps what it gets, in order."""

    def __init__(self) -> None:
        self.got: list[tuple[str, Any]] = []
        self.pace_s = limits.MERGE_S

    def stream(self, parent: str, name: str, text: str) -> None:
        self.got.append((name, text))

    def publish(self, message: Publish, buffers: list[bytes]) -> None:
        self.got.append((message.msg_type, message.content))

    def ask(self, message: InputRequest) -> None: ...
    def flush(self) -> None: ...
    def lost(self, error: SandboxError) -> None: ...

    def pressed(self) -> bool:
        return False

    def pace(self, seconds: float) -> None:
        self.pace_s = seconds

    def all(self, kind: str = "stdout") -> str:
        return "".join(what for name, what in self.got if name == kind)

    def count(self, kind: str) -> int:
        return sum(name == kind for name, _ in self.got)


class Cell:
    def __init__(self, **policy: int) -> None:
        self.clock, self.screen, self.recorded = Clock(), Screen(), ""
        values = {"text": 10_000, "lines": 1000, "output": 20_000, "messages": 110, "output_total": 10**9, **policy}
        self.output = Output(Limits(**values), self.screen, record=self.record, clock=self.clock)
        self.output.begin("cell")

    def record(self, text: str) -> None:
        self.recorded += text

    def text(self, text: str, name: str = "stdout") -> None:
        self.output.text("cell", name, text, len(text) + 60)

    def show(self, size: int = 100, kind: str = "display_data", **content: Any) -> None:
        message = Publish(parent="cell", msg_type=kind, content=content)  # type: ignore[arg-type]
        self.output.message(message, [], size)


def test_everything_below_the_budget_is_shown_as_it_comes_and_nothing_is_said() -> None:
    cell = Cell()
    for at in range(45):
        cell.text(f"{at:04}\n" * 10)
        cell.show()
    assert cell.screen.all().count("\n") == 450 and cell.screen.count("display_data") == 45
    cell.output.release()
    assert cell.screen.all("stderr") == "" and not cell.output.cut and cell.output.excess() is None


def test_what_fills_the_last_quarter_is_late_and_not_lost() -> None:
    cell = Cell(lines=10_000)
    whole = "".join(f"{at:04}\n" for at in range(1600))
    for at in range(0, len(whole), 7):
        cell.text(whole[at : at + 7])
    assert 7400 < sent_bytes(cell.screen.all()) <= 7500
    cell.output.release()
    assert cell.screen.all() == whole and cell.screen.all("stderr") == "" and not cell.output.cut


LINES, TEXT = ({}, "limits.lines = 1,000"), ({"lines": 10**6}, "limits.text = 9.77 KiB")


@pytest.mark.parametrize(
    ("policy", "rule", "piece"),
    [(*LINES, 1), (*LINES, 9), (*LINES, 700), (*TEXT, 1), (*TEXT, 9), (*TEXT, 4000), (*TEXT, 200_000)],
)
def test_head_and_tail_are_shown_with_the_amount_between(policy: dict[str, int], rule: str, piece: int) -> None:
    cell = Cell(**policy)
    whole = "".join(f"{at:06}\n" for at in range(20_000))
    for at in range(0, len(whole), piece):
        cell.text(whole[at : at + piece])
    cell.output.release()
    here, total = (what for name, what in cell.screen.got if name == "stderr")
    at = cell.screen.got.index(("stderr", total))
    head = "".join(what for name, what in cell.screen.got[:at] if name == "stdout")
    tail = "".join(what for name, what in cell.screen.got[at:] if name == "stdout")
    assert rule in here and rule in total and "136 KiB of text" not in here
    assert whole.startswith(head) and whole.endswith(tail) and (tail.startswith("0") or piece == 1)
    assert 5000 < len(head) <= 7500 and 1200 < len(tail) <= 2500
    assert (head + tail).count("\n") <= 1000 or "text" in rule
    assert cell.output.cut and cell.recorded == whole


@pytest.mark.parametrize("policy", [LINES[0], TEXT[0]])
def test_one_huge_text_keeps_its_tail_when_the_end_of_its_line_follows(policy: dict[str, int]) -> None:
    cell = Cell(**policy)
    whole = "".join(f"{at:06}\n" for at in range(20_000))
    cell.text(whole[:-1])
    cell.text("\n")
    cell.output.release()
    shown = cell.screen.all()
    assert shown.endswith(whole[-1200:]) and len(shown) <= 10_000
    assert shown.count("\n") <= policy.get("lines", 1000)


def test_one_long_line_is_cut_in_the_line_and_the_rest_is_shown() -> None:
    for piece in (1, 100, 10**6):
        cell = Cell()
        whole = "short\n" + "x" * 3000 + "\nshort\r\n" + "y" * 2500 + "\nend\n"
        for at in range(0, len(whole), piece):
            cell.text(whole[at : at + piece])
        cell.output.release()
        kept = 10_000 // 5
        assert cell.screen.all() == (
            f"short\n{'x' * kept} [... {3000 - kept:,} characters of this line omitted]\nshort\r\n"
            f"{'y' * kept} [... {2500 - kept:,} characters of this line omitted]\nend\n"
        )
        assert cell.output.cut


def test_a_long_line_that_never_ends_says_so_at_the_end() -> None:
    cell = Cell()
    for _ in range(50):
        cell.text("z" * 1000)
    cell.output.release()
    assert cell.screen.all() == "z" * (10_000 // 5) + " [... 48,000 characters of this line omitted]\n"


def test_displays_beyond_the_budget_are_counted_and_the_last_ones_shown() -> None:
    cell = Cell()
    for at in range(150):
        cell.show(number=at)
    cell.show(kind="execute_result", number="result")
    cell.output.release()
    shown = [what["number"] for name, what in cell.screen.got if name in ("display_data", "execute_result")]
    assert shown[:90] == list(range(90)) and shown[-2:] == [149, "result"] and len(shown) == 99
    assert "52 displays" in cell.screen.all("stderr") and "limits.messages = 110" in cell.screen.all("stderr")


def test_one_huge_display_does_not_silence_the_rest() -> None:
    cell = Cell()
    cell.show(50_000)
    cell.text("after\n")
    cell.show(100)
    assert cell.screen.all() == "after\n" and cell.screen.count("display_data") == 1
    cell.output.release()
    assert "1 display;" in cell.screen.all("stderr")


def test_text_and_displays_keep_their_order_in_the_tail() -> None:
    cell = Cell(lines=10**6, messages=1000)
    for at in range(48):
        cell.text("x" * 190 + f"{at:03}\n")
        if at >= 43:
            cell.show(number=at)
    cell.output.release()
    end = [what["number"] if isinstance(what, dict) else int(what[-4:]) for _, what in cell.screen.got[-10:]]
    assert end == [at for n in range(43, 48) for at in (n, n)]


def test_a_progress_bar_runs_for_hours() -> None:
    cell = Cell(output=200_000)
    for at in range(10_000):
        cell.clock.now += 1
        cell.text(f"\r{at / 100:5.1f}% |{'#' * 60}|", "stderr")
        assert not cell.output.must_wait()
    cell.text("\ndone\n", "stderr")
    cell.output.release()
    assert not cell.output.cut and cell.screen.all("stderr").endswith("|\ndone\n")
    assert cell.output.room() > 190_000


def test_lines_that_are_added_between_bars_still_count() -> None:
    cell = Cell()
    for at in range(2000):
        cell.clock.now += 1
        cell.text(f"\r{at}%")
        cell.text(f"\rline {at}\n")
    cell.output.release()
    assert cell.output.cut


def test_a_live_plot_runs_for_hours() -> None:
    cell = Cell(output=2_000_000, messages=1000)
    for _ in range(3000):
        cell.clock.now += 1
        cell.show(kind="clear_output")
        cell.show(30_000)
        cell.text("frame\n")
        assert not cell.output.must_wait()
    cell.output.release()
    assert cell.screen.count("display_data") == 3000 and not cell.output.cut


@pytest.mark.parametrize("kind", ["update_display_data", "comm_msg", "clear_output"])
def test_what_replaces_beyond_the_pace_makes_the_worker_wait_and_loses_nothing(kind: str) -> None:
    cell = Cell()
    waited = 0
    for _ in range(1000):
        while cell.output.must_wait():
            cell.clock.now += 0.1
            waited += 1
        cell.show(kind=kind)
    assert cell.screen.count(kind) == 1000 and waited > 1000
    assert not cell.output.cut


def test_a_cell_that_is_interrupted_does_not_wait_but_loses_what_is_too_much() -> None:
    cell = Cell()
    cell.output.hurry()
    for _ in range(1000):
        cell.show(kind="update_display_data")
        assert not cell.output.must_wait()
    assert 150 < cell.screen.count("update_display_data") < 250


def test_one_large_message_is_no_wait_for_hours() -> None:
    cell = Cell()
    cell.show(10**9, kind="comm_msg")
    assert cell.output.must_wait() and cell.screen.count("comm_msg") == 1
    cell.clock.now += 1
    assert not cell.output.must_wait()


def test_a_clear_takes_along_what_waited_to_be_shown() -> None:
    cell = Cell()
    for _ in range(5):
        for _ in range(40):
            cell.text("x" * 400 + "\n")
        cell.show(kind="clear_output")
    cell.text("last\n")
    cell.output.release()
    assert cell.screen.got[-1] == ("stdout", "last\n")
    assert cell.output.room() > 19_000


def test_a_clear_for_another_cell_gives_nothing_back() -> None:
    cell = Cell()
    cell.show(10_000)
    cell.output.message(Publish(parent="other", msg_type="clear_output", content={}), [], 10)
    assert cell.output.room() == 10_000


def test_an_update_of_a_display_that_is_held_comes_after_it() -> None:
    cell = Cell()
    for _ in range(95):
        cell.show(transient={"display_id": "a"})
    cell.show(kind="update_display_data", transient={"display_id": "a"})
    cell.output.release()
    assert cell.screen.got[-1][0] == "update_display_data"


def test_the_second_bound_ends_the_cell() -> None:
    cell = Cell(output_total=100_000)
    for _ in range(90):
        cell.text("x" * 900 + "\n")
    assert cell.output.excess() is None
    for _ in range(40):
        cell.text("x" * 900 + "\n")
    error = cell.output.excess()
    assert error is not None and error.rule == "limits.output_total"
    cell = Cell()
    for _ in range(1300):
        cell.show(1)
    error = cell.output.excess()
    assert error is not None and error.rule == "limits.messages" and "1,201" in str(error)


def test_the_end_of_a_long_line_counts_for_the_second_bound() -> None:
    cell = Cell(output_total=100_000)
    for _ in range(120):
        cell.text("x" * 1000)
    assert cell.output.excess() is not None


def test_a_cell_that_prints_for_hours_is_merged_and_never_waits() -> None:
    cell = Cell(text=10**9, output=10**9, lines=10**9, messages=1000)
    paces = set()
    for _ in range(int(200 / 0.02)):
        cell.clock.now += 0.02
        cell.text("x" * 20 + "\n")
        paces.add(cell.screen.pace_s)
        assert not cell.output.must_wait()
    assert paces == {0.01, 0.1} and not cell.output.cut


def test_two_streams_in_turn_are_pieces_that_add_up() -> None:
    cell = Cell()
    for at in range(150):
        cell.text("a\n", ("stdout", "stderr")[at % 2])
    cell.output.release()
    assert cell.output.cut and "limits.messages" in cell.screen.all("stderr")


def test_between_cells_the_worker_waits_and_a_new_cell_has_the_whole_budget() -> None:
    cell = Cell()
    cell.output.end()
    while not cell.output.must_wait():
        cell.text("x" * 200)
    assert 19_000 < len(cell.screen.all()) < 21_000
    cell.clock.now += limits.REFILL_S / 2
    assert not cell.output.must_wait()
    for _ in range(10_000):  # (somebody waits for an answer, so the worker is read on)
        cell.text("x" * 200)
    assert len(cell.screen.all()) < 60_000
    cell.output.begin("next")
    assert not cell.output.must_wait() and cell.output.room() == 20_000
    assert "x" * 200 not in cell.recorded, "text between the cells is nobody's"


@pytest.mark.parametrize("seed", range(20))
def test_no_mixture_shows_more_than_the_limits(seed: int) -> None:
    rng = random.Random(seed)
    cell = Cell(output_total=10**12)
    cell.screen.got.clear()
    for _ in range(400):
        text = "".join(rng.choices(["\n", "\r", "é", "\0", "x" * 50, "line\n"], k=rng.randrange(60)))
        cell.text(text or "x", rng.choice(["stdout", "stderr"]))
        if rng.random() < 0.2:
            cell.show(rng.randrange(3000))
    cell.output.release()
    visible = 0
    for name, what in cell.screen.got:
        if name == "stdout":
            visible += sum(sent_bytes(line.rstrip("\r").rpartition("\r")[2]) for line in what.split("\n"))
    assert visible <= 10_000
    assert cell.screen.count("display_data") <= 99


@pytest.mark.parametrize(("text", "size"), [("abc\n", 4 + 1), ("\0", 6), ("é", 2), ("\ufffd", 3), ('"', 2)])
def test_size_is_what_the_client_gets(text: str, size: int) -> None:
    assert sent_bytes(text) == size


@pytest.mark.parametrize("text", ["x" * 1000, "é" * 1000, "\0" * 1000, "a\n" * 500, "\ud800" * 50, ""])
@pytest.mark.parametrize("room", [-1, 0, 1, 7, 500, 10**6])
def test_prefix_and_suffix_fit_and_are_not_much_shorter(text: str, room: int) -> None:
    first, last = prefix(text, room), suffix(text, room)
    assert text.startswith(first) and text.endswith(last)
    for part in (first, last):
        assert sent_bytes(part) <= max(room, 0)
        assert part == text or sent_bytes(part) > room - 10 or room <= 7


@pytest.mark.parametrize("traceback", [None, 5, "text", [1, None], ["x" * 10**6] * 50])
def test_a_short_error_is_short_whatever_it_was(traceback: Any) -> None:
    error = short_error({"ename": "E" * 10**6, "evalue": 7, "traceback": traceback})
    assert len(str(error)) < 250_000
    assert all(isinstance(line, str) for line in error["traceback"])


def test_a_reply_loses_what_is_optional_only_when_there_is_no_room() -> None:
    reply = {"status": "ok", "execution_count": 3, "payload": [{}], "user_expressions": {"a": {"data": {}}}}
    assert short_reply(reply, 500, 10_000, "rule") == reply
    short = short_reply(reply, 2 * 1024 * 1024, 10_000, "rule")
    assert short["status"] == "ok" and short["payload"] == [] and short["execution_count"] == 3
    assert short["user_expressions"]["a"]["ename"] == "OutputLimit"
