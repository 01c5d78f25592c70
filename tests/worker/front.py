"""A front for tests: it forks a worker, drives it over the channel and holds it to the front's own schema."""

from __future__ import annotations

import json
import logging
import os
import re
import select
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sandbox_kernel.channel import schema
from sandbox_kernel.channel.framing import PACKET_BYTES, Assembler, Frame, encode
from sandbox_kernel.worker import entry

PATIENCE_S = 60.0
ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Message:
    """One message of the worker."""

    kind: str
    fields: dict[str, Any]
    buffers: list[bytes] = field(default_factory=list)

    @property
    def parent(self) -> str:
        return str(self.fields.get("parent", ""))


@dataclass
class Cell:
    """What a request led to, up to and including its reply."""

    id: str
    messages: list[Message]

    @property
    def reply(self) -> dict[str, Any]:
        content: dict[str, Any] = self.messages[-1].fields["content"]
        return content

    @property
    def next_count(self) -> int:
        return int(self.messages[-1].fields["execution_count"])

    def text(self, name: str = "stdout") -> str:
        return "".join(
            m.fields["text"]
            for m in self.messages
            if m.kind == "stream" and m.fields["name"] == name and m.parent == self.id
        )

    @property
    def stdout(self) -> str:
        return self.text("stdout")

    @property
    def stderr(self) -> str:
        return self.text("stderr")

    def published(self, *kinds: str) -> list[dict[str, Any]]:
        return [
            m.fields["content"]
            for m in self.messages
            if m.kind == "publish" and m.fields["msg_type"] in kinds
        ]

    @property
    def result(self) -> str:
        (content,) = self.published("execute_result")
        return str(content["data"]["text/plain"])


class Front:
    """One worker and the test's end of its channel."""

    def __init__(self, environ: dict[str, str] | None = None) -> None:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        out_r, out_w = os.pipe()
        err_r, err_w = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                warnings.resetwarnings()
                warnings.simplefilter("default")
                os.environ.update(environ or {})
                os.setsid()
                null = os.open(os.devnull, os.O_RDONLY)
                for source, target in ((null, 0), (out_w, 1), (err_w, 2)):
                    os.dup2(source, target)
                channel = there.detach()
                os.dup2(channel, 3)
                os.closerange(4, 256)
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                sys.stdin = open(0)  # noqa: SIM115
                # What pytest has put there is for this process.
                logging.getLogger().handlers.clear()
                threading.excepthook, sys.unraisablehook = threading.__excepthook__, sys.__unraisablehook__
                entry.prepare()
                entry.run(3, 1)
            finally:
                os._exit(99)
        there.close()
        os.close(out_w)
        os.close(err_w)
        self.socket = here
        self.pipes = {out_r: "stdout", err_r: "stderr"}
        self.raw = {"stdout": b"", "stderr": b""}
        self.assembler = Assembler()
        self.serial = 0
        self.later: list[Message] = []
        self.status: int | None = None
        self.unread: list[Message] = []

    # -- raw

    def send(self, obj: dict[str, Any], buffers: tuple[bytes, ...] = ()) -> None:
        for packet in encode(obj, buffers):
            self.socket.send(packet)

    def receive(self, patience_s: float = PATIENCE_S) -> Message:
        """The next message. Raises TimeoutError, or EOFError at the channel's end."""
        deadline = time.monotonic() + patience_s
        while True:
            sources: list[Any] = [self.socket, *self.pipes]
            ready, _, _ = select.select(sources, [], [], max(deadline - time.monotonic(), 0))
            if not ready:
                raise TimeoutError(f"no message; raw output {self.raw}")
            for descriptor in [d for d in ready if d in self.pipes]:
                data = os.read(descriptor, 65536)
                self.raw[self.pipes[descriptor]] += data
                if not data:
                    os.close(descriptor)
                    del self.pipes[descriptor]
            if self.socket in ready:
                packet = self.socket.recv(PACKET_BYTES + 1)
                if not packet:
                    raise EOFError(f"raw output {self.raw}")
                frame = self.assembler.feed(packet)
                if frame is not None:
                    return self._message(frame)

    @staticmethod
    def _message(frame: Frame) -> Message:
        schema.decode(frame)
        fields = json.loads(frame.json)
        return Message(fields.pop("type"), fields, [bytes(view) for view in frame.buffers])

    def read_pipes(self, until: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + patience_s
        while not until():
            ready, _, _ = select.select(list(self.pipes), [], [], 0.1)
            for descriptor in ready:
                self.raw[self.pipes[descriptor]] += os.read(descriptor, 65536)
            assert time.monotonic() < deadline, self.raw

    # -- requests

    def begin(self, code: str, **content: Any) -> str:
        """Sends an execute request and returns its id."""
        metadata = content.pop("metadata", {"cellId": "cell"})
        shell = {"shell": content.pop("shell")} if "shell" in content else {}
        content = {
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": True,
            **content,
        }
        fields = {"metadata": metadata, "content": {"code": code, **content}}
        return self.ask("execute", "execute_request", **fields, **shell)

    def ask(self, op: str, msg_type: str = "", buffers: tuple[bytes, ...] = (), **fields: Any) -> str:
        self.serial += 1
        name = f"msg-{self.serial}"
        header = {
            "msg_id": name, "msg_type": msg_type, "session": "s", "username": "u", "version": "5.3",
            "date": "2026-01-02T03:04:05.678901Z", **({"subshell_id": fields["shell"]} if "shell" in fields else {}),
        }  # fmt: skip
        self.send({"op": op, "id": name, "header": header, "msg_type": msg_type, **fields}, buffers)
        return name

    def finish(self, name: str, patience_s: float = PATIENCE_S) -> Cell:
        """Everything up to the reply to `name`."""
        messages: list[Message] = []
        while True:
            message = self.receive(patience_s)
            messages.append(message)
            if message.kind == "reply" and message.fields["id"] == name:
                schema.check_reply(
                    "execute" if "payload" in message.fields["content"] else "", message.fields["content"]
                )
                return Cell(name, messages)

    def run(self, code: str, patience_s: float = PATIENCE_S, **content: Any) -> Cell:
        return self.finish(self.begin(code, **content), patience_s)

    def good(self, code: str, **content: Any) -> Cell:
        cell = self.run(code, **content)
        assert cell.reply["status"] == "ok", ANSI.sub("", "\n".join(cell.reply["traceback"]))
        return cell

    def wait_for(self, wanted: Callable[[Message], bool], patience_s: float = PATIENCE_S) -> list[Message]:
        """Everything up to the first message that is `wanted`."""
        messages = []
        while True:
            messages.append(self.receive(patience_s))
            if wanted(messages[-1]):
                return messages

    def wait_text(self, text: str, patience_s: float = PATIENCE_S) -> list[Message]:
        seen = ""

        def arrived(message: Message) -> bool:
            nonlocal seen
            seen += message.fields.get("text", "") if message.kind == "stream" else ""
            return text in seen

        return self.wait_for(arrived, patience_s)

    def interrupt(self) -> None:
        os.kill(self.pid, signal.SIGINT)

    def open_subshells(self, *names: str) -> None:
        """As the front does: also while the main thread runs a cell."""
        self.send({"op": "subshells", "ids": list(names)})
        os.kill(self.pid, signal.SIGURG)

    def started(self, code: str, **content: Any) -> str:
        """Begins a cell and waits until it runs."""
        name = self.begin("print('go')\n" + code, **content)
        self.wait_text("go\n")
        time.sleep(0.05)
        return name

    # -- the end

    def wait(self, patience_s: float = PATIENCE_S) -> int:
        """The worker's exit status, negative for a signal."""
        deadline = time.monotonic() + patience_s
        while self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline:
                raise TimeoutError("the worker is still there")
            else:
                time.sleep(0.002)
        return self.status

    def end(self) -> None:
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if not pid:
                os.killpg(self.pid, signal.SIGKILL)
                _, status = os.waitpid(self.pid, 0)
            self.status = os.waitstatus_to_exitcode(status)
        self.socket.close()
        for descriptor in self.pipes:
            os.close(descriptor)


@contextmanager
def front(environ: dict[str, str] | None = None) -> Iterator[Front]:
    """A worker that has said that it is ready."""
    worker = Front(environ)
    try:
        worker.ready = worker.receive()  # type: ignore[attr-defined]
        assert worker.ready.kind == "ready"  # type: ignore[attr-defined]
        yield worker
    finally:
        worker.end()
