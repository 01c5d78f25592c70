"""The policy: plain data that says what a sandbox may do.

A policy is a TOML file (or a preset's name) whose tables are the classes below. Everything has a default, so an
empty file is a valid policy. Unknown keys are errors that name the nearest known key; sizes are written
``"4GiB"``, times ``"30s"``. `preset = "NAME"` at the top of a file starts from that preset instead of the
defaults below it.

Where it comes from, later ones win: built-in defaults < ``/etc/sandbox-kernel/policy.toml`` (the administrator's)
< ``sandbox-kernel/policy.toml`` in the user's configuration folder < ``SANDBOX_KERNEL_POLICY`` in the environment
of whoever starts the kernel (a path or a preset's name) < arguments of the API. What the administrator's file says
the others may only tighten. Nothing that a notebook, a cell or the notebook's folder can carry is ever read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from .errors import PolicyError
from .frozen import Frozen
from .launcher import ADMINISTRATOR, POLICY_VARIABLE, policy_files
from .policy_layers import BUILT_IN as BUILT_IN
from .policy_layers import Layers, is_path, preset_file, presets, read_toml
from .policy_tables import LEVELS as LEVELS
from .policy_tables import Audit as Audit
from .policy_tables import Code as Code
from .policy_tables import Environment as Environment
from .policy_tables import Files as Files
from .policy_tables import Floor as Floor
from .policy_tables import Isolation as Isolation
from .policy_tables import Level as Level
from .policy_tables import Limits as Limits
from .policy_tables import Network as Network
from .policy_tables import Outputs as Outputs
from .policy_tables import Recovery as Recovery
from .policy_tables import Worker as Worker
from .policy_values import Key, without


class Policy(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """All tables together."""

    isolation: Isolation = Isolation()
    limits: Limits = Limits()
    files: Files = Files()
    network: Network = Network()
    environment: Environment = Environment()
    code: Code = Code()
    outputs: Outputs = Outputs()
    recovery: Recovery = Recovery()
    audit: Audit = Audit()
    worker: Worker = Worker()

    @classmethod
    def load(cls, source: str | Path | None) -> Policy:
        """Read one policy file or take a preset, without regard to any other file (see `resolve`).

        Args:
            source: path of a TOML file, name of a preset, or None or "" for the defaults.

        Raises:
            PolicyError: unreadable file, unknown preset, unknown key, wrong type or value.
        """
        if not source:
            return cls()
        path = str(source) if is_path(source) else preset_file(str(source), "policy")
        return cls.from_tables(read_toml(path), where=path)

    @classmethod
    def from_tables(cls, tables: Mapping[str, Any], *, where: str = "policy") -> Policy:
        """Build a policy from plain dictionaries (the shape of a parsed TOML file).

        Raises:
            PolicyError: unknown key (with the nearest known one), wrong type, value out of range.
        """
        layers = Layers(KEYS)
        layers.add_tables(tables, where)
        return _built(layers.values)

    @classmethod
    def resolve(
        cls, launcher_env: Mapping[str, str], *, etc: Path = Path(ADMINISTRATOR),
        overrides: Override | Sequence[Override] = None, workspace: str | Path | None = None,
    ) -> Resolved:  # fmt: skip
        """The policy that holds for a sandbox started with this environment.

        Args:
            launcher_env: HOME, XDG_CONFIG_HOME and SANDBOX_KERNEL_POLICY are looked at.
            etc: the administrator's file.
            overrides: what the API's caller asks for, later ones win; of a `Policy` what differs from the defaults.
            workspace: the notebook's folder; no policy file may lie where its cells could write it. None: there
                is none.

        Raises:
            PolicyError: a file or value that cannot be used, or one that would loosen the administrator's.
            TypeError: an override is nothing that names a policy.
        """
        layers = Layers(KEYS, launcher_env, workspace)
        administrators, users = policy_files(launcher_env, str(etc))
        if administrators:
            layers.add_administrator(administrators)
        if users:
            layers.add_file(users)
        source = launcher_env.get(POLICY_VARIABLE, "")
        if source and not is_path(source):
            layers.add_preset(source, POLICY_VARIABLE)
        elif source and not Path(source).is_absolute():
            raise PolicyError(POLICY_VARIABLE, f"{source!r} is not an absolute path, and the folder in which a kernel "
                              "starts is not searched for policies")  # fmt: skip
        elif source:
            layers.add_file(source)
        for override in overrides if isinstance(overrides, (list, tuple)) else (overrides,):
            if isinstance(override, Policy):
                asked = {k: v for k, v in override.values().items() if v != KEYS[k].default}
                layers.add_values(asked, "argument")
            elif isinstance(override, Mapping):
                layers.add_tables(override, "argument")
            elif override is not None and not isinstance(override, (str, Path)):
                raise TypeError(f"policy is {override!r}, and must be a preset's name ({', '.join(presets())}), the "
                                "path of a TOML file, tables as such a file has them, or a Policy")  # fmt: skip
            elif override and is_path(override):
                layers.add_tables(read_toml(str(override)), str(override))
            elif override:
                layers.add_preset(str(override), "policy")
        return Resolved(_built(layers.values), layers.origins)

    def values(self) -> dict[str, Any]:
        """``{"limits.memory": 4294967296, ...}``, in the order of the tables."""
        return {name: getattr(getattr(self, name.partition(".")[0]), key.field) for name, key in KEYS.items()}


Override = Policy | Mapping[str, Any] | str | Path | None


class Resolved(Frozen):
    """A policy and where each of its values came from.

    Attributes:
        policy: what holds.
        origins: for each key such as "limits.memory" the file, preset or "built-in default" that decided.
    """

    policy: Policy
    origins: Mapping[str, str]

    def __init__(self, policy: Policy | None = None, origins: Mapping[str, str] | None = None) -> None:
        found = dict.fromkeys(KEYS, BUILT_IN) if origins is None else origins
        super().__init__(Policy() if policy is None else policy, found)

    def to_json(self) -> str:
        """One line that `from_json` takes; holds what differs from the defaults."""
        values = {k: KEYS[k].write(v) for k, v in self.policy.values().items() if v != KEYS[k].default}
        return json.dumps({"values": values, "origins": {k: v for k, v in self.origins.items() if v != BUILT_IN}},
                          ensure_ascii=False)  # fmt: skip

    @classmethod
    def from_json(cls, text: str) -> Resolved:
        """The inverse of `to_json`; "" stands for the defaults, ``{"preset": NAME}`` for a preset alone.

        Raises:
            PolicyError: the text is `refusal_to_json`'s, or there is no such preset.
        """
        said = json.loads(text or '{"values": {}, "origins": {}}')
        if "preset" in said:
            layers = Layers(KEYS)
            layers.add_preset(said["preset"], POLICY_VARIABLE)
            return cls(_built(layers.values), layers.origins)
        if "refusal" in said:
            error = PolicyError("", "")
            error.message, error.args, error.data = said["refusal"], (said["refusal"],), said["data"]
            raise error
        values = {k: KEYS[k].parse(v, "policy") for k, v in said["values"].items()}
        return cls(_built(values), {**dict.fromkeys(KEYS, BUILT_IN), **said["origins"]})

    def rows(self) -> list[tuple[str, str, str]]:
        """(key, value with its unit, origin) for every key."""
        return [(k, KEYS[k].show(v), self.origins[k]) for k, v in self.policy.values().items()]


def refusal_to_json(error: PolicyError) -> str:
    """An error in the place of a policy, for `Resolved.from_json` to raise again."""
    return json.dumps({"refusal": error.message, "data": error.data}, ensure_ascii=False)


def _keys() -> dict[str, Key]:
    found = {}
    for table in msgspec.structs.fields(Policy):
        for name, annotation in get_type_hints(type(table.default), include_extras=True).items():
            key = Key.of(table.name, name, annotation, getattr(table.default, name))
            found[key.name] = key
    return found


KEYS: dict[str, Key] = _keys()


def _built(values: Mapping[str, Any]) -> Policy:
    refused = values.get("environment.deny", ())
    values = {**values, "environment.set": without(values.get("environment.set", {}), refused)}
    tables: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        tables.setdefault(name.partition(".")[0], {})[KEYS[name].field] = value
    return msgspec.convert(tables, Policy)
