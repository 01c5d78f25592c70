"""What the tools take, and how they say no."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sandbox_kernel.mcp import arguments
from sandbox_kernel.mcp.sessions import Sessions
from sandbox_kernel.mcp.tools import Tools

KINDS = Tools(Sessions(lambda: pytest.fail("no sandbox is needed"))).kinds


@pytest.mark.parametrize("name", KINDS)
def test_a_schema_names_everything_and_nothing_more(name: str) -> None:
    schema = arguments.schema(KINDS[name])
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert "session" in schema["properties"]
    assert set(schema["required"]) <= set(schema["properties"])
    assert "$ref" not in str(schema)
    for field in schema["properties"].values():
        assert field["description"]
    told = arguments.description(KINDS[name])
    assert 20 < len(told) < 1000
    assert "  " not in told


@pytest.mark.parametrize(("name", "given", "told"), [
    ("run_code", {}, "missing required field `code`"),
    ("run_code", {"code": 7}, "got `int` - at `code`"),
    ("run_code", {"code": None}, "at `code`"),
    ("run_code", {"code": ["x"]}, "at `code`"),
    ("run_code", {"code": "x" * (arguments.CODE_CHARS + 1)}, "at `code`"),
    ("run_code", {"code": "x", "timeout": "5"}, "at `timeout`"),
    ("run_code", {"code": "x", "timeout": True}, "at `timeout`"),
    ("run_code", {"code": "x", "timeout": -1}, "at `timeout`"),
    ("run_code", {"code": "x", "timeout": math.nan}, "at `timeout`"),
    ("run_code", {"code": "x", "timeout": math.inf}, "at `timeout`"),
    ("run_code", {"code": "x", "timeout": 1e9}, "at `timeout`"),
    ("run_code", {"code": "x", "policy": "open"}, "unknown field `policy`"),
    ("run_code", {"code": "x", "session": {}}, "at `session`"),
    ("run_code", {"code": "x", "session": "s" * 101}, "at `session`"),
    ("put_file", {"path": "", "content": ""}, "at `path`"),
    ("put_file", {"path": "p" * 5000, "content": ""}, "at `path`"),
    ("put_file", {"path": "p", "content": "", "encoding": "rot13"}, "at `encoding`"),
    ("get_file", {"path": 3}, "at `path`"),
    ("describe_frame", {"name": ""}, "at `name`"),
    ("rollback", {"cells": 0}, "at `cells`"),
    ("rollback", {"cells": 10**30}, "at `cells`"),
    ("rollback", {"cells": 1.5}, "at `cells`"),
    ("reset", [], "Expected `object`"),
    ("reset", {"a": {"b": {}}}, "unknown field `a`"),
])  # fmt: skip
def test_wrong_arguments_are_told_in_words(name: str, given: Any, told: str) -> None:
    with pytest.raises(ValueError, match="The arguments do not fit") as caught:
        arguments.parsed(KINDS[name], given)
    assert told in str(caught.value)
    assert len(str(caught.value)) < 600


def test_right_ones_arrive() -> None:
    assert arguments.parsed(arguments.RunCode, {"code": "x", "timeout": 3}).timeout == 3.0
    assert arguments.parsed(arguments.Rollback, {}).cells == 1
