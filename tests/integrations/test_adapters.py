"""Frameworks for agents, with models that have learnt their lines by heart: no network, no keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..clients.conftest import Client


@pytest.mark.parametrize("framework", ["smolagents", "langchain"])
def test_an_agent_works_in_the_sandbox(agents: Client, outside: Path, framework: str) -> None:
    program = Path(__file__).with_name(f"with_{framework}.py")
    assert f"{framework}: done" in agents.run("python", "-P", str(program), str(outside), seconds=140)
