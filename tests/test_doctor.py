"""`sandbox-kernel doctor` tells the truth: on this machine, and on machines that refuse this or that."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sandbox_kernel.cli.doctor import _brief
from sandbox_kernel.cli.trials import Trial

from .confined_child import NO_NAMESPACES

ROOT = os.geteuid() == 0
ORDINARY = 1000 if ROOT else os.geteuid()
UIDS = [0, ORDINARY] if ROOT else [ORDINARY]
LEVELS = ["full", "seccomp+landlock", "seccomp", "landlock", "subprocess"]
LANDLOCK_CALLS = ("create_ruleset", "add_rule", "restrict_self")

# Makes another machine of this one for the process and all that it starts, then runs the command. At the end it tells
# what the command left behind.
SCRIPT = """
import json, os, sys
before, refuse, arguments = json.loads(sys.argv[1])
exec(before, {"os": os, "UID": os.getuid()})
if refuse:
    import pyseccomp
    tree = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    for name, number in refuse.items():
        tree.add_rule(pyseccomp.ERRNO(number), pyseccomp.resolve_syscall(pyseccomp.system_arch(), name))
    tree.load()
from sandbox_kernel.cli import main
descriptors = len(os.listdir("/proc/self/fd"))
status = main(arguments)
sys.stdout.flush()
try:
    os.waitpid(-1, os.WNOHANG)
    sys.stderr.write("LEFT a process\\n")
except ChildProcessError:
    pass
left = len(os.listdir("/proc/self/fd")) - descriptors
sys.stderr.write(f"LEFT {left} descriptors\\n" * (left > 0))
sys.exit(status)
"""

HOLE = """
import struct
from sandbox_kernel.seccomp import program
program.compile_filter = lambda **_: struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000)
"""


class Machine:
    """Runs the command as one user in a folder of that user's."""

    def __init__(self, uid: int, folder: Path) -> None:
        self.uid, self.folder = uid, folder

    def run(
        self, *arguments: str, before: str = "", refuse: dict[str, int] | None = None, policy: str = ""
    ) -> subprocess.CompletedProcess[str]:
        paths = [str(Path(__file__).parents[1]), str(Path(msgspec.__file__).parents[1])]
        environ = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(paths), "HOME": "/nonexistent"}
        environ |= {"SANDBOX_KERNEL_POLICY": policy, "PYTHONDONTWRITEBYTECODE": "1"}
        change: dict[str, Any] = {} if self.uid == os.geteuid() else {
            "user": self.uid, "group": self.uid, "extra_groups": []
        }  # fmt: skip
        script = json.dumps([before, refuse or {}, ["doctor", *arguments]])
        ran = subprocess.run(
            [_interpreter(self.uid), "-P", "-c", SCRIPT, script],
            capture_output=True, text=True, cwd=self.folder / "work", env=environ, timeout=50, check=False, **change,
        )  # fmt: skip
        assert "LEFT" not in ran.stderr and "Traceback" not in ran.stderr, ran.stderr
        assert ran.returncode in (0, 1), ran.stderr
        return ran

    def ask(self, *arguments: str, **host: Any) -> Any:
        ran = self.run("--json", "--plan", *arguments, **host)
        assert not ran.stderr, ran.stderr
        found = json.loads(ran.stdout)
        assert found["ok"] is (ran.returncode == 0)
        assert found["verdict"].startswith("Cells would be run." if found["ok"] else "No cell would be run: ")
        for level in found["levels"].values():
            good = bool(level["proofs"]) and all(proof["ok"] for proof in level["proofs"])
            assert not level["proven"] or (good and not level["problem"])
            assert level["proven"] or level["problem"]
            lines = [line for plan in level["plans"] for line in plan.splitlines()]
            scratch = [line.removeprefix("scratch ") for line in lines if line.startswith("scratch ")]
            assert not any(os.path.exists(folder) for folder in scratch), "no private folder is left"
        return found


def _interpreter(uid: int) -> str:
    """One that the uid can reach: this one, or the system's of the same version."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    for python in (sys.executable, f"/usr/bin/python{version}"):
        real = Path(python).resolve()
        if uid == os.geteuid() or (real.exists() and all(p.stat().st_mode & 1 for p in (real, *real.parents))):
            return python
    pytest.skip(f"no Python {version} that uid {uid} may run")


@pytest.fixture(params=UIDS, ids=lambda uid: f"uid{uid}")
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    folder = Path(tempfile.mkdtemp(prefix="doctor-"))
    folder.chmod(0o755)
    (folder / "work").mkdir()
    os.chown(folder / "work", request.param, -1)
    yield Machine(request.param, folder)
    shutil.rmtree(folder)


def _fact(found: Any, name: str) -> Any:
    return next(fact for fact in found["facts"] if fact["name"] == name)


def test_this_machine(machine: Machine) -> None:
    found = machine.ask()
    if found["taken"] != "full":
        pytest.skip(f"this machine has no namespaces: {found['missing']}")
    assert found["asked"] == "auto" and set(found["levels"]) == {"auto", *LEVELS[1:]}
    assert all(level["proven"] for level in found["levels"].values())
    assert found["missing"] == [] or "Landlock" in found["missing"][0]["what"]
    assert len(found["levels"]["auto"]["proofs"]) > 40
    layers = {proof["layer"] for proof in found["levels"]["auto"]["proofs"]}
    assert {"user namespace", "mount namespace", "seccomp", "landlock", "capabilities"} <= layers
    assert any("namespaces" in note for note in found["levels"]["seccomp+landlock"]["notes"])
    assert _fact(found, "user namespaces")["ok"] and _fact(found, "mounts")["ok"]


def test_every_check_is_printed(machine: Machine) -> None:
    found, text = machine.ask("--level", "seccomp"), machine.run("--level", "seccomp", "--verbose").stdout
    assert text.splitlines()[-1] == found["verdict"]
    for proof in found["levels"]["seccomp"]["proofs"]:
        assert f"ok  {proof['layer']}: {proof['tried']} -> " in text
    assert "no sandbox against hostile code" in found["verdict"]
    brief = machine.run("--level", "seccomp").stdout.splitlines()
    assert brief[0] == found["verdict"] and len(brief) < 20 and "--verbose" in brief[-1]
    assert any(line.startswith("  seccomp ") and "proven by" in line for line in brief)


REFUSE = {"unshare": errno.EPERM, "mount": errno.EPERM, "setns": errno.EPERM, "clone3": errno.ENOSYS}


def test_a_filter_that_refuses_unshare_and_mount(machine: Machine) -> None:
    found = machine.ask(refuse=REFUSE)
    assert found["taken"] == "seccomp+landlock" and found["ok"]
    assert _fact(found, "user namespaces")["saw"].startswith("EPERM")
    full = found["levels"]["full"]
    assert not full["proven"] and full["failures"][0]["step"] == "unshare"
    assert full["failures"][0]["errno"] == errno.EPERM and "user namespaces" in full["failures"][0]["remedy"]
    assert any("unshare" in missing["how"] for missing in found["missing"])
    assert any(note.startswith("full ") for note in found["levels"]["auto"]["notes"]), "the fallback is told"


def test_a_filter_that_refuses_mount_alone(machine: Machine) -> None:
    found = machine.ask(refuse={"mount": errno.EPERM})
    assert found["taken"] == "seccomp+landlock"
    assert _fact(found, "user namespaces")["ok"] and not _fact(found, "mounts")["ok"]
    assert any("mounts" in failure["remedy"] for failure in found["levels"]["full"]["failures"])


def test_a_level_that_nobody_asked_for_does_not_say_that_no_cell_is_run() -> None:
    trial = Trial("full", problem="It cannot be had here, so no cell is run: unshare: EPERM.", cause="unshare: EPERM")
    assert _brief(trial).endswith("not to be had: unshare: EPERM")
    assert "no cell is run" in _brief(trial, " (the policy's)")


def test_no_user_namespaces() -> None:
    """max_user_namespaces is 0, inside a private user namespace of an ordinary user."""
    folder = Path(tempfile.mkdtemp(prefix="doctor-"))
    folder.chmod(0o755)
    (folder / "work").mkdir()
    os.chown(folder / "work", ORDINARY, -1)
    try:
        found = Machine(ORDINARY, folder).ask(before=NO_NAMESPACES)
        assert found["taken"] == "seccomp+landlock"
        fact = _fact(found, "user namespaces")
        assert fact["saw"] == "ENOSPC (max_user_namespaces 0)" and "user.max_user_namespaces" in fact["how"]
        assert found["levels"]["full"]["failures"][0]["errno"] == errno.ENOSPC
    finally:
        shutil.rmtree(folder)


def test_hidden_landlock(machine: Machine, tmp_path: Path) -> None:
    hide = {f"landlock_{name}": errno.ENOSYS for name in LANDLOCK_CALLS}
    found = machine.ask(refuse=hide)
    assert not found["ok"] and found["taken"] == ""
    assert "landlock" in found["verdict"].lower()
    assert {name for name, level in found["levels"].items() if level["proven"]} == {"seccomp", "subprocess"}
    fact = _fact(found, "Landlock")
    assert not fact["ok"] and fact["how"] and any(missing["how"] == fact["how"] for missing in found["missing"])
    # Only somebody who writes it down gets less.
    weaker = machine.folder / "weaker.toml"
    weaker.write_text('[isolation]\nrequire = "seccomp"\n')
    found = machine.ask(refuse=hide, policy=str(weaker))
    assert found["ok"] and found["taken"] == "seccomp" and "no sandbox" in found["verdict"]


def test_a_policy_that_needs_more_than_there_is(machine: Machine) -> None:
    found = machine.ask("--preset", "strict", refuse=REFUSE)
    assert not found["ok"] and found["policy"]["require"] == "full"
    assert found["levels"]["seccomp+landlock"]["proven"], "what would be to be had is told"
    assert not machine.ask("--level", "full", refuse=REFUSE)["ok"]


def test_a_layer_that_does_not_hold_is_found(machine: Machine) -> None:
    """The filter lets everything through, so loading it proves nothing."""
    found = machine.ask(before=HOLE)
    assert not found["ok"] and "seccomp" in found["verdict"]
    assert {name for name, level in found["levels"].items() if level["proven"]} == {"landlock", "subprocess"}


def test_a_policy_with_an_error(machine: Machine) -> None:
    bad = machine.folder / "bad.toml"
    bad.write_text("[limits]\nmemroy = 1\n")
    found = machine.ask("--level", "seccomp", policy=str(bad))
    assert not found["ok"] and "Did you mean 'memory'?" in found["verdict"] and found["levels"]["seccomp"]["proven"]


def test_an_audit_log_without_a_folder_is_missed(machine: Machine) -> None:
    policy = machine.folder / "audited.toml"
    policy.write_text(f'[isolation]\nlevel = "seccomp"\n[audit]\nfile = "{machine.folder}/logs/{{pid}}.jsonl"\n')
    found = machine.ask("--level", "seccomp", policy=str(policy))
    assert not found["ok"] and "audit log" in found["verdict"] and "install -d" in found["missing"][-1]["how"]
    (machine.folder / "logs").mkdir()
    (machine.folder / "logs").chmod(0o1733)
    assert machine.ask("--level", "seccomp", policy=str(policy))["ok"]


def test_an_open_output_gate_is_said_loudly(machine: Machine) -> None:
    loose = machine.folder / "loose.toml"
    loose.write_text('[outputs]\ngate = "off"\n')
    lines = machine.run("--level", "seccomp+landlock", "--verbose", policy=str(loose)).stdout.splitlines()
    said = [number for number, line in enumerate(lines) if line.startswith("WARNING: outputs are not checked")]
    assert said == [2, len(lines) - 1], "at the head, and below the verdict"
    assert "can act in the page" in machine.ask("--level", "seccomp+landlock", policy=str(loose))["verdict"]
    brief = machine.run("--level", "seccomp+landlock", policy=str(loose)).stdout.splitlines()
    assert brief[0].startswith("Cells would be run.") and brief[1].startswith("WARNING: outputs are not checked")
    assert "WARNING" not in machine.run("--level", "seccomp+landlock").stdout


def test_plan_is_printed_before_it_is_tried(machine: Machine) -> None:
    text = machine.run("--level", "seccomp+landlock", "--plan").stdout
    lines = text.splitlines()
    plan = lines.index("    level seccomp+landlock: landlock, seccomp")
    result = next(n for n, line in enumerate(lines) if "proven by" in line)
    assert plan < result
    for words in ("landlock read-exec /usr", "rlimit ", "env HOME=", f"workspace {machine.folder}/work ro", "mirror /"):
        assert words in text
    assert "plan 1 of" not in machine.run("--level", "seccomp+landlock").stdout
    found = machine.ask("--level", "seccomp+landlock")
    assert found["levels"]["seccomp+landlock"]["plans"][0].startswith("level seccomp+landlock")


def test_in_process_is_no_level_of_a_kernel(machine: Machine) -> None:
    found = machine.ask("--level", "in-process")
    assert not found["ok"] and "no process of its own" in found["verdict"]
