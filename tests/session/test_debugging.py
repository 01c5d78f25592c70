"""What the front lets through between a debugger's client and the worker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from sandbox_kernel.channel import schema
from sandbox_kernel.channel.framing import Frame, dumps
from sandbox_kernel.errors import MemoryLimit, ProtocolError, SandboxError, TimeLimit, WorkerLost
from sandbox_kernel.policy import Limits
from sandbox_kernel.session.debugging import Debugging

OPEN = {"command": "initialize", "seq": 1}


class Desk:
    """A debug session whose worker answers what the test says."""

    def __init__(self, **limits: Any) -> None:
        self.events: list[dict[str, Any]] = []
        self.asked: list[Mapping[str, Any]] = []
        self.answer: dict[str, Any] | SandboxError = {"success": True, "body": {}}
        self.hold: asyncio.Event | None = None
        self.debugging = Debugging(self._ask, msgspec.structs.replace(Limits(), **limits))
        self.debugging.publish = self.events.append

    async def _ask(self, op: str, request_id: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append(fields["content"])
        answer = self.answer
        if self.hold is not None:
            await self.hold.wait()
        if isinstance(answer, SandboxError):
            raise answer
        return dict(answer)

    def ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        return asyncio.run(self.debugging.request(message))

    def event(self, name: str, size: int = 100, **body: Any) -> None:
        text = dumps({"type": "debug_event", "event": name, "body": body})
        message = schema.decode(Frame(text, []))
        assert isinstance(message, schema.DebugEvent)
        self.debugging.event(message, size)

    def names(self) -> list[str]:
        return [event["event"] for event in self.events]


def test_an_answer_names_the_clients_request_whatever_the_worker_says() -> None:
    desk = Desk()
    answer = desk.ask({"command": "stackTrace", "seq": 7})
    assert (answer["type"], answer["command"], answer["request_seq"]) == ("response", "stackTrace", 7)
    assert desk.ask({"command": "x", "seq": "hostile"})["request_seq"] == 0
    assert desk.ask({})["command"] == ""


@pytest.mark.parametrize(
    "content",
    [
        {"success": 1}, {"success": True, "body": []}, {"success": False, "message": {"format": "x"}},
        {"success": True, "message": "x" * 200_000},
    ],
)  # fmt: skip
def test_an_answer_of_another_shape_is_a_protocol_error(content: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        schema.check_reply("debug", content)


def test_fields_that_are_not_the_workers_are_dropped() -> None:
    content = {"success": True, "body": {"a": 1}, "command": "other", "request_seq": 9, "seq": 1}
    assert schema.check_reply("debug", content) == {"success": True, "body": {"a": 1}}


@pytest.mark.parametrize(
    "frame",
    [
        {"type": "debug_event", "event": "evaluate", "body": {}},
        {"type": "debug_event", "event": "stopped", "body": []},
        {"type": "debug_event", "event": "stopped", "body": {}, "parent": "x"},
    ],
)
def test_an_event_of_another_shape_is_a_protocol_error(frame: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        schema.decode(Frame(dumps(frame), []))


def test_events_come_only_while_a_session_is_open() -> None:
    desk = Desk()
    with pytest.raises(ProtocolError):
        desk.event("stopped", threadId=1)
    desk.ask(OPEN)
    desk.event("stopped", threadId=1)
    desk.ask({"command": "disconnect", "seq": 2})
    with pytest.raises(ProtocolError):
        desk.event("continued", threadId=1)
    assert desk.names() == ["stopped"]


def test_a_session_that_could_not_begin_is_not_open() -> None:
    desk = Desk()
    desk.answer = {"success": False, "message": "no", "body": {}}
    assert not desk.ask(OPEN)["success"] and not desk.debugging.open


def test_a_late_answer_does_not_close_the_next_session() -> None:
    async def overlap() -> None:
        desk = Desk()
        await desk.debugging.request(OPEN)
        desk.hold = asyncio.Event()
        leaving = asyncio.create_task(desk.debugging.request({"command": "disconnect"}))
        coming = asyncio.create_task(desk.debugging.request(OPEN))
        await asyncio.sleep(0)
        desk.hold.set()
        await asyncio.gather(leaving, coming)
        assert desk.debugging.open

    asyncio.run(overlap())


def test_a_lost_worker_ends_the_session_for_the_client() -> None:
    desk = Desk()
    desk.debugging.lost()
    assert not desk.events
    desk.ask(OPEN)
    desk.event("stopped", threadId=3, allThreadsStopped=True)
    desk.debugging.lost()
    assert desk.names() == ["stopped", "continued", "terminated"] and not desk.debugging.open
    assert desk.events[1]["body"]["threadId"] == 3
    desk.answer = WorkerLost("it was killed")
    assert "it was killed" in desk.ask({"command": "threads"})["message"]


def test_an_answer_that_is_too_long_is_refused_in_words() -> None:
    desk = Desk(output=10_000)
    desk.answer = {"success": True, "body": {"content": "x" * 20_000}}
    answer = desk.ask({"command": "source"})
    assert not answer["success"] and "limits.output" in answer["message"] and answer["body"] == {}


def test_a_flood_of_events_is_bounded_and_steps_still_come_through() -> None:
    desk = Desk(messages=100)
    desk.ask(OPEN)
    for _ in range(5000):
        desk.event("output", output="x")
    desk.event("stopped", threadId=1)
    assert len(desk.events) < 500 and desk.names()[-1] == "stopped"
    said = [e["body"]["output"] for e in desk.events if e["body"].get("category") == "important"]
    assert len(said) == 1 and "dropped" in said[0]


def test_the_time_at_a_breakpoint_is_explained_only_where_it_counts() -> None:
    desk = Desk()
    assert not desk.debugging.note(TimeLimit(1, 1))
    desk.ask(OPEN)
    assert "cell_time" in desk.debugging.note(TimeLimit(1, 1))
    assert not desk.debugging.note(MemoryLimit(2, 1))
