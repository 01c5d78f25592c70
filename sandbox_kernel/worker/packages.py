"""``%pip install`` and its like in a sandbox without network: they fail at once, and the reader is told what to do.

Left alone pip tries five times to reach its index, conda is not found, apt names a lock file: none says why.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable
from typing import Any

_INSTALLERS = re.compile(
    r"pipx?[\d.]*|conda|mamba|micromamba|uv|uvx|poetry|pixi|apt|apt-get|aptitude|dnf|yum|apk|brew"
)
_VERBS = frozenset({"install", "add", "create", "download", "sync", "update", "upgrade", "dist-upgrade", "wheel"})
_AT_ONCE = {
    "PIP_RETRIES": "0", "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "UV_OFFLINE": "1",
    "CONDA_OFFLINE": "true",
}  # fmt: skip


def installs(command: str) -> bool:
    """Whether a command line asks a package installer for something that comes from elsewhere."""
    for part in re.split(r"&&|\|\||[;|&\n]", command[:4096]):
        try:
            words = shlex.split(part, comments=True)
        except ValueError:
            words = part.split()
        for at, word in enumerate(words):
            if _INSTALLERS.fullmatch(os.path.basename(word)) and _VERBS & set(words[at + 1 : at + 6]):
                return True
    return False


def without_network() -> bool:
    """Whether system calls are filtered, which takes the network away (at the weakest levels nothing does)."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            return any(line.split() == ["Seccomp:", "2"] for line in file)
    except OSError:
        return False


def environment_for(command: str) -> dict[str, str] | None:
    """The environment for a command: without tries that are in vain; None: that of this process."""
    return {**_AT_ONCE, **os.environ} if installs(command) and without_network() else None


def advice(command: str) -> str:
    """What to do in place of a command that has failed; "" when it was no attempt to install something."""
    if not installs(command) or not without_network():
        return ""
    return (
        '[Cells cannot install packages: they have no network (network.mode = "none") and see the packages read-only; '
        f"no policy allows it. Ask whoever runs this kernel to install it into its environment, {sys.prefix}, in a "
        "terminal, and restart the kernel then.]\n"
    )


def add_magics(shell: Any) -> None:
    """Let %conda and its like, which refuse to work outside of conda's environments, say the same."""
    for name in ("conda", "mamba", "micromamba"):
        stock = shell.find_line_magic(name)
        if stock is not None:
            shell.register_magic_function(_magic(name, stock), "line", name)


def _magic(name: str, stock: Callable[[str], Any]) -> Callable[[str], Any]:
    def magic(line: str) -> Any:
        said = advice(f"{name} {line}")
        if not said:
            return stock(line)
        sys.stderr.write(said)
        return None

    magic.__doc__ = stock.__doc__
    return magic
