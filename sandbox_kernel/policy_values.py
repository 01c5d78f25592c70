"""One value of a policy: how it is written, shown and compared. Knows nothing of tables and files."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

from msgspec import Meta

from .errors import PolicyError
from .frozen import Frozen
from .launcher import inside
from .quantities import parse_count, parse_seconds, parse_size, show_seconds, show_size

# What a key holds; everything below follows from it. Numbers and times are tighter when they are smaller.
Size = Annotated[int, Meta(extra={"kind": "size"})]
SizeOrNone = Annotated[int, Meta(extra={"kind": "size", "none": True})]
Count = Annotated[int, Meta(extra={"kind": "count"})]
Seconds = Annotated[float, Meta(extra={"kind": "time"})]
SecondsOrNone = Annotated[float, Meta(extra={"kind": "time", "none": True})]
File = Annotated[str, Meta(extra={"kind": "file"})]
Paths = Annotated[tuple[str, ...], Meta(extra={"kind": "paths"})]
Names = Annotated[tuple[str, ...], Meta(extra={"kind": "names"})]
Refused = Annotated[tuple[str, ...], Meta(extra={"kind": "refused names"})]
# Dotted names in which * stands for any text. A `name` is the key's, where it is not the field's.
Modules = Annotated[tuple[str, ...], Meta(extra={"kind": "modules", "name": "imports.allow"})]
RefusedModules = Annotated[tuple[str, ...], Meta(extra={"kind": "refused words", "name": "imports.deny"})]
RefusedWords = Annotated[tuple[str, ...], Meta(extra={"kind": "refused words"})]
RefusedBuiltins = Annotated[tuple[str, ...], Meta(extra={"kind": "refused words", "name": "builtins.remove"})]
FileNames = Annotated[tuple[str, ...], Meta(extra={"kind": "file names"})]
HiddenNames = Annotated[tuple[str, ...], Meta(extra={"kind": "hidden names"})]
CountOrNone = Annotated[int, Meta(extra={"kind": "count", "none": True})]
Types = Annotated[tuple[str, ...], Meta(extra={"kind": "types"})]
Values = Annotated[dict[str, str], Meta(extra={"kind": "values"})]

_NUMBERS = {"size": parse_size, "count": parse_count, "time": parse_seconds}
_TYPE = re.compile(r"[a-z]+/[a-z0-9][a-z0-9.+_-]{0,100}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FILE_NAME = re.compile(r"[\w*?.+ ~-]{1,100}")
_DOTTED = re.compile(r"[\w*]+(\.[\w*]+)*")
# What the sandbox itself sets; a value from a policy would silently be overwritten.
OWN_VARIABLES = ("HOME", "USER", "LOGNAME", "SHELL", "TMPDIR")

# Data, text, pictures, sound and film. No code, no notebooks; no HTML, XML or SVG, whose scripts run in the browser
# that opens them; no pickles (joblib, torch), which run code when they are read; no settings of other programs.
DATA_FILES = (
    "*.csv", "*.tsv", "*.txt", "*.md", "*.json", "*.jsonl", "*.ndjson", "*.geojson", "*.csv.gz", "*.tsv.gz", "*.txt.gz",
    "*.json.gz", "*.jsonl.gz", "*.csv.bz2", "*.csv.xz", "*.csv.zip", "*.xlsx", "*.ods", "*.docx", "*.pptx", "*.pdf",
    "*.parquet", "*.feather", "*.arrow", "*.orc", "*.avro", "*.npy", "*.npz", "*.frame", "*.mat", "*.h5", "*.hdf5",
    "*.nc", "*.fits", "*.sqlite", "*.sqlite3", "*.db", "*.duckdb", "*.dta", "*.sav", "*.shp", "*.shx", "*.dbf", "*.prj",
    "*.gpkg", "*.safetensors", "*.onnx", "*.bin", "*.dat", "*.log", "*.png", "*.jpg", "*.jpeg", "*.gif", "*.webp",
    "*.bmp", "*.tif", "*.tiff", "*.wav", "*.mp3", "*.ogg", "*.flac", "*.mp4", "*.webm",
)  # fmt: skip

# Settings and histories (all that starts with a dot), keys, tokens, and Jupyter's own files.
SECRET_FILES = (
    ".*", "*.pem", "*.key", "*.p12", "*.pfx", "*.ppk", "*.kdbx", "*.jks", "*.keystore", "id_rsa*", "id_dsa*",
    "id_ecdsa*", "id_ed25519*", "credentials", "credentials.json", "client_secret*.json", "service_account*.json",
    "service-account*.json", "token.json", "token.pickle", "secrets.toml", "secrets.json", "secrets.y*ml",
    "kernel-*.json", "nbserver-*", "jpserver-*", "jupyter_cookie_secret", "notebook_cookie_secret", "notebook_secret",
)  # fmt: skip

# What each level consists of; of two levels neither need be the stronger one ("seccomp", "landlock").
STRENGTH: dict[str, frozenset[str]] = {
    "full": frozenset({"process", "landlock", "seccomp", "namespaces"}),
    "seccomp+landlock": frozenset({"process", "landlock", "seccomp"}),
    "landlock": frozenset({"process", "landlock"}),
    "seccomp": frozenset({"process", "seccomp"}),
    "subprocess": frozenset({"process"}),
    "in-process": frozenset(),
}


class Key(Frozen):
    """A key of the policy, such as ``limits.memory``.

    Attributes:
        kind: "size", "count", "time", "choice", "flag", "file", "paths", "names", "refused names", "modules",
            "refused words", "types", "file names", "hidden names" or "values".
        none: 0 and "none" are values and mean no limit.
        choices: for a choice, the tightest first (levels are compared by `STRENGTH` instead).
        field: the name of the field that holds the value.
    """

    name: str
    kind: str
    default: Any
    none: bool = False
    choices: tuple[str, ...] = ()
    field: str = ""

    @property
    def adds_up(self) -> bool:
        """Whether the values of several files count together."""
        return self.kind in ("values", "refused names", "refused words")

    @classmethod
    def of(cls, table: str, field: str, annotation: Any, default: Any) -> Key:
        """The key that a field with this type is."""
        name = f"{table}.{field}"
        if get_origin(annotation) is Literal:
            return cls(name, "choice", default, choices=get_args(annotation), field=field)
        if annotation is bool:
            return cls(name, "flag", default, field=field)
        extra = annotation.__metadata__[0].extra
        return cls(f"{table}.{extra.get('name', field)}", extra["kind"], default, extra.get("none", False), field=field)

    def parse(self, value: object, where: str) -> Any:
        """The value as the policy holds it, out of what a TOML file may say.

        Raises:
            PolicyError: a value that this key cannot have; names ``where`` and the nearest choice.
        """
        spot = f"{where}: {self.name}"
        if self.kind in _NUMBERS:
            if self.none and (value == "none" or (value == 0 and not isinstance(value, bool))):
                return 0.0 if self.kind == "time" else 0
            try:
                return _NUMBERS[self.kind](value)
            except ValueError as error:
                no_limit = ' (0 or "none": no limit)' if self.none else ""
                raise PolicyError(spot, f"{value!r} {error}{no_limit}") from error
        if self.kind == "choice":
            if value not in self.choices:
                known = ", ".join(f'"{choice}"' for choice in self.choices)
                raise PolicyError(spot, f"{value!r} is not one of {known}", known=self.choices, got=str(value))
            return value
        if self.kind == "values":
            return _values(value, spot)
        if self.kind == "flag":
            if not isinstance(value, bool):
                raise PolicyError(spot, f"{value!r} is neither true nor false")
            return value
        if self.kind == "file":
            if not isinstance(value, str) or "\0" in value or (value and not os.path.isabs(value)):
                raise PolicyError(spot, f"{value!r} is not an absolute path")
            return value
        if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
            raise PolicyError(spot, f"{value!r} is not a list of texts")
        for item in value:
            self._check_item(item, spot)
        return tuple(value)

    def _check_item(self, item: str, spot: str) -> None:
        if self.kind == "paths":
            if not os.path.isabs(item) or "\0" in item:
                raise PolicyError(spot, f"{item!r} is not an absolute path")
        elif self.kind == "types":
            if not _TYPE.fullmatch(item):
                raise PolicyError(spot, f"{item!r} is not a mimetype such as 'application/geo+json'")
        elif self.kind in ("file names", "hidden names"):
            if not _FILE_NAME.fullmatch(item) or (item.startswith(".") and self.kind == "file names"):
                raise PolicyError(spot, f"{item!r} is not a file's name such as '*.csv'")
        elif self.kind in ("modules", "refused words"):
            if not _DOTTED.fullmatch(item):
                raise PolicyError(spot, f"{item!r} is not a dotted name, in which * stands for any text")
        elif item == "*" and self.kind == "names":
            raise PolicyError(spot, "'*' would pass every secret of the launcher on; name variables or prefixes")
        elif item != "*" and not _NAME.fullmatch(item.removesuffix("*")):
            raise PolicyError(spot, f"{item!r} is not the name of a variable or a prefix such as 'OMP_*'")

    def show(self, value: Any) -> str:
        """The value for a person, with its unit."""
        if self.none and not value:
            return "none"
        match self.kind:
            case "size":
                return show_size(value)
            case "time":
                return show_seconds(value)
            case "file":
                return str(value) or "none"
            case "values":
                return ", ".join(f"{name}={text}" for name, text in sorted(value.items())) or "(empty)"
            case "flag":
                return "true" if value else "false"
        return ", ".join(value) or "(empty)" if isinstance(value, tuple) else str(value)

    def write(self, value: Any) -> Any:
        """The value as JSON and `parse` take it."""
        return list(value) if isinstance(value, tuple) else value

    def loosens(self, value: Any, fixed: Any, refused: tuple[str, ...] = ()) -> bool:
        """Whether ``value`` allows anything that ``fixed`` does not.

        Args:
            value: what a later file says.
            fixed: what the administrator says.
            refused: for "values", the names that the administrator refuses.
        """
        match self.kind:
            case "size" | "count" | "time":
                endless = float("inf") if self.none else 0
                return (value or endless) > (fixed or endless)
            case "choice":
                return self.choices.index(value) > self.choices.index(fixed)
            case "file":
                return bool(fixed) and value != fixed
            case "flag":
                return bool(fixed) and not value
            case "modules":
                return not all(any(_stands_for(pattern, name) for pattern in fixed) for name in value)
            case "paths":  # real paths: a link in a folder that is allowed may lead out of it
                folders = [os.path.realpath(folder) for folder in fixed]
                return not all(any(inside(os.path.realpath(path), f) for f in folders) for path in value)
            case "names":
                return not all(any(_covers(pattern, name) for pattern in fixed) for name in value)
            case "types":
                return not set(value) <= set(fixed)
            case "file names":
                return "*" not in fixed and not set(value) <= set(fixed)
            case "hidden names":
                return not set(fixed) <= set(value)
            case "values":
                changed = any(name in fixed and fixed[name] != text for name, text in value.items())
                return changed or any(_covers(pattern, name) for pattern in refused for name in value)
        return False  # refused names add up, so a later file only ever adds some

    def merge(self, below: Any, value: Any) -> Any:
        """What holds when a later file says ``value``: the later value, or both where they add up."""
        if self.kind == "values":
            return {**below, **value}
        return tuple(dict.fromkeys((*below, *value))) if self.adds_up else value


def floor_of(level: str, require: str) -> str:
    """The weakest level that these two keys let the sandbox have."""
    return require if level == "auto" else level


def at_least(level: str, floor: str) -> bool:
    """Whether ``level`` has every layer of ``floor``."""
    return STRENGTH[level] >= STRENGTH[floor]


def without(values: Mapping[str, str], refused: tuple[str, ...]) -> dict[str, str]:
    """The variables that no refused name covers."""
    return {k: v for k, v in values.items() if not any(_covers(pattern, k) for pattern in refused)}


def _values(value: object, spot: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise PolicyError(spot, 'is not a table such as { OMP_NUM_THREADS = "2" }')
    plain = {}
    for name, text in value.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise PolicyError(spot, f"{name!r} is not the name of a variable")
        if name in OWN_VARIABLES:
            raise PolicyError(spot, f"{name} is set by the sandbox itself")
        if isinstance(text, int) and not isinstance(text, bool):
            text = str(text)
        if not isinstance(text, str) or "\0" in text:
            raise PolicyError(spot, f"the value of {name} is not a text")
        plain[name] = text
    return plain


def _covers(pattern: str, name: str) -> bool:
    """Whether everything that ``name`` (a name or prefix) stands for falls under ``pattern``."""
    return name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1]))


def _stands_for(pattern: str, name: str) -> bool:
    """Whether every module that ``name`` (a module or pattern) stands for falls under ``pattern``."""
    wild = re.compile(".*".join(re.escape(part) for part in pattern.split("*")) + r"(\..*)?")
    return wild.fullmatch(name) is not None
