"""What plans consist of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Bind:
    """A file or folder of the host at its own path; always nosuid and nodev.

    ``mapped``: shown with its owner's id replaced by the worker's ("try": plain where that is refused;
    "must": the plan fails).
    """

    path: str
    writable: bool = False
    execute: bool = False
    mapped: Literal["", "try", "must"] = ""
    pin: bool = False  # shown as it is; a folder with a mount on it can be neither moved nor removed
    layer: int = 0  # bytes of a private layer that takes all writing, for overlayfs; 0: none


@dataclass(frozen=True, slots=True)
class Tmpfs:
    """A private writable folder of at most ``size`` bytes."""

    path: str
    size: int
    mode: int = 0o1777


Access = Literal["list", "read", "read-exec", "read-write", "device"]  # the names of `landlock.RIGHTS`


@dataclass(frozen=True, slots=True)
class Grant:
    """A Landlock rule: what may be done on and below ``path`` ("list": names in it and below, no content)."""

    access: Access
    path: str
