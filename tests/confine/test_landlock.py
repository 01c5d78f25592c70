"""Landlock: each attempt succeeds without the rules and fails with them."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox_kernel import linux
from sandbox_kernel.confine import landlock
from tests.confined_child import NOBODY, Outcome, attempt

ABI = linux.landlock_abi()
pytestmark = pytest.mark.skipif(ABI < 1, reason="the kernel has no Landlock")
needs = lambda abi: pytest.mark.skipif(abi > ABI, reason=f"needs Landlock ABI {abi}")  # noqa: E731


@pytest.fixture
def ground() -> Iterator[Path]:
    """Files of the uid that makes the attempts: ``in`` and ``ro`` will be granted, ``out`` will not."""
    base = Path(tempfile.mkdtemp())
    for folder in ("in", "in/sub", "ro", "out"):
        (base / folder).mkdir()
        (base / folder / "file").write_text("text")
        (base / folder / "program").write_text("#!/bin/sh\nexit 0\n")
        (base / folder / "program").chmod(0o755)
    if os.geteuid() == 0:
        for path in (base, *base.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
    yield base
    shutil.rmtree(base)


def rules(ground: Path, *more: tuple[str, str]) -> landlock.Rules:
    return landlock.Rules(
        (
            ("/usr", "read-exec"), ("/bin", "read-exec"), ("/lib", "read-exec"), ("/lib64", "read-exec"),
            (os.path.realpath("/bin"), "read-exec"), ("/dev/null", "device"), ("/proc/self", "read"),
            (str(ground / "in"), "read-write"), (str(ground / "ro"), "read"), *more,
        )
    )  # fmt: skip


def under(ground: Path, abi: int = ABI, *more: tuple[str, str]) -> Callable[[], list[str]]:
    return lambda: landlock.apply(rules(ground, *more), abi)


def both(act: Callable[[], object], ground: Path, abi: int = ABI) -> tuple[Outcome, Outcome]:
    return attempt(act), attempt(act, under(ground, abi))


def test_constants_match_the_landlock_package() -> None:
    package = pytest.importorskip("landlock")
    ours = {k: v for k, v in vars(landlock).items() if k in package.FSAccess.__members__}
    assert ours == {name: int(value) for name, value in package.FSAccess.__members__.items()}
    assert landlock.handled_rights(5) == sum(ours.values())
    ctypes.set_errno(0)
    assert package.landlock_abi_version() == ABI


def test_no_rule_grants_devices_and_nothing_writable_runs() -> None:
    for rights in landlock.RIGHTS.values():
        assert not rights & (landlock.MAKE_CHAR | landlock.MAKE_BLOCK | landlock.IOCTL_DEV)
        assert not (rights & landlock.WRITE_FILE and rights & landlock.EXECUTE)


@pytest.mark.parametrize("folder", ["in", "in/sub"])
def test_what_is_granted_works(ground: Path, folder: str) -> None:
    place = ground / folder

    def work() -> None:
        (place / "new").write_text("x")
        os.truncate(place / "new", 0)
        os.rename(place / "new", place / "renamed")
        os.symlink("renamed", place / "link")
        os.mkfifo(place / "fifo")
        (place / "folder").mkdir()
        shutil.rmtree(place / "folder")
        os.unlink(place / "renamed")
        assert (ground / "ro" / "file").read_text() == "text"
        assert subprocess.run(["/bin/sh", "-c", ":"], check=False).returncode == 0
        with open("/dev/null", "wb") as null:
            null.write(b"x")
        os.listdir("/proc/self/fd")

    assert attempt(work, under(ground)) == Outcome()


ATTEMPTS: dict[str, Callable[[Path], object]] = {
    "read": lambda g: (g / "out/file").read_text(),
    "list": lambda g: os.listdir(g / "out"),
    "write": lambda g: (g / "out/file").write_text("x"),
    "create": lambda g: (g / "out/new").write_text("x"),
    "mkdir": lambda g: (g / "out/new").mkdir(),
    "unlink": lambda g: (g / "out/file").unlink(),
    "link into": lambda g: os.link(g / "out/file", g / "in/stolen"),
    "rename into": lambda g: os.rename(g / "out/file", g / "in/stolen"),
    "symlink in": lambda g: os.symlink("file", g / "out/link"),
    "fifo": lambda g: os.mkfifo(g / "out/fifo"),
    "read by link": lambda g: (os.symlink(g / "out/file", g / "in/l"), (g / "in/l").read_text()),
    "write to read-only": lambda g: (g / "ro/file").write_text("x"),
    "create in read-only": lambda g: (g / "ro/new").write_text("x"),
    "run from outside": lambda g: subprocess.run([g / "out/program"], check=True),
    "run from writable": lambda g: subprocess.run([g / "in/program"], check=True),
    "run from read-only": lambda g: subprocess.run([g / "ro/program"], check=True),
    "environment of the parent": lambda g: Path(f"/proc/{os.getppid()}/stat").read_text(),
}


@pytest.mark.parametrize("name", ATTEMPTS)
def test_file_attempt(ground: Path, name: str) -> None:
    confined = attempt(lambda: ATTEMPTS[name](ground), under(ground))
    bare = attempt(lambda: ATTEMPTS[name](ground))
    assert confined.errno in (errno.EACCES, errno.EXDEV), confined
    if "read by link" in name:
        return  # the link is there already
    assert bare.succeeded, bare


@needs(3)
@pytest.mark.parametrize("how", ["truncate", "O_TRUNC"])
def test_truncating_what_may_only_be_read(ground: Path, how: str) -> None:
    path = ground / "ro/file"

    def cut() -> None:
        os.truncate(path, 0) if how == "truncate" else os.close(os.open(path, os.O_RDONLY | os.O_TRUNC))

    assert attempt(cut, under(ground)).errno == errno.EACCES
    assert path.read_text() == "text"
    assert attempt(cut, under(ground, 2)).succeeded  # what ABI 2 loses, and why the filter steps in there
    assert path.read_text() == ""


@needs(2)
def test_moving_between_folders_needs_abi_2(ground: Path) -> None:
    def move() -> None:
        os.rename(ground / "in/file", ground / "in/sub/moved")

    assert attempt(move, under(ground, 1)).errno == errno.EXDEV
    assert attempt(move, under(ground)).succeeded


@needs(4)
@pytest.mark.parametrize("how", ["connect", "bind"])
def test_tcp(ground: Path, how: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def act() -> None:
            with socket.socket() as mine:
                mine.connect(server.getsockname()) if how == "connect" else mine.bind(("127.0.0.1", 0))

        bare, confined = both(act, ground)
        assert bare.succeeded
        assert confined.errno == errno.EACCES
        assert attempt(act, under(ground, 3)).succeeded


@needs(6)
def test_signal_to_a_bystander(ground: Path) -> None:
    reader, writer = os.pipe()
    bystander = os.fork()
    if bystander == 0:
        if os.geteuid() == 0:
            os.setresuid(NOBODY, NOBODY, NOBODY)
        signal.signal(signal.SIGWINCH, lambda number, frame: os.write(writer, b"!"))
        signal.alarm(60)
        os.write(writer, b".")
        while True:
            signal.pause()
    try:
        assert os.read(reader, 1) == b"."
        bare, confined = both(lambda: os.kill(bystander, 0), ground)
        assert bare.succeeded
        assert confined.errno == errno.EPERM

        def own_child() -> None:
            child = subprocess.Popen(["/bin/sleep", "9"])
            child.kill()
            assert child.wait() == -signal.SIGKILL

        assert attempt(own_child, under(ground)) == Outcome()
        # kill(-1) claims success even where every target was refused; what counts is what arrives.
        os.set_blocking(reader, False)
        attempt(lambda: os.kill(-1, signal.SIGWINCH), under(ground))
        with pytest.raises(BlockingIOError):
            os.read(reader, 1)
    finally:
        os.kill(bystander, signal.SIGKILL)
        os.waitpid(bystander, 0)
        os.close(reader)
        os.close(writer)


@needs(6)
def test_abstract_socket(ground: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("")  # the kernel picks an abstract name
        server.listen()

        def act() -> None:
            with socket.socket(socket.AF_UNIX) as mine:
                mine.connect(server.getsockname())

        bare, confined = both(act, ground)
        assert bare.succeeded
        assert confined.errno == errno.EPERM


def test_links_are_not_followed_by_rules(ground: Path) -> None:
    (ground / "in/trap").symlink_to(ground / "out")
    trap = (str(ground / "in/trap"), "read-write")
    assert attempt(lambda: (ground / "out/file").read_text(), under(ground, ABI, trap)).errno == errno.EACCES
    said = attempt(lambda: landlock.apply(landlock.Rules((trap,)), ABI)).value
    assert any("symbolic link" in text for text in said)


def test_a_missing_path_is_skipped(ground: Path) -> None:
    gone = landlock.Rules(
        (("/no/such/thing", "read"), (f"{ground}/in/file/x", "read"), (str(ground / "in"), "read"))
    )
    outcome = attempt(lambda: landlock.apply(gone, ABI))
    assert outcome.value == landlock.losses(ABI)


def test_a_stale_errno_and_old_descriptors_do_not_matter(ground: Path) -> None:
    def act() -> bool:
        ctypes.set_errno(errno.EFAULT)
        before = os.listdir("/proc/self/fd")
        landlock.apply(rules(ground), ABI)
        return os.listdir("/proc/self/fd") == before

    assert attempt(act).value is True


def test_rules_need_no_new_privs(ground: Path) -> None:
    if linux.has_no_new_privs():
        pytest.skip("this process has no_new_privs already")
    assert attempt(lambda: landlock.apply(rules(ground), ABI), ordinary=False).errno == errno.EPERM


@pytest.mark.parametrize("abi", range(ABI + 1))
def test_every_older_abi_can_be_asked_for(ground: Path, abi: int) -> None:
    outcome = attempt(lambda: landlock.apply(rules(ground, ("/dev/null", "list")), abi))
    links = [text for text in outcome.value if "symbolic link" in text]
    assert [text for text in outcome.value if text not in links] == landlock.losses(abi)
    read = attempt(lambda: (ground / "out/file").read_text(), under(ground, abi))
    assert read.errno == (errno.EACCES if abi else None)


def test_losses_name_each_step() -> None:
    assert len(landlock.losses(0)) == 1
    assert [len(landlock.losses(abi)) for abi in range(1, 8)] == [5, 4, 3, 2, 1, 0, 0]
