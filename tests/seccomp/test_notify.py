"""Told refusals: the program that notifies, who answers, and what happens when nobody does."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel import linux
from sandbox_kernel.confine.seccomp import load_filter
from sandbox_kernel.seccomp import notify
from sandbox_kernel.seccomp import table as seccomp_table
from sandbox_kernel.seccomp.program import compile_filter, silent, told_numbers
from sandbox_kernel.session.denials import Denials
from tests.confined_child import DESCRIPTORS, attempt
from tests.launch.test_launch import LEVELS, ROOT, UIDS, Front, _front
from tests.seccomp.test_program import ARCH as ARCHES
from tests.seccomp.test_program import LEVELS as FILTERS
from tests.seccomp.test_program import MACHINES, NEWEST, WORK, WORK_AT_FULL, names_of, run_bpf
from tests.waiting import wait_for

NOTIFY = 0x7FC00000 | errno.EPERM
REFUSE = 0x00050000 | errno.EPERM
TOLD = {name for names in seccomp_table.TOLD.values() for name in names.split()}
CLOEXEC, NONBLOCK = 0o2000000, 0o4000
FULL, LOCAL = ("full", 7), ("seccomp+landlock", 7)


def told(level: str = "full", abi: int = 7, machine: str = linux.MACHINE) -> bytes:
    return compile_filter(level=level, landlock_abi=abi, machine=machine, told=True)


# -- the program ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("level", "abi"), FILTERS)
def test_a_notifying_program_differs_from_a_silent_one_in_told_refusals_only(
    level: str, abi: int, machine: str
) -> None:
    loud = told(level, abi, machine)
    quiet = compile_filter(level=level, landlock_abi=abi, machine=machine)
    assert silent(loud) == quiet == silent(quiet)
    names = names_of(machine)
    notifying = set()
    for number in range(NEWEST + 51):
        # 2 in the first argument refuses a socket, all bits set refuse a clone.
        for arguments in ((), (2, CLOEXEC | 1, 6), (0xFFFFFFFF, 1)):
            was, now = (run_bpf(p, number, arguments, ARCHES[machine]) for p in (quiet, loud))
            if was != now:
                assert (was, now) == (REFUSE, NOTIFY)
                notifying.add(names[number])
    refused = {n for n, v in seccomp_table.table(level, abi)[0].items() if v is not None}
    refused |= {check.call for check in seccomp_table.table(level, abi)[1] if check.told}
    assert notifying == TOLD & refused & set(names.values())
    assert TOLD - refused == ({"bind", "connect"} if level == "full" else set())


def test_told_refusals_are_all_permission_errors() -> None:
    """There is one answer to them, so no other errno may be promised."""
    for level, abi in FILTERS:
        verdicts, checks = seccomp_table.table(level, abi)
        assert {verdicts.get(name) for name in TOLD} <= {None, errno.EPERM}
        assert {check.refusal for check in checks if check.told} == {errno.EPERM}


SOCKETS: list[tuple[tuple[int, int, int], tuple[str, int], str]] = [
    ((2, CLOEXEC | 1, 6), FULL, "told"),
    ((2, CLOEXEC | 1, 0), LOCAL, "told"),
    ((2, 1, 0), FULL, "told"),
    ((2, CLOEXEC | 2, 0), FULL, "told"),  # Python's own
    ((2, CLOEXEC | NONBLOCK | 2, 0), FULL, "told"),  # the C library asks for an address
    ((2, 2, 0), FULL, "quiet"),  # libuuid and psutil look at the interfaces
    ((2 + (1 << 32), 2 + (1 << 32), 0), LOCAL, "quiet"),
    ((10, CLOEXEC | 1, 6), FULL, "told"),
    ((10, CLOEXEC | 1, 0), FULL, "quiet"),  # urllib3 when it is imported
    ((16, CLOEXEC | 3, 0), FULL, "quiet"),
    ((16, CLOEXEC | 3, 0), LOCAL, "quiet"),
    ((17, 3, 0), FULL, "told"),
    ((40, CLOEXEC | 1, 0), LOCAL, "told"),
    ((1, CLOEXEC | 1, 0), FULL, "allowed"),
    ((1, CLOEXEC | 1, 0), LOCAL, "told"),
    ((1, CLOEXEC | NONBLOCK | 1, 0), LOCAL, "quiet"),  # the C library asks for an account
    ((1, 1, 0), LOCAL, "quiet"),  # libuuid
    ((1, CLOEXEC | 2, 0), LOCAL, "quiet"),  # if_nametoindex
]


@pytest.mark.parametrize(("arguments", "where", "wanted"), SOCKETS)
def test_sockets_that_are_made_unasked_are_refused_quietly(
    arguments: tuple[int, int, int], where: tuple[str, int], wanted: str
) -> None:
    number = next(n for n, name in names_of("x86_64").items() if name == "socket")
    action = run_bpf(told(*where, "x86_64"), number, arguments)
    assert action == {"told": NOTIFY, "quiet": REFUSE, "allowed": 0x7FFF0000}[wanted]


# -- a listener ----------------------------------------------------------------------------------------------


def _unshare() -> int:
    return linux.raw_syscall({"x86_64": 272, "aarch64": 97}[linux.MACHINE], 0)


def _inet() -> None:
    socket.socket(socket.AF_INET, socket.SOCK_STREAM).close()


def _memory_file() -> None:
    os.close(os.memfd_create("x"))


@pytest.mark.parametrize("act", [_unshare, _inet, _memory_file])
def test_a_listener_gives_the_refusal(act: Callable[[], Any]) -> None:
    assert attempt(act).succeeded
    mine, theirs = socket.socketpair()
    heard = []

    def answer() -> None:
        _, fds, _, _ = socket.recv_fds(mine, 1, 1)
        poll = select.poll()
        poll.register(fds[0], select.POLLIN)
        responder = notify.Responder()
        while poll.poll(5000) and (call := responder.receive(fds[0])):
            heard.append(call[1])
            responder.refuse(fds[0], call[0])
            break
        os.close(fds[0])

    thread = threading.Thread(target=answer)
    thread.start()
    program = told()

    def layer() -> None:
        listener = load_filter(program, listen=True)
        socket.send_fds(theirs, [b"x"], [listener])
        os.close(listener)

    outcome = attempt(act, layer)
    thread.join()
    assert outcome.errno == errno.EPERM
    assert [told_numbers()[number] for number in heard] == [
        {"_unshare": "unshare", "_inet": "socket", "_memory_file": "memfd_create"}[act.__name__]
    ]
    mine.close()
    theirs.close()


@pytest.mark.parametrize("act", [_unshare, _inet, _memory_file])
def test_without_its_listener_a_call_fails(act: Callable[[], Any]) -> None:
    program = told()
    assert attempt(act, lambda: os.close(load_filter(program, listen=True))).errno == errno.ENOSYS
    # The same program, with nobody who wants to listen.
    assert attempt(act, lambda: load_filter(program) and None).errno == errno.EPERM


def test_what_is_allowed_or_refused_quietly_needs_no_listener() -> None:
    program = told()

    def work() -> bool:
        os.close(load_filter(program, listen=True))
        one, other = socket.socketpair()
        one.send(b"x")
        try:
            linux.prctl(linux.PR_SET_DUMPABLE, 1)
        except OSError as error:
            return error.errno == errno.EPERM and other.recv(1) == b"x" and os.listdir("/") != []
        return False

    assert attempt(work).value is True


ALLOW_ALL = struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000)
SECCOMP = {"x86_64": 317, "aarch64": 277}[linux.MACHINE]
# seccomp(2) with any flag is invalid, as before Linux 5.0.
OLD_KERNEL = b"".join(
    struct.pack("=HBBI", *line)
    for line in ((0x20, 0, 0, 0), (0x15, 0, 3, SECCOMP), (0x20, 0, 0, 24), (0x15, 1, 0, 0),
                 (0x06, 0, 0, 0x00050000 | errno.EINVAL), (0x06, 0, 0, 0x7FFF0000))
)  # fmt: skip


@pytest.mark.parametrize("why", ["a listener of the container", "an old kernel"])
def test_where_there_can_be_no_listener_the_filter_refuses_by_itself(why: str) -> None:
    program = told()

    def work() -> tuple[int, int]:
        if why == "an old kernel":
            linux.seccomp_set_filter(OLD_KERNEL)
        else:
            assert linux.seccomp_set_filter(ALLOW_ALL, linux.SECCOMP_FILTER_FLAG_NEW_LISTENER) > 2
        listener = load_filter(program, listen=True)
        try:
            _unshare()
        except OSError as error:
            return listener, error.errno or 0
        return listener, 0

    assert attempt(work).value == (-1, errno.EPERM)


def test_no_second_listener_after_the_lockdown() -> None:
    """The newest one would decide, and could let everything through."""
    program = told()

    def more() -> int:
        os.close(load_filter(program, listen=True))
        return linux.seccomp_set_filter(ALLOW_ALL, linux.SECCOMP_FILTER_FLAG_NEW_LISTENER)

    assert attempt(more).errno == errno.EPERM


# -- in the sandbox ------------------------------------------------------------------------------------------


@pytest.fixture(
    scope="module", params=[(u, lv) for u in UIDS for lv in LEVELS], ids=lambda p: f"{p[0]}-{p[1]}"
)
def heard(request: pytest.FixtureRequest) -> Iterator[Front]:
    """A front that listens, with one worker."""
    with _front(*request.param, denials=True) as front:
        ready = front.start()
        assert ready.get("event") == "ready", ready
        front.worker()
        yield front


RAW = """
import ctypes
def raw(*numbers):
    if ctypes.CDLL(None, use_errno=True).syscall(*map(ctypes.c_long, numbers)) < 0:
        raise OSError(ctypes.get_errno(), "refused")
"""
CALLS = {
    "socket.socket(socket.AF_INET)": ["socket", "AF_INET", 1, "network", "network.mode"],
    "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)": ["socket", "AF_INET", 1, "network", "network.mode"],
    "socket.socket(socket.AF_INET6, socket.SOCK_STREAM, 6)": ["socket", "AF_INET6", 1, "network", "network.mode"],
    "socket.socketpair(type=socket.SOCK_DGRAM)":
        ["socketpair", "AF_UNIX SOCK_DGRAM", 1, "network", "isolation.level"],
    "os.setuid(12345)": ["setuid", "", 1, "identity", "isolation.level"],
    "os.memfd_create('x', 2)": ["memfd_create", "MFD_ALLOW_SEALING", 1, "memory files", "isolation.level"],
    "os.chroot('/')": ["chroot", "", 1, "mounts", "isolation.level"],
    "socket.sethostname('x')": ["sethostname", "", 1, "the machine", "isolation.level"],
}  # fmt: skip
RAW_CALLS = {
    "raw(272, 0x10000000 | 0x40000000)":
        ["unshare", "CLONE_NEWUSER CLONE_NEWNET", 1, "namespaces", "isolation.level"],
    "raw(56, 0x20000000 | 17, 0, 0, 0, 0)": ["clone", "CLONE_NEWPID", 1, "namespaces", "isolation.level"],
    "raw(308, 0, 0x10000000)": ["setns", "CLONE_NEWUSER", 1, "namespaces", "isolation.level"],
    "raw(101, 0, 0, 0, 0)": ["ptrace", "", 1, "other processes", "isolation.level"],
    "raw(310, 1, 0, 0, 0, 0, 0)": ["process_vm_readv", "", 1, "other processes", "isolation.level"],
    "raw(250, 9999)": ["keyctl", "", 1, "kernel interfaces", "isolation.level"],
    "raw(298, 0, 0, 0, 0, 0)": ["perf_event_open", "", 1, "kernel interfaces", "isolation.level"],
    "raw(165, 0, 0, 0, 0, 0)": ["mount", "", 1, "mounts", "isolation.level"],
}  # fmt: skip


@pytest.mark.parametrize("code", [*CALLS, *RAW_CALLS])
def test_a_refused_call_is_told(heard: Front, code: str) -> None:
    if code in RAW_CALLS and linux.MACHINE != "x86_64":
        pytest.skip("numbers of x86_64")
    heard("denials")
    assert heard.ask(RAW + code) == "EPERM"
    assert heard("denials") == [{**CALLS, **RAW_CALLS}[code]]
    assert heard("denials") == []


def test_children_and_threads_are_heard_too(heard: Front) -> None:
    heard("denials")
    code = """
import subprocess, sys, threading
def act():
    try: socket.socket(socket.AF_INET)
    except PermissionError: pass
threads = [threading.Thread(target=act) for _ in range(4)]
[t.start() for t in threads], [t.join() for t in threads]
subprocess.run([sys.executable, '-c', 'import socket; socket.socket(socket.AF_INET)'], stderr=-3)
act()
result = 1"""
    assert heard.ask(code) == 1
    assert heard("denials") == [["socket", "AF_INET", 6, "network", "network.mode"]]


def test_a_local_socket_is_told_where_it_is_refused(heard: Front) -> None:
    heard("denials")
    answer = heard.ask("socket.socket(socket.AF_UNIX)")
    if heard.level == "full":
        assert (answer, heard("denials")) == ("open", [])
    else:
        assert answer == "EPERM"
        assert heard("denials") == [["socket", "AF_UNIX", 1, "network", "isolation.level"]]


def test_the_probes_were_answered_and_not_counted() -> None:
    for level in LEVELS:
        with _front(os.geteuid(), level, denials=True) as front:
            ready = front.start()
            assert ready["event"] == "ready", ready
            tried = {p["tried"]: p["saw"] for p in ready["proofs"] if p["layer"] == "seccomp"}
            for name in ("socket(AF_INET)", "unshare(nothing)", "memfd_create", "ptrace", "keyctl"):
                assert tried[f"call {name}"] == "EPERM"
            assert front("denials") == []
            assert not any("not explained" in note for note in ready["details"]["notes"])


@pytest.mark.parametrize("level", LEVELS)
def test_imports_of_the_zygote_are_answered(level: str) -> None:
    """At level full they run under the filter, before the front has the listener."""
    code = "\n".join(["for _ in range(20):", " try: os.memfd_create('x')",
                      " except OSError as error: result = error.errno"])  # fmt: skip
    with _front(os.geteuid(), level, denials=True, prepare=code) as front:
        assert front.start()["event"] == "ready", front.ready
        front.worker()
        assert front.ask("result = PREPARED") == (errno.EPERM if level == "full" else "open")
        assert front("denials") == []


def test_worker_has_no_further_descriptor(heard: Front) -> None:
    assert heard.ask(DESCRIPTORS) == [0, 1, 2, 3]


@pytest.mark.skipif(not ROOT, reason="only root can see the descriptors of non-dumpable processes")
def test_the_listener_is_with_the_front_alone(heard: Front) -> None:
    def listeners(pid: int) -> int:
        links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()]
        return sum("seccomp" in link for link in links)

    assert listeners(heard.process.pid) == 1
    assert listeners(heard.ready["pid"]) == 0
    assert listeners(heard("host_pid", 1)) == 0


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("uid", UIDS)
def test_every_further_worker_is_heard_and_no_descriptor_stays(uid: int, level: str) -> None:
    with _front(uid, level, denials=True) as front:
        front.start()
        for number in range(1, 6):
            front.worker(number)
            assert front.ask("os.memfd_create('x', 2)", number) == "EPERM"
            assert [d[:3] for d in front("denials")] == [["memfd_create", "MFD_ALLOW_SEALING", 1]]
            assert front("kill", number)[0]["event"] == "exit"
            if number == 1:
                opened = front("descriptors")
            # Each worker leaves its channel and pidfd with this front; the listener is closed a moment later.
            wait_for(lambda allowed=opened + 2 * (number - 1): front("descriptors") <= allowed)


@pytest.mark.parametrize("level", LEVELS)
def test_when_nobody_listens_calls_fail_and_the_rest_works(level: str) -> None:
    with _front(os.geteuid(), level, denials=True) as front:
        front.start()
        front.worker()
        assert front.ask("os.memfd_create('x', 2)") == "EPERM"
        front("deaf")
        assert front.ask("os.memfd_create('x')") == "ENOSYS"
        assert front.ask("socket.socket(socket.AF_INET)") == "ENOSYS"
        assert front.ask("open('file', 'w').write('x'); result = open('file').read()") == "x"
        front.worker(2)
        assert front.ask("os.memfd_create('x')", 2) == "ENOSYS"


@pytest.mark.parametrize("level", LEVELS)
def test_a_front_that_does_not_listen_has_a_filter_that_refuses_by_itself(level: str) -> None:
    with _front(os.geteuid(), level) as front:
        front.start()
        front.worker()
        assert front.ask("os.memfd_create('x')") == "EPERM"


@pytest.mark.parametrize("level", LEVELS)
def test_a_container_with_a_listener_of_its_own_is_noted(level: str) -> None:
    before = f"""
from sandbox_kernel import linux
linux.set_no_new_privs()
linux.seccomp_set_filter({ALLOW_ALL!r}, linux.SECCOMP_FILTER_FLAG_NEW_LISTENER)"""
    with _front(os.geteuid(), level, denials=True, before=before) as front:
        ready = front.start()
        assert ready["event"] == "ready", ready
        assert any("not explained" in note for note in ready["details"]["notes"])
        front.worker()
        assert front.ask("os.memfd_create('x')") == "EPERM"
        assert front("denials") == []


# -- no false alarm ------------------------------------------------------------------------------------------

# In processes of their own: they start others, which import the script anew.
APART = ("fork pool", "spawn pool", "loky", "sklearn", *WORK_AT_FULL)
LOOKS = {
    "names": "import socket; socket.getfqdn(); socket.gethostbyname('localhost')",
    "interfaces": "import socket; socket.if_nameindex()",
    "accounts": "import pwd, os; pwd.getpwuid(0); os.path.expanduser('~root')",
    "interface": "import socket; socket.if_nametoindex('lo')",
    "uuid": "import uuid; uuid.uuid1(); uuid.getnode()",
    "requests": "import requests, urllib3, ssl, http.client, urllib.request",
    "psutil": "import psutil; psutil.net_if_addrs(); psutil.cpu_count(); psutil.virtual_memory()",
    "shell": "import subprocess; subprocess.run('ls -l /; id; df; mount; ps aux; uname -a; git --version; free; "
    "file /bin/ls; tar cf /dev/null /etc/hostname; xz -V', shell=True, stdout=-3, stderr=-3)",
    "pip": "import subprocess, sys; subprocess.run([sys.executable, '-m', 'pip', '--version'], stdout=-3, stderr=-3)",
    "uvloop": "import uvloop, asyncio as a; uvloop.run(a.sleep(0))",
    "shared memory": "from multiprocessing.shared_memory import SharedMemory as S; m = S(create=True, size=9); "
    "m.close(); m.unlink()",
    "ipython": "from IPython.core.interactiveshell import InteractiveShell as S; S.instance().run_cell('!echo 1')",
    "pyarrow": "import pyarrow.parquet as p, pyarrow, tempfile; "
    "p.write_table(pyarrow.table({'a': [1]}), tempfile.mkdtemp() + '/x')",
    "ctypes": "import ctypes; ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 1)()",
}


@pytest.mark.parametrize("where", [FULL, LOCAL], ids=lambda w: w[0])
@pytest.mark.parametrize("name", ["together", *APART])
def test_ordinary_work_raises_no_alarm(tmp_path: Path, name: str, where: tuple[str, int]) -> None:
    script = tmp_path / "work.py"
    if name == "together":
        together = {k: v for k, v in {**WORK, **LOOKS}.items() if k not in APART}
        if where != FULL:
            del together["interface"]  # without local sockets the C library tries AF_INET, as Python does for UDP
        script.write_text(
            f"import traceback\nfor name, code in {together!r}.items():\n"
            "    try: exec(code, {'__name__': 'work'})\n"
            "    except ModuleNotFoundError: pass\n"
            "    except Exception: print(name); traceback.print_exc(file=__import__('sys').stdout)\n"
        )
    elif name in WORK_AT_FULL and where != FULL:
        pytest.skip("needs sockets, which only the full level has")
    else:
        script.write_text({**WORK, **WORK_AT_FULL}[name])
    mine, theirs = socket.socketpair()
    program, denials = told(*where), Denials()

    def layer() -> None:
        linux.set_no_new_privs()
        listener = load_filter(program, listen=True)
        socket.send_fds(theirs, [b"x"], [listener])
        os.close(listener)

    def attach() -> None:
        _, fds, _, _ = socket.recv_fds(mine, 1, 1)
        denials.attach(fds[0])

    thread = threading.Thread(target=attach)
    thread.start()

    def work() -> str:
        with open(tmp_path / "log", "w+b") as log:
            subprocess.run([sys.executable, str(script)], stdout=log, stderr=log, timeout=55, check=False)
            log.seek(0)
            return log.read().decode()

    outcome = attempt(work, lambda: signal.alarm(58) and None, layer, ordinary=False)
    thread.join(5)
    assert denials.take() == [], outcome
    denials.close()
    mine.close()
    theirs.close()
