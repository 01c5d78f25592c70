"""The notebook's folder in a plan: which of its names are hidden, and how Landlock goes around them."""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import os
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator

from ..errors import one_line
from ..frozen import Frozen
from .model import Access, Grant
from .paths import inside

DEPTH = 16  # folders deep that names are looked at; what is deeper is hidden
ENTRIES = 100_000  # of the notebook's folder itself; of all folders below it twice as many
HIDDEN_MOST = 1000  # with "read-write" each is a mount, and so is the folder around it
HIDDEN_IN_ONE = 200  # names of one folder; with more of them it is hidden as a whole
STRANGE_ENTRIES = 20_000  # among which folders of other groups are looked for
GRANTS = 5000  # rules; each worker sets them when it starts
# Of the names that may come after the start those that are worth hiding before they exist, where that can be done.
LATER = (
    ".env", ".env.local", ".envrc", ".git", ".git-credentials", ".gitconfig", ".ssh", ".aws", ".azure", ".config",
    ".docker", ".gnupg", ".kube", ".netrc", ".npmrc", ".pgpass", ".pypirc", ".bash_history", ".python_history",
    ".zsh_history", ".jupyter", ".ipython", ".local", ".streamlit", ".htpasswd",
)  # fmt: skip
# Where a scratch folder lies when there is a mount namespace; the second where the notebook's folder is in the first.
PLACES = ("/run/notebook", "/var/notebook")


@functools.cache  # each plan asks for the same
def _matcher(patterns: tuple[str, ...]) -> Callable[[str], object]:
    text = "|".join(map(fnmatch.translate, patterns))
    return re.compile(text, re.IGNORECASE).match if text else lambda _name: None


class Patterns:
    """Names that are hidden.

    Args:
        patterns: with ``*`` for any text; the case of letters does not count.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = tuple(patterns)
        self._match = _matcher(self._patterns)

    def __call__(self, name: str) -> bool:
        return self._match(name) is not None

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def later(self) -> list[str]:
        """Names that can be hidden before they exist."""
        plain = [pattern for pattern in self._patterns if not set(pattern) & set("*?[")]
        return list(dict.fromkeys([*plain, *filter(self, LATER)]))


class Hidden(Frozen):
    """What is to be hidden below a folder.

    Attributes:
        paths: files and folders, and what hidden links lead to in there.
        links: the hidden links themselves.
        unsearched: folders among `paths` that are hidden because not all names in them could be looked at.
        too_many: that cannot even be done for single folders: nothing of the folder may be shown.
    """

    paths: frozenset[str] = frozenset()
    links: frozenset[str] = frozenset()
    unsearched: tuple[str, ...] = ()
    too_many: bool = False

    def note(self, top: str) -> str:
        """What a person is told; "" when there is nothing to tell."""
        if self.too_many:
            return (f"{top} cannot be searched for the names of files.hide (too many files, too many such names, or it "
                    "cannot be listed), so it is not shown; cells start in an empty private folder.")  # fmt: skip
        if not self.unsearched:
            return ""
        told = ", ".join(one_line(os.path.relpath(path, top))[:80] for path in self.unsearched[:3])
        more = f" and {len(self.unsearched) - 3} more" if len(self.unsearched) > 3 else ""
        return (f"Folders in {top} that cannot be searched for the names of files.hide are hidden (too many files, too "
                f"many such names, or too deep): {told}{more}.")  # fmt: skip


def secrets_below(top: str, patterns: Patterns, skip: Collection[str]) -> Hidden:
    """Which paths below a folder are to be hidden.

    What cannot be searched is hidden: cells can have files made in the folder, and must not be able to fill it until
    their next start shows what this one hides.

    Args:
        top: a real path.
        patterns: of names.
        skip: what is shown by another rule, and not entered: the interpreter's folders and those of files.read.
    """
    return _Search(top, patterns, skip).found() if patterns else Hidden()


class _NotSearched(Exception):
    """Not all names of a folder could be looked at."""


class _Search:
    def __init__(self, top: str, patterns: Patterns, skip: Collection[str]) -> None:
        self._top, self._patterns, self._skip = top, patterns, frozenset(skip)
        self._paths: set[str] = set()
        self._links: set[str] = set()
        self._left = 0

    def found(self) -> Hidden:
        try:
            folders = self._folders_in(self._top, ENTRIES, HIDDEN_MOST)
        except (_NotSearched, OSError):
            return Hidden(too_many=True)
        self._left = 2 * ENTRIES
        # In turn for each folder of the top, so that a huge one does not cost the others.
        trees = [deque([folder]) for folder in sorted(folders)]
        unsearched: set[str] = set()
        closed: set[str] = set()
        while trees:
            for tree in trees:
                folder = tree.popleft()
                try:
                    if self._depth(folder) >= DEPTH or self._left <= 0:
                        raise _NotSearched
                    tree.extend(self._folders_in(folder, (self._left + 1) // 2, HIDDEN_IN_ONE))
                except _NotSearched:
                    unsearched.add(folder)
                except FileNotFoundError:
                    continue
                except OSError:
                    closed.add(folder)  # to this user; cells could still open what they guess the name of
            trees = [tree for tree in trees if tree]
        while len(self._paths) + len(unsearched | closed) > 2 * HIDDEN_MOST:
            outer = {self._parent(path) for path in unsearched}, {self._parent(path) for path in closed}
            if outer == (unsearched, closed):
                return Hidden(too_many=True)
            unsearched, closed = outer
        paths = self._paths | unsearched | closed
        outermost = frozenset(path for path in paths if paths.isdisjoint(_above(path)))
        return Hidden(outermost, frozenset(self._links), tuple(sorted(unsearched & outermost)))

    def _folders_in(self, folder: str, most_entries: int, most: int) -> list[str]:
        """Note the hidden names of a folder; the folders in it that are to be searched.

        Raises:
            _NotSearched: a bound was met; nothing is noted.
            OSError: it cannot be listed.
        """
        paths, links, folders = set(), set(), []  # type: set[str], set[str], list[str]
        most = min(most, HIDDEN_MOST - len(self._paths) - len(self._links))
        with os.scandir(folder) as entries:
            for count, entry in enumerate(entries, 1):
                self._left -= 1
                if count > most_entries or len(paths) + len(links) > most:
                    raise _NotSearched
                if entry.is_symlink():
                    if self._patterns(entry.name):
                        links.add(entry.path)
                        real = os.path.realpath(entry.path)
                        if inside(real, self._top) and real != self._top and os.path.exists(real):
                            paths.add(real)
                elif entry.path in self._skip:
                    continue
                elif self._patterns(entry.name):
                    paths.add(entry.path)
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
        self._paths |= paths
        self._links |= links
        return folders

    def _depth(self, path: str) -> int:
        return path.count("/", len(self._top))

    def _parent(self, path: str) -> str:
        return path if self._depth(path) == 1 else os.path.dirname(path)


def veiled_paths(
    workspace: str, hidden: Iterable[str], links: Iterable[str], later: Iterable[str], code: Iterable[str]
) -> set[str]:
    """What a layer between the folder and the cells hides: none of these holds a part of the interpreter."""
    around_code = {folder for path in code for folder in (path, *_above(path))}
    names = {*hidden, *links, *(os.path.join(workspace, name) for name in later)}
    chosen = {p for p in names if inside(p, workspace) and p != workspace and p not in around_code}
    return {p for p in chosen if chosen.isdisjoint(_above(p))}


def strange_folders(workspace: str, gid: int, without: Collection[str]) -> list[str]:
    """Folders of another group which an ordinary user may write, outermost first.

    A private layer must begin with them: overlayfs would give its own part of such a folder the group that it has,
    which this user's sandbox does not know, and so refuses (EOVERFLOW) whatever cells make in it.

    Args:
        workspace: the notebook's folder, of which the first entries are looked at.
        gid: the one group that the sandbox knows.
        without: folders that are not entered.
    """
    found, waiting, left = list[str](), [workspace], STRANGE_ENTRIES
    for folder in waiting:  # which grows meanwhile
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                left -= 1
                if left < 0:
                    return found
                if entry.is_dir(follow_symlinks=False) and entry.path not in without:
                    waiting.append(entry.path)
                    if entry.stat(follow_symlinks=False).st_gid != gid and os.access(entry.path, os.W_OK):
                        found.append(entry.path)
    return found


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
