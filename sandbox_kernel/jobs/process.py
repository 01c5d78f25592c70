"""The parent's side of one process that does work."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import IO, Any

from .tree import end_tree

_READ = 1 << 16
_LOOK_S = 3600.0  # (poll takes no infinite time)
_END_S = 15.0  # to end what the work has started, before it is killed


class JobFailed(Exception):
    """A piece of work gave no result; the message says why.

    Attributes:
        lost: its process was lost, which another attempt may survive.
    """

    def __init__(self, message: str, *, lost: bool = False) -> None:
        super().__init__(message)
        self.lost = lost

    def __reduce__(self) -> tuple[Callable[..., JobFailed], tuple[Any, ...]]:
        return _rebuilt, (str(self), self.lost)


def _rebuilt(message: str, lost: bool) -> JobFailed:
    return JobFailed(message, lost=lost)


class JobProcess:
    """Does one piece of work after the other, in a process that is started when it is needed.

    Args:
        log: what the work writes to its standard error; None: it is lost.
    """

    def __init__(self, log: IO[Any] | None = None) -> None:
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._gone = -1  # a handle that tells when it has ended
        self._lock = threading.Lock()
        self._closed = False
        self._rest = b""

    def run(
        self, work: str, given: Mapping[str, Any], *, seconds: float,
        tell: Callable[[dict[str, Any]], None] = lambda event: None,
    ) -> dict[str, Any]:  # fmt: skip
        """Do a piece of work and wait for it.

        Args:
            work: ``module:function`` of this package.
            given: its argument, plain values.
            seconds: after which its process is ended.
            tell: is told what the work says meanwhile.

        Raises:
            JobFailed: it raised, took too long, or its process was lost.
        """
        process = self._started()
        end = time.monotonic() + seconds
        try:
            assert process.stdin is not None  # noqa: S101
            process.stdin.write(json.dumps({"work": work, "given": given}).encode() + b"\n")
            process.stdin.flush()
            while True:
                answer = json.loads(self._line(process, end))
                if "event" in answer:
                    tell(answer["event"])
                elif "failed" in answer:
                    raise JobFailed(answer["failed"])
                else:
                    return dict(answer["done"])
        except TimeoutError:
            self._end()
            raise JobFailed(f"it did not come to an end within {seconds:.0f} s") from None
        except (EOFError, OSError, ValueError):
            code = self._end()
            how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
            raise JobFailed(f"its process ended {how}", lost=True) from None

    def _started(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._closed:
                raise JobFailed("it was stopped")
            if self._process is None:
                self._rest = b""
                # A session of its own: Ctrl-C in the terminal reaches the parent only, which ends it in order.
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "sandbox_kernel.jobs.child"], stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE, stderr=self._log or subprocess.DEVNULL, start_new_session=True,
                )  # fmt: skip
                self._gone = os.pidfd_open(self._process.pid)
            return self._process

    def _line(self, process: subprocess.Popen[bytes], end: float) -> bytes:
        assert process.stdout is not None  # noqa: S101
        fd, pieces = process.stdout.fileno(), [self._rest]
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        # (The end of its output alone could be kept open for ever by what it has forked.)
        poll.register(self._gone, select.POLLIN)
        while b"\n" not in pieces[-1]:
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError
            if not poll.poll(min(left, _LOOK_S) * 1000):
                continue
            # (Anew: it may have answered and ended between the looks at the one and at the other.)
            piece = os.read(fd, _READ) if fd in dict(poll.poll(0)) else b""
            if not piece:
                raise EOFError
            pieces.append(piece)
        last, _, self._rest = pieces[-1].partition(b"\n")
        return b"".join([*pieces[:-1], last])

    def stop(self) -> None:
        """Tell it to end, from another thread, and to end what the work has started first.

        Who waits for it gets a `JobFailed`. The work may miss it: libraries set signal handlers of their own, and
        swallow what is raised in the wrong moment. So whoever waits says it again after a while, or uses `kill`.
        """
        with self._lock:
            self._closed = True
            process = self._process
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()

    def kill(self) -> None:
        """End it from another thread without a word, and what the work has started with it."""
        with self._lock:  # who waits for it waits until this is done
            self._closed = True
            if self._process is not None and self._process.poll() is None:
                end_tree(self._process.pid)

    def _end(self) -> int:
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return 0
        with contextlib.suppress(OSError):  # there was none to be had
            os.close(self._gone)
        self._gone = -1
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        try:
            # Its input has ended, and so does it.
            return process.wait(_END_S)
        except subprocess.TimeoutExpired:
            end_tree(process.pid)
            return process.wait()

    def close(self) -> None:
        """End it; idempotent."""
        with self._lock:
            self._closed = True
        self._end()

    def __enter__(self) -> JobProcess:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
