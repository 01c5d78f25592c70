"""The receiving half: a strict decoder of a small part of the pickle format.

It reads what `reduce` writes and nothing else. There is no memo, so what it builds is a tree and never larger than
the bytes that describe it times a constant; there is no opcode that changes an object after it was constructed; a
name is looked up in a table of eight and never imported. `pickle.Unpickler` cannot be used for this: its memo, its
length fields and its hashing can be turned against it before any `find_class` is asked.
"""

from __future__ import annotations

import importlib
import re
import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any

from ..errors import FrameRefused, size_text
from . import plans
from .grammar import CONTAINER_BYTES, CONTAINER_BYTES_PER_BYTE, DEFAULT_BUDGET, DEPTH, FLAT, INTEGER_BYTES, Budget
from .receiver import Buffer, Bytes, Malformed, Receiver, TooMuch


class Name:
    """A name on the stack: good for one call, never a value."""

    __slots__ = ("construct", "module", "word")

    def __init__(self, word: str, module: str) -> None:
        self.word = word
        self.module = module
        self.construct: Callable[..., Any] | None = None

    def load(self) -> Callable[..., Any]:
        """The constructor. If numpy and pandas are not imported yet, the first frame that needs them does it."""
        module = importlib.import_module(f"{__package__}.{self.module}")
        self.construct = getattr(module, f"build_{self.word}")
        return self.construct


_NAMES_MODULE = f"{__package__}.names"
CONSTRUCTORS: dict[tuple[str, str], Name] = {
    (_NAMES_MODULE, word): Name(word, module)
    for word, module in {
        "array": "construct_numpy", "objects": "construct", "extension": "construct_pandas",
        "index": "construct_pandas", "frame": "construct_pandas", "series": "construct_pandas",
        "value": "construct", "zone": "construct",
    }.items()
}  # fmt: skip
_NAME_BEGINS = b"%c%s\x8c" % (len(_NAMES_MODULE), _NAMES_MODULE.encode())  # and the length of its word follows
_BY_WORD = {word.encode(): name for (_, word), name in CONSTRUCTORS.items()}
for _name in CONSTRUCTORS.values():
    if sys.modules.get({"construct_numpy": "numpy", "construct_pandas": "pandas"}.get(_name.module, "sys")):
        _name.load()
# How a payload begins whose texts may have lone surrogates in them.
_SURROGATES = re.compile(
    rb"\x80\x05(?:\x95[\x00-\xff]{8})?\x8c%c%s\x8c\x05value\x93\x8c\x0asurrogates"
    % (len(_NAMES_MODULE), re.escape(_NAMES_MODULE.encode()))
)
_GROWING = frozenset({list, dict, set})


def loads(payload: Bytes, buffers: Iterable[Bytes] = (), *, budget: Budget = DEFAULT_BUDGET) -> Any:
    """See `sandbox_kernel.frames.loads`."""
    value, problem, in_order = _attempt(payload, buffers, budget)
    if problem:
        # Raised here, an error that somebody keeps does not keep what was half built.
        raise FrameRefused(problem, in_order=in_order)
    return value


def _attempt(payload: Bytes, buffers: Iterable[Bytes], budget: Budget) -> tuple[Any, str, bool]:
    """The value and an empty text, or None, what is wrong, and whether it may be a frame in order all the same."""
    in_order = False
    try:
        # A copy: what is checked below must not change any more.
        data = bytes(payload)
        views = [memoryview(buffer).cast("B") for buffer in buffers]
        size = len(data) + sum(map(len, views))
        if size > budget.wire_bytes:
            raise TooMuch(f"it has {size_text(size)}, and one frame may have {size_text(budget.wire_bytes)}")
        if len(data) <= budget.opcodes and (value := plans.build(data, views, Receiver(budget))) is not None:
            return value, "", True
        return _decode(data, views, Receiver(budget), budget.opcodes), "", True
    except ImportError as error:
        return None, f"this frame needs a package that is not installed here: {error.name}", True
    except MemoryError:
        return None, "there is too little memory here for this frame", True
    except Malformed as error:
        text, in_order = str(error), isinstance(error, TooMuch)
    except Exception as error:
        # Anything that a constructor says about its arguments, an index out of range, a truncated number.
        text = f"{type(error).__name__}: {error}"[:200]
    if in_order:
        return None, f"this frame is too much to be read here: {text}", True
    return None, f"this is not a frame, or one that was tampered with: {text}", False


_i4 = struct.Struct("<i").unpack_from
_u2 = struct.Struct("<H").unpack_from
_u4 = struct.Struct("<I").unpack_from
_u8 = struct.Struct("<Q").unpack_from
_f8 = struct.Struct(">d").unpack_from


def _decode(data: bytes, buffers: Sequence[memoryview], receiver: Receiver, steps: int) -> Any:
    size = len(data)
    if data[:2] != b"\x80\x05":
        raise Malformed("it does not begin as a pickle of protocol 5")
    strict = not _SURROGATES.match(data)
    errors = "strict" if strict else "surrogatepass"  # the longer call takes longer
    hashing = receiver.hashing
    room = CONTAINER_BYTES + CONTAINER_BYTES_PER_BYTE * size
    names = calls = used = 0
    stack: list[Any] = []
    marks: list[list[Any]] = []  # stacks below the open marks
    append = stack.append
    # The nesting of containers on the stack that hold other containers; all others hold none. An entry goes when
    # its container goes into another one, so an address in here is never that of an object that is gone.
    heights: dict[int, int] = {}
    rich = False  # whether something else than a flat scalar may be on the stack above the last mark
    made: dict[int, Any] = {}  # lists, dicts and sets that a constructor made: finished, no opcode may add to them

    def height(items: Iterable[Any]) -> int:
        """Of a container with these items."""
        top = 0
        for item in items:
            if type(item) not in FLAT:
                known = heights.pop(id(item), 1)
                if known > top:
                    top = known
        if top >= DEPTH:
            raise Malformed(f"values are nested more than {DEPTH} deep")
        return top + 1

    def check_target(target: Any, kind: type, items: Sequence[Any], nested: bool) -> None:
        """`target` is a container that `items` may go into; whether they may hold containers tells `nested`."""
        if type(target) is not kind or (made and id(target) in made):
            raise Malformed(f"it adds to something that is no {kind.__name__}, or a finished one")
        if nested:
            top = height(items)
            if top > heights.get(id(target), 1):
                heights[id(target)] = top

    position = 2
    recorder = plans.recorder(data)
    # Opcodes in the order of their frequency, letters first and then the others.
    for _ in repeat(None, steps):
        code = data[position]
        position += 1
        if code < 0x80:
            if code == 0x4B:  # BININT1
                append(data[position])
                position += 1
            elif code == 0x28:  # MARK
                if len(marks) > DEPTH:
                    raise Malformed(f"values are nested more than {DEPTH} deep")
                marks.append(stack)
                stack = []
                append = stack.append
                rich = False
            elif code == 0x4D:  # BININT2
                append(_u2(data, position)[0])
                position += 2
            elif code == 0x47:  # BINFLOAT
                append(_f8(data, position)[0])
                position += 8
            elif code == 0x74:  # TUPLE
                room -= 40 + 8 * len(stack)
                items = tuple(stack)
                stack = marks.pop()
                append = stack.append
                append(items)
                if rich and (nested := height(items)) > 1:
                    heights[id(items)] = nested
                rich = True
            elif code == 0x52:  # REDUCE
                arguments, name = stack.pop(), stack.pop()
                if type(name) is not Name or type(arguments) is not tuple:
                    raise Malformed("it calls something that has no name")
                calls += 1
                nested = heights.pop(id(arguments), 1)
                construct = name.construct or name.load()
                value = construct(receiver, *arguments)
                if recorder is not None:
                    recorder.called(construct, arguments, value)
                if nested > 1 and type(value) not in FLAT:
                    heights[id(value)] = nested
                if type(value) in _GROWING:
                    made[id(value)] = value
                append(value)
                rich = True
            elif code == 0x4E:  # NONE
                append(None)
            elif code == 0x7D:  # EMPTY_DICT
                room -= 64
                append({})
                rich = True
            elif code == 0x75:  # SETITEMS
                added, stack = stack, marks.pop()
                append = stack.append
                room -= 96 + 12 * len(added)
                if room < 0:
                    break
                target = stack[-1]
                check_target(target, dict, added, rich)
                hashing.update(target, added)
                rich = True
            elif code == 0x5D:  # EMPTY_LIST
                room -= 56
                append([])
                rich = True
            elif code == 0x65:  # APPENDS
                added, stack = stack, marks.pop()
                append = stack.append
                room -= 9 * len(added)
                target = stack[-1]
                check_target(target, list, added, rich)
                target.extend(added)
                rich = True
            elif code == 0x4A:  # BININT
                append(_i4(data, position)[0])
                position += 4
            elif code == 0x61:  # APPEND
                item = stack.pop()
                room -= 32
                target = stack[-1]
                check_target(target, list, (item,), type(item) not in FLAT)
                target.append(item)
            elif code == 0x73:  # SETITEM
                added = [stack.pop(-2), stack.pop()]
                room -= 120
                target = stack[-1]
                check_target(target, dict, added, True)
                hashing.update(target, added)
            elif code == 0x43:  # SHORT_BINBYTES
                end = position + 1 + data[position]
                if end > size:
                    raise Malformed("it is cut off")
                append(data[position + 1 : end])
                position = end
            elif code == 0x29:  # EMPTY_TUPLE
                append(())
            elif code == 0x2E:  # STOP
                break
            elif code in _LENGTHS:  # BINUNICODE, BINBYTES
                start, end = _extent(code, data, position)
                raw = data[start:end]
                append(raw.decode("utf-8", errors) if code == 0x58 else raw)
                position = end
            else:
                raise Malformed(f"it has the opcode {code:#04x}, which no frame needs")
        elif code == 0x8C:  # SHORT_BINUNICODE
            if data.startswith(_NAME_BEGINS, position):
                # The three opcodes of a name as one.
                start = position + len(_NAME_BEGINS) + 1
                end = start + data[start - 1]
                word_name = _BY_WORD.get(data[start:end])
                if word_name is not None and data[end] == 0x93:
                    names += 1
                    append(word_name)
                    rich = True
                    position = end + 1
                    continue
            end = position + 1 + data[position]
            if end > size:
                raise Malformed("it is cut off")
            append(data[position + 1 : end].decode() if strict else data[position + 1 : end].decode("utf-8", errors))
            position = end
        elif code == 0x88:  # NEWTRUE
            append(True)
        elif code == 0x89:  # NEWFALSE
            append(False)
        elif 0x85 <= code <= 0x87:  # TUPLE1, TUPLE2, TUPLE3
            count = code - 0x84
            room -= 64
            items = tuple(stack[-count:])
            if len(items) != count:
                raise Malformed("the stack is too short")
            del stack[-count:]
            append(items)
            if rich and (nested := height(items)) > 1:
                heights[id(items)] = nested
            rich = True
        elif code == 0x93:  # STACK_GLOBAL
            word, module = stack.pop(), stack.pop()
            name = CONSTRUCTORS.get((module, word)) if type(word) is str and type(module) is str else None
            if name is None:
                raise Malformed("it asks for something that no frame needs")
            names += 1
            append(name)
            rich = True
        elif code == 0x97:  # NEXT_BUFFER
            append(Buffer(buffers[used]))
            if recorder is not None:
                recorder.buffer(stack[-1], used)
            used += 1
            rich = True
        elif code == 0x98:  # READONLY_BUFFER
            if type(stack[-1]) is not Buffer:
                raise Malformed("it makes something else than a buffer read-only")
        elif code == 0x95:  # FRAME
            if _u8(data, position)[0] > size - position - 8:
                raise Malformed("it is cut off")
            position += 8
        elif code in _LENGTHS:  # BINUNICODE8, BINBYTES8, BYTEARRAY8, LONG1, LONG4
            start, end = _extent(code, data, position)
            raw = data[start:end]
            append(raw.decode("utf-8", errors) if code == 0x8D else _LENGTHS[code][2](raw))
            position = end
        elif code == 0x8F:  # EMPTY_SET
            room -= 216
            append(set())
            rich = True
        elif code == 0x90:  # ADDITEMS
            added, stack = stack, marks.pop()
            append = stack.append
            room -= 64 * len(added)
            if room < 0:
                break
            target = stack[-1]
            check_target(target, set, added, rich)
            hashing.add(target, added)
            rich = True
        elif code == 0x91:  # FROZENSET
            added, stack = stack, marks.pop()
            append = stack.append
            room -= 216 + 64 * len(added)
            if room < 0:
                break
            building: set[Any] = set()
            hashing.add(building, added)
            value = frozenset(building)
            append(value)
            if rich and (nested := height(added)) > 1:
                heights[id(value)] = nested
            rich = True
        else:
            raise Malformed(f"it has the opcode {code:#04x}, which no frame needs")
        if room < 0:
            break
    else:
        raise TooMuch(f"it takes more than {steps:,} steps")
    if room < 0:
        raise TooMuch("its containers take too much memory")
    if marks or len(stack) != 1 or position != size:
        raise Malformed("it does not end where its value ends")
    if names != calls or receiver.taken != used or used != len(buffers):
        raise Malformed("it has names or buffers that it does not use")
    receiver.settle()
    if recorder is not None:
        recorder.keep(data, stack[0])
    return stack[0]


def _integer(raw: bytes) -> int:
    if len(raw) > INTEGER_BYTES:
        raise Malformed("an int is too long")
    return int.from_bytes(raw, "little", signed=True)


def _u1(data: bytes, position: int) -> tuple[int]:
    return (data[position],)


def _extent(code: int, data: bytes, position: int) -> tuple[int, int]:
    """Where the data of an opcode with a length begins and ends."""
    unpack, width, _ = _LENGTHS[code]
    start = position + width
    end = start + unpack(data, position)[0]
    if end > len(data) or end < start:
        raise Malformed("it is cut off")
    return start, end


_LENGTHS: dict[int, tuple[Callable[[bytes, int], tuple[Any, ...]], int, Callable[[bytes], Any]]] = {
    0x58: (_u4, 4, bytes),
    0x8D: (_u8, 8, bytes),
    0x42: (_u4, 4, bytes),
    0x8E: (_u8, 8, bytes),
    0x96: (_u8, 8, bytearray),
    0x8A: (_u1, 1, _integer),
    0x8B: (_i4, 4, _integer),
}
