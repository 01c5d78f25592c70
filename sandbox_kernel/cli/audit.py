"""`sandbox-kernel audit`: check what the audit log says."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from ..audit import AuditError, read_key, verify
from .stop import Stop, lists_commands

DESCRIPTION = """\
Checks an audit log against its key: every line carries a value that covers it and the line before it, and the last one
counts them. Told are lines that were changed, removed, moved or added, and an end that was cut off.
"""

EXAMPLES = """\
examples:
  sandbox-kernel audit verify /var/log/sandbox/4711.jsonl
  sandbox-kernel audit verify copy.jsonl --key /root/keys/4711.jsonl.key

exit status: 0 nothing is wrong with it, 1 something is, and the lines say where
"""

_SHOWN = 20


def add_command(commands: Any) -> None:
    """Add the command to argparse's collection of subparsers."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "audit", help="check the audit log of a kernel", epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    lists_commands(parser)
    check: argparse.ArgumentParser = actions.add_parser(
        "verify", help="find changes, gaps and a cut end", description=DESCRIPTION, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    check.add_argument("file", metavar="FILE", type=Path, help="the log")
    check.add_argument("--key", metavar="KEYFILE", type=Path, help="its key (default: FILE.key)")
    check.set_defaults(command=run)


def run(args: argparse.Namespace) -> int:
    """Verify a log.

    Returns:
        0 when it is as it was written and finished, else 1.

    Raises:
        Stop: log or key cannot be read.
    """
    if not args.file.exists():
        raise Stop(f"There is no log {args.file}.")
    try:
        verdict = verify(str(args.file), read_key(str(args.key or f"{args.file}.key")))
    except AuditError as error:
        raise Stop(str(error)) from error
    except OSError as error:
        raise Stop(f"{args.file} cannot be read: {error.strerror}.") from error
    counts = f"{verdict.lines} lines, {verdict.cells} cells, {verdict.kernels} starts"
    if not verdict.problems:
        sys.stdout.write(f"{args.file}: as it was written ({counts}).\n")
        return 0
    sys.stdout.write(f"{args.file}: not as it was written ({counts}).\n")
    for line, problem in verdict.problems[:_SHOWN]:
        sys.stdout.write(f"  line {line} {problem}.\n")
    if len(verdict.problems) > _SHOWN:
        sys.stdout.write(f"  and {len(verdict.problems) - _SHOWN} more.\n")
    return 1
