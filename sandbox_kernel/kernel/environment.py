"""What the front is executed with, out of the launcher's environment; runs before anything heavy is imported."""

from __future__ import annotations

from collections.abc import Mapping

from ..launcher import ADMINISTRATOR, POLICY_VARIABLE, hidden_paths, occupy_user_policy, passed, policy_files

__all__ = ["RESOLVED_VARIABLE", "clean_environment", "hidden_paths"]

RESOLVED_VARIABLE = "SANDBOX_KERNEL_RESOLVED_POLICY"


def clean_environment(
    launcher: Mapping[str, str], workspace: str, *, administrator: str = ADMINISTRATOR
) -> dict[str, str]:
    """The environment to execute the front with: what the cells may see, and the policy that holds.

    It stays readable in the memory of every process that descends from the front. The launcher's home, and with it
    the user's policy file, is not known any more after that, so the policy is resolved here and passed on in full:
    limits, folders and variables that the sandbox shows in any case. An error is passed on in its place; then no
    sandbox is made, and every cell tells it.

    Args:
        launcher: the environment of whoever starts the kernel.
        workspace: the notebook's folder.
        administrator: the administrator's policy file.
    """
    occupy_user_policy(launcher, workspace)
    source = launcher.get(POLICY_VARIABLE, "")
    if not any(policy_files(launcher, administrator)):
        # The usual cases, 40 ms faster without the imports below.
        if not source:
            return passed(launcher)
        if source.isidentifier():  # a preset; none of them says which of the launcher's variables pass
            return {**passed(launcher), RESOLVED_VARIABLE: f'{{"preset": "{source}"}}'}
    from pathlib import Path

    from ..errors import PolicyError
    from ..policy import Policy, refusal_to_json

    try:
        resolved = Policy.resolve(launcher, etc=Path(administrator), workspace=workspace)
    except PolicyError as error:
        return {**passed(launcher), RESOLVED_VARIABLE: refusal_to_json(error)}
    rules = resolved.policy.environment
    return {**passed(launcher, rules.allow, rules.deny), RESOLVED_VARIABLE: resolved.to_json()}
