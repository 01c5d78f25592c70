"""The tools themselves: arguments in, words, pictures and bytes out."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from ..api import Execution
from ..api.execution import plain_text, shortened
from ..errors import SandboxError, size_text
from . import arguments as args
from .sessions import Caller, Place, Sessions

IMAGES = 8
IMAGE_BYTES = 8 * 1024 * 1024  # of all images of an answer
BLOB_BYTES = 4 * 1024 * 1024
_PICTURES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg"}


@dataclass
class Answer:
    """What a tool gives.

    Attributes:
        text: plain words, bounded, without terminal sequences.
        images: MIME type and content.
        file: path and content of a file that is neither text nor picture.
        failed: what was asked for was not done, or ended with an error.
        state: of the variables: "kept", "restored" or "lost"; "" where it is not about them.
        session: the handle.
    """

    text: str
    images: list[tuple[str, bytes]] = field(default_factory=list)
    file: tuple[str, bytes] | None = None
    failed: bool = False
    state: str = "kept"
    session: str = ""


class Tools:
    """Every tool by its name.

    Args:
        sessions: whose sandboxes they use.
        text_chars: the longest text of an answer.
    """

    def __init__(self, sessions: Sessions, *, text_chars: int = 20_000) -> None:
        self._sessions, self._chars = sessions, text_chars
        self.kinds: dict[str, type[args.Arguments]] = {
            "run_code": args.RunCode, "put_file": args.PutFile, "get_file": args.GetFile,
            "list_files": args.ListFiles, "list_variables": args.ListVariables,
            "describe_frame": args.DescribeFrame, "checkpoint": args.Checkpoint, "rollback": args.Rollback,
            "fork": args.Fork, "keep": args.Keep, "reset": args.Reset, "end_session": args.EndSession,
        }  # fmt: skip
        self._work: dict[type[args.Arguments], Callable[[Place, Any], Awaitable[Answer]]] = {
            args.RunCode: self._run_code, args.PutFile: _put_file, args.GetFile: self._get_file,
            args.ListFiles: _list_files, args.ListVariables: _list_variables,
            args.DescribeFrame: _describe_frame, args.Checkpoint: _checkpoint, args.Rollback: _rollback,
            args.Fork: self._fork, args.Keep: self._keep, args.Reset: _reset, args.EndSession: self._end_session,
        }  # fmt: skip

    async def call(self, caller: Caller, name: str, given: Any) -> Answer:
        """Answer a call. What goes wrong with it is told in the answer.

        Raises:
            KeyError: there is no such tool.
        """
        kind = self.kinds[name]
        place: Place | None = None
        try:
            asked = args.parsed(kind, given)
            async with self._sessions.use(caller, asked.session) as place:
                answer = await self._work[kind](place, asked)
        except SandboxError as error:
            answer = Answer(error.explain(), failed=True, state=error.state)
        except KeyError as error:
            answer = Answer(_capital(str(error.args[0])), failed=True)
        except (OSError, ValueError) as error:
            answer = Answer(_capital(str(error)), failed=True)
        if place is not None:
            answer.session = place.handle
            if place.note:
                answer.text, place.note = f"{place.note}\n{answer.text}", ""
        asked_for = isinstance(given, dict) and given.get("session")
        named = f"; session {answer.session}" if answer.session and (asked_for or not caller.connection) else ""
        last = f"variables {answer.state}{named}" if answer.state else named.removeprefix("; ")
        room = self._chars - len(last) - 3
        answer.text = shortened(plain_text(answer.text), room) + (f"\n[{last}]" if last else "")
        return answer

    async def _run_code(self, place: Place, asked: args.RunCode) -> Answer:
        execution = await place.sandbox.run_code(asked.code, timeout=asked.timeout or None)
        images, left_out = _images(execution)
        text = execution.text(self._chars) or "(no output)"
        if left_out:
            text += f"\n({left_out} more images are not shown: an answer has room for {IMAGES} and "
            text += f"{size_text(IMAGE_BYTES)}.)"
        return Answer(text, images, failed=not execution.success, state=execution.state)

    async def _get_file(self, place: Place, asked: args.GetFile) -> Answer:
        content = await place.sandbox.get_file(asked.path)
        for magic, kind in _PICTURES.items():
            if content.startswith(magic) and len(content) <= IMAGE_BYTES:
                return Answer(f"{asked.path}: {size_text(len(content))}", [(kind, content)])
        try:
            return Answer(content.decode() or f"({asked.path} is empty)")
        except UnicodeDecodeError:
            pass
        if len(content) > BLOB_BYTES:
            return Answer(f"{asked.path} has {size_text(len(content))}, and no more than {size_text(BLOB_BYTES)} can "
                          "be handed over at a time. Read it in the sandbox with run_code.", failed=True)  # fmt: skip
        return Answer(f"{asked.path}: {size_text(len(content))}", file=(asked.path, content))

    async def _fork(self, place: Place, asked: args.Fork) -> Answer:
        branch = await self._sessions.fork(place)
        return Answer(f"The session {branch.handle} has begun with the same variables: pass this name as `session` to "
                      "work there. keep goes on with its variables here; end_session gives it up.")  # fmt: skip

    async def _keep(self, place: Place, asked: args.Keep) -> Answer:
        async with self._sessions.use(place.caller, asked.fork) as branch:
            if branch is place or branch.root is not (place.root or place):
                raise ValueError(f"{asked.fork!r} is no fork of this session.")
            await place.sandbox.adopt(branch.sandbox)
            self._sessions.end(branch, "its variables were kept in the session that it was forked from")
        return Answer(f"The variables are those of {asked.fork}, which has ended.")

    async def _end_session(self, place: Place, asked: args.EndSession) -> Answer:
        self._sessions.end(place, "you have ended it")
        return Answer("The session has ended.", state="lost")


async def _put_file(place: Place, asked: args.PutFile) -> Answer:
    if asked.encoding == "base64":
        try:
            content = base64.b64decode(asked.content, validate=True)
        except binascii.Error as error:
            raise ValueError(f"The content is not base64: {error}.") from None
    else:
        content = asked.content.encode("utf-8", "surrogatepass")
    await place.sandbox.put_file(asked.path, content)
    return Answer(f"{asked.path} was written: {size_text(len(content))}.")


async def _list_files(place: Place, asked: args.ListFiles) -> Answer:
    found = await place.sandbox.files(asked.path)
    lines = [f"{name}/" if size < 0 else f"{name}  {size_text(size)}" for name, size in found.items()]
    return Answer("\n".join(lines) or f"({asked.path} is empty)")


async def _list_variables(place: Place, asked: args.ListVariables) -> Answer:
    found = await place.sandbox.variables()
    return Answer("\n".join(f"{name}: {told}" for name, told in found.items()) or "(there are no variables)")


async def _describe_frame(place: Place, asked: args.DescribeFrame) -> Answer:
    return Answer(await place.sandbox.describe(asked.name))


async def _checkpoint(place: Place, asked: args.Checkpoint) -> Answer:
    await place.sandbox.checkpoint(asked.name)
    return Answer(f"The state is kept as {asked.name}.")


async def _rollback(place: Place, asked: args.Rollback) -> Answer:
    if asked.checkpoint:
        await place.sandbox.rollback(asked.checkpoint)
        return Answer(f"The variables are what they were at the checkpoint {asked.checkpoint}.", state="restored")
    await place.sandbox.rollback(asked.cells)
    cells = "cell is" if asked.cells == 1 else f"{asked.cells} cells are"
    return Answer(f"The last {cells} undone.", state="restored")


async def _reset(place: Place, asked: args.Reset) -> Answer:
    await place.sandbox.restart()
    return Answer("The session starts afresh.", state="lost")


def _images(execution: Execution) -> tuple[list[tuple[str, bytes]], int]:
    """The pictures that fit into an answer, and how many do not."""
    found = [("image/png", r.png) if r.png is not None else ("image/jpeg", r.jpeg) for r in execution.results]
    images: list[tuple[str, bytes]] = []
    room, left_out = IMAGE_BYTES, 0
    for kind, data in found:
        if data is None:
            continue
        if len(images) == IMAGES or len(data) > room:
            left_out += 1
            continue
        images.append((kind, data))
        room -= len(data)
    return images, left_out


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
