"""Reading and changing files that are not the notebook's."""

from __future__ import annotations

from ..attempt import LANDLOCK, MOUNTS, SECCOMP, Attempt, Open

_NAMES_OUTSIDE = Open("Landlock checks what is opened, not what is named: stat, readlink and access answer")
_HIDDEN = "a mount on top of it"


def _read(name: str, what: str, code: str, **more: object) -> Attempt:
    return Attempt(f"read-{name}", what, code, MOUNTS, LANDLOCK, **more)  # type: ignore[arg-type]


def _write(name: str, what: str, code: str, **more: object) -> Attempt:
    return Attempt(f"write-{name}", what, code, MOUNTS, LANDLOCK, "changed", **more)  # type: ignore[arg-type]


def _hidden(*arguments: object, **more: object) -> Attempt:
    return Attempt(*arguments, **more, stage="hidden")  # type: ignore[arg-type]


READS = [
    _read("path", "open a file by its path", "out = open(FILE).read()"),
    _read("relative", "open it by a path that climbs out of the workspace",
          "out = open(os.path.relpath(FILE, os.getcwd())).read()"),
    _read("from-root", "open it from a descriptor of /",
          "top = os.open('/', os.O_PATH | os.O_DIRECTORY)\n"
          "out = os.read(os.open(FILE[1:], os.O_RDONLY, dir_fd=top), 99)"),
    _read("after-chdir", "go to its folder and open it by name", "os.chdir(FOLDER)\nout = open('file').read()"),
    _read("proc-root", "open it through /proc/self/root", "out = open('/proc/self/root' + FILE).read()"),
    _read("proc-cwd", "open it through /proc/self/cwd and ..",
          "out = open('/proc/self/cwd/' + os.path.relpath(FILE, os.getcwd())).read()"),
    _read("parent-root", "open it through the root folder of the parent",
          "out = open(f'/proc/{PARENT}/root' + FILE).read()"),
    _read("native", "open it in C, past Python's own functions",
          "fd = libc.open(FILE.encode(), 0)\nroom = ctypes.create_string_buffer(99)\n"
          "libc.read(fd, room, 98)\nout = room.value"),
    _read("openat2", "open it by the newest of the calls that open",
          "how = struct.pack('3Q', os.O_RDONLY, 0, 0)\n"
          "out = os.read(syscall(NR['openat2'], -100, FILE.encode(), how, len(how)), 99)"),
    _read("program", "let a program read it", "out = subprocess.run(['cat', FILE], capture_output=True).stdout"),
    _read("execute-it", "hand it to the shell as a script, whose complaint tells the text",
          "out = subprocess.run(['sh', FILE], capture_output=True).stderr"),
    _read("source-it", "have the shell take its commands from it",
          "out = subprocess.run(['sh', '-c', '. ' + FILE], capture_output=True).stderr"),
    _read("database", "attach it as a database",
          "base = sqlite3.connect(':memory:')\nbase.execute('attach ? as b', (DATABASE,))\n"
          "out = base.execute('select v from b.t').fetchone()[0]"),
    _read("import", "import a module that lies outside",
          "sys.path.insert(0, FOLDER)\nsys.modules.pop('attack_module', None)\nsys.dont_write_bytecode = True\n"
          "import importlib\nimportlib.invalidate_caches()\n"
          "try:\n    import attack_module\n    out = attack_module.value\nfinally:\n    sys.path.remove(FOLDER)"),
    _read("listing", "list a folder", "out = os.listdir(FOLDER + '/dir')"),
    _read("temp-listing", "list the folder for temporary files of everybody",
          "out = [name for name in os.listdir(TEMP) if name.startswith('attacks-')]  # what is told has a limit"),
    _read("attribute", "read an extended attribute", "out = os.getxattr(FOLDER + '/noted', 'user.note')",
          needs=("extended attributes",)),
    _read("shm", "read the shared memory of another program", "out = open(SHM).read()"),
    _read("watch", "watch a folder and learn the names that appear in it",
        "eye = libc.inotify_init1(os.O_NONBLOCK)\n"
        "if libc.inotify_add_watch(eye, (FOLDER + '/dir').encode(), 0x100) < 0: raise "
        "OSError(ctypes.get_errno(), 'x')",
        after="open(FOLDER + '/dir/new-' + SECRET, 'w').close()", then="out = os.read(eye, 4096)"),
    _read("watch-fanotify", "watch a folder by fanotify",
          "eye = syscall(NR['fanotify_init'], 0xE02, 0)\n"
          "syscall(NR['fanotify_mark'], eye, 1, ctypes.c_uint64(0x100), -100, (FOLDER + '/dir').encode())",
          after="open(FOLDER + '/dir/new-' + SECRET, 'w').close()", then="out = os.read(eye, 4096)",
          needs=("fanotify",)),
    _read("handle", "open it by its number on the file system",
          "room = ctypes.create_string_buffer(struct.pack('Ii', 120, 0) + bytes(120), 128)\nmount = ctypes.c_int()\n"
          "syscall(NR['name_to_handle_at'], -100, FILE.encode(), room, ctypes.byref(mount), 0)\n"
          "near = os.open(os.path.dirname(WORKSPACE), os.O_RDONLY)\n"
          "out = os.read(syscall(NR['open_by_handle_at'], near, room, os.O_RDONLY), 99)", needs=("root",)),
    Attempt("read-inherited-file", "read from a descriptor that the launcher left open",
            "for fd in range(3, 64):\n    with contextlib.suppress(OSError): out += os.pread(fd, 99, 0).decode()",
            "closing of descriptors", "closing of descriptors"),
    Attempt("read-inherited-folder", "climb from a folder that the launcher left open",
            "for fd in range(3, 64):\n    with contextlib.suppress(OSError):\n"
            "        out += os.read(os.open('file', os.O_RDONLY, dir_fd=fd), 99).decode()",
            "closing of descriptors", "closing of descriptors"),
    Attempt("link-text", "read where a link outside leads to", "out = os.readlink(FOLDER + '/link')",
            MOUNTS, _NAMES_OUTSIDE),
    Attempt("size-outside", "ask for the size of a file", "out = os.stat(FOLDER + '/sized').st_size",
            MOUNTS, _NAMES_OUTSIDE, proof="{SIZE}"),
    Attempt("name-outside", "ask whether a name exists", "out = NONCE if os.path.exists(FILE) else 'no'",
            MOUNTS, _NAMES_OUTSIDE, proof="{NONCE}"),
    Attempt("host-name", "ask for the machine's name", "out = socket.gethostname()", "uts namespace",
            Open("the name is part of the kernel's own data; only a uts namespace gives another"), proof="{HOST}"),
]

# The runtime folder and a file in the workspace are on the list of hidden paths.
HIDDEN = [
    _hidden("hidden-file", "read a hidden file", "out = open('rc').read()", _HIDDEN, LANDLOCK),
    _hidden("hidden-folder", "read a file in a hidden folder", "out = open('sub/runtime/kernel.json').read()",
            _HIDDEN, LANDLOCK),
    _hidden("hidden-listing", "list a hidden folder", "out = os.listdir('sub/runtime')", _HIDDEN,
        Open("Landlock rules only add: the right to list the workspace is one to list all below it, contents excepted"),
        proof="kernel.json"),
    _hidden("hidden-moved", "move a hidden file to a name that is not hidden",
            "os.rename('rc', 'rc-moved')\ntry: out = open('rc-moved').read()\nfinally: os.rename('rc-moved', 'rc')",
            _HIDDEN, LANDLOCK),
    _hidden("hidden-linked", "give a hidden file a second name",
        "os.link('rc', 'rc-linked')\nout = open('rc-linked').read()", _HIDDEN, LANDLOCK),
    _hidden("hidden-through-folder", "read it through a descriptor of the folder above",
            "above = os.open('sub', os.O_RDONLY)\n"
            "out = os.read(os.open('runtime/kernel.json', os.O_RDONLY, dir_fd=above), 99)", _HIDDEN, LANDLOCK),
    _hidden("hidden-parent-moved",
        "move the folder above a hidden one, so that the next secret is written beside it",
        "os.rename('sub', 'sub-moved')\nos.makedirs('sub/runtime')", "a mount on each folder above it", LANDLOCK,
        after="open(WORKSPACE + '/sub/runtime/next.json', 'w').write(SECRET)",
        then=("try: out = open('sub/runtime/next.json').read()\nfinally:\n    import shutil\n"
        "    if os.path.exists('sub-moved'):\n        shutil.rmtree('sub')\n"
        "        os.rename('sub-moved', 'sub')")),
    _hidden("hidden-replaced", "wait until a host program replaces a hidden file", "",
        Open("the mount that hides a file goes when a host program puts another in its place; hide its folder"),
        LANDLOCK,
        after=("open(WORKSPACE + '/rc.new', 'w').write(SECRET)\n"
        "os.replace(WORKSPACE + '/rc.new', WORKSPACE + '/rc')"),
        then="out = open('rc').read()"),
]

WRITES = [
    _write("append", "append to a file", "open(FILE, 'a').write('x')"),
    _write("create", "make a file", "open(FOLDER + '/new', 'w').close()"),
    _write("climb", "make one by a path that climbs out",
           "open(os.path.relpath(FOLDER + '/new', os.getcwd()), 'w').close()"),
    _write("truncate", "truncate one by its path", "os.truncate(FILE, 1)"),
    _write("truncate-read-only", "empty one by opening it for reading",
           "os.open(FILE, os.O_RDONLY | os.O_TRUNC)"),
    _write("unlink", "remove one", "os.unlink(FILE)"),
    _write("rename-in", "move one into the workspace", "os.rename(FILE, 'mine')"),
    _write("rename-over", "move a file of the workspace over it", "open('mine', 'w').close()\nos.rename('mine', FILE)"),
    _write("exchange", "exchange it with a file of the workspace",
           "open('mine', 'w').close()\nsyscall(NR['renameat2'], -100, b'mine', -100, FILE.encode(), 2)"),
    _write("mkdir", "make a folder", "os.mkdir(FOLDER + '/new')"),
    _write("rmdir", "remove a folder's content and it", "os.unlink(FOLDER + '/dir/' + os.listdir(FOLDER + '/dir')[0])\n"
           "os.rmdir(FOLDER + '/dir')"),
    _write("symlink", "make a link", "os.symlink('/', FOLDER + '/new')"),
    _write("hard-link", "give a file of the workspace a name outside",
           "open('mine', 'w').close()\nos.link('mine', FOLDER + '/new')"),
    _write("fifo", "make a FIFO", "os.mkfifo(FOLDER + '/new')"),
    _write("socket", "make a socket", "socket.socket(socket.AF_UNIX).bind(FOLDER + '/new')"),
    _write("unnamed", "make a file without a name, then name it",
        "fd = os.open(FOLDER, os.O_TMPFILE | os.O_RDWR)\n"
        "libc.linkat(-100, f'/proc/self/fd/{fd}'.encode(), -100, (FOLDER + '/new').encode(), 0x400)"),
    _write("shm", "leave a file in the machine's shared memory", "open(SHM + '-2', 'w').close()"),
    _write("read-only-data", "write a file that the policy grants for reading", "open(DATA + '/file', 'a').write('x')"),
    _write("reopened-data", "open such a file for reading, then anew for writing",
           "fd = os.open(DATA + '/file', os.O_RDONLY)\n"
           "os.write(os.open(f'/proc/self/fd/{fd}', os.O_WRONLY | os.O_APPEND), b'x')"),
    _write("mode", "change a file's mode", "os.chmod(FILE, 0o600)"),
    _write("mode-newest", "change it by the newest call", "syscall(NR['fchmodat2'], -100, FILE.encode(), 0o600, 0)",
           needs=("fchmodat2",)),
    _write("times", "change a file's times", "os.utime(FILE, (1, 1))"),
    _write("attribute", "set an extended attribute", "os.setxattr(FILE, 'user.x', b'x')",
           needs=("extended attributes",)),
    Attempt("write-mode-of-readable", "change the mode of a file that may be read, by its descriptor",
            "os.fchmod(os.open(DATA + '/file', os.O_RDONLY), 0o600)", "read-only mount", SECCOMP, "changed"),
    Attempt("write-times-of-readable", "change its times by the descriptor",
            "os.utime(os.open(DATA + '/file', os.O_RDONLY), (1, 1))", "read-only mount", SECCOMP, "changed"),
    Attempt("write-owner-of-readable", "set its owner to what it is, which takes a program its set-id bits",
            "os.fchown(os.open(DATA + '/file', os.O_RDONLY), -1, -1)", "read-only mount", SECCOMP, "changed"),
    Attempt("write-attribute-of-readable", "set an attribute on it by the descriptor",
            "os.setxattr(os.open(DATA + '/file', os.O_RDONLY), 'user.x', b'x')", "read-only mount", SECCOMP, "changed",
            needs=("extended attributes",)),
]

WAITING = [
    Attempt("lease-on-readable", "take a lease on a readable file, so that whoever opens it waits",
            "signal.signal(signal.SIGIO, signal.SIG_IGN)\nkept = os.open(DATA + '/file', os.O_RDONLY)\n"
            "fcntl.fcntl(kept, fcntl.F_SETLEASE, fcntl.F_WRLCK)", SECCOMP, SECCOMP, "blocked"),
    Attempt("lease-on-notebook", "take a lease on the notebook, so that Jupyter waits when it saves",
            "signal.signal(signal.SIGIO, signal.SIG_IGN)\nkept = os.open('notebook.ipynb', os.O_RDONLY)\n"
            "fcntl.fcntl(kept, fcntl.F_SETLEASE, fcntl.F_RDLCK)", SECCOMP, SECCOMP, "blocked"),
    Attempt("lock-on-readable", "lock a readable file against programs that ask for the lock",
            "kept = os.open(DATA + '/file', os.O_RDONLY)\nfcntl.flock(kept, fcntl.LOCK_EX | fcntl.LOCK_NB)",
            Open("flock needs no right to write, and no layer sees it; programs that lock should lock files of theirs"),
            Open("flock needs no right to write, and no layer sees it; programs that lock should lock files of theirs"),
            "locked"),
]

ATTEMPTS = [*READS, *HIDDEN, *WRITES, *WAITING]
