"""What the decoder has made of a payload, as a plan: for the next frame of the same bytes but for its buffers.

A table that comes again, or another one of the same columns and length, has the same payload; only its buffers are new.
To go through the payload's opcodes takes as long as to build a small table. A plan holds what can never change
(`CONSTANTS`), in the order in which the constructors were called; these check all that they are given, each time anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .receiver import Buffer, Malformed, Receiver

CONSTANTS = frozenset({type(None), bool, int, float, str, bytes})
_PAYLOAD_BYTES = 1024  # a longer one takes longer to compare
_PLANS = 64
_plans: dict[bytes, Any] = {}  # payload -> `_Call`; `_SEEN` once it was decoded, `_NONE` when there can be no plan
_SEEN, _NONE = "seen", "none"


class _Buffer:
    """Stands for a buffer, by its number."""

    def __init__(self, number: int) -> None:
        self._number = number

    def build(self, _receiver: Receiver, views: Sequence[memoryview]) -> Buffer:
        return Buffer(views[self._number])


class _Tuple:
    """Stands for a tuple in which other than constants are."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self._parts = parts

    def build(self, receiver: Receiver, views: Sequence[memoryview]) -> Any:
        return tuple([part.build(receiver, views) if type(part) in _BUILT else part for part in self._parts])


class _Call(_Tuple):
    """Stands for what a constructor returned."""

    def __init__(self, construct: Callable[..., Any], parts: Sequence[Any]) -> None:
        super().__init__(parts)
        self._construct = construct

    def build(self, receiver: Receiver, views: Sequence[memoryview]) -> Any:
        return self._construct(receiver, *super().build(receiver, views))


_BUILT = frozenset({_Buffer, _Tuple, _Call})


class Recorder:
    """Follows the decoder through one payload."""

    def __init__(self) -> None:
        # By address. They are held: one that is gone could leave its address to another.
        self._known: dict[int, tuple[Any, Any]] = {}
        self.fits = True

    def buffer(self, buffer: Buffer, number: int) -> None:
        """This one was put on the stack."""
        self._known[id(buffer)] = buffer, _Buffer(number)

    def called(self, construct: Callable[..., Any], arguments: tuple[Any, ...], value: Any) -> None:
        """A constructor returned this value."""
        parts = [self._part(argument) for argument in arguments]
        self._known[id(value)] = value, _Call(construct, parts)

    def _part(self, value: Any) -> Any:
        known = self._known.get(id(value))
        if known is not None:
            return known[1]
        if type(value) is tuple:
            parts = [self._part(item) for item in value]
            return _Tuple(parts) if any(type(part) in _BUILT for part in parts) else value
        self.fits = self.fits and type(value) in CONSTANTS
        return value

    def keep(self, payload: bytes, value: Any) -> None:
        """The payload has been decoded to this value: its plan is there from now on, if it can have one."""
        part = self._part(value)
        _plans[payload] = part if self.fits and type(part) in _BUILT else _NONE


def recorder(payload: bytes) -> Recorder | None:
    """What is to follow the decoder: for a payload that comes for the second time."""
    if len(payload) > _PAYLOAD_BYTES:
        return None
    if _plans.get(payload) is _SEEN:
        return Recorder()
    if payload not in _plans:
        if len(_plans) >= _PLANS:
            _plans.clear()
        _plans[payload] = _SEEN
    return None


def build(payload: bytes, views: Sequence[memoryview], receiver: Receiver) -> Any:
    """The value of a payload that has a plan; None for any other, and when a constructor does not like something.

    (The decoder then says what.)
    """
    plan = _plans.get(payload, _NONE)
    if type(plan) not in _BUILT:
        return None
    try:
        value = plan.build(receiver, views)
        if receiver.taken != len(views):
            raise Malformed("it has buffers that it does not use")
        receiver.settle()
    except Exception:
        return None
    return value
