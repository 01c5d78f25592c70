"""What a cell leaves in its private folder does not outlive the sandbox (without namespaces it is on the disk)."""

from __future__ import annotations

import os
import resource
import shutil
from pathlib import Path

import pytest

from sandbox_kernel.launch import scratch
from tests.launch.test_launch import UIDS, _front

DEEP = "for _ in range({depth}):\n    os.mkdir('d')\n    os.chdir('d')\nopen('x', 'w').close()"
LEAVINGS = {
    "deeper than any recursion": DEEP.format(depth=1500),
    "folders that their owner may not list": "os.makedirs('a/b')\nopen('a/b/x', 'w').close()\nos.umask(0o777)\n"
    "os.mkdir('a/c')\nos.mkdir('c')\nos.umask(0o22)",
    "very many names": "for n in range(1500): os.mkdir(f'n{n}')",
    "links to folders outside": "os.symlink(OUTSIDE, 'door')\nos.mkdir('a')\nos.symlink(OUTSIDE, 'a/door')",
}


@pytest.mark.parametrize("uid", UIDS)
@pytest.mark.parametrize("what", LEAVINGS)
def test_nothing_is_left_of_the_private_folder(uid: int, what: str, tmp_path: Path) -> None:
    (tmp_path / "kept").touch()
    with _front(uid, "seccomp+landlock") as front:
        front.start()
        front.worker()
        private = Path(front.ask("result = os.environ['TMPDIR']")).parent
        code = "os.chdir(os.environ['TMPDIR'])\n" + LEAVINGS[what] + "\nresult = 'left'"
        done = front.ask(code, OUTSIDE=str(tmp_path))
        assert done == "left"
        front("close")
    try:
        assert not private.exists()
        assert (tmp_path / "kept").exists()
    finally:
        scratch.remove(str(private))


def test_the_usual_way_leaves_it(tmp_path: Path) -> None:
    """Why there is a way of our own."""
    (tmp_path / "private").mkdir()
    before = Path.cwd()
    os.chdir(tmp_path / "private")
    try:
        exec(DEEP.format(depth=3000), {"os": os})
    finally:
        os.chdir(before)
    # One frame or (since Python 3.13) one descriptor a folder, and of descriptors a process has 1,024 where nobody
    # has raised that.
    before_fds = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before_fds[1]))
    try:
        with pytest.raises((RecursionError, OSError)):
            shutil.rmtree(tmp_path / "private")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before_fds)
    assert (tmp_path / "private").exists()
    scratch.remove(str(tmp_path / "private"))
    assert not (tmp_path / "private").exists()
