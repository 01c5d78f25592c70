"""Results that are written one by one, so that a second run can go on where the first one ended."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from .stop import Stop


def key_of(*parts: str | bytes | Iterable[str | bytes]) -> str:
    """A name for all that a result depends on: the same parts give the same, others another one."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, (str, bytes)):
            data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        else:
            data = key_of(*part).encode()
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.hexdigest()


def write_whole(path: Path, text: str) -> Path:
    """Write a file that is there as a whole or not at all; folders on the way are made.

    Raises:
        Stop: it cannot be written.
    """
    partial = path.with_name(f".{secrets.token_hex(8)}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            with open(fd, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:
                file.write(text)
            partial.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink()
            raise
    except OSError as error:
        raise Stop(f"{path} could not be written: {error.strerror}.") from error
    return path


def folder(path: Path) -> Path:
    """The folder, made if it is missing.

    Raises:
        Stop: it cannot be.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Stop(f"The folder {path} cannot be used: {error.strerror}.") from error
    return path
