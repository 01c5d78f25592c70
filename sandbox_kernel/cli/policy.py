"""`sandbox-kernel policy`: what a kernel started from here may do, and whether a file is a policy."""

from __future__ import annotations

import argparse
import inspect
import json
import os
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from .. import launcher
from ..errors import PolicyError
from ..policy import KEYS, Policy, Resolved
from ..policy_layers import BUILT_IN, Layers, is_path, preset_file, presets, read_toml
from .stop import lists_commands

DESCRIPTION = """\
A policy says what a sandbox may do: how strongly it is isolated, how much it may use, what it sees. It is a TOML
file or the name of a preset.
"""

EXAMPLES = """\
examples:
  sandbox-kernel policy show                      every value that a kernel started from here has, and its origin
  sandbox-kernel policy show --preset classroom   the same if the preset were asked for
  sandbox-kernel policy check course.toml         is this a policy, and does the administrator allow it?

a policy file:
  preset = "classroom"          # start from these values
  [limits]
  memory = "2GiB"
  cell_time = "90s"
  [files]
  read = ["/srv/course/data"]

Where policies come from, later ones win: built-in defaults, /etc/sandbox-kernel/policy.toml (the administrator's;
the others may only tighten what it says), ~/.config/sandbox-kernel/policy.toml, the variable
SANDBOX_KERNEL_POLICY (absolute path or preset) in the environment of whoever starts the kernel.
"""

SHOW_EXAMPLES = """\
The environment of this command counts: HOME, XDG_CONFIG_HOME and SANDBOX_KERNEL_POLICY.

examples:
  sandbox-kernel policy show
  sandbox-kernel policy show --file ~/policies/course.toml
  sandbox-kernel policy show --json | jq '.["limits.memory"]'
"""

CHECK_EXAMPLES = """\
Reads each file as a kernel would, within the bounds that the administrator of this machine has set.

exit status: 0 all can be used, 1 at least one cannot (the reason is on stderr)

examples:
  sandbox-kernel policy check course.toml
  sandbox-kernel policy check /etc/sandbox-kernel/policy.toml
"""


def add_command(commands: Any) -> None:
    """Add the command to argparse's collection of subparsers."""
    raw = argparse.RawDescriptionHelpFormatter
    parser: argparse.ArgumentParser = commands.add_parser(
        "policy", help="show or check what a sandbox may do", description=DESCRIPTION, epilog=EXAMPLES,
        formatter_class=raw,
    )  # fmt: skip
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND")
    lists_commands(parser)
    text = "Shows each value of the policy that a kernel started from here has, with its origin."
    show = verbs.add_parser("show", help="every value and where it came from", description=text,
                            epilog=SHOW_EXAMPLES, formatter_class=raw)  # fmt: skip
    which = show.add_mutually_exclusive_group()
    which.add_argument("--preset", metavar="P", help="as if SANDBOX_KERNEL_POLICY named this preset: "
                       + ", ".join(presets()))  # fmt: skip
    which.add_argument("--file", metavar="F", type=Path, help="as if SANDBOX_KERNEL_POLICY named this file")
    show.add_argument("--json", action="store_true", help="for programs: {key: {value, shown, origin}}")
    show.set_defaults(command=run_show)
    check = verbs.add_parser("check", help="whether a file can be used", description="Checks policy files.",
                             epilog=CHECK_EXAMPLES, formatter_class=raw)  # fmt: skip
    check.add_argument("files", metavar="FILE", nargs="+", type=Path, help="a policy (TOML)")
    check.set_defaults(command=run_check)
    docs = verbs.add_parser("docs", help="the reference of all keys and presets (Markdown)",
                            description="Prints the reference of all keys and presets as Markdown.")  # fmt: skip
    docs.set_defaults(command=run_docs)


def resolved(preset: str | None, file: Path | None) -> Resolved:
    """The policy that a kernel started with this command's environment would have.

    Args:
        preset: in place of SANDBOX_KERNEL_POLICY; None: as it is.
        file: the same for a path, which may be relative here: somebody typed it.

    Raises:
        PolicyError: it cannot be used.
    """
    asked = preset if file is None else str(file.expanduser().resolve())
    environment = dict(os.environ)
    if asked is not None:
        # The same rule as in the variable, but a preset that looks like a path is a slip here.
        if preset is not None and is_path(preset):
            raise PolicyError("--preset", f"{preset!r} is a path; use --file")
        if preset:
            preset_file(preset, "--preset")
        environment[launcher.POLICY_VARIABLE] = asked
    return Policy.resolve(environment, etc=Path(launcher.ADMINISTRATOR))


def run_show(args: argparse.Namespace) -> int:
    """Carry out `policy show`."""
    found = resolved(args.preset, args.file)
    if args.json:
        values = found.policy.values()
        rows = {k: {"value": KEYS[k].write(values[k]), "shown": v, "origin": o} for k, v, o in found.rows()}
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
        return 0
    sys.stdout.write("\n".join(text_rows(found)) + "\n")
    return 0


def text_rows(found: Resolved) -> list[str]:
    """The policy as aligned lines: key, value, origin."""
    rows = found.rows()
    # One long list must not push every origin off the screen.
    wide = max(len(key) for key, _, _ in rows), min(28, max(len(value) for _, value, _ in rows))
    return [f"{key:{wide[0]}}  {value:{wide[1]}}  {origin}" for key, value, origin in rows]


def run_check(args: argparse.Namespace) -> int:
    """Carry out `policy check`: 0 when all files can be used, else 1."""
    bad = 0
    for file in args.files:
        path = str(file.expanduser().resolve())
        try:
            if str(file) in presets() and not file.exists():
                raise PolicyError(str(file), f"is a preset and no file; see sandbox-kernel policy show --preset {file}")
            found = _alone(path)
        except PolicyError as error:
            bad += 1
            sys.stderr.writelines(f"{problem.explain()}\n" for problem in _problems(path, error))
        else:
            sys.stdout.write("\n".join([f"{file}: can be used", *_summary(found, path, file)]) + "\n")
    return 1 if bad else 0


def _alone(path: str) -> Resolved:
    """What holds with this file, and without the user's own policy."""
    if path == os.path.realpath(launcher.ADMINISTRATOR):  # it bounds the others, not itself
        layers = Layers(KEYS)
        layers.add_administrator(path)
        return Resolved(Policy.load(path), layers.origins)
    environment = {"HOME": "/nonexistent", launcher.POLICY_VARIABLE: path}
    return Policy.resolve(environment, etc=Path(launcher.ADMINISTRATOR))


def _summary(found: Resolved, path: str, file: Path) -> list[str]:
    """The file's own values, a line each, and how many came with it."""
    rows = [row for row in found.rows() if row[2] != BUILT_IN]
    own = [(key, shown) for key, shown, origin in rows if path in origin.split(", ")]
    wide = max((len(key) for key, _ in own), default=0)
    others = len(rows) - len(own)
    more = f"{others} further values come from its preset or the administrator" if others else "the rest is the default"
    lines = [f"  {key:{wide}}  {shown}" for key, shown in own]
    return [*lines, f"  ({more}: sandbox-kernel policy show --file {file})"]


def _problems(path: str, first: PolicyError) -> list[PolicyError]:
    """What is wrong with each line of a file; nobody should need as many tries as there are slips."""
    try:
        tables = read_toml(path)
    except PolicyError:
        return [first]
    problems: list[PolicyError] = []
    for table, content in tables.items():
        lines = [{key: value} for key, value in content.items()] if isinstance(content, Mapping) else [content]
        for line in lines:
            try:
                layers = Layers(KEYS)
                if os.path.exists(launcher.ADMINISTRATOR) and path != os.path.realpath(launcher.ADMINISTRATOR):
                    layers.add_administrator(launcher.ADMINISTRATOR)
                layers.add_tables({table: line}, path)
            except PolicyError as error:
                if all(error.message != known.message for known in problems):
                    problems.append(error)
    return problems or [first]  # (none: the lines contradict each other)


def run_docs(args: argparse.Namespace) -> int:
    """Carry out `policy docs`."""
    sys.stdout.write(document())
    return 0


# ------------------------------------------------------------ docs/policy.md

INTRODUCTION = """\
# Policies

<!-- Made by `sandbox-kernel policy docs`; change sandbox_kernel/policy.py, its presets or cli/policy.py instead. -->

A policy says what a sandbox may do. It is a TOML file or the name of a preset. Every key has a default, so an empty
file is a policy, and a file says only what it wants otherwise:

```toml
preset = "classroom"            # start from a preset; without this line from the defaults

[limits]
memory = "2GiB"                 # sizes: 4096, "512MiB", "4GB"
cell_time = "90s"               # times: 30, "30s", "5min", "2h"; "none" where no limit is possible

[files]
read = ["/srv/course/data"]
```

`sandbox-kernel policy check FILE` says whether a file can be used, `sandbox-kernel policy show` what a kernel started
here would have and where each value came from, `%sandbox` in a notebook what the running kernel has. A file with an
error is never used in part: the kernel starts, runs no cell, and each cell says what is wrong.

## Where policies come from

Later ones win:

1. the built-in defaults;
2. `/etc/sandbox-kernel/policy.toml`, the administrator's;
3. `sandbox-kernel/policy.toml` in the user's configuration folder (`$XDG_CONFIG_HOME`, else `~/.config`);
4. the variable `SANDBOX_KERNEL_POLICY` in the environment of whoever starts the kernel: an absolute path or the name
   of a preset. `sandbox-kernel install --name course --policy course.toml` writes it into a kernelspec;
5. arguments of the Python API.

**What the administrator's file says, the others may only tighten.** The last column of the tables below tells what
that means for each key. A file that asks for more is an error that names the file, the key and both values; a preset
that asks for more is cut to what is allowed. Keys that the administrator's file leaves out are everybody's own.

**Nothing that comes with a notebook counts.** The folder in which a kernel starts is not searched, a relative path in
`SANDBOX_KERNEL_POLICY` is an error, and so is a policy in the notebook's folder, where cells could change it.
"""

TIGHTER = {
    "file": "the same file",
    "size": "smaller", "count": "smaller", "time": "shorter", "paths": "the same folders, or folders inside them",
    "flag": "`true`", "modules": "the same modules, or modules below them", "refused words": "more names",
    "names": "fewer names", "types": "fewer types", "file names": "fewer names", "hidden names": "more names",
    "refused names": "more names", "values": "names that are neither set nor denied there",
}  # fmt: skip
KEYS_ONLY = {
    "isolation.level": "a level with every layer of what was fixed (`full` has all)",
    "isolation.require": "the same",
    "network.mode": "",
    "files.workspace": "`none`, `read-only`, then `overlay`",
    "files.aside": "`none`, then `stored`",
    "recovery.checkpoints": "`off`",
    "worker.startup": "`none`",
    "code.dunder_attributes": "`deny`",
    "outputs.gate": "`on`",
    "outputs.html": "`text`, then `sanitise`",
    "outputs.widgets": "`off`",
    "outputs.comms": "`widgets`",
}


def document() -> str:
    """The text of docs/policy.md."""
    lines = [INTRODUCTION, "## Keys\n"]
    for field in msgspec.structs.fields(Policy):
        structure = type(field.default)
        first, about = _docstring(structure)
        lines += [f"### {first.rstrip('.')}\n", "| key | default | meaning | tighter is |", "|---|---|---|---|"]
        for key, meaning in about.items():
            rule = KEYS[f"{field.name}.{key}"]
            choices = f" One of {', '.join(f'`{c}`' for c in rule.choices)}." if rule.choices else ""
            tighter = KEYS_ONLY.get(rule.name) or TIGHTER.get(rule.kind, "")
            lines.append(f"| `{key}` | {_code(rule.show(rule.default))} | {meaning}{choices} | {tighter} |")
        lines.append("")
    lines.append("## Presets\n")
    for name in presets():
        lines.append(f"- {_about_preset(name)}")
    names = [name for name in ("strict", "assistant", "classroom", "standard", "open") if name in presets()]
    lines += ["", f"| | {' | '.join(f'`{n}`' for n in names)} |", "|---" * (len(names) + 1) + "|"]
    policies = {name: Policy.load(name).values() for name in names}
    for key, rule in KEYS.items():
        shown = [rule.show(policies[name][key]) for name in names]
        if len(set(shown)) > 1 or key.startswith("isolation."):
            lines.append(f"| `{key}` | {' | '.join(_code(text) for text in shown)} |")
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    return text if text in ("none", "(empty)") or text[0].isdigit() else f"`{text}`"


def _docstring(structure: type) -> tuple[str, dict[str, str]]:
    """The first line, and the text of each attribute on one line."""
    text = inspect.getdoc(structure) or ""
    head, _, attributes = text.partition("\nAttributes:\n")
    return " ".join(head.split()), dict(_attributes(textwrap.dedent(attributes).strip()))


def _attributes(text: str) -> Iterator[tuple[str, str]]:
    for part in re.split(r"\n(?=\w)", text):
        name, _, meaning = part.partition(":")
        meaning = " ".join(meaning.split()).replace("``", "`")
        yield name, f"{meaning[:1].upper()}{meaning[1:]}"


def _about_preset(name: str) -> str:
    """The comment at the head of a preset's file, as one paragraph."""
    with (Path(inspect.getfile(Policy)).with_name("presets") / f"{name}.toml").open(encoding="utf-8") as file:
        words: list[str] = []
        for line in file:
            if not line.startswith("#"):
                break
            words += line[1:].split()
    return f"**`{name}`** {' '.join(words).removeprefix(f'{name}: ')}"
