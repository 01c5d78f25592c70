"""The IPython profile's start-up files: read here, run by each worker inside the sandbox.

The files lie in the person's home, which no cell sees, so their text is sent. Nothing else of a profile is taken:
``ipython_config.py`` is code that would have to run in the front, and its ``exec_lines``, ``exec_files`` and
``extensions`` can all be written as lines of a start-up file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

from ..launcher import cells_can_write
from ..policy import Policy
from ..session.session import Session

_FILES = 100
_FILE_BYTES = 1024 * 1024
_ALL_BYTES = 4 * _FILE_BYTES


def prepare(session: Session, policy: Policy, profile: str, workspace: str, environ: Mapping[str, str]) -> list[str]:
    """Give the session the files that the policy allows; says in words what is run, and what is not and why."""
    if policy.worker.startup == "none" or not profile:
        return []
    files, notes = startup_files(profile, workspace, environ)
    session.run_first(files)
    return [*(f"{path} is run" for path, _text in files), *notes]


def startup_files(profile: str, workspace: str, environ: Mapping[str, str]) -> tuple[list[tuple[str, str]], list[str]]:
    """The files as IPython would run them.

    Args:
        profile: the profile's folder.
        workspace: the notebook's folder; what cells could have written is not run.
        environ: of the launcher, for the home folder.

    Returns:
        path and text of each file, in order, and in words why others were left out.
    """
    folder = os.path.join(profile, "startup")
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith((".py", ".ipy")))
    except OSError:
        return [], []
    found: list[tuple[str, str]] = []
    notes = []
    left = _ALL_BYTES
    for at, name in enumerate(names):
        path = os.path.join(folder, name)
        problem, text = "", ""
        if at >= _FILES:
            problem = f"there are more than {_FILES}"
        elif workspace and cells_can_write(path, workspace, environ):
            problem = "cells could have written it"
        else:
            problem, text = _read(path, min(left, _FILE_BYTES))
        if problem:
            notes.append(f"{path} is not run: {problem}")
        else:
            found.append((path, text))
            left -= len(text)
    return found, notes


def _read(path: str, most: int) -> tuple[str, str]:
    """What is wrong with the file, or its text."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return "it is not an ordinary file", ""
            data = file.read(most + 1)
    except OSError as error:
        return error.strerror or str(error), ""
    if len(data) > most:
        return f"it is too long ({_FILE_BYTES >> 20} MiB each and {_ALL_BYTES >> 20} MiB together are allowed)", ""
    try:
        return "", data.decode("utf-8")
    except UnicodeDecodeError as error:
        return str(error), ""
