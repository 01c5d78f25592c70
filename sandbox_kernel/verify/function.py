"""`verify_function`: does a function keep its contract? Proved, refuted by a replayed example, or said to be open."""

from __future__ import annotations

import ast
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..arguments import check_arguments
from .replay import Replay, Replayed, default_replay, replay_with
from .results import Verdict, VerificationUnavailable
from .subset import Definition, OutOfTime, Outside, Program, is_kind_of, spec_expression
from .trials import Trials
from .z3_lock import LOCK

if TYPE_CHECKING:
    from .execution import Execution
    from .parameters import Kinds
    from .state import State

_REALS = "floats are real numbers: rounding, nan and the infinities are not looked at"
_LOOSE = "code at top level besides definitions changes nothing"
_POST = "the postcondition holds"
_SHARE = 0.6  # of the time for z3; the rest is for trying arguments out, where z3 does not know


@check_arguments
def verify_function(
    code: str, name: str, pre: str = "True", post: str = "True", *, types: Mapping[str, str] | None = None,
    raises: Sequence[str] = (), bound: int = 8, lists: int = 4, timeout_s: float = 10.0,
    invariants: Sequence[str | None] = (), variants: Sequence[str | None] = (), replay: Replay | None = None,
) -> Verdict:  # fmt: skip
    """Prove or refute that a function keeps its contract: whenever `pre` holds it returns, and `post` holds then.

    The function is translated to z3; nothing of the code is run, except that a counterexample is replayed before it
    is reported. Known are ints, bools, floats (as real numbers), None, tuples, lists of a few items, conditions,
    loops, early returns, assert and raise, calls of functions of the same code, and the built-ins abs, min, max, len,
    sum, any, all, int, float, bool, divmod, pow, range, list, tuple, sorted, enumerate, zip, reversed. What is
    outside is told with its line.

    Args:
        code: Python source.
        name: of the function, at top level.
        pre: condition on the parameters, as a Python expression; it may call the functions of the code.
        post: the same with `result`; the parameters have the values that they came in with. `implies(a, b)` is known.
        types: kinds of parameters, as annotations are written, where the code does not say: ``{"x": "float"}``.
            Without either a parameter is an int.
        raises: exceptions that the contract allows.
        bound: turns of each loop and calls within a call that are followed (of a loop whose number of turns is known,
            64 times as many). What ends within them is proved, else the status is "bounded".
        lists: items of list parameters, at most, unless `pre` says less (``len(xs) <= 3``).
        timeout_s: time for the whole answer, in seconds.
        invariants: for the function's loops in the order of the text, None for a loop that is unrolled. A loop with
            an invariant is followed for any number of turns.
        variants: for the same loops, a whole number that falls with every turn and is never negative; shows that a
            ``while`` loop ends.
        replay: gets a program and returns what it prints; None: the sandbox where there is one, else an evaluator of
            the same part of Python that is part of this package.

    Raises:
        VerificationUnavailable: z3 is not installed.
        ValueError: `pre`, `post`, an invariant or a type is not an expression, or more invariants than loops.
    """
    _need_z3()
    conditions = _Contract.of(pre, post, raises, types or {}, invariants, variants)
    began = time.monotonic()
    try:
        program = Program.of(code)
        function = program.functions.get(name)
        if function is None:
            how = f"{name} is {program.others[name]}" if name in program.others else f"there is no function {name}"
            return Verdict("outside", f"{how[0].upper()}{how[1:]} at top level of the code.", line=1, column=1)
        with LOCK:
            question = _Question(code, program, function, conditions, bound, lists, began + _SHARE * timeout_s, replay)
            return question.decided(began + timeout_s)
    except Outside as outside:
        text = f"{name} cannot be verified: line {outside.line}, column {outside.column}: it uses {outside.what}."
        return Verdict("outside", text, line=outside.line, column=outside.column)
    except RecursionError:
        return Verdict("unknown", "No answer: the code is nested too deeply.", bound=bound)


def _need_z3() -> None:
    try:
        import z3  # noqa: F401
    except ModuleNotFoundError:
        raise VerificationUnavailable from None


class _Contract:
    """What is asked, read."""

    def __init__(self, pre: ast.expr, post: ast.expr) -> None:
        self.pre, self.post = pre, post
        self.raises: tuple[str, ...] = ()
        self.types: Mapping[str, str] = {}
        self.invariants: list[ast.expr | None] = []
        self.variants: list[ast.expr | None] = []

    @classmethod
    def of(cls, pre: str, post: str, raises: Sequence[str], types: Mapping[str, str],
           invariants: Sequence[str | None], variants: Sequence[str | None]) -> _Contract:  # fmt: skip
        made = cls(spec_expression(pre, "precondition"), spec_expression(post, "postcondition"))
        made.raises = (raises,) if isinstance(raises, str) else tuple(raises)
        for text in types.values():
            spec_expression(text, "type")
        made.types = types
        made.invariants = [spec_expression(text, "invariant") if text is not None else None for text in invariants]
        made.variants = [spec_expression(text, "variant") if text is not None else None for text in variants]
        return made


class _Question:
    """One function and one contract."""

    def __init__(self, code: str, program: Program, function: Definition, contract: _Contract, bound: int, lists: int,
                 deadline: float, replay: Replay | None) -> None:  # fmt: skip
        from .parameters import Kinds

        self._code, self._program, self._function, self._contract = code, program, function, contract
        self._bound, self._lists, self._deadline, self._replay = bound, lists, deadline, replay
        self._kinds: Kinds = Kinds(function, contract.types)
        self._floats = False
        self._cut = ""
        self._unended: set[int] = set()

    def decided(self, until: float) -> Verdict:
        """The answer of z3; where it has none, what trying arguments out tells."""
        try:
            verdict = self.answer()
        except OutOfTime:
            text = "No answer within the time."
            verdict = Verdict("unknown", text, bound=self._bound, assumptions=self._assumptions())
        if verdict.status != "unknown":
            return verdict
        contract = self._contract
        trials = Trials(self._program, self._function.name, contract.pre, contract.post, contract.raises)
        trials.run(self._kinds.texts(), until)
        if trials.example is not None:
            found = self._replayed(trials.example)
            return found if found.refuted else verdict
        if trials.complete and trials.counted:
            text = f"{self._function.name} is proved by trying all {trials.counted} arguments of the precondition."
            return Verdict("proved", text, assumptions=self._assumptions())
        return verdict

    def answer(self) -> Verdict:
        cases, complete = self._kinds.lengths(self._contract.pre, self._lists)
        possible = False
        if any(each is not None for each in self._contract.invariants):
            return self._by_invariants(cases, complete)
        for lengths in cases:
            verdict = self._case(lengths, unrolled=True)
            if isinstance(verdict, Verdict):
                return verdict
            possible = possible or verdict
        return self._shown(possible, complete)

    def _by_invariants(self, cases: list[dict[str, int]], complete: bool) -> Verdict:
        unproved: list[str] = []
        possible = False
        for lengths in cases:
            verdict = self._case(lengths, unrolled=False, unproved=unproved)
            if isinstance(verdict, Verdict):
                if verdict.refuted:
                    return verdict
                unproved.append(verdict.message)
            else:
                possible = possible or verdict
        if not unproved:
            return self._shown(possible, complete)
        for lengths in cases:  # an invariant that is too weak says nothing about the function: look for an example
            verdict = self._case(lengths, unrolled=True)
            if isinstance(verdict, Verdict) and verdict.refuted:
                return verdict
        return Verdict("unknown", " ".join(dict.fromkeys(unproved)), bound=self._bound, assumptions=self._assumptions())

    def _assumptions(self) -> tuple[str, ...]:
        found = list(self._kinds.assumed)
        if self._floats:
            found.append(_REALS)
        if self._program.loose:
            found.append(_LOOSE)
        found += [f"the loop in line {line} ends" for line in sorted(self._unended)]
        return tuple(found)

    def _shown(self, possible: bool, complete: bool) -> Verdict:
        """The verdict when no violation was found in any case."""
        name = self._function.name
        if not possible:
            text = f"Nothing is said about {name}: no arguments fulfil the precondition."
            return Verdict("unknown", text, assumptions=self._assumptions())
        if self._cut or not complete:
            reasons = [self._cut] if self._cut else []
            reasons += [f"lists have at most {self._lists} items"] if not complete else []
            text = f"{name} is proved up to bound {self._bound}: {' and '.join(reasons)}; nothing is said beyond."
            return Verdict("bounded", text, bound=self._bound, assumptions=self._assumptions())
        over = " over the real numbers" if self._floats else ""
        ends = ", if it ends" if self._unended else ""
        loose = ", if its code at top level changes nothing" if self._program.loose else ""
        text = f"{name} is proved{over}{ends}{loose}: whenever the precondition holds it returns and {_POST}."
        return Verdict("conditional" if over or ends or loose else "proved", text, assumptions=self._assumptions())

    # ------------------------------------------------------------ one case

    def _case(
        self, lengths: Mapping[str, int], *, unrolled: bool, unproved: list[str] | None = None
    ) -> Verdict | bool:
        """The verdict, or whether the precondition can hold when there is no violation."""
        import z3

        from .execution import Execution
        from .values import term

        contract = self._contract
        loops = ((), ()) if unrolled else (contract.invariants, contract.variants)
        execution = Execution(self._program, self._bound, self._deadline, *loops)
        execution.prepare_loops(self._function)
        arguments = self._kinds.symbols(lengths, execution.state)
        entry = execution.state.copy()
        self._floats = self._floats or any("float" in kind for kind in self._kinds.texts().values())
        before = self._condition(execution, entry, contract.pre, arguments, "precondition")
        self._note_cuts(execution, *execution.definitions)  # arguments for which it could not be told
        execution.cuts = []
        if before is False or self._check(before, *execution.definitions) == z3.unsat:
            return False
        execution.suppose(before)
        execution.state = entry.copy()
        returned = execution.run(self._function, arguments)
        violations = [c for c, exception, _ in execution.raised if not is_kind_of(exception, contract.raises)]
        for state, value in returned:
            violations.append(self._broken(execution, state, entry, arguments, value))
        self._floats = self._floats or execution.floats
        self._unended |= set(execution.unended)
        if unproved is not None:
            unproved += execution.unproved
        solver = self._solver()
        known = [before, *execution.definitions]
        solver.add(*[term(each) for each in known], z3.Or(*[term(violation) for violation in violations]))
        found = solver.check()
        if found == z3.sat:
            return self._example(solver.model(), arguments, entry)
        if found != z3.unsat:
            if time.monotonic() >= self._deadline:
                raise OutOfTime
            return Verdict("unknown", f"z3 does not know ({solver.reason_unknown()}).", bound=self._bound,
                           assumptions=self._assumptions())  # fmt: skip
        self._note_cuts(execution, *known)
        return True

    def _note_cuts(self, execution: Execution, *known: Any) -> None:
        """Remember the first place where something beyond the bound can happen."""
        import z3

        for condition, node in execution.cuts:
            if not self._cut and self._check(*known, condition) != z3.unsat:
                what = "the loop" if isinstance(node, (ast.While, ast.For)) else "the call or comprehension"
                line = getattr(node, "lineno", 0)
                self._cut = f"not all turns of {what} in line {line} were followed"

    def _condition(
        self, execution: Execution, state: State, node: ast.expr, names: Mapping[str, Any], what: str
    ) -> Any:
        """A condition as a term; one that raises does not hold. What it cuts off counts as a cut of the function."""
        from .values import all_of, negated

        kept, execution.raised = execution.raised, []
        own, execution.locals = execution.locals, set(names)
        state = state.copy()
        state.names = dict(names)
        execution.state = state
        way = len(state.path)
        try:
            holds = execution.truth(execution.value(node))
        except Outside as outside:
            outside.what += f" (in the {what})"
            raise
        raised = [condition for condition, _, _ in execution.raised]
        rest = execution.state.path[way:]  # what the evaluation took for granted: nothing raised, nothing cut off
        execution.raised, execution.locals = kept, own
        return all_of((holds, *(negated(condition) for condition in raised), *rest))

    def _broken(
        self, execution: Execution, state: State, entry: State, arguments: Mapping[str, Any], value: Any
    ) -> Any:
        """The condition under which the function returns here and the postcondition does not hold."""
        from .values import all_of, negated

        heap = {**state.heap, **{number: held for number, held in entry.heap.items()}}
        result = self._result(execution, state, value, heap)
        at = state.copy()
        at.heap = heap
        cuts = len(execution.cuts)
        holds = self._condition(execution, at, self._contract.post, {**arguments, "result": result},
                                "postcondition")  # fmt: skip
        beyond = [condition for condition, _ in execution.cuts[cuts:]]
        return all_of((state.guard, negated(holds), *(negated(condition) for condition in beyond)))

    @staticmethod
    def _result(execution: Execution, state: State, value: Any, heap: dict[int, Any]) -> Any:
        """The result; a list that came in and was changed is seen as it is now, the parameter as it was."""
        from .values import Choice, Items, ListRef

        if isinstance(value, ListRef) and value.number < 0:
            number = execution.new_number()
            heap[number] = state.heap[value.number]
            return ListRef(number)
        if isinstance(value, Items):
            return Items(tuple(_Question._result(execution, state, item, heap) for item in value.items), value.kind)
        if isinstance(value, Choice):
            found = [(c, _Question._result(execution, state, each, heap)) for c, each in value.alternatives]
            return Choice(tuple(found))
        return value

    def _solver(self) -> Any:
        import z3

        solver = z3.Solver()
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise OutOfTime
        solver.set("timeout", max(int(left * 1000), 1))
        return solver

    def _check(self, *conditions: Any) -> Any:
        from .values import term

        solver = self._solver()
        solver.add(*[term(condition) for condition in conditions])
        return solver.check()

    # ------------------------------------------------------------ counterexamples

    def _example(self, model: Any, arguments: Mapping[str, Any], entry: State) -> Verdict:
        from .parameters import plain

        return self._replayed({name: plain(value, model, entry) for name, value in arguments.items()})

    def _replayed(self, values: Mapping[str, Any]) -> Verdict:
        from .parameters import written

        run: Callable[..., Replayed] = replay_with(self._replay) if self._replay is not None else default_replay
        seen = run(self._code, self._program, self._function.name, values, self._contract.pre, self._contract.post,
                   self._contract.raises)  # fmt: skip
        shown = f"{self._function.name}({', '.join(f'{k}={v!r}' for k, v in values.items())})"
        if seen.violates:
            return Verdict("refuted", f"{shown} {seen.outcome}, which breaks the contract.", values, seen.outcome,
                           self._bound, self._assumptions(), replayed_by=seen.by)  # fmt: skip
        text = (f"z3 gives the counterexample {written(values)}, and replayed it breaks nothing ({seen.outcome}); "
                "rounding of floats, or an invariant that says too little, does that.")  # fmt: skip
        return Verdict("unknown", text, bound=self._bound, assumptions=self._assumptions(), replayed_by=seen.by)
