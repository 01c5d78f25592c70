"""Living on after the kernel, or being run by somebody outside later."""

from __future__ import annotations

from ..attempt import LANDLOCK, PIDS, Attempt

_BEAT = """
def beat():
    with contextlib.suppress(OSError):
        while True:
            with open(BEAT, 'a') as file: file.write('x')
            time.sleep(0.01)
    os._exit(0)
"""
_WAIT = """
until = time.monotonic() + 2
while not os.path.exists(BEAT) and time.monotonic() < until: time.sleep(0.005)
"""
_HUNT = "the zygote's hunt"
_PLANT = "open({path}, 'w').write(f'open({{MARKER!r}}, \"w\").close()')\n"
_LATER = "subprocess.run([sys.executable, '-P', '-B', '-c', 'pass'], cwd=WORKSPACE, capture_output=True, timeout=20)"
_IMPORTS = "the workspace is read-only when the import path leads through it"


def _lives(name: str, what: str, code: str, **more: object) -> Attempt:
    return Attempt(f"daemon-{name}", what, _BEAT + code + _WAIT, PIDS, _HUNT, "survived", **more)  # type: ignore[arg-type]


ATTEMPTS = [
    _lives("session", "start a process in a session of its own", "if os.fork() == 0:\n    os.setsid()\n    beat()\n"),
    _lives("double-fork", "start one whose parent has ended",
           "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: beat()\n    os._exit(0)\n"),
    _lives("deaf", "start one that ignores all signals",
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        for n in range(1, 65):\n"
        "            with contextlib.suppress(OSError, ValueError): signal.signal(n, signal.SIG_IGN)\n"
        "        beat()\n    os._exit(0)\n"),
    _lives("leaderless", "start one whose first thread has ended, so that it looks dead",
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        threading.Thread(target=beat).start()\n        raw(NR['exit'], 0)\n    os._exit(0)\n"),
    _lives("renamed", "start one with a name that confuses whoever reads /proc",
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        libc.prctl(15, b') Z 1 1 1')\n        beat()\n    os._exit(0)\n"),
    _lives("program", "leave it to a program",
        'subprocess.Popen([\'sh\', \'-c\', \'while echo x >> "$0"; do sleep 0.01; done\', BEAT], '
        "start_new_session=True,\n"
        "                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"),
    Attempt("leaderless-worker", "end the own first thread, so that nobody can end the rest",
        _BEAT + "for n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\nthreading.Thread(target=beat).start()\n" + _WAIT
        + "raw(NR['exit'], 0)",
        PIDS, _HUNT, "stuck"),
    Attempt("deaf-worker", "ignore every signal and go on",
        "for n in range(1, 65):\n    with contextlib.suppress(OSError, ValueError): signal.signal(n, signal.SIG_IGN)\n"
        + _BEAT + "beat()",
        "SIGKILL by the zygote", "SIGKILL by the zygote", "stuck"),
    Attempt("plant-missing", "plant a module in a folder on the import path that does not exist yet",
            "os.mkdir(WORKSPACE + '/absent')\n" + _PLANT.format(path="WORKSPACE + '/absent/sitecustomize.py'"),
            _IMPORTS, _IMPORTS, "ran", after=_LATER, stage="import-path"),
    Attempt("plant-link", "put a folder with a module at the place of a link on the import path",
            "os.unlink(WORKSPACE + '/current')\nos.mkdir(WORKSPACE + '/current')\n"
            + _PLANT.format(path="WORKSPACE + '/current/sitecustomize.py'"),
            _IMPORTS, _IMPORTS, "ran", after=_LATER, stage="import-path"),
    Attempt("plant-module", "plant a module in a folder on the import path",
        _PLANT.format(path="WORKSPACE + '/deep/pkgs/sitecustomize.py'"), "read-only mount", LANDLOCK, "ran",
        after=_LATER, stage="protected"),
    Attempt("plant-moved", "move the folder above one on the import path and make another",
        "os.rename(WORKSPACE + '/deep', WORKSPACE + '/deep-moved')\nos.makedirs(WORKSPACE + '/deep/pkgs')\n"
        + _PLANT.format(path="WORKSPACE + '/deep/pkgs/sitecustomize.py'"),
        "a mount on each folder above it", LANDLOCK, "ran", after=_LATER, stage="protected"),
]
