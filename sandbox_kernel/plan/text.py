"""Plans as text, for an interpreter that is started to confine itself."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any

from ..frozen import Frozen
from .model import Bind, Grant, Identity, Plan, Tmpfs


def dumps(plans: Iterable[Plan]) -> bytes:
    """The plans as JSON."""
    return json.dumps([plan.to_dict() for plan in plans], default=_translated).encode("ascii")


def _translated(value: Any) -> Any:
    if isinstance(value, Frozen):
        return value.to_dict()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return sorted(value)  # the layers


def loads(text: bytes) -> list[Plan]:
    """The inverse of `dumps`. The text is trusted: it comes from whoever starts the sandbox."""
    return [_plan(fields) for fields in json.loads(text)]


def _plan(fields: dict[str, Any]) -> Plan:
    for name in ("links", "files", "rlimits"):
        fields[name] = tuple(map(tuple, fields[name]))
    for name in ("protected", "hidden", "veiled", "begun", "notes"):
        fields[name] = tuple(fields[name])
    fields["layers"] = frozenset(fields["layers"])
    fields["identity"] = Identity(**fields["identity"])
    fields["binds"] = tuple(Bind(**item) for item in fields["binds"])
    fields["tmpfs"] = tuple(Tmpfs(**item) for item in fields["tmpfs"])
    fields["grants"] = tuple(Grant(**item) for item in fields["grants"])
    fields["bpf"] = base64.b64decode(fields["bpf"])
    return Plan(**fields)
