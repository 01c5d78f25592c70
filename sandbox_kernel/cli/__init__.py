"""The command `sandbox-kernel`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from .. import __version__
from ..errors import SandboxError, inert
from . import audit, bench, check, completion, doctor, files, grade, install, mcp, policy, run
from .stop import Stop, lists_commands

DESCRIPTION = """\
Sandboxed Python is a Jupyter kernel whose cells run in a process that the Linux kernel confines: they see the
notebook's folder and the installed packages, and neither your other files nor the network.
"""

EXAMPLES = """\
examples:
  sandbox-kernel run analysis.ipynb            execute a notebook in the sandbox and watch it here
  sandbox-kernel grade handed-in/ --tests tests.py --policy classroom
                                               what is each submission worth?
  sandbox-kernel install --user                let every JupyterLab of this user offer "Sandboxed Python"
  sandbox-kernel install --user --name course --display-name "Course" --policy classroom
                                               a second kernel, with limits of its own
  sandbox-kernel doctor                        does the sandbox hold on this machine, and how strong is it?
  sandbox-kernel check homework.ipynb --policy classroom
                                               does it keep the course's rules for code?
  sandbox-kernel mcp                           serve a sandbox to an assistant (Model Context Protocol)
  sandbox-kernel files --keep model.py         take out a file that a cell made and that was not kept
  sandbox-kernel policy show                   what a kernel started from here may do, and who decided that

`sandbox-kernel COMMAND --help` tells more.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: arguments without the program's name; None takes those of the process.

    Returns:
        The exit status: 0 done, 1 refused or failed (the reason is on stderr), 2 wrong usage, 130 interrupted, 141 when
        nobody reads the output any more.
        Wrong usage that argparse sees leaves by SystemExit.
    """
    parser = argparse.ArgumentParser(
        prog="sandbox-kernel",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"sandbox-kernel {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    lists_commands(parser)
    for command in (run, grade, install, doctor, policy, check, audit, bench, files, mcp, completion):
        command.add_command(commands)
    args = parser.parse_args(argv)
    try:
        if sys.platform != "linux":
            raise Stop(
                "Sandboxed Python confines cells by means that only the Linux kernel has, and this system is "
                f"{sys.platform!r}. Use a Linux machine, a virtual machine or WSL 2."
            )
        return int(args.command(args))
    except (Stop, SandboxError) as error:
        text = error.explain() if isinstance(error, SandboxError) else str(error)
        sys.stderr.write(f"sandbox-kernel: {inert(text)}\n")  # (it may name files of others)
        return error.status if isinstance(error, Stop) else 1
    except BrokenPipeError:  # of `| head`: whoever read has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # (the interpreter flushes once more when it ends)
        return 141
    except KeyboardInterrupt:
        sys.stderr.write("sandbox-kernel: interrupted\n")
        return 130
