"""What a newcomer sees, in pictures below build/screenshots: the card of ``%sandbox``, and the tour."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from playwright.sync_api import expect

from .conftest import StartLab
from .lab import Lab

pytestmark = pytest.mark.timeout(300)
TOUR = Path(__file__).parents[2] / "notebooks" / "tour.ipynb"


@pytest.fixture(scope="module")
def lab(start_lab: StartLab) -> Lab:
    return start_lab()


def test_the_card(lab: Lab) -> None:
    attempts = """
import os, socket
block = bytearray(200_000_000)
for attempt in (lambda: os.listdir("/root"), lambda: socket.create_connection(("192.0.2.1", 80), 1)):
    try:
        attempt()
    except OSError:
        pass
"""
    notebook = lab.open("%sandbox", attempts, name="card.ipynb")
    notebook.run_all()
    card = notebook.output(0)
    expect(card.locator("table")).to_contain_text("Memory")
    # It was brought up to date by the cell below it.
    expect(card.locator("table")).to_contain_text("the last cell took")
    expect(card.locator("table")).not_to_contain_text("the last cell took 0.00 s")
    expect(card).to_contain_text("isolation level")
    folded = card.locator("details")
    assert folded.count() == 2
    expect(folded.nth(1).locator("pre")).to_be_hidden()
    folded.nth(0).locator("summary").click()
    expect(folded.nth(0).locator("pre")).to_contain_text("ok ")
    assert notebook.screenshot("card").stat().st_size > 10_000
    # Saved and opened again it is still a card, and plain text for programs.
    saved = notebook.save().cells[0].outputs[0]
    assert {"text/html", "text/plain"} <= set(saved.data) and "isolation level" in saved.data["text/plain"]


def test_the_tour(lab: Lab) -> None:
    shutil.copy(TOUR, lab.folder)
    notebook = lab.open_file("tour.ipynb")
    notebook.start_all()
    expect(notebook.output(0)).not_to_be_empty(timeout=60_000)
    picture = notebook.page.locator(".jp-Cell-outputArea img").first
    picture.wait_for(timeout=120_000)
    picture.scroll_into_view_if_needed()
    assert notebook.screenshot("tour").stat().st_size > 10_000
