"""``sys.stdout`` and ``sys.stderr`` of the cells: text becomes a frame at once.

No buffer and no helper thread: text that was printed before a crash has arrived, `flush` has nothing to do, a
fork finds no locked buffer, and order against displays needs no care. The front joins small pieces.
"""

from __future__ import annotations

import contextvars
import os
import threading
from collections.abc import Iterable
from json.encoder import encode_basestring
from typing import Any

from ipykernel import iostream

from ..channel.framing import SURROGATES, packet_of, split, stream_head
from .link import Link
from .per_shell import PerShell
from .session import ChannelSession, request_id, write_raw

PIECE_CHARS = 4 * 1024 * 1024  # at most 24 MiB of JSON, below the bound of a frame
_QUICK_CHARS = 8 * 1024  # with escapes never more than one packet
_NO_PREFIX = (None, b"", b"")
_getpid = os.getpid


class OutStream(iostream.OutStream):
    """Replaces ipykernel's class of the same name, and is a subclass of it only because libraries ask.

    Closing it does nothing: a kernel that is mute from then on would serve nobody.
    """

    errors = "backslashreplace"
    _link: Link | None = None
    _parent_header_global: Any = PerShell(dict)

    def __init__(self, name: str, descriptor: int, session: ChannelSession) -> None:
        # The base class's own __init__ starts threads and redirects descriptors.
        self.name = name
        self.session = session
        self.topic = b"stream." + name.encode()
        self.echo = None
        self._descriptor = descriptor
        self._master_pid = os.getpid()
        self._local = threading.local()
        self._hooked = False  # a thread of the cells has had hooks at some time
        self._parent_header: contextvars.ContextVar[dict[str, Any]] = contextvars.ContextVar("parent_header")
        self._parent_header.set({})
        self._parent_header_global = {}
        # The header that was written for last, with how its frames begin and the packet of a line's end, which is half
        # of what `print` writes. (A request's dictionary does not change.)
        self._prefix: tuple[object, bytes, bytes] = _NO_PREFIX
        self._unfinished = ""

    def attach(self, link: Link) -> None:
        """From now on text goes through `link`; before, and in forked children, to the pipe."""
        self._link = link
        self._master_pid = link.pid
        self._prefix = _NO_PREFIX

    def write(self, string: str) -> int:
        """Sends `string`; in a forked child its lines go to the pipe on this stream's descriptor."""
        if not isinstance(string, str):
            raise TypeError(f"write() argument must be str, not {type(string)}")
        link = self._link
        if link is None or _getpid() != link.pid:
            self._write_from_fork(string)
            return len(string)
        if not string:
            return 0
        try:
            header = self._parent_header.get()
        except LookupError:  # a thread of the cell: it has no context of its own
            header = self._parent_header_global
        if self._hooked and getattr(self._local, "hooks", None):
            self._write_through_hooks(string, header)
            return len(string)
        known, prefix, line_end = self._prefix
        if known is not header:
            prefix = stream_head(request_id(header), self.name)
            line_end = packet_of(prefix + b'"\\n"}')
            self._prefix = (header, prefix, line_end)
        if string == "\n":
            link.send_quickly(line_end)
            return 1
        if len(string) <= _QUICK_CHARS:
            link.send_quickly(packet_of(prefix + encode_basestring(string).encode("utf-8", SURROGATES) + b"}"))
            return len(string)
        for at in range(0, len(string), PIECE_CHARS):
            text = encode_basestring(string[at : at + PIECE_CHARS]).encode("utf-8", SURROGATES)
            link.send(split(prefix + text + b"}"))
        return len(string)

    def register_hook(self, hook: Any) -> None:
        """As the base class."""
        super().register_hook(hook)  # type: ignore[no-untyped-call]
        self._hooked = True

    def _write_through_hooks(self, string: str, header: dict[str, Any]) -> None:
        message: Any = self.session.msg("stream", {"name": self.name, "text": string}, parent=header)
        for hook in self._hooks:
            message = hook(message)
            if message is None:
                return
        self.session.send(None, message)

    def _write_from_fork(self, string: str) -> None:
        # By whole lines, as on a terminal: children write to one pipe, and print() writes in pieces.
        lines, newline, rest = (self._unfinished + string).rpartition("\n")
        self._unfinished = rest
        if newline:
            write_raw(self._descriptor, lines + newline)

    def writelines(self, sequence: Iterable[str]) -> None:  # type: ignore[override]
        """Writes each of the strings."""
        for string in sequence:
            self.write(string)

    def flush(self) -> None:
        """Nothing: every write has left already. In a forked child, the unfinished line goes to the pipe."""
        if self._unfinished:
            text, self._unfinished = self._unfinished, ""
            write_raw(self._descriptor, text)

    def _flush(self) -> None:
        pass

    def fileno(self) -> int:
        """1 or 2: the pipe to the front, so that ``Popen(stdout=sys.stdout)`` works."""
        return self._descriptor

    def isatty(self) -> bool:
        """Never a terminal."""
        return False

    def close(self) -> None:
        """Nothing, see the class."""

    @property
    def closed(self) -> bool:
        """Never."""
        return False
