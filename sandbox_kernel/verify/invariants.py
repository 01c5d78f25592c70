"""Loops by invariant: shown to hold at the start and to be kept by every turn, then the loop is left by it alone."""

from __future__ import annotations

import ast
from typing import Any

import z3

from .expressions import Expressions
from .state import State, join
from .subset import Outside
from .values import (
    FORGOTTEN,
    UNBOUND,
    Forgotten,
    Items,
    Range,
    Term,
    Unbound,
    Value,
    all_of,
    is_bool,
    is_int,
    is_real,
    merge,
    negated,
    term,
)

_PROOF_MS = 5_000


class LoopProofs(Expressions):
    """What `Execution` needs for loops with an invariant."""

    unproved: list[str]
    unended: list[int]
    block: Any
    _frames: Any
    _solver: Any

    def by_invariant(self, node: ast.While | ast.For, invariant: ast.expr, variant: ast.expr | None) -> State | None:
        """The state after the loop.

        The names that the loop binds get values of which only the invariant is known. A ``for`` loop over a range
        ends by itself; a ``while`` loop does when `variant` is a number that is never negative and always falls.
        """
        if node.orelse:
            raise Outside("an else of a loop that has an invariant", node)
        counter, items = self._counter(node)
        earlier = self.state.names.get(counter, UNBOUND)
        if counter:
            self.state.names[counter] = items.start
        self._shown(self.truth(self.value(invariant)), f"the invariant of the loop in line {node.lineno} at its start")
        entry = self.state
        self._forget(node, entry)
        if counter:
            # The counter runs from the start to the first value that the loop does not reach.
            index, first, end = z3.FreshInt(counter), term(items.start), term(items.stop)
            entry.names[counter] = index
            entry.assume(z3.And(index >= first, index <= z3.If(end > first, end, first)))
        self.state = entry
        entry.assume(self.truth(self.value(invariant)))
        test: Term = self.truth(self.value(node.test)) if isinstance(node, ast.While) else (
            entry.names[counter] < items.stop)  # fmt: skip
        inside, after = self.state.under(test), self.state.under(negated(test))
        broke = self._turn(node, invariant, variant, inside, counter)
        if isinstance(node, ast.While) and variant is None:
            self.unended.append(node.lineno)
        if counter:
            ran = term(items.stop) > term(items.start)  # Python leaves the last value in the name, not the one beyond
            after.names[counter] = merge([(ran, items.stop - 1), (negated(ran), earlier)])
        return join([after, *broke])

    def _counter(self, node: ast.While | ast.For) -> tuple[str, Range]:
        if isinstance(node, ast.While):
            return "", Range(0, 0, 1)
        items = self.value(node.iter)
        if not isinstance(items, Range) or items.step != 1 or not isinstance(node.target, ast.Name):
            raise Outside("an invariant for a loop over anything but range(start, stop)", node)
        name = node.target.id
        if any(isinstance(inner, ast.Name) and inner.id == name and isinstance(inner.ctx, ast.Store)
               for statement in node.body for inner in ast.walk(statement)):  # fmt: skip
            raise Outside("an assignment to the loop's own name", node)
        return name, items

    def _turn(self, node: ast.While | ast.For, invariant: ast.expr, variant: ast.expr | None, state: State,
              counter: str) -> list[State]:  # fmt: skip
        """One turn from any state in which the invariant holds; the states that leave by ``break``."""
        frame = self._frames[-1]
        outer = frame.broke, frame.continued
        frame.broke, frame.continued = [], []
        self.state = state
        kinds = {name: _kind(value) for name, value in state.names.items()}
        shapes = {number: _shape(items) for number, items in state.heap.items()}
        measure: Value = self.value(variant) if variant is not None else 0
        if _kind(measure) not in ("int", "bool"):  # halves fall for ever
            raise Outside("a variant that is no whole number", node)
        before: Value = state.names.get(counter, 0)
        end = self.block(node.body, self.state)
        end = join([*frame.continued, *([end] if end is not None else [])])
        broke: list[State] = frame.broke
        frame.broke, frame.continued = outer
        if end is not None:
            self.state = end
            changed = [n for n, kind in kinds.items() if n in end.names and kind and _kind(end.names[n]) != kind]
            if changed:
                raise Outside(f"{changed[0]}, which changes its kind in a loop that has an invariant", node)
            if any(_shape(end.heap[number]) != shape for number, shape in shapes.items()):
                raise Outside("a list whose length or kinds change in a loop that has an invariant", node)
            if counter:
                end.names[counter] = before + 1
            self._shown(self.truth(self.value(invariant)), f"that a turn of the loop in line {node.lineno} keeps its "
                        "invariant")  # fmt: skip
            if variant is not None:
                falls = all_of((measure >= 0, self.value(variant) < measure))
                self._shown(falls, f"that the variant of the loop in line {node.lineno} falls and is not negative")
        for each in broke:
            if counter:
                each.names[counter] = before
        return broke

    def _forget(self, node: ast.While | ast.For, state: State) -> None:
        """Give every name that the loop binds, and every list if it may change one, a value that is not known."""
        again = [*node.body, *([node.test] if isinstance(node, ast.While) else [])]
        every = [inner for part in again for inner in ast.walk(part)]
        for name in {e.id for e in every if isinstance(e, ast.Name) and isinstance(e.ctx, ast.Store)}:
            state.names[name] = _unknown(name, state.names.get(name, UNBOUND))
        stores = any(isinstance(e, ast.Subscript) and isinstance(e.ctx, ast.Store) for e in every)
        if stores or any(isinstance(e, ast.Call) for e in every):
            for number, held in state.heap.items():
                if not isinstance(held, Items):
                    raise Outside("lists of several lengths in a loop that has an invariant", node)
                state.heap[number] = Items(tuple(_unknown("item", item) for item in held.items), "list")

    def _shown(self, condition: Term, what: str) -> None:
        """Prove that a condition holds here, or note that it could not be shown; go on as if it held."""
        against = all_of((self.state.guard, negated(condition)))
        if against is False:
            return
        self._solver.set("timeout", _PROOF_MS)
        found = self._solver.check(term(against))
        self._solver.set("timeout", 300)
        if found != z3.unsat:
            at = f" (not so for {_shortly(self._solver.model())})" if found == z3.sat else " (z3 does not know)"
            self.unproved.append(f"It could not be shown {what if what.startswith('that') else what + ' holds'}{at}.")
        self.state.assume(condition)


def _kind(value: Value) -> str:
    return "bool" if is_bool(value) else "int" if is_int(value) else "float" if is_real(value) else ""


def _shape(held: Value) -> tuple[str, ...] | None:
    """The kinds of a list's items; None when its length is one of several."""
    return tuple(map(_kind, held.items)) if isinstance(held, Items) else None


def _unknown(name: str, value: Value) -> Value:
    match _kind(value):
        case "bool":
            return z3.FreshBool(name)
        case "int":
            return z3.FreshInt(name)
        case "float":
            return z3.FreshReal(name)
    if isinstance(value, (Unbound, Forgotten)):
        return FORGOTTEN
    raise Outside(f"{name} in a loop that has an invariant: it is neither a number nor a truth value")


def _shortly(model: Any) -> str:
    rows = sorted((str(symbol), str(model[symbol])) for symbol in model.decls())
    return ", ".join(f"{name.partition('!')[0]} = {value}" for name, value in rows[:6]) or "every value"
