"""What people run on a notebook, at both levels that `auto` may choose.

A workload that a level cannot run is in `REFUSED`, and the documentation names it with the reason.
"""

from __future__ import annotations

import pytest

from .conftest import LEVELS, Start

WORKLOADS = {
    "csv": "import pandas as pd\npd.DataFrame({'a': [1, 2]}).to_csv('t.csv')\nassert len(pd.read_csv('t.csv')) == 2",
    "parquet": "import pandas as pd\npd.DataFrame({'a': [1, 2]}).to_parquet('t.parquet')\n"
    "assert pd.read_parquet('t.parquet').a.sum() == 3",
    "excel": "import pandas as pd\npd.DataFrame({'a': [1, 2]}).to_excel('t.xlsx')\n"
    "assert len(pd.read_excel('t.xlsx')) == 2",
    "sqlite": "import sqlite3\nc = sqlite3.connect('t.db'); c.execute('create table t(x)')\n"
    "c.executemany('insert into t values (?)', [(i,) for i in range(1000)]); c.commit()\n"
    "assert c.execute('select sum(x) from t').fetchone() == (499500,)",
    "plot": "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2]); plt.savefig('t.png'); plt.show()\n"
    "import os; assert os.path.getsize('t.png') > 1000",
    "sklearn, 1 job": "from sklearn.ensemble import RandomForestClassifier as F\n"
    "from sklearn.datasets import load_iris\n"
    "X, y = load_iris(return_X_y=True); assert F(10, n_jobs=1).fit(X, y).score(X, y) > .9",
    "sklearn, 2 jobs": "from sklearn.ensemble import RandomForestClassifier as F\n"
    "from sklearn.datasets import load_iris\n"
    "X, y = load_iris(return_X_y=True); assert F(10, n_jobs=2).fit(X, y).score(X, y) > .9",
    "cross validation, 2 processes": "from sklearn.linear_model import LogisticRegression as L\n"
    "from sklearn.model_selection import cross_val_score as c\nfrom sklearn.datasets import load_iris\n"
    "X, y = load_iris(return_X_y=True); assert c(L(max_iter=500), X, y, n_jobs=2).mean() > .9",
    "duckdb": "import duckdb\nc = duckdb.connect()\n"
    "assert c.execute('select sum(i) from range(100000) t(i)').fetchone()[0] == 4999950000",
    "polars": "import polars as pl\nd = pl.DataFrame({'g': [1, 1, 2], 'v': [1, 2, 3]})\n"
    "assert d.group_by('g').agg(pl.col('v').sum()).sort('g')['v'].to_list() == [3, 3]",
    "asyncio": "import asyncio\n"
    "assert await asyncio.gather(*[asyncio.sleep(.01, i) for i in range(5)]) == list(range(5))\n"
    "p = await asyncio.create_subprocess_exec('echo', 'hi', stdout=-1)\nassert (await p.communicate())[0] == b'hi\\n'",
    "threads": "from concurrent.futures import ThreadPoolExecutor\n"
    "with ThreadPoolExecutor(8) as p: assert sum(p.map(abs, range(-100, 0))) == 5050",
    "fork pool": "import multiprocessing as m\n"
    "with m.get_context('fork').Pool(2) as p: assert p.map(abs, [-1, -2]) == [1, 2]",
    "spawn pool": "import multiprocessing as m\nwith m.get_context('spawn').Pool(2) as p:\n"
    "    assert p.map(abs, [-1, -2]) == [1, 2]",
    "forkserver pool": "import multiprocessing as m\nwith m.get_context('forkserver').Pool(2) as p:\n"
    "    assert p.map(abs, [-1, -2]) == [1, 2]",
    "process": "import multiprocessing as m\nq = m.get_context('fork').Process(target=print)\nq.start(); q.join()\n"
    "assert q.exitcode == 0",
    "shared memory": "from multiprocessing import shared_memory as s\nm = s.SharedMemory(create=True, size=1000)\n"
    "m.buf[0] = 7; m.close(); m.unlink()",
    "subprocess": "import subprocess, sys\n"
    "assert subprocess.run([sys.executable, '-c', 'print(6*7)'], capture_output=True).stdout == b'42\\n'",
    "shell line": "x = !echo hello\nassert x == ['hello']\n!ls > /dev/null\nassert _exit_code == 0",
    "temporary files": "import tempfile, os\nwith tempfile.TemporaryDirectory() as d: open(d + '/x', 'w').write('x')\n"
    "with tempfile.NamedTemporaryFile() as f: f.write(b'x'); f.flush(); assert os.path.getsize(f.name) == 1",
    "time zones": "import zoneinfo, datetime, time\n"
    "assert datetime.datetime(2024, 7, 1, tzinfo=zoneinfo.ZoneInfo('Asia/Tokyo')).utcoffset().seconds == 32400\n"
    "assert time.strftime('%Y')",
    "user and machine": "import getpass, os, platform, pathlib, psutil\n"
    "assert getpass.getuser() == 'sandbox' and pathlib.Path.home().is_dir() and os.cpu_count() >= 1\n"
    "platform.platform(); psutil.virtual_memory(); psutil.Process().memory_info()",
    # (joblib, and so scikit-learn, asks it how many cores there are, and warns where it gets no answer.)
    "cores": "import subprocess\nassert subprocess.run(['lscpu', '--parse=core'], capture_output=True).returncode == 0",
    "random": "import random, secrets, uuid\nrandom.random(); secrets.token_hex(4); uuid.uuid4(); uuid.uuid1()",
}

_SEMAPHORES = {"fork pool", "spawn pool", "forkserver pool", "shared memory"}
# POSIX semaphores and shared memory live in /dev/shm, which cannot be made private without a mount; lscpu opens the
# folder /proc, whose list would tell what else runs.
REFUSED: dict[str, set[str]] = {"full": set(), "seccomp+landlock": {*_SEMAPHORES, "cores"}}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("level", LEVELS)
def test_what_people_run(start: Start, level: str) -> None:
    kernel = start(level)
    failed = {}
    for name, code in WORKLOADS.items():
        outcome = kernel.run(code, timeout=90)
        if not outcome.ok:
            failed[name] = f"{outcome.reply['ename']}: {outcome.reply['evalue'][:200]}"
        elif name not in REFUSED[level]:
            assert "blocked by the sandbox" not in outcome.stderr, f"{name}: a false alarm: {outcome.stderr}"
    assert set(failed) == REFUSED[level], failed
