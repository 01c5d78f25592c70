"""``sandbox-kernel bench``: measure the promises of SPECIFICATION.md on this machine."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from .stop import Stop

DESCRIPTION = """\
Measures what SPECIFICATION.md promises, against the stock kernel of the same environment. Both sides take turns in one
run. A promise is broken when it is so by more than the noise of the run: half the width of the middle 80 % of its
rounds. Other work on the machine makes the noise larger.
"""

EXAMPLES = """\
examples:
  sandbox-kernel bench                         all promises, some minutes
  sandbox-kernel bench --short                 less of everything, under a minute
  sandbox-kernel bench --only start memory     some of them
  sandbox-kernel bench --json bench.json       and all figures as JSON
"""


def add_command(commands: Any) -> None:
    """Add the command to the parser of ``sandbox-kernel``."""
    parser = commands.add_parser(
        "bench", help="measure the promises of SPECIFICATION.md against the stock kernel", description=DESCRIPTION,
        epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--short", action="store_true", help="fewer rounds, and not all promises")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[], help="these promises")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--inform", action="store_true", help="exit with 0 also when a promise is broken")
    parser.set_defaults(command=run)


def run(args: argparse.Namespace) -> int:
    """Measure and print.

    Returns:
        0 when all promises are kept, or with ``--inform``; 1 when one is broken or could not be measured.

    Raises:
        Stop: a promise of that name does not exist.
    """
    from ..bench import PROMISES, Verdict, judge  # psutil and the clients are slow to import
    from ..bench.measures import Measures
    from ..bench.running import Unanswered

    names = [promise.name for promise in PROMISES]
    if unknown := set(args.only) - set(names):
        raise Stop(f"There is no promise {sorted(unknown)[0]!r}. There are: {', '.join(names)}.")
    wanted = [p for p in PROMISES if p.name in args.only or (not args.only and (p.short or not args.short))]
    verdicts: list[Verdict] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sandbox-bench-") as folder:
        measures = Measures(Path(folder), short=args.short)
        try:
            for promise in wanted:
                try:
                    verdict = judge(promise, measures.of(promise.name))
                except (Unanswered, ImportError) as error:
                    # Without pandas a promise about frames cannot be looked at; that breaks none.
                    verdict = Verdict(promise, kept=isinstance(error, ImportError), note=str(error))
                verdicts.append(verdict)
                sys.stdout.write(line_of(verdict) + "\n")
                sys.stdout.flush()
        finally:
            measures.close()
    broken = [verdict for verdict in verdicts if not verdict.kept]
    about = {"seconds": round(time.monotonic() - began, 1), "load": round(os.getloadavg()[0], 1),
             "cpus": os.cpu_count(), "python": platform.python_version(), "linux": platform.release()}  # fmt: skip
    sys.stdout.write(f"{about['seconds']} s; load {about['load']} on {about['cpus']} processors; "
                     f"Python {about['python']}; Linux {about['linux']}\n")  # fmt: skip
    if args.json:
        told = {**about, "short": args.short, "promises": [verdict.to_json() for verdict in verdicts]}
        args.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return int(bool(broken) and not args.inform)


def line_of(verdict: Any) -> str:
    """One promise, as it is printed."""
    promise = verdict.promise
    if verdict.value is None:
        return f"{'-' if verdict.kept else 'BROKEN':7}{promise.says}: {verdict.note}"
    sign = ">=" if promise.at_least else "<="
    spread = f"{verdict.value:.2f} [{verdict.low:.2f}..{verdict.high:.2f}] {promise.unit}"
    sides = f" ({verdict.ours:.4g} against {verdict.theirs:.4g} {promise.of})" if verdict.theirs is not None else ""
    spread += f", promised {sign} {promise.limit:g}"
    return f"{'kept' if verdict.kept else 'BROKEN':7}{promise.name:13}{promise.says}: {spread}{sides}"
