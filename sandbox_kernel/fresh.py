"""What a freshly started interpreter runs to become the sandbox's first process: ``python -P fresh.py DESCRIPTOR``.

It may be any interpreter with ipykernel, and need not have this package installed: the package is taken from where
this file lies. It says what it is, imports what the workers need, gets its plans and confines itself.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import sys
from typing import NoReturn


def main(control: socket.socket) -> NoReturn:
    """Become the launcher; the descriptor is the control socket of the future zygote."""
    prefixes = (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)
    facts = {"executable": sys.executable, "prefixes": prefixes, "path": sys.path, "version": sys.version_info[:3]}
    control.send(json.dumps(facts).encode("ascii"))
    _find_package()
    import gc

    gc.disable()  # until a worker runs
    from sandbox_kernel.deferred import defer

    defer()
    from sandbox_kernel import linux
    from sandbox_kernel.launch import launcher
    from sandbox_kernel.plan import text
    from sandbox_kernel.worker import entry

    packet, fds, _, _ = socket.recv_fds(control, 1000, 1, socket.MSG_CMSG_CLOEXEC)
    if not packet:  # whoever started this has changed its mind
        os._exit(0)
    with open(fds[0], "rb") as memory:
        plans = text.loads(memory.read())
    linux.set_dumpable(False)
    linux.set_child_subreaper()
    gc.freeze()  # what is imported by now is shared with all that is forked from this process
    launcher.launch(plans, entry, control, listen=bool(json.loads(packet)["listen"]), stays=True)


def _find_package() -> None:
    if "sandbox_kernel" in sys.modules:
        return
    folder = os.path.dirname(os.path.abspath(__file__))
    spec = importlib.util.spec_from_file_location(
        "sandbox_kernel", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{folder} is not a package")
    package = sys.modules["sandbox_kernel"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)


def _start() -> NoReturn:
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    try:
        main(control)
    except Exception as error:
        told = {"event": "failed", "level": "", "step": "start the interpreter", "errno": 0, "pid": 0, "last": True}
        control.send(json.dumps({**told, "error": f"{type(error).__name__}: {error}"[:2000]}).encode("ascii"))
        while control.recv(1000):  # what is left unread makes the other end see a reset before the word
            pass
        os._exit(1)


if __name__ == "__main__":
    _start()
