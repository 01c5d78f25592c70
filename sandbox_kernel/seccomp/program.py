"""The system-call filter as a program: compiles `table` to BPF. Loading it is `confine.seccomp`'s.

The program has two parts. The first is assembled here: architecture, then the rows that look at arguments.
They compare exactly the 32 bits that the kernel uses of such an argument: a 64-bit comparison lets ``TIOCSTI
+ 2**32`` past a deny rule (CVE-2019-10063), and libseccomp can neither compare one argument twice in a rule
nor give a call an errno of its own for "none of these". The second part is libseccomp's binary tree over
plain numbers. Calls without a check are decided by number alone, which the kernel caches since Linux 5.11; for the
others the program runs each time, so those come first, the most frequent ones before all, and are decided there.

The refusals of `table.TOLD` are made by whoever listens, see `notify`. Their instruction carries the errno in
bits that the kernel does not look at, so `silent` can turn the same program into one that refuses by itself.
"""

from __future__ import annotations

import errno
import os
import struct
import threading
from collections.abc import Container, Iterable, Mapping
from types import ModuleType

from ..errors import IsolationUnavailable
from ..linux import MACHINE
from .table import CHECKS_UNSCOPED, NEWER_NUMBERS, OWN_GROUP, OWN_PID, TOLD, Check, table

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, constant

_LD, _AND, _JA, _JEQ, _JGE, _RET = 0x20, 0x54, 0x05, 0x15, 0x35, 0x06
_RET_ALLOW, _RET_ERRNO, _RET_KILL_PROCESS, _RET_USER_NOTIF = 0x7FFF0000, 0x00050000, 0x80000000, 0x7FC00000
# Marks told refusals in what libseccomp compiles: it would ask the running kernel before it takes USER_NOTIF, and it
# knows no errno with it. The kernel's errnos end at 4095, those in use before 600.
_TOLD = 3000
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000
_FREQUENT = ("openat", "fcntl", "ioctl", "open", "prlimit64")  # of those with a check, as ordinary work makes them
_LOAD_NUMBER: Instruction = (_LD, 0, 0, 0)
_LOAD_ARCH: Instruction = (_LD, 0, 0, 4)


def _load_argument(index: int, *, high: bool = False) -> Instruction:
    return (_LD, 0, 0, 16 + 8 * index + 4 * high)  # little endian: the low word comes first


def _check_code(check: Check) -> list[Instruction]:
    """Fall through when the check is passed, return its refusal otherwise."""
    count = len(check.values)
    code = [_load_argument(check.argument)]
    if check.mask != 0xFFFFFFFF:
        code.append((_AND, 0, 0, check.mask))
    code += [(_JEQ, count - at, 0, value) for at, value in enumerate(check.values)]
    if check.forbid:  # a value leads to the refusal, all others jump over it
        code.append((_JA, 0, 0, 1))
    if check.wide:
        code = [_load_argument(check.argument, high=True), (_JEQ, 0, len(code), 0), *code]
    code.append((_RET, 0, 0, (_RET_USER_NOTIF if check.told else _RET_ERRNO) | check.refusal))
    if check.when:
        argument, value = check.when
        skip: Instruction = (_JEQ, 0, len(code), value)
        masked = [] if check.when_mask == 0xFFFFFFFF else [(_AND, 0, 0, check.when_mask)]
        code = [_load_argument(argument), *masked, skip, *code]
    return code


def _preamble(
    machine: str, numbers: Mapping[str, int], newer: Mapping[int, int | None], checks: Iterable[Check],
    allowed: Container[str],
) -> list[Instruction]:  # fmt: skip
    kill: Instruction = (_RET, 0, 0, _RET_KILL_PROCESS)
    code: list[Instruction] = [_LOAD_ARCH, (_JEQ, 1, 0, _AUDIT_ARCH[machine]), kill, _LOAD_NUMBER]
    if machine == "x86_64":
        code += [(_JGE, 0, 1, _X32_BIT), kill]
    blocks: dict[str, list[Instruction]] = {name: [] for name in _FREQUENT}
    for check in checks:
        blocks.setdefault(check.call, []).extend(_check_code(check))
    for name, block in blocks.items():
        if block and name in numbers:
            # What is not allowed has an errno of its own in the second part.
            block.append((_RET, 0, 0, _RET_ALLOW) if name in allowed else _LOAD_NUMBER)
            code += [(_JEQ, 0, len(block), numbers[name]), *block]
    for number, refusal in sorted(newer.items()):
        verdict = _RET_ALLOW if refusal is None else _RET_ERRNO | refusal
        code += [(_JEQ, 0, 1, number), (_RET, 0, 0, verdict)]
    return code


_importing = threading.Lock()


def _pyseccomp(level: str) -> ModuleType:
    """pyseccomp, whole: what a thread is importing is in ``sys.modules`` before it can be used."""
    with _importing:
        return _import_pyseccomp(level)


def _import_pyseccomp(level: str) -> ModuleType:
    """pyseccomp, imported without ``find_library``, which starts compilers and linkers (up to 0.1 s)."""
    import ctypes
    import ctypes.util
    import sys

    if "pyseccomp" in sys.modules:
        return sys.modules["pyseccomp"]
    search = ctypes.util.find_library
    try:
        ctypes.CDLL("libseccomp.so.2")
        name: str | None = "libseccomp.so.2"
    except OSError:
        name = search("seccomp")
    if name is None:
        raise IsolationUnavailable(
            level, "seccomp", "the library libseccomp is not installed", "Install the package libseccomp2."
        )
    known = {"seccomp": name, "c": None}  # CDLL(None) is the process itself, which has its libc
    # setattr: no type checker accepts the assignment
    setattr(  # noqa: B010
        ctypes.util, "find_library", lambda wanted: known[wanted] if wanted in known else search(wanted)
    )
    try:
        import pyseccomp
    except ImportError as error:
        raise IsolationUnavailable(
            level, "seccomp", f"the Python package pyseccomp cannot be imported ({error})",
            "Install the package pyseccomp.",
        ) from error  # fmt: skip
    finally:
        ctypes.util.find_library = search
    module: ModuleType = pyseccomp
    return module


def compile_filter(
    *, level: str, landlock_abi: int, machine: str = MACHINE, told: bool = False
) -> bytes:
    """Compile the filter of a level to raw BPF (array of struct sock_filter), for `confine.seccomp.load_filter`.

    Below level ``full`` and without a Landlock signal scope (``landlock_abi`` < 6, or no Landlock) a process
    may signal only itself and its group. Its pid is not known here: the program has a placeholder that
    `load_filter` fills in, so one compiled program serves every worker.

    Args:
        level: ``"full"``, ``"seccomp+landlock"`` or ``"seccomp"``.
        landlock_abi: ABI of the ruleset that is enforced beside it, 0 for none; counts below ``full``.
        machine: ``uname -m`` of the machine that will run it; another than this one's only to inspect the
        program.
        told: let the refusals of `TOLD` notify. Such a program needs a listener, see `load_filter`.

    Raises:
        IsolationUnavailable: libseccomp is missing, or the machine is neither x86_64 nor aarch64.
        ValueError: the level has no filter.
    """
    verdicts, checks = table(level, landlock_abi)
    if machine not in _AUDIT_ARCH:
        raise IsolationUnavailable(level, "seccomp", f"there is no table for the machine {machine!r}")
    ps = _pyseccomp(level)
    target, native = _AUDIT_ARCH[machine], ps.system_arch()
    tree = ps.SyscallFilter(ps.ERRNO(errno.ENOSYS))
    tree.set_attr(ps.Attr.ACT_BADARCH, ps.KILL_PROCESS)
    tree.set_attr(ps.Attr.CTL_OPTIMIZE, 2)
    if target != native:
        tree.add_arch(target)
        tree.remove_arch(native)
    aloud = {name for names in TOLD.values() for name in names.split()}
    numbers: dict[str, int] = {}
    newer: dict[int, int | None] = {}
    for name, refusal in verdicts.items():
        if name in NEWER_NUMBERS:
            newer[NEWER_NUMBERS[name]] = refusal
            continue
        number = ps.resolve_syscall(target, name)
        if (
            number < 0
        ):  # -1: unknown to this libseccomp; less: not a call of this architecture. Both are ENOSYS
            continue
        numbers[name] = number
        if refusal != errno.ENOSYS:
            action = ps.ALLOW if refusal is None else ps.ERRNO(refusal + _TOLD * (name in aloud))
            tree.add_rule(action, number if target == native else ps.resolve_syscall(native, name))
    fd = os.memfd_create("seccomp", os.MFD_CLOEXEC)
    with open(fd, "w+b", buffering=0) as file:
        tree.export_bpf(file)
        file.seek(0)
        body = file.read()
    allowed = {name for name, refusal in verdicts.items() if refusal is None}
    head = _preamble(machine, numbers, newer, checks, allowed)
    marked = {_RET_ERRNO | _TOLD + e: _RET_USER_NOTIF | e for e in verdicts.values() if e}
    whole = b"".join(struct.pack("=HBBI", *instruction) for instruction in head) + _returning(body, marked)
    return whole if told else silent(whole)


def silent(bpf: bytes) -> bytes:
    """The same program, in which told refusals are made by the filter itself."""
    return _returning(bpf, {_RET_USER_NOTIF | e: _RET_ERRNO | e for e in range(1, 600)})


def _returning(bpf: bytes, changes: Mapping[int, int]) -> bytes:
    """The program with other values in its return instructions."""
    code = bytearray()
    for operation, yes, no, constant in struct.iter_unpack("=HBBI", bpf):
        value = changes.get(constant, constant) if operation == _RET else constant
        code += struct.pack("=HBBI", operation, yes, no, value)
    return bytes(code)


def told_numbers() -> dict[int, str]:
    """The calls of `TOLD` by this machine's numbers. For the front, which has libseccomp loaded."""
    ps = _pyseccomp("full")
    arch = ps.system_arch()
    found = {ps.resolve_syscall(arch, name): name for names in TOLD.values() for name in names.split()}
    return {number: name for number, name in found.items() if number >= 0}


def fill_own_pid(bpf: bytes, pid: int) -> bytes:
    """The program with its placeholders replaced by ``pid`` and the process group ``-pid``."""
    for placeholder, value in ((OWN_PID, pid), (OWN_GROUP, -pid & 0xFFFFFFFF)):
        for jump in range(len(CHECKS_UNSCOPED)):
            code = struct.pack("=HBBI", _JEQ, jump, 0, placeholder)
            bpf = bpf.replace(code, struct.pack("=HBBI", _JEQ, jump, 0, value))
    return bpf
