"""Stages for the attempts: one for each user, level and shape of the workspace, kept for the whole run."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.kernel.conftest import start

__all__ = ["start"]

HERE = Path(__file__).parent
ROOT = os.geteuid() == 0
ORDINARY = 1000 if ROOT else os.geteuid()
UIDS = [0, ORDINARY] if ROOT else [ORDINARY]
LEVELS = ["full", "seccomp+landlock"]


def _interpreter(uid: int) -> str:
    """One that the uid can reach: this one, or the system's of the same version."""
    for python in (sys.executable, f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}"):
        real = Path(python).resolve()
        if uid == os.geteuid() or (real.exists() and all(p.stat().st_mode & 1 for p in (real, *real.parents))):
            return python
    pytest.skip(f"no Python {platform.python_version()} that uid {uid} may run")


class StageProcess:
    """A stage in a process of its own, see stage.py."""

    def __init__(self, uid: int, level: str, kind: str) -> None:
        self.uid, self.level = uid, level
        python = _interpreter(uid)
        self.folder = Path(tempfile.mkdtemp(prefix="attacks-"))
        self.folder.chmod(0o755)
        inner = self.folder / f"stage-{secrets.token_hex(4)}"
        work = inner / "work"
        work.mkdir(parents=True)
        paths = [str(HERE.parents[1]), str(Path(msgspec.__file__).parents[1])]
        if kind == "import-path":
            (inner / "releases" / "one").mkdir(parents=True)
            (work / "current").symlink_to(inner / "releases" / "one")
            paths += [str(work / "absent"), str(work / "current")]
        if kind == "protected":
            (work / "deep" / "pkgs").mkdir(parents=True)
            paths.append(str(work / "deep" / "pkgs"))
        if kind == "home":
            # What a cell can leave there: links in a circle, names that are no text, and very many of them.
            (work / ".circle").symlink_to(".circle")
            (work / ".nowhere").symlink_to("nothing")
            os.mkfifo(work / ".pipe")
            for name in (b".\n", b".\xff\xfe", b". a\\040b", *(b".name-%d" % n for n in range(1500))):
                Path(os.fsdecode(os.path.join(os.fsencode(work), name))).touch()
        for path in (self.folder, *self.folder.rglob("*")):
            os.chown(path, uid, -1, follow_symlinks=False)
        options = {"level": level, "stage": kind, "folder": str(inner), "ordinary": ORDINARY}
        change: dict[str, Any] = {} if uid == os.geteuid() else {"user": uid, "group": uid, "extra_groups": []}
        self.process = subprocess.Popen(
            [python, "-P", "-B", "-m", "tests.attacks.stage", json.dumps(options)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/",
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(paths), "HOME": "/nonexistent",
                 "PLANTED": f"planted-{secrets.token_hex(8)}"}, **change,
        )  # fmt: skip
        with contextlib.suppress(PermissionError):
            # At the lowest priority of all, which a test run may have been given, none is left to be lowered.
            os.setpriority(os.PRIO_PROCESS, self.process.pid, 0)
        self.started = self("start")

    def __call__(self, command: str, *arguments: Any) -> Any:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps([command, arguments]) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the stage ended"
        return json.loads(line)

    def end(self) -> None:
        if self.process.poll() is None:
            with contextlib.suppress(Exception):
                self("close")
            self.process.kill()
        self.process.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)


Stages = Callable[[int, str, str], StageProcess]


@pytest.fixture(scope="session")
def stages() -> Iterator[Stages]:
    """Gives the stage for (uid, level, kind), started with the first attempt that asks for it."""
    running: dict[tuple[int, str, str], StageProcess] = {}

    def give(uid: int, level: str, kind: str) -> StageProcess:
        key = uid, level, kind
        if key not in running or running[key].process.poll() is not None:
            running[key] = StageProcess(uid, level, kind)
        return running[key]

    yield give
    for stage in running.values():
        stage.end()


def missing(need: str, uid: int) -> str:
    """Why an attempt is not possible on this machine even without a layer; "" when it is."""
    libc = ctypes.CDLL(None, use_errno=True)

    def setting(path: str) -> int:
        try:
            return int(Path(path).read_text())
        except (OSError, ValueError):
            return -1

    possible = {
        "root": uid == 0,
        "not root": uid != 0,
        "priority to lose": "ok" in _run(os.geteuid(), _PRIORITY),
        "two processors": len(os.sched_getaffinity(0)) > 1,
        "trace": setting("/proc/sys/kernel/yama/ptrace_scope") in (-1, 0, 1),
        "tiocsti": setting("/proc/sys/dev/tty/legacy_tiocsti") != 0,
        "ipv6": "ok" in _run(uid, "s=socket.socket(10,2); s.bind(('::1',0)); print('ok')"),
        "mptcp": "ok" in _run(uid, "socket.socket(2,1,262); print('ok')"),
        "netlink": "ok" in _run(uid, "s=socket.socket(16,3,2); s.bind((0,0)); print('ok')"),
        "alg": "ok" in _run(uid, "s=socket.socket(38,5); s.bind(('hash','sha256')); print('ok')"),
        "vsock": "ok" in _run(uid, "socket.socket(40,1); print('ok')"),
        "io_uring": setting("/proc/sys/kernel/io_uring_disabled") == 0 and _call(425, 1, bytes(120)),
        "bpf": uid == 0 or setting("/proc/sys/kernel/unprivileged_bpf_disabled") == 0,
        "keys": os.path.exists("/proc/keys"),
        "userfaultfd": os.path.exists("/proc/sys/vm/unprivileged_userfaultfd"),
        "perf": setting("/proc/sys/kernel/perf_event_paranoid") != -1
        and (uid == 0 or setting("/proc/sys/kernel/perf_event_paranoid") <= 2),
        "memfd_secret": _call(447, 0),
        "modify_ldt": libc.syscall(154, 0, ctypes.create_string_buffer(64), 64) >= 0,
        "mqueue": os.path.exists("/proc/sys/fs/mqueue"),
        "kernel log": uid == 0 or setting("/proc/sys/kernel/dmesg_restrict") == 0,
        "tun": os.access("/dev/net/tun", os.R_OK) and uid == 0,
        "kvm": os.path.exists("/dev/kvm") and uid == 0,
        "kcmp": _call(312, os.getpid(), os.getpid(), 2, 0, 0),
        "fchmodat2": libc.syscall(452, -100, b"/nowhere", 0, 0) == -1 and ctypes.get_errno() == 2,
        "kallsyms": uid == 0 or setting("/proc/sys/kernel/kptr_restrict") == 0,
        "fanotify": "ok" in _run(uid, "import ctypes\nif ctypes.CDLL(None).syscall(300, 0xE02, 0) >= 0: print('ok')"),
        "x32": "ok" in _run(uid, _foreign("b8270000400f05c3")),
        "int80": "ok" in _run(uid, _foreign("53b814000000cd805bc3")),
        "glibc loader": os.path.exists("/lib64/ld-linux-x86-64.so.2"),
        "setuid program": any(os.path.exists(p) for p in ("/usr/bin/su", "/bin/su", "/usr/bin/mount", "/bin/mount")),
        "extended attributes": _file_system(lambda f: os.setxattr(f.name, "user.x", b"x")),
        "inode flags": _file_system(lambda f: __import__("fcntl").ioctl(f, 0x80086601, bytes(4))),
        "fresh proc": True,
    }  # fmt: skip
    return "" if possible[need] else need


_answers: dict[tuple[str, int], str] = {}


def lacking(need: str, uid: int) -> str:
    """`missing`, asked once."""
    if (need, uid) not in _answers:
        _answers[need, uid] = missing(need, uid)
    return _answers[need, uid]


_PRIORITY = """
try: os.setpriority(os.PRIO_PROCESS, 0, 0)
except PermissionError: pass
if os.getpriority(os.PRIO_PROCESS, 0) < 19: print("ok")
"""


def _run(uid: int, code: str) -> str:
    change: dict[str, Any] = {} if uid == os.geteuid() else {"user": uid, "group": uid, "extra_groups": []}
    program = [_interpreter(uid), "-I", "-c", "import socket, os\n" + code]
    return subprocess.run(program, capture_output=True, text=True, **change).stdout


def _foreign(code: str) -> str:
    return (
        "import mmap, ctypes\nm = mmap.mmap(-1, 4096, prot=7)\n"
        f"m.write(bytes.fromhex('{code}'))\n"
        "pid = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()\n"
        "if pid == os.getpid(): print('ok')"
    )


def _call(number: int, *arguments: Any) -> bool:
    fd = ctypes.CDLL(None, use_errno=True).syscall(number, *arguments)
    if fd > 2:
        os.close(fd)
    return fd >= 0


def _file_system(attempt: Callable[[Any], object]) -> bool:
    with tempfile.NamedTemporaryFile(prefix="attacks-") as file:
        try:
            attempt(file)
        except OSError:
            return False
        return True
