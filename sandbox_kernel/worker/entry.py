"""What the zygote calls: `prepare` once, `run` in each forked worker. The module is the entry object."""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn, TextIO

from ..channel.framing import encode
from . import reserve
from .kernel import SignalSafeLoop, WorkerKernel, make_kernel
from .link import Link
from .questions import Questions
from .serve import Server, greeting
from .session import ChannelSession
from .signals import ignore
from .streams import OutStream
from .subshells import Subshells
from .wakeup import Wakeup

_prepared: tuple[WorkerKernel, ChannelSession, OutStream, OutStream] | None = None
_shell_variables: dict[str, str] = {}


def prepare(preload: Sequence[str] = ()) -> None:
    """Makes kernel and shell, so that a forked worker starts in a few milliseconds.

    Called once, in the confined and single-threaded zygote. Starts no thread and leaves no file open.

    Args:
        preload: modules to import already, for all workers; one that fails is left to the cells.
    """
    global _prepared
    planned = dict(os.environ)
    _prepared = make_kernel()
    # The shell sets PAGER and the like. The zygote's environment stays as planned, to be compared with the
    # plan.
    _shell_variables.update(os.environ.items() - planned.items())
    os.environ.clear()
    os.environ.update(planned)
    for name in preload:
        try:
            importlib.import_module(name)
        except Exception:  # noqa: S112 - the cell that imports it gets the error, with its traceback
            continue
    # What exists now lives as long as the workers do: their collections need not look at it, and do not
    # write into the pages that all of them share.
    gc.freeze()


def run(channel_fd: int, worker: int) -> NoReturn:
    """Serves the channel until it ends; never returns.

    Args:
        channel_fd: this worker's end of the ``SOCK_SEQPACKET`` pair.
        worker: its number, for nobody but a reader of this process.
    """
    if _prepared is None:
        prepare()
    assert _prepared is not None  # noqa: S101
    kernel, session, stdout, stderr = _prepared
    os.environ.update(_shell_variables)
    gc.enable()  # whoever forked this may have put it off
    link = Link(channel_fd)
    signal.signal(signal.SIGINT, ignore)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    _reseed()

    def attach() -> None:
        session.pid = link.pid
        stdout.attach(link)
        stderr.attach(link)

    session.link = link
    attach()
    # The inherited objects belong to the descriptors of another process (and may think that they can seek).
    system: Any = sys
    system.__stdout__, system.__stderr__ = _pipe_text(1), _pipe_text(2)

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    wakeup = Wakeup()
    kernel.io_loop = SignalSafeLoop(asyncio_loop=loop, make_current=False)
    kernel.questions = Questions(link, wakeup)
    server = Server(kernel, link, loop, wakeup, reattach=attach)
    Subshells(server, link)
    reserve.take()

    link.send(encode(greeting(kernel.shell)))
    server.run()


def _pipe_text(descriptor: int) -> TextIO:
    return open(descriptor, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _reseed() -> None:
    # Python reseeds `random` after a fork; numpy's global generator, when it was preloaded, would be the same
    # in every worker.
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
