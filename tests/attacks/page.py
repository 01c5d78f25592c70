"""The tables of docs/threat-model.md, made of the attempts: ``python -m tests.attacks.page`` writes them anew."""

from __future__ import annotations

import re
from pathlib import Path

from . import front
from .attempt import Attempt, Open
from .table import files, identity, interfaces, links, namespaces, network, persistence, proc, processes

PAGE = Path(__file__).parents[2] / "docs" / "threat-model.md"
TABLES: dict[str, list[Attempt]] = {
    "reading": files.READS, "hidden": files.HIDDEN, "writing": files.WRITES, "waiting": files.WAITING,
    "links": links.ATTEMPTS, "proc": proc.ATTEMPTS, "processes": processes.ATTEMPTS, "network": network.ATTEMPTS,
    "namespaces": namespaces.ATTEMPTS, "identity": identity.ATTEMPTS, "interfaces": interfaces.ATTEMPTS,
    "persistence": persistence.ATTEMPTS,
}  # fmt: skip


def _cell(answer: str | Open) -> str:
    return f"**open**: {answer.reason}" if isinstance(answer, Open) else answer


def _of_wall(attempts: list[Attempt]) -> str:
    rows = ["| attempt | what is tried | `full` | `seccomp+landlock` |", "|---|---|---|---|"]
    rows += [f"| `{a.id}` | {a.what} | {_cell(a.full)} | {_cell(a.bare)} |" for a in attempts]
    return "\n".join(rows)


def _of_front(attempts: list[front.Cell] | list[front.Junk]) -> str:
    rows = ["| attempt | what is tried | answered by |", "|---|---|---|"]
    return "\n".join(rows + [f"| `{a.id}` | {a.what} | {a.layer} |" for a in attempts])


def tables() -> dict[str, str]:
    """Every table by the name of its place in the page."""
    made = {name: _of_wall(attempts) for name, attempts in TABLES.items()}
    return made | {"jupyter": _of_front(front.CELLS), "channel": _of_front(front.JUNK)}


def filled(text: str) -> str:
    """The page with its tables made anew."""
    for name, table in tables().items():
        place = re.compile(rf"(<!-- table {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if not place.search(text):
            raise ValueError(f"the page has no place for the table {name}")
        text = place.sub(lambda found, table=table: f"{found[1]}\n{table}\n\n{found[2]}", text)  # type: ignore[misc]
    return text


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
