"""Reaching programs of this machine, and with them other machines."""

from __future__ import annotations

from ..attempt import MOUNTS, NETWORK, SECCOMP, Attempt, Open

_BOTH = f"{SECCOMP}, {NETWORK}"


def _reach(name: str, what: str, code: str, full: str | Open = _BOTH, **more: object) -> Attempt:
    return Attempt(f"net-{name}", what, code, full, SECCOMP, "arrived", **more)  # type: ignore[arg-type]


ATTEMPTS = [
    _reach("tcp", "send by TCP", "socket.create_connection(('127.0.0.1', TCP), 2).send(TOKEN.encode())"),
    _reach("tcp-any", "send to the address that means this machine",
           "socket.create_connection(('0.0.0.0', TCP), 2).send(TOKEN.encode())"),
    _reach("tcp6", "send by TCP over IPv6", "socket.create_connection(('::1', TCP6), 2).send(TOKEN.encode())",
        needs=("ipv6",)),
    _reach("tcp-mapped", "reach an IPv4 port by an IPv6 address",
           "socket.create_connection(('::ffff:127.0.0.1', TCP), 2).send(TOKEN.encode())", needs=("ipv6",)),
    _reach("tcp-fast-open", "send with the first packet, without a call to connect",
           "s = socket.socket()\ns.sendto(TOKEN.encode(), 0x20000000, ('127.0.0.1', TCP))"),
    _reach("mptcp", "connect by multipath TCP, which has a protocol number of its own",
           "s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)\ns.connect(('127.0.0.1', MPTCP))\n"
           "s.send(TOKEN.encode())", needs=("mptcp",)),
    _reach("udp", "send by UDP",
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(TOKEN.encode(), ('127.0.0.1', UDP))"),
    _reach("udp6", "send by UDP over IPv6",
           "socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(TOKEN.encode(), ('::1', UDP6))", needs=("ipv6",)),
    _reach("udp-connected", "connect a UDP socket first",
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.connect(('127.0.0.1', UDP))\n"
        "s.send(TOKEN.encode())"),
    _reach("program", "have a program do it",
        "subprocess.run([PYTHON, '-S', '-c', 'import socket, sys; "
        'socket.create_connection(("127.0.0.1", \'\n'
        "                'int(sys.argv[1])), 2).send(sys.argv[2].encode())', str(TCP), TOKEN], "
        "capture_output=True)"),
    _reach("raw", "send packets of an own protocol",
        "RAW\n"
        "socket.socket(socket.AF_INET, socket.SOCK_RAW, 253).sendto(TOKEN.encode(), ('127.0.0.1', 0))",
        needs=("root",)),
    _reach("netlink", "send to a program by netlink",
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 2).sendto(TOKEN.encode(), (NETLINK, 0))",
        needs=("netlink",)),
    _reach("abstract", "connect to an abstract socket",
        "s = socket.socket(socket.AF_UNIX)\ns.connect('\\0' + ABSTRACT.lstrip('\\0'))\n"
        "s.send(TOKEN.encode())",
        NETWORK),
    _reach("abstract-datagram", "send to an abstract datagram socket",
        "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(TOKEN.encode(), '\\0' + "
        "ABSTRACT_DGRAM.lstrip('\\0'))",
        NETWORK),
    _reach("path", "connect to a socket's path",
           "s = socket.socket(socket.AF_UNIX)\ns.connect(SOCKET)\ns.send(TOKEN.encode())", MOUNTS),
    _reach("path-datagram", "send to a datagram socket's path",
           "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(TOKEN.encode(), DGRAM)", MOUNTS),
    _reach("pair-to-path", "send to such a path from one end of a pair",
        "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(TOKEN.encode(), DGRAM)",
        f"{SECCOMP}, {MOUNTS}"),
    _reach("pair-to-abstract", "send to an abstract socket from one end of a pair",
        "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(TOKEN.encode(), '\\0' + "
        "ABSTRACT_DGRAM.lstrip('\\0'))",
        f"{SECCOMP}, {NETWORK}"),
    _reach("socket-in-workspace", "connect to a socket that a host program has in the workspace",
        "s = socket.socket(socket.AF_UNIX)\ns.connect('near')\ns.send(TOKEN.encode())\nNEAR",
        Open("the workspace is shown as it is, sockets of host programs included; multiprocessing needs such sockets")),
    _reach("terminal", "type into the terminal",
        "import termios\nfor c in TOKEN + '\\n': fcntl.ioctl(1, termios.TIOCSTI, c.encode())", SECCOMP,
        needs=("tiocsti",)),
    _reach("terminal-wide", "type into it by the call's number with a bit that the kernel drops",
        "for c in TOKEN + '\\n':\n"
        "    if libc.ioctl(1, ctypes.c_ulong(0x5412 | 1 << 32), c.encode()): raise "
        "OSError(ctypes.get_errno(), 'ioctl')",
        SECCOMP, needs=("tiocsti",)),
    Attempt("net-listen", "listen for connections from the machine",
            "s = socket.create_server(('127.0.0.1', 0))\ns.settimeout(1)\nout = s.getsockname()[1]", _BOTH, SECCOMP,
            after="socket.create_connection(('127.0.0.1', int(OUT)), 1).send(SECRET.encode())",
            then="out = s.accept()[0].recv(99)"),
    Attempt("net-listen-udp", "listen for datagrams",
            "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.bind(('127.0.0.1', 0))\ns.settimeout(1)\n"
            "out = s.getsockname()[1]", _BOTH, SECCOMP,
            after="socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(SECRET.encode(), ('127.0.0.1', int(OUT)))",
            then="out = s.recv(99)"),
    Attempt("net-listen-path", "listen in the workspace for host programs",
        "s = socket.socket(socket.AF_UNIX)\ns.bind('ear')\ns.listen()\ns.settimeout(1)",
        Open("the workspace is shown as it is; a host program that connects to a socket in it talks to the cells"),
        SECCOMP, after="s = socket.socket(socket.AF_UNIX)\ns.connect(WORKSPACE + '/ear')\ns.send(SECRET.encode())",
        then="out = s.accept()[0].recv(99)"),
    Attempt("net-interfaces", "list the machine's interfaces through any socket's descriptor",
            "room = ctypes.create_string_buffer(4096)\na, b = socket.socketpair()\n"
            "wish = struct.pack('iP', 4096, ctypes.addressof(room))\n"
            "fcntl.ioctl(a, 0x8912, wish)\nout = room.raw", SECCOMP, SECCOMP, proof="lo"),
    Attempt("net-route", "ask the kernel for its addresses by netlink",
            "s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)\n"
            "s.send(struct.pack('IHHIIB3x', 20, 22, 0x301, 1, 0, 0))\nout = s.recv(9999)", SECCOMP, SECCOMP, proof="lo",
            needs=("netlink",)),
    Attempt("net-crypto", "use the kernel's cryptography sockets",
        "import hashlib\ns = socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)\n"
        "s.bind(('hash', 'sha256'))\nop = s.accept()[0]\nop.send(NONCE.encode())\n"
        "out = NONCE if op.recv(64) == hashlib.sha256(NONCE.encode()).digest() else ''",
        SECCOMP, SECCOMP, proof="{NONCE}", needs=("alg",)),
    Attempt("net-vsock", "make a socket to the machine below",
        "socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)\nout = NONCE", SECCOMP, SECCOMP, proof="{NONCE}",
        needs=("vsock",)),
    Attempt("net-filter", "put a filter program on a socket",
        "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "program = struct.pack('HBBI', 6, 0, 0, 0)\nroom = ctypes.create_string_buffer(program)\n"
        "a.setsockopt(1, 26, struct.pack('HxxxxxxP', 1, ctypes.addressof(room)))\n"
        "a.setblocking(False)\nwith contextlib.suppress(OSError): b.send(b'x')\ntry: a.recv(9)\n"
        "except BlockingIOError: out = NONCE",
        SECCOMP, SECCOMP, proof="{NONCE}"),
]
