"""What verification answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["proved", "conditional", "bounded", "refuted", "unknown", "outside"]


@dataclass(frozen=True)
class Verdict:
    """The answer about a function and its contract.

    Attributes:
        status: "proved": for all arguments; "conditional": the same under assumptions that need not be so (floats
            without rounding, a loop that ends); "bounded": no violation within `bound` turns of each loop, and nothing
            is said beyond; "refuted": `counterexample` was replayed and breaks the contract; "unknown": no answer, for
            the reason in `message`; "outside": the code uses what cannot be reasoned about.
        message: the answer as a sentence.
        counterexample: plain values by parameter.
        outcome: what the function gave for them: the repr of its result, or the exception.
        bound: turns of a loop, calls within a call and items of a list that were looked at.
        assumptions: what was taken for granted, as parts of sentences.
        line: of the construct, where the status is "outside".
        column: the same, from 1.
        replayed_by: "sandbox", "evaluator" or "caller".
    """

    status: Status
    message: str
    counterexample: Mapping[str, Any] | None = None
    outcome: str = ""
    bound: int | None = None
    assumptions: tuple[str, ...] = ()
    line: int | None = None
    column: int | None = None
    replayed_by: str = ""

    @property
    def proved(self) -> bool:
        """Whether the contract holds for all arguments of the kinds that `assumptions` names."""
        return self.status == "proved"

    @property
    def refuted(self) -> bool:
        return self.status == "refuted"

    def __str__(self) -> str:
        return f"{self.message} Taken for granted: {'; '.join(self.assumptions)}." if self.assumptions else self.message


@dataclass(frozen=True)
class SpecResult:
    """The answer about a specification.

    Attributes:
        valid: True: shown for all values; False: `counterexample` breaks it; None: z3 does not know.
        counterexample: plain values by name.
        notes: the answer as sentences.
        failed: which part the counterexample breaks, such as "postcondition".
    """

    valid: bool | None
    counterexample: Mapping[str, Any] | None = None
    notes: str = ""
    failed: str = ""
    parts: Mapping[str, bool | None] = field(default_factory=dict)


class VerificationUnavailable(Exception):
    """The package z3-solver, which the proofs need, is not installed."""

    def __init__(self) -> None:
        super().__init__("Proofs need the package z3-solver. Install the extra `verify`: "
                         "pip install '.[verify]' in the project's folder")  # fmt: skip
