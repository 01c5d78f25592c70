"""`sandbox-kernel completion`: a script for a shell, made from the commands' own options."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

from ..policy_layers import presets

DESCRIPTION = """\
Prints a script that lets a shell complete the commands, their options, and the words that an option takes. It is made
from the commands themselves, so print it again after an upgrade.
"""

EXAMPLES = """\
examples:
  eval "$(sandbox-kernel completion bash)"            bash, now; in ~/.bashrc for every shell
  sandbox-kernel completion bash > ~/.local/share/bash-completion/completions/sandbox-kernel
  eval "$(sandbox-kernel completion zsh)"             zsh, after compinit
  sandbox-kernel completion fish > ~/.config/fish/completions/sandbox-kernel.fish
"""

_BASH = """\
_sandbox_kernel() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} path= each words= files=
    for each in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case "$path $each" in
%(paths)s
        esac
    done
    COMPREPLY=()
    case "$path $before" in
%(values)s
    esac
    if [[ -z $files && -z $words ]]; then
        case "$path" in
%(options)s
        esac
        [[ -n $path ]] && files=yes
    fi
    [[ -n $words ]] && COMPREPLY=($(compgen -W "$words" -- "$word"))
    if [[ -n $files && $word != -* ]]; then
        compopt -o filenames 2>/dev/null
        COMPREPLY+=($(compgen -f -- "$word"))
    fi
}
complete -F _sandbox_kernel sandbox-kernel
"""
_ZSH = "autoload -Uz bashcompinit && bashcompinit\n"


def add_command(commands: Any) -> None:
    """Add the command to argparse's collection of subparsers."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "completion", help="print the script with which a shell completes this command", description=DESCRIPTION,
        epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))
    parser.set_defaults(command=partial(run, commands))


def run(commands: Any, args: argparse.Namespace) -> int:
    """Print the script."""
    tree = dict(_walk("", commands))
    if args.shell == "fish":
        sys.stdout.write("".join(_fish(tree)))
    else:
        sys.stdout.write((_ZSH if args.shell == "zsh" else "") + _bash(tree))
    return 0


def _walk(path: str, commands: Any) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command and action by its words, which begin with a space."""
    for name, parser in commands.choices.items():
        yield f"{path} {name}", parser
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                yield from _walk(f"{path} {name}", action)


def _below(path: str, tree: dict[str, argparse.ArgumentParser]) -> list[str]:
    return [other.rpartition(" ")[2] for other in tree if other.rpartition(" ")[0] == path]


def _words(parser: argparse.ArgumentParser) -> list[str]:
    """What can stand in a command's place for words: its options, and positional words from a list."""
    found = [option for action in parser._actions for option in action.option_strings]
    for action in parser._actions:
        if not action.option_strings and action.choices and not isinstance(action, argparse._SubParsersAction):
            found += map(str, action.choices)
    return found


def _values(action: argparse.Action) -> tuple[list[str], bool]:
    """The words that an option's value can be, and whether it can be a file."""
    if action.choices:
        return [*map(str, action.choices)], False
    if action.metavar == "P" and action.dest in ("preset", "policy"):
        return sorted(presets()), action.dest == "policy"
    return [], action.nargs != 0


def _bash(tree: dict[str, argparse.ArgumentParser]) -> str:
    paths = [f"            {_quoted(path)}) path={_quoted(path)} ;;" for path in tree]
    values, options = [], []
    for path, parser in tree.items():
        for action in parser._actions:
            if action.option_strings and action.nargs != 0:
                patterns = "|".join(_quoted(f"{path} {option}") for option in action.option_strings)
                known, file = _values(action)
                chosen = [f"words={_quoted(' '.join(known))}"] * bool(known) + ["files=yes"] * file
                values.append(f"        {patterns}) {' '.join(chosen)} ;;")
        words = " ".join([*_below(path, tree), *_words(parser)])
        options.append(f"            {_quoted(path)}) words={_quoted(words)} ;;")
    top = " ".join([*_below("", tree), "--help", "--version"])
    options.append(f'            "") words={_quoted(top)} ;;')
    return _BASH % {"paths": "\n".join(paths), "values": "\n".join(values), "options": "\n".join(options)}


def _fish(tree: dict[str, argparse.ArgumentParser]) -> Iterator[str]:
    start = "complete -c sandbox-kernel"
    for path, parser in tree.items():
        above, _, name = path.rpartition(" ")
        seen = f"__fish_seen_subcommand_from {above.strip()}" if above else "__fish_use_subcommand"
        yield f"{start} -n {_quoted(seen)} -a {name} -d {_quoted((parser.description or name).split('.')[0])}\n"
        inside = f"__fish_seen_subcommand_from {name}"
        for action in parser._actions:
            for option in action.option_strings:
                flag = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
                known, file = _values(action)
                takes = (" -r" if file else " -x") * (action.nargs != 0)
                takes += f" -a {_quoted(' '.join(known))}" if known else ""
                text = " ".join((action.help or "").replace("%(", "(").split())[:70]
                yield f"{start} -n {_quoted(inside)} {flag}{takes} -d {_quoted(text)}\n"


def _quoted(text: str) -> str:
    return "'" + " ".join(text.split(" ")).replace("'", " ").replace("\n", " ") + "'"
