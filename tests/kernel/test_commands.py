"""``%sandbox``: what it answers, and that no cell answers for it."""

from __future__ import annotations

import pytest

from sandbox_kernel.kernel.commands import words_of
from sandbox_kernel.kernel.transcript import Transcript

from .conftest import Running, Start

POLICY = '[limits]\ntext = "20KiB"\noutput_kept = "300KiB"\n'


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("%sandbox", []), ("  %sandbox output 3 \n", ["output", "3"]), ("%sandbox\nx", None), ("x = '%sandbox'", None),
        ("%sandboxes", None), ("", None),
    ],
)  # fmt: skip
def test_only_a_cell_of_its_own_is_a_command(code: str, words: list[str] | None) -> None:
    assert words_of(code) == words


@pytest.fixture
def kernel(start: Start) -> Running:
    return start(policy=POLICY)


def test_the_whole_text_of_a_cut_cell_is_to_be_had_page_by_page(kernel: Running) -> None:
    whole = "".join(f"line {at}\n" for at in range(10_000))
    shown = kernel.good("for i in range(10_000): print('line', i)")
    assert len(shown.stdout) < 20 * 1024 and shown.stdout.startswith("line 0\n")
    assert shown.stdout.endswith("line 9999\n")
    number = shown.reply["execution_count"]
    assert f"`%sandbox output {number}`" in shown.stderr and "limits.text = 20 KiB" in shown.stderr
    found, page = "", 1
    while True:
        text = kernel.good(f"%sandbox output {number} {page}").stdout
        body, _, foot = text.partition("[Page ")
        found += body
        if "the next is" not in foot:
            break
        assert f"`%sandbox output {number} {page + 1}`" in foot and len(body) < 12 * 1024
        page += 1
    assert found == whole and page > 10
    assert kernel.good(f"%sandbox output {number} last").stdout.partition("[Page")[0] == body


def test_what_is_kept_is_bounded_and_says_so(kernel: Running) -> None:
    count = kernel.good("for i in range(50_000): print('line', i)").reply["execution_count"]
    text = "".join(kernel.good(f"%sandbox output {count} {page}").stdout for page in range(1, 80))
    assert text.startswith("line 0\n") and "line 49999\n" in text
    assert "are missing here, limits.output_kept = 300 KiB" in text and len(text) < 400_000


def test_wrong_words_get_the_nearest_right_one(kernel: Running) -> None:
    assert "`%sandbox output`" in kernel.good("%sandbox ouput 1").stdout
    assert "%sandbox output N" in kernel.good("%sandbox help").stdout
    for wrong in ("output", "output x", "output 1 2 3", "output 1 0", "output -1"):
        assert "where N is a cell's number" in kernel.good(f"%sandbox {wrong}").stdout
    assert "No text of cell 999" in kernel.good("%sandbox output 999").stdout
    assert "isolation level" in kernel.good("%sandbox").stdout


def test_a_magic_among_other_lines_says_that_it_must_stand_alone(kernel: Running) -> None:
    assert "alone in a cell" in kernel.good("x = 1\n%sandbox").stdout
    assert "alone in a cell" in kernel.good("get_ipython().run_line_magic('sandbox', 'output 1')").stdout
    assert "sandbox" in kernel.good("%lsmagic").of("execute_result")[0]["data"]["text/plain"]


def test_the_newest_cells_stay() -> None:
    kept = Transcript(1000)
    for number in range(1, 6):
        kept.begin(number)
        kept.add("é" * 200)
        kept.end()
    assert kept.page(3, 1, 10**6) is None and kept.page(4, 1, 10**6) == ("é" * 200, 1)
    kept.begin(5)  # counted from the beginning again by a fresh worker
    kept.add("again")
    kept.end()
    kept.add("nobody's")
    assert kept.page(5, 1, 10**6) == ("again", 1) and kept.page(4, 1, 10**6) == ("é" * 200, 1)


def test_head_and_tail_of_one_cell_stay_within_the_bound() -> None:
    kept = Transcript(10_000)
    kept.begin(1)
    for at in range(20_000):
        kept.add(f"{at:05}\n")
    found = kept.page(1, 1, 10**6)
    assert found is not None
    assert found[0].startswith("00000\n") and found[0].endswith("19999\n") and 8000 < len(found[0]) < 10_200
    assert kept._size <= 10_000
