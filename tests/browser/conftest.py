"""A browser, and JupyterLab servers to look at with it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from .lab import CHROMIUM_FLAGS, Lab

StartLab = Callable[..., Lab]


# Per module, not per session: while it lives, this thread counts as one with a running event loop, in which the
# tests of other folders could not use asyncio.run().
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium with an empty profile."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        # A run that has to hold must not pass because the browser is missing.
        (pytest.fail if os.environ.get("CI") else pytest.skip)("there is no Chromium (Debian: apt install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(CHROMIUM_FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def start_lab(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartLab]:
    """Starts servers: ``start_lab(policy="[limits]...")``; all are ended after the module's tests."""
    running: list[Lab] = []

    def begin(policy: str = "") -> Lab:
        running.append(Lab(browser, tmp_path_factory.mktemp("lab"), policy))
        return running[-1]

    yield begin
    for lab in running:
        lab.close()


@pytest.fixture(scope="module")
def lab(start_lab: StartLab) -> Lab:
    """A server whose kernels have the standard policy."""
    return start_lab()
