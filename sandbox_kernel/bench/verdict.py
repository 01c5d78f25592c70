"""What samples say about a promise, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from .promises import Promise


@dataclass(frozen=True)
class Verdict:
    """One promise, measured.

    Attributes:
        value: the median of what the rounds gave, in the promise's unit.
        low, high: between them lie the middle 80 % of the rounds.
        ours, theirs: medians of the two sides, in `Promise.of`; `theirs` is None without a yardstick.
        kept: whether the promise holds, or is broken by no more than the noise.
        note: why there is no value.
    """

    promise: Promise
    value: float | None = None
    low: float = 0.0
    high: float = 0.0
    ours: float = 0.0
    theirs: float | None = None
    rounds: int = 0
    kept: bool = True
    note: str = ""

    def to_json(self) -> dict[str, object]:
        """Plain data, as in the file of ``--json``."""
        return {
            "promise": self.promise.name, "says": self.promise.says, "limit": self.promise.limit,
            "unit": self.promise.unit, "value": self.value, "low": self.low, "high": self.high, "of": self.promise.of,
            "ours": self.ours, "theirs": self.theirs, "rounds": self.rounds, "kept": self.kept, "note": self.note,
        }  # fmt: skip


def judge(promise: Promise, samples: Sequence[tuple[float, float | None]]) -> Verdict:
    """The verdict over samples of one run.

    A round gives one number: the ratio of both sides, which were measured one after the other, or ours alone. The
    promise is broken when it would be so even if the noise of this run, half the width of the middle 80 % of the
    rounds, had all been against us.

    Args:
        samples: ours and the yardstick's of each round.
    """
    if not samples:
        return Verdict(promise, note="nothing was measured")
    values = sorted(ours if theirs is None else ours / max(theirs, 1e-9) for ours, theirs in samples)
    low, value, high = _quantile(values, 0.1), median(values), _quantile(values, 0.9)
    noise = (high - low) / 2
    kept = value + noise >= promise.limit if promise.at_least else value - noise <= promise.limit
    theirs = [theirs for _, theirs in samples if theirs is not None]
    return Verdict(
        promise, value, low, high, median(ours for ours, _ in samples), median(theirs) if theirs else None,
        len(samples), kept,
    )  # fmt: skip


def _quantile(values: Sequence[float], share: float) -> float:
    at = share * (len(values) - 1)
    below = int(at)
    above = min(below + 1, len(values) - 1)
    return values[below] + (values[above] - values[below]) * (at - below)
