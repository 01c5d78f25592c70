"""What the tools take: one class for each, whose docstring is what the model reads about it."""

from __future__ import annotations

import inspect
import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

CODE_CHARS = 1_000_000
PATH_CHARS = 4096
FILE_CHARS = 24_000_000  # as text or base64, on its way in

Session = Annotated[str, Meta(max_length=100, description="Name of the session, as an earlier answer gave it; empty: "
                              "your own, or a new one where you have none")]  # fmt: skip
Name = Annotated[str, Meta(min_length=1, max_length=200, description="Name of a variable")]


class Arguments(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What every tool takes."""

    session: Session = ""


class RunCode(Arguments, frozen=True, kw_only=True):
    """Run Python in the sandbox, as a notebook cell.

    Variables, imports and files stay from one call to the next. The value of the last expression is shown; figures of
    matplotlib come back as images. Magics (%timeit, !ls) and top-level await work. The network and the machine's other
    files are out of reach. An error comes back as its traceback; the last line says whether the variables were kept,
    restored (as they were after an earlier cell) or lost.
    """

    code: Annotated[str, Meta(max_length=CODE_CHARS, description="Python source")]
    timeout: Annotated[float, Meta(ge=0, le=86_400, description="Seconds that it may take; 0: what the server allows, "
                                   "which always holds")] = 0.0  # fmt: skip


class PutFile(Arguments, frozen=True, kw_only=True):
    """Write a file into the sandbox; folders on the way are made. Cells open it by the same path."""

    path: Annotated[str, Meta(min_length=1, max_length=PATH_CHARS, description="From the folder that cells start in, "
                              "such as data/sales.csv")]  # fmt: skip
    content: Annotated[str, Meta(max_length=FILE_CHARS, description="The whole content")]
    encoding: Annotated[Literal["text", "base64"], Meta(description="How the content is given")] = "text"


class GetFile(Arguments, frozen=True, kw_only=True):
    """Read a file of the sandbox: text (long ones: head and tail), a picture, or other content as it is."""

    path: Annotated[str, Meta(min_length=1, max_length=PATH_CHARS, description="From the folder that cells start in")]


class ListFiles(Arguments, frozen=True, kw_only=True):
    """The names in a folder of the sandbox, with the sizes of files."""

    path: Annotated[str, Meta(min_length=1, max_length=PATH_CHARS, description="The folder")] = "."


class ListVariables(Arguments, frozen=True, kw_only=True):
    """The variables of the session with their types and sizes."""


class DescribeFrame(Arguments, frozen=True, kw_only=True):
    """Describe a table or array without printing all of it: columns, types, missing values, figures, first rows."""

    name: Name


class Checkpoint(Arguments, frozen=True, kw_only=True):
    """Keep the state of the variables under a name, to go back to it later with rollback."""

    name: Annotated[str, Meta(min_length=1, max_length=64, description="A letter, then letters, digits and _.-")]


class Rollback(Arguments, frozen=True, kw_only=True):
    """Undo the last cells, or go back to a checkpoint: the variables become what they were. Files stay as they are."""

    cells: Annotated[int, Meta(ge=1, le=1000, description="How many cells to undo")] = 1
    checkpoint: Annotated[str, Meta(max_length=64, description="Name of a checkpoint to go back to instead")] = ""


class Fork(Arguments, frozen=True, kw_only=True):
    """Start a further session with the same variables and files, to try something there; this one stays as it is."""


class Keep(Arguments, frozen=True, kw_only=True):
    """Go on with the variables of a fork in place of this session's own; the fork ends."""

    fork: Annotated[str, Meta(min_length=1, max_length=100, description="The session that fork has named")]


class Reset(Arguments, frozen=True, kw_only=True):
    """Start the session afresh: all variables are gone. Files stay."""


class EndSession(Arguments, frozen=True, kw_only=True):
    """End the session with its variables and its files, and make room for another."""


def schema(kind: type[Arguments]) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments."""
    _, components = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    found = dict(components[kind.__name__])
    found.pop("title", None)
    found.pop("description", None)
    found.setdefault("required", [])
    return found


def description(kind: type[Arguments]) -> str:
    """What the model is told about a tool."""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(kind) or "")


def parsed(kind: type[Arguments], given: Any) -> Any:
    """The arguments of a call, checked.

    Raises:
        ValueError: one is missing, unknown, of the wrong type or out of bounds; the text says which.
    """
    try:
        return msgspec.convert(given, kind, strict=True)
    except (msgspec.ValidationError, RecursionError) as error:
        text = str(error)[:500].replace("`$.", "`").replace("Object", "The call")
        raise ValueError(f"The arguments do not fit: {text}.") from None
