"""What the attempts are after: files, listeners and bystanders outside, made anew for each of them."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import secrets
import shutil
import signal
import socket
import sqlite3
import stat
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_FLAGS_GET = 0x80086601  # FS_IOC_GETFLAGS
_ENVSECRET = os.environ.get("PLANTED", "")


class World:
    """Folders below ``folder``: ``work`` (the workspace), ``data`` (readable by policy), ``out-*`` (neither)."""

    def __init__(self, folder: Path, kind: str, terminal: int) -> None:
        self.folder, self.kind, self.terminal = folder, kind, terminal
        os.set_blocking(terminal, False)
        self.workspace, self.data = folder / "work", folder / "data"
        self.workspace.mkdir(exist_ok=True)
        self.data.mkdir()
        self.runtime, self.rc = self.workspace / "sub" / "runtime", self.workspace / "rc"
        if kind == "hidden":
            self.runtime.mkdir(parents=True)
            self.rc.touch()
            (self.runtime / "kernel.json").touch()
        self.held = folder / "held"
        self.held.mkdir()
        (self.held / "file").touch()
        # Descriptors that a careless launcher leaves open.
        for fd, path, flags in ((60, self.held / "file", os.O_RDONLY), (61, self.held, os.O_RDONLY)):
            opened = os.open(path, flags)
            os.dup2(opened, fd, inheritable=True)
            os.close(opened)
        self.parent = 0
        self._names: dict[str, Any] = {}
        self._close: list[Callable[[], object]] = []
        self._listeners: list[socket.socket] = []
        self._token = ""
        self._kept: Path = folder

    def all_names(self) -> dict[str, Any]:
        """Every name, the secrets included: for those outside."""
        return self._names

    @contextlib.contextmanager
    def fresh(self, wanted: frozenset[str]) -> Iterator[dict[str, Any]]:
        """New files and, as far as they are named, new listeners and bystanders."""
        secret, self._token, nonce = secrets.token_hex(12), secrets.token_hex(12), secrets.token_hex(12)
        outside = self.folder / f"out-{secrets.token_hex(4)}"
        (outside / "dir").mkdir(parents=True)
        self._kept = outside
        size = 100_000 + secrets.randbelow(900_000)
        for name, text in (("file", secret), ("dir/" + secret, ""), ("noted", "text"), ("sized", "")):
            (outside / name).write_text(text)
        os.truncate(outside / "sized", size)
        os.symlink(f"/nowhere/{secret}", outside / "link")
        with contextlib.suppress(OSError):
            os.setxattr(outside / "noted", "user.note", secret.encode())
        (outside / "attack_module.py").write_text(f"value = {secret!r}\n")
        for path in (self.held / "file", *((self.rc, self.runtime / "kernel.json") if self.kind == "hidden" else ())):
            path.write_text(secret)
        (self.data / "file").unlink(missing_ok=True)
        (self.data / "file").write_text(f"data {nonce}")
        (self.data / "file").chmod(0o4755)
        (self.workspace / "notebook.ipynb").write_text("{}")
        self._names = {
            "SECRET": secret, "TOKEN": self._token, "NONCE": nonce, "SIZE": size, "ENVSECRET": _ENVSECRET,
            "FILE": str(outside / "file"), "FOLDER": str(outside), "WORKSPACE": str(self.workspace),
            "DATA": str(self.data), "FRONT": os.getpid(),
            "HOST": socket.gethostname(), "CPUS": os.cpu_count(), "MARKER": str(self.marker),
            "BEAT": str(self.workspace / f"beat-{self._token}"), "PYTHON": sys.executable,
        }  # fmt: skip
        try:
            self._listen(wanted, outside)
            self._people(wanted, secret)
            for name, make in (("TEMP", self._temporary), ("DATABASE", self._database), ("SHM", self._shm)):
                if name in wanted:
                    make(secret)
            yield {name: value for name, value in self._names.items() if name in wanted}
        finally:
            while self._close:
                with contextlib.suppress(OSError):
                    self._close.pop()()
            self._listeners = []
            self.marker.unlink(missing_ok=True)
            self.end_survivors()
            shutil.rmtree(outside, ignore_errors=True)
            self._tidy()

    def close(self) -> None:
        """Nothing is left running; the folder goes with the process."""
        self.end_survivors()

    # ------------------------------------------------------------ making

    def _database(self, secret: str) -> None:
        path = self._kept / "data.db"
        with contextlib.closing(sqlite3.connect(path)) as base:
            base.execute("create table t (v)")
            base.execute("insert into t values (?)", (secret,))
            base.commit()
        self._names["DATABASE"] = str(path)

    def _temporary(self, secret: str) -> None:
        fd, path = tempfile.mkstemp(prefix=f"attacks-{secret}-")
        os.close(fd)
        self._close.append(lambda: os.unlink(path))
        self._names["TEMP"] = os.path.dirname(path)

    def _shm(self, secret: str) -> None:
        path = Path(f"/dev/shm/attacks-{self._token}")
        path.write_text(secret)
        self._close.append(lambda: path.unlink(missing_ok=True))
        self._names["SHM"] = str(path)

    def _listen(self, wanted: frozenset[str], outside: Path) -> None:
        inet, inet6, unix = socket.AF_INET, socket.AF_INET6, socket.AF_UNIX
        stream, datagram = socket.SOCK_STREAM, socket.SOCK_DGRAM
        abstract = f"attacks-{self._token}"
        raw, netlink = socket.SOCK_RAW, socket.AF_NETLINK
        kinds: dict[str, tuple[int, int, int, Any]] = {
            "TCP": (inet, stream, 0, ("127.0.0.1", 0)), "UDP": (inet, datagram, 0, ("127.0.0.1", 0)),
            "TCP6": (inet6, stream, 0, ("::1", 0)), "UDP6": (inet6, datagram, 0, ("::1", 0)),
            "SOCKET": (unix, stream, 0, str(outside / "socket")), "DGRAM": (unix, datagram, 0, str(outside / "dgram")),
            "NEAR": (unix, stream, 0, str(self.workspace / "near")), "ABSTRACT": (unix, stream, 0, "\0" + abstract),
            "ABSTRACT_DGRAM": (unix, datagram, 0, "\0d" + abstract), "MPTCP": (inet, stream, 262, ("127.0.0.1", 0)),
            "NETLINK": (netlink, raw, 2, (0, 0)), "RAW": (inet, raw, 253, ("127.0.0.1", 0)),
        }  # fmt: skip
        for name, (family, kind, protocol, address) in kinds.items():
            if name not in wanted:
                continue
            listener = socket.socket(family, kind, protocol)
            self._close.append(listener.close)
            listener.bind(address)
            if kind == stream:
                listener.listen()
            listener.setblocking(False)
            self._listeners.append(listener)
            bound = listener.getsockname()
            self._names[name] = (bound[0] if name == "NETLINK" else bound[1]) if isinstance(bound, tuple) else (
                bound.decode() if isinstance(bound, bytes) else bound)  # fmt: skip

    def _people(self, wanted: frozenset[str], secret: str) -> None:
        if "VICTIM" in wanted:
            self._names["VICTIM"] = self._bystander(signal.pause)
        if "HOLDER" in wanted:
            buffer = ctypes.create_string_buffer(secret.encode())
            held = os.open(self._kept / "file", os.O_RDONLY)

            def hold() -> None:
                ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1))  # may be traced by anybody of this user
                signal.pause()

            self._names |= {"HOLDER": self._bystander(hold), "ADDRESS": ctypes.addressof(buffer), "HELD": held}
            ctypes.memset(buffer, 0, len(buffer))
            os.close(held)
        if "SLEEPER" in wanted:
            sleeper = subprocess.Popen([f"a-{secret}", "60"], executable="/bin/sleep", env={"KEY": f"e-{secret}"})
            self._close += [sleeper.wait, sleeper.kill]
            self._names["SLEEPER"] = sleeper.pid

    def _bystander(self, work: Callable[[], object]) -> int:
        """A process of this uid, in a group of its own."""
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGIO, signal.SIG_DFL)
            os.setpgid(0, 0)
            os.write(writer, b"!")
            os.close(reader)
            os.close(writer)
            while True:
                work()
        os.close(writer)
        os.read(reader, 1)
        os.close(reader)

        def end() -> None:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)

        self._close.append(end)
        time.sleep(0.005)  # until it holds what it is to hold
        return pid

    # ------------------------------------------------------------ looking

    def look(self, effect: str) -> Any:
        """The state that ``effect`` is about."""
        people = [pid for pid in (self._names.get("VICTIM", 0), self.parent) if pid]
        match effect:
            case "changed":
                return _tree(self._kept) + _tree(self.data) + _tree(Path("/dev/shm"), f"attacks-{self._token}*")
            case "hit":
                return [_state(pid) for pid in people]
            case "altered":
                return [_attributes(pid) for pid in people]
            case "setid":
                return _unusual(self.workspace)

    def arrived(self) -> bool:
        """Whether the token came to a listener."""
        got = b""
        with contextlib.suppress(BlockingIOError):  # what is typed into the terminal comes to its readers
            got += os.read(self.terminal, 4096)
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                one = listener
                if listener.type == socket.SOCK_STREAM:
                    one = listener.accept()[0]
                    one.settimeout(0.2)
                got += one.recv(4096)
        return self._token.encode() in got

    @property
    def marker(self) -> Path:
        """What planted code makes when a host program runs it."""
        return self.folder / "marker"

    def blocked(self) -> bool:
        """Whether a host program that opens the notebook or the data would have to wait."""
        for path in (self.workspace / "notebook.ipynb", self.data / "file"):
            try:
                os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
            except BlockingIOError:
                return True
            except OSError:
                continue
        return False

    def locked(self) -> bool:
        """Whether a host program does not get the lock of the data."""
        with (self.data / "file").open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def beats(self, for_s: float) -> bool:
        """Whether somebody still writes to the beat."""
        path = Path(self._names["BEAT"])
        first = path.stat().st_size if path.exists() else 0
        time.sleep(for_s)
        return path.exists() and path.stat().st_size > first

    def end_survivors(self) -> None:
        """Survivors end by themselves when their beat's place is a folder."""
        with contextlib.suppress(OSError, KeyError):
            Path(self._names["BEAT"]).unlink(missing_ok=True)
            os.mkdir(self._names["BEAT"])
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    def _tidy(self) -> None:
        """The workspace as it was; what the sandbox uses of it stays."""
        moved = self.workspace / "deep-moved"
        if moved.exists():  # back by name: mounts of the sandbox are on this very folder
            shutil.rmtree(self.workspace / "deep")
            moved.rename(self.workspace / "deep")
        for path in self.workspace.iterdir():
            if path.name in ("sub", "rc", "deep", "current") or path.name.startswith("beat-"):
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()
        link = self.workspace / "current"
        if self.kind == "import-path" and not link.is_symlink():
            shutil.rmtree(link)
            link.symlink_to(self.folder / "releases" / "one")
        if self.kind == "protected":
            (self.workspace / "deep" / "pkgs").mkdir(parents=True, exist_ok=True)
            for path in (self.workspace / "deep" / "pkgs").iterdir():
                path.unlink()


def _tree(folder: Path, only: str = "") -> list[Any]:
    found = []
    for path in sorted(folder.rglob("*") if not only else folder.glob(only)):
        info = path.lstat()
        attributes = []
        with contextlib.suppress(OSError):
            attributes = [(n, os.getxattr(path, n, follow_symlinks=False))
                          for n in os.listxattr(path, follow_symlinks=False)]  # fmt: skip
        content = b""
        with contextlib.suppress(OSError):
            content = path.read_bytes() if stat.S_ISREG(info.st_mode) and info.st_size < 4096 else b""
        found.append((str(path), info.st_mode, info.st_size, info.st_mtime_ns, info.st_gid, attributes, content))
    return found


def _state(pid: int) -> str:
    """Running, stopped, or gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"
    return {"T": "stopped", "t": "stopped", "Z": "gone", "X": "gone"}.get(text, "lives")


def _attributes(pid: int) -> list[Any]:
    """Priority, scheduling, processors, input and output priority, limits."""
    try:
        nice = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[16]
        ioprio = ctypes.CDLL(None).syscall(252, 1, pid) if sys.maxsize > 2**32 else 0
        limits = [r for r in Path(f"/proc/{pid}/limits").read_text().splitlines() if "open files" in r] if (
            os.access(f"/proc/{pid}/limits", os.R_OK)) else []  # fmt: skip
        return [nice, os.sched_getscheduler(pid), sorted(os.sched_getaffinity(pid)), ioprio, limits]
    except OSError:
        return ["gone"]


def _unusual(folder: Path) -> list[Any]:
    """Set-id bits, device nodes and inode flags in the workspace."""
    found = []
    for path in folder.rglob("*"):
        mode = path.lstat().st_mode
        flags = 0
        if stat.S_ISREG(mode):
            with contextlib.suppress(OSError), path.open("rb") as file:
                flags = struct.unpack("i", fcntl.ioctl(file, _FLAGS_GET, bytes(4)))[0] & 0x40  # FS_NODUMP_FL
        if mode & 0o6000 or stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or flags:
            found.append((str(path), mode, flags))
    return found
