"""Two hundred submissions: right, wrong, broken and hostile ones, each with the grade that it must get.

The tests' file asks for `mean` (2 points, and 3 for hidden lists) and for `count` (1 point: how often words occur).
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import Any

PROGRAMS = Path(__file__).with_suffix(".toml")

TESTS = '''\
from sandbox_kernel.grading import points

# No submission may ever see it. (Nor is it written here: where the package is installed from this folder, cells can
# read the folder, and one of them looks through all files.)
SECRET = "-".join(("sesame", "3141"))

@points(2)
def test_mean(student):
    """The mean of a list"""
    assert student.mean([1, 2, 3]) == 2

@points(3)
def test_hidden(student):
    """The mean of other lists"""
    for values, expected in [([1.5, 2.5], 2), ([-1, 1], 0), ([10] * 100, 10)]:
        assert student.mean(values) == expected

def test_count(student):
    """How often each word occurs"""
    assert student.count("a b a") == {"a": 2, "b": 1}
'''
# Without rules for what code may say: the wall is to hold by itself.
POLICY = """\
[isolation]
require = "seccomp+landlock"
[limits]
memory = "512MiB"
processes = 64
cell_time = "6s"
output_total = "32MiB"
frame = "4MiB"
interrupt_grace = "1s"
"""
OPTIONS = ("--timeout", "6", "--loading", "12")

MEAN = "def mean(values):\n    return sum(values) / len(values)\n"
COUNT = "def count(text):\n    words = text.split()\n    return {word: words.count(word) for word in words}\n"
RIGHT = MEAN + COUNT
# What `mean` and `count` of the tricks call. None may get more than 0.
ZERO = "def mean(values):\n    return answer(values)\ndef count(text):\n    return answer(text)\n"
ALL = 6.0
BOTH = (".ipynb", ".py")
# As one cell they would end before the answers.
NO_FILE = ("magic", "shell", "failing cell", "failing end", "exits", "recursion", "question")


@dataclass(frozen=True)
class Handed:
    """One submission.

    Attributes:
        score: that is right for it.
        says: words of which one is among its failures; empty: any.
        cells: its notebook's cells.
        data: the file's content, when it is not a notebook's.
        slow: it takes seconds, for a limit ends it.
    """

    name: str
    score: float
    verdict: str
    says: tuple[str, ...] = ()
    cells: tuple[str, ...] = ()
    data: bytes | None = None
    slow: bool = False

    def write(self, folder: Path) -> None:
        """Into a folder."""
        data = self.data
        if data is None:
            data = notebook(*self.cells) if self.name.endswith(".ipynb") else "\n".join(self.cells).encode()
        (folder / self.name).write_bytes(data)


def notebook(*cells: str) -> bytes:
    """A notebook of format 4 with these code cells, and a text cell before each."""
    code = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    text = {"cell_type": "markdown", "metadata": {}, "source": "An answer:"}
    said = [part for cell in cells for part in (text, {**code, "source": cell})]
    return json.dumps({"cells": said, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}).encode()


UNUSABLE = (
    ("not json.ipynb", b"{", "not a notebook"),
    ("a list.ipynb", b"[]", "not a notebook"),
    ("format 3.ipynb", b'{"worksheets": [{"cells": []}], "nbformat": 3}', "not a notebook"),
    ("odd cells.ipynb", b'{"cells": [1, 2], "nbformat": 4}', "not a notebook"),
    ("odd source.ipynb", b'{"cells": [{"cell_type": "code", "source": [1]}], "nbformat": 4}', "not a notebook"),
    ("deep.ipynb", b'{"cells": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "not a notebook"),
    ("binary.ipynb", bytes(range(256)), "UTF-8"),
    ("utf-16.py", RIGHT.encode("utf-16"), "UTF-8"),
    ("latin-1.py", "# caf\xe9\n".encode("latin-1") + RIGHT.encode(), "UTF-8"),
)
NOTHING = (
    ("empty.py", b""),
    ("empty.ipynb", b'{"cells": [], "nbformat": 4, "nbformat_minor": 5, "metadata": {}}'),
    ("comment.py", b"# I could not do it\n"),
    ("syntax error.py", b"def mean(values:\n    return 2\n"),
    ("zero bytes.py", RIGHT.encode() + b"\0\0\0"),
    ("prose.py", b"Dear teacher, I was ill.\n"),
)


def submissions(paths: list[str]) -> list[Handed]:
    """All 200.

    Args:
        paths: the tests' file, and others that would help.
    """
    kinds: dict[str, list[dict[str, Any]]] = tomllib.loads(PROGRAMS.read_text(encoding="utf-8"))
    found: list[Handed] = []
    for one in kinds["right"]:
        cells = tuple(map(_code, one["cells"]))
        for suffix in (".ipynb",) if one["name"] in NO_FILE else BOTH:
            found.append(Handed(f"right {one['name']}{suffix}", ALL, "passed", cells=cells))
    for one in kinds["wrong"]:
        verdict = "passed" if one["score"] == ALL else "failed"
        says = tuple(one.get("says", ()))
        for suffix in BOTH:
            found.append(Handed(f"wrong {one['name']}{suffix}", one["score"], verdict, says, (_code(one["code"]),)))
    for one in kinds["inside"]:
        cells = (f"def mean(values):\n{indent(one['code'], '    ')}\n", COUNT)
        for suffix in BOTH:
            name, slow = f"inside {one['name']}{suffix}", one.get("slow", False)
            found.append(Handed(name, 1.0, "failed", tuple(one["says"]), cells, slow=slow))
    for one in kinds["trick"]:
        code = one["code"].replace("{paths}", repr(paths))
        for suffix in BOTH:
            found.append(Handed(f"trick {one['name']}{suffix}", 0.0, "failed", (), (f"{code}\n{ZERO}",)))
    for one in kinds["before"]:
        name, says, cells = f"before {one['name']}.ipynb", tuple(one["says"]), (_code(one["code"]), RIGHT)
        found.append(Handed(name, ALL, "passed", says, cells, slow=one.get("slow", False)))
    found += [Handed(f"unusable {name}", 0.0, "unusable", (word,), data=data) for name, data, word in UNUSABLE]
    found += [Handed(f"nothing {name}", 0.0, "failed", (), data=data) for name, data in NOTHING]
    assert len({handed.name for handed in found}) == len(found)
    return found


def _code(text: str) -> str:
    return text.replace("RIGHT", RIGHT).replace("MEAN", MEAN).replace("COUNT", COUNT)
