"""A zygote that is an interpreter of its own: what it inherits, how it ends, and whose it may be."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox_kernel.errors import IsolationUnavailable
from sandbox_kernel.launch import interpreter
from sandbox_kernel.launch.link import ZygoteLink
from sandbox_kernel.plan import text
from sandbox_kernel.plan.make import make_plans
from sandbox_kernel.plan.model import Plan
from sandbox_kernel.plan.paths import Python
from sandbox_kernel.policy import Policy
from tests.waiting import children, wait_for

LEVELS = ("full", "seccomp+landlock", "subprocess")
Begin = Callable[..., ZygoteLink]


def plans(level: str, python: Python | None = None) -> list[Plan]:
    return make_plans(Policy.from_tables({"isolation": {"level": level}}), None, launcher_env={}, python=python)


@pytest.fixture
def begin() -> Iterator[Begin]:
    links = []

    def start(level: str, executable: str = sys.executable, **environment: str) -> ZygoteLink:
        link, _ = interpreter.start_interpreter(executable, environment, lambda python: plans(level, python))
        links.append(link)
        for fd in link.wait()["fds"]:
            os.close(fd)
        return link

    yield start
    for link in links:
        link.close()


@pytest.mark.parametrize("level", LEVELS)
def test_ends_with_everything_below_it(begin: Begin, level: str) -> None:
    before = children()
    link = begin(level)
    assert children() - before
    link.close()
    assert not children() - before


@pytest.mark.parametrize("level", LEVELS)
def test_ends_when_its_front_is_killed(tmp_path: Path, level: str) -> None:
    script = tmp_path / "front.py"
    script.write_text(
        "import sys, time\nsys.path.insert(0, sys.argv[1])\n"
        "from tests.launch.test_interpreter import plans, interpreter\n"
        f"link, _ = interpreter.start_interpreter(sys.executable, {{}}, lambda python: plans({level!r}, python))\n"
        "print(link.wait()['pid'], flush=True)\ntime.sleep(60)\n"
    )
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, str(script), str(root)], stdout=subprocess.PIPE, text=True) as front:
        assert front.stdout is not None
        zygote = int(front.stdout.readline())
        front.kill()
    wait_for(lambda: not Path(f"/proc/{zygote}").exists())


def test_may_be_started_from_a_thread_that_ends(begin: Begin) -> None:
    # A death signal would be sent when the thread ends, not the process.
    found: list[ZygoteLink] = []
    thread = threading.Thread(target=lambda: found.append(begin("full")))
    thread.start()
    thread.join()
    time.sleep(0.1)
    ready = found[0].ready
    assert ready is not None and Path(f"/proc/{ready['pid']}").exists()


def test_inherits_nothing_but_one_socket(begin: Begin, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("planted")
    with secret.open() as file:
        os.set_inheritable(file.fileno(), True)
        link = begin("subprocess", LANG="C")
        ready = link.ready
        assert ready is not None
        entry = Path(f"/proc/{ready['pid']}")
        opened = [os.readlink(fd) for fd in (entry / "fd").iterdir()]
    assert str(secret) not in opened
    assert entry.joinpath("environ").read_bytes() == b"LANG=C\0"


def test_a_plan_survives_being_written_down() -> None:
    for plan in plans("full") + plans("seccomp+landlock"):
        assert text.loads(text.dumps([plan])) == [plan]


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("/nonexistent/python", "cannot be started"),
        ("/bin/false", "did not start"),
        ("#!/bin/sh\necho 'no such luck' >&2; exit 3\n", "no such luck"),
        ("#!/bin/sh\nexec " + sys.executable + ' -c \'import socket, sys; socket.socket(fileno=int(sys.argv[3])).send('
         'b"{\\"executable\\": \\"old\\", \\"version\\": [3, 8, 1], \\"prefixes\\": [], \\"path\\": []}")\' "$@"\n',
         "3.8.1"),
    ],
)  # fmt: skip
def test_an_interpreter_that_cannot_be_used_is_an_error(tmp_path: Path, program: str, said: str) -> None:
    if program.startswith("#!"):
        path = tmp_path / "python"
        path.write_text(program)
        path.chmod(0o755)
        program = str(path)
    gc.collect()  # what other tests have left
    before, others = set(os.listdir("/proc/self/fd")), children()
    with pytest.raises(IsolationUnavailable, match=said) as caught:
        interpreter.start_interpreter(program, {}, lambda python: plans("full", python))
    assert "worker.python" in str(caught.value)
    assert set(os.listdir("/proc/self/fd")) <= before and children() <= others


def test_an_environment_without_ipykernel_says_so(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True, timeout=50)
    python = str(tmp_path / "bare" / "bin" / "python")
    link, _ = interpreter.start_interpreter(python, {}, lambda python: plans("full", python))
    try:
        with pytest.raises(IsolationUnavailable, match="No module named"):
            link.wait()
    finally:
        link.close()
