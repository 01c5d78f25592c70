"""The private layer over the notebook's folder, or the private folder in its place, in a running kernel."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel import frames

from .conftest import LEVELS, Running, Start, starting

POLICY = '[files]\nworkspace = "overlay"\n'
SECRET = "the-persons-own-secret"
SECRETS = (
    ".env", ".git/config", ".ssh/id_ed25519", ".bash_history", ".ipython/profile_default/history.sqlite",
    ".jupyter/jupyter_server_config.json", ".local/share/jupyter/runtime/kernel-1.json", "kernel-2.json",
    "jpserver-1.json", "jupyter_cookie_secret", "server.pem", "TLS.KEY", "id_rsa", "credentials.json",
    "sub/.env", "sub/deep/.git/config", "sub/deep/token.json",
)  # fmt: skip


@pytest.fixture(scope="module", params=LEVELS)
def kernel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    top = tmp_path_factory.mktemp("files")
    folder = top / "home"
    for name in SECRETS:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(SECRET)
    (folder / "data.csv").write_text("a,b\n1,2\n")
    (folder / "sub" / "inner.txt").write_text("inner")
    with starting(top) as start:
        kernel = start(request.param, policy=POLICY, folder=folder)
        kernel.good("import os")
        yield kernel


def _disk(folder: Path) -> set[str]:
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}
    return found - set(SECRETS)


def test_data_is_kept_and_code_is_not(kernel: Running) -> None:
    code = "open('out.csv', 'w').write('x'); open('helper.py', 'w').write('y = 1'); import helper"
    outcome = kernel.good(code, allow_stdin=True)
    assert "[Kept next to the notebook: out.csv]" in outcome.stderr
    assert "(not among files.keep): helper.py" in outcome.stderr
    assert "out.csv" in _disk(kernel.folder) and "helper.py" not in _disk(kernel.folder)
    assert "`sandbox-kernel files --keep NAME`" in outcome.stderr
    assert kernel.good("print(helper.y)").stderr == "", "what did not change is not told again"
    assert kernel.good("open('out.csv', 'w').write('xx')", allow_stdin=True).stderr == "", "nor the same file"
    assert (kernel.folder / "out.csv").read_text() == "xx"


def test_a_document_does_not_say_what_was_kept(kernel: Running) -> None:
    """A runner has no person: what it makes is compared and shown to others."""
    assert kernel.good("open('run.csv', 'w').write('x')", allow_stdin=False).stderr == ""
    assert (kernel.folder / "run.csv").read_text() == "x"


def test_what_a_person_makes_of_a_kept_file_is_read(kernel: Running) -> None:
    kernel.good("for name in ('edited.csv', 'removed.csv'): open(name, 'w').write('cell')")
    _put(kernel.folder / "edited.csv", "person")
    (kernel.folder / "removed.csv").unlink()
    code = "print(open('edited.csv').read(), os.path.exists('removed.csv'), 'removed.csv' in os.listdir())"
    assert kernel.good(code).stdout == "person False False\n"


def test_a_cell_can_wait_for_a_file(kernel: Running) -> None:
    wait = "import time\nwhile not os.path.exists('awaited.txt'): print('.', flush=True); time.sleep(.05)"
    request = kernel.begin(wait, ".")
    (kernel.folder / "awaited.txt").touch()
    while kernel.client.get_shell_msg(timeout=60)["parent_header"]["msg_id"] != request:
        pass


def test_code_that_a_cell_writes_runs(kernel: Running) -> None:
    kernel.good("%%writefile written.py\nname = 'module'\nprint('ran')")
    assert kernel.good("import written; print(written.name)").stdout == "ran\nmodule\n"
    assert kernel.good("%run written.py").stdout == "ran\n"


def test_an_exported_variable_is_kept(kernel: Running) -> None:
    kernel.good("x = [1, 2]")
    assert "[Kept next to the notebook: x.frame]" in kernel.good("%sandbox export x").stdout
    assert frames.load_file(kernel.folder / "x.frame") == [1, 2]
    assert "(not among files.keep): x.py" in kernel.good("%sandbox export x x.py").stdout


def test_what_is_on_the_disk_stays_as_it_is(kernel: Running) -> None:
    (kernel.folder / "mine.csv").write_text("theirs")
    kernel.good("os.rename('mine.csv', 'moved.csv')\nassert open('moved.csv').read() == 'theirs'")
    kernel.good("os.mkdir('new'); os.rename('moved.csv', 'new/c.csv')")
    kernel.good("import shutil; shutil.rmtree('new'); shutil.rmtree('sub'); assert 'mine.csv' not in os.listdir()")
    assert (kernel.folder / "mine.csv").read_text() == "theirs" and (kernel.folder / "sub" / "inner.txt").exists()


def test_writing_over_what_is_there(kernel: Running) -> None:
    outcome = kernel.run("open('data.csv', 'a').write('3,4')")  # (in a test of its own: what is told is told once)
    if outcome.ok:  # in a layer
        assert "not the sandbox's): data.csv" in outcome.stderr
    else:
        assert "belongs to the notebook's folder" in outcome.stderr
        assert 'files.workspace = "read-write"' in outcome.stderr
        kernel.good("text = open('data.csv').read(); os.remove('data.csv'); open('data.csv', 'w').write(text + '3,4')")
    assert "3,4" in kernel.good("print(open('data.csv').read())").stdout
    assert (kernel.folder / "data.csv").read_text() == "a,b\n1,2\n"


def test_a_database_that_is_there(kernel: Running) -> None:
    with contextlib.closing(sqlite3.connect(kernel.folder / "mine.db")) as con:
        con.execute("create table t(a)")
    insert = "con = sqlite3.connect({!r})\nwith con: con.execute('insert into t values (1)')\ncon.close()"
    outcome = kernel.run("import sqlite3\n" + insert.format("mine.db"))
    if not outcome.ok:  # below a layer
        assert "A database of the notebook's folder can be read here, not changed." in outcome.stderr
        kernel.good("import shutil; shutil.copy('mine.db', 'copy.db')")
        kernel.good(insert.format("copy.db"))
    with contextlib.closing(sqlite3.connect(kernel.folder / "mine.db")) as con:
        assert con.execute("select a from t").fetchall() == []


def test_ordinary_work(kernel: Running) -> None:
    kernel.good(
        "import pandas as pd, numpy as np, matplotlib.pyplot as plt, sqlite3, tempfile, zipfile, joblib\n"
        "df = pd.DataFrame({'a': [1], 'b': [2]}); df.to_csv('a.csv'); df = pd.read_csv('a.csv', index_col=0)\n"
        "df.to_parquet('a.parquet'); df.to_excel('a.xlsx')\n"
        "plt.plot([1, 2]); plt.savefig('a.png'); plt.close(); np.save('a.npy', np.arange(3))\n"
        "con = sqlite3.connect('a.db'); df.to_sql('t', con); con.commit(); con.close()\n"
        "os.makedirs('d/e'); open('d/e/a.txt', 'w').write('x'); os.rename('d/e/a.txt', 'd/b.txt')\n"
        "with zipfile.ZipFile('a.zip', 'w') as z: z.write('a.csv')\n"
        "with tempfile.NamedTemporaryFile(dir='.') as t: t.write(b'x')\n"
        "memory = joblib.Memory('cache', verbose=0); memory.cache(len)([1])",
        timeout=60,
    )
    kept = _disk(kernel.folder)
    assert {"a.csv", "a.parquet", "a.xlsx", "a.png", "a.npy", "a.db", "d/b.txt"} <= kept
    assert not any(name.endswith(".py") for name in kept) and "a.zip" not in kept
    with sqlite3.connect(kernel.folder / "a.db") as con:
        assert con.execute("select a from t").fetchall() == [(1,)]
    con.close()


def test_hostile_names_and_links_do_not_leave(kernel: Running) -> None:
    before = _disk(kernel.folder)
    kernel.good(
        "os.symlink('/etc/hostname', 'l.csv'); os.symlink('/', 'root'); os.mkfifo('f.csv')\n"
        "for name in ('.envrc', '.bashrc', 'x.py', 'n\\n.csv', '-f.csv', 'conftest.py', 'Untitled.ipynb'):\n"
        "    open(name, 'w').write('x')"
    )
    assert _disk(kernel.folder) == before


LOOK = """
import os
found = []
for top in (os.getcwd(), FOLDER):
    for name in NAMES:
        try:
            found.append(open(os.path.join(top, name)).read())
        except OSError:
            pass
    for folder, folders, files in os.walk(top):
        for name in files:
            try:
                if os.path.isfile(os.path.join(folder, name)):
                    found.append(open(os.path.join(folder, name), errors='replace').read())
            except OSError:
                pass
print(sum(SECRET in text for text in found), len(found) > 0)
"""


def _look(kernel: Running) -> str:
    names = (*SECRETS, *(f"door{n}" for n in range(3)))
    values = f"FOLDER, NAMES, SECRET = {str(kernel.folder)!r}, {names!r}, {SECRET!r}\n"
    return kernel.good(values + LOOK).stdout


def test_no_secret_is_to_be_read(kernel: Running) -> None:
    assert sum(SECRET in (kernel.folder / name).read_text() for name in SECRETS) == len(SECRETS), "they are there"
    assert _look(kernel) == "0 True\n"
    outcome = kernel.run("open('.env')")
    assert "files.hide" in outcome.stderr


def test_no_link_to_a_secret_helps(kernel: Running) -> None:
    kernel.good(f"for n, name in enumerate(['.env', '.git/config', 'sub/.env']):\n"
                f"    os.symlink(os.path.join({str(kernel.folder)!r}, name), f'door{{n}}')")  # fmt: skip
    assert _look(kernel) == "0 True\n"


def test_secrets_that_come_later(kernel: Running) -> None:
    for name in (".netrc", ".aws/credentials"):
        (kernel.folder / name).parent.mkdir(exist_ok=True)
        (kernel.folder / name).write_text(SECRET)
    try:
        outcome = kernel.good(
            f"for top in ('', {str(kernel.folder)!r}):\n    for name in ('.netrc', '.aws/credentials'):\n"
            "        try: print(open(os.path.join(top, name)).read())\n"
            "        except OSError as error: print(type(error).__name__)"
        )
        assert SECRET not in outcome.stdout and len(outcome.stdout.split()) == 4
    finally:
        (kernel.folder / ".netrc").unlink()


def test_hidden_names_can_be_made_anew(kernel: Running) -> None:
    kernel.good("os.makedirs('.git/hooks'); open('.git/hooks/pre-commit', 'w').write('x'); os.rename('.git', '.old')")
    assert not (kernel.folder / ".git" / "hooks").exists() and (kernel.folder / ".git" / "config").read_text() == SECRET
    assert _look(kernel) == "0 True\n"


def test_files_that_come_later_are_seen(kernel: Running) -> None:
    (kernel.folder / "later.csv").write_text("late")
    assert kernel.good("print(open('later.csv').read())").stdout == "late\n"


def _put(path: Path, text: str) -> None:
    """As editors save a file."""
    path.with_name("spare.tmp").write_text(text)
    path.with_name("spare.tmp").rename(path)


def test_what_other_programs_change_is_seen(kernel: Running) -> None:
    _put(kernel.folder / "notes.txt", "old")
    look = "import os; print(open('notes.txt').read(), os.path.exists('made.txt'), os.path.isdir('box'))"
    assert kernel.good(look).stdout == "old False False\n"
    _put(kernel.folder / "notes.txt", "new")
    (kernel.folder / "made.txt").touch()
    (kernel.folder / "box").mkdir()
    assert kernel.good(look).stdout == "new True True\n"
    (kernel.folder / "notes.txt").write_text("edited in place")
    (kernel.folder / "made.txt").unlink()
    assert kernel.good(look).stdout == "edited in place False True\n"


def test_the_front_holds_no_context_of_the_layer(kernel: Running) -> None:
    if os.geteuid() != 0:
        pytest.skip("an ordinary user's front has to hold it")
    kernel.good("1")
    folder = f"/proc/{kernel.pid}/fd"
    for _ in range(5):  # (it is picked, and closed again, four times a second at most)
        held = []
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):
                held.append(os.readlink(f"{folder}/{name}"))
        assert len(held) > 5
        if not any("fscontext" in link for link in held):
            return
    pytest.fail("the right to change a mount lies open in the front")


def test_modules_that_other_programs_make_are_found(kernel: Running) -> None:
    assert not kernel.run("import outer").ok
    _put(kernel.folder / "outer.py", "x = 1")
    assert kernel.good("import outer; print(outer.x)").stdout == "1\n"
    (kernel.folder / "package").mkdir()
    _put(kernel.folder / "package" / "__init__.py", "")
    assert not kernel.run("import package.inner").ok
    _put(kernel.folder / "package" / "inner.py", "y = 2")
    assert kernel.good("import package.inner; print(package.inner.y)").stdout == "2\n"


def test_a_cell_can_wait_for_a_file_and_so_can_a_copy(start: Start) -> None:
    kernel = start("full", policy=POLICY)
    wait = "import os, time\nwhile not os.path.exists('ready.txt'): print('.', flush=True); time.sleep(.1)"
    request = kernel.begin(wait, ".")
    (kernel.folder / "ready.txt").touch()
    while kernel.client.get_shell_msg(timeout=30)["parent_header"]["msg_id"] != request:
        pass
    # Also from a copy that goes on in a lost worker's place.
    _put(kernel.folder / "a.txt", "old")
    kernel.good("text = open('a.txt').read(); os.path.exists('b.txt')")
    kernel.good("%sandbox checkpoint here")
    assert "restored" in kernel.run("os._exit(3)").reply["evalue"]
    _put(kernel.folder / "a.txt", "new")
    _put(kernel.folder / "b.txt", "made")
    assert kernel.good("print(text, open('a.txt').read(), open('b.txt').read())").stdout == "old new made\n"


def test_the_layer_outlives_a_lost_worker(kernel: Running) -> None:
    kernel.good("open('survivor.py', 'w').write('y = 1')")
    kernel.run("os._exit(3)")
    kernel.good("import survivor, os; assert survivor.y == 1")


def test_it_has_a_size(start: Start) -> None:
    kernel = start("full", policy=f'{POLICY}[limits]\ndisk = "8MiB"\n')
    outcome = kernel.run("open('big.bin', 'wb').write(b'x' * (9 << 20))")
    assert outcome.reply["ename"] == "OSError" and "No space left" in outcome.reply["evalue"]
    assert kernel.good("print(6 * 7)").stdout == "42\n"


def test_a_notebook_in_the_home(start: Start, tmp_path: Path) -> None:
    kernel = start("full", policy=POLICY, env={"HOME": str(tmp_path)})  # the folder lies in the home
    kernel.good("import os\nassert 'work0' in os.getcwd()")
    outcome = kernel.run("print(os.listdir('..'))")
    assert "ipython" not in outcome.stdout


@pytest.mark.parametrize("level", LEVELS)
def test_no_folder_at_all(start: Start, level: str, tmp_path: Path) -> None:
    (tmp_path / "work0").mkdir()
    (tmp_path / "work0" / "data.csv").write_text(SECRET)
    kernel = start(level, policy='[files]\nworkspace = "none"\n')
    kernel.good("import os; assert os.listdir() == []; open('a.csv', 'w').write('x')")
    assert not kernel.run(f"print(open({str(kernel.folder / 'data.csv')!r}).read())").ok
    assert os.listdir(kernel.folder) == ["data.csv"]


# What cells may try so that the next start cannot find all names to hide: folders with hidden names, and more folders
# than are looked at, made for files whose names were too long to be written.
FILLERS = {
    "hidden names": "for n in range(600): os.mkdir(f'k{n}.pem'); open(f'k{n}.pem/x.csv', 'w').close()",
    "long names": "name = '\u4e2d' * 83 + '.csv'\n"
    "for n in range(6000): os.mkdir(f'z{n}'); open(f'z{n}/{name}', 'w').close()",
}


@pytest.mark.parametrize("filler", FILLERS)
@pytest.mark.parametrize("level", LEVELS)
def test_cells_cannot_show_secrets_to_the_next_start(start: Start, tmp_path: Path, level: str, filler: str) -> None:
    folder = tmp_path / "home"
    for name in SECRETS:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(SECRET)
    (folder / "data.csv").write_text("a")
    start(level, policy=POLICY, folder=folder).good(f"import os\n{FILLERS[filler]}", timeout=100)
    assert _look(start(level, policy=POLICY, folder=folder)) == "0 True\n"
    made = [path for path in folder.rglob("*.csv") if path.name != "data.csv"]
    assert len(made) == (500 if filler == "long names" else 0), "each with its folder"
    assert len(os.listdir(folder)) < 600
