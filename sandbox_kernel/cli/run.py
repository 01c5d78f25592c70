"""`sandbox-kernel run`: execute notebooks in the terminal."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .install import KERNEL_NAME
from .stop import Stop

if TYPE_CHECKING:
    from nbformat import NotebookNode

DESCRIPTION = """\
Executes notebooks cell by cell in the sandbox and shows every cell and its results here as they come. The
executed notebook, and with --html a page of it, is written to a folder; the notebook itself stays as it is.
"""

EXAMPLES = """\
Each notebook gets a kernel of its own, whose working folder is the notebook's. The kernel that a notebook
names in its metadata is not used: a notebook cannot choose to run outside the sandbox. A cell that may fail
carries the tag `raises-exception`. The page is one file that loads nothing and runs no script: HTML is
cleaned, formulas stay TeX.

exit status: 0 all cells as expected, 1 a cell failed or a notebook could not be run, 130 interrupted

examples:
  sandbox-kernel run analysis.ipynb
  sandbox-kernel run --html --output results week1.ipynb week2.ipynb
  sandbox-kernel run --kernel course --timeout 60 homework.ipynb
"""

NEEDED = {"nbclient", "nbconvert", "nbformat", "rich"}


def add_command(commands: Any) -> None:
    """Add the command to argparse's collection of subparsers."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "run",
        help="execute notebooks in the sandbox and show them in the terminal",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("notebooks", metavar="NOTEBOOK", nargs="+", type=Path, help="an .ipynb file")
    parser.add_argument("--output", metavar="DIR", type=Path, default=Path("executed"), help="folder for the "
                        "executed notebooks and pages; made if missing (default: %(default)s)")  # fmt: skip
    parser.add_argument("--html", action="store_true", help="write an HTML page of each notebook, too")
    parser.add_argument("--kernel", metavar="NAME", default=KERNEL_NAME, help="kernelspec to run on "
                        "(default: %(default)s)")  # fmt: skip
    parser.add_argument("--timeout", metavar="S", type=_seconds, help="stop a notebook when one of "
                        "its cells takes longer, in whole seconds (default: no limit)")  # fmt: skip
    parser.add_argument("--allow-errors", action="store_true", help="go on after a cell failed, and count "
                        "that as expected")  # fmt: skip
    parser.set_defaults(command=run)


def run(args: argparse.Namespace) -> int:
    """Carry out the command: 0 when every cell of every notebook did as expected, else 1.

    Raises:
        Stop: a package is missing, the kernelspec is not installed, or the output folder cannot be used.
    """
    try:
        # These are an extra: whoever uses the kernel in JupyterLab needs none of them.
        from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

        from .execute import Failed, execute
        from .results import OutputFolder
        from .show import Terminal
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in NEEDED:
            raise
        raise Stop(
            f"`run` needs the package {missing}, which is not installed. "
            "Install the extra `lab`: pip install 'sandbox-kernel[lab]'"
        ) from error

    try:
        spec = KernelSpecManager().get_kernel_spec(args.kernel)
    except NoSuchKernel as error:
        hint = " Write it with `sandbox-kernel install`." if args.kernel == KERNEL_NAME else ""
        raise Stop(f"There is no kernelspec named {args.kernel!r} here.{hint}") from error
    stems = [path.stem for path in args.notebooks]
    for stem in stems:
        if stems.count(stem) > 1:
            raise Stop(f"Two of the notebooks are named {stem!r} and would overwrite each other's results.")

    terminal = Terminal()
    failures = 0
    notebook: NotebookNode | None
    with OutputFolder(args.output) as output:
        for path in args.notebooks:
            if output.holds(path):
                raise Stop(f"{path} lies in the output folder and would be overwritten; name another.")
        for path in args.notebooks:
            try:
                notebook = execute(
                    path, terminal, kernel=args.kernel, timeout_s=args.timeout, allow_errors=args.allow_errors
                )
            except Failed as failure:
                failures += 1
                terminal.failed(str(failure))
                notebook = failure.notebook
            if notebook is None:
                continue
            notebook.metadata["kernelspec"] = {
                "name": args.kernel,
                "display_name": spec.display_name,
                "language": spec.language,
            }
            written = [output.write_notebook(path.stem, notebook)]
            if args.html:
                written.append(output.write_page(path.stem, notebook))
            terminal.wrote(written)
    return 1 if failures else 0


def _seconds(text: str) -> int:
    """A positive whole number, for argparse."""
    value = int(text)
    if value <= 0:
        raise ValueError(text)
    return value
