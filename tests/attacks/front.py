"""Attempts at the front: through the channel that it reads, and at what it knows of Jupyter.

Those at the channel are packets; without a layer a reader takes them that believes what it is told (`believe`). Those
at Jupyter are cells; without a layer the stock kernel runs them.
"""

from __future__ import annotations

import json
import socket
import struct
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Junk:
    """Packets for the channel. ``code`` calls ``packet(bytes)``, ``frame(text)`` or uses ``channel``.

    Attributes:
        harm: what happens to a reader without the layer: "error": an exception that it does not expect; "forged": it
            publishes the token; "memory": it takes more than it was sent.
        megabytes: how much the front's memory may grow at its peak.
    """

    id: str
    what: str
    code: str
    layer: str
    harm: str = "error"
    megabytes: int = 200


@dataclass(frozen=True)
class Cell:
    """A cell; it succeeds when the text ``proof`` comes to the client or the effect is seen.

    Attributes:
        stock: the cell for the stock kernel, where that is another one ("" means the same).
    """

    id: str
    what: str
    code: str
    layer: str
    effect: str = "out"
    stock: str = ""


TOOLS = """
import socket, struct, json, os
def packet(data): channel.send(data)
def frame(text, buffers=(), claim=None):
    text = text if isinstance(text, bytes) else text.encode()
    sizes = claim if claim is not None else (len(text), *map(len, buffers))
    rest = struct.pack('!IH', sizes[0], len(sizes) - 1) + b''.join(struct.pack('!I', n) for n in sizes[1:]) + text
    rest += b''.join(buffers)
    flags = 1
    while rest:
        piece, rest = rest[:65535], rest[65535:]
        channel.send(bytes([flags | (0 if rest else 2)]) + piece)
        flags = 0
def publish(kind, content, parent='', **more):
    frame(json.dumps({'type': 'publish', 'parent': parent, 'msg_type': kind, 'content': content, **more}))
"""


class Believer:
    """A reader without any of the front's checks."""

    def __init__(self) -> None:
        self.room = bytearray()
        self.sizes: tuple[int, ...] = ()
        self.at = 0
        self.published: list[Any] = []

    def feed(self, data: bytes) -> None:
        """Take a packet at its word."""
        flags, start = data[0], 1
        if flags & 1:
            first, count = struct.unpack_from("!IH", data, 1)
            self.sizes = (first, *struct.unpack_from(f"!{count}I", data, 7))
            start = 7 + 4 * count
            self.room, self.at = bytearray(sum(self.sizes)), 0
        self.room[self.at : self.at + len(data) - start] = data[start:]
        self.at += len(data) - start
        if flags & 2 or flags > 3:
            if len(self.room) != sum(self.sizes):
                raise ValueError("more than was announced")
            message = json.loads(self.room[: self.sizes[0]].decode())
            kind = {"reply": "id", "stream": "text", "publish": "msg_type", "input_request": "prompt"}[message["type"]]
            self.published.append((message[kind], message.get("content", {}), message.get("parent", "")))
            json.dumps(self.published[-1], allow_nan=False).encode()
            _use(message)


def _use(message: dict[str, Any]) -> None:
    """What a front does with the parts, as far as it matters here."""
    content = message.get("content", {})
    if message.get("msg_type") == "error":
        "\n".join(content["traceback"])
    if "execution_count" in message:
        [""] * min(message["execution_count"], 10**9)


def believe(channel: socket.socket) -> list[Any]:
    """Read all there is; what was published. Raises whatever the packets make it raise."""
    reader = Believer()
    while True:
        data, _, flags, _ = channel.recvmsg(1 << 18, 1 << 12)
        if not data:
            raise EOFError("the worker is gone, or is it?")
        if data == b"\x03done":
            return reader.published
        if flags & socket.MSG_CTRUNC:
            raise OSError("descriptors that nobody closes")
        reader.feed(data)


JUNK = [
    Junk("junk-empty", "send a packet without a byte", "packet(b'')", "framing"),
    Junk("junk-flags", "send a packet with unknown flags", "packet(b'\\xff' + b'x' * 99)", "framing"),
    Junk("junk-middle", "send the middle of a frame that never began", "packet(bytes([2]) + b'x' * 99)", "framing"),
    Junk("junk-head", "send a frame whose sizes are cut off", "packet(b'\\x03\\x00')", "framing"),
    Junk("junk-sizes", "announce more buffers than there are sizes",
        "packet(b'\\x03' + struct.pack('!IH', 2, 9999) + b'{}')", "framing"),
    Junk("junk-huge", "announce four gigabytes",
        "packet((b'\\x01' + struct.pack('!IH', 2**32 - 1, 0)).ljust(65536, b'x'))", "bounds", "memory"),
    Junk("junk-buffers", "announce thousands of buffers of a gigabyte",
        "packet((b'\\x01' + struct.pack('!IH', 2, 9999) + struct.pack('!I', 2**30) * "
        "9999).ljust(65536, b'x')[:65536])",
        "bounds", "memory"),
    Junk("junk-longer", "send more than was announced",
        "packet(b'\\x03' + struct.pack('!IH', 2, 0) + b'{}' + b'x' * 99)", "framing"),
    Junk("junk-shorter", "send less than was announced", "packet(b'\\x03' + struct.pack('!IH', 99, 0) + b'{}')",
        "framing"),
    Junk("junk-long-packet", "send a packet longer than packets are",
        "packet(b'\\x03' + struct.pack('!IH', 2, 0) + b'x' * 70000)", "framing"),
    Junk("junk-no-json", "send what is not JSON", "frame('hello there')", "typed messages"),
    Junk("junk-no-utf8", "send what is not UTF-8", "frame(b'{\"type\": \"\\xff\\xfe\"}')", "typed messages"),
    Junk("junk-deep", "nest a message a hundred thousand times", "frame('[' * 100000 + ']' * 100000)", "bounds"),
    Junk("junk-list", "send a list where an object is due", "frame('[1, 2]')", "typed messages"),
    Junk("junk-type", "send a message of an unknown type", "frame('{\"type\": \"shutdown_all\"}')", "typed messages"),
    Junk("junk-nan", "send a number that is none",
        "publish('display_data', {'data': {'x': float('nan')}, 'metadata': {}})", "typed messages"),
    Junk("junk-number", "send a number of five thousand digits",
        'frame(\'{"type":"publish","parent":"","msg_type":"display_data","content":{"data":{"x":\' + '
        "'9' * 5000 + '}}}')",
        "typed messages"),
    Junk("junk-surrogate", "send half a character",
        'frame(\'{"type":"stream","parent":"","name":"stdout","text":"\\\\ud800"}\'.replace(\'stream\', '
        "'stream '))",
        "typed messages"),
    Junk("junk-traceback", "send an error whose traceback is a number",
         "publish('error', {'ename': 'E', 'evalue': 'v', 'traceback': 7})", "typed messages"),
    Junk("junk-descriptors", "pass open descriptors along, so that the front runs out of them",
        "import array\nfds = array.array('i', [channel.fileno()] * 100)\n"
        "for _ in range(20): channel.sendmsg([b'\\x03' + struct.pack('!IH', 2, 0) + b'{}'], [(1, 1, "
        "fds)])",
        "plain recv"),
    Junk("junk-count", "claim that two thousand million cells were run",
         "frame(json.dumps({'type': 'reply', 'id': REQUEST, 'content': {'status': 'ok', 'execution_count': 1}, "
         "'execution_count': 2**31 - 5}))", "a bound on what the history fills up", "memory"),
    Junk("junk-containers", "send twenty-seven megabytes of empty lists, which grow thirtyfold when they are read",
        'frame(\'{"type":"publish","parent":"","msg_type":"display_data","content":{"data":{"x":[\' '
        "+ '[],' * 9000000 + '[]]}}}')",
        "bounds", "memory", 500),
    Junk("forge-type", "publish a message of a type of one's own", "publish('TOKEN', {})", "typed messages", "forged"),
    Junk("forge-status", "tell the client that the kernel is idle", "publish('status', {'execution_state': 'TOKEN'})",
         "typed messages", "forged"),
    Junk("forge-input", "show another cell's text", "publish('execute_input', {'code': 'TOKEN', 'execution_count': 1})",
         "typed messages", "forged"),
    Junk("forge-reply", "answer a request that was never made",
         "frame(json.dumps({'type': 'reply', 'id': 'TOKEN', 'content': {'status': 'ok'}, 'execution_count': 1}))",
         "parents known to the front", "forged"),
    Junk("forge-header", "give a message a header of one's own",
        "publish('display_data', {'data': {'text/plain': 'TOKEN'}}, header={'msg_id': 'TOKEN'})", "typed messages",
        "forged"),
    Junk("forge-buffers", "put buffers on a message that has none",
        "frame(json.dumps({'type': 'stream', 'parent': '', 'name': 'stdout', 'text': 'TOKEN'}), "
        "[b'x' * 99])",
        "typed messages", "forged"),
    Junk("forge-stream", "print to a stream of another name",
        "frame(json.dumps({'type': 'stream', 'parent': '', 'name': 'TOKEN', 'text': 'TOKEN'}))", "typed messages",
        "forged"),
    Junk("forge-greeting", "greet a second time, with another state",
        "frame(json.dumps({'type': 'ready', 'python': '9', 'banner': 'TOKEN', 'execution_count': 1}))",
        "typed messages"),
]

CELLS = [
    Cell("jupyter-key", "take the key that signs messages", "print(get_ipython().kernel.session.key)",
        "the front alone has it"),
    Cell("jupyter-file", "read the connection file", "print(open(CONNECTION).read())", "mount namespace or Landlock"),
    Cell("jupyter-file-name", "find the connection file's name in the process's arguments",
         "import sys\nprint(sys.argv, open('/proc/self/cmdline').read())", "a clean start of the front", "name"),
    Cell("jupyter-runtime", "list the folder of connection files",
        "import os\nprint(os.listdir(os.path.dirname(CONNECTION)))", "mount namespace or Landlock", "base name"),
    Cell("jupyter-port", "connect to the kernel's own ports",
         "import socket\ns = socket.create_connection(('127.0.0.1', PORT), 2)\nprint('TOKEN')", "seccomp", "token"),
    Cell("jupyter-forge", "publish a signed message of any type",
        "k = get_ipython().kernel\nk.session.send(k.iopub_socket, 'TOKEN', {}, parent={})",
        "nothing of the worker is a socket of Jupyter's", "message"),
    Cell("jupyter-parent", "publish with a parent header of one's own",
         TOOLS + "channel = socket.socket(fileno=os.dup(3))\n"
         "publish('display_data', {'data': {'text/plain': 'x'}, 'metadata': {}}, parent='TOKEN')",
         "parents known to the front", "parent",
         "k = get_ipython().kernel\nk.session.send(k.iopub_socket, 'display_data', {'data': {'text/plain': 'x'}, "
         "'metadata': {}}, parent={'header': {'msg_id': 'TOKEN'}, 'msg_id': 'TOKEN'})"),
    Cell("jupyter-ask", "ask for a password where the client allows no questions",
        TOOLS + "import time\nchannel = socket.socket(fileno=os.dup(3))\n"
        "request = get_ipython().kernel.get_parent('shell')['header']['msg_id']\n"
        "question = {'type': 'input_request', 'parent': request, 'serial': 1, 'prompt': 'TOKEN', 'password': True}\n"
        "frame(json.dumps(question))\n"
        "time.sleep(0.2)",
        "the front checks what the client allowed", "question",
        "k = get_ipython().kernel\n"
        "k.session.send(k.stdin_socket, 'input_request', {'prompt': 'TOKEN', 'password': True}, "
        "parent=k.get_parent('shell'), ident=k._parent_ident['shell'])"),
    Cell("jupyter-history", "read the cells of other notebooks in the history",
         "print([x for x in get_ipython().history_manager.search('*OLD*')])", "the history is the front's", "old"),
    Cell("jupyter-environment", "read a token from the environment of the server",
         "import os\nprint(os.environ.get('SERVICE_SECRET'))", "clean environment", "planted"),
    Cell("sibling-file", "read another kernel's connection file", "print(open(OTHER).read())",
        "mount namespace or Landlock", "other key"),
    Cell("sibling-port", "connect to another kernel",
        "import socket\ns = socket.create_connection(('127.0.0.1', OTHERPORT), 2)\nprint('TOKEN')", "seccomp",
        "token"),
    Cell("sibling-signal", "stop another kernel", "import os, signal\nos.kill(OTHERPID, signal.SIGSTOP)",
        "pid namespace or Landlock", "stopped"),
    Cell("sibling-temporary", "read another kernel's private folder", "print(open(OTHERTEMP).read())",
        "mount namespace or Landlock", "other text"),
]
