"""`sandbox-kernel run`: execute notebooks in the terminal."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import launcher
from ..errors import PolicyError
from ..policy_layers import is_path
from .install import KERNEL_NAME
from .packages import at_least_one, extras
from .policy import resolved
from .stop import Stop, Usage

if TYPE_CHECKING:
    from nbformat import NotebookNode

    from .results import OutputFolder

DESCRIPTION = """\
Executes notebooks cell by cell in the sandbox and shows every cell and its results here as they come. The
executed notebook, and with --html a page of it, is written to a folder; the notebook itself stays as it is.
"""

EXAMPLES = """\
Each notebook gets a kernel of its own, whose working folder is the notebook's. The kernel that a notebook
names in its metadata is not used: a notebook cannot choose to run outside the sandbox. A cell that may fail
carries the tag `raises-exception`. The page is one file that loads nothing and runs no script: HTML is
cleaned, formulas stay TeX.

With -j, --scheduler or --resume there is a bar for all instead of their outputs. --resume takes the notebooks of an
earlier such run in --output as they are: those that went well, with the same cells, policy and options. (The data
that they read is not looked at.) On a cluster a notebook runs in its own folder, which the workers must see.

exit status: 0 all cells as expected, 1 a cell failed or a notebook could not be run, 2 wrong usage, 130 interrupted

examples:
  sandbox-kernel run analysis.ipynb
  sandbox-kernel run --html --output results week1.ipynb week2.ipynb
  sandbox-kernel run --kernel course --timeout 60 homework.ipynb
  sandbox-kernel run -j 4 --policy classroom --output results week*.ipynb      4 at a time
  sandbox-kernel run -j 4 --resume --output results week*.ipynb                go on after Ctrl-C
  sandbox-kernel run --scheduler tcp://10.0.0.5:8786 week*.ipynb               on a Dask cluster
"""


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
    parser.add_argument("-j", "--jobs", metavar="N", type=at_least_one, help="how many at a time")
    parser.add_argument("--policy", metavar="P", help="a preset or the path of a policy, for a kernel that has none of "
                        "its own")  # fmt: skip
    parser.add_argument("--resume", action="store_true", help="do not execute again what is done")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="of a dask.distributed cluster whose workers have this "
                        "package: let it do the work")  # fmt: skip
    parser.add_argument("--allow-errors", action="store_true", help="go on after a cell failed, and count "
                        "that as expected")  # fmt: skip
    parser.set_defaults(command=run)


def run(args: argparse.Namespace) -> int:
    """Carry out the command: 0 when every cell of every notebook did as expected, else 1.

    Raises:
        Stop: a package is missing, the kernelspec is not installed, or the output folder cannot be used.
        Usage: the policy cannot be used.
    """
    with extras("run"):
        # These are an extra: whoever uses the kernel in JupyterLab needs none of them.
        from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

        from .execute import Failed, execute
        from .results import OutputFolder
        from .show import Terminal

    try:
        spec = KernelSpecManager().get_kernel_spec(args.kernel)
    except NoSuchKernel as error:
        hint = " Write it with `sandbox-kernel install`." if args.kernel == KERNEL_NAME else ""
        raise Stop(f"There is no kernelspec named {args.kernel!r} here.{hint}") from error
    stems = [path.stem for path in args.notebooks]
    for stem in stems:
        if stems.count(stem) > 1:
            raise Stop(f"Two of the notebooks are named {stem!r} and would overwrite each other's results.")

    policy = _policy(args.policy, spec)
    terminal = Terminal()
    failures = 0
    notebook: NotebookNode | None
    with OutputFolder(args.output) as output:
        for path in args.notebooks:
            if output.holds(path):
                raise Stop(f"{path} lies in the output folder and would be overwritten; name another.")
        if args.jobs or args.scheduler or args.resume:
            return _batch(args, spec, policy, output)
        for path in args.notebooks:
            try:
                notebook = execute(
                    path, terminal, kernel=args.kernel, timeout_s=args.timeout, allow_errors=args.allow_errors,
                    policy=policy,
                )  # fmt: skip
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


def _policy(asked: str | None, spec: Any) -> str | None:
    """For the kernel's environment: a preset or an absolute path.

    Raises:
        Usage: it cannot be used, or would not be: a kernelspec's own one wins, and other kernels have none.
    """
    if asked is None:
        return None
    if launcher.POLICY_VARIABLE in spec.env or "sandbox_kernel" not in spec.argv:
        why = "has a policy of its own" if launcher.POLICY_VARIABLE in spec.env else "is not a sandboxed one"
        raise Usage(f"--policy cannot be had: the kernel {spec.display_name!r} {why}.")
    file = Path(asked) if is_path(asked) else None
    try:
        resolved(asked if file is None else None, file)
    except PolicyError as error:
        raise Usage(error.explain()) from error
    return asked if file is None else str(file.expanduser().resolve())


def _batch(args: argparse.Namespace, spec: Any, policy: str | None, output: OutputFolder) -> int:
    with extras("run"):
        from . import batch
        from .records import key_of

        text = None
        if policy is not None and is_path(policy):
            text = Path(policy).read_text(encoding="utf-8")
            policy = None
        depends = key_of(
            args.kernel, spec.argv, [f"{k}={v}" for k, v in sorted(spec.env.items())], policy or "", text or "",
            str(args.timeout), str(args.allow_errors),
        )  # fmt: skip
        kernelspec = {"name": args.kernel, "display_name": spec.display_name, "language": spec.language}
        return batch.run(batch.Batch(args, policy, text, depends, kernelspec, output))


def _seconds(text: str) -> int:
    """A positive whole number, for argparse."""
    value = int(text)
    if value <= 0:
        raise ValueError(text)
    return value
