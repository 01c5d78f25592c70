"""`check_spec`: does a precondition imply a postcondition, does a loop keep its invariants? By refutation, with z3."""

from __future__ import annotations

import ast
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from ..arguments import check_arguments, mapping, names, shown
from .interpret import Interpreter, StepsUsedUp
from .results import SpecResult, VerificationUnavailable
from .subset import BUILTINS, Outside, Program, spec_expression
from .z3_lock import LOCK

Condition = Any  # a text, a z3 expression, or None


@dataclass(frozen=True)
class VerificationSpec:
    """What is claimed.

    Conditions are Python expressions as texts (``"0 < x <= y"``; read, never evaluated), or z3 expressions.

    Attributes:
        precondition: None: nothing is known.
        postcondition: None: nothing is claimed but the invariants.
        invariants: without `step` each must follow from the precondition. With it each must hold at the start
            (initiation) and after every step (preservation), and the postcondition must follow from them at the end.
        variables: kinds by name, "int", "bool" or "float"; a name that is not here is an int.
        step: the new values of variables after one turn of a loop, all at once: ``{"i": "i + 1", "s": "s + i"}``.
        guard: the condition under which the loop goes on; None: always.
        assumptions: conditions that are taken for granted everywhere.
    """

    precondition: Condition = None
    postcondition: Condition = None
    invariants: Sequence[Condition] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    step: Mapping[str, Condition] | None = None
    guard: Condition = None
    assumptions: Sequence[Condition] = ()


@check_arguments
def check_spec(spec: VerificationSpec, *, timeout_s: float = 10.0) -> SpecResult:
    """Show that a specification holds for all values, or give values for which it does not.

    Every part is refuted in turn: initiation and preservation of each invariant, then the postcondition.

    Args:
        spec: the claims.
        timeout_s: for each part, in seconds; when it is over the part is unknown.

    Raises:
        VerificationUnavailable: z3 is not installed.
        ValueError: a condition is not an expression, or uses what cannot be reasoned about.
    """
    if not isinstance(spec, VerificationSpec):
        raise TypeError(f"spec is {shown(spec)}, and must be a VerificationSpec(precondition, postcondition, ...)")
    names("invariants", spec.invariants)
    names("assumptions", spec.assumptions)
    mapping("variables", spec.variables)
    try:
        import z3  # noqa: F401
    except ModuleNotFoundError:
        raise VerificationUnavailable from None
    with LOCK:
        return _Check(spec, timeout_s).answer()


class _Check:
    """One specification on its way."""

    def __init__(self, spec: VerificationSpec, timeout_s: float) -> None:
        from .execution import Execution

        self._spec, self._timeout_s = spec, timeout_s
        self._execution = Execution(Program(), 16, time.monotonic() + 10 * timeout_s)
        self._symbols: dict[str, Any] = {}
        self._texts: dict[str, ast.expr] = {}
        for name, kind in spec.variables.items():
            self._symbols[name] = _symbol(name, kind)

    def answer(self) -> SpecResult:
        spec = self._spec
        given = [self._term(each, "assumption") for each in spec.assumptions]
        pre = self._term(spec.precondition, "precondition")
        invariants = [self._term(each, "invariant") for each in spec.invariants]
        post = self._term(spec.postcondition, "postcondition") if spec.postcondition is not None else None
        claims: list[tuple[str, list[Any], Any]] = []
        for number, invariant in enumerate(invariants, 1):
            claims.append((f"initiation of invariant {number}", [pre], invariant))
        at_end = [pre, *invariants]
        if spec.step is not None:
            guard = self._term(spec.guard, "guard")
            for number, (invariant, said) in enumerate(zip(invariants, spec.invariants, strict=True), 1):
                kept = self._stepped(invariant, said)
                claims.append((f"preservation of invariant {number}", [*invariants, guard], kept))
            at_end = [*invariants, _not(guard)]
        if post is not None:
            claims.append(("postcondition", at_end, post))
        if self._execution.cuts:
            raise ValueError("a condition goes through a range whose end is not known; write its end as a number")
        return self._result(given, pre, claims)

    def _result(self, given: list[Any], pre: Any, claims: list[tuple[str, list[Any], Any]]) -> SpecResult:
        import z3

        parts: dict[str, bool | None] = {}
        notes: list[str] = []
        example, failed = None, ""
        for name, premises, claim in claims:
            found, model = self._refute([*given, *premises], claim)
            parts[name] = True if found == z3.unsat else False if found == z3.sat else None
            if found == z3.sat and example is None:
                example, failed = self._plain(model, name), name
                shown = ", ".join(f"{key} = {value}" for key, value in example.items())
                notes.append(f"The {name} fails for {shown or 'every value'}.")
            elif found == z3.unknown:
                notes.append(f"z3 does not know about the {name} ({model}).")
        if not claims:
            notes.append("There is nothing to check: neither a postcondition nor an invariant is claimed.")
        if example is not None:
            return SpecResult(False, example, " ".join(notes), failed, parts)
        if None in parts.values():
            return SpecResult(None, None, " ".join(notes), "", parts)
        if claims:
            notes.append("Shown for all values.")
            if self._refute([*given, pre], False)[0] == z3.unsat:
                notes.append("But the precondition can never hold, so this says nothing.")
        if self._execution.floats or "float" in self._spec.variables.values():
            notes.append("Floats are taken as real numbers, without rounding.")
        return SpecResult(True, None, " ".join(notes), "", parts)

    def _refute(self, premises: Sequence[Any], claim: Any) -> tuple[Any, Any]:
        """z3's answer to whether the claim can fail, and the model or the reason."""
        import z3

        from .values import term

        solver = z3.Solver()
        solver.set("timeout", max(int(self._timeout_s * 1000), 1))
        solver.add(*[term(each) for each in (*premises, *self._execution.definitions)], term(_not(claim)))
        found = solver.check()
        return found, solver.model() if found == z3.sat else solver.reason_unknown()

    # ------------------------------------------------------------ conditions as terms

    def _term(self, condition: Condition, what: str) -> Any:
        if condition is None:
            return True
        if not isinstance(condition, (str, bool)) and not hasattr(condition, "sexpr"):
            raise TypeError(f"the {what} is {shown(condition)}, and must be an expression as text ('x > 0') or of z3")
        if not isinstance(condition, str):
            return condition
        node = spec_expression(condition, what)
        return self._evaluated(node, what, truth=True, names={})

    def _evaluated(self, node: ast.expr, what: str, *, truth: bool, names: Mapping[str, Any]) -> Any:
        from .state import State
        from .values import all_of, negated

        used = [inner for inner in ast.walk(node) if isinstance(inner, ast.Name)]
        bound = {inner.id for inner in used if isinstance(inner.ctx, ast.Store)}
        for inner in used:
            if inner.id not in {*self._symbols, *BUILTINS, "implies", *bound}:
                self._symbols[inner.id] = _symbol(inner.id, "int")
        execution = self._execution
        execution.state, execution.raised = State(names={**self._symbols, **names}), []
        execution.locals = set(self._symbols)
        try:
            value = execution.value(node)
            if not truth:
                return value
            return all_of((execution.truth(value), *(negated(condition) for condition, _, _ in execution.raised)))
        except Outside as outside:
            text = f"the {what} {ast.unparse(node)!r} uses {outside.what} (column {outside.column})"
            raise ValueError(text) from outside

    def _stepped(self, invariant: Any, said: Condition) -> Any:
        """The invariant after one step."""
        import z3

        from .values import term

        step = self._spec.step or {}
        new: dict[str, Any] = {}
        for name, expression in step.items():
            if isinstance(expression, str):
                node = spec_expression(expression, "step")
                new[name] = self._evaluated(node, f"step of {name}", truth=False, names={})
            else:
                new[name] = expression
        if isinstance(said, str):
            return self._evaluated(spec_expression(said, "invariant"), "invariant", truth=True, names=new)
        constants = {str(each): each for each in _constants(invariant)}
        pairs = [(constants[name], term(value)) for name, value in new.items() if name in constants]
        return z3.substitute(invariant, *pairs)

    # ------------------------------------------------------------ counterexamples

    def _plain(self, model: Any, part: str) -> dict[str, Any]:
        """Plain values; for texts they are tried out, and told as fractions where a float would be rounded."""
        import z3

        from .parameters import plain_number

        symbols = dict(self._symbols)
        for symbol in model.decls():
            if symbol.arity() == 0 and "!" not in symbol.name():
                symbols.setdefault(symbol.name(), symbol())
        values = {name: plain_number(model.eval(symbol, model_completion=True)) for name, symbol in symbols.items()
                  if z3.is_arith(symbol) or z3.is_bool(symbol)}  # fmt: skip
        if part != "postcondition" or self._spec.step is not None or self._breaks(values):
            return values
        exact = {name: Fraction(str(model.eval(symbols[name], model_completion=True))) if isinstance(value, float)
                 and z3.is_rational_value(model.eval(symbols[name], model_completion=True)) else value
                 for name, value in values.items()}  # fmt: skip
        return exact if self._breaks(exact) else values

    def _breaks(self, values: Mapping[str, Any]) -> bool:
        pre, post = self._spec.precondition, self._spec.postcondition
        if not isinstance(post, str) or not (pre is None or isinstance(pre, str)):
            return True
        interpreter = Interpreter(Program())
        try:
            holds = pre is None or interpreter.condition(spec_expression(pre, "precondition"), values)
            return holds and not interpreter.condition(spec_expression(post, "postcondition"), values)
        except (Outside, StepsUsedUp):
            return False


def _symbol(name: str, kind: str) -> Any:
    import z3

    made = {"int": z3.Int, "bool": z3.Bool, "float": z3.Real, "real": z3.Real}
    if kind not in made:
        raise ValueError(f"the kind of {name} is one of int, bool, float, not {kind!r}")
    return made[kind](name)


def _not(condition: Any) -> Any:
    from .values import negated

    return negated(condition)


def _constants(expression: Any) -> list[Any]:
    """The free constants of a z3 expression."""
    import z3

    found: dict[int, Any] = {}
    todo, seen = [expression], set()
    while todo:
        node = todo.pop()
        if node.get_id() in seen:
            continue
        seen.add(node.get_id())
        if z3.is_const(node) and node.decl().kind() == z3.Z3_OP_UNINTERPRETED:
            found[node.get_id()] = node
        todo += node.children()
    return list(found.values())
