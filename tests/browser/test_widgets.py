"""Widgets in a page, moved as a person moves them."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from .lab import Lab

pytestmark = pytest.mark.timeout(180)


def test_a_page_shows_what_cells_show(lab: Lab) -> None:
    notebook = lab.open("print(6 * 7)", "1 / 0", "'not reached'")
    notebook.run_all()
    expect(notebook.output(0)).to_have_text("42\n")
    expect(notebook.output(1)).to_contain_text("ZeroDivisionError")
    expect(notebook.output(2)).to_have_text("")
    notebook.screenshot("cells")
