"""Becoming somebody else, or getting a right."""

from __future__ import annotations

from ..attempt import LANDLOCK, SECCOMP, Attempt

_NO_CAPS = "no capability"


def _setid(name: str, what: str, code: str, **more: object) -> Attempt:
    return Attempt(f"setid-{name}", what, code, SECCOMP, SECCOMP, "setid", **more)  # type: ignore[arg-type]


_MAKE = "fd = os.open('tool', os.O_CREAT | os.O_WRONLY, 0o755)\nos.write(fd, b'#!/bin/sh\\n')\n"

ATTEMPTS = [
    _setid("chmod", "leave a program with its owner's rights in the workspace", _MAKE + "os.chmod('tool', 0o4755)"),
    _setid("group", "the same with its group's rights", _MAKE + "os.chmod('tool', 0o2755)"),
    _setid("fchmod", "set them by the descriptor", _MAKE + "os.fchmod(fd, 0o4755)"),
    _setid("open", "set them while the file is made", "os.umask(0)\nos.open('tool', os.O_CREAT | os.O_WRONLY, 0o4755)"),
    _setid("creat", "set them by the old call that makes files", "os.umask(0)\nsyscall(85, b'tool', 0o4755)"),
    _setid("mknod", "set them by the call for special files", "os.umask(0)\nos.mknod('tool', stat.S_IFREG | 0o4755)"),
    _setid("unnamed", "set them on a file without a name, then name it",
        "os.umask(0)\nfd = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o4755)\n"
        "libc.linkat(-100, f'/proc/self/fd/{fd}'.encode(), -100, b'tool', 0x400)"),
    _setid("program", "have a program do it", _MAKE + "subprocess.run(['chmod', 'u+s', 'tool'], capture_output=True)"),
    _setid("newest", "set them by the newest call", _MAKE + "syscall(NR['fchmodat2'], -100, b'tool', 0o4755, 0)",
           needs=("fchmodat2",)),
    Attempt("device-node", "make a device", "os.mknod('device', stat.S_IFCHR | 0o666, os.makedev(1, 3))",
        f"{SECCOMP}, {_NO_CAPS}", f"{SECCOMP}, {LANDLOCK}", "setid", needs=("root",)),
    Attempt("inode-flags", "set flags on a file's inode",
        _MAKE + "fcntl.ioctl(fd, 0x40086602, struct.pack('i', 0x40))", SECCOMP, SECCOMP, "setid",
        needs=("inode flags",)),
    Attempt("run-setuid", "run a program that belongs to root with its owner's rights",
            "tool = next(p for p in ('/usr/bin/su', '/bin/su', '/usr/bin/mount', '/bin/mount') if os.path.exists(p))\n"
            "a, b = os.pipe()\n"
            "p = subprocess.Popen([tool, '-'] if 'su' in tool else [tool], stdin=a, stdout=subprocess.DEVNULL,\n"
            "                     stderr=subprocess.DEVNULL)\nuntil = time.monotonic() + 1\n"
            "while time.monotonic() < until and p.poll() is None:\n"
            "    with contextlib.suppress(OSError):\n"
            "        line = read(f'/proc/{p.pid}/status').split(b'Uid:')[1].split(b'\\n')[0].split()\n"
            "        if line[1] == b'0' and os.getuid() != 0: out = NONCE; break\np.kill()\np.wait()",
            "nosuid mounts, no_new_privs", "no_new_privs", proof="{NONCE}", needs=("not root", "setuid program")),
    Attempt("become-user", "take the uid of another user", "os.setresuid(1234, 1234, 1234)\nout = str(os.getresuid())",
            f"{SECCOMP}, {_NO_CAPS}", f"{SECCOMP}, {_NO_CAPS}", proof="(1234, 1234, 1234)", needs=("root",)),
    Attempt("become-group", "take another group", "os.setresgid(1234, 1234, 1234)\nout = str(os.getresgid())",
            f"{SECCOMP}, {_NO_CAPS}", f"{SECCOMP}, {_NO_CAPS}", proof="(1234, 1234, 1234)", needs=("root",)),
    Attempt("join-groups", "join further groups", "os.setgroups([1234])\nout = str(os.getgroups())",
        f"{SECCOMP}, {_NO_CAPS}", f"{SECCOMP}, {_NO_CAPS}", proof="[1234]", needs=("root",)),
    Attempt("capabilities", "have any capability at all",
        "line = read('/proc/self/status').split(b'CapEff:')[1].split()[0]\n"
        "out = NONCE if int(line, 16) else ''",
        _NO_CAPS, _NO_CAPS, proof="{NONCE}", private=True),
    Attempt("capabilities-by-exec", "get them by running a program",
        "line = subprocess.run(['cat', '/proc/self/status'], "
        "capture_output=True).stdout.split(b'CapEff:')[1].split()[0]\n"
        "out = NONCE if int(line, 16) else ''",
        "empty bounding set", f"empty bounding set, {LANDLOCK}", proof="{NONCE}", private=True),
    Attempt("capabilities-ambient", "raise an ambient capability",
            "head, room = struct.pack('Ii', 0x20080522, 0), ctypes.create_string_buffer(24)\nlibc.capget(head, room)\n"
            "e, p, _, f, q, _ = struct.unpack('6I', room.raw)\nlibc.capset(head, struct.pack('6I', e, p, p, f, q, q))\n"
            "if libc.prctl(47, 2, 0, 0, 0): raise OSError(ctypes.get_errno(), 'prctl')\nout = NONCE", SECCOMP, SECCOMP,
            proof="{NONCE}", private=True),
    Attempt("chown", "give a file away",
        "open('mine', 'w').close()\nos.chown('mine', 1234, 1234)\n"
        "out = NONCE if os.stat('mine').st_uid == 1234 else ''",
        _NO_CAPS, f"{SECCOMP}, {_NO_CAPS}", proof="{NONCE}", needs=("root",)),
    Attempt("dumpable", "make the process readable again for others of its user",
            "libc.prctl(4, 0)\nif libc.prctl(4, 1): raise OSError(ctypes.get_errno(), 'prctl')\n"
            "out = NONCE if libc.prctl(3) == 1 else ''", SECCOMP, SECCOMP, proof="{NONCE}"),
    Attempt("filter-on-top", "put a filter on top that answers calls in the own name",
        "libc.prctl(38, 1, 0, 0, 0)\n"
        "program = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0x7FFF0000))\n"
        "fd = syscall(NR['seccomp'], 1, 8, struct.pack('HxxxxxxP', 1, ctypes.addressof(program)))\n"
        "out = NONCE if fd > 2 else ''",
        SECCOMP, SECCOMP, proof="{NONCE}"),
]
