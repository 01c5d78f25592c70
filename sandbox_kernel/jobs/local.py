"""Many pieces of work on this machine, some at a time."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import IO, Any

from .process import JobFailed, JobProcess

ATTEMPTS = 2  # of work whose process was lost


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
        for process in processes:
            process.stop()
        for thread in threads:
            thread.join()
