"""Packages that some commands need and others do not, and numbers on the command line."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING

from .stop import Stop

if TYPE_CHECKING:
    from ..jobs.local import Job, Told

# Of the packages that may be missing the extra that brings them.
NEEDED = {
    "nbclient": "lab", "nbconvert": "lab", "nbformat": "lab", "rich": "lab", "distributed": "dask", "dask": "dask",
}  # fmt: skip


def at_least_one(text: str) -> int:
    """A count, for argparse."""
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def positive(text: str) -> float:
    """Seconds, for argparse."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError(text)
    return value


@contextlib.contextmanager
def extras(command: str) -> Iterator[None]:
    """Tell which extra brings a package that is missing.

    Raises:
        Stop: one is.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in NEEDED:
            raise
        extra = NEEDED[missing]
        raise Stop(
            f"`{command}` needs the package {missing}, which is not installed. "
            f"Install the extra `{extra}`: pip install '.[{extra}]' in the project's folder"
        ) from error


def on_cluster(address: str, work: str, jobs: Iterable[Job]) -> Generator[Told, None, None]:
    """See `jobs.cluster.on_cluster`.

    Raises:
        Stop: there is no scheduler at the address.
    """
    from ..jobs.cluster import NoScheduler
    from ..jobs.cluster import on_cluster as begin

    with contextlib.closing(begin(address, work, jobs)) as told:
        try:
            yield from told
        except NoScheduler as error:
            raise Stop(str(error)) from error
