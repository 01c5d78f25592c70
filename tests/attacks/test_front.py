"""The attempts of `front`: at the channel between front and worker, at what the front knows of Jupyter, at siblings."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import multiprocessing
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from jupyter_client import BlockingKernelClient, KernelManager
from jupyter_client.kernelspec import KernelSpecManager

from sandbox_kernel.session.checkpoints import KEPT

from ..waiting import wait_for
from . import front
from .conftest import LEVELS

SPEC = Path(__file__).parents[2] / "kernelspec"
OLD = "old_cell_of_another_notebook"
PLANTED = "planted-service-token"
TOKEN = "forged-4711"
ANSWER_S = 20.0
# Descriptors of the copies of a session, which come and go: a channel, two pipes and a pidfd each, one more while it
# is made.
_COPIES = 4 * (KEPT + 1)


class Kernel:
    """A kernel and its client, sandboxed or stock."""

    temporary = ""  # a file in its private folder
    stuck = False  # it did not answer once

    def __init__(self, folder: Path, level: str, name: str) -> None:
        specs = folder / "kernels"
        if not specs.exists():
            shutil.copytree(SPEC, specs / "sandboxed-python")
        self.work = folder / name
        self.work.mkdir()
        policy = folder / f"{name}.toml"
        policy.write_text(f'[isolation]\nlevel = "{level or "auto"}"\n')
        kernels = KernelSpecManager(kernel_dirs=[str(specs)])
        self.manager = KernelManager(kernel_name="sandboxed-python" if level else "python3",
                                     **({"kernel_spec_manager": kernels} if level else {}))  # fmt: skip
        environment = {
            **os.environ, "IPYTHONDIR": str(folder / "ipython"), "SANDBOX_KERNEL_POLICY": str(policy),
            "SERVICE_SECRET": PLANTED,
        }  # fmt: skip
        self.log = (folder / f"{name}.log").open("wb")
        self.manager.start_kernel(cwd=str(self.work), env=environment, stdout=self.log, stderr=self.log)
        self.client: BlockingKernelClient = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)
        self.pid = int(self.manager.provisioner.process.pid)
        self.connection = json.loads(Path(self.manager.connection_file).read_text())

    def run(self, code: str, timeout: float = ANSWER_S) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The reply, and all messages on IOPub up to idle."""
        self.stuck = True
        messages: list[dict[str, Any]] = []
        msg_id = self.client.execute(code, allow_stdin=False)
        deadline = time.monotonic() + timeout
        while True:
            message = self.client.get_iopub_msg(timeout=max(0.01, deadline - time.monotonic()))
            messages.append(message)
            mine = message["parent_header"].get("msg_id") == msg_id
            if mine and message["msg_type"] == "status" and message["content"].get("execution_state") == "idle":
                break
        while True:
            reply = self.client.get_shell_msg(timeout=max(0.01, deadline - time.monotonic()))
            if reply["parent_header"].get("msg_id") == msg_id:
                self.stuck = False
                return reply["content"], messages

    def more(self, for_s: float = 0.1) -> list[dict[str, Any]]:
        """What else comes on IOPub."""
        found = []
        with contextlib.suppress(Exception):
            while True:
                found.append(self.client.get_iopub_msg(timeout=for_s))
        return found

    def question(self) -> str:
        """The prompt that came on the channel for questions, or nothing."""
        try:
            return str(self.client.get_stdin_msg(timeout=0.4)["content"]["prompt"])
        except Exception:
            return ""

    def end(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()
        self.log.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("front")


@pytest.fixture(scope="module")
def stock(folder: Path) -> Iterator[Kernel]:
    """The stock kernel; another one ran before it, whose cell is in the common history."""
    before = Kernel(folder, "", "before")
    before.run(f"x = '{OLD}'")
    before.client.stop_channels()
    before.manager.shutdown_kernel()
    before.manager.cleanup_resources()
    before.log.close()
    kernel = Kernel(folder, "", "stock")
    yield kernel
    kernel.end()


@pytest.fixture(scope="module")
def sibling(folder: Path) -> Iterator[Kernel]:
    """Another kernel of the same user, without namespaces, so that its private folder has a path of the host."""
    kernel = Kernel(folder, "seccomp+landlock", "sibling")
    write = "import os\nwith open(os.environ['TMPDIR'] + '/text', 'w') as f: f.write('text of the sibling')\n"
    _, messages = kernel.run(write + "print(f.name)")
    kernel.temporary = _text(messages).strip()
    yield kernel
    os.kill(kernel.pid, signal.SIGCONT)
    kernel.end()


@pytest.fixture(scope="module", params=LEVELS)
def kernels(request: pytest.FixtureRequest) -> Iterator[tuple[str, list[Kernel]]]:
    """The level, and its kernels: one, and a further one after each that was brought to a halt."""
    made: list[Kernel] = []
    yield request.param, made
    for kernel in made:
        kernel.end()


@pytest.fixture
def boxed(kernels: tuple[str, list[Kernel]], folder: Path) -> Kernel:
    level, made = kernels
    if not made or made[-1].stuck or not made[-1].manager.is_alive():
        made.append(Kernel(folder, level, f"{level.replace('+', '-')}-{len(made)}"))
    return made[-1]


def _text(messages: list[dict[str, Any]]) -> str:
    return "".join(m["content"]["text"] for m in messages if m["msg_type"] == "stream")


# ------------------------------------------------------------ cells


def _succeeds(attempt: front.Cell, kernel: Kernel, sibling: Kernel, code: str) -> bool:
    own, other = kernel.connection, sibling.connection
    values = {
        "CONNECTION": repr(kernel.manager.connection_file), "PORT": str(own["iopub_port"]), "OLD": OLD, "TOKEN": TOKEN,
        "OTHERPORT": str(other["iopub_port"]), "OTHERPID": str(sibling.pid),
        "OTHERTEMP": repr(sibling.temporary), "OTHER": repr(sibling.manager.connection_file),
    }  # fmt: skip
    for name in sorted(values, key=len, reverse=True):
        code = code.replace(name, values[name])
    _, messages = kernel.run(code)
    messages += kernel.more()
    text = _text(messages)
    name = os.path.basename(kernel.manager.connection_file)
    match attempt.effect:
        case "out":
            return own["key"] in text
        case "name" | "base name":
            return name in text
        case "token":
            return TOKEN in text
        case "message":
            return any(m["msg_type"] == TOKEN for m in messages)
        case "parent":
            return any(m["parent_header"].get("msg_id") == TOKEN for m in messages)
        case "question":
            return kernel.question() == TOKEN
        case "old":
            return f"'{OLD}'" in text.replace(f"*{OLD}*", "")
        case "planted":
            return PLANTED in text
        case "other key":
            return other["key"] in text
        case "other text":
            return "text of the sibling" in text
        case "stopped":
            stopped = psutil.Process(sibling.pid).status() == psutil.STATUS_STOPPED
            os.kill(sibling.pid, signal.SIGCONT)
            return stopped
    raise ValueError(attempt.effect)


@pytest.mark.parametrize("attempt", front.CELLS, ids=lambda a: a.id)
def test_cell(boxed: Kernel, stock: Kernel, sibling: Kernel, attempt: front.Cell) -> None:
    assert _succeeds(attempt, stock, sibling, attempt.stock or attempt.code), "it must succeed in the stock kernel"
    assert not _succeeds(attempt, boxed, sibling, attempt.code), attempt.layer
    assert boxed.run("1 + 1")[0]["status"] == "ok"


# ------------------------------------------------------------ junk


def _believed(code: str, answer: Any) -> None:
    """In a process of its own, with little memory beside what the tests hold: a reader without layers."""
    faulthandler.disable()
    limit = psutil.Process().memory_info().vms + (1 << 29)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    try:
        channel, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            space: dict[str, Any] = {"channel": channel, "REQUEST": "request"}
            with contextlib.suppress(OSError):
                exec(front.TOOLS + code, space)
                channel.send(b"\x03done")
            os._exit(0)
        channel.close()
        published = front.believe(other)
        answer.send("forged" if TOKEN in str(published) else "nothing")
    except MemoryError:
        answer.send("memory")
    except BaseException as error:
        answer.send(f"error {error!r}")


def _without_layer(code: str) -> str:
    mine, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_believed, args=(code, theirs))
    process.start()
    theirs.close()
    try:
        return str(mine.recv()) if mine.poll(20) else "stuck"
    except EOFError:
        return "error it died"
    finally:
        process.kill()
        process.join()
        mine.close()


def _peak_mib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) // 1024


def _descriptors(pid: int) -> int:
    """How many the process has; only root may ask a front, which is not dumpable."""
    try:
        return psutil.Process(pid).num_fds()
    except psutil.AccessDenied:
        return 0


@pytest.mark.parametrize("attempt", front.JUNK, ids=lambda a: a.id)
def test_junk(boxed: Kernel, attempt: front.Junk) -> None:
    code = attempt.code.replace("TOKEN", TOKEN)
    assert _without_layer(code).split()[0] == attempt.harm, "it must harm a reader without the layer"
    boxed.run("1 + 1")
    before, descriptors = _peak_mib(boxed.pid), _descriptors(boxed.pid)
    start = "REQUEST = get_ipython().kernel.get_parent('shell')['header']['msg_id']\n"
    start += "channel = socket.socket(fileno=os.dup(3))\n"
    _, messages = boxed.run(front.TOOLS + start + code + "\nimport time; time.sleep(0.3)")
    messages += boxed.more(0.05)
    visible = [m for m in messages if m["msg_type"] not in ("execute_input", "error")]
    assert TOKEN not in json.dumps([[m["msg_type"], m["content"], m["parent_header"].get("msg_id")] for m in visible])
    assert boxed.run("print('alive')")[0]["status"] == "ok", "the front must serve the next cell"
    assert boxed.run("print('alive')")[0]["status"] == "ok"
    assert boxed.manager.is_alive() and int(boxed.manager.provisioner.process.pid) == boxed.pid
    assert _peak_mib(boxed.pid) - before < attempt.megabytes
    wait_for(lambda: _descriptors(boxed.pid) <= descriptors + _COPIES + 3)  # copies come and go


def test_the_channel_closed_by_the_worker_costs_only_the_worker(boxed: Kernel) -> None:
    boxed.run("import os; os.close(3)")
    assert boxed.run("print('alive')")[0]["status"] == "ok"


# ------------------------------------------------------------ what the front itself would import or believe


def test_a_planted_module_is_not_what_the_front_runs(folder: Path) -> None:
    """The kernelspec's ``-P`` is the layer: without it the interpreter takes the notebook's folder first."""
    work = folder / "planted"
    work.mkdir()
    marker = folder / "ran"
    plant = f"open({str(marker)!r}, 'w').close()\nraise SystemExit(0)\n"
    for name in ("sandbox_kernel", "ipykernel", "zmq", "json"):
        (work / f"{name}.py").write_text(plant)
    subprocess.run([sys.executable, "-m", "sandbox_kernel"], cwd=work, capture_output=True, timeout=30)
    assert marker.exists()
    marker.unlink()
    assert json.loads((SPEC / "kernel.json").read_text())["argv"][1] == "-P"
    kernel = Kernel(folder, "auto", "unplanted")
    try:
        for path in work.glob("*.py"):  # (not the bytecode of the run above)
            shutil.copy(path, kernel.work)
        kernel.manager.restart_kernel(now=True)
        kernel.client.wait_for_ready(timeout=60)
        assert not marker.exists()  # (the worker, which no file outside is open to, may import it)
    finally:
        kernel.end()
