"""A small front in a process of its own, told by JSON lines what to do; see test_launch.py.

It can be killed, run as another uid, or be refused calls, none of which pytest's own process survives.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any, NoReturn

from sandbox_kernel.errors import IsolationUnavailable
from sandbox_kernel.launch.link import ZygoteLink, start_zygote
from sandbox_kernel.plan.make import make_plans
from sandbox_kernel.policy import Policy
from sandbox_kernel.session.denial_text import PlanFacts, file_hint
from sandbox_kernel.session.denials import Denials
from sandbox_kernel.session.lookups import Lookups


def run_code(code: str, names: dict[str, Any]) -> Any:
    """Execute; the answer is `result`, or the errno's name where an OSError came out."""
    import errno

    space: dict[str, Any] = {"os": os, "socket": socket, "time": time, "signal": signal, **names}
    try:
        exec(code, space)
        return space.get("result", "open")
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, repr(error))
    except Exception as error:
        return repr(error)


class Echo:
    """The entry: executes what comes down the channel."""

    def __init__(self, prepare: str = "") -> None:
        self.code, self.prepared = prepare, None

    def prepare(self) -> None:
        """What the test says; the answer is for the workers."""
        self.prepared = run_code(self.code, {})

    def run(self, channel_fd: int, worker: int) -> NoReturn:
        """Serve until the channel ends."""
        channel = socket.socket(fileno=channel_fd)
        while packet := channel.recv(65536):
            channel.send(json.dumps(run_code(*self._request(packet))).encode())
        os._exit(0)

    def _request(self, packet: bytes) -> tuple[str, dict[str, Any]]:
        code, names = json.loads(packet)
        return code, {"PREPARED": self.prepared, **names}


class Front:
    """Commands by name; each returns something that JSON can hold."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.link: ZygoteLink | None = None
        self.channels: dict[int, socket.socket] = {}
        self.pidfds: dict[int, int] = {}
        self.victims: list[int] = []
        self.listeners = Denials() if options.get("denials") else None
        self.early: list[dict[str, Any]] = []

    def start(self) -> Any:
        # With a folder that cells may change, more must hold.
        policy = Policy.from_tables({"files": {"workspace": "read-write", "hide": []}, **self.options["policy"]})
        if self.options.get("before"):
            names = {"os": os, "WORKSPACE": self.options["workspace"], "UID": os.getuid()}
            exec(self.options["before"], names)
        if self.options.get("refuse"):
            _refuse(self.options["refuse"])
        environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        plans = make_plans(
            policy, self.options["workspace"], launcher_env=environment, hidden=self.options["hidden"]
        )
        since = time.perf_counter()
        self.link = start_zygote(plans, Echo(self.options.get("prepare", "")), self.listeners)
        try:
            ready = self.link.wait(20)
        except IsolationUnavailable as error:
            return {"error": str(error), "advice": error.advice()}
        ready["start_ms"] = (time.perf_counter() - since) * 1000
        ready["failures"] = self.link.failures
        facts = PlanFacts.in_force(plans, ready["level"], ready["details"])
        assert facts is not None
        self.facts = facts
        return ready

    def denials(self) -> Any:
        """What was refused since the last time."""
        assert self.listeners is not None
        return [[d.call, d.detail, d.count, d.kind, d.rule] for d in self.listeners.take()]

    def deaf(self) -> Any:
        """Nobody listens from now on."""
        assert self.listeners is not None
        self.listeners.close()

    def hint(self, name: str, text: str) -> Any:
        """What the end of a cell would say about an error."""
        return file_hint(name, text, self.facts)

    def forget(self) -> list[str]:
        """Let the private layer look again, as before a cell; what there was to say."""
        assert self.link is not None and self.link.ready is not None
        folders, fds = self.link.ready["folders"], self.link.ready["fds"]
        layer, details = fds[folders.index(self.options["workspace"])], {"notes": []}
        lookups = Lookups.of(fds[len(folders)], layer, self.options["workspace"], details)
        lookups.forget()
        lookups.close()
        return details["notes"]

    def descriptors(self) -> int:
        """How many this process has open."""
        return len(os.listdir("/proc/self/fd"))

    def fork(self, number: int) -> Any:
        assert self.link is not None
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channels[number] = mine
        self.link.fork(number, [theirs.fileno(), 2, 2])
        theirs.close()
        return self.events(1)

    def ask(self, number: int, code: str, names: dict[str, Any]) -> Any:
        assert self.link is not None
        self.channels[number].send(json.dumps([code, names]).encode())
        # A worker's listener may still be on its way, and its refused calls wait for it.
        while self.listeners and self.channels[number] not in (
            ready := select.select([self.channels[number], self.link], [], [], 20)[0]
        ):
            assert ready, "no answer"
            try:
                self.early += self.link.receive()
            except EOFError:
                break
        return json.loads(self.channels[number].recv(1 << 20) or '"end of file"')

    def plain(self, code: str, names: dict[str, Any]) -> Any:
        """The same in a child without any layer."""
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                theirs.send(json.dumps(run_code(code, names)).encode())
            os._exit(0)
        theirs.close()
        answer = json.loads(mine.recv(1 << 20) or '"end of file"')
        mine.close()
        os.waitpid(pid, 0)
        return answer

    def victim(self) -> int:
        """A process of this uid that only waits."""
        pid = os.fork()
        if pid == 0:
            signal.pause()
        self.victims.append(pid)
        return pid

    def lives(self, pid: int) -> bool:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        return os.path.exists(f"/proc/{pid}")

    def signal(self, number: int, sig: int, group: bool) -> Any:
        assert self.link is not None
        self.link.signal(number, sig, group=group)
        return self.events(1)

    def kill(self, number: int) -> Any:
        assert self.link is not None
        self.link.kill(number)
        return self.events(1)

    def events(self, count: int, timeout_s: float = 30.0) -> Any:
        """Wait for some events; pidfds are kept."""
        assert self.link is not None
        found, self.early = self.early, []
        deadline = time.monotonic() + timeout_s
        while len(found) < count:
            if not select.select([self.link], [], [], max(0, deadline - time.monotonic()))[0]:
                break
            try:
                found += self.link.receive()
            except EOFError:
                found.append({"event": "gone"})
                break
        for event in found:
            if event["event"] == "forked":
                self.pidfds[event["worker"]] = event["fds"][0]
        return found

    def host_pid(self, number: int) -> int:
        with open(f"/proc/self/fdinfo/{self.pidfds[number]}") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("Pid:"))

    def close(self) -> Any:
        assert self.link is not None
        since = time.perf_counter()
        self.link.close()
        for victim in self.victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        return (time.perf_counter() - since) * 1000


def _refuse(names: dict[str, int]) -> None:
    import pyseccomp

    tree = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    for name, number in names.items():
        tree.add_rule(pyseccomp.ERRNO(number), pyseccomp.resolve_syscall(pyseccomp.system_arch(), name))
    tree.load()


def main() -> None:
    front = Front(json.loads(sys.argv[1]))
    for line in sys.stdin:
        name, arguments = json.loads(line)
        print(json.dumps(getattr(front, name)(*arguments)), flush=True)


main()
