"""docs/code-rules.md says what the rules do not see; here that is shown to be so."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from sandbox_kernel.code_rules import CodeRules, check
from sandbox_kernel.policy import Policy

TEXT = (Path(__file__).parents[2] / "docs" / "code-rules.md").read_text(encoding="utf-8")
UNSEEN = re.findall(r"```python\n(.*?)```", TEXT.partition("## What is not seen")[2], re.DOTALL)


def test_the_example_policy_is_one() -> None:
    import tomllib

    (text,) = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    rules = CodeRules.from_policy(Policy.from_tables(tomllib.loads(text)).code)
    assert rules.functions_only and rules.deny_dunders and "sorted" in rules.forbid and "eval" in rules.forbid


def test_there_are_examples() -> None:
    assert len(UNSEEN) >= 5


@pytest.mark.parametrize("code", UNSEEN)
def test_what_is_not_seen_reaches_it_all_the_same(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check(code, CodeRules(forbid=("os.system",))) == []
    reached: list[object] = []
    monkeypatch.setattr(os, "system", reached)
    *before, last = code.strip().replace("; ", "\n").splitlines()
    names: dict[str, object] = {}
    exec("\n".join(before), names)
    value = names.get("value") if last.startswith("exec(") else eval(last, names)
    if last.startswith("exec("):
        exec(last.replace(".decode()", ".decode().replace('; ', ';value = ')"), names)
        value = names["value"]
    assert value is reached
