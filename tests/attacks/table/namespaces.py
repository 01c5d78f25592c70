"""Namespaces and mounts: the calls by which a sandbox is made are those by which it could be unmade."""

from __future__ import annotations

from ..attempt import SECCOMP, Attempt

_BOTH = f"{SECCOMP}, no capability"
_KINDS = {
    "user": 0x10000000, "mount": 0x20000, "pid": 0x20000000, "network": 0x40000000, "ipc": 0x8000000, "uts": 0x4000000,
    "cgroup": 0x2000000, "time": 0x80,
}  # fmt: skip
_LINKS = {"mount": "mnt", "network": "net"}


def _unshare(kind: str, flag: int) -> Attempt:
    if kind in ("pid", "time"):  # what counts there is where children come to be
        check = "pid = os.fork()\nif pid == 0: os._exit({test})\nout = NONCE if os.waitpid(pid, 0)[1] == 7 << 8 else ''"
        new = "os.getpid() == 1" if kind == "pid" else "os.stat('/proc/self/ns/time').st_ino != before"
        test = f"7 if {new} else 1"
        return Attempt(f"unshare-{kind}", f"enter a new {kind} namespace",
                       f"before = os.stat('/proc/self/ns/time').st_ino\nsyscall(NR['unshare'], {flag:#x})\n"
                       + check.format(test=test), _BOTH, SECCOMP, proof="{NONCE}", private=True)  # fmt: skip
    link = f"/proc/self/ns/{_LINKS.get(kind, kind)}"
    return Attempt(
        f"unshare-{kind}", f"enter a new {kind} namespace",
        f"before = os.stat('{link}').st_ino\nsyscall(NR['unshare'], {flag:#x})\n"
        f"out = NONCE if os.stat('{link}').st_ino != before else ''",
        _BOTH, SECCOMP, proof="{NONCE}", private=True,
    )  # fmt: skip


def _mount(name: str, what: str, code: str, **more: object) -> Attempt:
    more |= {"proof": "{NONCE}", "private": True}
    return Attempt(f"mount-{name}", what, code, _BOTH, SECCOMP, **more)  # type: ignore[arg-type]


ATTEMPTS = [
    *(_unshare(kind, flag) for kind, flag in _KINDS.items()),
    Attempt("clone-user", "make a child in a new user namespace",
            "pid = raw(NR['clone'], 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)\nif pid == 0: os._exit(7)\n"
            "if pid < 0: raise OSError(ctypes.get_errno(), 'clone')\nif os.waitpid(pid, 0)[1] == 7 << 8: out = NONCE",
            SECCOMP, SECCOMP, proof="{NONCE}"),
    Attempt("clone3-user", "make it by the newer call, whose flags no filter can see",
            "how = struct.pack('5Q', 0x10000000, 0, 0, 0, signal.SIGCHLD) + bytes(24)\n"
            "pid = raw(NR['clone3'], how, len(how))\nif pid == 0: os._exit(7)\n"
            "if pid < 0: raise OSError(ctypes.get_errno(), 'clone3')\nif os.waitpid(pid, 0)[1] == 7 << 8: out = NONCE",
            SECCOMP, SECCOMP, proof="{NONCE}"),
    _mount("tmpfs", "mount a file system", "syscall(NR['mount'], b'x', FOLDER.encode(), b'tmpfs', 0, None)\n"
           "open(FOLDER + '/x', 'w').write(NONCE)\nout = '' if os.path.exists(FILE) else open(FOLDER + '/x').read()"),
    _mount("bind", "show one folder at the place of another",
        "import tempfile\nplace = tempfile.mkdtemp()\n"
        "syscall(NR['mount'], FOLDER.encode(), place.encode(), None, 4096, None)\n"
        "out = NONCE if os.path.exists(place + '/file') else ''"),
    _mount("proc", "mount a /proc of one's own",
           "import tempfile\nplace = tempfile.mkdtemp()\nsyscall(NR['unshare'], 0x20000000)\npid = os.fork()\n"
           "if pid == 0:\n    os._exit(7 if not raw(NR['mount'], b'p', place.encode(), b'proc', 0, None) else 1)\n"
           "out = NONCE if os.waitpid(pid, 0)[1] == 7 << 8 else ''", needs=("fresh proc",)),
    _mount("remount", "make a mount executable or writable again",
           "syscall(NR['mount'], b'x', FOLDER.encode(), b'tmpfs', 1 | 8, None)\n"
           "syscall(NR['mount'], None, FOLDER.encode(), None, 32, None)\n"
           "open(FOLDER + '/x', 'w').write(NONCE)\nout = open(FOLDER + '/x').read()"),
    _mount("umount", "take a mount away to see what it hides",
        "syscall(NR['mount'], b'x', FOLDER.encode(), b'tmpfs', 0, None)\n"
        "syscall(NR['umount2'], FOLDER.encode(), 2)\nout = NONCE if os.path.exists(FILE) else ''"),
    _mount("new-calls", "mount by the newer calls",
           "fs = syscall(NR['fsopen'], b'tmpfs', 0)\nsyscall(NR['fsconfig'], fs, 6, None, None, 0)\n"
           "top = syscall(NR['fsmount'], fs, 0, 0)\nsyscall(NR['move_mount'], top, b'', -100, FOLDER.encode(), 4)\n"
           "open(FOLDER + '/x', 'w').write(NONCE)\nout = '' if os.path.exists(FILE) else open(FOLDER + '/x').read()"),
    _mount("copy", "take a detached copy of a folder's mount",
           "top = syscall(NR['open_tree'], -100, FOLDER.encode(), 1)\n"
           "out = NONCE if os.stat('file', dir_fd=top) else ''"),
    _mount("chroot", "change the root folder", "syscall(NR['chroot'], FOLDER.encode())\n"
           "os.chdir('/')\nout = NONCE if os.path.exists('/file') else ''"),
    _mount("pivot", "exchange the root folder",
           "syscall(NR['mount'], b'x', FOLDER.encode(), b'tmpfs', 0, None)\nos.mkdir(FOLDER + '/old')\n"
           "syscall(NR['pivot_root'], FOLDER.encode(), (FOLDER + '/old').encode())\nos.chdir('/')\n"
           "out = NONCE if os.path.exists('/old/proc') else ''"),
    _mount("enter", "enter a namespace by its file",
        "syscall(NR['setns'], os.open('/proc/self/ns/uts', os.O_RDONLY), 0)\nout = NONCE"),
    _mount("host-name", "change the host's name", "syscall(NR['sethostname'], NONCE.encode(), len(NONCE))\n"
           "out = os.uname().nodename"),
    Attempt("enter-front", "enter a namespace of the front",
            "syscall(NR['setns'], os.open(f'/proc/{FRONT}/ns/uts', os.O_RDONLY), 0)\nout = NONCE",
            f"pid namespace, {SECCOMP}", SECCOMP, proof="{NONCE}", needs=("root",)),
]
