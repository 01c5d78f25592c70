"""Where an execution stands: the values of names, what lists hold, and under which condition it got there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .values import UNBOUND, Items, ListRef, Term, Value, all_of, any_of, merge, negated


@dataclass
class State:
    """One state, or several that were merged.

    Attributes:
        path: conditions that all hold here, in the order in which they arose.
        names: values of local names.
        heap: what each list holds; `Items`, or a `Choice` of them.
    """

    path: tuple[Term, ...] = ()
    names: dict[str, Value] = field(default_factory=dict)
    heap: dict[int, Value] = field(default_factory=dict)

    def copy(self) -> State:
        return State(self.path, dict(self.names), dict(self.heap))

    def under(self, condition: Term) -> State:
        """A copy where one more condition holds."""
        other = self.copy()
        other.assume(condition)
        return other

    def assume(self, condition: Term) -> None:
        if condition is not True:
            self.path = (*self.path, condition)

    @property
    def guard(self) -> Term:
        return all_of(self.path)

    @property
    def dead(self) -> bool:
        return any(condition is False for condition in self.path)


def join(states: Sequence[State]) -> State | None:
    """One state out of several that exclude each other; None when there is none."""
    alive = [state for state in states if not state.dead]
    if len(alive) <= 1:
        return alive[0] if alive else None
    common = _common([state.path for state in alive])
    rests = [all_of(state.path[common:]) for state in alive]
    names = dict.fromkeys(name for state in alive for name in state.names)
    numbers = dict.fromkeys(number for state in alive for number in state.heap)
    return State(
        (*alive[0].path[:common], *_either([state.path[common:] for state in alive], rests)),
        {name: merge([(rest, state.names.get(name, UNBOUND)) for rest, state in zip(rests, alive, strict=True)])
         for name in names},
        # A list that one of them has not made is not reachable there, whatever it holds.
        {number: merge([(rest, state.heap[number]) for rest, state in zip(rests, alive, strict=True)
                        if number in state.heap]) for number in numbers},
    )  # fmt: skip


def _common(paths: Sequence[tuple[Term, ...]]) -> int:
    """How many conditions at the beginning are the very same in all paths."""
    length = 0
    for parts in zip(*paths, strict=False):
        if any(part is not parts[0] for part in parts[1:]):
            break
        length += 1
    return length


def _either(paths: Sequence[tuple[Term, ...]], rests: Sequence[Term]) -> tuple[Term, ...]:
    """The condition that one of the rests holds; none where they are a condition and its opposite."""
    if len(paths) == 2 and len(paths[0]) == len(paths[1]) == 1:
        one, other = paths[0][0], paths[1][0]
        opposite = negated(one)
        if not isinstance(one, bool) and not isinstance(other, bool) and (opposite.eq(other) or negated(other).eq(one)):
            return ()
    whole = any_of(rests)
    return () if whole is True else (whole,)


def held(state: State, value: Value) -> Value:
    """A value with lists replaced by what they hold."""
    if isinstance(value, ListRef):
        return _deep(state, state.heap[value.number])
    return _deep(state, value)


def _deep(state: State, value: Value) -> Value:
    if isinstance(value, Items) and any(isinstance(item, (ListRef, Items)) for item in value.items):
        return Items(tuple(held(state, item) for item in value.items), value.kind)
    return value
