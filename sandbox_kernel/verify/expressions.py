"""Expressions, evaluated with values that may be symbolic."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction

from . import arithmetic
from .sequences import Sequences
from .state import held
from .subset import BUILTINS, ITERATORS, Outside
from .values import (
    Choice,
    Forgotten,
    Items,
    ListRef,
    Range,
    Term,
    Unbound,
    Value,
    all_of,
    alternatives,
    any_of,
    as_int,
    as_real,
    is_number,
    is_real,
    merge,
    negated,
    spread,
)

# Built-in functions that go through an argument once.
_GO_THROUGH = frozenset(("all", "any", "enumerate", "list", "max", "min", "sorted", "sum", "tuple", "zip"))


class Expressions(Sequences):
    """Evaluates expressions in the current state. ``when`` is the condition under which an operand is reached."""

    # ------------------------------------------------------------ dispatch

    def value(self, node: ast.expr, when: Term = True) -> Value:
        """The value of an expression; what it may raise is noted with its condition."""
        self.tick()
        try:
            return self._value(node, when)
        except Outside as outside:
            if outside.line == 1 and outside.column == 1 and hasattr(node, "lineno"):
                outside.line, outside.column = node.lineno, node.col_offset + 1
            raise

    def _value(self, node: ast.expr, when: Term) -> Value:
        match node:
            case ast.Constant(value=value):
                return self._constant(node, value)
            case ast.Name(id=name):
                return self._name(node, name, when)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return negated(self.truth(self.value(operand, when)))
            case ast.UnaryOp(op=sign, operand=operand):
                return spread([self.value(operand, when)], lambda c, v: self._unary(sign, v[0], all_of((when, c))))
            case ast.BinOp(left=left, op=op, right=right):
                return self.binary(op, self.value(left, when), self.value(right, when), when)
            case ast.BoolOp():
                return self._logic(node, when)
            case ast.Compare():
                return self._comparison(node, when)
            case ast.IfExp(test=test, body=body, orelse=other):
                condition = self.truth(self.value(test, when))
                return self._branches(condition, body, other, when)
            case ast.NamedExpr(target=target, value=value):
                if when is not True:
                    raise Outside("an assignment (:=) that may not be reached", node)
                self.state.names[target.id] = self.value(value, when)
                return self.state.names[target.id]
            case ast.Tuple(elts=items):
                return Items(tuple(self.value(item, when) for item in items))
            case ast.List(elts=items):
                return self.new_list(tuple(self.value(item, when) for item in items))
            case ast.Subscript(value=owner, slice=ast.Slice() as part):
                return self.sliced(self.value(owner, when), part, when)
            case ast.Subscript(value=owner, slice=index):
                return self.item(self.value(owner, when), self.value(index, when), when)
            case ast.ListComp(elt=element, generators=generators):
                made = list(self.comprehended(element, generators, when))
                if any(condition is not True for condition, _ in made):
                    raise Outside("a list whose length depends on what is not known", node)
                return self.new_list(tuple(value for _, value in made))
            case ast.Call():
                return self._call(node, when)
        raise Outside(f"an expression of the kind {type(node).__name__}", node)

    def _constant(self, node: ast.AST, value: object) -> Value:
        if isinstance(value, float):
            self.inexact()
            if value != value or value in (float("inf"), float("-inf")):
                raise Outside("a number that is not finite", node)
            return Fraction(value)
        if isinstance(value, (bool, int, str)) or value is None:
            return value
        raise Outside(f"a constant of the kind {type(value).__name__}", node)

    def _branches(self, condition: Term, body: ast.expr, other: ast.expr, when: Term) -> Value:
        if condition is True or condition is False:
            return self.value(body if condition else other, when)
        yes = self.value(body, all_of((when, condition)))
        no = self.value(other, all_of((when, negated(condition))))
        return merge([(condition, yes), (negated(condition), no)])

    def _name(self, node: ast.Name, name: str, when: Term) -> Value:
        for names in reversed(self.inner_names):
            if name in names:
                return names[name]
        if name in self.state.names:
            value = self.state.names[name]
            if any(isinstance(each, Forgotten) for _, each in alternatives(value)):
                raise Outside(f"the name {name}, of which an invariant says nothing", node)
            missing = any_of(c for c, each in alternatives(value) if isinstance(each, Unbound))
            if missing is not False:
                self.fail("UnboundLocalError", all_of((when, missing)), node)
                rest = [(c, each) for c, each in alternatives(value) if not isinstance(each, Unbound)]
                return merge(rest) if rest else 0
            return value
        if name in self.locals:
            self.fail("UnboundLocalError", when, node)
            return 0
        if name in self.program.constants:
            return self.constant(name)
        how = self.program.others.get(name, "a function used as a value" if self.program.known(name) else "not defined")
        raise Outside(f"the name {name}, which is {how}", node)

    # ------------------------------------------------------------ operators

    def truth(self, value: Value) -> Term:
        """``bool(value)``."""
        parts = [(c, self._truth(each)) for c, each in alternatives(value)]
        return parts[0][1] if len(parts) == 1 else any_of(all_of((c, each)) for c, each in parts)

    def _truth(self, value: Value) -> Term:
        if isinstance(value, (ListRef, Range)):
            length = self.length(value)
            return length > 0
        if isinstance(value, Unbound):
            return False
        return arithmetic.truth(value)

    def _unary(self, op: ast.unaryop, value: Value, when: Term) -> Value:
        if not is_number(value):
            self.fail("TypeError", when)
            return 0
        return arithmetic.unary(op, value, lambda name, c: self.fail(name, all_of((when, c))))

    def binary(self, op: ast.operator, left: Value, right: Value, when: Term) -> Value:
        """``left op right``."""
        return spread([left, right], lambda c, v: self._binary(op, v[0], v[1], all_of((when, c))))

    def _binary(self, op: ast.operator, left: Value, right: Value, when: Term) -> Value:
        if is_number(left) and is_number(right):
            notes = arithmetic.Notes(lambda name, c: self.fail(name, all_of((when, c))), self.inexact, self.quotient)
            return arithmetic.binary(op, left, right, notes)
        if isinstance(left, str) or isinstance(right, str):
            raise Outside("an operation on texts")
        if isinstance(left, (Items, ListRef)) or isinstance(right, (Items, ListRef)):
            return self.joined(op, left, right, when)
        self.fail("TypeError", when)
        return 0

    def _logic(self, node: ast.BoolOp, when: Term) -> Value:
        """``and`` and ``or``: the value of the operand that decides."""
        decided: list[tuple[Term, Value]] = []
        reached: Term = True
        for index, operand in enumerate(node.values):
            value = self.value(operand, all_of((when, reached)))
            if index + 1 == len(node.values):
                decided.append((reached, value))
                break
            true = self.truth(value)
            stops = true if isinstance(node.op, ast.Or) else negated(true)
            decided.append((all_of((reached, stops)), value))
            reached = all_of((reached, negated(stops)))
            if reached is False:
                break
        return merge(decided)

    def _comparison(self, node: ast.Compare, when: Term) -> Value:
        left, result = self.value(node.left, when), True
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            if result is False:
                break
            right = self.value(comparator, all_of((when, result)))
            result = all_of((result, self.compare(op, left, right, all_of((when, result)))))
            left = right
        return result

    def compare(self, op: ast.cmpop, left: Value, right: Value, when: Term) -> Term:
        """One comparison."""
        if isinstance(op, (ast.In, ast.NotIn)):
            found = any_of(all_of((c, self.contains(each, left, all_of((when, c))))) for c, each in alternatives(right))
            return found if isinstance(op, ast.In) else negated(found)
        parts = []
        for one_holds, one in alternatives(left):
            for two_holds, two in alternatives(right):
                both = all_of((one_holds, two_holds))
                if both is not False:
                    parts.append(all_of((both, self._compare(op, one, two, all_of((when, both))))))
        return any_of(parts)

    def _compare(self, op: ast.cmpop, left: Value, right: Value, when: Term) -> Term:
        if isinstance(op, (ast.Is, ast.IsNot)):
            return arithmetic.compare(op, left, right, lambda _n, _c: None)
        one, two = held(self.state, left), held(self.state, right)
        if isinstance(one, Choice) or isinstance(two, Choice):
            return self.compare(op, one, two, when)
        if isinstance(one, Unbound) or isinstance(two, Unbound):
            return False
        return arithmetic.compare(op, one, two, lambda name, c: self.fail(name, all_of((when, c))))

    # ------------------------------------------------------------ comprehensions

    def comprehended(
        self, element: ast.expr, generators: Sequence[ast.comprehension], when: Term,
        wanted: Callable[[], Term] = lambda: True,
    ) -> Iterator[tuple[Term, Value]]:  # fmt: skip
        """(condition under which it is there, value) of each element; `wanted`: whether one more is asked for."""
        first, *rest = generators
        if first.is_async:
            raise Outside("an async comprehension", element)
        for present, item in self.elements(self.iterated(first.iter, when), when, first.iter):
            names: dict[str, Value] = {}
            self.inner_names.append(names)
            try:
                reached = all_of((when, present, wanted()))
                self.unpack(first.target, item, reached, names)
                condition: Term = present
                for test in first.ifs:
                    holds = self.truth(self.value(test, reached))
                    condition, reached = all_of((condition, holds)), all_of((reached, holds))
                    if condition is False:
                        break
                if condition is False:
                    continue
                if rest:
                    for inner, value in self.comprehended(element, rest, reached, wanted):
                        yield all_of((condition, inner)), value
                else:
                    yield condition, self.value(element, reached)
            finally:
                self.inner_names.pop()

    # ------------------------------------------------------------ calls

    def _call(self, node: ast.Call, when: Term) -> Value:
        match node.func:
            case ast.Name(id=name):
                if any(name in names for names in self.inner_names) or name in self.locals:
                    raise Outside(f"a call of the variable {name}", node)
                if name in self.program.functions:
                    return self.inlined(name, node, when)
                if name == "implies" and not self.program.known(name) and len(node.args) == 2 and not node.keywords:
                    premise = self.truth(self.value(node.args[0], when))
                    return any_of((negated(premise), self.truth(self.value(node.args[1], all_of((when, premise))))))
                if name in BUILTINS and not self.program.known(name):
                    return self._builtin(name, node, when)
                how = self.program.others.get(name, "not known here")
                raise Outside(f"a call of {name}, which is {how}", node)
            case ast.Attribute(value=owner, attr=attr):
                return self.method(self.value(owner, when), attr, node, when)
        raise Outside("a call of this kind", node)

    def _builtin(self, name: str, node: ast.Call, when: Term) -> Value:
        if node.keywords or any(isinstance(arg, ast.Starred) for arg in node.args):
            raise Outside(f"{name} with keywords or *", node)
        match name, node.args:
            case "any" | "all", [ast.ListComp() as made]:
                return self._quantified(name, list(self.comprehended(made.elt, made.generators, when)))
            case "any" | "all", [ast.GeneratorExp() as made]:
                return self._until_decided(name, made, when)
            case "sum", [ast.GeneratorExp() as made, *start]:
                total: Value = self.value(start[0], when) if start else 0
                for condition, value in self.comprehended(made.elt, made.generators, when):
                    more = self.binary(ast.Add(), total, value, all_of((when, condition)))
                    total = more if condition is True else merge([(condition, more), (negated(condition), total)])
                return total
            case "list" | "tuple" | "min" | "max" | "sorted", [ast.GeneratorExp() as made]:
                whole = ast.copy_location(ast.ListComp(made.elt, made.generators), made)
                return self._applied(name, [self.value(whole, when)], node, when)
        if any(isinstance(arg, ast.GeneratorExp) for arg in node.args):
            raise Outside(f"a generator given to {name}", node)
        if name in ITERATORS and id(node) not in self.iterables:
            raise Outside(f"what {name} gives as a value: it is used up by what goes through it", node)
        compared = name in ("max", "min") and len(node.args) > 1  # with each other, as they are
        take = self.iterated if name in _GO_THROUGH and not compared else self.value
        return self._applied(name, [take(arg, when) for arg in node.args], node, when)

    def iterated(self, node: ast.expr, when: Term = True) -> Value:
        """The value of an expression that something goes through from here, once."""
        self.iterables.add(id(node))
        return self.value(node, when)

    def _until_decided(self, name: str, made: ast.GeneratorExp, when: Term) -> Term:
        """``any`` or ``all`` of a generator: what comes after the element that decides is not evaluated."""
        undecided: list[Term] = []
        for condition, value in self.comprehended(made.elt, made.generators, when, lambda: all_of(undecided)):
            true = self.truth(value)
            undecided.append(negated(all_of((condition, true if name == "any" else negated(true)))))
        return negated(all_of(undecided)) if name == "any" else all_of(undecided)

    def _quantified(self, name: str, made: Iterable[tuple[Term, Value]]) -> Term:
        if name == "any":
            return any_of(all_of((condition, self.truth(value))) for condition, value in made)
        return all_of(any_of((negated(condition), self.truth(value))) for condition, value in made)

    def _applied(self, name: str, arguments: list[Value], node: ast.Call, when: Term) -> Value:
        match name, arguments:
            case "abs" | "int" | "float" | "bool", [value]:
                return spread([value], lambda c, v: self._number(name, v[0], all_of((when, c))))
            case "int", []:
                return 0
            case "divmod", [left, right]:
                parts = [self.binary(op, left, right, when) for op in (ast.FloorDiv(), ast.Mod())]
                return Items(tuple(parts))
            case "pow", [left, right]:
                return self.binary(ast.Pow(), left, right, when)
            case "min" | "max", [_, _, *_]:
                return self.extreme(name, arguments, when)
            case "range", [_, *_] if len(arguments) <= 3:
                return self.range(arguments, when)
            case "any" | "all", [items]:
                return self._quantified(name, self.elements(items, when, node))
        return self.of_items(name, arguments, node, when)

    def _number(self, name: str, value: Value, when: Term) -> Value:
        if name == "bool":
            return self.truth(value)
        if isinstance(value, str):
            raise Outside(f"{name} of a text")
        if not is_number(value):
            self.fail("TypeError", when)
            return 0
        if name == "abs":
            return arithmetic.absolute(value)
        if name == "float":
            self.inexact()
            return as_real(value)
        return arithmetic.whole(value)

    def extreme(self, name: str, values: Sequence[Value], when: Term) -> Value:
        """The least or greatest of some values; the first of equal ones."""
        best, *rest = values
        for value in rest:
            better = self.compare(ast.Lt() if name == "min" else ast.Gt(), value, best, when)
            best = merge([(better, value), (negated(better), best)])
        return best

    def index_of(self, value: Value, when: Term) -> Value:
        """An index; what is no whole number raises."""
        if is_real(value) or not is_number(value):
            self.fail("TypeError", when)
            return 0
        return as_int(value)
