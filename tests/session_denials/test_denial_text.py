"""The sentences at the end of a cell: on refused calls, and guesses about errors with files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sandbox_kernel.seccomp.table import TOLD
from sandbox_kernel.session.denial_text import PlanFacts, denial_line, file_hint, limit_hint
from sandbox_kernel.session.denials import KINDS, Denial
from tests.launch.test_launch import LEVELS, UIDS, Front, _front

NET, LEVEL = "network.mode", "isolation.level"


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("MemoryError", "", "One process may hold 3.5 GiB of memory in this sandbox: seven eighths of limits.memory"),
        ("_ArrayMemoryError", "Unable to", "One process may hold 3.5 GiB of memory"),
        ("RuntimeError", "can't start new thread", "may have 256 processes and threads: limits.processes"),
        ("BlockingIOError", "[Errno 11] Resource temporarily unavailable", "limits.processes"),
        ("OSError", "[Errno 24] Too many open files: 'x'", "One process may have 1,024 files open: limits.open_files"),
        ("OSError", "[Errno 27] File too large", "A file may have 1 GiB: limits.file_size and limits.disk"),
        ("OSError", "[Errno 28] No space left on device", "limits.home, limits.disk in the policy."),
        ("OSError", "[Errno 75] Value too large for defined data type: 'a.csv'", "belongs to another user or group"),
    ],
)
def test_an_error_that_a_limit_causes_names_it(name: str, text: str, line: str) -> None:
    facts = replace(FULL, process_memory=7 << 29, processes=256, open_files=1024, file_size=1 << 30, layered=True)
    assert line in str(limit_hint(name, text, facts))


@pytest.mark.parametrize("name", ["ValueError", "RuntimeError", "BlockingIOError", "OSError", "MyMemoryError"])
def test_other_errors_are_no_limits(name: str) -> None:
    assert limit_hint(name, "[Errno 2] can't start new thread", replace(FULL, process_memory=1, processes=1)) is None
    assert limit_hint("MemoryError", "", FULL) is None, "not known"


@pytest.mark.parametrize("text", ["[Errno 24] inotify instance limit reached", "[Errno 28] inotify watch limit"])
def test_watches_are_neither_files_nor_folders(text: str) -> None:
    assert limit_hint("OSError", text, replace(FULL, open_files=1024)) is None


def test_no_semaphores_is_said_where_there_are_none() -> None:
    error = ("PermissionError", "[Errno 13] Permission denied")
    assert "multiprocessing" in str(limit_hint(*error, replace(FULL, level="seccomp+landlock")))
    assert limit_hint(*error, FULL) is None
    assert limit_hint(error[0], f"{error[1]}: 'a.txt'", replace(FULL, level="seccomp+landlock")) is None


def test_where_cells_may_write_is_said_where_reading_and_writing_are_refused_alike() -> None:
    facts = replace(FULL, level="seccomp+landlock")
    said = str(file_hint("PermissionError", "[Errno 13] Permission denied: '/data'", facts))
    assert "Cells can write to" in said and "files.read" in said


def test_a_full_disk_is_no_private_folder_where_those_have_no_size() -> None:
    assert limit_hint("OSError", "[Errno 28] No space left on device", replace(FULL, level="seccomp+landlock")) is None


def test_no_denial_no_line() -> None:
    assert denial_line([]) is None


def test_one_line_names_the_call_the_attempts_and_the_rule() -> None:
    assert denial_line([Denial("socket", "AF_INET", 3, "network", NET)]) == (
        "Network access is blocked by the sandbox policy (socket AF_INET, 3 attempts); "
        'network.mode is "none" and has no other value yet: put what cells need into their folder, as files.'
    )
    assert denial_line([Denial("ptrace", "", 1, "other processes", LEVEL)]) == (
        "Tracing and reading other processes is refused in the sandbox (ptrace, 1 attempt); no policy allows it."
    )
    local = denial_line([Denial("socket", "AF_UNIX", 1, "network", LEVEL), Denial("bind", "", 2, "network", LEVEL)])
    assert local is not None and local.startswith("Local sockets cannot be made at this isolation level (socket AF_UN")
    pairs = denial_line([Denial("socketpair", "AF_UNIX SOCK_DGRAM", 1, "network", LEVEL)])
    assert pairs is not None and "Datagram socket pairs" in pairs


def test_every_kind_has_its_words() -> None:
    for kind, names in TOLD.items():
        call = names.split()[0]
        line = denial_line([Denial(call, "", 1, kind, NET)])
        assert line is not None and line.endswith(".") and call in line
    assert {KINDS[name] for names in TOLD.values() for name in names.split()} == set(TOLD)


def test_many_kinds_and_many_details_stay_one_line() -> None:
    many = [Denial(names.split()[0], "x", 5, kind, NET) for kind, names in TOLD.items()]
    many += [Denial("socket", f"family {n}", 1, "network", NET) for n in range(60)]
    line = denial_line(many)
    assert line is not None and "\n" not in line and len(line) < 700
    assert "others, 58 attempts" in line
    assert line.endswith("Further system calls were refused (25 attempts).")
    assert denial_line([Denial("system call 9", "", 1_000_000, "new kind", LEVEL)]) is not None
    assert "1,000,000 attempts" in str(denial_line([Denial("socket", "AF_INET", 1_000_000, "network", NET)]))


FULL = PlanFacts(
    level="full", cwd="/home/u/course", workspace="/home/u/course", writable=True, closed_top=False,
    shown=("/usr", "/lib", "/home/u/venv", "/data/shared", "/home/u/course/venv"),
    private=("/tmp", "/home/sandbox", "/dev/shm"), home="/home/sandbox",
    hidden=("/home/u/course/.ssh",), protected=("/home/u/course/venv",),
)  # fmt: skip
LOCAL = PlanFacts(
    level="seccomp+landlock", cwd="/home/u/course", workspace="/home/u/course", writable=False, closed_top=True,
    shown=("/usr", "/lib", "/etc/passwd", "/proc/meminfo"), private=("/tmp/sandbox-1/tmp", "/tmp/sandbox-1/home"),
    home="/tmp/sandbox-1/home",
)  # fmt: skip
MISSING, DENIED, READ_ONLY, FORBIDDEN = (
    ("FileNotFoundError", "[Errno 2] No such file or directory: {!r}"),
    ("PermissionError", "[Errno 13] Permission denied: {!r}"),
    ("OSError", "[Errno 30] Read-only file system: {!r}"),
    ("PermissionError", "[Errno 1] Operation not permitted: {!r}"),
)

HINTS = [
    (FULL, MISSING, "/data/train.csv", "files.read"),
    (FULL, MISSING, "/home/u/other/x.csv", "files.read"),
    (FULL, MISSING, "../data/train.csv", "files.read"),
    (FULL, MISSING, "/home/u/course2/x", "files.read"),
    (FULL, DENIED, "/root/x", "files.read"),
    (FULL, READ_ONLY, "/data", "write to the notebook's folder"),
    (FULL, MISSING, "/home/sandbox/data.csv", "starts empty"),
    (FULL, MISSING, "/etc/shadow", "small part of /etc"),
    (FULL, MISSING, "/dev/nvidia0", "Devices"),
    (FULL, MISSING, "/sys/class/net", "Devices"),
    (FULL, DENIED, "/proc/kallsyms", "closed"),
    (FULL, READ_ONLY, "/proc/sys/kernel/hostname", "closed"),
    (FULL, READ_ONLY, "/usr/lib/x", "read-only"),
    (FULL, READ_ONLY, "/data/shared/out.csv", "read-only"),
    (FULL, DENIED, "/home/u/course/.ssh/id", "hidden"),
    (FULL, MISSING, ".ssh/id_rsa", "hidden"),
    (FULL, READ_ONLY, "venv/lib/x.py", "belongs to the kernel"),
    (LOCAL, DENIED, "/data/train.csv", "files.read"),
    (LOCAL, DENIED, "out.csv", "files.workspace"),
    (LOCAL, READ_ONLY, "/home/u/course/out.csv", "files.workspace"),
    (LOCAL, DENIED, "/usr/lib/x", "read-only"),
    (LOCAL, DENIED, "/etc/shadow", "small part of /etc"),
    (LOCAL, DENIED, "/proc/1/environ", "closed"),
]


@pytest.mark.parametrize(("facts", "error", "path", "wanted"), HINTS)
def test_hint(facts: PlanFacts, error: tuple[str, str], path: str, wanted: str) -> None:
    hint = file_hint(error[0], error[1].format(path), facts)
    assert hint is not None and wanted in hint and "\n" not in hint


QUIET = [
    (FULL, MISSING, "train.csv"),
    (FULL, MISSING, "data/train.csv"),
    (FULL, MISSING, "./x/../train.csv"),
    (FULL, MISSING, "/home/u/course/deep/train.csv"),
    (FULL, MISSING, "/home/u/course"),
    (FULL, DENIED, "secret-mode"),
    (FULL, FORBIDDEN, "file-to-chown"),
    (FULL, MISSING, "ffmpeg"),  # a program that is not installed
    (FULL, MISSING, "/usr/bin/ffmpeg"),
    (FULL, MISSING, "/tmp/x"),
    (FULL, MISSING, "/dev/shm/psm_1"),
    (FULL, MISSING, "/home/sandbox/.config/tool/settings"),
    (FULL, MISSING, "/home/u/venv/lib/x.py"),
    (FULL, MISSING, "/data/shared/none.csv"),
    (FULL, DENIED, "/data/shared/closed.csv"),
    (FULL, MISSING, "/proc/4242/stat"),
    (FULL, MISSING, "~/x.csv"),  # Python does not expand it: a name in the workspace
    (LOCAL, MISSING, "/data/train.csv"),  # what exists is EACCES at this level
    (LOCAL, MISSING, "../data/train.csv"),
    (LOCAL, MISSING, "/etc/none"),
    (LOCAL, MISSING, "out.csv"),
    (LOCAL, FORBIDDEN, "out.csv"),
    (LOCAL, DENIED, "/tmp/sandbox-1/tmp/x"),
]


@pytest.mark.parametrize(("facts", "error", "path"), QUIET)
def test_ordinary_errors_get_no_hint(facts: PlanFacts, error: tuple[str, str], path: str) -> None:
    assert file_hint(error[0], error[1].format(path), facts) is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ValueError", "[Errno 2] No such file or directory: '/data/x'"),
        ("KeyError", "'/data/x'"),
        ("PermissionError", "[Errno 1] Operation not permitted"),
        ("PermissionError", "[Errno 13] Permission denied"),
        ("OSError", "[Errno 28] No space left on device: '/data/x'"),
        ("OSError", "[Errno 98] Address already in use"),
        ("FileNotFoundError", "[Errno 2] No such file or directory: ''"),
        ("FileNotFoundError", "[Errno 2] No such file or directory: 7"),
        ("FileNotFoundError", "no such thing"),
        ("OSError", ""),
        ("OSError", "[Errno 99999999999] x: '/data/x'"),
    ],
)
def test_other_errors_get_no_hint(name: str, text: str) -> None:
    assert file_hint(name, text, FULL) is None


def test_other_forms_of_the_error() -> None:
    for text in (
        "[Errno 2] No such file or directory: 'ok.csv' -> '/data/x.csv'",
        "[Errno 2] Failed to open local file '/data/x.csv'. Detail: [errno 2] No such file or directory",
        "No such file or directory (os error 2): /data/x.csv",
        "[Errno 2] No such file or directory: \"/data/it's x.csv\"",
    ):
        hint = file_hint("FileNotFoundError", text, FULL)
        assert hint is not None and "files.read" in hint


def test_hostile_texts_are_harmless() -> None:
    paths = ("/data/\x1b[31mred", "/data/" + "x" * 3000, "/data/a\x00b", "/data/\u202eevil", "/data/\ud800", "/" * 900)
    for path in paths:
        for text in (MISSING[1].format(path), f"[Errno 2] x: '{path}'"):
            hint = file_hint("FileNotFoundError", text, FULL)
            assert hint is None or (len(hint) < 400 and hint.isprintable() and hint.encode())
    assert file_hint("OSError", "[Errno 30] " + "'" * 100_000, FULL) is None
    assert file_hint("OSError", "[Errno 30]" * 10_000, FULL) is None
    assert file_hint("OSError", "(os error 2): " + "(os error 2): " * 10_000, FULL) is None


# -- against the errors of real sandboxes --------------------------------------------------------------------


@pytest.fixture(
    scope="module", params=[(u, lv) for u in UIDS for lv in LEVELS], ids=lambda p: f"{p[0]}-{p[1]}"
)
def running(request: pytest.FixtureRequest) -> Iterator[Front]:
    with _front(*request.param) as front:
        assert front.start()["event"] == "ready", front.ready
        front.worker()
        yield front


def error_of(front: Front, code: str) -> Any:
    text = f"""
try:
    exec({code!r})
    result = None
except Exception as error:
    result = type(error).__name__, str(error)"""
    return front.ask(text)


REAL = {
    "open('/root/x')": (True, None),
    "open('/root/x', 'w')": (True, None),
    "open('/usr/new', 'w')": (True, True),
    "import os; os.mkdir('/usr/new')": (True, True),
    "open('/etc/shadow')": (True, True),
    "import os; os.listdir('/proc/1/fd')": (True, True),
    "open('none.csv')": (False, False),
    "open('deep/none.csv')": (False, False),
    "open('/usr/bin/none')": (False, False),
    "import tempfile; open(tempfile.gettempdir() + '/none')": (False, False),
    "import subprocess; subprocess.run(['no-such-program'])": (False, False),
    "import os; open('closed', 'w').close(); os.chown('closed', 3, 3)": (False, None),
    "import os; open('~/none')": (False, False),
    "import os; open(os.path.expanduser('~/none.csv'))": (True, True),
    "import socket; socket.socket(socket.AF_INET)": (False, False),
    "1 / 0": (False, False),
}


@pytest.mark.parametrize("code", REAL)
def test_hints_for_errors_of_a_sandbox(running: Front, code: str) -> None:
    error = error_of(running, code)
    assert error is not None, "it was allowed"
    wanted = REAL[code][running.level != "full"]
    hint = running("hint", *error)
    if wanted is not None:
        assert (hint is not None) == wanted, (error, hint)


def test_hint_for_a_file_that_is_there_and_everybody_may_read(tmp_path: Path) -> None:
    """Without mounts it is refused; with them it is not there (see "/root/x" above)."""
    with _front(os.geteuid(), "seccomp+landlock") as front:
        front.start()
        front.worker()
        (tmp_path / "data").write_text("data")
        hint = front("hint", *error_of(front, f"open({str(tmp_path / 'data')!r})"))
        assert hint is not None and "files.read" in hint
        assert front("hint", *error_of(front, f"open({str(tmp_path / 'none')!r})")) is None


def test_hints_for_a_read_only_workspace() -> None:
    for level in LEVELS:
        with _front(os.geteuid(), level, policy={"files": {"workspace": "read-only"}}) as front:
            (front.workspace / "data").write_text("data")
            front.start()
            front.worker()
            acts = ("open('new', 'w')", "open('data', 'a')", "import os; os.mkdir('x')", "import os; os.unlink('data')")
            for code in acts:
                hint = front("hint", *error_of(front, code))
                assert hint is not None and "files.workspace" in hint, (level, code, hint)
            assert front("hint", *error_of(front, "open('none')")) is None
