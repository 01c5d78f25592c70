"""The policy that a caller of the API asks for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..policy import Policy, Resolved

PolicyLike = Policy | Mapping[str, Any] | str | Path | None


def resolved(policy: PolicyLike, level: str | None, workspace: str | Path | None) -> Resolved:
    """What holds for a sandbox with these arguments, the files of the machine's administrator and the user included.

    Raises:
        PolicyError: it cannot be used.
        TypeError: it is nothing that names a policy.
    """
    asked = [policy] if level is None else [policy, {"isolation": {"level": level}}]
    return Policy.resolve(os.environ, overrides=asked, workspace=workspace)
