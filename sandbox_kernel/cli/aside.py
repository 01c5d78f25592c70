"""`sandbox-kernel files --aside`: what cells of kernels that have ended made, and what was not kept."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys

from ..plan.workspace import Patterns
from ..policy_values import SECRET_FILES
from ..report import EARLIER, held_text, unkept_text
from ..session.aside import aside_folder
from ..session.files import refused_name
from ..session.kept import KeptFiles, owner_in
from ..session.mirror import Names
from ..session.shelves import Entry, Shelf, Shelves
from .stop import Stop

_SHOWN = 1000


def aside(args: argparse.Namespace) -> int:
    """List, keep or forget it.

    Returns:
        0 when all that was asked for was kept, else 1.

    Raises:
        Stop: there is no such folder.
    """
    folder = os.path.realpath(args.aside)
    if not os.path.isdir(folder):
        raise Stop(f"{args.aside} is no folder")
    top = aside_folder(os.environ)
    shelves = Shelves(top, folder).all() if top else []
    newest: dict[Names, tuple[Shelf, Entry]] = {}
    for shelf in shelves:
        for names, entry in shelf.entries.items():
            if names not in newest or newest[names][1].when < entry.when:
                newest[names] = shelf, entry
    problems = {name: _keep(name, newest, folder, over=args.replace) for name in args.keep}
    for name, why in problems.items():
        sys.stdout.write(f"{name!r}: {f'not kept, {why}' if why else 'kept'}\n")
    if args.forget and any(problems.values()):
        sys.stdout.write("Nothing is forgotten, since not all was kept.\n")
    elif args.forget:
        gone = [shelf for shelf in shelves if _taken(shelf)]
        for shelf in gone:
            shelf.remove()
        rest = len(shelves) - len(gone)
        sys.stdout.write("Forgotten" + (f", but for what belongs to {rest} kernels that run.\n" if rest else ".\n"))
    elif args.list or not args.keep:
        rows = [("/".join(names), entry.size, EARLIER) for names, (_, entry) in sorted(newest.items())]
        text = held_text(rows[:_SHOWN], len(rows[_SHOWN:]))
        sys.stdout.write(text or f"Nothing is set aside of notebooks in {folder}.\n")
    for shelf in shelves:
        shelf.close()
    return int(any(problems.values()))


def _taken(shelf: Shelf) -> bool:
    with contextlib.suppress(FileNotFoundError):  # a kernel that begins has just taken it over
        return shelf.take()
    return False


def _keep(name: str, newest: dict[Names, tuple[Shelf, Entry]], folder: str, *, over: bool) -> str:
    """Write one next to the notebook, by the rules of the file gate; says why not, "" when it was done."""
    names = tuple(name.split("/"))
    if why := refused_name(names, Patterns(SECRET_FILES)):
        return why
    if names not in newest:
        return "there is no such file"
    shelf, entry = newest[names]
    disk = KeptFiles(folder, owner_in(folder))
    try:
        source = shelf.open(entry)
        try:
            disk.put(names, source, over=over)
        finally:
            os.close(source)
        if _taken(shelf):  # (else a kernel has it that runs, and goes on with it)
            shelf.drop(names)
            shelf.save()
    except OSError as error:
        return unkept_text(error)
    finally:
        disk.close()
    return ""
