"""What the worker may say to the front, as typed schemas.

Front only (msgspec is not needed in the worker). A frame that does not match exactly one of these classes is a
protocol error and costs the worker its life. The worker names the request that a message belongs to by id; it
cannot choose a header, a topic, a message id or a message type outside of the lists here.
"""

from __future__ import annotations

import gc
from typing import Annotated, Any, Literal

import msgspec

from ..errors import ProtocolError
from .framing import Frame

RequestId = Annotated[str, msgspec.Meta(max_length=200)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31)]
HostName = Annotated[str, msgspec.Meta(max_length=200)]
ShortText = Annotated[str, msgspec.Meta(max_length=100_000)]
PublishType = Literal[
    "display_data", "update_display_data", "clear_output", "execute_result", "error",
    "comm_open", "comm_msg", "comm_close",
]  # fmt: skip

DebugEventName = Literal[
    "initialized", "stopped", "continued", "exited", "terminated", "thread", "output", "breakpoint", "module",
    "loadedSource", "process", "capabilities", "progressStart", "progressUpdate", "progressEnd", "invalidated",
    "memory",
]  # fmt: skip


class _Base(msgspec.Struct, tag_field="type", forbid_unknown_fields=True, gc=False):
    pass


class Ready(_Base, tag="ready"):
    """The worker serves requests now."""

    python: Annotated[str, msgspec.Meta(max_length=100)]
    banner: ShortText
    execution_count: Count


class Asleep(_Base, tag="asleep"):
    """A copy of the worker sleeps behind this channel; `pid` is its own word, and a number inside the sandbox."""

    pid: Annotated[int, msgspec.Meta(ge=2, le=2**22)]


class Stream(_Base, tag="stream"):
    """Text written to ``sys.stdout`` or ``sys.stderr``."""

    parent: RequestId
    name: Literal["stdout", "stderr"]
    text: str


class Publish(_Base, tag="publish"):
    """A message for IOPub; buffers travel beside it."""

    parent: RequestId
    msg_type: PublishType
    content: dict[str, Any]
    metadata: dict[str, Any] = {}


class InputRequest(_Base, tag="input_request"):
    """``input()`` or ``getpass()`` waits for the person."""

    parent: RequestId
    serial: Count
    prompt: ShortText
    password: bool


class Reply(_Base, tag="reply"):
    """The answer to the request ``id``; `execution_count` is the number the next cell will have.

    `last`: the worker can run no cell any more, and ends. `value`: what was asked for is in the one buffer beside it.
    """

    id: RequestId
    content: dict[str, Any]
    execution_count: Count
    last: bool = False
    value: bool = False


class Room(_Base, tag="room"):
    """The worker asks for memory to write a value into that is too large for a message."""

    serial: Count
    size: Annotated[int, msgspec.Meta(ge=1, le=2**40)]


class Value(_Base, tag="value"):
    """The value that request ``id`` asked for: in the room with that serial number, or in the one buffer beside it."""

    id: RequestId
    room: Count = 0


class HostCall(_Base, tag="host_call"):
    """Code of the cell calls a function of the host; the arguments are a value, as in `Value`."""

    serial: Count
    module: HostName
    name: HostName
    room: Count = 0


class DebugEvent(_Base, tag="debug_event"):
    """An event of the Debug Adapter Protocol; only during a debug session."""

    event: DebugEventName
    body: dict[str, Any] = {}


Message = Ready | Asleep | Stream | Publish | InputRequest | Reply | Room | Value | HostCall | DebugEvent

_LARGE = 1 << 20

_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


def decode(frame: Frame) -> Message:
    """One message out of a frame.

    Raises:
        ProtocolError: not JSON, too deeply nested, or not one of the messages above.
    """
    # New containers make the collector look at all of them again and again, which takes longer than all the rest.
    paused = len(frame.json) > _LARGE and gc.isenabled()
    if paused:
        gc.disable()
    try:
        message = _decoder.decode(frame.json)
    except RecursionError as error:
        raise ProtocolError("a message is nested too deeply") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ProtocolError(str(error)[:200]) from error
    finally:
        if paused:
            gc.enable()
    if isinstance(message, (Value, HostCall)):
        if len(frame.buffers) != (message.room == 0):
            raise ProtocolError("a value that is not in exactly one place")
    elif isinstance(message, Reply) and message.value:
        if len(frame.buffers) != 1:
            raise ProtocolError("a reply without its value")
    elif frame.buffers and not isinstance(message, Publish):
        raise ProtocolError(f"a {type(message).__name__} message cannot carry buffers")
    return message


# ---------------------------------------------------------------- replies, by request


class _Error(msgspec.Struct):
    ename: str
    evalue: str
    traceback: list[str]


class ExecuteReply(msgspec.Struct):
    """Fields of ``execute_reply`` that are passed on; payloads are filtered by `payloads`."""

    status: Literal["ok", "error"]
    execution_count: Count
    user_expressions: dict[str, dict[str, Any]] = {}
    payload: list[dict[str, Any]] = []
    ename: str | msgspec.UnsetType = msgspec.UNSET
    evalue: str | msgspec.UnsetType = msgspec.UNSET
    traceback: list[str] | msgspec.UnsetType = msgspec.UNSET


class CompleteReply(msgspec.Struct):
    """Fields of ``complete_reply``."""

    status: Literal["ok"]
    matches: list[str]
    cursor_start: Count
    cursor_end: Count
    metadata: dict[str, Any] = {}


class InspectReply(msgspec.Struct):
    """Fields of ``inspect_reply``."""

    status: Literal["ok"]
    found: bool
    data: dict[str, Any] = {}
    metadata: dict[str, Any] = {}


class IsCompleteReply(msgspec.Struct, omit_defaults=True):
    """Fields of ``is_complete_reply``."""

    status: Literal["complete", "incomplete", "invalid", "unknown"]
    indent: Annotated[str, msgspec.Meta(max_length=10_000)] | msgspec.UnsetType = msgspec.UNSET


class CheckpointReply(msgspec.Struct):
    """Whether a copy of the worker was made, and what it lacks."""

    status: Literal["ok", "refused"]
    reason: Annotated[str, msgspec.Meta(max_length=200)] = ""
    lost: Annotated[list[Annotated[str, msgspec.Meta(max_length=200)]], msgspec.Meta(max_length=20)] = []


class ValueReply(msgspec.Struct):
    """To the requests about values and files; the value itself comes before, as `Value`."""

    status: Literal["ok", "error"]
    ename: ShortText | msgspec.UnsetType = msgspec.UNSET
    evalue: str | msgspec.UnsetType = msgspec.UNSET
    traceback: list[str] | msgspec.UnsetType = msgspec.UNSET
    bases: Annotated[list[ShortText], msgspec.Meta(max_length=20)] | msgspec.UnsetType = msgspec.UNSET


VALUE_OPS = (
    "put", "get", "export", "call", "modules", "write_file", "read_file", "list_files", "variables", "describe",
)  # fmt: skip


class DebugReply(msgspec.Struct):
    """Fields of ``debug_reply`` that are the worker's to say; `message` says why when `success` is false."""

    success: bool = False
    body: dict[str, Any] = {}
    message: ShortText | msgspec.UnsetType = msgspec.UNSET


REPLIES: dict[str, type[msgspec.Struct]] = {
    **dict.fromkeys(VALUE_OPS, ValueReply),
    "execute": ExecuteReply, "complete": CompleteReply, "inspect": InspectReply, "is_complete": IsCompleteReply,
    "checkpoint": CheckpointReply, "debug": DebugReply,
}  # fmt: skip


def check_reply(op: str, content: dict[str, Any]) -> dict[str, Any]:
    """The reply's content with its known fields only.

    Raises:
        ProtocolError: a field is missing or has the wrong type.
    """
    schema = REPLIES.get(op)
    if schema is None:
        return {}
    try:
        plain: dict[str, Any] = msgspec.to_builtins(msgspec.convert(content, schema))
        if plain.get("status") == "error":
            msgspec.convert(plain, _Error)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ProtocolError(f"{op} reply: {str(error)[:200]}") from error
    return plain
