"""What an attempt is: a small program, the effect that proves it, and the layer that answers it at each level."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Open:
    """The level does not stop this; tests hold that it is so, and the page of threats says why."""

    reason: str


Answer = str | Open


@dataclass(frozen=True)
class Attempt:
    """One way out.

    Attributes:
        id: unique; the page of threats names it.
        what: what is tried, as a sentence without a subject.
        code: the program. Names in capitals are given by the stage (see `stage.World`); what it wants to hand
            out it assigns to ``out``.
        full: the layer that answers at level ``full``; ``bare``: at ``seccomp+landlock``.
        effect: how the stage judges success, from outside:
            "out": `proof` came out of the process; "changed": files outside are not as before; "arrived": a
            listener outside got the token; "hit": a bystander (or the parent) got a signal; "altered": a
            bystander's (or the parent's) priority, limits or processors changed; "setid": a file in the
            workspace carries other rights than its modes may; "blocked": a host program cannot open a file;
            "survived": something still writes after its process was killed; "ran": a host program executed
            what was planted; "stuck": its process cannot be ended.
        proof: template of the text that must come out; ``{SECRET}`` is never given to the program.
        after: what somebody outside does next, in the course of ordinary work; ``then``: the program goes on.
        needs: what this host must offer for the attempt to be possible at all.
        private: without layers it runs in namespaces of its own, for what it does would change the machine.
        stage: "usual", or "import-path" where the interpreter's import path leads through the workspace.
    """

    id: str
    what: str
    code: str
    full: Answer
    bare: Answer
    effect: str = "out"
    proof: str = "{SECRET}"
    after: str = ""
    then: str = ""
    needs: tuple[str, ...] = ()
    private: bool = False
    stage: str = "usual"

    @property
    def names(self) -> frozenset[str]:
        """Names in capitals that the program and its companions use."""
        return frozenset(re.findall(r"\b[A-Z][A-Z0-9_]*\b", f"{self.code} {self.after} {self.then} {self.proof}"))

    def answer(self, level: str) -> Answer:
        """The expected layer, or `Open`."""
        return self.full if level == "full" else self.bare


MOUNTS, LANDLOCK, SECCOMP = "mount namespace", "Landlock", "seccomp"
PIDS, NETWORK, SCOPE = "pid namespace", "network namespace", "Landlock signal scope"
