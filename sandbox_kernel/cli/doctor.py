"""`sandbox-kernel doctor`: what this machine offers, and which sandbox a kernel started from here gets."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from .. import launcher
from ..errors import PolicyError, SandboxError
from ..policy import LEVELS, Policy, Resolved
from ..report import open_gate_text
from .policy import resolved
from .stop import Stop

if TYPE_CHECKING:
    from ..plan.model import Plan
    from .host import Fact
    from .trials import Trial

DESCRIPTION = """\
Starts a sandbox at every level, without any cell in it, lets it try what it must not be able to do, and says which
level a kernel started from here takes, which others this machine offers, what is missing and how to get it. With
--verbose each attempt and the kernel's answer are shown. Nothing is changed and nothing is left running.
"""

EXAMPLES = """\
Run it as the user, in the folder and in the container in which kernels will run: each of these decides.

exit status: 0 the policy's level (for "auto": one that is at least isolation.require) is proven here, so cells
would be run; 1 no cell would be run, and the first line says why

examples:
  sandbox-kernel doctor
  sandbox-kernel doctor --verbose                   with every attempt and its answer
  sandbox-kernel doctor --preset strict             would that policy work here?
  sandbox-kernel doctor --level full --plan         one level, with everything that is done to make it
  sandbox-kernel doctor --json | jq .ok             for programs
"""

OTHERS = ("full", "seccomp+landlock", "seccomp", "landlock", "subprocess")


def add_command(commands: Any) -> None:
    """Add the command to argparse's collection of subparsers."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "doctor",
        help="what this machine offers, and whether the sandbox holds here",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--level", metavar="L", choices=LEVELS, help="try this level alone, whatever the policy "
                        f"says: {', '.join(LEVELS[:-1])}")  # fmt: skip
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--preset", metavar="P", help="as if SANDBOX_KERNEL_POLICY named this preset")
    which.add_argument("--file", metavar="F", type=Path, help="as if SANDBOX_KERNEL_POLICY named this file")
    parser.add_argument("-v", "--verbose", action="store_true", help="show each attempt and what it saw")
    parser.add_argument("--plan", action="store_true", help="the same, and before it what is done at each level")
    parser.add_argument("--json", action="store_true", help="everything as one JSON object")
    parser.set_defaults(command=run)


def run(args: argparse.Namespace) -> int:
    """Carry out the command: 0 when cells would be run, else 1.

    Raises:
        Stop: libseccomp or a package is missing, so nothing can be tried.
    """
    try:
        from . import host
    except (ImportError, OSError, RuntimeError) as error:
        raise Stop(
            f"A part of the sandbox cannot be loaded ({error}), so no cell would be run. Install libseccomp 2 "
            "(Debian: apt install libseccomp2, Fedora: dnf install libseccomp) and the package again."
        ) from error
    refusal: PolicyError | None = None
    policy = Resolved()
    try:
        policy = resolved(args.preset, args.file)
    except PolicyError as error:
        refusal = error
    log = policy.policy.audit.file
    facts = [*host.facts(), *([host.audit_log(log)] if log else [])]
    report = _Report(policy, refusal, args.level, facts, host.about(), show=not args.json, plans=args.plan,
                     verbose=args.verbose or args.plan)  # fmt: skip
    report.run()
    if args.json:
        sys.stdout.write(json.dumps(report.plain(), indent=2) + "\n")
    return 0 if report.ok else 1


class _Report:
    """The examination: tries the levels, and tells it as text while it goes on or as one object afterwards."""

    def __init__(
        self, policy: Resolved, refusal: PolicyError | None, level: str | None, facts: list[Fact], about: str, *,
        show: bool, plans: bool, verbose: bool,
    ) -> None:  # fmt: skip
        self._policy, self._refusal, self._facts, self._about = policy, refusal, facts, about
        self._show, self._with_plans, self._verbose = show, plans, verbose
        self._asked = level or policy.policy.isolation.level
        self._named = level
        self._trials: dict[str, Trial] = {}
        self._plans: dict[str, list[str]] = {}

    @property
    def ok(self) -> bool:
        """Whether cells would be run."""
        return self._refusal is None and self._unaudited() is None and self._trials[self._asked].proven

    def _unaudited(self) -> Fact | None:
        return next((fact for fact in self._facts if fact.name == "audit log" and not fact.ok), None)

    def run(self) -> None:
        """Try the policy's own level first, then the others unless one was named."""
        if self._verbose:
            self._tell_all()
        else:
            self._tell_briefly()

    def _others(self) -> Iterator[str]:
        """The levels to be tried after the policy's own."""
        taken = self._trials[self._asked].level
        for level in () if self._named else OTHERS:
            if level != self._asked and not (level == taken and self._asked == "auto"):
                yield level

    def _tell_briefly(self) -> None:
        self._try(self._asked)
        isolation, origins = self._policy.policy.isolation, self._policy.origins
        said = (f"level = {isolation.level} ({origins['isolation.level']}), "
                f"require = {isolation.require} ({origins['isolation.require']})")  # fmt: skip
        if self._refusal is not None:
            said = "cannot be used, see above; what follows is without it"
        self._say(self.verdict(), "", f"  {'here':<17} {self._about}", f"  {'policy':<17} {said}")
        self._say(_brief(self._trials[self._asked], " (the policy's)" if not self._named else ""))
        for level in self._others():
            self._try(level)
            self._say(_brief(self._trials[level]))
        for note in self._trials[self._asked].notes:
            self._say(f"  {'note':<17} {note}")
        self._say("", *self._missing_lines(), "`sandbox-kernel doctor --verbose` shows each attempt and what it saw.")

    def _tell_all(self) -> None:
        self._say(self._about)
        isolation = self._policy.policy.isolation
        origins = self._policy.origins
        self._say(f"policy: level = {isolation.level} ({origins['isolation.level']}), "
                  f"require = {isolation.require} ({origins['isolation.require']})")  # fmt: skip
        if self._policy.policy.outputs.gate == "off":
            self._say(self._warning())
        self._say("", "This machine")
        self._say(*(f"  {'ok' if f.ok else 'NO'}  {f.name}: {f.tried} -> {f.saw}" for f in self._facts))
        self._try(self._asked)
        for level in self._others():
            self._try(level)
        self._say("", *self._missing_lines())
        self._say("", self.verdict())

    def verdict(self) -> str:
        """The answer in a sentence."""
        if self._refusal is not None:
            return f"No cell would be run: {self._refusal.explain()}"
        unaudited = self._unaudited()
        if unaudited is not None:
            return f"No cell would be run: {unaudited.name}: {unaudited.saw}. {unaudited.how}"
        trial = self._trials[self._asked]
        if not trial.proven:
            return f"No cell would be run: {trial.problem}"
        chosen = f'The level "{self._asked}" takes "{trial.level}"' if self._asked == "auto" else f'"{trial.level}"'
        weak = "" if trial.level in ("full", "seccomp+landlock") else " It is no sandbox against hostile code."
        warning = f"\n{self._warning()}" if self._policy.policy.outputs.gate == "off" else ""
        return f"Cells would be run. {chosen}, proven by {len(trial.proofs)} checks.{weak}{warning}"

    def _warning(self) -> str:
        return open_gate_text(self._policy.origins["outputs.gate"]).rstrip()

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        trial = self._trials[self._asked]
        return {
            "ok": self.ok,
            "verdict": self.verdict(),
            "machine": self._about,
            "facts": [fact.plain() for fact in self._facts],
            "policy": {
                "error": str(self._refusal or ""),
                "level": self._policy.policy.isolation.level,
                "require": self._policy.policy.isolation.require,
                "origins": dict(self._policy.origins),
            },
            "asked": self._asked,
            "taken": trial.level if self.ok else "",
            "levels": {
                name: {
                    **{key: getattr(t, key) for key in ("level", "proven", "problem", "advice", "identity", "notes")},
                    "start_ms": round(t.start_ms, 1), "proofs": t.proofs, "failures": t.failures,
                    "plans": self._plans.get(name, []),
                }
                for name, t in self._trials.items()
            },
            "missing": [{"what": what, "how": how} for what, how in self._missing()],
        }  # fmt: skip

    # ------------------------------------------------------------ trials

    def _try(self, level: str) -> None:
        from .trials import Trial, start

        if self._verbose:
            self._say("", f"Level {level}" + (" (the policy's)" if level == self._asked and not self._named else ""))
        try:
            plans = self._make_plans(level)
        except (SandboxError, OSError) as error:
            advice = error.advice() if isinstance(error, SandboxError) else ""
            trial = Trial(level, problem=str(error), advice=advice)
        else:
            if self._with_plans:
                self._plans[level] = [plan.describe() for plan in plans]
                for number, text in enumerate(self._plans[level], 1):
                    self._say(f"  plan {number} of {len(plans)}", *(f"    {line}" for line in text.splitlines()))
            trial = start(level, plans)
        self._trials[level] = trial
        if self._verbose:
            self._say(*_trial_lines(trial))

    def _make_plans(self, level: str) -> list[Plan]:
        """The same plans as the kernel makes, for another level."""
        from ..plan.make import make_plans

        policy: Policy = self._policy.policy
        policy = msgspec.structs.replace(policy, isolation=msgspec.structs.replace(policy.isolation, level=level))
        rules, folder = policy.environment, os.getcwd()
        variables = {**launcher.passed(os.environ, rules.allow, rules.deny), **rules.set}
        return make_plans(
            policy, folder, launcher_env=variables, hidden=launcher.hidden_paths(os.environ, [], folder)
        )

    # ------------------------------------------------------------ words

    def _say(self, *lines: str) -> None:
        if self._show:
            sys.stdout.write("".join(f"{line}\n" for line in lines))
            sys.stdout.flush()  # before the next fork, and for whoever watches

    def _missing(self) -> Iterator[tuple[str, str]]:
        """(what, how to get it), each once."""
        seen = set()
        for fact in self._facts:
            if not fact.ok and fact.how not in seen:
                seen.add(fact.how)
                yield f"{fact.name}: {fact.saw}", fact.how
        for trial in self._trials.values():
            for failure in trial.failures:
                what = f"level {failure['level']}: {failure['step']}: {failure['error']}"
                if what not in seen:
                    seen.add(what)
                    yield what, str(failure["remedy"])

    def _missing_lines(self) -> Iterator[str]:
        missing = list(self._missing())
        yield "What is missing" if missing else "Of this machine nothing is missing."
        for what, how in missing:
            yield f"  {what}"
            if how:
                yield f"    {how}"


def _brief(trial: Trial, whose: str = "") -> str:
    got = f"takes {trial.level}, " if trial.asked != trial.level and trial.proven else ""
    if not trial.proven:
        # Of the policy's level the whole sentence; that of another one would say that no cell is run, and cells are.
        why = trial.problem if whose else trial.cause or trial.problem
        return f"  {trial.asked:<17} not to be had{whose}: {why}"
    return f"  {trial.asked:<17} {got}proven by {len(trial.proofs)} checks, ready in {trial.start_ms:.0f} ms{whose}"


def _trial_lines(trial: Trial) -> Iterator[str]:
    if trial.proven:
        got = f"{trial.level}, " if trial.asked != trial.level else ""
        yield f"  {got}proven by {len(trial.proofs)} checks, ready in {trial.start_ms:.0f} ms, as {trial.identity}"
    else:
        yield f"  not to be had: {trial.problem}"
        if trial.advice:
            yield f"  {trial.advice}"
    for proof in trial.proofs:
        yield f"    {'ok' if proof['ok'] else 'NO'}  {proof['layer']}: {proof['tried']} -> {proof['saw']}"
    for note in trial.notes:
        yield f"    note: {note}"
