"""What /proc, /sys and the environment tell."""

from __future__ import annotations

from ..attempt import LANDLOCK, MOUNTS, PIDS, SECCOMP, Attempt, Open

_NUMBERS = Open("without a pid namespace every process number can be asked for; no more than its existence is told")
_OWN = "own environment of the plan"


def _proc(name: str, what: str, code: str, **more: object) -> Attempt:
    return Attempt(f"proc-{name}", what, code, PIDS, LANDLOCK, **more)  # type: ignore[arg-type]


ATTEMPTS = [
    _proc("environ", "read the environment of another process", "out = read(f'/proc/{SLEEPER}/environ')"),
    _proc("cmdline", "read its arguments", "out = read(f'/proc/{SLEEPER}/cmdline')"),
    _proc("scan", "look through the environments of all processes",
        "for n in os.listdir('/proc'):\n    if n.isdigit():\n"
        "        with contextlib.suppress(OSError):\n            out += ' '.join(v for v in "
        "read(f'/proc/{n}/environ').decode(errors='replace').split('\\0') if v[:4] == 'KEY=')\nSLEEPER"),
    _proc("memory", "read the memory of another process by its file",
          "file = open(f'/proc/{HOLDER}/mem', 'rb', 0)\nfile.seek(ADDRESS)\nout = file.read(24)", needs=("trace",)),
    _proc("descriptor", "open what another process has open", "out = open(f'/proc/{HOLDER}/fd/{HELD}').read()",
          needs=("trace",)),
    _proc("root", "go through another process's root folder", "out = read(f'/proc/{HOLDER}/root{FILE}')",
        needs=("trace",)),
    _proc("cwd", "go through another process's current folder",
          "out = read(f'/proc/{HOLDER}/cwd' + FILE)", needs=("trace",)),
    _proc("maps", "read where another process has its code", "out = read(f'/proc/{HOLDER}/maps')", proof="[heap]",
          needs=("trace",)),
    _proc("list", "list the processes of the machine", "out = os.listdir('/proc')\nVICTIM", proof="'{VICTIM}'"),
    _proc("front", "read the front's arguments", "out = read(f'/proc/{FRONT}/cmdline')", proof="stage"),
    _proc("tcp", "read which ports the machine listens on", "out = read('/proc/net/tcp')\nTCP", proof="{TCP:04X}"),
    _proc("tcp-self", "read them from the own entry", "out = read('/proc/self/net/tcp')\nTCP", proof="{TCP:04X}"),
    _proc("tcp-task", "read them from the own thread's entry",
          "out = read(f'/proc/self/task/{threading.get_native_id()}/net/tcp')\nTCP", proof="{TCP:04X}"),
    _proc("unix", "read which sockets the machine's programs have", "out = read('/proc/net/unix')\nSOCKET",
          proof="{SOCKET}"),
    _proc("front-environ", "read the environment of the front", "out = read(f'/proc/{FRONT}/environ')",
        proof="{ENVSECRET}"),
    Attempt("proc-parent-memory", "read the parent's memory",
            "file = open(f'/proc/{PARENT}/mem', 'rb', 0)\n"
            "span = read(f'/proc/{PARENT}/maps').split(b'-')[0]\nfile.seek(int(span, 16))\nout = file.read(4)",
            "not dumpable", LANDLOCK, proof="ELF", needs=("root",)),
    Attempt("proc-environ-own", "look for the launcher's secrets in the own environment",
            "out = str(dict(os.environ))\nwith contextlib.suppress(OSError): out += str(read('/proc/self/environ'))",
            _OWN, _OWN, proof="{ENVSECRET}"),
    Attempt("proc-environ-child", "look for them in the environment of a program",
            "out = subprocess.run(['env'], capture_output=True).stdout", _OWN, _OWN, proof="{ENVSECRET}"),
    Attempt("proc-mounts", "read where the machine has its mounts", "out = read('/proc/self/mountinfo')\nFOLDER",
            MOUNTS, Open("the own entry's mountinfo is granted, for psutil; it names the machine's mount points"),
            proof=" / /dev "),
    Attempt("proc-kallsyms", "read the addresses of the kernel",
        "line = read('/proc/kallsyms').splitlines()[5]\nout = line if int(line.split()[0], 16) else ''",
        "masked file", LANDLOCK, proof=" ", needs=("root",)),
    Attempt("proc-boot-arguments", "read the machine's boot arguments", "out = read('/proc/cmdline') and NONCE",
            "masked file", LANDLOCK, proof="{NONCE}"),
    Attempt("proc-keys", "list the kernel's keys",
        "out = read('/proc/keys') is not None and read('/proc/key-users') and NONCE", "masked file", LANDLOCK,
        proof="{NONCE}"),
    Attempt("proc-sysctl", "change a setting of the kernel",
            "with open('/proc/sys/net/ipv4/ip_default_ttl', 'w') as file: file.write('77')\n"
            "out = 'ttl ' + open('/proc/sys/net/ipv4/ip_default_ttl').read()",
            "read-only mount", LANDLOCK, proof="ttl 77", private=True),
    Attempt("sys-network", "read the names of network interfaces", "out = os.listdir('/sys/class/net')",
            MOUNTS, LANDLOCK, proof="'lo'"),
    Attempt("sys-block", "read the names of disks", "out = NONCE if os.listdir('/sys/block') else ''", MOUNTS, LANDLOCK,
            proof="{NONCE}"),
    Attempt("number-by-signal", "find a process number by signal 0",
        "try: os.kill(VICTIM, 0); out = NONCE\nexcept PermissionError: out = NONCE", PIDS, _NUMBERS, proof="{NONCE}"),
    Attempt("number-by-pidfd", "find one by opening it", "os.pidfd_open(VICTIM)\nout = NONCE", PIDS, _NUMBERS,
        proof="{NONCE}"),
    Attempt("number-by-group", "find one by asking for its group", "out = f'group {os.getpgid(VICTIM)}'", PIDS,
        _NUMBERS, proof="group {VICTIM}"),
    Attempt("number-by-nice", "find one by asking for its priority",
            "os.getpriority(os.PRIO_PROCESS, VICTIM)\nout = NONCE", PIDS, _NUMBERS, proof="{NONCE}"),
    Attempt("compare-processes", "compare what two processes share",
            "if raw(NR['kcmp'], VICTIM, FRONT, 2, 0, 0) >= 0: out = NONCE", f"{PIDS}, {SECCOMP}", SECCOMP,
            proof="{NONCE}", needs=("trace", "kcmp")),
]
