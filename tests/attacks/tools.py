"""What attempts have at hand, so that each shows only what is its own. Imported by the stage before it forks."""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import errno
import fcntl
import json
import mmap
import os
import signal
import socket
import sqlite3
import stat
import struct
import subprocess
import sys
import threading
import time

__all__ = [
    "NR", "contextlib", "ctypes", "errno", "fcntl", "json", "libc", "mmap", "os", "raw", "read", "run_bytes", "signal",
    "socket", "sqlite3", "stat", "struct", "subprocess", "sys", "syscall", "threading", "time",
]  # fmt: skip

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

# x86-64; attempts that use one of them need that machine.
NR = {
    "modify_ldt": 154, "pivot_root": 155, "chroot": 161, "mount": 165, "umount2": 166, "sethostname": 170,
    "shmget": 29, "shmat": 30, "msgget": 68, "msgsnd": 69, "msgrcv": 70, "mq_open": 240, "add_key": 248, "keyctl": 250,
    "ioprio_set": 251, "unshare": 272, "perf_event_open": 298, "fanotify_init": 300, "fanotify_mark": 301,
    "name_to_handle_at": 303, "open_by_handle_at": 304, "setns": 308, "process_vm_readv": 310, "seccomp": 317,
    "memfd_create": 319, "bpf": 321, "execveat": 322, "userfaultfd": 323, "pidfd_send_signal": 424,
    "io_uring_setup": 425, "io_uring_enter": 426, "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431,
    "fsmount": 432, "clone3": 435, "openat2": 437, "pidfd_getfd": 438, "ptrace": 101, "clone": 56, "tgkill": 234,
    "rt_sigqueueinfo": 129, "renameat2": 316, "exit": 60, "personality": 135, "syslog": 103, "kcmp": 312,
    "memfd_secret": 447, "fchmodat2": 452,
}  # fmt: skip


def raw(number: int, *arguments: object) -> int:
    """A system call by number: -1 when it is refused. Integers are passed in full width."""
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return int(libc.syscall(ctypes.c_long(number), *wide))


def syscall(number: int, *arguments: object) -> int:
    """A system call by number; a refusal raises OSError."""
    result = raw(number, *arguments)
    if result == -1:
        raise OSError(ctypes.get_errno(), f"call {number}")
    return result


def read(path: str) -> bytes:
    """The whole of a file."""
    with open(path, "rb") as file:
        return file.read()


def run_bytes(code: bytes) -> int:
    """Executes machine code and returns what it leaves in eax."""
    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    return int(ctypes.CFUNCTYPE(ctypes.c_int)(address)())
