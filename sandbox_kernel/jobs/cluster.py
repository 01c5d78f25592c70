"""Many pieces of work on a cluster of dask.distributed, whose machines have this package.

A worker of the cluster starts the same process for each piece as `local` does, so the limits and the way in which
things end are the same, and a worker that goes down takes nothing with it: the scheduler gives its work to another.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from itertools import islice
from typing import Any

from .local import ATTEMPTS, Job, Outcome, Told
from .process import JobFailed, JobProcess

CONNECT_S = 20.0
_AHEAD = 256  # pieces of work that the scheduler knows of


class NoScheduler(Exception):
    """The cluster cannot be reached; the message says why."""


def remote(work: str, given: Mapping[str, Any], seconds: float) -> Outcome:
    """Do one piece of work; this runs on a worker of the cluster.

    Raises:
        JobFailed: its process was lost; it may be tried once more.
    """
    with JobProcess() as process:
        try:
            return process.run(work, given, seconds=seconds)
        except JobFailed as error:
            if error.lost:
                raise
            return error


def on_cluster(address: str, work: str, jobs: Iterable[Job]) -> Generator[Told, None, None]:
    """Do all of them, and tell what happens as `local.in_processes` does.

    Whoever stops to listen takes back what has not begun; what runs on the workers ends by its limits.

    Args:
        address: of the scheduler, such as ``"tcp://10.0.0.5:8786"``.
        work: ``module:function`` of this package.

    Raises:
        NoScheduler: there is none at the address.
    """
    from distributed import Client, as_completed

    try:
        client = Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise NoScheduler(f"There is no scheduler at {address}: {error}") from error
    with client:
        names: dict[Any, str] = {}
        waiting, ended = iter(jobs), as_completed(loop=client.loop, raise_errors=False)

        def submit() -> None:
            # Not all at once: their arguments together may be large.
            for job in islice(waiting, max(0, _AHEAD - len(names))):
                future = client.submit(remote, work, job.given(), job.seconds, pure=False, retries=ATTEMPTS - 1)
                names[future] = job.name
                ended.add(future)

        try:
            submit()
            while names:
                future = next(ended)
                yield "ended", names.pop(future), _outcome(future)
                submit()
        finally:
            client.cancel(list(names))


def _outcome(future: Any) -> Outcome:
    error = future.exception() if future.status != "cancelled" else None
    if future.status == "finished":
        outcome: Outcome = future.result()
        return outcome
    if isinstance(error, JobFailed):
        return error
    return JobFailed(f"the cluster gave it up: {type(error).__name__}: {error}"[:2000])
