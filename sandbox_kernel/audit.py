"""The audit log: one line for each cell, chained so that a change, a gap or a cut end is found.

Each line is a JSON object whose last field ``mac`` is an HMAC-SHA256 over the line before's ``mac`` and this line
without its own. Whoever has the log but not the key can neither change, drop, move nor add a line unseen; cutting off
the end takes the final line, which holds the counts. The key is read by the front after the zygote was forked, so no
worker ever has it in memory, and it lies where no cell can read it.

What it is not: a defence against whoever can read the key, that is the user who runs the kernel. Operators who do not
trust their users give it a folder of another user and collect the lines elsewhere. Lines are written with one write(2)
each and not synced: a crash of the machine may cost the last ones, which then shows as a missing end.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import json
import os
import secrets
import stat
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from .errors import PolicyRefusal

KEY_BYTES = 32
_MAC_CHARS = 64
_TAIL = ',"mac":"'
_LINE_BYTES = 65536  # longest line that is written or looked for
_ENTRIES, _ENTRY_CHARS, _ID_CHARS = 20, 200, 200
_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC


class AuditError(Exception):
    """The log or its key cannot be used; the message is a sentence for the operator."""


class AuditLog:
    """Writes one file. Nothing but the constructor raises.

    Args:
        file: absolute path of the log; ``{pid}`` and ``{time}`` in it (UTC, ``20250131T120000Z``) give each process a
            file of its own. Two cannot write one file at a time: the second is refused.
        key_file: absolute path of the key; "" means the log's path with ``.key`` added. It is made (0600) when it does
            not exist and the log is new.
        required: refuse cells (see `refusal`) while lines cannot be written.
        visible: folders that cells can see; log and key must lie outside of them.

    Raises:
        AuditError: the file or the key cannot be used.
    """

    def __init__(self, file: str, *, key_file: str = "", required: bool = True, visible: Iterable[str] = ()) -> None:
        self.required = required
        self.path = _expand(file)
        self.key_path = _expand(key_file) if key_file else f"{self.path}.key"
        self.check_hidden(visible)
        self._fd = _open_log(self.path)
        try:
            self._previous, self._number, torn = _last_line(self._fd)
            self._key = read_key(self.key_path) if os.path.lexists(self.key_path) else self._new_key()
        except (OSError, AuditError) as error:
            os.close(self._fd)
            raise error if isinstance(error, AuditError) else AuditError(str(error)) from error
        self._prefix = b"\n" if torn else b""
        self._cells = self._lost = 0
        self._problem = ""
        self._start: dict[str, Any] | None = {"log": secrets.token_hex(16), "pid": os.getpid()}
        self._begin()

    def check_hidden(self, visible: Iterable[str]) -> None:
        """Log and key must lie outside of folders that cells can see.

        Raises:
            AuditError: one does not.
        """
        for path in (self.path, self.key_path):
            for folder in map(os.path.realpath, visible):
                if os.path.commonpath([os.path.realpath(path), folder]) == folder:
                    raise AuditError(f"{path} lies in {folder}, which cells can see; choose another folder.")

    def refusal(self) -> PolicyRefusal | None:
        """Why no cell may run now; None when it may. To be asked before each cell."""
        if self._problem:
            self._begin()
            if not self._problem and self._lost:
                self._write("gap", {"lost": self._lost})
                self._lost = 0 if not self._problem else self._lost
        if not self._problem or not self.required:
            return None
        return PolicyRefusal(
            f"The audit log cannot be written ({self._problem}), and the policy wants it for every cell: none is run.",
            file=self.path,
        )

    def cell(
        self, *, request_id: str, code: str, outcome: str, level: str, limits: Sequence[str] = (),
        denials: Sequence[str] = (), removed: Sequence[str] = (), seconds: float = 0.0,
    ) -> None:  # fmt: skip
        """Note a cell that has ended.

        Args:
            request_id: the client's message id.
            code: the cell; only its SHA-256 is written.
            outcome: ``"ok"``, the error's name, ``"lost"``.
            level: isolation level it ran at.
            limits: names of the limits that it hit; denials: what it was refused, in words; removed: what the output
                gate took out of its outputs.
            seconds: wall time.
        """
        self._cells += 1
        self._write("cell", {
            "request": str(request_id)[:_ID_CHARS],
            "code_sha256": hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest(),
            "outcome": str(outcome)[:_ID_CHARS], "level": level, "seconds": round(seconds, 3),
            "limits": _bounded(limits), "denials": _bounded(denials),
            "removed": _bounded(removed),
        })  # fmt: skip

    def close(self) -> None:
        """Write the final line with the counts; idempotent."""
        if self._fd >= 0:
            self.refusal()
            self._write("end", {"cells": self._cells, "lines": self._number + 1})
            os.close(self._fd)
            self._fd = -1

    # ------------------------------------------------------------ lines

    def _begin(self) -> None:
        if self._start is not None:
            start, self._start = self._start, None
            self._problem = ""
            self._write("start", start, counted=False)
            if self._problem:
                self._start = start
        else:
            self._problem = ""

    def _write(self, event: str, fields: dict[str, Any], *, counted: bool = True) -> None:
        """One line, whole or not at all; a failure is kept for `refusal`."""
        if self._fd < 0 or (self._problem and counted):
            self._lost += event == "cell"
            return
        now = time.time_ns()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now // 10**9)) + f".{now // 1000 % 10**6:06d}Z"
        line_fields = {"n": self._number + 1, "time": stamp, "event": event, **fields}
        body = json.dumps(line_fields, separators=(",", ":")).encode()
        mac = _mac(self._key, self._previous, body)
        line = self._prefix + body[:-1] + f'{_TAIL}{mac}"}}\n'.encode()
        try:
            size = os.fstat(self._fd).st_size
            written = os.write(self._fd, line)
            if written != len(line):
                with contextlib.suppress(OSError):
                    os.ftruncate(self._fd, size)  # half a line would look like a change
                raise OSError(28, "no space left")
        except OSError as error:
            self._problem = error.strerror or repr(error)
            self._lost += event == "cell"
            return
        self._prefix, self._previous, self._number = b"", mac, self._number + 1

    def _new_key(self) -> bytes:
        if self._number:
            raise AuditError(f"{self.path} has lines already, but its key {self.key_path} is not there.")
        key = secrets.token_bytes(KEY_BYTES)
        fd = os.open(self.key_path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | _FLAGS, 0o600)
        try:
            os.write(fd, key.hex().encode() + b"\n")
        finally:
            os.close(fd)
        return key


def _bounded(texts: Sequence[str]) -> list[str]:
    return [str(text)[:_ENTRY_CHARS] for text in texts[:_ENTRIES]]


def _mac(key: bytes, previous: str, body: bytes) -> str:
    return hmac.digest(key, previous.encode() + b"\n" + body, "sha256").hex()


def _expand(path: str) -> str:
    if not os.path.isabs(path):
        raise AuditError(f"{path!r} is not an absolute path.")
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    return os.path.normpath(path.replace("{pid}", str(os.getpid())).replace("{time}", stamp))


def _open_log(path: str) -> int:
    try:
        fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_NONBLOCK | _FLAGS, 0o600)
    except OSError as error:
        raise AuditError(f"{path} cannot be opened: {error.strerror}.") from error
    found = os.fstat(fd)
    problem = ""
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        problem = "it is not a file with one name"
    elif found.st_uid != os.geteuid() or found.st_mode & 0o022:
        problem = "others may write it"
    else:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            problem = "another process writes it; put {pid} into the name"
    if problem:
        os.close(fd)
        raise AuditError(f"{path} cannot be used: {problem}.")
    return fd


def _last_line(fd: int) -> tuple[str, int, bool]:
    """The last line's mac and number ("" and 0 in an empty file), and whether the file ends inside a line."""
    size = os.fstat(fd).st_size
    text = os.pread(fd, _LINE_BYTES, max(0, size - _LINE_BYTES))
    if not text:
        return "", 0, False
    torn = not text.endswith(b"\n")
    whole = text.split(b"\n")[:-1]
    for line in reversed(whole):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            found = json.loads(line)
            return str(found["mac"]), int(found["n"]), torn
    raise AuditError("The log has content that is not an audit log's.")


def read_key(path: str) -> bytes:
    """The key out of its file.

    Raises:
        AuditError: it cannot be read, is not a key, or others may read it.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | _FLAGS)
    except OSError as error:
        raise AuditError(f"The key {path} cannot be opened: {error.strerror}.") from error
    with open(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_mode & 0o077:
            raise AuditError(f"The key {path} must be a file that only its owner may read (chmod 600).")
        text = file.read(4096)
    try:
        key = bytes.fromhex(text.decode().strip())
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise AuditError(f"The key {path} does not hold {KEY_BYTES} bytes in hexadecimal.")
    return key


# ------------------------------------------------------------ verification


_ORDER = "has number {found} where {due} follows: lines before it were removed, moved or added"
_CHANGED = "does not fit its check value: it or the line before it was changed, or the key is another log's"
_NO_END = "is missing: the end was cut off, or the process still runs or was killed"


@dataclass
class Verdict:
    """What `verify` found.

    Attributes:
        lines, cells, kernels: how many.
        finished: the last line is a final one.
        problems: (line, sentence), lines counted from 1; empty for a log that is as it was written and finished.
    """

    lines: int = 0
    cells: int = 0
    kernels: int = 0
    finished: bool = False
    problems: list[tuple[int, str]] = field(default_factory=list)


def verify(path: str, key: bytes) -> Verdict:
    """Check a log against its key. Memory does not grow with the log's length.

    Raises:
        OSError: it cannot be read.
    """
    verdict = Verdict()
    previous, number, cells = "", 0, 0
    with open(path, "rb") as file:
        while raw := file.readline(_LINE_BYTES + 1):
            verdict.lines += 1
            at = verdict.lines
            fields, mac, body = _parse(raw)
            if fields is None:
                verdict.problems.append((at, "is not a line of an audit log: it was changed or cut"))
                verdict.finished = False
                number += 1
                continue
            if fields["n"] != number + 1:
                verdict.problems.append((at, _ORDER.format(found=fields["n"], due=number + 1)))
            elif not hmac.compare_digest(_mac(key, previous, body), mac):
                verdict.problems.append((at, _CHANGED))
            previous, number = mac, fields["n"]
            event = fields.get("event")
            verdict.finished = event == "end"
            if event == "start":
                verdict.kernels, cells = verdict.kernels + 1, 0
            elif event == "cell":
                verdict.cells, cells = verdict.cells + 1, cells + 1
            elif event == "gap":
                lost = fields.get("lost")
                cells += lost if isinstance(lost, int) else 0
                verdict.problems.append((at, f"says that {lost!r} cells could not be written"))
            elif event == "end" and (fields.get("cells"), fields.get("lines")) != (cells, number):
                verdict.problems.append((at, f"counts {fields.get('cells')!r} cells where {cells} are"))
    if not verdict.finished:
        verdict.problems.append((verdict.lines + 1, _NO_END))
    return verdict


def _parse(raw: bytes) -> tuple[dict[str, Any] | None, str, bytes]:
    """Fields, check value, and the text that it covers."""
    cut = len(raw) - len(_TAIL) - _MAC_CHARS - 3  # the quote, the brace and the line's end
    tail = raw[cut:]
    if cut < 2 or not tail.startswith(_TAIL.encode()) or not tail.endswith(b'"}\n'):
        return None, "", b""
    body = raw[:cut] + b"}"
    try:
        fields = json.loads(body)
        mac = tail[len(_TAIL) : -3].decode("ascii")
        if not isinstance(fields, dict) or type(fields["n"]) is not int:
            return None, "", b""
    except (ValueError, KeyError, RecursionError):
        return None, "", b""
    return fields, mac, body
