"""Links, renames and races in places that the sandbox may write."""

from __future__ import annotations

from ..attempt import LANDLOCK, MOUNTS, Attempt


def _link(name: str, what: str, code: str, **more: object) -> Attempt:
    return Attempt(f"link-{name}", what, code, MOUNTS, LANDLOCK, **more)  # type: ignore[arg-type]


_RACE = """
stop = []
open('inner', 'w').write('inner')
os.symlink(FILE, 'outer')
def swap():
    while not stop:
        {swap}
thread = threading.Thread(target=swap)
thread.start()
until = time.monotonic() + 0.15
while time.monotonic() < until:
    with contextlib.suppress(OSError):
        text = open('door').read()
        if text != 'inner' and text: out = text
stop.append(1)
thread.join()
"""

ATTEMPTS = [
    _link("in-workspace", "follow a link in the workspace that leads out",
        "os.symlink(FILE, 'door')\nout = open('door').read()"),
    _link("to-folder", "list through a link to a folder", "os.symlink(FOLDER, 'door')\nout = os.listdir('door/dir')"),
    _link("relative", "follow a relative link that climbs",
          "os.symlink(os.path.relpath(FILE, os.getcwd()), 'door')\nout = open('door').read()"),
    _link("chain", "follow a chain of links through /proc",
          "os.symlink('/proc/self/root', 'one')\nos.symlink('one' + FILE, 'two')\nout = open('two').read()"),
    _link("in-temporary", "follow a link in the temporary folder",
          "import tempfile\npath = tempfile.mkdtemp() + '/door'\nos.symlink(FILE, path)\nout = open(path).read()"),
    _link("hard", "give a file outside a name in the workspace", "os.link(FILE, 'mine')\nout = open('mine').read()"),
    _link("hard-by-descriptor", "do it by a descriptor that only names it",
          "fd = os.open(FILE, os.O_PATH)\nlibc.linkat(-100, f'/proc/self/fd/{fd}'.encode(), -100, b'mine', 0x400)\n"
          "out = open('mine').read()"),
    _link("path-descriptor", "open anew a descriptor that only names it",
          "fd = os.open(FILE, os.O_PATH)\nout = open(f'/proc/self/fd/{fd}').read()"),
    _link("write-through", "write through a link", "os.symlink(FILE, 'door')\nopen('door', 'a').write('x')",
        effect="changed"),
    _link("create-through", "make a file through a link that leads nowhere yet",
          "os.symlink(FOLDER + '/new', 'door')\nopen('door', 'w').close()", effect="changed"),
    _link("race", "swap a link and a file while opening",
        _RACE.format(swap="os.link('inner', 'a'); os.rename('a', 'door'); "
                          "os.symlink(FILE, 'b'); os.rename('b', 'door')")),
    _link("race-exchange", "exchange a link and a file while opening",
        "open('door', 'w').write('inner')\n" + _RACE.format(
        swap="raw(NR['renameat2'], -100, b'door', -100, b'outer', 2)")),
    _link("moved-out-folder", "hold a folder that a host program moves out, then climb from it",
          "os.mkdir('mine')\nheld = os.open('mine', os.O_RDONLY)",
          after="os.rename(WORKSPACE + '/mine', FOLDER + '/mine')",
          then="out = os.read(os.open('../file', os.O_RDONLY, dir_fd=held), 99)"),
    _link("moved-out-cwd", "be in a folder that a host program moves out, then climb",
          "os.mkdir('mine')\nos.chdir('mine')", after="os.rename(WORKSPACE + '/mine', FOLDER + '/mine')",
          then="try: out = open('../file').read()\nfinally: os.chdir(os.environ.get('HOME', '/'))"),
]
