"""Which of the launcher's variables and folders the sandbox may see; runs before anything heavy is imported."""

from __future__ import annotations

import os
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


def passed(launcher: Mapping[str, str], extra: Iterable[str] = ()) -> dict[str, str]:
    """The variables out of the launcher's that reach the cells; `extra` names come from the policy."""
    names = (*PASSED_VARIABLES, *extra)
    exact = {name for name in names if not name.endswith("*")}
    prefixes = tuple(name[:-1] for name in names if name.endswith("*"))
    return {k: v for k, v in launcher.items() if k in exact or k.startswith(prefixes)}


def clean_environment(launcher: Mapping[str, str]) -> dict[str, str]:
    """The environment to execute the front with: what the cells may see, and the policy's name.

    It stays readable in the memory of every process that descends from the front.
    """
    source = launcher.get(POLICY_VARIABLE, "")
    if not source:
        return passed(launcher)
    from ..errors import PolicyError
    from ..policy import Policy

    try:
        allowed = Policy.load(source).environment.allow
    except PolicyError:
        allowed = ()  # told later, in every cell
    return {**passed(launcher, allowed), POLICY_VARIABLE: source}


def hidden_paths(launcher: Mapping[str, str], argv: list[str], workspace: str) -> list[str]:
    """Folders with secrets of the person that lie in the notebook's folder (or hold it) and must not show there.

    Only such a folder is passed on: the name of any other has no business in the memory of the sandbox.
    """
    home = launcher.get("HOME", "")
    found = []
    if "-f" in argv[:-1]:
        found.append(os.path.dirname(os.path.abspath(argv[argv.index("-f") + 1])))
    found += [launcher.get(name, "") for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR")]
    inside = [os.path.realpath(path) for path in found if path]
    inside = [path for path in inside if path == workspace or path.startswith(workspace.rstrip("/") + "/")]
    if home and home != "/":
        home = os.path.realpath(home)
        if home == workspace or home.startswith(workspace.rstrip("/") + "/"):
            inside.append(home)
    return sorted(set(inside))
