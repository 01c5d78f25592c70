"""Interfaces of the kernel that ordinary programs do without."""

from __future__ import annotations

from ..attempt import LANDLOCK, SECCOMP, Attempt, Open

_RING = """
room = ctypes.create_string_buffer(120)
ring = syscall(NR['io_uring_setup'], 4, room)
p = struct.unpack('30I', room.raw)
sq_off, cq_off = p[10:20], p[20:30]
size = max(sq_off[6] + p[0] * 4, cq_off[5] + p[1] * 16)
shared = mmap.mmap(ring, size, offset=0)
entries = mmap.mmap(ring, p[0] * 64, offset=0x10000000)
at = lambda offset: struct.unpack_from('I', shared, offset)[0]
def submit(entry):
    tail = at(sq_off[1])
    slot = tail & at(sq_off[2])
    entries[slot * 64:slot * 64 + 64] = entry.ljust(64, bytes(1))
    struct.pack_into('I', shared, sq_off[6] + slot * 4, slot)
    struct.pack_into('I', shared, sq_off[1], tail + 1)
    syscall(NR['io_uring_enter'], ring, 1, 1, 1, None, 0)
    head = at(cq_off[0])
    result = struct.unpack_from('Qi', shared, cq_off[5] + (head & at(cq_off[2])) * 16)[1]
    struct.pack_into('I', shared, cq_off[0], head + 1)
    if result < 0: raise OSError(-result, 'ring')
    return result
"""
_NATIVE = "code = bytes.fromhex({code!r})\npid = run_bytes(code)\nout = NONCE if pid == os.getpid() else ''"


def _kernel(
    name: str, what: str, code: str, full: str | Open = SECCOMP, bare: str | Open = SECCOMP, **more: object
) -> Attempt:
    more.setdefault("proof", "{NONCE}")
    return Attempt(f"kernel-{name}", what, code, full, bare, **more)  # type: ignore[arg-type]


ATTEMPTS = [
    _kernel("ring-read", "open and read a file by a ring, past every filter of calls", _RING +
            "path = ctypes.create_string_buffer(FILE.encode())\n"
            "fd = submit(struct.pack('BBHiQQIIQ', 18, 0, 0, -100, 0, ctypes.addressof(path), 0, 0, 1))\n"
            "text = ctypes.create_string_buffer(99)\n"
            "submit(struct.pack('BBHiQQIIQ', 22, 0, 0, fd, 0, ctypes.addressof(text), 98, 0, 2))\nout = text.value",
            proof="{SECRET}", needs=("io_uring",)),
    _kernel("ring-socket", "make a socket by a ring",
        _RING +
        "fd = submit(struct.pack('BBHiQQIIQ', 45, 0, 0, socket.AF_INET, socket.SOCK_DGRAM, 0, 0, 0, 1))\n"
        "s = socket.socket(fileno=fd)\ns.sendto(TOKEN.encode(), ('127.0.0.1', UDP))",
        effect="arrived", needs=("io_uring",)),
    _kernel("bpf", "make a map for programs in the kernel",
        "fd = syscall(NR['bpf'], 0, struct.pack('4I', 2, 4, 8, 1).ljust(72, bytes(1)), 72)\n"
        "out = NONCE if fd > 2 else ''",
        needs=("bpf",)),
    _kernel("key", "keep a secret in the kernel's keyring, which other programs see",
            "key = syscall(NR['add_key'], b'user', TOKEN.encode(), NONCE.encode(), len(NONCE), -4)\n"
            "room = ctypes.create_string_buffer(99)\nsyscall(NR['keyctl'], 11, key, room, 99)\nout = room.value\n"
            "syscall(NR['keyctl'], 3, key)", needs=("keys",)),
    _kernel("page-faults", "serve page faults of its own",
        "fd = syscall(NR['userfaultfd'], os.O_CLOEXEC | 1)\n"
        "fcntl.ioctl(fd, 0xC018AA3F, bytearray(struct.pack('3Q', 0xAA, 0, 0)))\nout = NONCE",
        needs=("userfaultfd",)),
    _kernel("performance", "count events of the processor",
            "how = struct.pack('2I', 1, 112).ljust(40, bytes(1)) + struct.pack('Q', 0x60)\n"
            "fd = syscall(NR['perf_event_open'], how.ljust(112, bytes(1)), 0, -1, -1, 0)\nsum(range(9999))\n"
            "out = NONCE if len(os.read(fd, 8)) == 8 else ''", needs=("perf",)),
    _kernel("memory-file", "hold memory in a file without a place, which no limit counts",
            "fd = syscall(NR['memfd_create'], b'x', 0)\nos.write(fd, NONCE.encode())\nout = os.pread(fd, 99, 0)"),
    _kernel("memory-file-exec", "run a program from such a file",
            "fd = syscall(NR['memfd_create'], b'x', 0)\nos.write(fd, read('/bin/echo'))\n"
            "out = subprocess.run([f'/proc/self/fd/{fd}', NONCE], pass_fds=[fd], capture_output=True).stdout"),
    _kernel("secret-memory", "hold memory that even the kernel does not map",
        "fd = syscall(NR['memfd_secret'], 0)\nout = NONCE", needs=("memfd_secret",)),
    _kernel("exec-descriptor", "run a program by its descriptor alone",
        "a, b = os.pipe()\npid = os.fork()\nif pid == 0:\n    os.dup2(b, 1)\n"
        "    fd = os.open('/bin/echo', os.O_RDONLY)\n"
        "    args = (ctypes.c_char_p * 3)(b'echo', NONCE.encode(), None)\n"
        "    raw(NR['execveat'], fd, b'', args, None, 0x1000)\n    os._exit(1)\nos.waitpid(pid, 0)\n"
        "os.close(b)\nout = os.read(a, 99)"),
    _kernel("segments", "change the processor's segment table",
        "what = struct.pack('4I', 0, 0x12345, 0xFF, 0x51)\n"
        "syscall(NR['modify_ldt'], 1, what, len(what))\nroom = ctypes.create_string_buffer(64)\n"
        "out = NONCE if syscall(NR['modify_ldt'], 0, room, 64) >= 8 else ''",
        needs=("modify_ldt",)),
    _kernel("personality", "switch off the random layout of memory",
        "syscall(NR['personality'], 0x40000)\n"
        "out = NONCE if syscall(NR['personality'], 0xFFFFFFFF) & 0x40000 else ''"),
    _kernel("x32", "call by the numbers of the x32 architecture",
            _NATIVE.format(code="b827000040" "0f05" "c3"), needs=("x32",)),
    _kernel("int80", "call by the numbers of the 32-bit architecture",
            _NATIVE.format(code="53" "b814000000" "cd80" "5b" "c3"), needs=("int80",)),
    _kernel("shared-memory", "share System V memory with other programs",
        "syscall.__globals__['libc'].shmat.restype = ctypes.c_void_p\n"
        "part = syscall(NR['shmget'], 0, 4096, 0o1600)\nplace = libc.shmat(part, None, 0)\n"
        "ctypes.memmove(place, NONCE.encode(), 24)\nout = ctypes.string_at(place, 24)\n"
        "libc.shmctl(part, 0, None)"),
    _kernel("message-queue", "send by System V queues",
        "line = syscall(NR['msgget'], 0, 0o1600)\n"
        "syscall(NR['msgsnd'], line, struct.pack('q', 1) + NONCE.encode(), 24, 0)\n"
        "room = ctypes.create_string_buffer(64)\nsyscall(NR['msgrcv'], line, room, 56, 0, 0)\n"
        "out = room.raw[8:]\nlibc.msgctl(line, 0, None)"),
    _kernel("posix-queue", "make a POSIX queue that other programs see",
            "fd = syscall(NR['mq_open'], TOKEN.encode(), os.O_CREAT | os.O_RDWR, 0o600, None)\nout = NONCE\n"
            "raw(241, TOKEN.encode())", needs=("mqueue",)),
    _kernel("log", "read the kernel's log",
            "room = ctypes.create_string_buffer(999)\nout = NONCE if syscall(NR['syslog'], 3, room, 999) >= 0 else ''",
            needs=("kernel log",)),
    _kernel("ptrace-me", "have a child traced",
        "pid = os.fork()\nif pid == 0:\n    os._exit(7 if libc.ptrace(0, 0, None, None) == 0 else 1)\n"
        "out = NONCE if os.waitpid(pid, 0)[1] == 7 << 8 else ''"),
    _kernel("tun", "open the device for tunnels", "os.open('/dev/net/tun', os.O_RDWR)\nout = NONCE",
        "mount namespace", LANDLOCK, needs=("tun",)),
    _kernel("kvm", "open the device for virtual machines",
        "out = NONCE if fcntl.ioctl(os.open('/dev/kvm', os.O_RDWR), 0xAE00) == 12 else ''", "mount namespace",
        LANDLOCK, needs=("kvm",)),
    _kernel("terminals", "make new terminals", "out = NONCE if os.openpty() else ''", "mount namespace", LANDLOCK),
    _kernel("exec-temporary", "run a program written to the temporary folder",
        "import tempfile\npath = tempfile.mkdtemp() + '/tool'\n"
        "fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o755)\nos.write(fd, read('/bin/echo'))\n"
        "os.close(fd)\nout = subprocess.run([path, NONCE], capture_output=True).stdout",
        "noexec mount, Landlock", LANDLOCK),
    _kernel("exec-workspace", "run a program written to the workspace",
            "fd = os.open('tool', os.O_CREAT | os.O_WRONLY, 0o755)\nos.write(fd, read('/bin/echo'))\nos.close(fd)\n"
            "out = subprocess.run(['./tool', NONCE], capture_output=True).stdout", "noexec mount, Landlock", LANDLOCK),
    _kernel("exec-by-loader", "have the dynamic loader run it",
        "fd = os.open('tool', os.O_CREAT | os.O_WRONLY, 0o755)\nos.write(fd, read('/bin/echo'))\n"
        "os.close(fd)\nout = subprocess.run(['/lib64/ld-linux-x86-64.so.2', './tool', NONCE], "
        "capture_output=True).stdout",
        "noexec mount",
        Open("Landlock checks the call that runs programs, not the mapping of code; a cell has machine code anyway"),
        needs=("glibc loader",)),
    _kernel("exec-mapped", "map code from a file in the workspace",
        "open('code', 'wb').write(bytes.fromhex('b807000000c3').ljust(4096, bytes(1)))\n"
        "fd = os.open('code', os.O_RDONLY)\n"
        "view = mmap.mmap(fd, 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE "
        "| mmap.PROT_EXEC)\nplace = ctypes.addressof(ctypes.c_char.from_buffer(view))\n"
        "out = NONCE if ctypes.CFUNCTYPE(ctypes.c_int)(place)() == 7 else ''",
        "noexec mount",
        Open("Landlock checks the call that runs programs, not the mapping of code; a cell has machine code anyway")),
]
