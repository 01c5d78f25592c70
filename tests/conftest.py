"""Settings that all tests share."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Before anything imports Jupyter: the history, profiles and settings of whoever runs the tests must neither
# change their outcome nor be changed by them. What the environment has installed stays visible.
_private = tempfile.mkdtemp(prefix="sandbox-kernel-tests-")


def _remove_private(owner: int = os.getpid()) -> None:
    if os.getpid() == owner:  # workers that tests fork run what is registered, too
        shutil.rmtree(_private, ignore_errors=True)


atexit.register(_remove_private)
for _name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "XDG_DATA_HOME"):
    os.environ[_name] = os.path.join(_private, _name.lower())
    os.mkdir(os.environ[_name], 0o700)
for _name in ("JUPYTER_PATH", "SANDBOX_KERNEL_POLICY", "PYTHONSTARTUP", "MPLBACKEND"):
    os.environ.pop(_name, None)

# A test that fails is run up to twice more, since nearly all start processes and wait for them: a machine that stalls
# for some seconds breaks a bound on time, and says nothing about the code. The closing line counts these reruns, and
# what failed at first is shown: what comes again is to be mended. A test that fails three times fails the run.
#
# Of tests of security a single assertion that fails counts: an attempt that succeeds once in two runs has succeeded.
# One that never came to its assertion, since a browser or a server kept it waiting, is run again as all others; but
# not where an attempt may be what keeps it waiting. (That an attempt already fails without layers is no success of it.)
_ASSERTED = ["^AssertionError", "^Failed: (?!Timeout)"]
_ANYTHING = [r"^(?!\S*ControlFailed: )"]
_OF_SECURITY = (
    "attacks", "confine", "launch", "outputs", "plan", "proof", "seccomp", "session_denials", "browser/test_outputs.py",
)  # fmt: skip
_settings = pytest.StashKey[Any]()


def what_counts(item: pytest.Item) -> list[str] | None:
    """Patterns of the errors that fail a test at once; None: it is no test of security.

    Those of security are in one of the places above, have "hostile" in their names, or are marked so.
    """
    path = item.path.relative_to(Path(__file__).parent).as_posix()
    named = "hostile" in f"{path}::{item.getparent(pytest.Class)}::{getattr(item, 'originalname', '')}".lower()
    if named or path.startswith("attacks/") or item.get_closest_marker("security") is not None:
        return _ANYTHING
    return _ASSERTED if any(path == place or path.startswith(f"{place}/") for place in _OF_SECURITY) else None


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background; children would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.pluginmanager.hasplugin("rerunfailures") and config.option.reruns is None:
        config.option.reruns, config.option.rerun_show_tracebacks = 2, True


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    options = item.config.option
    options.rerun_except = what_counts(item)
    try:
        return (yield)
    finally:
        options.rerun_except = None


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    item.stash[_settings] = settings


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if getattr(item, "execution_count", 1) < 2:
        return
    # The time limit is set once, around all runs of the test, and the first failure ends it: a second run that hangs
    # would hang for ever.
    settings = item.stash.get(_settings, None)
    if settings is not None and not settings.func_only:
        item.config.pluginmanager.hook.pytest_timeout_set_timer(item=item, settings=settings)
    # A kernel that the tests of a module share and that answers no more would fail the second run, too, and then all
    # tests after it: what was set up for more than one test is set up anew.
    for definitions in item._fixtureinfo.name2fixturedefs.values():  # type: ignore[attr-defined]
        for definition in definitions:
            if definition.scope != "function":
                definition.finish(item._request)  # type: ignore[attr-defined]
    # What the first run left open is held by its traceback. It must not be the warning that fails a later test.
    sys.last_exc = sys.last_value = sys.last_traceback = None  # type: ignore[assignment]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()
