"""What of whoever starts a sandbox concerns it: variables that may pass, folders to hide, policy files.

Standard library only, and little of it: this runs before anything heavy is imported.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping

# Passed from the launcher into the sandbox. An allow-list, because secrets are called anything; a name that
# ends in "*" stands for all names that start so.
PASSED_VARIABLES = (
    "LANG", "LANGUAGE", "LC_*", "TZ", "PATH", "TERM", "COLUMNS", "LINES", "NO_COLOR",
    "PYTHONHASHSEED", "PYTHONWARNINGS", "PYTHONUTF8", "PYTHONIOENCODING", "PYTHONPATH", "PYTHONHOME",
    "PYTHONDONTWRITEBYTECODE", "PYDEVD_DISABLE_FILE_VALIDATION", "VIRTUAL_ENV", "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV", "LD_LIBRARY_PATH", "JPY_SESSION_NAME", "MPLBACKEND", "OMP_*", "OPENBLAS_*", "MKL_*",
    "NUMEXPR_*", "BLIS_*", "VECLIB_*", "GOTO_*", "KMP_*", "JOBLIB_*", "LOKY_*", "POLARS_MAX_THREADS",
    "SOURCE_DATE_EPOCH",
)  # fmt: skip
POLICY_VARIABLE = "SANDBOX_KERNEL_POLICY"
ADMINISTRATOR = "/etc/sandbox-kernel/policy.toml"
FILE_BYTES = 64 * 1024  # a policy is a page of text


def passed(launcher: Mapping[str, str], extra: Iterable[str] = (), deny: Iterable[str] = ()) -> dict[str, str]:
    """The variables out of the launcher's that reach the cells.

    Args:
        launcher: the launcher's environment.
        extra: further names, from the policy.
        deny: names that do not pass, whatever else says so.
    """
    wanted, refused = _Matcher((*PASSED_VARIABLES, *extra)), _Matcher(deny)
    return {k: v for k, v in launcher.items() if wanted(k) and not refused(k)}


class _Matcher:
    def __init__(self, names: Iterable[str]) -> None:
        names = tuple(names)
        self._exact = {name for name in names if not name.endswith("*")}
        self._prefixes = tuple(name[:-1] for name in names if name.endswith("*"))

    def __call__(self, name: str) -> bool:
        return name in self._exact or name.startswith(self._prefixes)


def hidden_paths(launcher: Mapping[str, str], argv: list[str], workspace: str) -> list[str]:
    """Folders with secrets of the person that lie in the notebook's folder (or hold it) and must not show there.

    Only such a folder is passed on: the name of any other has no business in the memory of the sandbox.
    """
    found = []
    if "-f" in argv[:-1]:
        found.append(os.path.dirname(os.path.abspath(argv[argv.index("-f") + 1])))
    found += [launcher.get(name, "") for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR")]
    there = [path for path in map(os.path.realpath, filter(None, found)) if inside(path, workspace)]
    home = launcher.get("HOME", "")
    if home and home != "/":
        home = os.path.realpath(home)
        if inside(home, workspace):
            there.append(home)
    return sorted(set(there))


# ------------------------------------------------------------ policy files


def home_folder(launcher: Mapping[str, str]) -> str:
    """The launcher's home, "" for a uid without one."""
    if launcher.get("HOME"):
        return launcher["HOME"]
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return ""


def user_policy(launcher: Mapping[str, str]) -> str:
    """Where the user's own policy file would be, "" when there can be none (XDG base directories)."""
    folder = launcher.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(folder):  # the XDG rules: a relative one counts as unset
        home = home_folder(launcher)
        folder = os.path.join(home, ".config") if os.path.isabs(home) else ""
    return os.path.join(folder, "sandbox-kernel", "policy.toml") if folder else ""


def policy_files(launcher: Mapping[str, str], administrator: str = ADMINISTRATOR) -> tuple[str, str]:
    """The administrator's and the user's policy file, each "" when it does not exist.

    A link to nowhere exists: whoever made it meant something, and reading it tells what is wrong.
    """
    user = user_policy(launcher)
    # An administrator's folder that cannot be entered is no reason to go on without the administrator's word. A
    # home that cannot be entered holds nothing that this user could have written.
    return (
        administrator if _exists(administrator, when_unreadable=True) else "",
        user if user and _exists(user, when_unreadable=False) else "",
    )


def read_policy(path: str) -> str:
    """The text of a policy file.

    Raises:
        PolicyError: it cannot be read, or is no ordinary file of text of at most `FILE_BYTES`.
    """
    from .errors import PolicyError

    try:
        # Non-blocking: a named pipe must not hold up the start for ever.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise PolicyError(path, "is not an ordinary file")
            data = file.read(FILE_BYTES + 1)
    except OSError as error:
        raise PolicyError(path, f"cannot be read: {error.strerror}") from error
    if len(data) > FILE_BYTES:
        raise PolicyError(path, f"is larger than {FILE_BYTES // 1024} KiB, which no policy needs")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PolicyError(path, f"is not valid TOML: {error}") from error


def cells_can_write(path: str, workspace: str, launcher: Mapping[str, str]) -> bool:
    """Whether a cell that runs in ``workspace`` could have made or changed the file.

    Names in the home folder that start with a dot are hidden from cells, so what lies below one is out of reach
    although the home is the workspace.
    """
    workspace, home = os.path.realpath(workspace), os.path.realpath(home_folder(launcher) or "/nonexistent")
    if workspace == "/":  # never shown to cells
        return False
    for name in {os.path.abspath(path), os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)),
                 os.path.realpath(path)}:  # fmt: skip
        hidden = inside(home, workspace) and inside(name, home) and name[len(home) :].startswith("/.")
        if inside(name, workspace) and not hidden:
            return True
    return False


def occupy_user_policy(launcher: Mapping[str, str], workspace: str) -> None:
    """Make the folder of the user's policy where cells could otherwise make it and so choose the next policy.

    The same for IPython's folder: what cells write into a profile is run by the next ordinary kernel. At level full
    the names in a home that start with a dot are hidden, but a cell can make those that are missing.
    """
    path = user_policy(launcher)
    home = os.path.realpath(home_folder(launcher) or "/nonexistent")
    if path and inside(home, os.path.realpath(workspace)) and os.path.isdir(home):
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            os.makedirs(os.path.join(home, ".ipython"), mode=0o700, exist_ok=True)
        except OSError:
            return  # what this user cannot write the cells cannot write


def _exists(path: str, *, when_unreadable: bool) -> bool:
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return when_unreadable
    return True


def inside(path: str, folder: str) -> bool:
    """Whether ``path`` is ``folder`` or lies below it (both absolute and normal)."""
    return folder == "/" or path == folder or path.startswith(folder.rstrip("/") + "/")
