"""The probes: good under a real sandbox, and each of them bad when its layer is missing."""

from __future__ import annotations

import os
import resource
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel import linux
from sandbox_kernel.confine import landlock
from sandbox_kernel.confine.seccomp import load_filter
from sandbox_kernel.proof import probes
from sandbox_kernel.seccomp.program import compile_filter
from tests.confined_child import ANSWER_FDS, NOBODY, Outcome, attempt, become_ordinary

ABI = linux.landlock_abi()
FULL = compile_filter(level="full", landlock_abi=ABI)
LOCAL = compile_filter(level="seccomp+landlock", landlock_abi=ABI)
LIMITS = {resource.RLIMIT_CORE: (0, 0), resource.RLIMIT_NOFILE: (256, 256)}
ALL_NAMESPACES = (
    linux.CLONE_NEWUSER | linux.CLONE_NEWNS | linux.CLONE_NEWPID | linux.CLONE_NEWNET | linux.CLONE_NEWIPC
    | linux.CLONE_NEWUTS | linux.CLONE_NEWCGROUP
)  # fmt: skip


def in_fork(act: Callable[[], Any]) -> Any:
    outcome = attempt(act, ordinary=False)
    assert outcome.succeeded, outcome
    return outcome.value


def keep_only(fds: frozenset[int]) -> None:
    """Close the rest; 0, 1 and 2 are open in any case."""
    null = os.open("/dev/null", os.O_RDWR)
    for fd in {0, 1, 2} - {null}:
        if not probes._is_open(fd):
            os.dup2(null, fd)
    for fd in range(256):
        if fd not in fds and probes._is_open(fd):
            os.close(fd)


def expected(canary: str, fds: frozenset[int], **changes: Any) -> probes.Expected:
    return probes.Expected(
        namespaces=probes.namespace_ids(), environment={"HOME": "/home"}, rlimits=LIMITS, fds=fds,
        canary=canary, front_pid=os.getpid(), landlock_abi=ABI, **changes,
    )  # fmt: skip


def open_fds() -> frozenset[int]:
    return frozenset(fd for fd in map(int, os.listdir("/proc/self/fd")) if probes._is_open(fd))


def bad(proofs: list[probes.Proof]) -> list[probes.Proof]:
    return [proof for proof in proofs if not proof["ok"]]


@pytest.fixture
def canary(tmp_path: Path) -> Any:
    with tempfile.NamedTemporaryFile() as file:
        os.chmod(file.name, 0o644)
        yield file.name


@pytest.mark.skipif(ABI < 6, reason="needs Landlock ABI 6")
def test_all_good_without_namespaces(canary: str) -> None:
    outcome, wall_s = local(canary)
    assert outcome.succeeded, outcome
    assert not bad(outcome.value)
    assert {p["layer"] for p in outcome.value} == {
        "seccomp", "landlock", "capabilities", "no_new_privs", "dumpable", "rlimits", "descriptors",
        "environment",
    }  # fmt: skip
    print(f"{len(outcome.value)} probes in {wall_s * 1e3:.1f} ms")


def local(canary: str, *, without: str = "") -> tuple[Outcome, float]:
    """The level seccomp+landlock, less one layer."""
    names = probes.namespace_ids()

    def act() -> tuple[list[probes.Proof], float]:
        fds = frozenset({0, 1, 2, *ANSWER_FDS})
        if without != "rlimits":
            for number, values in LIMITS.items():
                resource.setrlimit(number, values)
        if without != "environment":
            os.environ.clear()
            os.environ["HOME"] = "/home"
        keep_only(fds)
        if without == "descriptors":
            os.dup(0)
        linux.set_dumpable(without == "dumpable")
        if without != "landlock":
            landlock.apply(landlock.Rules((("/proc/self", "read"),)), ABI)
        if without != "seccomp":
            load_filter(LOCAL)
        wanted = probes.Expected(
            namespaces=names, environment={"HOME": "/home"}, rlimits=LIMITS, fds=fds, canary=canary,
            front_pid=os.getppid(), landlock_abi=ABI,
        )  # fmt: skip
        start = time.perf_counter()
        return probes.run_probes("seccomp+landlock", wanted), time.perf_counter() - start

    outcome = attempt(act)
    assert outcome.succeeded, outcome
    proofs, wall_s = outcome.value
    return Outcome(value=proofs), wall_s


@pytest.mark.skipif(ABI < 6, reason="needs Landlock ABI 6")
@pytest.mark.parametrize(
    "layer", ["seccomp", "landlock", "dumpable", "rlimits", "environment", "descriptors"]
)
def test_a_missing_layer_is_seen(canary: str, layer: str) -> None:
    outcome, _ = local(canary, without=layer)
    assert outcome.succeeded, outcome
    found = {str(p["layer"]) for p in bad(outcome.value)}
    assert layer in found, outcome.value
    assert found <= {layer, "landlock"} if layer == "seccomp" else found == {layer}
    if layer == "seccomp":
        rows = [p for p in outcome.value if p["layer"] == "seccomp" and p["ok"]]
        # What a host may refuse by itself: io_uring, where it is switched off, and limits of a root parent.
        assert {p["tried"] for p in rows} <= {"call io_uring_setup", "call prlimit of another process"}, rows


def test_missing_privileges_are_seen() -> None:
    def act() -> list[probes.Proof]:
        return probes.run_probes("subprocess", probes.Expected(environment=dict(os.environ), fds=open_fds()))

    if os.geteuid() != 0 or linux.has_no_new_privs():
        pytest.skip("needs a process with capabilities and without no_new_privs")
    found = {p["layer"] for p in bad(in_fork(act))}
    assert {"no_new_privs", "capabilities", "dumpable"} <= found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take root's group along")
@pytest.mark.parametrize("primary", [True, False])
def test_roots_group_is_seen_unless_the_front_has_it_itself(primary: bool) -> None:
    def act() -> list[bool]:
        group = 0 if primary else 1000
        os.setgroups([] if primary else [0])
        os.setresgid(group, group, group)
        os.setresuid(1000, 1000, 1000)
        assert probes.in_root_group()
        answers = []
        for own in (False, True):
            proofs = probes._privilege_proofs("subprocess", probes.Expected(root_group=own))
            answers += [bool(p["ok"]) for p in proofs if p["tried"] == "look for root's group"]
        return answers

    assert in_fork(act) == [False, True]


def sandbox(canary: str, then: Callable[[], Any], *, without: int = 0, bare_mounts: bool = False) -> Any:
    """A small sandbox of the full level around ``then``: fresh root with /proc and the canary in it."""

    def act() -> Any:
        uid, gid = os.geteuid(), os.getegid()
        linux.set_dumpable(True)  # a change of uid cleared it, and uid_map would belong to root
        linux.unshare(ALL_NAMESPACES & ~without)
        if not without & linux.CLONE_NEWUSER:
            for name, text in (
                ("setgroups", "deny"),
                ("uid_map", f"{uid} {uid} 1"),
                ("gid_map", f"{gid} {gid} 1"),
            ):
                fd = os.open(f"/proc/self/{name}", os.O_WRONLY)
                os.write(fd, text.encode())
                os.close(fd)
        return attempt(pid_one, ordinary=False)

    def pid_one() -> Any:
        if not bare_mounts:
            linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
            linux.mount("root", "/tmp", "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "size=1m,mode=755")
            os.mkdir("/tmp/proc")
            linux.mount("proc", "/tmp/proc", "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
            Path("/tmp/canary").write_text("x")
            os.chdir("/tmp")
            linux.pivot_root(".", ".")
            linux.umount(".", linux.MNT_DETACH)
            os.chdir("/")
            linux.mount(
                None,
                "/",
                None,
                linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY | linux.MS_NOSUID | linux.MS_NODEV,
            )
        linux.drop_bounding_set()
        linux.drop_capabilities()
        linux.set_dumpable(False)
        landlock.apply(landlock.Rules((("/proc", "read"),)), ABI)
        load_filter(FULL)
        return attempt(then, ordinary=False)

    outcome = attempt(act)
    for _ in range(2):
        assert outcome.succeeded, outcome
        outcome = outcome.value
    return outcome


def can_make_namespaces() -> bool:
    def act() -> None:
        linux.unshare(ALL_NAMESPACES)
        linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)

    return attempt(act).succeeded


namespaces_needed = pytest.mark.skipif(not can_make_namespaces(), reason="the host refuses user namespaces")


@namespaces_needed
@pytest.mark.skipif(ABI < 1, reason="needs Landlock")
def test_all_good_at_full(canary: str) -> None:
    mounts = {"/": frozenset({"ro", "nosuid"}), "/proc": frozenset({"nosuid", "nodev", "noexec"})}
    base = expected("/canary", frozenset(), mounts=mounts)

    def then() -> tuple[list[probes.Proof], float]:
        start = time.perf_counter()
        exact = probes.Expected(
            **{**vars(base), "environment": dict(os.environ), "rlimits": {}, "fds": open_fds()}
        )
        return probes.run_probes("full", exact), time.perf_counter() - start

    proofs, wall_s = sandbox(canary, then).value
    assert not bad(proofs)
    layers = {proof["layer"] for proof in proofs}
    assert layers == {
        *probes.LAYER_OF_NAMESPACE.values(), "seccomp", "landlock", "capabilities", "no_new_privs",
        "dumpable", "rlimits", "descriptors", "environment",
    }  # fmt: skip
    print(f"{len(proofs)} probes in {wall_s * 1e3:.1f} ms")


@namespaces_needed
def test_a_planned_mount_that_is_not_there_is_seen(canary: str) -> None:
    for mounts in (
        {"/": frozenset({"ro"})},
        {"/": frozenset({"ro"}), "/proc": frozenset({"ro"})},
        {"/": frozenset({"ro"}), "/proc": frozenset(), "/usr": frozenset()},
    ):
        base = expected("/canary", frozenset(), mounts=mounts)
        proofs = sandbox(canary, lambda base=base: probes.run_probes("full", base)).value
        assert any(p["tried"] == "compare the mounts with the plan" for p in bad(proofs))


@namespaces_needed
@pytest.mark.parametrize("name", ["net", "ipc", "uts", "cgroup"])
def test_a_namespace_left_out_is_seen(canary: str, name: str) -> None:
    flag = {"net": "NET", "ipc": "IPC", "uts": "UTS", "cgroup": "CGROUP"}[name]
    base = expected("/canary", frozenset())
    act = lambda: probes.run_probes("full", base)  # noqa: E731
    found = {p["layer"] for p in bad(sandbox(canary, act, without=getattr(linux, f"CLONE_NEW{flag}")).value)}
    assert probes.LAYER_OF_NAMESPACE[name] in found


def test_no_namespaces_at_all_are_seen() -> None:
    base = expected("", frozenset())
    outcome = attempt(lambda: probes.run_probes("full", base))
    assert outcome.succeeded, outcome
    proofs = outcome.value
    found = {proof["layer"] for proof in bad(proofs)}
    assert {*probes.LAYER_OF_NAMESPACE.values(), "seccomp", "landlock"} <= found


def test_outside_proofs() -> None:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        become_ordinary()
        linux.set_dumpable(False)
        load_filter(LOCAL)
        os.write(writer, b"x")
        time.sleep(10)
        os._exit(0)
    try:
        assert os.read(reader, 1) == b"x"
        uid = NOBODY if os.geteuid() == 0 else os.geteuid()
        good = probes.outside_proofs(pid, "seccomp+landlock", uid=uid)
        assert len(good) == 4
        assert not bad(good)
        as_full = {proof["layer"] for proof in bad(probes.outside_proofs(pid, "full", uid=uid + 1))}
        assert {"pid namespace", "capabilities"} <= as_full
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reader)
        os.close(writer)
    own = {proof["layer"] for proof in bad(probes.outside_proofs(os.getpid(), "seccomp"))}
    assert "seccomp" in own
    assert bad(probes.outside_proofs(pid, "full"))  # gone


@namespaces_needed
def test_outside_proofs_at_full(canary: str) -> None:
    (reader, writer), (gate, door) = os.pipe(), os.pipe()
    watcher = os.fork()
    if watcher == 0:
        os.close(reader)
        sandbox(canary, lambda: (os.write(writer, b"ready"), os.read(gate, 1)))
        os._exit(0)
    os.close(writer)
    assert os.read(reader, 5) == b"ready"
    # The processes in a row: watcher, the one that unshared, pid 1, and the one that waits.
    pid = watcher
    for _ in range(3):
        pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
    proofs = probes.outside_proofs(pid, "full", uid=NOBODY if os.geteuid() == 0 else os.geteuid())
    assert not bad(proofs)
    if os.geteuid() == 0:
        assert {p["layer"] for p in proofs} >= {*probes.LAYER_OF_NAMESPACE.values()}
    os.write(door, b"x")
    os.waitpid(watcher, 0)
    for fd in (reader, gate, door):
        os.close(fd)
