"""The private layer over the notebook's folder, in a running kernel."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from .conftest import Running, Start

POLICY = '[files]\nworkspace = "overlay"\n'


@pytest.fixture
def kernel(start: Start) -> Running:
    kernel = start("full", policy=POLICY)
    (kernel.folder / "data.csv").write_text("a,b\n1,2\n")
    kernel.good("import os")
    return kernel


def _disk(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_data_is_kept_and_code_is_not(kernel: Running) -> None:
    outcome = kernel.good("open('out.csv', 'w').write('x'); open('helper.py', 'w').write('y = 1'); import helper")
    assert "[Kept next to the notebook: out.csv]" in outcome.stderr
    assert "(not among files.keep): helper.py" in outcome.stderr
    assert _disk(kernel.folder) == {"data.csv", "out.csv"}
    assert kernel.good("print(helper.y)").stderr == "", "what did not change is not told again"


def test_what_is_on_the_disk_stays_as_it_is(kernel: Running) -> None:
    kernel.good("open('data.csv', 'a').write('3,4'); os.rename('data.csv', 'b.csv')\nprint(open('b.csv').read())")
    kernel.good("os.mkdir('new'); os.rename('b.csv', 'new/c.csv')")
    assert (kernel.folder / "data.csv").read_text() == "a,b\n1,2\n"
    kernel.good("import shutil; shutil.rmtree('new'); assert 'data.csv' not in os.listdir()")
    assert (kernel.folder / "data.csv").exists()


def test_ordinary_work(kernel: Running) -> None:
    kernel.good(
        "import pandas as pd, numpy as np, matplotlib.pyplot as plt, sqlite3, tempfile, zipfile, joblib\n"
        "df = pd.read_csv('data.csv'); df.to_csv('a.csv'); df.to_parquet('a.parquet'); df.to_excel('a.xlsx')\n"
        "plt.plot([1, 2]); plt.savefig('a.png'); plt.close(); np.save('a.npy', np.arange(3))\n"
        "con = sqlite3.connect('a.db'); df.to_sql('t', con); con.commit(); con.close()\n"
        "os.makedirs('d/e'); open('d/e/a.txt', 'w').write('x'); os.rename('d/e/a.txt', 'd/b.txt')\n"
        "with zipfile.ZipFile('a.zip', 'w') as z: z.write('a.csv')\n"
        "with tempfile.NamedTemporaryFile(dir='.') as t: t.write(b'x')\n"
        "memory = joblib.Memory('cache', verbose=0); memory.cache(len)([1])",
        timeout=60,
    )
    kept = _disk(kernel.folder)
    assert {"a.csv", "a.parquet", "a.xlsx", "a.png", "a.npy", "a.db", "d", "d/b.txt"} <= kept
    assert not any(name.startswith("cache/") and name.endswith(".py") for name in kept) and "a.zip" not in kept
    with sqlite3.connect(kernel.folder / "a.db") as con:
        assert con.execute("select a from t").fetchall() == [(1,)]
    con.close()


def test_hostile_names_and_links_do_not_leave(kernel: Running) -> None:
    kernel.good(
        "os.symlink('/etc/hostname', 'l.csv'); os.symlink('/', 'root'); os.mkfifo('f.csv')\n"
        "for name in ('.env', '.bashrc', 'x.py', 'n\\n.csv', '-f.csv', 'conftest.py', 'Untitled.ipynb'):\n"
        "    open(name, 'w').write('x')"
    )
    assert _disk(kernel.folder) == {"data.csv"}


def test_the_layer_has_a_size(start: Start) -> None:
    kernel = start("full", policy=f'{POLICY}[limits]\ndisk = "8MiB"\n')
    outcome = kernel.run("open('big.bin', 'wb').write(b'x' * (9 << 20))")
    assert outcome.reply["ename"] == "OSError" and "No space left" in outcome.reply["evalue"]
    assert kernel.good("print(6 * 7)").stdout == "42\n"


def test_secrets_stay_hidden(start: Start, tmp_path: Path) -> None:
    kernel = start("full", policy=POLICY, env={"HOME": str(tmp_path)})  # the folder lies in the home
    kernel.good("import os\nassert 'work0' in os.getcwd()")
    outcome = kernel.run("print(os.listdir('..'))")
    assert "ipython" not in outcome.stdout


def test_below_full_it_is_read_only_and_that_is_said(start: Start) -> None:
    kernel = start("seccomp+landlock", policy=POLICY)
    assert "no private layer" in kernel.good("%sandbox").stdout
    assert not kernel.run("open('out.csv', 'w')").ok
    assert os.listdir(kernel.folder) == []


def test_the_layer_outlives_a_lost_worker(kernel: Running) -> None:
    kernel.good("open('helper.py', 'w').write('y = 1')")
    kernel.run("os._exit(3)")
    kernel.good("import helper; assert helper.y == 1")
