"""The notebook's folder in a plan: which of its names are hidden, and how Landlock goes around them."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator

from .parts import Access, Grant
from .paths import inside

DEPTH = 3  # folders deep that names are looked at
ENTRIES = 5000
HIDDEN_MOST = 500
GRANTS = 5000  # rules; each worker sets them when it starts
# Of the names that may come after the start those that are worth hiding before they exist, where that can be done.
LATER = (
    ".env", ".env.local", ".envrc", ".git", ".git-credentials", ".gitconfig", ".ssh", ".aws", ".azure", ".config",
    ".docker", ".gnupg", ".kube", ".netrc", ".npmrc", ".pgpass", ".pypirc", ".bash_history", ".python_history",
    ".zsh_history", ".jupyter", ".ipython", ".local", ".streamlit", ".htpasswd",
)  # fmt: skip
# Where a scratch folder lies when there is a mount namespace; the second where the notebook's folder is in the first.
PLACES = ("/run/notebook", "/var/notebook")


class Patterns:
    """Names that are hidden.

    Args:
        patterns: with ``*`` for any text; the case of letters does not count.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = tuple(patterns)
        text = "|".join(fnmatch.translate(pattern) for pattern in self._patterns)
        self._match: Callable[[str], object] = re.compile(text, re.IGNORECASE).match if text else lambda _name: None

    def __call__(self, name: str) -> bool:
        return self._match(name) is not None

    def later(self) -> list[str]:
        """Names that can be hidden before they exist."""
        plain = [pattern for pattern in self._patterns if not set(pattern) & set("*?[")]
        return list(dict.fromkeys([*plain, *filter(self, LATER)]))


def secrets_below(top: str, patterns: Patterns, skip: Collection[str]) -> tuple[set[str], set[str], list[str]]:
    """Which paths below a folder are to be hidden.

    Args:
        top: a real path.
        patterns: of names.
        skip: folders that are not entered, nor hidden themselves: the interpreter's.

    Returns:
        Files and folders, and what hidden links lead to in there; the links themselves; notes on what was not looked
        at.
    """
    found: set[str] = set()
    links: set[str] = set()
    left, level = ENTRIES, [top]
    for _ in range(DEPTH):
        deeper: list[str] = []
        for folder in level:
            try:
                entries = os.scandir(folder)
            except OSError:
                continue  # cells have no more rights
            with entries:
                for entry in entries:
                    left -= 1
                    if left < 0 or len(found) >= HIDDEN_MOST:
                        return found, links, [
                            f"There are so many files in {top} that not all of them were looked at: names of "
                            "files.hide may be visible in its inner folders."
                        ]  # fmt: skip
                    if entry.is_symlink():
                        if patterns(entry.name):
                            links.add(entry.path)
                            real = os.path.realpath(entry.path)
                            if inside(real, top) and real != top and os.path.exists(real):
                                found.add(real)
                    elif entry.path in skip:
                        continue
                    elif patterns(entry.name):
                        found.add(entry.path)
                    elif entry.is_dir(follow_symlinks=False):
                        deeper.append(entry.path)
        level = deeper
    return found, links, []


def veiled_paths(
    workspace: str, hidden: Iterable[str], links: Iterable[str], later: Iterable[str], code: Iterable[str]
) -> set[str]:
    """What a layer between the folder and the cells hides: none of these holds a part of the interpreter."""
    around_code = {folder for path in code for folder in (path, *_above(path))}
    names = {*hidden, *links, *(os.path.join(workspace, name) for name in later)}
    chosen = {p for p in names if inside(p, workspace) and p != workspace and p not in around_code}
    return {p for p in chosen if chosen.isdisjoint(_above(p))}


def grant_around(access: Access, folder: str, without: Iterable[str]) -> list[Grant]:
    """Rules that grant ``folder`` except the paths ``without``.

    Landlock only adds rights, so a folder that holds an excepted path is granted child by child; new names
    cannot be made in it then. Links are left out: a rule would follow them. So are the entries beyond `GRANTS`.
    """
    without = {p for p in without if inside(p, folder)}
    if not without:
        return [Grant(access, folder)]
    if folder in without:
        return []
    grants: list[Grant] = []
    _grant_below(access, folder, without, {outer for path in without for outer in _above(path)}, grants)
    return grants


def _grant_below(access: Access, folder: str, without: set[str], around: set[str], grants: list[Grant]) -> None:
    grants.append(Grant("list", folder))
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda e: e.name):
            if len(grants) >= GRANTS:
                return
            if entry.is_symlink() or entry.path in without:
                continue
            if entry.path in around:
                _grant_below(access, entry.path, without, around, grants)
            else:
                grants.append(Grant(access, entry.path))


def _above(path: str) -> Iterator[str]:
    """All folders on the way to a path."""
    while path != "/":
        path = os.path.dirname(path)
        yield path
