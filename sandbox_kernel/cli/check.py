"""`sandbox-kernel check`: does a file keep the policy's rules for code, does it have the function that is asked for?"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..code_rules import Checker, CodeRules, Violation
from ..code_rules.cells import MOST_BYTES, code_cells, plain_python
from ..errors import PolicyError, inert, one_line
from ..policy_layers import is_path
from ..verify import extract_expected_signature, verify_ast_signature
from ..verify.signature import parse_parameters
from .policy import resolved

DESCRIPTION = """\
Reads Python files and notebooks and tells, with line and column, where they break the rules of a policy's [code]
table, and whether they define a function as it was asked for. Nothing of them is run.
"""

EXAMPLES = """\
The rules are guard rails: they catch what is written plainly. What code may do is decided by the sandbox itself
when it runs. A notebook's magics are read as IPython reads them; aliases of earlier cells are known in later ones.

exit status: 0 nothing to complain about, 1 violations (on stdout), 2 wrong usage, or a file that cannot be read

examples:
  sandbox-kernel check homework.py --policy classroom
  sandbox-kernel check homework.ipynb --expect-function mean --expect-args "values, *, digits=2"
  sandbox-kernel check solution.py --expect-function Stack.push --expect-args item
  sandbox-kernel check solution.py --task task.md          the function that the task's text names
  sandbox-kernel check *.ipynb --policy ./course.toml --json | jq '.files[] | select(.violations != [])'
"""


@dataclass
class Finding:
    """What one file showed."""

    file: str
    violations: list[tuple[int | None, Violation]] = field(default_factory=list)
    signature: str | None = None

    @property
    def ok(self) -> bool:
        return not self.violations and self.signature is None

    def lines(self) -> list[str]:
        """For a person: FILE:LINE:COLUMN, as editors and compilers write it."""
        found = []
        for cell, v in self.violations:
            at = f"{self.file}:{f'cell {cell}:' if cell else ''}{v.line}:{v.column}"
            found.append(f"{at}: {v.rule}: {v.message} {v.instead}".rstrip())
        return found + ([f"{self.file}: signature: {self.signature}"] if self.signature else [])

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        found = [{"cell": cell, **violation.to_dict()} for cell, violation in self.violations]
        return {"file": self.file, "ok": self.ok, "violations": found, "signature": self.signature}


def add_command(commands: Any) -> None:
    """Add the command to argparse's collection of subparsers."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "check", help="check code against a policy's rules and a signature, without running it",
        description=DESCRIPTION, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("files", metavar="FILE", nargs="+", help="a .py or .ipynb file; - reads Python from stdin")
    parser.add_argument("--policy", metavar="P", help="a preset or the path of a policy; default: the one that a "
                        "kernel started from here would have")  # fmt: skip
    wanted = parser.add_mutually_exclusive_group()
    wanted.add_argument("--expect-function", metavar="F", help="name of a function that must be defined, Class.method "
                        "for a method")  # fmt: skip
    wanted.add_argument("--task", metavar="TEXT", type=Path, help="a file whose text says which function is wanted")
    parser.add_argument("--expect-args", metavar="ARGS", type=_parameters, help="its parameters, as in a def: "
                        '"a, b=0"; with annotations where they are to be checked (default: any)')  # fmt: skip
    parser.add_argument("--json", action="store_true", help="for programs: {ok, files: [...]}")
    parser.set_defaults(command=run)


def _parameters(text: str) -> str:
    try:
        parse_parameters(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def run(args: argparse.Namespace) -> int:
    """Carry out the command: 0 when every file is as it should be, 1 when not, 2 for wrong usage."""
    try:
        if args.expect_args is not None and not args.expect_function:
            raise ValueError("--expect-args needs --expect-function")
        name, params = _expected(args)
        rules = _rules(args.policy)
        findings = [check_file(file, rules, name, params) for file in args.files]
    except (OSError, ValueError, PolicyError) as error:
        text = error.explain() if isinstance(error, PolicyError) else str(error)
        sys.stderr.write(f"sandbox-kernel check: {inert(text)}\n")
        return 2
    ok = all(finding.ok for finding in findings)
    if args.json:
        sys.stdout.write(json.dumps({"ok": ok, "files": [finding.to_dict() for finding in findings]}, indent=2) + "\n")
    else:
        for line in (line for finding in findings for line in finding.lines()):
            sys.stdout.write(f"{one_line(line)}\n")
        if ok:  # (not among the findings, which programs read)
            sys.stderr.write(f"{len(findings)} file{'s' * (len(findings) != 1)} checked: nothing to complain about\n")
    return 0 if ok else 1


def _expected(args: argparse.Namespace) -> tuple[str | None, Sequence[str] | str | None]:
    if args.task is None:
        return args.expect_function, args.expect_args
    found = extract_expected_signature(args.task.read_text(encoding="utf-8"))
    if found is None:
        raise ValueError(f"{args.task} names no function with its parameters; use --expect-function")
    return found.name, found.params


def _rules(policy: str | None) -> CodeRules:
    file = Path(policy) if policy is not None and is_path(policy) else None
    return CodeRules.from_policy(resolved(policy if file is None else None, file).policy.code)


def check_file(file: str, rules: CodeRules, name: str | None, params: Sequence[str] | str | None) -> Finding:
    """Check one file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not text, larger than 64 MiB, or not a notebook.
    """
    finding, checker = Finding(file), Checker(rules)
    parts = list(_parts(file))
    for cell, code in parts:
        finding.violations += [(cell, violation) for violation in checker.check(code)]
    if name is not None:
        finding.signature = _signature(parts, name, params)
    return finding


def _parts(file: str) -> Sequence[tuple[int | None, str]]:
    data = sys.stdin.buffer.read(MOST_BYTES + 1) if file == "-" else _read(Path(file))
    if len(data) > MOST_BYTES:
        raise ValueError(f"{file} is larger than {MOST_BYTES // 1024**2} MiB")
    try:
        text = data.decode("utf-8-sig")
        if not file.endswith(".ipynb"):
            return [(None, text)]
        return [(number, plain_python(source)) for number, source in code_cells(text)]
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not UTF-8 text") from error
    except ValueError as error:
        raise ValueError(f"{file} cannot be used: {error}") from error


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MOST_BYTES + 1)


def _signature(parts: Sequence[tuple[int | None, str]], name: str, params: Sequence[str] | str | None) -> str | None:
    """What is wrong with the function, by the last cell that defines it."""
    problem = f"There is no function {name}."
    for number, code in reversed(parts):
        at = f"Cell {number}: " if number is not None else ""
        problem = verify_ast_signature(code, name, params) or ""
        if not problem:
            return None
        if verify_ast_signature(code, name) is None:  # it is here, and with other parameters
            return f"{at}{problem}"
    return problem if len(parts) == 1 else f"No cell defines {name}."
