"""What an error of ours says can be printed, whoever's words are in it: a worker's, a cell's, a file name's."""

from __future__ import annotations

import pickle

import msgspec
import pytest

from sandbox_kernel.channel.framing import Frame
from sandbox_kernel.channel.schema import check_reply, decode
from sandbox_kernel.code_rules import CodeRules, check, refusal
from sandbox_kernel.errors import CopyRefused, ProtocolError, WorkerLost, inert

CLIPBOARD = "\x1b]52;c;eA==\x07"


def acts(text: str) -> bool:
    return bool({"\x1b", "\x07", "\x7f", "\x9b", "\x9d", "\u202e", "\r"} & set(text))


@pytest.mark.parametrize("hostile", [CLIPBOARD, "\x1b[2J", "\x9d0;x\x07", "\u202eexe", "a\rb", "\x1bc", "\x1b", "\x7f"])
def test_what_acts_becomes_an_escape(hostile: str) -> None:
    assert not acts(inert(f"{hostile} und")) and inert(f"{hostile} und").endswith(" und")
    assert inert(inert(hostile)) == inert(hostile)


def test_other_text_stays() -> None:
    for text in ("Übersicht: 日本\n\tzwei", "\x1b[0;31mred\x1b[0m\r\n", "\\x1b", "'\u200d'"):
        assert inert(text) == text


def test_the_name_of_a_field_that_a_worker_invents() -> None:
    with pytest.raises(ProtocolError, match="unknown field") as error:
        decode(Frame(msgspec.json.encode({"type": "stream", CLIPBOARD: 1}), []))
    assert not acts(str(error.value)) and not acts(error.value.explain())
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)


def test_what_a_worker_says_about_its_copies() -> None:
    said = check_reply("checkpoint", {"status": "refused", "reason": CLIPBOARD, "lost": [f"thread {CLIPBOARD}"]})
    assert not acts(CopyRefused(said["reason"]).explain())
    error = WorkerLost("it closed its connection")
    error.restore(3, 1.0, said["lost"])
    error.data["why_lost"] = said["reason"]
    assert "thread" in error.explain() and not acts(error.explain())


@pytest.mark.parametrize(
    "code", ['__import__("os\\x1b]52;c;eA==\\x07")', 'getattr(x, "__a\\x9b2J__")', '"{0.__gl\\x1b]0;x__}".format(1)']
)
def test_what_code_calls_its_modules_and_attributes(code: str) -> None:
    found = check(code, CodeRules(imports_allow=("math",), deny_dunders=True))
    error = refusal(found)
    assert error is not None and not acts(error.explain()) and not acts(str(error))
    assert not any(acts(str(violation)) for violation in found)
