"""The notebook that the clients run: parameters, a table, a plot, both streams, a file, and a look outside."""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

KERNEL = "sandboxed-python"
KERNELSPEC = {"name": KERNEL, "display_name": "Sandboxed Python", "language": "python"}

PARAMETERS = "rows = 3"
TABLE = """\
import pandas as pd
table = pd.DataFrame({"n": range(rows), "square": [n * n for n in range(rows)]})
table"""
PLOT = """\
import matplotlib.pyplot as plt
plt.plot(table.n, table.square);"""
STREAMS = """\
import sys
print("the squares add up to", table.square.sum())
print("a line for the log", file=sys.stderr)"""
FILE = """\
table.to_csv("squares.csv", index=False)"""
# What tells that it was this kernel and no other: the sandbox.
OUTSIDE = """\
try:
    print("read:", open({path!r}).read())
except OSError as error:
    print("not readable,", type(error).__name__)"""


def write(path: Path, outside: Path) -> Path:
    """Writes it without outputs. ``outside``: a file that the notebook tries to read."""
    notebook = new_notebook(cells=[
        new_markdown_cell("# Squares"), new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]}),
        *map(new_code_cell, (TABLE, PLOT, STREAMS, FILE, OUTSIDE.format(path=str(outside)))),
    ])  # fmt: skip
    notebook.metadata["kernelspec"] = KERNELSPEC
    nbformat.write(notebook, path)
    return path


def check(path: Path, rows: int = 3) -> None:
    """Holds that the notebook ran to its end, in the sandbox, with this many rows, and nothing was lost."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    kinds = [[out.output_type for out in cell.outputs] for cell in cells[-5:-1]]
    assert kinds[:3] == [["execute_result"], ["display_data"], ["stream", "stream"]]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    table, plot, streams, file, outside = cells[-5:]
    # Where a person sits at the front end, they are told.
    assert [out.text for out in file.outputs] in ([], ["[Kept next to the notebook: squares.csv]\n"])
    assert set(table.outputs[0].data) == {"text/plain", "text/html"}
    assert table.outputs[0].data["text/html"].count("<tr") == rows + 1
    assert "image/png" in plot.outputs[0].data
    texts = {out.name: out.text for out in streams.outputs}
    total = sum(n * n for n in range(rows))
    assert texts == {"stdout": f"the squares add up to {total}\n", "stderr": "a line for the log\n"}
    assert outside.outputs[0].text.startswith("not readable, ")
    assert (path.parent / "squares.csv").read_text().count("\n") == rows + 1
