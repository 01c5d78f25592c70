"""What a confined process may ask of the kernel: the whole system-call policy, as data.

Verdicts. Unlisted calls get ENOSYS (what an older kernel says; C libraries then fall back). Calls that are
known and refused get EPERM, so that Python raises PermissionError. A process is killed only for entering
through a foreign architecture (int 0x80, x32), where numbers mean other calls. `program` compiles it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping

from .. import linux
from ..frozen import Frozen

FILTER_LEVELS = ("full", "seccomp+landlock", "seccomp")

ALLOWED: Mapping[str, str] = {
    "files": """
        read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 open openat creat
        close close_range lseek stat fstat lstat newfstatat statx statfs fstatfs access faccessat faccessat2
        readlink readlinkat getdents getdents64 getcwd chdir fchdir mkdir mkdirat rmdir unlink unlinkat
        rename renameat renameat2 link linkat symlink symlinkat chmod fchmod fchmodat chown fchown
        lchown fchownat umask utime utimes utimensat futimesat truncate ftruncate fadvise64
        readahead flock fsync fdatasync sync_file_range copy_file_range sendfile dup dup2 dup3 fcntl ioctl
        pipe pipe2 mknod mknodat getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr setxattr
        lsetxattr fsetxattr removexattr lremovexattr fremovexattr""",
    "waiting": """
        select pselect6 poll ppoll epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2
        eventfd eventfd2 timerfd_create timerfd_settime timerfd_gettime signalfd signalfd4 inotify_init
        inotify_init1 inotify_add_watch inotify_rm_watch""",
    "memory": """
        brk mmap munmap mprotect mremap madvise msync mincore mlock mlock2 munlock mlockall munlockall mbind
        set_mempolicy get_mempolicy membarrier pkey_alloc pkey_free pkey_mprotect map_shadow_stack mseal""",
    "processes": """
        clone fork vfork execve exit exit_group wait4 waitid getpid getppid gettid setpgid getpgid getpgrp
        setsid getsid pidfd_open sched_yield sched_getaffinity sched_setaffinity sched_getparam
        sched_setparam sched_getscheduler sched_setscheduler sched_get_priority_max sched_get_priority_min
        sched_rr_get_interval sched_getattr sched_setattr getpriority setpriority ioprio_get ioprio_set
        getcpu prctl arch_prctl set_tid_address set_robust_list rseq futex futex_waitv futex_wake futex_wait
        futex_requeue getrlimit setrlimit prlimit64 getrusage times sysinfo uname personality""",
    "signals": """
        kill tkill tgkill pidfd_send_signal rt_sigqueueinfo rt_tgsigqueueinfo rt_sigaction rt_sigprocmask
        rt_sigreturn rt_sigsuspend rt_sigpending rt_sigtimedwait sigaltstack pause alarm getitimer setitimer
        timer_create timer_settime timer_gettime timer_getoverrun timer_delete restart_syscall""",
    "identity": "getuid geteuid getgid getegid getresuid getresgid getgroups capget",
    "time and chance": "clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time getrandom",
    # Only AF_UNIX can be made (see CHECKS), so the calls on existing sockets need no rule of their own.
    "sockets": """
        socket bind listen accept accept4 connect socketpair sendto recvfrom sendmsg recvmsg sendmmsg
        recvmmsg shutdown getsockname getpeername getsockopt setsockopt""",
}

REFUSED: Mapping[str, str] = {
    "other processes": """
        ptrace process_vm_readv process_vm_writev pidfd_getfd kcmp process_madvise process_mrelease
        migrate_pages move_pages get_robust_list""",
    "mounts and namespaces, the largest surface open to ordinary users": """
        unshare setns mount umount2 pivot_root chroot open_tree move_mount fsopen fsconfig fsmount fspick
        mount_setattr""",
    "opens files and sockets without passing this filter": "io_uring_setup io_uring_enter io_uring_register",
    "recurring kernel faults": "bpf perf_event_open userfaultfd keyctl add_key request_key",
    "the machine": """
        init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff acct
        quotactl quotactl_fd settimeofday clock_settime clock_adjtime adjtimex sethostname setdomainname
        vhangup syslog iopl ioperm modify_ldt""",
    "files past their path": "open_by_handle_at name_to_handle_at fanotify_init fanotify_mark",
    "identity": "setuid setgid setreuid setregid setresuid setresgid setgroups setfsuid setfsgid capset",
    "this wall itself": "seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self",
    # (For the first, whoever listens may give a file that a limit counts: see `session.memory_files`.)
    "memory that no limit counts, programs without a file": "memfd_create memfd_secret execveat",
    "System V and POSIX message IPC, shared by all processes of the machine outside an IPC namespace": """
        shmget shmat shmctl shmdt semget semop semtimedop semctl msgget msgsnd msgrcv msgctl mq_open
        mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr""",
}

# Refusals that a person should hear of at the end of the cell, by kind: a process outside is notified and gives the
# errno (see `notify`). They are rare, they say what somebody wanted, and all are EPERM. What libraries try unasked and
# do without stays a plain errno, so that no cell gets a false alarm: io_uring_setup (libuv, hence uvloop and Node),
# landlock_* and seccomp (xz, file), kcmp (graphics drivers), process_madvise (jemalloc), and the sockets of `QUIET`.
TOLD: Mapping[str, str] = {
    "network": "socket socketpair connect bind",
    "namespaces": "unshare setns clone",
    "mounts": """
        mount umount2 pivot_root chroot open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr""",
    "other processes": "ptrace process_vm_readv process_vm_writev pidfd_getfd",
    "identity": "setuid setgid setreuid setregid setresuid setresgid setgroups capset",
    "kernel interfaces": "bpf perf_event_open userfaultfd keyctl add_key request_key open_by_handle_at",
    "memory files": "memfd_create memfd_secret execveat",
    "the machine": """
        init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff settimeofday
        clock_settime sethostname setdomainname""",
}

# The flags of the first two are behind a pointer, where no filter can look; libcs fall back to older calls. Never
# list them above.
MISSING = ("clone3", "openat2", "fchmodat2")

# One call of fallocate makes a gigabyte at once, before anybody can look at how much there is. C libraries then write.
UNSUPPORTED: Mapping[int, str] = {errno.EOPNOTSUPP: "fallocate"}

# Without a mount namespace every path of the machine can be named. Landlock (up to ABI 7) does not check
# changes of mode, owner, times and extended attributes: `chmod 000 ~` would work. Modes and times are
# therefore ignored (errno 0, as the mount option "quiet" of vfat does; an error would break shutil.copy and
# Path.touch), extended attributes are "not supported". The same by descriptor: to change a mode, an owner, a time or
# an attribute the kernel asks who owns the file, not whether the descriptor may write, so opening a program of the
# system for reading would be enough (fchmod 000, or fchown to nobody new, which takes set-id bits away).
BELOW_FULL: Mapping[int, str] = {
    0: "chmod fchmodat fchmod fchown utime utimes futimesat utimensat",
    errno.EPERM: """
        chown lchown fchownat socket bind listen accept accept4 connect
        inotify_init inotify_init1 inotify_add_watch ioprio_set""",
    errno.EOPNOTSUPP: """
        setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr getxattr lgetxattr listxattr llistxattr""",
}

# Before ABI 3 Landlock does not check truncation: refuse it by path.
BELOW_ABI_3: Mapping[int, str] = {errno.EPERM: "truncate"}

# Without a PID namespace and a Landlock signal scope (ABI 6), signals go to oneself only.
UNSCOPED: Mapping[int, str] = {errno.EPERM: "pidfd_send_signal"}

# Numbers that libseccomp 2.5 may not know; from 424 on they are the same on all architectures.
NEWER_NUMBERS: Mapping[str, int] = {
    "map_shadow_stack": 453, "futex_wake": 454, "futex_wait": 455, "futex_requeue": 456,
    "mseal": 462,
}  # fmt: skip

# Stands in the program for the pid of the process that loads it (kernel pids end at 2**22).
OWN_PID = 0x7FFF_FF01
OWN_GROUP = 0x7FFF_FF02


class Check(Frozen):
    """One look at one argument of one call, on the low 32 bits of ``argument & mask``.

    Attributes:
        values: with ``forbid`` False the call passes only with one of these, else only without them.
        refusal: errno when it does not pass; 0 pretends success.
        when: (argument, value): the check concerns only calls whose other argument, after ``& when_mask``, has
            this value.
        wide: the upper 32 bits must be zero too (for pointers).
        told: its refusal is one of `TOLD`.
    """

    call: str
    argument: int
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF
    refusal: int = errno.EPERM
    forbid: bool = False
    when: tuple[int, int] | None = None
    when_mask: int = 0xFFFFFFFF
    wide: bool = False
    told: bool = False


_NAMESPACES = (
    linux.CLONE_NEWNS | linux.CLONE_NEWCGROUP | linux.CLONE_NEWUTS | linux.CLONE_NEWIPC | linux.CLONE_NEWUSER
    | linux.CLONE_NEWPID | linux.CLONE_NEWNET
)  # fmt: skip
_IOCTLS = (
    0x5401, 0x5402, 0x5403, 0x5404,                  # TCGETS, TCSETS, TCSETSW, TCSETSF
    0x802C542A, 0x402C542B, 0x402C542C, 0x402C542D,  # the same "2", used by glibc 2.42
    0x5409, 0x540B, 0x540F, 0x5410, 0x5411,          # TCSBRK, TCFLSH, TIOCGPGRP, TIOCSPGRP, TIOCOUTQ
    0x5413, 0x5414, 0x541B, 0x5421, 0x5429,          # TIOCGWINSZ, TIOCSWINSZ, FIONREAD, FIONBIO, TIOCGSID
    0x5441, 0x80045430, 0x40045431,                  # TIOCGPTPEER, TIOCGPTN, TIOCSPTLCK
    0x5450, 0x5451,                                  # FIONCLEX, FIOCLEX
)  # fmt: skip
_PRCTLS = (
    linux.PR_SET_PDEATHSIG, linux.PR_GET_PDEATHSIG, linux.PR_GET_DUMPABLE, linux.PR_SET_DUMPABLE,
    linux.PR_SET_NAME, linux.PR_GET_NAME, linux.PR_GET_SECCOMP, linux.PR_CAPBSET_READ,
    linux.PR_GET_TIMERSLACK, linux.PR_SET_NO_NEW_PRIVS, linux.PR_GET_NO_NEW_PRIVS,
    linux.PR_SET_THP_DISABLE, linux.PR_GET_THP_DISABLE, linux.PR_SET_VMA,
)  # fmt: skip
_SET_ID = 0o6000  # set-user-id and set-group-id
_CREATES = (os.O_CREAT, os.O_TMPFILE & ~os.O_DIRECTORY)  # the mode of an open counts with one of these
_S_IFMT, _PLAIN_FILES = 0xF000, (0, 0x8000, 0x1000, 0xC000)  # regular (0 too), FIFO, socket: no devices

CHECKS: tuple[Check, ...] = (
    Check("ioctl", 1, _IOCTLS, refusal=errno.ENOTTY),
    Check("clone", 0, (0,), mask=_NAMESPACES | linux.CLONE_PARENT | linux.CLONE_PTRACE, told=True),
    Check("prctl", 0, _PRCTLS),
    Check("prctl", 1, (0,), when=(0, linux.PR_SET_DUMPABLE)),
    Check("prlimit64", 0, (0,)),
    Check("socketpair", 0, (1,), told=True),  # AF_UNIX
    # STREAM, SEQPACKET; a DGRAM pair can send to any socket's path
    Check("socketpair", 1, (1, 5), mask=0xF, told=True),
    Check("setsockopt", 2, (26, 50, 51, 52), forbid=True, when=(1, 1)),  # SOL_SOCKET: attach a BPF program
    Check("mknod", 1, _PLAIN_FILES, mask=_S_IFMT),
    Check("mknodat", 2, _PLAIN_FILES, mask=_S_IFMT),
    Check("personality", 0, (0xFFFFFFFF,)),  # the query
    # F_SETLEASE, F_NOTIFY, F_SETDELEG: with a lease on a file that may only be read, whoever opens it waits 45 s.
    Check("fcntl", 1, (1024, 1026, 1040), forbid=True),
)
# A set-user-id program in the workspace belongs, on the disk, to the workspace's owner, who may be root: whoever
# runs it outside becomes that user. So no file gets these bits (as systemd's RestrictSUIDSGID= has it).
CHECKS += (
    *(Check(call, 1, (0,), mask=_SET_ID) for call in ("chmod", "fchmod", "creat", "mknod")),
    *(Check(call, 2, (0,), mask=_SET_ID) for call in ("fchmodat", "mknodat")),
    *(
        Check(call, argument, (0,), mask=_SET_ID, when=(argument - 1, flag), when_mask=flag)
        for call, argument in (("open", 2), ("openat", 3))
        for flag in _CREATES
    ),
)
# Sockets that are made unasked, refused before it comes to telling. Found by tracing ordinary work: C code that looks
# at the network interfaces (getifaddrs, libuuid, psutil) and urllib3, which tries IPv6 when it is imported. Python's
# own sockets always have CLOEXEC, those of a connection by name have a protocol.
_SOCK_FLAGS = 0o2004000  # CLOEXEC, NONBLOCK
QUIET: tuple[Check, ...] = (
    Check("socket", 0, (16,), forbid=True),  # AF_NETLINK
    Check("socket", 1, (2,), mask=0xF | _SOCK_FLAGS, forbid=True, when=(0, 2)),  # AF_INET, DGRAM and no flag
    Check("socket", 2, (0,), forbid=True, when=(0, 10)),  # AF_INET6 without a protocol
)
# The C library asks for accounts at a name-service daemon, with NONBLOCK; libuuid at its own, without CLOEXEC.
QUIET_BELOW_FULL: tuple[Check, ...] = (
    Check("socket", 1, (0o2000001,), mask=0xF | _SOCK_FLAGS, when=(0, 1)),  # AF_UNIX, told: STREAM with CLOEXEC
)
# AF_UNIX, for multiprocessing's servers
CHECKS_FULL: tuple[Check, ...] = (
    *QUIET,
    Check("socket", 0, (1,), told=True),
    # Pid 1 is the zygote: with no priority, or bound to a processor that cells burn, it could end nothing in time.
    *(
        Check(call, 0, (1,), forbid=True)
        for call in ("sched_setaffinity", "sched_setparam", "sched_setscheduler", "sched_setattr")
    ),
    *(Check(call, 1, (1,), forbid=True) for call in ("setpriority", "ioprio_set")),
    Check("setpriority", 0, (2,), forbid=True),  # PRIO_USER, and below IOPRIO_WHO_USER: the zygote's too
    Check("ioprio_set", 0, (3,), forbid=True),
)
CHECKS_BELOW_FULL: tuple[Check, ...] = (
    *QUIET,
    *QUIET_BELOW_FULL,
    # The front and other processes of the same user are within reach: change the priority of oneself only.
    Check("sched_setaffinity", 0, (0,)),
    Check("sched_setparam", 0, (0,)),
    Check("sched_setscheduler", 0, (0,)),
    Check("sched_setattr", 0, (0,)),
    Check("setpriority", 0, (0,)),
    Check("setpriority", 1, (0,)),
    Check("fcntl", 1, (8, 10, 15), forbid=True),  # F_SETOWN, F_SETSIG, F_SETOWN_EX: any signal to any process
)
CHECKS_BELOW_ABI_3: tuple[Check, ...] = (  # O_RDONLY | O_TRUNC empties a file that may only be read
    Check("open", 1, (os.O_TRUNC,), mask=os.O_TRUNC | os.O_ACCMODE, forbid=True),
    Check("openat", 2, (os.O_TRUNC,), mask=os.O_TRUNC | os.O_ACCMODE, forbid=True),
)
CHECKS_UNSCOPED: tuple[Check, ...] = (
    Check("kill", 0, (0, OWN_PID, OWN_GROUP)),
    *(Check(call, 0, (OWN_PID,)) for call in ("tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")),
)


def table(level: str, landlock_abi: int) -> tuple[dict[str, int | None], tuple[Check, ...]]:
    """The whole policy of a level: verdict by name (None: allowed; else the errno), and the argument checks.

    Args:
        level: one of `FILTER_LEVELS`.
        landlock_abi: the ABI that will be enforced beside the filter, 0 for none.
    """
    if level not in FILTER_LEVELS:
        raise ValueError(f"the level {level!r} has no system-call filter")
    verdicts: dict[str, int | None] = {name: None for text in ALLOWED.values() for name in text.split()}
    verdicts.update((name, errno.EPERM) for text in REFUSED.values() for name in text.split())
    checks = CHECKS
    changes: list[Mapping[int, str]] = [UNSUPPORTED]
    if level == "full":
        checks += CHECKS_FULL
    else:
        abi = landlock_abi if level == "seccomp+landlock" else 0
        changes.append(BELOW_FULL)
        checks += CHECKS_BELOW_FULL
        if abi < 3:
            changes.append(BELOW_ABI_3)
            checks += CHECKS_BELOW_ABI_3
        if abi < 6:
            changes.append(UNSCOPED)
            checks += CHECKS_UNSCOPED
    for change in changes:
        verdicts.update((name, number) for number, names in change.items() for name in names.split())
    return verdicts, checks


def notes(level: str, landlock_abi: int) -> list[str]:
    """What cells lose at this level through the filter, one plain sentence each."""
    verdicts, _ = table(level, landlock_abi)
    found = []
    if verdicts["socket"] is not None:
        found.append("No sockets can be made, so multiprocessing's forkserver and Manager do not work.")
        found.append("Changes of file modes, owners and times are ignored, and folders cannot be watched.")
    if verdicts["pidfd_send_signal"] is not None:
        found.append(
            "Signals reach only the process of the cells itself: its child processes cannot be terminated."
        )
    if verdicts["truncate"] is not None:
        found.append("Files cannot be truncated by path.")
    return found
