"""The system-call filter: the program itself, number by number, and attempts against the kernel."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel import linux
from sandbox_kernel.confine.seccomp import load_filter
from sandbox_kernel.errors import IsolationUnavailable
from sandbox_kernel.seccomp import table as seccomp_table
from sandbox_kernel.seccomp.program import _pyseccomp, compile_filter, fill_own_pid
from tests.confined_child import attempt, filtered

NEWEST = 470  # Linux 6.18
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, KILL = 0x7FFF0000, 0x80000000
LEVELS = [("full", 7), ("full", 0), ("seccomp+landlock", 7), ("seccomp+landlock", 1), ("seccomp", 0)]
MACHINES = ["x86_64", "aarch64"]
HIGH = 1 << 32
x86_only = pytest.mark.skipif(linux.MACHINE != "x86_64", reason="needs x86_64")


def run_bpf(program: bytes, number: int, arguments: tuple[int, ...] = (), arch: int = ARCH["x86_64"]) -> int:
    """The action that the program takes."""
    return follow_bpf(program, number, arguments, arch)[0]


def follow_bpf(program: bytes, number: int, arguments: tuple[int, ...], arch: int) -> tuple[int, int]:
    """A small interpreter of the classic BPF that seccomp allows. The action, and how many instructions it took."""
    words = [*arguments, *(0,) * (6 - len(arguments))]
    data = struct.pack("=IIQ6Q", number & 0xFFFFFFFF, arch, 0, *(w & (2**64 - 1) for w in words))
    code = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    at = accumulator = taken = 0
    while True:
        operation, yes, no, constant = code[at]
        at, taken = at + 1, taken + 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, constant)
        elif operation == 0x54:
            accumulator &= constant
        elif operation == 0x05:
            at += constant
        elif operation in (0x15, 0x25, 0x35, 0x45):
            test = {
                0x15: accumulator == constant,
                0x25: accumulator > constant,
                0x35: accumulator >= constant,
                0x45: bool(accumulator & constant),
            }
            at += yes if test[operation] else no
        elif operation == 0x06:
            return int(constant), taken
        else:
            raise AssertionError(f"unknown instruction {operation:#x}")


def verdict(action: int) -> str:
    """``"allow"``, ``"kill"``, or the name of the errno (``"pretend"`` for 0)."""
    if action in (ALLOW, KILL):
        return {ALLOW: "allow", KILL: "kill"}[action]
    assert action & 0xFFFF0000 == 0x00050000, hex(action)
    number = action & 0xFFFF
    return errno.errorcode[number] if number else "pretend"


def names_of(machine: str) -> dict[int, str]:
    """Name by number, as libseccomp knows them, with the newer ones."""
    ps = _pyseccomp("full")
    found = {}
    for number in range(NEWEST + 51):
        try:
            found[number] = ps.resolve_syscall(ARCH[machine], number).decode()
        except ValueError:
            continue
    return found | {number: name for name, number in seccomp_table.NEWER_NUMBERS.items()}


@pytest.fixture(scope="module")
def number_of() -> dict[str, int]:
    return {name: number for number, name in names_of("x86_64").items()}


@pytest.fixture(scope="module")
def programs() -> dict[tuple[str, int], bytes]:
    return {
        (level, abi): compile_filter(level=level, landlock_abi=abi, machine="x86_64")
        for level, abi in LEVELS
    }


# -- the program ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("level", "abi"), LEVELS)
def test_every_number_has_the_verdict_of_the_table(level: str, abi: int, machine: str) -> None:
    program = compile_filter(level=level, landlock_abi=abi, machine=machine)
    verdicts, checks = seccomp_table.table(level, abi)
    names = names_of(machine)
    for number in range(NEWEST + 51):
        name = names.get(number, "")
        refusal = verdicts.get(name, errno.ENOSYS)
        wanted = "allow" if refusal is None else errno.errorcode[refusal] if refusal else "pretend"
        arguments = passing_arguments(name, checks)
        assert verdict(run_bpf(program, number, arguments, ARCH[machine])) == wanted, (number, name)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("level", "abi"), LEVELS)
def test_frequent_calls_that_the_kernel_cannot_cache_are_decided_at_once(level: str, abi: int, machine: str) -> None:
    program = compile_filter(level=level, landlock_abi=abi, machine=machine)
    number_of = {name: number for number, name in names_of(machine).items()}
    for name, arguments in (("openat", (3, 1, os.O_RDONLY)), ("fcntl", (3, fcntl.F_GETFD)), ("ioctl", (3, 0x5401))):
        action, taken = follow_bpf(program, number_of[name], arguments, ARCH[machine])
        assert verdict(action) == "allow"
        assert taken < 25, f"{name} takes {taken} instructions"  # the binary tree over all numbers alone takes 40


def passing_arguments(name: str, checks: tuple[seccomp_table.Check, ...]) -> tuple[int, ...]:
    words = [0] * 6
    for check in checks:
        if check.call == name and not check.forbid and not check.when:
            words[check.argument] = check.values[0]
    return tuple(words)


@pytest.mark.parametrize(("level", "abi"), LEVELS)
def test_every_foreign_number_is_death(level: str, abi: int) -> None:
    program = compile_filter(level=level, landlock_abi=abi, machine="x86_64")
    for number in (*range(NEWEST + 51), 512, 547, 0x3FFFFFFF):
        assert verdict(run_bpf(program, 0x40000000 + number)) == "kill"  # x32
        for arch in (0x40000003, ARCH["aarch64"], 0x40000028, 0):  # i386, aarch64, arm
            assert verdict(run_bpf(program, number, arch=arch)) == "kill"
    assert verdict(run_bpf(program, -1)) == "kill"


def test_calls_that_programs_were_seen_to_use_are_allowed(
    programs: dict[tuple[str, int], bytes], number_of: dict[str, int]
) -> None:
    seen = """
        access arch_prctl brk close execve fcntl futex getcwd getdents64 getrandom gettid lseek mmap
        mprotect munmap newfstatat openat pread64 read readlink rseq rt_sigaction set_robust_list
        set_tid_address sysinfo epoll_create1 fchown fdatasync geteuid getpid madvise pwrite64
        rt_sigprocmask unlink write fstat stat open statx uname link mkdir rename mbind mremap msync
        sched_getaffinity sched_yield fadvise64 ftruncate epoll_ctl epoll_wait eventfd2 statfs vfork wait4
        waitid pipe2 poll dup dup2 close_range chdir setsid pidfd_open faccessat2 pselect6 getppid getuid
        getgid getegid getpgrp getrusage sigaltstack rt_sigreturn sendto recvfrom getsockname sendmsg
        recvmsg getsockopt flock fsync flistxattr rmdir sendfile symlink unlinkat alarm setitimer
        exit exit_group restart_syscall clock_nanosleep ppoll readv writev fork dup3 getpgid tgkill"""
    for (level, abi), program in programs.items():
        for name in seen.split():
            if name == "tgkill" and (level, abi) not in (("full", 7), ("full", 0), ("seccomp+landlock", 7)):
                continue
            wanted = "pretend" if name == "fchown" and level != "full" else "allow"
            assert verdict(run_bpf(program, number_of[name])) == wanted, (level, abi, name)


def test_calls_that_open_a_way_out_are_refused_with_words(
    programs: dict[tuple[str, int], bytes], number_of: dict[str, int]
) -> None:
    never = """
        ptrace process_vm_readv process_vm_writev pidfd_getfd kcmp unshare setns mount umount2 pivot_root
        chroot open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr io_uring_setup
        io_uring_enter io_uring_register bpf perf_event_open userfaultfd keyctl add_key request_key
        init_module finit_module kexec_load kexec_file_load reboot swapon swapoff acct quotactl
        open_by_handle_at fanotify_init setuid setgid setreuid setregid setresuid setresgid setgroups
        setfsuid setfsgid capset seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self
        shmget shmat shmctl semget semop semctl msgget msgsnd msgrcv msgctl mq_open mq_unlink mq_notify
        modify_ldt syslog memfd_create execveat iopl ioperm personality"""
    for program in programs.values():
        for name in never.split():
            assert verdict(run_bpf(program, number_of[name])) == "EPERM", name
        assert verdict(run_bpf(program, number_of["clone3"])) == "ENOSYS"
        for number in range(NEWEST + 1, NEWEST + 51):
            assert verdict(run_bpf(program, number)) == "ENOSYS"


FULL, LOCAL, LOCAL_1, BARE = ("full", 7), ("seccomp+landlock", 7), ("seccomp+landlock", 1), ("seccomp", 0)
ARGUMENT_CASES: list[tuple[str, tuple[int, ...], tuple[str, int], str]] = [
    ("ioctl", (0, 0x5401), FULL, "allow"),
    ("ioctl", (0, 0xFFFFFFFF80045430), FULL, "allow"),  # musl passes the request as a signed int
    ("ioctl", (0, 0x5412), FULL, "ENOTTY"),  # TIOCSTI
    ("ioctl", (0, 0x5412 + HIGH), FULL, "ENOTTY"),
    ("ioctl", (0, 0x541C), FULL, "ENOTTY"),  # TIOCLINUX
    ("ioctl", (0, 0x541C + (7 << 40)), FULL, "ENOTTY"),
    ("ioctl", (0, 0x540E), FULL, "ENOTTY"),  # TIOCSCTTY
    ("ioctl", (0, 0x8901), FULL, "ENOTTY"),  # FIOSETOWN
    ("clone", (0x01200011,), FULL, "allow"),  # fork
    ("clone", (0x003D0F00,), FULL, "allow"),  # pthread_create
    ("clone", (0x00004111,), FULL, "allow"),  # vfork
    *(("clone", (1 << bit | 17,), FULL, "EPERM") for bit in (17, 25, 26, 27, 28, 29, 30)),
    ("clone", (0x8000 | 17,), FULL, "EPERM"),  # CLONE_PARENT
    ("clone", (0x2000 | 17,), FULL, "EPERM"),  # CLONE_PTRACE
    ("clone", (HIGH | 0x10000000 | 17,), FULL, "EPERM"),
    ("prctl", (15,), FULL, "allow"),
    ("prctl", (4, 0), FULL, "allow"),
    ("prctl", (4, 1), FULL, "EPERM"),  # PR_SET_DUMPABLE on
    ("prctl", (4 + HIGH, 1), FULL, "EPERM"),
    ("prctl", (22, 2), FULL, "EPERM"),  # PR_SET_SECCOMP
    ("prctl", (22 + HIGH, 2), FULL, "EPERM"),
    ("prctl", (36, 1), FULL, "EPERM"),
    ("prlimit64", (0,), FULL, "allow"),
    ("prlimit64", (1,), FULL, "EPERM"),
    ("socket", (1, 1), FULL, "allow"),
    ("socket", (1 + HIGH, 1), FULL, "allow"),  # the kernel takes an int
    *(("socket", (family, 1), FULL, "EPERM") for family in (0, 2, 10, 16, 17, 38, 40, 2 + HIGH)),
    *(("socket", (family, 1), level, "EPERM") for family in (1, 2, 16) for level in (LOCAL, LOCAL_1, BARE)),
    *((call, (3,), LOCAL, "EPERM") for call in ("bind", "listen", "accept", "accept4", "connect")),
    *((call, (3,), FULL, "allow") for call in ("bind", "listen", "accept", "accept4", "connect")),
    *(("socketpair", (1, kind), level, "allow") for kind in (1, 5, 0x80801) for level in (FULL, LOCAL)),
    *(("socketpair", (1, kind), level, "EPERM") for kind in (2, 3, 0x80002) for level in (FULL, LOCAL, BARE)),
    ("socketpair", (2, 1), FULL, "EPERM"),
    ("setsockopt", (3, 1, 9), FULL, "allow"),
    ("setsockopt", (3, 1, 26), FULL, "EPERM"),  # SO_ATTACH_FILTER
    ("setsockopt", (3, 1, 50), FULL, "EPERM"),  # SO_ATTACH_BPF
    ("mknod", (0, 0x1000 | 0o600), FULL, "allow"),
    ("mknodat", (0, 0, 0x1000 | 0o600), FULL, "allow"),
    ("mknod", (0, 0x2000 | 0o600), FULL, "EPERM"),
    ("mknodat", (0, 0, 0x6000 | 0o600), FULL, "EPERM"),
    ("mknodat", (0, 0, 0x10000 | 0x2000), FULL, "EPERM"),  # the kernel takes 16 bits
    ("personality", (0xFFFFFFFF,), FULL, "allow"),
    ("personality", (0x0040000,), FULL, "EPERM"),  # ADDR_NO_RANDOMIZE
    ("kill", (1, 9), FULL, "allow"),
    ("kill", (1, 9), LOCAL, "allow"),  # Landlock's signal scope decides
    *((call, (1, 9, 9), level, "EPERM") for level in (LOCAL_1, BARE)
      for call in ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal")),
    ("kill", (-1 & (2**64 - 1), 9), BARE, "EPERM"),
    ("kill", (0, 9), BARE, "allow"),
    ("fcntl", (0, 4), LOCAL, "allow"),
    ("fcntl", (0, 8), LOCAL, "EPERM"),  # F_SETOWN
    ("fcntl", (0, 10), LOCAL, "EPERM"),
    ("fcntl", (0, 15 + HIGH), LOCAL, "EPERM"),
    ("fcntl", (0, 8), FULL, "allow"),
    ("sched_setaffinity", (0,), LOCAL, "allow"),
    ("sched_setaffinity", (7,), LOCAL, "EPERM"),
    ("setpriority", (0, 0), LOCAL, "allow"),
    ("setpriority", (0, 7), LOCAL, "EPERM"),
    ("setpriority", (2, 0), LOCAL, "EPERM"),  # every process of the user
    ("chmod", (0,), LOCAL, "pretend"),
    ("chmod", (0,), FULL, "allow"),
    ("fchmod", (0,), LOCAL, "pretend"),  # a descriptor for reading would be enough
    ("fchown", (0,), LOCAL, "pretend"),
    ("fsetxattr", (0,), LOCAL, "ENOTSUP"),
    ("utimensat", (3, 0), LOCAL, "pretend"),  # by descriptor
    ("utimensat", (3, 0x7F00), LOCAL, "pretend"),
    *(("fcntl", (3, command), level, "EPERM") for command in (1024, 1026, 1040) for level in (FULL, LOCAL)),
    ("fcntl", (3, 6), FULL, "allow"),
    ("setpriority", (0, 1), FULL, "EPERM"),  # pid 1, the zygote
    ("setpriority", (2, 0), FULL, "EPERM"),
    ("setpriority", (0, 7), FULL, "allow"),
    ("ioprio_set", (1, 1), FULL, "EPERM"),
    ("sched_setscheduler", (1,), FULL, "EPERM"),
    ("sched_setaffinity", (7,), FULL, "allow"),
    ("setxattr", (1,), LOCAL, "ENOTSUP"),
    ("fallocate", (3, 0, 0, 1 << 30), FULL, "ENOTSUP"),
    ("truncate", (1,), LOCAL, "allow"),
    ("truncate", (1,), LOCAL_1, "EPERM"),
    ("openat", (3, 1, os.O_RDONLY | os.O_TRUNC), LOCAL_1, "EPERM"),
    ("openat", (3, 1, os.O_WRONLY | os.O_TRUNC), LOCAL_1, "allow"),
    ("openat", (3, 1, os.O_RDONLY | os.O_TRUNC), LOCAL, "allow"),
    ("openat2", (3, 1), FULL, "ENOSYS"),
    *((call, (1, mode), FULL, "EPERM") for call in ("chmod", "fchmod", "creat", "mknod") for mode in (0o4755, 0o2755)),
    *((call, (1, 0o1777), FULL, "allow") for call in ("chmod", "fchmod", "creat", "mknod")),
    *((call, (3, 1, 0o4755), level, "EPERM") for call in ("fchmodat", "mknodat") for level in (FULL, LOCAL)),
    ("open", (1, os.O_CREAT | os.O_WRONLY, 0o4755), FULL, "EPERM"),
    ("open", (1, os.O_RDONLY, 0o4755), FULL, "allow"),  # no file is made: what is in the register means nothing
    ("openat", (3, 1, os.O_CREAT | os.O_RDWR, 0o2755), LOCAL, "EPERM"),
    ("openat", (3, 1, os.O_TMPFILE | os.O_RDWR, 0o4755), FULL, "EPERM"),
    ("openat", (3, 1, os.O_DIRECTORY, 0o4755), FULL, "allow"),
    ("openat", (3, 1, os.O_CREAT | os.O_RDWR, 0o755), FULL, "allow"),
    ("inotify_add_watch", (3,), LOCAL, "EPERM"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "arguments", "where", "wanted"), ARGUMENT_CASES)
def test_arguments(
    programs: dict[tuple[str, int], bytes],
    number_of: dict[str, int],
    call: str,
    arguments: tuple[int, ...],
    where: tuple[str, int],
    wanted: str,
) -> None:
    assert verdict(run_bpf(programs[where], number_of[call], arguments)) == wanted


def test_own_pid_is_filled_in(number_of: dict[str, int]) -> None:
    raw = compile_filter(level="seccomp", landlock_abi=0, machine="x86_64")
    program = fill_own_pid(raw, 4242)
    for call in ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"):
        assert verdict(run_bpf(program, number_of[call], (4242, 9))) == "allow"
        assert verdict(run_bpf(program, number_of[call], (4243, 9))) == "EPERM"
    assert verdict(run_bpf(program, number_of["kill"], (-4242, 9))) == "allow"
    for placeholder in (seccomp_table.OWN_PID, seccomp_table.OWN_GROUP):
        assert struct.pack("=I", placeholder) in raw
        assert struct.pack("=I", placeholder) not in program


def test_every_name_of_the_table_exists_somewhere() -> None:
    known = {name for machine in MACHINES for name in names_of(machine).values()}
    for level, abi in LEVELS:
        verdicts, checks = seccomp_table.table(level, abi)
        assert not {*verdicts, *(check.call for check in checks)} - known
        assert not {*verdicts} & {*seccomp_table.MISSING}


def test_no_call_is_listed_twice() -> None:
    for table in (seccomp_table.ALLOWED, seccomp_table.REFUSED):
        names = [name for text in table.values() for name in text.split()]
        assert len(names) == len(set(names))
    allowed, refused = (
        {n for text in t.values() for n in text.split()}
        for t in (seccomp_table.ALLOWED, seccomp_table.REFUSED)
    )
    assert not allowed & refused


def test_unknown_level_and_machine() -> None:
    with pytest.raises(ValueError, match="no system-call filter"):
        compile_filter(level="landlock", landlock_abi=7)
    with pytest.raises(IsolationUnavailable, match="riscv64"):
        compile_filter(level="full", landlock_abi=7, machine="riscv64")


def test_missing_library_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str | None, *rest: object, **more: object) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.delitem(sys.modules, "pyseccomp", raising=False)
    monkeypatch.setattr(ctypes, "CDLL", refuse)
    monkeypatch.setattr("ctypes.util.find_library", lambda name: None)
    with pytest.raises(IsolationUnavailable) as caught:
        compile_filter(level="full", landlock_abi=7)
    assert "libseccomp2" in caught.value.advice()


def test_importing_starts_no_program() -> None:
    code = (
        "import sys\n"
        "starts = ('subprocess.Popen', 'os.posix_spawn', 'os.fork')\n"
        "sys.addaudithook(lambda event, _: sys.exit(9) if event in starts else None)\n"
        "from sandbox_kernel.seccomp.program import compile_filter\n"
        "assert 'pyseccomp' not in sys.modules\n"
        "compile_filter(level='full', landlock_abi=7)\n"
        "import ctypes.util; assert ctypes.util.find_library.__module__ == 'ctypes.util'\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- loading -------------------------------------------------------------------------------------------------


def test_loading_needs_no_new_privs() -> None:
    program = compile_filter(level="full", landlock_abi=7)
    if linux.has_no_new_privs():
        pytest.skip("this process has no_new_privs already")
    outcome = attempt(lambda: load_filter(program), ordinary=False)
    assert outcome.errno == errno.EPERM


def test_loading_refuses_a_second_thread() -> None:
    import threading

    program = compile_filter(level="full", landlock_abi=7)

    def load_beside_a_thread() -> str:
        stop = threading.Event()
        thread = threading.Thread(target=stop.wait)
        thread.start()
        try:
            load_filter(program)
        except RuntimeError as error:
            return str(error)
        finally:
            stop.set()
        return "loaded"

    assert "there are 2" in attempt(load_beside_a_thread).value


@pytest.mark.parametrize(("level", "abi"), LEVELS)
def test_the_kernel_agrees_with_the_interpreter_on_every_refusal(level: str, abi: int) -> None:
    """Only numbers that the program refuses are called, by an ordinary uid and with zero arguments."""
    program = compile_filter(level=level, landlock_abi=abi)
    wanted = {}
    for number in range(NEWEST + 51):
        action = run_bpf(program, number, arch=ARCH[linux.MACHINE])
        # 335 and 336 (uretprobe, uprobe) bypass every filter since Linux 6.14 and end in SIGILL.
        if action & 0xFFFF0000 == 0x00050000 and action & 0xFFFF and number not in (335, 336):
            wanted[number] = action & 0xFFFF

    def call_all() -> dict[int, int]:
        seen = {}
        for number in wanted:
            try:
                linux.raw_syscall(number, 0, 0, 0, 0, 0, 0)
                seen[number] = 0
            except OSError as error:
                seen[number] = error.errno or -1
        return seen

    outcome = attempt(call_all, filtered(level, abi))
    assert outcome.value == wanted


def test_after_loading_nothing_about_the_wall_can_be_changed() -> None:
    program = compile_filter(level="seccomp", landlock_abi=0)
    for act in (
        lambda: linux.seccomp_set_filter(program),
        lambda: linux.prctl(linux.PR_SET_SECCOMP, 2, 0),
        lambda: linux.landlock_version(),
        lambda: linux.landlock_create_ruleset(struct.pack("=Q", 1)),
        lambda: linux.set_dumpable(True),
    ):
        assert attempt(act, filtered("seccomp", 0)).errno == errno.EPERM


# -- attempts: real without the filter, refused with it ------------------------------------------------------


def _ioctl_tiocsti() -> None:
    linux.raw_syscall({"x86_64": 16, "aarch64": 29}[linux.MACHINE], -1, 0x5412 + HIGH, 0)


def _read_memory_of_parent() -> None:
    linux.raw_syscall({"x86_64": 310, "aarch64": 270}[linux.MACHINE], os.getppid(), 0, 0, 0, 0, 0)


def _userfaultfd() -> None:
    linux.raw_syscall({"x86_64": 323, "aarch64": 282}[linux.MACHINE], 1)


def _keyring() -> None:
    linux.raw_syscall({"x86_64": 250, "aarch64": 219}[linux.MACHINE], 0, -3 & (2**64 - 1), 1)


def _trace_me() -> None:
    linux.raw_syscall({"x86_64": 101, "aarch64": 117}[linux.MACHINE], 0, 0, 0, 0)


def _segment() -> None:
    ident = linux.raw_syscall({"x86_64": 29, "aarch64": 194}[linux.MACHINE], 0, 4096, 0o600)
    linux.raw_syscall({"x86_64": 31, "aarch64": 195}[linux.MACHINE], ident, 0, 0)


def _io_uring() -> None:
    linux.raw_syscall(425, 1, bytes(120))


def _socket(family: int, kind: int) -> Callable[[], None]:
    return lambda: socket.socket(family, kind).close()


def _personality() -> None:
    linux.raw_syscall({"x86_64": 135, "aarch64": 92}[linux.MACHINE], 0)


ATTEMPTS: dict[str, tuple[Callable[[], Any], int]] = {
    "TCP socket": (_socket(socket.AF_INET, socket.SOCK_STREAM), errno.EPERM),
    "UDP socket": (_socket(socket.AF_INET, socket.SOCK_DGRAM), errno.EPERM),
    "IPv6 socket": (_socket(socket.AF_INET6, socket.SOCK_STREAM), errno.EPERM),
    "netlink socket": (_socket(socket.AF_NETLINK, socket.SOCK_RAW), errno.EPERM),
    "vsock socket": (_socket(40, socket.SOCK_STREAM), errno.EPERM),
    "crypto socket": (_socket(38, socket.SOCK_SEQPACKET), errno.EPERM),
    "user namespace": (lambda: linux.unshare(linux.CLONE_NEWUSER), errno.EPERM),
    "memory file": (lambda: os.close(os.memfd_create("x")), errno.EPERM),
    "memory of another process": (_read_memory_of_parent, errno.EPERM),
    "userfaultfd": (_userfaultfd, errno.EPERM),
    "session keyring": (_keyring, errno.EPERM),
    "ptrace": (_trace_me, errno.EPERM),
    "shared memory segment": (_segment, errno.EPERM),
    "io_uring": (_io_uring, errno.EPERM),
    "personality": (_personality, errno.EPERM),
    "limits of another process": (lambda: resource.prlimit(SIBLING[0], resource.RLIMIT_CORE), errno.EPERM),
}
SIBLING: list[int] = []


@pytest.fixture
def sibling() -> Iterator[int]:
    """A bystander of the same ordinary uid that sleeps."""
    from tests.confined_child import become_ordinary

    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        become_ordinary()
        linux.set_dumpable(True)  # a change of uid cleared it
        os.write(writer, b"x")
        signal.alarm(60)
        while True:
            signal.pause()
    os.close(writer)
    os.read(reader, 1)
    os.close(reader)
    SIBLING[:] = [pid]
    yield pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


@pytest.mark.parametrize("name", ATTEMPTS)
@pytest.mark.parametrize(("level", "abi"), [("full", 7), ("seccomp+landlock", 7)])
def test_attempt(sibling: int, name: str, level: str, abi: int) -> None:
    act, refusal = ATTEMPTS[name]
    bare = attempt(act)
    if not bare.succeeded:
        pytest.skip(f"this kernel refuses it without the filter: {bare.error}")
    assert attempt(act, filtered(level, abi)).errno == refusal


def test_tiocsti_with_high_bits() -> None:
    assert attempt(_ioctl_tiocsti).errno == errno.EBADF
    assert attempt(_ioctl_tiocsti, filtered()).errno == errno.ENOTTY


@x86_only
def test_x32_is_death() -> None:
    def getpid_by_x32() -> int:
        return linux.raw_syscall(0x40000000 + 39)

    assert attempt(getpid_by_x32, filtered()).signal == signal.SIGSYS
    bare = attempt(getpid_by_x32)
    if bare.errno == errno.ENOSYS:
        pytest.skip("the kernel has no x32")
    assert bare.value


@x86_only
def test_int80_is_death() -> None:
    def getpid_by_int80() -> int:
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")  # mov eax, 20; int 0x80; ret
        address = ctypes.addressof(ctypes.c_char.from_buffer(page))
        return int(ctypes.CFUNCTYPE(ctypes.c_int)(address)())

    assert attempt(getpid_by_int80, filtered()).signal == signal.SIGSYS
    bare = attempt(getpid_by_int80)
    if bare.signal == signal.SIGSEGV or (bare.value or 0) < 0:
        pytest.skip("the kernel has no 32-bit entry")
    assert bare.value


def test_datagram_pair_reaches_a_host_socket_by_path() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener,
    ):
        path = f"{folder}/listener"
        listener.bind(path)
        os.chmod(folder, 0o755)
        os.chmod(path, 0o666)

        def escape() -> None:
            one, _other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
            one.connect(path)  # a pair can be connected anew
            one.send(b"out")

        def escape_by_sendto() -> None:
            one, _other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
            one.sendto(b"out", path)

        for act in (escape, escape_by_sendto):
            assert attempt(act).succeeded
            assert listener.recv(9) == b"out"
            for level in ("full", "seccomp+landlock", "seccomp"):
                assert attempt(act, filtered(level, 7)).errno == errno.EPERM


@pytest.mark.parametrize(
    ("name", "act"),
    [
        ("signal", lambda: os.kill(SIBLING[0], 0)),
        ("signal by tgkill", lambda: linux.raw_syscall(
            {"x86_64": 234, "aarch64": 131}[linux.MACHINE], SIBLING[0], SIBLING[0], 0)),
        ("signal by pidfd", lambda: signal.pidfd_send_signal(os.pidfd_open(SIBLING[0]), 0)),
        ("signal by descriptor owner", lambda: fcntl.fcntl(os.pipe()[0], fcntl.F_SETOWN, SIBLING[0])),
        ("affinity", lambda: os.sched_setaffinity(SIBLING[0], os.sched_getaffinity(0))),
        ("priority", lambda: os.setpriority(
            os.PRIO_PROCESS, SIBLING[0], os.getpriority(os.PRIO_PROCESS, SIBLING[0]))),
    ],
)  # fmt: skip
def test_bystanders_of_the_same_user_are_out_of_reach(
    sibling: int, name: str, act: Callable[[], Any]
) -> None:
    assert attempt(act).succeeded
    assert attempt(act, filtered("seccomp", 0)).errno == errno.EPERM


def test_own_signals_work_without_a_scope() -> None:
    def signals() -> int:
        got = []
        signal.signal(signal.SIGUSR1, lambda number, frame: got.append(number))
        os.kill(os.getpid(), signal.SIGUSR1)
        signal.raise_signal(signal.SIGUSR1)
        os.setsid() if os.getsid(0) != os.getpid() else None
        os.killpg(os.getpid(), signal.SIGUSR1)
        return len(got)

    assert attempt(signals, filtered("seccomp", 0)).value == 3


@pytest.mark.parametrize(
    ("act", "unchanged"),
    [
        (lambda path: os.chmod(path, 0o777), lambda s: s.st_mode & 0o777 == 0o640),
        (lambda path: os.utime(path, (1, 1)), lambda s: s.st_mtime > 1),
    ],
)
def test_modes_and_times_stay_below_full(
    act: Callable[[str], None], unchanged: Callable[[os.stat_result], bool]
) -> None:
    with tempfile.NamedTemporaryFile() as file:
        os.chmod(file.name, 0o640)
        if os.geteuid() == 0:
            os.chown(file.name, 65534, 65534)
        assert attempt(lambda: act(file.name), filtered("seccomp+landlock", 7)).succeeded
        assert unchanged(os.stat(file.name))
        assert attempt(lambda: act(file.name), filtered("full", 7)).succeeded
        assert not unchanged(os.stat(file.name))


# -- the data-science stack still works ----------------------------------------------------------------------

WORK = {
    "threads": "import threading; t = threading.Thread(target=print); t.start(); t.join()",
    "subprocess": "import subprocess as s; assert s.run(['/bin/sh', '-c', 'echo $((1+1)) | cat'], "
    "capture_output=True).stdout == b'2\\n'",
    "subprocess kill": "import subprocess as s; p = s.Popen(['sleep', '9']); p.kill(); assert p.wait() == -9",
    "fork pool": "import multiprocessing as m\n"
    "with m.get_context('fork').Pool(2) as p: assert p.map(abs, [-1]) == [1]",
    "spawn pool": "import multiprocessing as m\nif __name__ == '__main__':\n"
    "  with m.get_context('spawn').Pool(2) as p: assert p.map(abs, [-1]) == [1]",
    "sqlite": "import sqlite3, tempfile; "
    "c = sqlite3.connect(tempfile.mkdtemp() + '/x'); c.execute('create table t(a)'); "
    "c.commit()",
    "asyncio": "import asyncio\nasync def f():\n  p = await asyncio.create_subprocess_exec('true'); "
    "return await p.wait()\nassert asyncio.run(f()) == 0",
    "shutil": "import shutil, tempfile; d = tempfile.mkdtemp(); open(d + '/a', 'w').write('x'); "
    "shutil.copy(d + '/a', d + '/b'); shutil.copy2(d + '/a', d + '/c'); shutil.copytree(d, d + 'x'); "
    "shutil.rmtree(d)",
    "touch": "import pathlib, tempfile; p = pathlib.Path(tempfile.mkdtemp()) / 'x'; p.touch(); p.touch()",
    "fifo": "import os, tempfile; os.mkfifo(tempfile.mkdtemp() + '/x')",
    "numpy": "import numpy; assert (numpy.ones((300, 300)) @ numpy.ones((300, 300))).sum() == 300 ** 3",
    "pandas": "import pandas, io; assert pandas.read_csv(io.StringIO('a\\n1')).a.sum() == 1",
    "matplotlib": "import matplotlib; matplotlib.use('agg'); import matplotlib.pyplot as p, io; p.plot([1]); "
    "p.savefig(io.BytesIO())",
    "loky": "from joblib import Parallel, delayed\nassert Parallel(2)(delayed(abs)(-i) for i in range(4))",
    "sklearn": "from sklearn.ensemble import RandomForestClassifier as R\n"
    "R(4, n_jobs=2).fit([[0], [1]] * 9, [0, 1] * 9)",
    "duckdb": "import duckdb; assert duckdb.sql('select 1').fetchall() == [(1,)]",
    "polars": "import polars; "
    "assert polars.DataFrame({'a': [1, 2]}).select(polars.col('a').sum()).item() == 3",
}
WORK_AT_FULL = {
    "forkserver pool": "import multiprocessing as m\nif __name__ == '__main__':\n"
    "  with m.get_context('forkserver').Pool(2) as p: assert p.map(abs, [-1]) == [1]",
    "manager": "import multiprocessing as m\nif __name__ == '__main__':\n"
    "  with m.Manager() as g: assert g.dict(a=1)['a'] == 1",
}


@pytest.mark.parametrize(("level", "abi"), [("full", 7), ("seccomp+landlock", 7)])
@pytest.mark.parametrize("name", [*WORK, *WORK_AT_FULL])
def test_ordinary_work(tmp_path: Path, name: str, level: str, abi: int) -> None:
    if name in WORK_AT_FULL and level != "full":
        pytest.skip("needs sockets, which only the full level has")
    package = {"loky": "joblib"}.get(name, name)
    if package in ("numpy", "pandas", "matplotlib", "joblib", "sklearn", "duckdb", "polars"):
        import importlib.util

        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    script = tmp_path / "work.py"
    script.write_text({**WORK, **WORK_AT_FULL}[name])
    program = filtered(level, abi)

    def work() -> tuple[int, str]:
        log = open(tmp_path / "log", "w+b")  # noqa: SIM115
        done = subprocess.run([sys.executable, str(script)], stdout=log, stderr=log, timeout=50, check=False)
        log.seek(0)
        return done.returncode, log.read().decode()

    outcome = attempt(
        work, linux.set_no_new_privs, lambda: signal.alarm(55) and None, program, ordinary=False
    )
    assert outcome.succeeded, outcome
    assert outcome.value[0] == 0, outcome.value[1]


def test_threads_that_start_sandboxes_at_once_all_get_the_whole_library() -> None:
    code = (
        "import sys, threading\nfrom sandbox_kernel.seccomp.program import _pyseccomp\nbegin = threading.Barrier(8)\n"
        "got = []\nsys.setswitchinterval(1e-5)\ndef use():\n    begin.wait()\n"
        "    got.append(_pyseccomp('full').system_arch())\n"
        "threads = [threading.Thread(target=use) for _ in range(8)]\n[t.start() for t in threads]\n"
        "[t.join() for t in threads]\nassert len(got) == 8"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
