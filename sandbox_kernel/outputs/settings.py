"""What the operator decides about outputs, and what a message lost on its way through the gate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Literal

from ..frozen import Frozen

MIB = 1 << 20


def words(text: str) -> frozenset[str]:
    """The names in a list that is written as a text, for lists that are read more often than changed."""
    return frozenset(text.split())


_KIND_CHARS = 80
_KINDS_SHOWN, _KINDS_KEPT = 6, 200
_OTHERS = "further types"


class Settings(Frozen):
    """The ``[outputs]`` table of the policy, as the gate needs it. Sizes in bytes.

    Attributes:
        gate: "on"; "off": outputs pass as the stock kernel passes them, and the other settings have no meaning.
        html: "sanitise": script never reaches the page; "frame": HTML with script is shown in a sandboxed frame;
            "text": HTML is not shown, only the text beside it.
        widgets: "core": the models of ipywidgets itself; "off": none.
        comms: "any": comm messages of any target pass as data; "widgets": those of widgets only.
        mimetypes: further mimetypes that pass as they are; whatever in the page renders them is trusted with them.
        html_size: longest HTML that is cleaned; plain tables and text may be longer.
        image_size: of one picture, encoded.
    """

    gate: Literal["on", "off"] = "on"
    html: Literal["sanitise", "frame", "text"] = "sanitise"
    widgets: Literal["core", "off"] = "core"
    comms: Literal["any", "widgets"] = "any"
    mimetypes: tuple[str, ...] = ()
    html_size: int = 8 * MIB
    image_size: int = 20 * MIB


class Removed(Counter[str]):
    """What was taken out of outputs: kind -> how often.

    Kinds are words of ours, with a mimetype or a widget's module, which are the worker's: so only so many are kept
    apart, and what is counted of others is added to one that stands for them.
    """

    def __setitem__(self, kind: str, count: int) -> None:
        if kind not in self and len(self) >= _KINDS_KEPT:
            kind, count = _OTHERS, count + self[_OTHERS]
        super().__setitem__(kind, count)

    def add(self, others: Mapping[str, int]) -> None:
        """Count these as well."""
        for kind, count in others.items():
            self[kind] += count

    def note(self) -> str:
        """One line for the person who looks at the output; "" when nothing was taken out."""
        if not self:
            return ""
        kinds = [kind[:_KIND_CHARS] for kind in list(self)[:_KINDS_SHOWN]]
        if len(self) > _KINDS_SHOWN:
            kinds.append("more")
        return f"[The sandbox removed from this output: {', '.join(kinds)}]"
