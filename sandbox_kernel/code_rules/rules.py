"""The rules as plain data, and what a breach of one is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from ..errors import PolicyRefusal, inert

if TYPE_CHECKING:
    from ..policy import Code

SHOWN = 5
_WORD = re.compile(r"[\w*]+(\.[\w*]+)*")


@dataclass(frozen=True)
class CodeRules:
    """What code may say. The defaults forbid nothing.

    Modules and names are dotted; ``*`` stands for any text (dots, too); a module stands for everything below it.

    Attributes:
        imports_allow: modules that may be imported; ``("*",)`` is all of them.
        imports_deny: modules that may not, whatever `imports_allow` says.
        forbid: names (``eval``), attribute paths (``os.system``) and keywords (``while``) that may not occur.
        builtins_remove: built-in names that do not exist for this code.
        max_code_chars: longest code, in characters; 0 is no limit.
        functions_only: at top level only imports, definitions and a docstring.
        deny_dunders: no attributes that lead to Python's inside (``__globals__``, ``f_back``), in format strings
            neither.
    """

    imports_allow: tuple[str, ...] = ("*",)
    imports_deny: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()
    builtins_remove: tuple[str, ...] = ()
    max_code_chars: int = 0
    functions_only: bool = False
    deny_dunders: bool = False

    @classmethod
    def from_policy(cls, code: Code) -> CodeRules:
        """The rules of a policy's ``[code]`` table."""
        return cls(
            code.imports_allow, code.imports_deny, code.forbid, code.builtins_remove, code.max_code_chars,
            code.functions_only, code.dunder_attributes == "deny",
        )  # fmt: skip

    def __post_init__(self) -> None:
        for name in ("imports_allow", "imports_deny", "forbid", "builtins_remove"):
            value = getattr(self, name)
            if isinstance(value, str) or not all(isinstance(word, str) and _WORD.fullmatch(word) for word in value):
                raise ValueError(f"{name} is a sequence of dotted names, in which * stands for any text, not {value!r}")
            object.__setattr__(self, name, tuple(value))

    def __bool__(self) -> bool:
        """Whether there is any rule."""
        return any(getattr(self, field.name) != field.default for field in fields(self))

    @property
    def restricts_imports(self) -> bool:
        """Whether there is a module that may not be imported."""
        return self.imports_allow != ("*",) or bool(self.imports_deny)


@dataclass(frozen=True)
class Violation:
    """One place where code breaks a rule.

    Attributes:
        line: from 1.
        column: in characters, from 1.
        rule: the rule's name in the policy, such as ``code.imports.deny``.
        message: what is wrong, as a sentence.
        instead: what to use instead, as a sentence; "" where there is nothing to say.
    """

    line: int
    column: int
    rule: str
    message: str
    instead: str = ""

    def __str__(self) -> str:
        text = f"line {self.line}, column {self.column}: {self.message} ({self.rule}) {self.instead}"
        return inert(text.rstrip())  # (it names what the code names)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def refusal(violations: Sequence[Violation]) -> PolicyRefusal | None:
    """The error that stands in the place of running code with these violations; None when there are none."""
    if not violations:
        return None
    first = violations[0]
    if len(violations) == 1:
        text = f"L{str(first)[1:]}"
    else:
        lines = [f"  {violation}" for violation in violations[:SHOWN]]
        if len(violations) > SHOWN:
            lines.append(f"  and {len(violations) - SHOWN} more")
        text = "\n".join([f"The policy's rules for code are broken in {len(violations)} places:", *lines])
    error = PolicyRefusal(
        f"{text}{chr(10) if len(violations) > 1 else ' '}Nothing of this cell was run.", rule=first.rule,
        line=first.line, column=first.column, violations=[violation.to_dict() for violation in violations],
    )  # fmt: skip
    error.state = "kept"
    return error
