"""``python -P -m sandbox_kernel -f CONNECTION_FILE``: start the kernel.

The first act is to get the launcher's secrets out of memory: the environment and the arguments (the connection
file's path among them) go into a sealed memory file, and this process executes itself anew with harmless ones. A
fork inherits memory, so only after that may the process be forked from which all workers descend. The front reads
the memory file back once that fork is made.
"""

from __future__ import annotations

import gc
import os
import sys


def relaunch() -> None:
    """Execute this module again with a clean environment and the launcher's secrets in a memory file."""
    import fcntl
    import marshal  # a built-in; what is written here is read by this process only, and json takes 5 ms to import
    from importlib import import_module

    from .kernel.environment import clean_environment, hidden_paths

    # A client may interrupt a kernel that is still starting; that must not kill it. The disposition survives exec.
    signals = import_module("_signal")  # `signal` makes enums of the same, which takes 3 ms
    signals.signal(signals.SIGINT, signals.SIG_IGN)
    environment = clean_environment(os.environ, os.getcwd())
    secrets = os.memfd_create("launch", os.MFD_ALLOW_SEALING)
    os.write(secrets, marshal.dumps((dict(os.environ), sys.argv[1:])))
    seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    fcntl.fcntl(secrets, fcntl.F_ADD_SEALS, seals)
    os.set_inheritable(secrets, True)
    hide = [arg for path in hidden_paths(os.environ, sys.argv[1:], os.getcwd()) for arg in ("--hide", path)]
    python = sys.executable or "/proc/self/exe"
    argv = [python, "-P", "-m", "sandbox_kernel", "--launched", str(secrets), *hide]
    os.execve(python, argv, environment)


def main() -> None:
    """Entry point of both stages."""
    args = sys.argv[1:]
    if sys.platform != "linux":
        sys.exit("sandbox_kernel needs Linux: the isolation is made by the Linux kernel.")
    if args[:1] == ["--launched"]:
        # Nothing that is imported becomes garbage; looking for it takes a tenth of the start.
        gc.disable()
        from .deferred import defer

        defer()
        from .kernel.launch import launch

        launch(int(args[1]), tuple(args[3::2]))
    else:
        relaunch()


if __name__ == "__main__":
    main()
