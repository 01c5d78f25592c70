"""``!command`` without a terminal: the sandbox has no pseudo-terminals, which IPython's own version needs."""

from __future__ import annotations

import codecs
import os
import select
import shutil
import signal
import subprocess
import sys
from contextlib import suppress

from . import packages

GRACE_S = 0.2  # between the interrupt and the end of the command
POLL_MS = 100  # how soon we notice that the shell is gone while a grandchild keeps the pipe open
READ_BYTES = 64 * 1024


def system(command: str) -> int:
    """Runs `command` in a shell and writes its output to ``sys.stdout`` as it comes.

    An interrupt goes to the command and everything it started, and ends it, and the cell. (In IPython the cell goes
    on with its next line, so a loop of commands can hardly be interrupted: ipython/ipython#13161.)

    Returns:
        The exit status, negative for a signal.

    Raises:
        OSError: there is no shell.
        KeyboardInterrupt: once the command has ended.
    """
    name = os.environ.get("SHELL") or "sh"
    shell = shutil.which(name)
    if shell is None:
        raise OSError(f'"{name}" shell not found')
    sys.stdout.flush()
    process = subprocess.Popen(
        [shell, "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        process_group=0,
        env=packages.environment_for(command),
    )
    try:
        _stream(process)
        process.wait()
    except KeyboardInterrupt:
        _interrupt(process)
        raise
    finally:
        if process.poll() is None:
            _signal(process, signal.SIGKILL)
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
    status = process.returncode
    if status:
        sys.stdout.flush()
        sys.stderr.write(packages.advice(command))
    return 128 - status if status > 128 else status


def _stream(process: subprocess.Popen[bytes], limit_ms: int | None = None) -> None:
    """Copies output until its end, or until the shell is gone and nothing is left to read."""
    if process.stdout is None:
        return
    descriptor = process.stdout.fileno()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    while True:
        ready = poller.poll(POLL_MS if limit_ms is None else limit_ms)
        if ready:
            data = os.read(descriptor, READ_BYTES)
            text = decoder.decode(data, final=not data)
            if text:
                sys.stdout.write(text)
                sys.stdout.flush()
            if not data:
                return
        elif limit_ms is not None or process.poll() is not None:
            return


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    _signal(process, signal.SIGINT)
    with suppress(KeyboardInterrupt):  # impatient people press it twice
        _stream(process, limit_ms=int(GRACE_S * 1000))
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
    _signal(process, signal.SIGKILL)
    process.wait()


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    """To the command's whole group; to the shell alone where signalling groups is not allowed."""
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        pass
    except PermissionError:
        with suppress(OSError):
            process.send_signal(number)
