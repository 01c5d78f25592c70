"""The promises that are numbers. SPECIFICATION.md says what each means; a test holds the two together."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Promise:
    """What is promised, and in what it is measured.

    Attributes:
        name: for ``--only``.
        says: one line.
        limit: the most, or with `at_least` the least, that keeps it.
        unit: "x stock", "x plain Python", "x memcpy", "x without copies": a ratio; "ms": ours alone.
        of: what each side of a ratio is measured in.
        short: part of ``--short``.
    """

    name: str
    says: str
    limit: float
    unit: str = "x stock"
    of: str = "ms"
    short: bool = True
    at_least: bool = False


PROMISES = (
    Promise("start", "from the launch to the first result", 1.0),
    Promise("start-cpu", "processor time of all processes until then", 1.0),
    Promise("memory", "memory of an idle kernel, all its processes (PSS)", 1.3, of="MiB"),
    Promise("cell", "a trivial cell, there and back, median", 0.45),
    Promise("cell-cpu", "processor time of the kernel for a trivial cell", 0.8),
    Promise("displays", "a cell with 200 displays", 1.0),
    Promise("lines", "a cell that prints 10,000 lines", 1.0),
    Promise("stdout", "a cell that prints 50 MB", 1.0, short=False),
    Promise("unflushed", "until a line that was not flushed is seen", 0.2),
    Promise("replace", "from the loss of a worker to the next result", 100.0, unit="ms"),
    Promise("cpu-bound", "a cell that computes", 1.01, unit="x plain Python"),
    Promise("system-calls", "a cell that opens and closes files", 1.15, unit="x plain Python"),
    Promise("copies", "a notebook of thirty cells, with copies of the session", 1.05, unit="x without copies",
            short=False),
    Promise("frame-in", "a numeric frame of 100 MB into the session", 0.5, unit="x memcpy", of="GB/s", short=False,
            at_least=True),
    Promise("frame-out", "a numeric frame of 100 MB out of the session", 0.5, unit="x memcpy", of="GB/s", short=False,
            at_least=True),
)  # fmt: skip
