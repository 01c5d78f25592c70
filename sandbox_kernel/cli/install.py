"""`sandbox-kernel install`: write a kernelspec."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from ..policy import Policy
from ..policy_layers import presets
from .stop import Stop

KERNEL_NAME = "sandboxed-python"
DISPLAY_NAME = "Sandboxed Python"

DESCRIPTION = """\
Writes a kernelspec, which is what JupyterLab, nbclient and papermill look for. After `pip install` the
environment's own Jupyter has it already; this command is for other Jupyters of the same user or machine, for
editable installs, and for further kernels with a policy of their own.
"""

EXAMPLES = """\
The kernelspec names the Python that runs this command, so any Jupyter of the machine can start it.
`jupyter kernelspec list` shows what there is, `jupyter kernelspec remove NAME` takes one away.

examples:
  sandbox-kernel install --user
  sandbox-kernel install --sys-prefix
  sandbox-kernel install --user --name course --display-name "Course" --policy classroom
  sandbox-kernel install --user --name exam --display-name "Exam" --policy ~/policies/exam.toml

Keep the policy file where no cell can write it: outside the folders of notebooks.
"""


def add_command(commands: Any) -> None:
    """Add the command to argparse's collection of subparsers."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "install",
        help="write a kernelspec, with a name and a policy of its own if wanted",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--user", action="store_true", help="for every Jupyter of this user (the default "
                       "outside a virtual environment)")  # fmt: skip
    where.add_argument("--sys-prefix", action="store_true", help="for the Jupyter of this environment (the "
                       "default in a virtual environment)")  # fmt: skip
    where.add_argument("--prefix", metavar="P", type=Path, help="below P/share/jupyter/kernels")
    parser.add_argument("--name", metavar="N", default=KERNEL_NAME, help="name of the kernelspec, as in "
                        "`--kernel N` (default: %(default)s)")  # fmt: skip
    parser.add_argument("--display-name", metavar="D", help="what JupyterLab shows (default: "
                        '"Sandboxed Python", with the name in brackets where it is another)')  # fmt: skip
    parser.add_argument("--policy", metavar="P", help="a preset, or the path of a policy (TOML); "
                        "checked now, read at each start of the kernel")  # fmt: skip
    parser.set_defaults(command=run)


def run(args: argparse.Namespace) -> int:
    """Carry out the command.

    Raises:
        Stop: the name cannot be a kernelspec's, or the place cannot be written.
        PolicyError: the policy cannot be used; nothing has been written then.
    """
    # Stricter than Jupyter, which accepts ".." and would replace the folder above.
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", args.name):
        raise Stop(f"{args.name!r} cannot name a kernelspec: use letters, digits, '.', '_' and '-'.")
    name = args.name.lower()
    in_environment = sys.prefix != sys.base_prefix
    prefix = args.prefix or (sys.prefix if args.sys_prefix or (in_environment and not args.user) else None)
    default = DISPLAY_NAME if name == KERNEL_NAME else f"{DISPLAY_NAME} ({args.name})"
    spec = kernel_json(display_name=args.display_name or default, policy=checked_policy(args.policy))
    try:
        folder = write_kernelspec(spec, name, prefix=None if prefix is None else Path(prefix).resolve())
    except OSError as error:
        place = error.filename or prefix or "the user's Jupyter folder"
        raise Stop(f"The kernelspec could not be written: {place}: {error.strerror}.") from error
    sys.stdout.write(f"{spec['display_name']!r} is installed in {folder}\n")
    if "env" in spec:
        sys.stdout.write(f"with the policy {args.policy}\n")
    return 0


def checked_policy(source: str | None) -> str | None:
    """Make a policy's path absolute after reading it once; None stays None.

    Raises:
        PolicyError: the policy cannot be used.
        Stop: there is no such file.
    """
    if source is None:
        return None
    if "/" in source or source.endswith(".toml"):  # the rule of Policy.load; anything else is a preset's name
        source = str(Path(source).expanduser().resolve())
        with contextlib.suppress(PermissionError):  # nobody can tell; `load` says so
            if not Path(source).exists():
                raise Stop(f'There is no {source}. Write it first (the line preset = "classroom" alone is a policy), '
                           f"or give a preset's name: {', '.join(presets())}.")  # fmt: skip
    Policy.load(source)
    return source


def template_folder() -> Path:
    """Find kernel.json and the logos: inside the package when installed, beside it in a working copy.

    Raises:
        Stop: the installation is incomplete.
    """
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "kernelspec", package.parent / "kernelspec"):
        if (folder / "kernel.json").is_file():
            return folder
    raise Stop("The kernelspec's files are missing from this installation; install sandbox-kernel again.")


def kernel_json(*, display_name: str, policy: str | None) -> dict[str, Any]:
    """Make the content of kernel.json.

    Args:
        display_name: what JupyterLab shows.
        policy: absolute path or preset's name for SANDBOX_KERNEL_POLICY; None leaves it to the environment.
    """
    spec: dict[str, Any] = json.loads((template_folder() / "kernel.json").read_text(encoding="utf-8"))
    # The bare "python" of the template means "the Python of whoever reads the kernelspec", which is right
    # inside one environment only.
    spec["argv"][0] = sys.executable
    spec["display_name"] = display_name
    if policy is not None:
        # Jupyter substitutes $NAME in these values; "$$" stands for one dollar sign.
        spec["env"] = {"SANDBOX_KERNEL_POLICY": policy.replace("$", "$$")}
    return spec


def write_kernelspec(spec: dict[str, Any], name: str, *, prefix: Path | None) -> Path:
    """Write a kernelspec's folder, in place of one of the same name.

    Args:
        spec: content of kernel.json.
        name: the kernelspec's name.
        prefix: goes below PREFIX/share/jupyter/kernels; None means the user's own folder.

    Returns:
        The folder.

    Raises:
        OSError: the place cannot be written.
    """
    from jupyter_client.kernelspec import KernelSpecManager

    with tempfile.TemporaryDirectory() as scratch:
        # The scratch folder is private, and Jupyter copies the modes: a folder below it has ordinary ones.
        folder = Path(scratch) / name
        folder.mkdir()
        for logo in template_folder().glob("logo-*"):
            shutil.copyfile(logo, folder / logo.name)
        (folder / "kernel.json").write_text(json.dumps(spec, indent=2) + "\n", encoding="utf-8")
        manager = KernelSpecManager()
        manager.log.setLevel("ERROR")  # it warns about every prefix that is not the running environment's own
        written = manager.install_kernel_spec(
            str(folder), name, user=prefix is None, prefix=None if prefix is None else str(prefix)
        )
    return Path(written)
