"""Many pieces of work on this machine, some at a time."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from .process import JobFailed, JobProcess

ATTEMPTS = 2  # of work whose process was lost
_STOPS, _STOP_S = 2, 10.0  # how often a process is told to end before it is killed, and the time that it has each time


@dataclass(frozen=True)
class Job:
    """A piece of work to come.

    Attributes:
        name: tells it from the others.
        given: makes its argument, when its turn comes: all of them together may be large.
        seconds: after which it is ended.
    """

    name: str
    given: Callable[[], Mapping[str, Any]]
    seconds: float


Outcome = dict[str, Any] | JobFailed
Told = tuple[str, str, Any]  # "began", "event" or "ended"; the job's name; the event or `Outcome`


def in_processes(
    work: str, jobs: Iterable[Job], *, at_once: int, log: IO[Any] | None = None
) -> Generator[Told, None, None]:
    """Do all of them, and tell what happens in the order in which it does.

    Whoever stops to listen ends what runs.

    Args:
        work: ``module:function`` of this package.
        at_once: how many processes.
        log: what the work writes to its standard error.
    """
    todo, told = iter(jobs), queue.SimpleQueue[Told | None]()
    lock, stopped = threading.Lock(), threading.Event()

    def serve(process: JobProcess) -> None:
        try:
            while not stopped.is_set():
                with lock:
                    job = next(todo, None)
                if job is None:
                    return
                told.put(("began", job.name, None))
                told.put(("ended", job.name, done(process, job)))
        finally:
            process.close()
            told.put(None)

    def done(process: JobProcess, job: Job) -> Outcome:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return process.run(
                    work, job.given(), seconds=job.seconds, tell=lambda event: told.put(("event", job.name, event))
                )
            except JobFailed as error:
                if stopped.is_set() or not error.lost or attempt == ATTEMPTS:
                    return error
            except Exception as error:  # of `given`
                return JobFailed(f"{type(error).__name__}: {error}")
        raise AssertionError

    processes = [JobProcess(log) for _ in range(at_once)]
    threads = [threading.Thread(target=serve, args=(process,)) for process in processes]
    for thread in threads:
        thread.start()
    running = at_once
    try:
        while running:
            item = told.get()
            if item is None:
                running -= 1
            else:
                yield item
    finally:
        stopped.set()
        _end(processes, threads)


def _end(processes: Sequence[JobProcess], threads: Sequence[threading.Thread]) -> None:
    """End them in order; without it, if they do not hear, or at once if the user says it again (Ctrl-C)."""
    try:
        for _ in range(_STOPS):
            for process in processes:
                process.stop()
            end = time.monotonic() + _STOP_S
            for thread in threads:
                thread.join(max(0.0, end - time.monotonic()))
            if not any(thread.is_alive() for thread in threads):
                return
    finally:
        for process in processes:
            process.kill()
        for thread in threads:
            thread.join()
