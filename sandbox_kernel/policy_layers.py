"""Policy files and presets on top of each other, within the administrator's bounds.

Works on values by key (``{"limits.memory": 4294967296}``); which keys there are is told by whoever uses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .errors import PolicyError
from .launcher import cells_can_write, home_folder, read_policy
from .policy_values import Key, at_least, floor_of, without

BUILT_IN = "built-in default"
PRESETS = Path(__file__).with_name("presets")


def is_path(source: str | Path) -> bool:
    """Whether a policy is named by its path; otherwise the word is a preset's name."""
    return isinstance(source, Path) or "/" in source or source.endswith(".toml")


def presets() -> list[str]:
    """The names of the presets."""
    return sorted(file.stem for file in PRESETS.glob("*.toml"))


def read_toml(path: str) -> dict[str, Any]:
    """The tables of a policy file.

    Raises:
        PolicyError: it cannot be read or is not TOML.
    """
    import tomllib  # slow to import, and most starts read no file

    try:
        return tomllib.loads(read_policy(path))
    except tomllib.TOMLDecodeError as error:
        raise PolicyError(path, f"is not valid TOML: {error}") from error


def preset_file(name: str, where: str) -> str:
    """Path of a preset's file.

    Raises:
        PolicyError: there is none of this name.
    """
    known = presets()
    if name not in known:
        raise PolicyError(where, f"{name!r} is neither a preset ({', '.join(known)}) nor a path", known=known, got=name)
    return str(PRESETS / f"{name}.toml")


class Layers:
    """Values on top of each other: later ones win, and what the administrator says they may only tighten.

    Args:
        keys: every key there is.
        launcher: environment of whoever starts the sandbox; for the name of the home folder.
        workspace: the notebook's folder, where no policy may lie; None: there is none.

    Attributes:
        values: what holds so far, by key.
        origins: which file, preset or argument decided each, by key.
    """

    def __init__(
        self, keys: Mapping[str, Key], launcher: Mapping[str, str] | None = None, workspace: str | Path | None = None
    ) -> None:
        self.values = {name: key.default for name, key in keys.items()}
        self.origins = dict.fromkeys(keys, BUILT_IN)
        self._keys = keys
        self._launcher = launcher or {}
        self._home = home_folder(launcher) if launcher else ""
        self._workspace = workspace
        self._fixed: dict[str, Any] = {}
        self._fixed_by = ""
        self._floors: list[str] = []

    # ------------------------------------------------------------ layers

    def add_administrator(self, path: str) -> None:
        """The first file."""
        tables = read_toml(path)
        preset = self._preset_of(tables, path)
        values = (self._read_preset(preset, path) if preset else {}) | self.read(tables, path)
        self._add(values, path)
        self._fixed, self._fixed_by = values, path
        if "isolation.level" in values or "isolation.require" in values:
            self._floors = [floor_of(self.values["isolation.level"], self.values["isolation.require"])]
        if "isolation.require" in values:
            self._floors.append(values["isolation.require"])

    def add_file(self, path: str) -> None:
        """A file that the launcher named or owns."""
        if self._workspace is not None and cells_can_write(path, str(self._workspace), self._launcher):
            raise PolicyError(path, "lies in the notebook's folder, where cells could change it; keep policies "
                              "elsewhere, for example in ~/.config/sandbox-kernel")  # fmt: skip
        self.add_tables(read_toml(path), path)

    def add_tables(self, tables: Mapping[str, Any], where: str) -> None:
        """Parsed TOML; a preset that it names goes below it."""
        preset = self._preset_of(tables, where)
        if preset:
            self.add_preset(preset, f"{where}: preset", f"preset {preset} (by {self._show(where)})")
        self._add(self.read(tables, where), where)

    def add_preset(self, name: str, where: str, origin: str = "") -> None:
        """A preset; it is cut to what the administrator allows, where a file that asks for more is an error."""
        self._add(self._read_preset(name, where), origin or f"preset {name}", cut=True)

    def add_values(self, values: Mapping[str, Any], origin: str) -> None:
        """Checked values by key."""
        self._add(values, origin)

    # ------------------------------------------------------------ reading

    def read(self, tables: Mapping[str, Any], where: str) -> dict[str, Any]:
        """The values of parsed TOML by key, without those of a preset that it names.

        Raises:
            PolicyError: unknown table or key (with the nearest known one), a value that its key cannot have, two
                that contradict each other.
        """
        known_tables = dict.fromkeys(name.partition(".")[0] for name in self._keys)
        values: dict[str, Any] = {}
        for table, content in tables.items():
            if table == "preset":
                continue
            if not isinstance(table, str):
                raise PolicyError(where, f"{table!r} is not the name of a table")
            if table not in known_tables:
                problem = f"there is no such table{self._elsewhere(table)}"
                raise PolicyError(f"{where}: [{table}]", problem, known=known_tables, got=table)
            if not isinstance(content, Mapping):
                raise PolicyError(f"{where}: {table}", f"must be a table, written [{table}]")
            known = [name.partition(".")[2] for name in self._keys if name.startswith(f"{table}.")]
            for key, value in self._flat(table, content):
                name = f"{table}.{key}"
                if name not in self._keys:
                    problem = f"there is no such key{self._elsewhere(key)}"
                    raise PolicyError(f"{where}: {name}", problem, known=known, got=key)
                values[name] = self._keys[name].parse(value, where)
        self._check(values, where)
        return values

    def _flat(self, table: str, content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """The keys of a table; those with a dot (``imports.allow``) come as tables of their own from TOML."""
        for key, value in content.items():
            inner = any(name.startswith(f"{table}.{key}.") for name in self._keys)
            if inner and isinstance(value, Mapping):
                yield from ((f"{key}.{part}", one) for part, one in value.items())
            else:
                yield key, value

    def _check(self, values: Mapping[str, Any], where: str) -> None:
        """Contradictions within one file."""
        level, require = values.get("isolation.level", "auto"), values.get("isolation.require", "in-process")
        if level != "auto" and not at_least(level, require):
            problem = f"{level!r} is weaker than what isolation.require asks for, {require!r}"
            raise PolicyError(f"{where}: isolation.level", problem)
        named = values.get("environment.set", {})
        for name in named.keys() - without(named, values.get("environment.deny", ())).keys():
            raise PolicyError(f"{where}: environment.set", f"{name} is refused by environment.deny")

    def _elsewhere(self, key: str) -> str:
        """Says in which table a key belongs that was written in another one."""
        homes = [name for name in self._keys if name.partition(".")[2] == key]
        return f" (but there is {homes[0]})" if homes else ""

    def _preset_of(self, tables: Mapping[str, Any], where: str) -> str:
        name = tables.get("preset", "")
        if not isinstance(name, str):
            raise PolicyError(f"{where}: preset", f"{name!r} is not the name of a preset")
        return name

    def _read_preset(self, name: str, where: str) -> dict[str, Any]:
        return self.read(read_toml(preset_file(name, where)), f"preset {name}")

    # ------------------------------------------------------------ combining

    def _add(self, values: Mapping[str, Any], where: str, *, cut: bool = False) -> None:
        isolation = {k: v for k, v in values.items() if k.startswith("isolation.")}
        for name in values.keys() - isolation.keys():
            value = values[name]
            if not self._loosens(name, value):
                self._put(name, value, where)
            elif not cut:
                self._refuse(where, name, value)
            elif name == "environment.set":  # (names that are denied are left out at the end, wherever they come from)
                fixed = self._fixed.get(name, {})
                self._put(name, {k: v for k, v in value.items() if k not in fixed}, where)
            elif name in self._fixed:
                self._put(name, self._fixed[name], self._fixed_by)
        # Level and requirement are one bound: the weakest level that they let the sandbox have.
        both = {**self.values, **isolation}
        floor = floor_of(both["isolation.level"], both["isolation.require"])
        if all(at_least(floor, fixed) for fixed in self._floors):
            for name, value in isolation.items():
                self._put(name, value, where)
        elif not cut:
            name = "isolation.level" if "isolation.level" in isolation else "isolation.require"
            self._refuse(where, name, isolation[name])

    def _loosens(self, name: str, value: Any) -> bool:
        if name == "environment.set":
            fixed, refused = self._fixed.get(name, {}), self._fixed.get("environment.deny", ())
            return self._keys[name].loosens(value, fixed, refused)
        if name == "outputs.gate" and name not in self._fixed:
            # Without the gate nothing keeps the other keys of its table, which an older file may name alone.
            return bool(value == "off") and any(key.startswith("outputs.") for key in self._fixed)
        return name in self._fixed and self._keys[name].loosens(value, self._fixed[name])

    def _put(self, name: str, value: Any, where: str) -> None:
        key, below, shown = self._keys[name], self.origins[name], self._show(where)
        several = key.adds_up and below not in (BUILT_IN, shown)
        self.values[name] = key.merge(self.values[name], value)
        self.origins[name] = f"{below}, {shown}" if several else shown

    def _show(self, where: str) -> str:
        """A path as origins show it: the home folder's name is nobody's business."""
        home = self._home
        return f"~{where[len(home):]}" if len(home) > 1 and where.startswith(f"{home}/") else where

    def _refuse(self, where: str, name: str, value: Any) -> None:
        related = {name} | ({"environment.deny"} if name == "environment.set" else set())
        if name.startswith("isolation."):
            related |= {"isolation.level", "isolation.require"}
        if name == "outputs.gate":
            related |= {key for key in self._fixed if key.startswith("outputs.")}
        said = "; ".join(f"{k} = {self._keys[k].show(v)}" for k, v in self._fixed.items() if k in related)
        raise PolicyError(f"{where}: {name}", f"{self._keys[name].show(value)} would loosen what the administrator "
                          f"fixed ({self._fixed_by}: {said})")  # fmt: skip
