"""Lists, tuples and ranges with values that may be symbolic. Their lengths are known, or one of a few."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from .state import State
from .subset import Outside, Program
from .values import (
    Items,
    ListRef,
    Range,
    Term,
    Value,
    all_of,
    alternatives,
    any_of,
    as_int,
    is_int,
    is_number,
    is_real,
    kind_of,
    merge,
    negated,
    spread,
)

_MOST_ITEMS = 256


class Sequences:
    """What an execution needs of sequences; `Expressions` and `Execution` give the rest."""

    program: Program
    state: State
    locals: set[str]
    inner_names: list[dict[str, Value]]
    bound: int
    iterables: set[int]  # expressions, by id(), that something goes through
    snapshots: set[int]  # lists of which enumerate, zip and reversed have taken the elements

    # Given by the classes that build on this one.
    value: Any
    fail: Any
    binary: Any
    compare: Any
    extreme: Any
    index_of: Any
    unpack: Any
    possible: Any
    cut: Any
    inexact: Any
    tick: Any
    inlined: Any
    constant: Any
    new_number: Any
    quotient: Any

    # ------------------------------------------------------------ lists

    def new_list(self, items: tuple[Value, ...]) -> ListRef:
        if len(items) > _MOST_ITEMS:
            raise Outside("a list this long")
        number = self.new_number()
        self.state.heap[number] = Items(items, "list")
        return ListRef(number)

    def held(self, value: Value) -> Iterator[tuple[Term, Items | Range]]:
        """(condition, what it holds) of a sequence without choice.

        Raises:
            Outside: the value is no sequence.
        """
        if isinstance(value, ListRef):
            yield from alternatives(self.state.heap[value.number])
        elif isinstance(value, (Items, Range)):
            yield True, value
        else:
            raise Outside(f"a {kind_of(value)} as a sequence")

    def length(self, value: Value) -> Value:
        """``len(value)`` of a value without choice."""
        return merge([(c, self._length(items)) for c, items in self.held(value)])

    def _len(self, value: Value, when: Term) -> Value:
        if value is None or is_number(value):
            self.fail("TypeError", when)
            return 0
        return self.length(value)

    def _length(self, items: Items | Range) -> Value:
        if isinstance(items, Items):
            return len(items.items)
        start, stop, step = items.start, items.stop, items.step
        if isinstance(start, int) and isinstance(stop, int):
            return len(range(start, stop, step))
        if step > 0:
            return merge([(stop > start, (stop - start + (step - 1)) / step), (stop <= start, 0)])
        return merge([(start > stop, (start - stop + (-step - 1)) / -step), (start <= stop, 0)])

    def item(self, owner: Value, index: Value, when: Term) -> Value:
        """``owner[index]``."""
        return spread([owner, index], lambda c, v: self._item(v[0], v[1], all_of((when, c))))

    def _item(self, owner: Value, index: Value, when: Term) -> Value:
        if owner is None or is_number(owner):
            self.fail("TypeError", when)
            return 0
        index = self.index_of(index, when)
        found = [(c, self._at(items, index, all_of((when, c)))) for c, items in self.held(owner)]
        return merge(found)

    def _at(self, items: Items | Range, index: Value, when: Term) -> Value:
        if isinstance(items, Range):
            length = self._length(items)
            self.fail("IndexError", all_of((when, any_of((index >= length, index < -length)))))
            place = merge([(index >= 0, index), (index < 0, index + length)])
            return items.start + place * items.step
        length = len(items.items)
        if isinstance(index, int):
            if not -length <= index < length:
                self.fail("IndexError", when)
                return 0
            return items.items[index]
        self.fail("IndexError", all_of((when, any_of((index >= length, index < -length)))))
        if not length:
            return 0
        return merge([(self.place_is(index, k, length), each) for k, each in enumerate(items.items)])

    @staticmethod
    def place_is(index: Value, place: int, length: int) -> Term:
        """Whether an index means this place, from the front or the back."""
        if isinstance(index, int):
            return index in (place, place - length)
        return any_of((index == place, index == place - length))

    def store(self, owner: Value, index: Value, value: Value, when: Term) -> None:
        """``owner[index] = value``."""
        for c, each in alternatives(owner):
            reached = all_of((when, c))
            if not isinstance(each, ListRef):
                self.fail("TypeError", reached)
                continue
            if isinstance(index, (int, bool)) or is_int(as_int(index)):
                self._store(each, as_int(index), value, reached)
            else:
                raise Outside("an index that is no whole number")

    def _store(self, owner: ListRef, index: Value, value: Value, when: Term) -> None:
        changed = []
        for c, items in self.held(owner):
            if not isinstance(items, Items):
                raise Outside("an assignment to an item of a range")
            length, reached = len(items.items), all_of((when, c))
            outside = any_of((index >= length, index < -length))
            self.fail("IndexError", all_of((reached, outside)))
            new = []
            for place, old in enumerate(items.items):
                here = all_of((when, self.place_is(index, place, length)))
                new.append(merge([(here, value), (negated(here), old)]))
            changed.append((c, Items(tuple(new), "list")))
        self.state.heap[owner.number] = merge(changed)

    def sliced(self, owner: Value, part: ast.Slice, when: Term) -> Value:
        """``owner[lower:upper:step]``, with known numbers."""
        limits = [self.value(each, when) if each is not None else None for each in (part.lower, part.upper, part.step)]
        if any(limit is not None and not isinstance(limit, int) for limit in limits):
            raise Outside("a slice whose ends are not known", part)
        if limits[2] == 0:
            self.fail("ValueError", when, part)
            return Items(())
        return spread([owner], lambda _c, v: self._sliced(v[0], slice(*limits)))

    def _sliced(self, owner: Value, part: slice) -> Value:
        found = [(c, items) for c, items in self.held(owner)]
        if any(isinstance(items, Range) for _, items in found):
            raise Outside("a part of a range")
        if isinstance(owner, ListRef):
            number = self.new_number()
            self.state.heap[number] = merge([(c, Items(items.items[part], "list")) for c, items in found
                                             if isinstance(items, Items)])  # fmt: skip
            return ListRef(number)
        return merge([(c, Items(items.items[part])) for c, items in found if isinstance(items, Items)])

    def joined(self, op: ast.operator, left: Value, right: Value, when: Term) -> Value:
        """``left + right`` and ``left * number`` of lists or tuples."""
        one, two = (self._known(each) for each in (left, right))
        if isinstance(op, ast.Add) and one is not None and two is not None:
            if one.kind != two.kind:
                self.fail("TypeError", when)
                return 0
            both = one.items + two.items
            return self.new_list(both) if one.kind == "list" else Items(both)
        items, times = (one, right) if one is not None else (two, left)
        if isinstance(op, ast.Mult) and items is not None and isinstance(times, int):
            if len(items.items) * times > _MOST_ITEMS:
                raise Outside("a list this long")
            many = items.items * times
            return self.new_list(many) if items.kind == "list" else Items(many)
        raise Outside("this operation on lists or tuples whose length is not known")

    def _known(self, value: Value) -> Items | None:
        """What a sequence of one known length holds, None for other values."""
        if not isinstance(value, (ListRef, Items)):
            return None
        found = [items for _, items in self.held(value)]
        if len(found) != 1 or not isinstance(found[0], Items):
            raise Outside("a list whose length is not known")
        return found[0]

    def contains(self, items: Value, value: Value, when: Term) -> Term:
        """``value in items`` for items without choice."""
        if isinstance(items, Range):
            parts = []
            for c, each in alternatives(value):
                if is_real(each) or not is_int(as_int(each)):
                    raise Outside("`in` a range for what is no whole number")
                number, (low, high) = as_int(each), self._ends(items)
                near = all_of((low <= number, number <= high, (number - items.start) % abs(items.step) == 0))
                parts.append(all_of((c, near)))
            return any_of(parts)
        return any_of(all_of((c, self.compare(ast.Eq(), each, value, all_of((when, c)))))
                      for c, found in self.held(items) if isinstance(found, Items) for each in found.items)  # fmt: skip

    @staticmethod
    def _ends(items: Range) -> tuple[Value, Value]:
        return (items.start, items.stop - 1) if items.step > 0 else (items.stop + 1, items.start)

    # ------------------------------------------------------------ one after the other

    def range(self, arguments: Sequence[Value], when: Term) -> Value:
        """``range(...)``."""
        numbers = []
        for argument in arguments:
            for c, each in alternatives(argument):
                if is_real(each) or not is_int(as_int(each)):
                    self.fail("TypeError", all_of((when, c)))
            numbers.append(as_int(argument) if is_int(as_int(argument)) else 0)
        start, stop, step = ([0, numbers[0], 1] if len(numbers) == 1 else [*numbers, 1])[:3]
        if not isinstance(step, int):
            raise Outside("a range whose step is not known")
        if step == 0:
            self.fail("ValueError", when)
            step = 1
        return Range(start, stop, step)

    def count_of(self, value: Value, when: Term) -> Value:
        """How many elements a value has when it is iterated over."""
        return spread([value], lambda _c, v: self.length(v[0]))

    def elements(self, value: Value, when: Term, node: ast.AST) -> Iterator[tuple[Term, Value]]:
        """(condition under which it is there, element), up to the bound; what lies beyond is cut off."""
        length, place = self.count_of(value, when), 0
        while True:
            present = length > place
            if present is False or (present is not True and not self.possible(all_of((when, present)))):
                return
            if place >= (self.bound if not isinstance(length, int) else _MOST_ITEMS):
                self.cut(all_of((when, present)), node)
                return
            yield present, self.element(value, place, all_of((when, present)))
            place += 1

    def element(self, value: Value, place: int, when: Term) -> Value:
        """The element at a place that is there whenever ``when`` holds."""
        found = []
        for c, each in alternatives(value):
            for inner, items in self.held(each):
                both = all_of((c, inner))
                if isinstance(items, Range):
                    found.append((both, items.start + place * items.step))
                elif place < len(items.items):
                    found.append((both, items.items[place]))
        return merge(found) if found else 0

    def of_items(self, name: str, arguments: Sequence[Value], node: ast.Call, when: Term) -> Value:
        """Built-in functions of one sequence."""
        if name in ("list", "tuple") and not arguments:
            return self.new_list(()) if name == "list" else Items(())
        if name == "len" and len(arguments) == 1:
            return spread(arguments, lambda c, v: self._len(v[0], all_of((when, c))))
        if name in ("list", "tuple", "sorted", "min", "max", "reversed") and len(arguments) == 1:
            return spread(arguments, lambda c, v: self._whole(name, v[0], node, all_of((when, c))))
        if name == "sum" and len(arguments) in (1, 2):
            total: Value = arguments[1] if len(arguments) == 2 else 0
            for present, value in self.elements(arguments[0], when, node):
                more = self.binary(ast.Add(), total, value, all_of((when, present)))
                total = more if present is True else merge([(present, more), (negated(present), total)])
            return total
        if name == "enumerate" and len(arguments) == 1:
            pairs = [Items((place, each)) for place, each in enumerate(self._all(arguments[0]))]
            return Items(tuple(pairs))
        if name == "zip":
            return Items(tuple(Items(row) for row in zip(*(self._all(each) for each in arguments), strict=False)))
        raise Outside(f"{name} with these arguments", node)

    def _all(self, value: Value) -> tuple[Value, ...]:
        """Every element of a sequence of one known length."""
        if isinstance(value, Range):
            count = self._length(value)
            if isinstance(count, int) and count <= _MOST_ITEMS:
                return tuple(value.start + place * value.step for place in range(count))
            raise Outside("a range whose length is not known")
        known = self._known(value)
        if known is None:
            raise Outside(f"a {kind_of(value)} as a sequence")
        if isinstance(value, ListRef):
            self.snapshots.add(value.number)
        return known.items

    def _whole(self, name: str, value: Value, node: ast.Call, when: Term) -> Value:
        """`list`, `tuple`, `sorted`, `min`, `max`, `reversed` of a sequence."""
        if isinstance(value, ListRef):
            several = list(self.held(value))
            if len(several) > 1:
                held = self.state.heap[value.number]
                return spread([held], lambda c, v: self._whole(name, v[0], node, all_of((when, c))))
        items = self._all(value)
        match name:
            case "list":
                return self.new_list(items)
            case "tuple":
                return Items(items)
            case "reversed":
                return Items(items[::-1])
            case "sorted":
                return self.new_list(self._sorted(items, when))
        if not items:
            self.fail("ValueError", when, node)
            return 0
        return self.extreme(name, items, when)

    def _sorted(self, items: tuple[Value, ...], when: Term) -> tuple[Value, ...]:
        """Sorted by exchanging neighbours: the same steps whatever the values are."""
        row = list(items)
        for end in range(len(row) - 1, 0, -1):
            for k in range(end):
                swap = self.compare(ast.Gt(), row[k], row[k + 1], when)
                low, high = row[k], row[k + 1]
                row[k] = merge([(swap, high), (negated(swap), low)])
                row[k + 1] = merge([(swap, low), (negated(swap), high)])
        return tuple(row)

    # ------------------------------------------------------------ methods

    def method(self, owner: Value, name: str, node: ast.Call, when: Term) -> Value:
        """A method of a list."""
        if not isinstance(owner, ListRef) or node.keywords:
            raise Outside(f"the method {name} of a {kind_of(owner)}", node)
        arguments = [self.value(argument, when) for argument in node.args]
        if name not in ("copy", "count") and (when is not True or self.inner_names):
            raise Outside(f"the method {name} in the midst of an expression", node)
        match name, arguments:
            case "append", [value]:
                return self._change(owner, lambda items: (*items, value))
            case "reverse", []:
                return self._change(owner, lambda items: items[::-1])
            case "sort", []:
                return self._change(owner, lambda items: self._sorted(items, when))
            case "copy", []:
                return self._sliced(owner, slice(None))
            case "extend", [other]:
                more = self._all(other)
                return self._change(owner, lambda items: items + more)
            case "pop", [] | [int()]:
                place = arguments[0] if arguments else -1
                value = self.item(owner, place, when)
                self._change(owner, lambda items: _without(items, place))
                return value
            case "count", [value]:
                found = [(c, self._count(items, value, all_of((when, c)))) for c, items in self.held(owner)]
                return merge(found)
        raise Outside(f"the method {name} with these arguments", node)

    def _change(self, owner: ListRef, change: Any) -> None:
        changed = [(c, Items(tuple(change(items.items)), "list"))
                   for c, items in self.held(owner) if isinstance(items, Items)]  # fmt: skip
        self.state.heap[owner.number] = merge(changed)

    def _count(self, items: Items | Range, value: Value, when: Term) -> Value:
        if not isinstance(items, Items):
            raise Outside("count of a range")
        total: Value = 0
        for each in items.items:
            total = self.binary(ast.Add(), total, self.compare(ast.Eq(), each, value, when), when)
        return total


def _without(items: tuple[Value, ...], place: int) -> tuple[Value, ...]:
    if not -len(items) <= place < len(items):
        return items
    place %= len(items)
    return items[:place] + items[place + 1 :]
