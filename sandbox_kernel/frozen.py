"""Values with named fields that nobody changes, as of a frozen dataclass, for what is imported at each start.

`dataclasses` compiles half a dozen functions for each class, up to 2 ms. Here all classes share these.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self, dataclass_transform


@dataclass_transform(frozen_default=True)
class Frozen:
    """Base class. Fields are the annotated names, a value in the class is the default; equal when all fields are.

    Raises:
        TypeError: an argument too many or too few.
        AttributeError: a field is set.
    """

    _fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls._fields = (*cls._fields, *(name for name in cls.__annotations__ if name not in cls._fields))

    def __init__(self, *values: Any, **named: Any) -> None:
        fields, kind = self._fields, type(self)
        if len(values) > len(fields):
            raise TypeError(f"{kind.__name__} takes {len(fields)} values, not {len(values)}")
        found = dict(zip(fields, values, strict=False))
        for name in fields[len(values) :]:
            if name in named:
                found[name] = named.pop(name)
            elif hasattr(kind, name):
                found[name] = getattr(kind, name)
            else:
                raise TypeError(f"{kind.__name__} needs a value for {name!r}")
        if named:
            raise TypeError(f"{kind.__name__} has no field {min(named)!r} left to be set")
        self.__dict__.update(found)

    def replace(self, **changes: Any) -> Self:
        """The same with other values in these fields."""
        return type(self)(**{**self.__dict__, **changes})

    def to_dict(self) -> dict[str, Any]:
        """Values by field, in the order of the class."""
        return dict(self.__dict__)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name!r} cannot be set: a {type(self).__name__} stays as it is")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{name!r} cannot be deleted: a {type(self).__name__} stays as it is")

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__.values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"
