"""Statements and calls: every way through a function at once, loops up to a bound."""

from __future__ import annotations

import ast
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import z3

from .arithmetic import is_quotient
from .expressions import Expressions
from .interpret import exception_name
from .invariants import LoopProofs
from .state import State, join
from .subset import Definition, OutOfTime, Outside, Program, bind_arguments, default_of, local_names
from .values import Items, ListRef, Term, Value, all_of, alternatives, merge, negated, term

_FEASIBLE_MS = 300
_MOST_DEPTH = 24


@dataclass
class Frame:
    """One call: the states in which it returned, and those that leave its innermost loop."""

    returned: list[tuple[State, Value]] = field(default_factory=list)
    broke: list[State] = field(default_factory=list)
    continued: list[State] = field(default_factory=list)


class Execution(LoopProofs, Expressions):
    """Runs functions of a program on symbolic values.

    Args:
        program: what there is to call.
        bound: iterations of one loop, and calls of a function within itself, that are followed.
        deadline: `time.monotonic()` at which `OutOfTime` is raised.
        invariants: for loops of the function that is asked about, by position.

    Attributes:
        raised: (condition, exception, node) of everything that is raised.
        cuts: (condition, node) of what lies beyond the bound.
        unproved: sentences about invariants that could not be shown.
        floats: whether a float occurred.
        definitions: conditions on symbols of our own that always hold.
    """

    def __init__(self, program: Program, bound: int, deadline: float, invariants: Sequence[ast.expr | None] = (),
                 variants: Sequence[ast.expr | None] = ()) -> None:  # fmt: skip
        self.program, self.bound, self._deadline = program, bound, deadline
        self.state, self.locals, self.inner_names = State(), set(), []
        self.raised: list[tuple[Term, str, ast.AST | None]] = []
        self.cuts: list[tuple[Term, ast.AST | None]] = []
        self.unproved: list[str] = []
        self.unended: list[int] = []
        self.floats = False
        self.snapshots: set[int] = set()
        self.iterables: set[int] = set()
        self.definitions: list[Term] = []
        self._quotients: dict[tuple[int, int], Term] = {}
        self.loops: dict[int, tuple[ast.expr | None, ast.expr | None]] = {}
        self._invariants, self._variants = invariants, variants
        self._frames: list[Frame] = []
        self._numbers = 0
        self._depths: dict[str, int] = {}
        self._solver = z3.Solver()
        self._solver.set("timeout", _FEASIBLE_MS)

    # ------------------------------------------------------------ what expressions need

    def tick(self) -> None:
        if time.monotonic() > self._deadline:
            raise OutOfTime

    def new_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def inexact(self) -> None:
        self.floats = True

    def fail(self, exception: str, when: Term, node: ast.AST | None = None) -> None:
        """Note what is raised when a condition holds here; the execution goes on where it does not."""
        if when is False or self.state.dead:
            return
        condition = all_of((self.state.guard, when))
        if condition is not False:
            self.raised.append((condition, exception, node))
            self.state.assume(negated(when))

    def cut(self, when: Term, node: ast.AST | None) -> None:
        """Note that what lies beyond here is not followed."""
        condition = all_of((self.state.guard, when))
        if condition is not False:
            self.cuts.append((condition, node))
            self.state.assume(negated(when))

    def possible(self, condition: Term) -> bool:
        """Whether a condition can hold here; when z3 does not know, it can."""
        whole = all_of((self.state.guard, condition))
        if isinstance(whole, bool):
            return whole
        self.tick()
        return bool(self._solver.check(whole) != z3.unsat)

    def quotient(self, left: Term, right: Term) -> Term:
        """``left // right`` for a divisor that is not known: a symbol, and what it is."""
        key = left.get_id(), right.get_id()
        if key not in self._quotients:
            whole = z3.FreshInt("quotient")
            self._quotients[key] = whole
            # The terms are kept with it: z3 gives the number of a term that is gone to another one.
            self.definitions.append(is_quotient(whole, left, right))
            self._solver.add(self.definitions[-1])
        return self._quotients[key]

    def suppose(self, condition: Term) -> None:
        """A condition that holds in every execution (the precondition)."""
        self._solver.add(term(condition))

    def constant(self, name: str) -> Value:
        state, names, own = self.state, self.locals, self.inner_names
        self.state, self.locals, self.inner_names = State(heap=state.heap), set(), []
        before, numbers = len(self.raised), self._numbers
        try:
            value = self.value(self.program.constants[name])
        finally:
            self.state, self.locals, self.inner_names = state, names, own
        if len(self.raised) > before or self._numbers > numbers:  # a list lives on from call to call
            raise Outside(f"the name {name}, whose value at top level is not a plain one")
        return value

    # ------------------------------------------------------------ calls

    def inlined(self, name: str, node: ast.Call, when: Term) -> Value:
        """The value of a call of one of the program's functions."""
        function = self.program.functions[name]
        try:
            bound = bind_arguments(function, node)
        except TypeError:
            self.fail("TypeError", when, node)
            return 0
        arguments: dict[str, Value] = {}
        for parameter, argument in bound.items():
            if argument is not None:
                arguments[parameter] = self.value(argument, when)
            else:
                default = default_of(function, parameter)
                number = default.operand if isinstance(default, ast.UnaryOp) else default
                if default is None or not isinstance(number, ast.Constant):  # it was evaluated elsewhere
                    raise Outside(f"the default of {parameter}", default)
                arguments[parameter] = self.value(default, when)
        if not self.possible(when):
            return 0
        if self._depths.get(name, 0) >= min(self.bound, _MOST_DEPTH):
            self.cut(when, node)
            return 0
        self._depths[name] = self._depths.get(name, 0) + 1
        outer, own, inner = self.state, self.locals, self.inner_names
        try:
            self.state = State(outer.path, {}, dict(outer.heap))
            self.state.assume(when)
            self.inner_names = []
            done = self.run(function, arguments)
        finally:
            self.locals, self.inner_names = own, inner
            self._depths[name] -= 1
        return self._back(outer, done, when)

    def run(self, function: Definition, arguments: Mapping[str, Value]) -> list[tuple[State, Value]]:
        """Every state in which the function returns, from the current one, and what it returns there."""
        self.locals = local_names(function)
        self.state.names = dict(arguments)
        frame = Frame()
        self._frames.append(frame)
        end = self.block(function.body, self.state)
        self._frames.pop()
        return frame.returned + ([(end, None)] if end is not None else [])

    def _back(self, outer: State, done: list[tuple[State, Value]], when: Term) -> Value:
        """Go on in the caller with what a call returned."""
        states = []
        for state, _ in done:
            state.names = dict(outer.names)
            states.append(state)
        away = outer.copy()
        if when is not True:
            away.assume(negated(when))
            states.append(away)
        common = len(outer.path)
        rests = [all_of(state.path[common:]) for state, _ in done]
        joined = join(states)
        if joined is None:
            self.state = outer.under(False)
            return 0
        self.state = joined
        found = [(rest, value) for rest, (state, value) in zip(rests, done, strict=True) if not state.dead]
        # Where the call is not reached any value will do: give it to the first alternative.
        return merge(found) if found else 0

    # ------------------------------------------------------------ statements

    def block(self, body: Sequence[ast.stmt], state: State | None) -> State | None:
        """The state after some statements; None when none of it goes on there."""
        for node in body:
            if state is None or state.dead:
                return None
            self.state = state
            self.tick()
            state = self._statement(node)
        return state if state is not None and not state.dead else None

    def _statement(self, node: ast.stmt) -> State | None:
        try:
            return self._carry_out(node)
        except Outside as outside:
            if outside.line == 1 and outside.column == 1:
                outside.line, outside.column = node.lineno, node.col_offset + 1
            raise

    def _carry_out(self, node: ast.stmt) -> State | None:
        match node:
            case ast.Return(value=value):
                found = self.value(value) if value is not None else None
                if not self.state.dead:
                    self._frames[-1].returned.append((self.state, found))
                return None
            case ast.Assign(targets=targets, value=value):
                apart = len(targets) == 1 and isinstance(targets[0], (ast.Tuple, ast.List))
                found = self.iterated(value) if apart else self.value(value)
                for target in targets:
                    self.unpack(target, found, True, None)
            case ast.AnnAssign(target=target, value=value):
                if value is not None:
                    self.unpack(target, self.value(value), True, None)
            case ast.AugAssign(target=target, op=op, value=value):
                self._augmented(target, op, value)
            case ast.If(test=test, body=body, orelse=other):
                return self._if(self.truth(self.value(test)), body, other)
            case ast.While() | ast.For():
                return self._loop(node)
            case ast.Break():
                self._frames[-1].broke.append(self.state)
                return None
            case ast.Continue():
                self._frames[-1].continued.append(self.state)
                return None
            case ast.Expr(value=value):
                if not isinstance(value, ast.Constant):
                    self.value(value)
            case ast.Pass():
                pass
            case ast.Assert(test=test):
                self.fail("AssertionError", negated(self.truth(self.value(test))), node)
            case ast.Raise(exc=exc):
                self.fail(exception_name(exc, node), True, node)
                return None
            case _:
                raise Outside(f"a statement of the kind {type(node).__name__}", node)
        return self.state

    def unpack(self, target: ast.expr, value: Value, when: Term, names: dict[str, Value] | None) -> None:
        """Bind a target; `names`: those of a comprehension."""
        match target:
            case ast.Name(id=name):
                (self.state.names if names is None else names)[name] = value
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                several = list(alternatives(value))
                if len(several) != 1:
                    raise Outside("taking apart what may have several shapes", target)
                if not isinstance(value, (Items, ListRef)):
                    raise Outside("taking apart what is no tuple or list", target)
                found = [items for _, items in self.held(value)]
                held = found[0]
                if len(found) != 1 or not isinstance(held, Items):
                    raise Outside("taking apart a list whose length is not known", target)
                if len(held.items) != len(targets):
                    self.fail("ValueError", when, target)
                    return
                for one, item in zip(targets, held.items, strict=True):
                    self.unpack(one, item, when, names)
            case ast.Subscript(value=owner, slice=index) if not isinstance(index, ast.Slice) and names is None:
                self.store(self.value(owner), self.value(index), value, True)
            case _:
                raise Outside("an assignment to this kind of target", target)

    def _augmented(self, target: ast.expr, op: ast.operator, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            old = self.value(ast.copy_location(ast.Name(target.id, ast.Load()), target))
            if any(isinstance(each, ListRef) for _, each in alternatives(old)):
                raise Outside("an augmented assignment to a list", target)
            self.state.names[target.id] = self.binary(op, old, self.value(value), True)
        elif isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Slice):
            owner, index = self.value(target.value), self.value(target.slice)
            old = self.item(owner, index, True)
            self.store(owner, index, self.binary(op, old, self.value(value), True), True)
        else:
            raise Outside("an assignment to this kind of target", target)

    def _if(self, condition: Term, body: Sequence[ast.stmt], other: Sequence[ast.stmt]) -> State | None:
        if isinstance(condition, bool):
            return self.block(body if condition else other, self.state)
        state = self.state
        yes = self.block(body, state.under(condition))
        no = self.block(other, state.under(negated(condition)))
        return join([each for each in (yes, no) if each is not None])

    # ------------------------------------------------------------ loops

    def _loop(self, node: ast.While | ast.For) -> State | None:
        invariant, variant = self.loops.get(id(node), (None, None))
        if invariant is not None:
            return self.by_invariant(node, invariant, variant)
        outer = self._frames[-1].broke, self._frames[-1].continued
        left: list[State] = []
        self._frames[-1].broke = left
        ended: list[State] = []
        state: State | None = self.state
        self.snapshots = set()
        items = self.iterated(node.iter) if isinstance(node, ast.For) else None
        shape = self._shape(items) if isinstance(node, ast.For) else ()
        watched = {number: self.state.heap[number] for number in self.snapshots}
        place, way = 0, len(self.state.path)
        while state is not None and not state.dead:
            self.state = state
            self.tick()
            goes_on = self._goes_on(node, items, place)
            known = isinstance(goes_on, bool) and (isinstance(node, ast.For) or len(self.state.path) == way)
            if not isinstance(goes_on, bool) or not goes_on:
                ended.append(self.state.under(negated(goes_on)))
            if goes_on is False or not self.possible(goes_on):
                break
            if place >= (self.bound if not known else 64 * self.bound):
                self.cut(goes_on, node)
                break
            self.state.assume(goes_on)
            if isinstance(node, ast.For):
                self.unpack(node.target, self.element(items, place, True), True, None)
            again: list[State] = []
            self._frames[-1].continued = again
            after = self.block(node.body, self.state)
            state = join([*again, *([after] if after is not None else [])])
            if state is not None and isinstance(node, ast.For):
                self.state = state
                if self._shape(items) != shape:
                    raise Outside("a change of the length of the list that a loop goes through", node)
                if any(state.heap[number] is not before for number, before in watched.items()):
                    raise Outside("a change of a list that enumerate, zip or reversed goes through", node)
            place += 1
        self._frames[-1].broke, self._frames[-1].continued = outer
        finished = join(ended)
        if finished is not None and node.orelse:
            finished = self.block(node.orelse, finished)
        return join([*left, *([finished] if finished is not None else [])])

    def _goes_on(self, node: ast.While | ast.For, items: Value, place: int) -> Term:
        if isinstance(node, ast.While):
            return self.truth(self.value(node.test))
        length = self.count_of(items, True)
        return length > place

    def _shape(self, items: Value) -> tuple[Any, ...]:
        """The lengths that a sequence may have."""
        return tuple(len(held.items) if isinstance(held, Items) else -1
                     for _, each in alternatives(items) for _, held in self.held(each))  # fmt: skip

    def prepare_loops(self, function: Definition) -> None:
        """Give the invariants to the function's loops, in the order of the text."""
        found = [node for node in ast.walk(function) if isinstance(node, (ast.While, ast.For))]
        found.sort(key=lambda node: (node.lineno, node.col_offset))
        if len(self._invariants) > len(found):
            raise ValueError(f"there are {len(self._invariants)} invariants and {len(found)} loops")
        variants = [*self._variants, *[None] * len(found)]
        self.loops = {id(node): (invariant, variant)
                      for node, invariant, variant in zip(found, self._invariants, variants, strict=False)}  # fmt: skip
