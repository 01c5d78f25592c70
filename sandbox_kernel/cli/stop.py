"""How a command ends early."""

from __future__ import annotations

import argparse
import sys


class Stop(Exception):
    """A command cannot go on; the message is the sentence that the user reads.

    Attributes:
        status: the exit status.
    """

    status = 1


class Usage(Stop):
    """What was asked for makes no sense, and nothing was done."""

    status = 2


def lists_commands(parser: argparse.ArgumentParser) -> None:
    """Let a command that needs a further word, and was given none, show which there are."""

    def show(args: argparse.Namespace) -> int:
        parser.print_help(sys.stderr)
        return Usage.status

    parser.set_defaults(command=show)
