"""The sandbox as a whole, by effect: attempts in a worker, and the same attempts without any layer."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.confined_child import DESCRIPTORS, NO_NAMESPACES
from tests.waiting import wait_for

HERE = Path(__file__).parent
ROOT = os.geteuid() == 0
ORDINARY = 1000 if ROOT else os.geteuid()
UIDS = [0, ORDINARY] if ROOT else [ORDINARY]
LEVELS = ["full", "seccomp+landlock"]
SMALL = {"limits": {"processes": 30, "memory": "300MiB", "tmp": "8MiB", "home": "4MiB", "shm": "4MiB"}}


def _interpreter(uid: int) -> str:
    """One that the uid can reach: this one, or the system's of the same version."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    for python in (sys.executable, f"/usr/bin/python{version}"):
        real = Path(python).resolve()
        if uid == os.geteuid() or (
            real.exists() and all(p.stat().st_mode & 1 for p in (real, *real.parents))
        ):
            return python
    pytest.skip(f"no Python {version} that uid {uid} may run")


class Front:
    """A front in another process, see front_process.py."""

    def __init__(
        self, uid: int, level: str, workspace: Path, policy: Any = SMALL, group: int | None = None, **options: Any
    ) -> None:
        tables = {**policy, "isolation": {"level": level}}
        options = {"policy": tables, "workspace": str(workspace), "hidden": (), **options}
        paths = [str(HERE.parents[1]), str(Path(msgspec.__file__).parents[1])]
        groups = (uid, []) if group is None else (group, [group])
        change: dict[str, Any] = (
            {} if uid == os.geteuid() else {"user": uid, "group": groups[0], "extra_groups": groups[1]}
        )
        self.process = subprocess.Popen(
            [_interpreter(uid), "-P", str(HERE / "front_process.py"), json.dumps(options)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/",
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(paths), "HOME": "/nonexistent"}, **change,
        )  # fmt: skip
        self.uid, self.level, self.workspace = uid, level, workspace
        self.ready: Any = None

    def __call__(self, command: str, *arguments: Any) -> Any:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps([command, arguments]) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def start(self) -> Any:
        self.ready = self("start")
        return self.ready

    def worker(self, number: int = 1) -> Any:
        (event,) = self("fork", number)
        assert event["event"] == "forked", event
        return event

    def ask(self, code: str, number: int = 1, **names: Any) -> Any:
        return self("ask", number, code, names)

    def end(self) -> None:
        if self.process.poll() is None:
            with contextlib.suppress(BrokenPipeError, ValueError):
                self("close")
            self.process.kill()
        self.process.communicate()


@contextlib.contextmanager
def _front(uid: int, level: str, **options: Any) -> Iterator[Front]:
    """A started front with a workspace that belongs to its uid."""
    folder = Path(tempfile.mkdtemp(prefix="confine-"))
    folder.chmod(0o755)
    workspace = folder / "work space\u00e9"
    workspace.mkdir()
    os.chown(workspace, options.pop("owner", uid), -1)
    front = Front(uid, level, workspace, **options)
    try:
        yield front
    finally:
        front.end()
        shutil.rmtree(folder)


@pytest.fixture(
    scope="module", params=[(u, lv) for u in UIDS for lv in LEVELS], ids=lambda p: f"{p[0]}-{p[1]}"
)
def running(request: pytest.FixtureRequest) -> Iterator[Front]:
    """One front with one worker, for attempts that leave it alive."""
    with _front(*request.param) as front:
        ready = front.start()
        assert ready.get("event") == "ready", ready
        front.worker()
        yield front


@pytest.fixture(scope="module")
def outside() -> Iterator[dict[str, Any]]:
    """Things of the host that every uid may use by their modes: a file, a folder, sockets."""
    folder = Path(tempfile.mkdtemp(prefix="outside-"))
    folder.chmod(0o777)
    secret = folder / "secret"
    secret.write_text("secret")
    tcp = socket.create_server(("127.0.0.1", 0))
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    abstract = f"confine-{os.getpid()}"
    named = socket.socket(socket.AF_UNIX)
    named.bind("\0" + abstract)
    named.listen()
    pathname = socket.socket(socket.AF_UNIX)
    pathname.bind(str(folder / "socket"))
    pathname.listen()
    datagram = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    datagram.bind(str(folder / "datagram"))
    for path in folder.iterdir():
        path.chmod(0o666)
    yield {
        "SECRET": str(secret), "FOLDER": str(folder),
        "TCP": tcp.getsockname()[1], "UDP": udp.getsockname()[1],
        "ABSTRACT": abstract, "SOCKET": str(folder / "socket"), "DATAGRAM": str(folder / "datagram"),
    }  # fmt: skip
    for one in (tcp, udp, named, pathname, datagram):
        one.close()
    shutil.rmtree(folder)


# Each raises OSError or ends with result "refused" where the sandbox holds, and is "open" without it.
ATTEMPTS = {
    "read a file outside": "open(SECRET).read()",
    "write a file outside": "open(SECRET, 'a').write('x')",
    "make a file outside": "open(FOLDER + '/new' + str(os.getpid()), 'x')",
    "truncate a file outside": "os.truncate(SECRET, 6)",
    "change a mode outside": """
target = FOLDER + '/mode' + str(os.getuid())
before = os.stat(target).st_mode
os.chmod(target, before ^ 0o100)
result = 'refused' if os.stat(target).st_mode == before else 'open'
os.chmod(target, before)""",
    "list a folder outside": "os.listdir(FOLDER)",
    "follow a link out of the workspace": """
os.path.lexists(WORKSPACE + '/link') or os.symlink(SECRET, WORKSPACE + '/link')
open(WORKSPACE + '/link').read()""",
    "connect by TCP": "socket.create_connection(('127.0.0.1', TCP), 2)",
    "send by UDP": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', UDP))",
    "connect to an abstract socket": "socket.socket(socket.AF_UNIX).connect('\\0' + ABSTRACT)",
    "connect to a socket's path": "socket.socket(socket.AF_UNIX).connect(SOCKET)",
    "send to a socket's path by a pair": """
socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b'x', DATAGRAM)""",
    "make a netlink socket": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "see the front in /proc": "result = 'open' if str(FRONT) in os.listdir('/proc') else 'refused'",
    "read the front's environment": "open(f'/proc/{FRONT}/environ', 'rb').read()",
    "ask whether the front lives": "os.kill(FRONT, 0)",
    "stop a process of the same user": "os.kill(VICTIM, 15)",
    "enter a user namespace": """
import ctypes
if ctypes.CDLL(None, use_errno=True).unshare(0x10000000): raise OSError(ctypes.get_errno(), 'unshare')""",
    "execute a file written to the temporary folder": """
import subprocess, tempfile
folder = tempfile.TemporaryDirectory()
path = folder.name + '/program'
fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o700)
os.write(fd, b'#!/bin/sh\\nexit 0\\n')
os.close(fd)
subprocess.run([path], check=True)""",
    "write where all may write": "open('/dev/shm/confine' + str(os.getpid()), 'w').close()",
}


@pytest.mark.parametrize("name", ATTEMPTS)
def test_attempt_is_refused_and_succeeds_without_layers(
    running: Front, outside: dict[str, Any], name: str
) -> None:
    mode = Path(outside["FOLDER"]) / f"mode{running.uid}"
    mode.touch()
    os.chown(mode, running.uid, -1)
    names = {**outside, "WORKSPACE": str(running.workspace), "FRONT": running.process.pid,
             "VICTIM": running("victim")}  # fmt: skip
    before = _tree(Path(outside["FOLDER"]))
    inside = running("ask", 1, ATTEMPTS[name], names)
    if name == "write where all may write":
        assert not [n for n in os.listdir("/dev/shm") if n.startswith("confine")]
        if running.level == "full":
            assert inside == "open"
            return
    assert inside != "open"
    assert _tree(Path(outside["FOLDER"])) == before
    assert running("lives", names["VICTIM"])
    assert running("plain", ATTEMPTS[name], names) == "open"
    for left in Path("/dev/shm").glob("confine*"):
        left.unlink()


def _tree(folder: Path) -> list[tuple[str, int, int]]:
    return sorted((p.name, p.stat().st_size, p.stat().st_mode) for p in folder.iterdir())


def test_signal_to_everybody_reaches_nobody_outside(running: Front) -> None:
    victim = running("victim")
    with _front(running.uid, running.level) as other:
        other.start()
        other.worker()
        other.ask("signal.signal(10, signal.SIG_IGN); os.kill(-1, 10)")
    time.sleep(0.05)
    assert running("lives", victim)


SLOW_BUILDER = """
import time
from sandbox_kernel.confine import lockdown
enter = lockdown.enter
lockdown.enter = lambda plan, step, forked: enter(plan, step, lambda pid: (forked(pid), time.sleep(2.5)))
"""


def test_a_parent_that_ends_late_does_not_take_the_first_process_along() -> None:
    with _front(os.getuid(), "full", before=SLOW_BUILDER) as front:
        assert front.start()["event"] == "ready"
        time.sleep(0.7)
        front.worker()
        assert front.ask("result = 42") == 42


def test_ready_tells_what_was_done(running: Front) -> None:
    details = running.ready["details"]
    assert running.ready["level"] == running.level
    assert all(proof["ok"] for proof in running.ready["proofs"])
    assert len(running.ready["proofs"]) > 15
    assert details["landlock_abi"] >= 1
    assert details["uid"] == (0 if running.uid == 0 and running.level != "full" else details["uid"])
    if running.level == "full":
        assert details["uid"] != 0
        for name, inode in details["namespaces"].items():
            assert inode != os.stat(f"/proc/self/ns/{name}").st_ino
        assert details["notes"] == []
    else:
        assert any("namespaces" in note for note in details["notes"])
    # On a quiet machine it is about 20.
    assert sum(v for k, v in details["timings_ms"].items() if k not in ("prepare",)) < 4000


def test_no_capability_and_no_way_to_one(running: Front) -> None:
    code = "result = dict(line.split(':\\t') for line in open('/proc/self/status').read().splitlines())"
    status = running.ask(code)
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(status[name], 16) == 0, name
    if running.level == "full" or running.uid == 0:
        assert int(status["CapBnd"], 16) == 0
    assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2" and status["Threads"] == "1"
    if running.uid == 0:
        plain = running("plain", code, {})
        assert int(plain["CapEff"], 16) != 0


def test_workspace_is_written_as_its_owner(running: Front) -> None:
    running.ask(
        "os.makedirs('a/b', exist_ok=True); open('a/b/x', 'w').write('text'); os.rename('a/b/x', 'moved')"
    )
    workspace: Path = running.workspace
    assert (workspace / "moved").read_text() == "text"
    assert (workspace / "moved").stat().st_uid == running.uid == (workspace / "a").stat().st_uid
    assert running.ask("result = os.getcwd()") == str(workspace)
    assert running.ask("result = os.stat('moved').st_uid == os.getuid()") is True


def test_private_folders(running: Front) -> None:
    assert running.ask("import tempfile; result = tempfile.gettempdir() == os.environ['TMPDIR']") is True
    assert running.ask(
        "open(os.path.expanduser('~/x'), 'w').write('x'); result = os.listdir(os.environ['HOME'])"
    ) == ["x"]
    assert running.ask("result = sorted(os.listdir(os.environ['TMPDIR']))[:1] != ['x']") is True
    if running.level == "full":
        assert running.ask("result = os.environ['HOME'], os.environ['TMPDIR']") == ["/home/sandbox", "/tmp"]
        fill = "open({!r}, 'wb').write(bytes(9 << 20))"
        assert running.ask(fill.format("/tmp/big")) == "ENOSPC"
        assert running.ask(fill.format("/dev/shm/big")) == "ENOSPC"
        assert running.ask(fill.format("/home/sandbox/big")) == "ENOSPC"
        running.ask(
            "[os.unlink(p) for p in ('/tmp/big', '/dev/shm/big', '/home/sandbox/big') if os.path.exists(p)]"
        )


def test_account_and_names(running: Front) -> None:
    home = running.ask("result = os.environ['HOME']")
    assert running.ask("import getpass; result = getpass.getuser()") == "sandbox"
    if running.level == "full":
        assert running.ask("import pwd; e = pwd.getpwuid(os.getuid()); result = [e.pw_name, e.pw_dir]") == [
            "sandbox",
            home,
        ]
        assert running.ask("result = socket.gethostname()") == "sandbox"
        assert running.ask("result = socket.gethostbyname('localhost')") == "127.0.0.1"
        pids = running.ask("result = [int(n) for n in os.listdir('/proc') if n.isdigit()]")
        assert len(pids) == 2 and 1 in pids


def test_environment_is_the_plans(running: Front) -> None:
    names = set(running.ask("result = list(os.environ)"))
    assert names == {"PATH", "LANG", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR"}


def test_descriptors(running: Front) -> None:
    assert running.ask(DESCRIPTORS) == [0, 1, 2, 3]
    assert running.ask("result = os.read(0, 1).decode()") == ""
    assert running.ask("import fcntl; result = fcntl.fcntl(3, fcntl.F_GETFD)") == 1


def test_signals_are_as_in_a_fresh_process(running: Front) -> None:
    handled = running.ask("""
result = [int(s) for s in signal.valid_signals() if signal.getsignal(s) != signal.SIG_DFL]""")
    # Ignored: SIGHUP for want of a terminal, SIGINT until the entry decides, the others by Python itself.
    ignored = (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ)
    assert set(handled) == {int(s) for s in ignored}
    assert running.ask("result = os.getsid(0) == os.getpid()") is True


def test_usual_work_goes_on(running: Front) -> None:
    shell = "subprocess.run('echo hi | cat', shell=True, capture_output=True, text=True).stdout"
    assert running.ask(f"import subprocess; result = {shell}") == "hi\n"
    assert running.ask("import sys, subprocess; result = subprocess.run([sys.executable, '-c', 'print(1)'],"
                       " capture_output=True, text=True).stdout") == "1\n"  # fmt: skip
    assert (
        running.ask("import threading; t = threading.Thread(target=print); t.start(); t.join(); result = 1")
        == 1
    )
    assert (
        running.ask("open('/dev/null', 'w').write('x'); result = len(open('/dev/urandom', 'rb').read(8))")
        == 8
    )
    assert running.ask("result = os.cpu_count() > 0 and len(open('/proc/meminfo').read()) > 100") is True
    assert running.ask("import ssl, ctypes, sqlite3, zoneinfo; result = 1") == 1


def test_memory_limit(running: Front) -> None:
    assert running.ask("x = bytearray(400 << 20)").startswith("MemoryError")
    assert running("plain", "x = bytearray(400 << 20)", {}) == "open"


def test_what_counts_for_all_programs_of_the_user_is_bounded(running: Front) -> None:
    """Queued signals, and at full the instances of inotify: used up in the sandbox they would be missing outside."""
    queue = """
import ctypes, signal
libc = ctypes.CDLL(None)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
result = 0
while result < 2000 and libc.sigqueue(os.getpid(), int(signal.SIGRTMIN), None) == 0:
    result += 1
timed = signal.sigtimedwait
while timed([signal.SIGRTMIN], 0): pass"""
    watch = """
import ctypes
libc = ctypes.CDLL(None)
eyes = []
while len(eyes) < 40 and (eye := libc.inotify_init1(0)) >= 0:
    eyes.append(eye)
result = len(eyes)
for eye in eyes:
    os.close(eye)"""
    assert running.ask(queue) <= 1024
    assert running("plain", queue, {}) == 2000
    assert running.ask(watch) <= 32
    assert running("plain", watch, {}) == 40
    assert running.ask("import resource; result = list(resource.getrlimit(resource.RLIMIT_CORE))") in ([1, 1], [0, 0])


def test_process_limit(running: Front) -> None:
    bomb = """
pids = []
try:
    while len(pids) < 80:
        pid = os.fork()
        if pid == 0:
            time.sleep(30)
            os._exit(0)
        pids.append(pid)
except OSError: pass
for pid in pids:
    os.kill(pid, 9)
    os.waitpid(pid, 0)
result = len(pids)"""
    assert running("plain", bomb, {}) == 80
    count = running.ask(bomb)
    if running.ready["details"]["uid"] == 0:
        assert any("process limit" in note for note in running.ready["details"]["notes"])
    else:
        assert count < 40


def test_interpreter_and_system_cannot_be_written(running: Front) -> None:
    prefix = running.ask("import sys; result = sys.prefix")
    package = str(HERE.parents[1] / "sandbox_kernel")
    for place in (
        "/usr/new",
        "/etc/new",
        f"{prefix}/new",
        f"{package}/new",
        "/new",
        "/proc/sys/kernel/hostname",
    ):
        assert running.ask(f"open({place!r}, 'w')") != "open", place
        assert not os.path.exists(place) or place.startswith("/proc")


def test_second_worker_after_death_and_exit_reports() -> None:
    closed_ms = []
    for uid in UIDS:
        for level in LEVELS:
            with _front(uid, level) as front:
                front.start()
                first = front.worker(1)
                assert front.ask("result = os.getpid()") == first["pid"]
                assert front.ask("os._exit(7)") == "end of file"
                (event,) = front("events", 1)
                assert event["event"] == "exit" and os.waitstatus_to_exitcode(event["status"]) == 7
                front.worker(2)
                assert front.ask("result = 'again'", 2) == "again"
                (event,) = front("kill", 2)
                assert event["event"] == "exit" and os.waitstatus_to_exitcode(event["status"]) == -9
                for number, sent, code, wanted in (
                    (3, signal.SIGTERM, "1", -15),
                    (4, signal.SIGINT, "signal.signal(2, lambda *_: os._exit(5))", 5),
                ):
                    front.worker(number)
                    front.ask(code, number)
                    told = front("signal", number, int(sent), number == 4)
                    told += front("events", 2 - len(told))
                    assert [event["event"] for event in told] == ["signalled", "exit"]
                    assert os.waitstatus_to_exitcode(told[1]["status"]) == wanted
                closed_ms.append(front("close"))
    assert min(closed_ms) < 1000, "it ends by itself; after 2 s it would be killed"


# A daemon as hard to find as a user can make one: own session, double fork, all signals ignored.
DAEMON = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for s in range(1, 65):
            try: signal.signal(s, signal.SIG_IGN)
            except (OSError, ValueError): pass
        while True: time.sleep(1)
    os._exit(0)
while os.fork() == 0:
    time.sleep(60)
    os._exit(0)
time.sleep(0.1)
result = 'started'"""


def _members(token: str) -> list[int]:
    """Processes whose current folder is in the workspace named ``token``: the workers and all they start."""
    found = []
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit() and token in os.readlink(f"/proc/{name}/cwd"):
                found.append(int(name))
    return found


def _all_gone(token: str, within_s: float = 20.0) -> bool:
    deadline = time.monotonic() + within_s
    while _members(token):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@pytest.mark.skipif(not ROOT, reason="only root can see the folders of non-dumpable processes")
@pytest.mark.parametrize("how", ["front killed", "worker killed", "worker died", "link closed"])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("uid", UIDS)
def test_nothing_survives(uid: int, level: str, how: str) -> None:
    with _front(uid, level) as front:
        front.start()
        front.worker()
        token = str(front.workspace)
        assert front.ask(DAEMON) == "started"
        # A child that the front forks keeps its end of the control socket open.
        victim = front("victim")
        wait_for(lambda: len(_members(token)) >= 3)
        match how:
            case "front killed":
                front.process.send_signal(signal.SIGKILL)
                front.process.wait()
            case "worker killed":
                assert front("kill", 1)[0]["event"] == "exit"
            case "worker died":
                front.ask("os._exit(0)")
                assert front("events", 1)[0]["event"] == "exit"
            case "link closed":
                front("close")
        if how.startswith("worker"):
            # Only the zygote is left, and the report comes after the hunt.
            assert len(_members(token)) == 1
            front.worker(2)
            assert front.ask("result = 1", 2) == 1
        else:
            assert _all_gone(token)
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("uid", UIDS)
def test_fork_bomb_ends_with_the_front(uid: int, level: str) -> None:
    if uid == 0 and level != "full":
        pytest.skip("uid 0 has no process limit: a bomb would hit the machine")
    with _front(uid, level) as front:
        front.start()
        front.worker()
        token = str(front.workspace)
        assert front.process.stdin
        front.process.stdin.write(json.dumps(["ask", [1, """
while True:
    try:
        if os.fork() == 0: os.setsid()
    except OSError: pass""", {}]]) + "\n")  # fmt: skip
        front.process.stdin.flush()
        time.sleep(0.5)
        front.process.kill()
        front.process.wait()
        assert _all_gone(token, 40)


@pytest.mark.skipif(not ROOT, reason="only root can start a front with root's group")
@pytest.mark.parametrize("level", LEVELS)
def test_a_user_in_roots_group_has_a_sandbox(level: str) -> None:
    # Some platforms give containers an arbitrary uid and group 0. It cannot be left, and the worker gains nothing.
    with _front(1000620000, level, group=0) as front:
        ready = front.start()
        assert ready.get("event") == "ready" and ready["level"] == level, ready
        (proof,) = [p for p in ready["proofs"] if p["tried"] == "look for root's group"]
        assert proof["ok"] and "the user who started the kernel" in proof["saw"]
        front.worker()
        assert front.ask("open('here', 'w').close(); result = sorted({os.getgid(), *os.getgroups()})")[0] == 0


@pytest.mark.parametrize("uid", UIDS)
def test_without_user_namespaces_auto_falls_back_and_says_so(uid: int) -> None:
    refuse = {"unshare": errno.EPERM, "mount": errno.EPERM, "setns": errno.EPERM, "clone3": errno.ENOSYS}
    with _front(uid, "auto", refuse=refuse) as front:
        ready = front.start()
        assert ready["event"] == "ready" and ready["level"] == "seccomp+landlock"
        assert ready["failures"][0]["step"] == "unshare" and ready["failures"][0]["errno"] == errno.EPERM
        assert any(note.startswith("full ") and "unshare" in note for note in ready["details"]["notes"])
        front.worker()
        assert front.ask("result = 1 + 1") == 2
    with _front(uid, "full", refuse=refuse) as front:
        answer = front.start()
        assert "unshare" in answer["error"] and "user namespaces" in answer["advice"]


@pytest.mark.parametrize("uid", UIDS)
@pytest.mark.parametrize("level", LEVELS)
def test_without_landlock_neither_level_starts(uid: int, level: str) -> None:
    refuse = {f"landlock_{name}": errno.ENOSYS for name in ("create_ruleset", "add_rule", "restrict_self")}
    with _front(uid, level, refuse=refuse) as front:
        assert "landlock" in front.start()["error"].lower()


@pytest.mark.skipif(not ROOT, reason="needs root")
@pytest.mark.parametrize("call", ["mount_setattr", "open_tree", "move_mount", "pivot_root"])
def test_a_refused_mount_step_is_named_and_auto_goes_on(call: str) -> None:
    with _front(0, "auto", refuse={call: errno.EPERM}) as front:
        ready = front.start()
        assert ready["level"] == "seccomp+landlock"
        assert all(f["level"] == "full" and f["errno"] == errno.EPERM for f in ready["failures"])


@pytest.mark.skipif(not ROOT, reason="needs root")
@pytest.mark.parametrize("level", LEVELS)
def test_root_front_with_a_users_workspace(level: str) -> None:
    with _front(0, level, owner=ORDINARY) as front:
        ready = front.start()
        assert ready["event"] == "ready", ready
        front.worker()
        written = front.ask("open('file', 'w').write('x')")
        if ready["details"]["uid"] == 0:
            assert any("cannot be written" in note for note in ready["details"]["notes"])
        else:
            assert written == "open" and ready["details"]["uid"] == ORDINARY
            assert (front.workspace / "file").stat().st_uid == ORDINARY


@pytest.mark.parametrize("level", LEVELS)
def test_hidden_and_protected_inside_the_workspace(level: str) -> None:
    with _front(os.geteuid(), level) as front:
        workspace: Path = front.workspace
        runtime = workspace / "runtime"
        (runtime / "deep").mkdir(parents=True)
        (runtime / "kernel.json").write_text("key")
        (workspace / "note.txt").write_text("note")
        (workspace / "connection.json").write_text("key")
        front.end()
        hidden = (str(runtime), str(workspace / "connection.json"))
        again = Front(os.geteuid(), level, workspace, hidden=hidden)
        try:
            assert again.start()["event"] == "ready", again.ready
            again.worker()
            for path in ("runtime/kernel.json", "connection.json"):
                assert again.ask(f"result = open({path!r}).read() or 'empty'") in (
                    "empty",
                    "EACCES",
                    "ENOENT",
                )
                assert again.ask(f"open({path!r}, 'w').write('x')") != "open" or level == "full"
                assert (workspace / path).read_text() == "key"
            assert again.ask("open('runtime/new', 'w')") != "open"
            assert again.ask("result = open('note.txt').read()") == "note"
        finally:
            again.end()


def test_read_only_workspace_and_further_folders(outside: dict[str, Any]) -> None:
    policy = {**SMALL, "files": {"workspace": "read-only", "read": [outside["FOLDER"]]}}
    for level in LEVELS:
        with _front(os.geteuid(), level, policy=policy) as front:
            (front.workspace / "data").write_text("data")
            assert front.start()["event"] == "ready", front.ready
            front.worker()
            assert front.ask("result = open('data').read()") == "data"
            assert front.ask("open('data', 'a')") != "open"
            assert front.ask("open('new', 'w')") != "open"
            assert front.ask("result = open(SECRET).read()", SECRET=outside["SECRET"]) == "secret"
            assert front.ask("open(SECRET, 'a')", SECRET=outside["SECRET"]) != "open"


def test_scratch_folder_is_removed() -> None:
    with _front(os.geteuid(), "seccomp+landlock") as front:
        front.start()
        front.worker()
        scratch = Path(
            front.ask("open(os.environ['TMPDIR'] + '/x', 'w'); result = os.environ['TMPDIR']")
        ).parent
        assert scratch.exists() and scratch.stat().st_mode & 0o777 == 0o700
        front("close")
        assert not scratch.exists()


def test_many_starts_at_once_do_not_disturb_each_other() -> None:
    ready: list[Any] = []

    def one() -> None:
        with _front(os.geteuid(), "full") as front:
            ready.append(front.start().get("event"))

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ready == ["ready"] * 4


def test_this_machines_mounts_are_untouched() -> None:
    before = Path("/proc/self/mountinfo").read_text()
    for level in LEVELS:
        with _front(os.geteuid(), level) as front:
            front.start()
    assert Path("/proc/self/mountinfo").read_text() == before


@pytest.mark.parametrize("uid", UIDS)
@pytest.mark.parametrize("level", LEVELS)
def test_home_as_workspace_hides_its_dot_names(uid: int, level: str) -> None:
    with _front(uid, level) as front:
        home: Path = front.workspace
        (home / ".ssh").mkdir()
        (home / ".ssh" / "id").write_text("key")
        (home / ".netrc").write_text("key")
        (home / "kernel-1.json").write_text("key")
        (home / "work").mkdir()
        (home / "work" / "data").write_text("data")
        for path in (home, *home.rglob("*")):
            os.chown(path, uid, -1)
        front.end()
        # A front learns that the workspace is the home from the `hidden` list or from HOME.
        again = Front(uid, level, home, hidden=[str(home)])
        try:
            ready = again.start()
            assert ready["event"] == "ready", ready
            again.worker()
            for name in (".ssh/id", ".netrc", "kernel-1.json"):
                assert again.ask(f"result = open({name!r}).read() or 'empty'") in (
                    "empty",
                    "EACCES",
                    "ENOENT",
                ), name
                assert again.ask(f"open({name!r}, 'a').write('x')") != "open" or level == "full"
                assert (home / name).read_text() == "key"
            assert again.ask("result = open('work/data').read()") == "data"
            assert again.ask("open('work/new', 'w')") == "open"
            assert any("start with a dot" in note for note in ready["details"]["notes"])
        finally:
            again.end()


def test_workspace_that_is_the_machine_is_not_shown() -> None:
    for level in LEVELS:
        front = Front(os.geteuid(), level, Path("/"))
        try:
            ready = front.start()
            assert ready["event"] == "ready", ready
            front.worker()
            assert front.ask("result = os.getcwd() == os.environ['HOME']") is True
            assert front.ask("open('/etc/shadow')") != "open"
            assert any("not shown" in note for note in ready["details"]["notes"])
        finally:
            front.end()


OVERLAY = """
from sandbox_kernel import linux
linux.unshare(linux.CLONE_NEWNS)
linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
assert os.stat("/proc/self/ns/mnt").st_ino != os.stat(f"/proc/{os.getppid()}/ns/mnt").st_ino
base = WORKSPACE + "-overlay"
os.mkdir(base)
linux.mount("tmpfs", base, "tmpfs")
for name in ("lower", "upper", "work"): os.mkdir(f"{base}/{name}")
options = f"lowerdir={base}/lower,upperdir={base}/upper,workdir={base}/work"
linux.mount("overlay", WORKSPACE, "overlay", 0, options)
"""


@pytest.mark.skipif(not ROOT, reason="needs root")
def test_root_front_on_a_file_system_without_id_mapped_mounts_keeps_uid_0() -> None:
    """Overlay as in containers: it refuses ids to be mapped."""
    with _front(0, "full", before=OVERLAY) as front:
        ready = front.start()
        assert ready["event"] == "ready", ready
        assert [f["step"] for f in ready["failures"]] == ["copy the mounts to show"]
        assert ready["details"]["uid"] == 0 and ready["details"]["uid_strategy"] == "root"
        front.worker()
        assert front.ask("open('file', 'w').write('x'); result = open('file').read()") == "x"
        assert front.ask("open('/etc/shadow')") == "ENOENT"
        assert front.ask("os.setuid(1000)") == "EPERM"




def test_when_the_host_allows_no_user_namespaces() -> None:
    with _front(ORDINARY, "auto", before=NO_NAMESPACES) as front:
        ready = front.start()
        assert ready["level"] == "seccomp+landlock", ready
        assert ready["failures"][0]["errno"] == errno.ENOSPC and ready["failures"][0]["step"] == "unshare"


COVERED_PROC = """
from sandbox_kernel import linux
from sandbox_kernel.confine import namespaces
linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNS)
namespaces._map_self(UID, UID)
linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
linux.mount("none", "/proc/driver", "tmpfs", linux.MS_RDONLY)
namespaces.give_up_rights()
linux.set_dumpable(True)
"""


def test_a_covered_proc_as_in_containers_is_named() -> None:
    with _front(ORDINARY, "auto", before=COVERED_PROC) as front:
        ready = front.start()
        assert ready["level"] == "seccomp+landlock", ready
        assert (ready["failures"][0]["step"], ready["failures"][0]["errno"]) == ("mount proc", errno.EPERM)
        assert "/proc" in ready["failures"][0]["remedy"]


def test_a_mount_that_is_not_planned_stops_the_start() -> None:
    hole = """
from sandbox_kernel import linux
from sandbox_kernel.confine import mounts
finish = mounts.finish
def more():
    linux.mount("none", "/home", "tmpfs")
    finish()
mounts.finish = more"""
    with _front(os.geteuid(), "full", before=hole) as front:
        assert "mounts with the plan" in front.start()["error"]


def test_probe_that_finds_a_hole_stops_the_start() -> None:
    """A filter that lets everything through: the level's probes must notice."""
    hole = """
import struct
from sandbox_kernel.seccomp import program
program.compile_filter = lambda **_: struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000)"""
    for level in LEVELS:
        with _front(os.geteuid(), level, before=hole) as front:
            answer = front.start()
            assert "probes" in answer["error"] and "seccomp" in answer["error"]
        with _front(os.geteuid(), "auto", before=hole) as front:
            assert "probes" in front.start()["error"]
