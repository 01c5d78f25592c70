"""Values that stay as they are."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from sandbox_kernel.frozen import Frozen


class Place(Frozen):
    """A value."""

    name: str
    size: int = 3


class Room(Place):
    """Another kind of it."""

    doors: tuple[str, ...] = ()


def test_fields_come_by_place_by_name_and_by_default() -> None:
    assert Place("a").to_dict() == {"name": "a", "size": 3}
    assert Room("a", doors=("d",)).to_dict() == {"name": "a", "size": 3, "doors": ("d",)}
    assert list(Place(size=1, name="b").to_dict()) == ["name", "size"]


@pytest.mark.parametrize("values", [(), ("a", 1, 2)])
def test_values_too_many_or_too_few_are_an_error(values: tuple[Any, ...]) -> None:
    make: Callable[..., Place] = Place
    with pytest.raises(TypeError):
        make(*values)


@pytest.mark.parametrize("named", [{"colour": 1}, {"name": "b"}])
def test_a_name_that_is_no_field_or_was_given_by_place_is_an_error(named: dict[str, Any]) -> None:
    make: Callable[..., Place] = Place
    with pytest.raises(TypeError):
        make("a", **named)


def test_nothing_can_be_changed() -> None:
    place: Any = Place("a")
    with pytest.raises(AttributeError):
        place.name = "b"
    with pytest.raises(AttributeError):
        place.colour = "red"
    with pytest.raises(AttributeError):
        del place.name
    assert place.replace(name="b") == Place("b") != place


def test_equal_means_the_same_kind_with_the_same_values() -> None:
    assert Place("a") == Place("a", 3)
    assert hash(Place("a")) == hash(Place("a", 3))
    assert Place("a") != Place("a", 4)
    assert Place("a") != Room("a")
    assert len({Place("a"), Place("a"), Place("b")}) == 2


def test_a_value_can_be_read_and_pickled() -> None:
    assert repr(Place("a")) == "Place(name='a', size=3)"
    assert pickle.loads(pickle.dumps(Place("a", 5))) == Place("a", 5)
