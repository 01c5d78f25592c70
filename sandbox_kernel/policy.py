"""The policy: plain data that says what a sandbox may do.

A policy is a TOML file (or a preset's name) whose tables are the classes below. Everything has a default, so an
empty file is a valid policy. Unknown keys are errors that name the nearest known key; sizes are written
``"4GiB"``, times ``"30s"``.

Where it comes from, later ones win: built-in defaults < ``SANDBOX_KERNEL_POLICY`` in the environment of whoever
starts the kernel (a path or a preset's name) < arguments of the API. Nothing that a notebook, a cell or the
notebook's folder can carry is ever read.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from .errors import PolicyError

Level = Literal["auto", "full", "seccomp+landlock", "seccomp", "landlock", "subprocess", "in-process"]
LEVELS: tuple[str, ...] = get_args(Level)

KIB, MIB, GIB = 1024, 1024**2, 1024**3
_SIZE_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": KIB, "MIB": MIB, "GIB": GIB}
_TIME_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


class Isolation(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """``[isolation]``: which layers confine the worker.

    Attributes:
        level: ``"auto"`` takes the strongest level whose probes pass, never below ``seccomp+landlock``; a named
            level that cannot be had is an error.
    """

    level: Level = "auto"


class Limits(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """``[limits]``: sizes in bytes, times in seconds, counts as numbers.

    Attributes:
        memory: private memory of one process (RLIMIT_DATA); beyond it allocations raise MemoryError.
        processes: processes and threads of the whole sandbox (RLIMIT_NPROC).
        open_files: descriptors of one process (RLIMIT_NOFILE).
        file_size: largest file that can be written (RLIMIT_FSIZE).
        tmp: size of the private ``/tmp``.
        shm: size of the private ``/dev/shm``.
        home: size of the private home folder.
        interrupt_grace: how long a cell may ignore a second interrupt before its process is replaced.
    """

    memory: int = 4 * GIB
    processes: int = 256
    open_files: int = 1024
    file_size: int = 1 * GIB
    tmp: int = 512 * MIB
    shm: int = 256 * MIB
    home: int = 64 * MIB
    interrupt_grace: float = 4.0


class Files(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """``[files]``: what of the disk is visible.

    Attributes:
        workspace: ``"read-write"``: the notebook's folder as it is; ``"read-only"``.
        read: further folders, shown read-only at their own path.
    """

    workspace: Literal["read-write", "read-only"] = "read-write"
    read: tuple[str, ...] = ()


class Environment(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """``[environment]``: variables that reach the cells.

    Attributes:
        allow: names passed on from the launcher, besides the built-in harmless ones; a trailing ``*`` is a prefix.
        set: variables with fixed values.
    """

    allow: tuple[str, ...] = ()
    set: dict[str, str] = {}


class Policy(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """All tables together."""

    isolation: Isolation = Isolation()
    limits: Limits = Limits()
    files: Files = Files()
    environment: Environment = Environment()

    @classmethod
    def load(cls, source: str | Path | None) -> Policy:
        """Read a policy file or take a preset.

        Args:
            source: path of a TOML file, name of a preset, or None or "" for the defaults.

        Raises:
            PolicyError: unreadable file, unknown preset, unknown key, wrong type or value.
        """
        if not source:
            return cls()
        text = str(source)
        preset = Path(__file__).with_name("presets") / f"{text}.toml"
        looks_like_path = "/" in text or text.endswith(".toml")
        if not looks_like_path:
            if not preset.is_file():
                known = sorted(p.stem for p in preset.parent.glob("*.toml"))
                raise PolicyError("policy", f"{text!r} is neither a preset ({', '.join(known)}) nor a path",
                                  known=known, got=text)
            path = preset
        else:
            path = Path(text)
        try:
            tables = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise PolicyError(str(path), f"cannot be read: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise PolicyError(str(path), f"is not valid TOML: {error}") from error
        return cls.from_tables(tables, where=str(path))

    @classmethod
    def from_tables(cls, tables: Mapping[str, Any], *, where: str = "policy") -> Policy:
        """Build a policy from plain dictionaries (the shape of a parsed TOML file).

        Raises:
            PolicyError: unknown key (with the nearest known one), wrong type, value out of range.
        """
        plain: dict[str, Any] = {}
        classes = {f.name: type(f.default) for f in msgspec.structs.fields(cls)}
        for name, table in tables.items():
            if name not in classes:
                raise PolicyError(f"{where}: [{name}]", "there is no such table", known=classes, got=name)
            if not isinstance(table, Mapping):
                raise PolicyError(f"{where}: {name}", "must be a table")
            known = {f.encode_name: f.type for f in msgspec.structs.fields(classes[name])}
            plain[name] = {}
            for key, value in table.items():
                spot = f"{where}: {name}.{key}"
                if key not in known:
                    raise PolicyError(spot, "there is no such key", known=known, got=key)
                if name == "limits":
                    value = _seconds(value, spot) if known[key] in (float, "float") else _size(value, spot)
                plain[name][key] = value
        try:
            return msgspec.convert(plain, cls)
        except msgspec.ValidationError as error:
            raise PolicyError(where, str(error)) from error


def _size(value: object, where: str) -> int:
    """Bytes out of ``4096`` or ``"4GiB"``; counts pass as they are."""
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value)
        if match is None or match[2].upper() not in _SIZE_UNITS:
            raise PolicyError(where, f'{value!r} is not a size such as "512MiB" or "4GB"')
        value = int(float(match[1]) * _SIZE_UNITS[match[2].upper()])
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise PolicyError(where, f"{value!r} is not a positive whole number or a size")
    return value


def _seconds(value: object, where: str) -> float:
    """Seconds out of ``30``, ``1.5`` or ``"30s"``, ``"5min"``."""
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value)
        if match is None or match[2] not in _TIME_UNITS:
            raise PolicyError(where, f'{value!r} is not a time such as "30s" or "5min"')
        value = float(match[1]) * _TIME_UNITS[match[2]]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
        raise PolicyError(where, f"{value!r} is not a positive time")
    return float(value)
