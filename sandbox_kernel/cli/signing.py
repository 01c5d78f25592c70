"""Marks executed notebooks as this user's own work, so that a later run may take them as done.

The folder with the results often lies where cells can write. A cell that leaves an "executed" notebook there, of
another one that has not run yet, must not be believed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path
from typing import Any

from .stop import Stop

ENTRY = "sandbox_kernel"
_KEY_BYTES = 32


def user_key() -> bytes:
    """This user's key, made when there is none. It lies in the home, which no cell sees.

    Raises:
        Stop: it can neither be read nor made.
    """
    state = os.environ.get("XDG_STATE_HOME", "")
    folder = Path(state if os.path.isabs(state) else Path.home() / ".local" / "state") / "sandbox-kernel"
    path = folder / "run.key"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            partial = folder / f".{secrets.token_hex(8)}"
            fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(fd, "wb") as file:
                file.write(secrets.token_bytes(_KEY_BYTES))
            try:
                os.link(partial, path)  # whoever came first
            except FileExistsError:
                pass
            finally:
                partial.unlink()
        key = path.read_bytes()
    except OSError as error:
        raise Stop(f"{path} cannot be used: {error.strerror}.") from error
    if len(key) != _KEY_BYTES:
        raise Stop(f"{path} is no key of this program; remove it.")
    return key


def sign(notebook: Any, depends: str, key: bytes) -> None:
    """Note in the metadata what the results depend on, and that they are ours.

    Args:
        notebook: executed.
        depends: a name for all that it depends on.
        key: see `user_key`.
    """
    notebook.metadata[ENTRY] = {"depends": depends, "mac": _mac(notebook, depends, key)}


def is_ours(notebook: Any, depends: str, key: bytes) -> bool:
    """Whether it was signed for just this, and has not been changed since."""
    entry = notebook.metadata.get(ENTRY)
    if not isinstance(entry, dict) or entry.get("depends") != depends:
        return False
    return hmac.compare_digest(str(entry.get("mac")).encode(), _mac(notebook, depends, key).encode())


def _mac(notebook: Any, depends: str, key: bytes) -> str:
    plain = json.loads(json.dumps(notebook))
    plain["metadata"].pop(ENTRY, None)
    text = json.dumps([depends, plain], sort_keys=True)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
