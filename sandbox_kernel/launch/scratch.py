"""Removing a private folder that cells have filled, whatever they made of it."""

from __future__ import annotations

import contextlib
import itertools
import os


def remove(folder: str) -> None:
    """Remove ``folder`` with all that is in it, as far as this process may; never raises, follows no link.

    ``shutil.rmtree`` ends with a RecursionError below a thousand levels, with EMFILE before that, and at a folder whose
    mode forbids its owner to list it: a cell could leave files behind for good. Here every folder met is moved up to
    the top, so nothing is ever deeper than one level. Only for when nobody else acts in the folder any more.
    """
    try:
        top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    numbers, waiting = itertools.count(), [""]
    while waiting:
        name = waiting.pop()
        with contextlib.suppress(OSError):
            waiting += _flatten(top, name, numbers)
        if name:
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=top)
    os.close(top)
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def _flatten(top: int, name: str, numbers: itertools.count[int]) -> list[str]:
    """Remove the files of one folder and move its folders up to ``top``; their new names."""
    if name:
        os.chmod(name, 0o700, dir_fd=top)
    inner = os.open(name or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
    moved = []
    try:
        with os.scandir(inner) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for entry, is_folder in found:
            with contextlib.suppress(OSError):
                if not is_folder:
                    os.unlink(entry, dir_fd=inner)
                    continue
                with contextlib.suppress(OSError):
                    os.rmdir(entry, dir_fd=inner)  # most are empty
                    continue
                os.chmod(entry, 0o700, dir_fd=inner)  # its ".." changes, which needs the right to write
                new = f"sandbox-rest-{os.getpid()}-{next(numbers)}"
                os.rename(entry, new, src_dir_fd=inner, dst_dir_fd=top)
                moved.append(new)
    finally:
        os.close(inner)
    return moved
