"""The outside of the attempts: a process with the things that they are after, told by JSON lines what to do.

It plays the front: it starts the sandbox and asks its workers. It judges by what can be seen from here, not by
what an attempt says. Without layers an attempt runs in a child of a child of this process, so that its parent
is somebody who can be spared.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NoReturn

from sandbox_kernel import linux
from sandbox_kernel.launch.link import ZygoteLink, start_zygote
from sandbox_kernel.plan.make import make_plans
from sandbox_kernel.policy import Policy
from tests.attacks import tools
from tests.attacks.attempt import Attempt
from tests.attacks.table import ATTEMPTS
from tests.attacks.world import World

ANSWER_S = 8.0
BEAT_S = 0.12


class Echo:
    """What workers run, and children without layers too: execute what comes down the channel."""

    def prepare(self) -> None:
        """Nothing to prepare."""

    def run(self, channel_fd: int, worker: int) -> NoReturn:
        """Serve until the channel ends."""
        channel = socket.socket(fileno=channel_fd)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        space: dict[str, Any] = {}
        while packet := channel.recv(65536):
            code, names, fresh = json.loads(packet)
            if fresh:
                space = dict(vars(tools))
                with contextlib.suppress(OSError):
                    os.chdir(names["WORKSPACE"])
            space.update(names, out="")
            error = ""
            try:
                exec(compile(code, "attempt", "exec"), space)
            except BaseException as caught:
                error = repr(caught)
            out = space["out"]
            out = out.decode("utf-8", "replace") if isinstance(out, (bytes, bytearray)) else str(out)
            channel.send(json.dumps([out[:30000], error[:500]]).encode())
        os._exit(0)


class Process:
    """Somebody who executes: a worker, or a child without layers."""

    def __init__(self, channel: socket.socket, parent: int) -> None:
        self.channel, self.parent = channel, parent
        channel.settimeout(ANSWER_S)

    def ask(self, code: str, names: dict[str, Any], fresh: bool) -> tuple[str, str]:
        """What came out, and the error; a process that died or does not answer has an error too."""
        try:
            self.channel.send(json.dumps([code, names, fresh]).encode())
            packet = self.channel.recv(1 << 20)
        except OSError as error:
            return "", f"no answer: {error!r}"
        return tuple(json.loads(packet)) if packet else ("", "the process ended")


class Stage:
    """Commands by name; each returns something that JSON can hold."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.level = options["level"]
        self.link: ZygoteLink | None = None
        self.number = 0
        self.worker: Process | None = None
        self.terminal = os.openpty()
        self.world = World(Path(options["folder"]), options["stage"], self.terminal[1])

    def start(self) -> Any:
        """Start the sandbox, with one worker."""
        world = self.world
        tables = {
            "isolation": {"level": self.level},
            # With a folder that cells may change, more must hold.
            "files": {"read": [str(world.data)], "workspace": "read-write", "hide": []},
            "limits": {"processes": 60, "memory": "1GiB", "tmp": "16MiB", "home": "4MiB", "shm": "4MiB"},
        }  # fmt: skip
        environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        kinds = {"hidden": (str(world.runtime), str(world.rc)), "home": (str(world.workspace),)}
        hidden = kinds.get(world.kind, ())
        plans = make_plans(
            Policy.from_tables(tables), world.workspace, launcher_env=environment, hidden=hidden
        )
        self.link = start_zygote(plans, Echo())
        ready = self.link.wait(30)
        self._fork()
        return {"event": ready["event"], "level": ready["level"], "uid": ready["details"]["uid"]}

    def run(self, attempt_id: str, on: bool) -> Any:
        """One attempt in fresh surroundings: [succeeded, what came out, the error]."""
        attempt = ATTEMPTS[attempt_id]
        with self.world.fresh(attempt.names) as names:
            process = self._usable_worker() if on else self._unconfined(attempt.private)
            self.world.parent = process.parent
            names["PARENT"] = self.world.all_names()["PARENT"] = process.parent
            names["WORKSPACE"] = str(self.world.workspace)
            process.channel.settimeout(1.0 if attempt.effect == "stuck" else ANSWER_S)
            for name in ("SECRET", "ENVSECRET"):
                names.pop(name, None)
            before = self.world.look(attempt.effect)
            out, error = process.ask(attempt.code, names, True)
            if attempt.after:
                with contextlib.suppress(Exception):  # it did not come to what is to be gone on with
                    exec(attempt.after, {"os": os, "socket": socket, "subprocess": subprocess, "sys": sys,
                                         **self.world.all_names(), "OUT": out})  # fmt: skip
            if attempt.then:
                out, error = process.ask(attempt.then, names, False)
            done = self._judge(attempt, out, before, process, on)
            if not on:
                self._end_unconfined(process)
        return [done, out[:300], error]

    def close(self) -> Any:
        """End the sandbox and everything here."""
        if self.link is not None:
            self.link.close()
        self.world.close()
        return True

    # ------------------------------------------------------------ judging

    def _judge(self, attempt: Attempt, out: str, before: Any, process: Process, on: bool) -> bool:
        world = self.world
        match attempt.effect:
            case "out":
                return attempt.proof.format(**world.all_names()) in out
            case "arrived":
                return world.arrived()
            case "ran":
                return world.marker.exists()
            case "blocked":
                return world.blocked()
            case "locked":
                return world.locked()
            case "survived":
                self._kill(process, on, signal.SIGKILL)
                return world.beats(BEAT_S)
            case "stuck":
                started = world.beats(BEAT_S)
                self._kill(process, on, signal.SIGTERM)
                return started and world.beats(BEAT_S)
            case effect:
                # What must not come is given a moment; what must come may take longer where the machine is busy.
                end = time.monotonic() + (0.03 if on else 2.0)
                while not (changed := bool(world.look(effect) != before)) and time.monotonic() < end:
                    time.sleep(0.01)
                return changed

    def _kill(self, process: Process, on: bool, number: int) -> None:
        """As the front ends a worker; without layers by ``number`` to its process group."""
        if on:
            assert self.link is not None
            self.link.kill(self.number)
            self._events(1, 30.0)
            self.worker = None
        else:
            child = self.child
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(ProcessLookupError):
                    kill(child, number)
        time.sleep(0.05)

    # ------------------------------------------------------------ workers

    def _fork(self) -> None:
        assert self.link is not None and self.link.ready is not None
        self.number += 1
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        null = os.open("/dev/null", os.O_WRONLY)
        self.link.fork(self.number, [theirs.fileno(), self.terminal[1], null])
        theirs.close()
        os.close(null)
        self._events(1, 30.0)
        self.worker = Process(mine, self.link.ready["pid"])

    def _usable_worker(self) -> Process:
        if self.worker is not None and self.worker.ask("out = 'here'", {"WORKSPACE": "/"}, True)[0] == "here":
            return self.worker
        assert self.link is not None
        if self.worker is not None:
            self.link.kill(self.number)
            self._events(1, 30.0)
        self._fork()
        assert self.worker is not None
        return self.worker

    def _events(self, count: int, timeout_s: float) -> list[Any]:
        assert self.link is not None
        found: list[Any] = []
        deadline = time.monotonic() + timeout_s
        while len(found) < count and select.select([self.link], [], [], max(0, deadline - time.monotonic()))[0]:
            for event in self.link.receive():
                for fd in event["fds"]:
                    os.close(fd)
                found.append(event)
        return found

    # ------------------------------------------------------------ without layers

    def _unconfined(self, private: bool) -> Process:
        """A child of a child, which has everything that this process has."""
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        reader, writer = os.pipe()
        parent = os.fork()
        if parent == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            try:
                mine.close()
                if private:
                    _enter_private(self.options["ordinary"])
                child = os.fork()
                if child == 0:
                    os.setsid()
                    os.chdir(self.world.workspace)
                    if not private:
                        _take_terminal(self.terminal[1])
                    Echo().run(theirs.detach(), 0)
                theirs.close()
                os.write(writer, str(child).encode())
                os.close(writer)
                while True:
                    signal.pause()
            finally:
                os._exit(1)
        theirs.close()
        os.close(writer)
        # In a private pid namespace the number means nothing here; the whole of it ends with the parent.
        self.child = int(os.read(reader, 20) or 0)
        self.private = private
        os.close(reader)
        return Process(mine, parent)

    def _end_unconfined(self, process: Process) -> None:
        if not self.private and self.child:
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    kill(self.child, signal.SIGKILL)
        process.channel.close()
        for number in (signal.SIGCONT, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.parent, number)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process.parent, 0)
        self.world.end_survivors()


def _enter_private(ordinary: int) -> None:
    """Namespaces of an unprivileged uid: what is changed there is changed nowhere else."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(ordinary, ordinary, ordinary)
        os.setresuid(ordinary, ordinary, ordinary)
        linux.set_dumpable(True)
    uid, gid = os.getuid(), os.getgid()
    linux.unshare(
        linux.CLONE_NEWUSER | linux.CLONE_NEWNS | linux.CLONE_NEWPID | linux.CLONE_NEWNET | linux.CLONE_NEWIPC
        | linux.CLONE_NEWUTS
    )  # fmt: skip
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        fd = os.open(f"/proc/self/{name}", os.O_WRONLY)
        os.write(fd, text.encode())
        os.close(fd)
    linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
    linux.set_pdeathsig(signal.SIGKILL)


def _take_terminal(terminal: int) -> None:
    import fcntl
    import termios

    with contextlib.suppress(OSError):
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    os.dup2(terminal, 1)


def main() -> None:
    """Serve until the standard input ends."""
    linux.set_child_subreaper()
    stage = Stage(json.loads(sys.argv[1]))
    for line in sys.stdin:
        name, arguments = json.loads(line)
        print(json.dumps(getattr(stage, name)(*arguments)), flush=True)
    with contextlib.suppress(Exception):
        stage.close()


if __name__ == "__main__":
    tempfile.tempdir = None
    try:
        main()
    finally:
        shutil.rmtree(Path(json.loads(sys.argv[1])["folder"]), ignore_errors=True)
