"""Widgets in a page, moved as a person moves them."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

from .lab import Lab, Notebook

pytestmark = pytest.mark.timeout(180)


def drag(slider: Locator, to: float) -> None:
    """Drag the handle with the mouse to a part of the slider's length."""
    page, handle, track = slider.page, slider.locator(".noUi-handle"), slider.locator(".noUi-base")
    handle.scroll_into_view_if_needed()
    start, whole = handle.bounding_box(), track.bounding_box()
    assert start and whole
    height = start["y"] + start["height"] / 2
    page.mouse.move(start["x"] + start["width"] / 2, height)
    page.mouse.down()
    page.mouse.move(whole["x"] + whole["width"] * to, height, steps=8)
    page.mouse.up()


def readout(notebook: Notebook, cell: int) -> Locator:
    """The number that stands beside a slider."""
    return notebook.output(cell).locator(".widget-readout")


def test_a_page_shows_what_cells_show(lab: Lab) -> None:
    notebook = lab.open("print(6 * 7)", "1 / 0", "'not reached'")
    notebook.run_all()
    expect(notebook.output(0)).to_have_text("42\n")
    expect(notebook.output(1)).to_contain_text("ZeroDivisionError")
    expect(notebook.output(2)).to_have_text("")
    notebook.screenshot("cells")


def test_a_slider_moves_both_ways(lab: Lab) -> None:
    notebook = lab.open(
        "import ipywidgets\n"
        "slider, told = ipywidgets.IntSlider(3, 0, 100), ipywidgets.Label()\n"
        "ipywidgets.dlink((slider, 'value'), (told, 'value'), lambda value: f'the kernel has {value}.')\n"
        "ipywidgets.VBox([slider, told])",
        "print(slider.value)",
        "slider.value = 77",
    )
    notebook.run_all()
    expect(notebook.output(1)).to_have_text("3\n")
    expect(readout(notebook, 0)).to_have_text("77")  # the kernel moved it
    drag(notebook.output(0), 0.25)
    expect(readout(notebook, 0)).not_to_have_text("77")
    shown = readout(notebook, 0).inner_text()
    assert 20 <= int(shown) <= 30
    expect(notebook.output(0)).to_contain_text(f"the kernel has {shown}.")
    notebook.run(1)
    expect(notebook.output(1)).to_have_text(f"{shown}\n")
    # A notebook that is closed and opened shows the slider where it was: the page asks the kernel for it.
    notebook.save()
    notebook.page.reload()
    notebook.wait_ready()
    expect(readout(notebook, 0)).to_have_text(shown)


def test_interact_calls_the_function_for_each_move(lab: Lab) -> None:
    notebook = lab.open(
        "import ipywidgets\n"
        "calls = []\n"
        "@ipywidgets.interact(x=(0, 50), word=['plain', 'grand'])\n"
        "def square(x=4, word='plain'):\n"
        "    calls.append(x)\n"
        "    print(word, x * x)\n"
        "    return f'half of it {x / 2}'",
        "print(len(calls), calls == sorted(calls))",
    )
    notebook.run(0)
    out = notebook.output(0)
    expect(out).to_contain_text("plain 16")
    expect(out).to_contain_text("half of it 2.0")
    drag(out, 1.0)
    expect(out).to_contain_text("plain 2500")
    expect(out).to_contain_text("half of it 25.0")
    expect(out).not_to_contain_text("plain 16")  # the last call's output, not all calls'
    out.locator("select").select_option("grand")
    expect(out).to_contain_text("grand 2500")
    notebook.run(1)
    expect(notebook.output(1)).to_have_text(re.compile(r"([3-9]|\d\d) True\n"))
    notebook.screenshot("interact")


def test_an_output_widget_holds_what_is_printed_in_it(lab: Lab) -> None:
    notebook = lab.open(
        "import ipywidgets\n"
        "held = ipywidgets.Output()\n"
        "button = ipywidgets.Button(description='press')\n"
        "count = 0\n"
        "def pressed(_):\n"
        "    global count\n"
        "    count += 1\n"
        "    with held:\n"
        "        print('pressed', count)\n"
        "        if count == 3:\n"
        "            raise KeyError('third')\n"
        "button.on_click(pressed)\n"
        "ipywidgets.VBox([button, held])",
        "print('before')\n"
        "with held:\n"
        "    print('inside')\n"
        "    display({'a': 1})\n"
        "print('after')",
        "held.clear_output()",
    )  # fmt: skip
    notebook.run(0)
    notebook.run(1)
    inside = notebook.output(0).locator(".widget-output")
    expect(inside).to_have_text(re.compile(r"^inside\n\s*\{'a': 1\}\s*$"))
    expect(notebook.output(1)).to_have_text("before\nafter\n")
    press = notebook.output(0).get_by_role("button", name="press")
    for _ in range(3):
        press.click()
    expect(inside).to_contain_text(re.compile(r"inside.*pressed 1\s+pressed 2\s+pressed 3.*KeyError", re.DOTALL))
    notebook.screenshot("output-widget")
    notebook.run(2)
    expect(inside).to_have_text("")


def test_progress_bars_move_while_their_cell_runs(lab: Lab) -> None:
    notebook = lab.open(
        "import ipywidgets, pathlib, time\n"
        "from tqdm.notebook import tqdm\n"
        "bar = ipywidgets.IntProgress(0, max=4, description='own')\n"
        "display(bar)\n"
        "for _ in tqdm(range(4), desc='loop', mininterval=0):\n"
        "    bar.value += 1\n"
        "    while not pathlib.Path(f'go{bar.value}').exists(): time.sleep(0.02)",
    )
    notebook.start(0)
    own = notebook.output(0).locator(".progress-bar").first
    for step in range(1, 5):
        expect(own).to_have_attribute("style", re.compile(rf"width: {25 * step}%"))
        if step == 3:
            expect(notebook.output(0)).to_contain_text("2/4")
            assert notebook.kernel_status() == "busy"
            notebook.screenshot("progress")
        (lab.folder / f"go{step}").touch()
    notebook.wait_idle()
    expect(notebook.output(0)).to_contain_text("4/4")


def test_widgets_live_while_a_cell_runs(lab: Lab) -> None:
    notebook = lab.open(
        "import ipywidgets\n"
        "@ipywidgets.interact(x=(0, 50))\n"
        "def square(x=4):\n"
        "    print('squared', x * x)",
        "import pathlib, time\n"
        "print('at work')\n"
        "while not pathlib.Path('enough').exists(): time.sleep(0.02)\n"
        "print('done')",
    )
    notebook.run(0)
    expect(notebook.output(0)).to_have_text(re.compile("squared 16"))
    notebook.start(1)
    expect(notebook.output(1)).to_have_text("at work\n")
    drag(notebook.output(0), 1.0)
    expect(notebook.output(0)).to_contain_text("squared 2500")
    expect(notebook.cell(1).locator(".jp-InputPrompt")).to_have_text("[*]:")
    notebook.screenshot("live-widget")
    (lab.folder / "enough").touch()
    notebook.wait_idle()
    expect(notebook.output(1)).to_have_text("at work\ndone\n")  # and nothing of the widget's
