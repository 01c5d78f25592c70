"""The process that does the work: ``python -P -m sandbox_kernel.jobs.child``. Its parent is trusted.

It reads requests from standard input, a line of JSON each, and answers on what was standard output. It ends when its
input does, also in the middle of work: whatever happens to the parent, nothing is left of what the work has started.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType
from typing import IO, Any, cast

Tell = Callable[[dict[str, Any]], None]


class Stopped(BaseException):
    """It is to end, now. (Not SystemExit: that may be what the work is about.)"""


def main() -> int:
    """Serve until there is nothing left to read."""
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)  # what the work prints must not look like an answer
    os.close(null)
    waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests, waiting), daemon=True).start()
    try:
        while True:
            _listen()
            line = waiting.get()
            if line is None:
                return 0
            _write(answers, _done(json.loads(line), lambda event: _write(answers, {"event": event})))
    except (Stopped, KeyboardInterrupt, BrokenPipeError):
        return 1


def _listen() -> None:
    # Anew for each piece of work: an event loop that had handlers of its own leaves none behind.
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal; the parent says what is to end


def _stop(number: int, frame: FrameType | None) -> None:
    raise Stopped


def _read(requests: IO[bytes], waiting: queue.SimpleQueue[bytes | None]) -> None:
    for line in requests:
        waiting.put(line)
    waiting.put(None)
    os.kill(os.getpid(), signal.SIGTERM)


def _done(request: dict[str, Any], tell: Tell) -> dict[str, Any]:
    module, _, name = request["work"].partition(":")
    try:
        if not module.startswith("sandbox_kernel."):
            raise ValueError(f"{module} is no part of this package")
        work = cast("Callable[[dict[str, Any], Tell], dict[str, Any]]", getattr(importlib.import_module(module), name))
        return {"done": work(request["given"], tell)}
    except Exception as error:
        traceback.print_exc()
        return {"failed": f"{type(error).__name__}: {error}"[:2000]}


def _write(answers: IO[bytes], answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer).encode() + b"\n")
    answers.flush()


if __name__ == "__main__":
    sys.exit(main())
