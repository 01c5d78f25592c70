"""Signals to, and power over, processes outside; among them the parent, which keeps the sandbox."""

from __future__ import annotations

from ..attempt import PIDS, SCOPE, SECCOMP, Attempt

_PARENT_IMMUNE = "pid 1 is immune to signals from inside"


def _signal(name: str, what: str, code: str, bare: str = SCOPE, **more: object) -> Attempt:
    return Attempt(f"signal-{name}", what, code, PIDS, bare, "hit", **more)  # type: ignore[arg-type]


def _alter(name: str, what: str, code: str, **more: object) -> Attempt:
    return Attempt(f"alter-{name}", what, code, PIDS, SECCOMP, "altered", **more)  # type: ignore[arg-type]


_INFO = "info = struct.pack('iii4xiI', {signal}, 0, -1, os.getpid(), os.getuid()) + bytes(100)\n"

ATTEMPTS = [
    _signal("kill", "end a process of the same user", "os.kill(VICTIM, signal.SIGKILL)"),
    _signal("terminate", "ask it to end", "os.kill(VICTIM, signal.SIGTERM)"),
    _signal("stop", "stop it", "os.kill(VICTIM, signal.SIGSTOP)"),
    _signal("group", "end its group", "os.killpg(VICTIM, signal.SIGKILL)"),
    _signal("thread", "end it by its thread", "syscall(NR['tgkill'], VICTIM, VICTIM, 9)"),
    _signal("pidfd", "end it by a descriptor of it", "signal.pidfd_send_signal(os.pidfd_open(VICTIM), 9)"),
    _signal("queue", "send it a signal with a value",
        _INFO.format(signal=10) + "syscall(NR['rt_sigqueueinfo'], VICTIM, 10, info)"),
    _signal("program", "have a program do it",
        "subprocess.run(['sh', '-c', f'kill -9 {VICTIM}'], capture_output=True)"),
    _signal("owner", "name it as the owner of a socket, so that the kernel signals it",
            "a, b = socket.socketpair()\nfcntl.fcntl(a, fcntl.F_SETOWN, VICTIM)\n"
            "fcntl.fcntl(a, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)\nb.send(b'x')", SECCOMP),
    _signal("owner-kill", "the same with the signal that cannot be caught",
            "a, b = socket.socketpair()\nlibc.fcntl(a.fileno(), 15, struct.pack('ii', 1, VICTIM))\n"
            "libc.fcntl(a.fileno(), 10, 9)\nfcntl.fcntl(a, fcntl.F_SETFL, os.O_ASYNC)\nb.send(b'x')", SECCOMP),
    _signal("owner-group", "name its group as the owner of a pipe",
            "a, b = os.pipe()\nfcntl.fcntl(a, fcntl.F_SETOWN, -VICTIM)\n"
            "fcntl.fcntl(a, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)\nos.write(b, b'x')", SECCOMP),
    Attempt("signal-parent-kill", "end the parent", "os.kill(os.getppid(), 9)", _PARENT_IMMUNE, SCOPE, "hit"),
    Attempt("signal-parent-stop", "stop the parent", "os.kill(os.getppid(), signal.SIGSTOP)", _PARENT_IMMUNE, SCOPE,
        "hit"),
    Attempt("signal-parent-terminate", "terminate the parent", "os.kill(os.getppid(), signal.SIGTERM)", _PARENT_IMMUNE,
            SCOPE, "hit"),
    Attempt("signal-parent-owner", "have the kernel signal the parent",
            "a, b = socket.socketpair()\nlibc.fcntl(a.fileno(), 15, struct.pack('ii', 1, os.getppid()))\n"
            "libc.fcntl(a.fileno(), 10, 9)\nfcntl.fcntl(a, fcntl.F_SETFL, os.O_ASYNC)\nb.send(b'x')", _PARENT_IMMUNE,
            SECCOMP, "hit"),
    _alter("limits", "lower a limit of another process",
           "import resource\nresource.prlimit(VICTIM, resource.RLIMIT_NOFILE, (7, 7))"),
    _alter("priority", "lower the priority of another process", "os.setpriority(os.PRIO_PROCESS, VICTIM, 19)",
           needs=("priority to lose",)),
    _alter("priority-group", "lower that of its group", "os.setpriority(os.PRIO_PGRP, VICTIM, 19)",
           needs=("priority to lose",)),
    # (Not tried: setpriority(PRIO_USER). Where it succeeds it slows down every process of whoever runs the tests.)
    _alter("scheduler", "let another process run only when all else is idle",
           "os.sched_setscheduler(VICTIM, os.SCHED_IDLE, os.sched_param(0))"),
    _alter("processors", "bind another process to one processor",
        "os.sched_setaffinity(VICTIM, {min(os.sched_getaffinity(0))})", needs=("two processors",)),
    _alter("disk-priority", "give another process the lowest disk priority",
           "syscall(NR['ioprio_set'], 1, VICTIM, 3 << 13)"),
    Attempt("alter-parent-priority", "lower the parent's priority, so that it cannot end anything in time",
            "os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)", SECCOMP, SECCOMP, "altered",
            needs=("priority to lose",)),
    Attempt("alter-parent-scheduler", "let the parent run only when all else is idle",
            "os.sched_setscheduler(os.getppid(), os.SCHED_IDLE, os.sched_param(0))", SECCOMP, SECCOMP, "altered"),
    Attempt("alter-parent-processors", "bind the parent to one processor and burn it",
            "os.sched_setaffinity(os.getppid(), {min(os.sched_getaffinity(0))})", SECCOMP, SECCOMP, "altered",
            needs=("two processors",)),
    Attempt("trace", "trace another process and read its memory",
            "libc.ptrace.restype = ctypes.c_long\n"
            "libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]\n"
            "if libc.ptrace(0x4206, HOLDER, None, None): raise OSError(ctypes.get_errno(), 'seize')\n"
            "libc.ptrace(0x4207, HOLDER, None, None)\nos.waitpid(HOLDER, 0x40000000)\n"
            "for at in range(0, 24, 8):\n"
            "    out += (libc.ptrace(2, HOLDER, ADDRESS + at, None) & (1 << 64) - 1).to_bytes(8, 'little').decode()",
            f"{PIDS}, {SECCOMP}", SECCOMP, needs=("trace",)),
    Attempt("read-memory", "read the memory of another process by a call",
        "room = ctypes.create_string_buffer(24)\nmine = struct.pack('2Q', ctypes.addressof(room), 24)\n"
        "theirs = struct.pack('2Q', ADDRESS, 24)\n"
        "syscall(NR['process_vm_readv'], HOLDER, mine, 1, theirs, 1, 0)\nout = room.raw",
        f"{PIDS}, {SECCOMP}", SECCOMP, needs=("trace",)),
    Attempt("take-descriptor", "take an open descriptor from another process",
            "fd = syscall(NR['pidfd_getfd'], os.pidfd_open(HOLDER), HELD, 0)\nout = os.pread(fd, 99, 0)",
            f"{PIDS}, {SECCOMP}", SECCOMP, needs=("trace",)),
    Attempt("sibling-by-clone", "make a child that is the parent's, beside the own process",
            "a, b = os.pipe()\npid = raw(NR['clone'], 0x8000 | signal.SIGCHLD, 0, 0, 0, 0)\n"
            "if pid == 0:\n    os.write(b, str(os.getppid()).encode())\n    os._exit(0)\n"
            "if pid < 0: raise OSError(ctypes.get_errno(), 'clone')\nout = f'parent {os.read(a, 20).decode()}'\n"
            "out += '' if out != f'parent {os.getpid()}' else ' self'\nif 'self' in out: out = ''",
            SECCOMP, SECCOMP, proof="parent {PARENT}"),
]
