"""Code cells: notebook syntax turned into Python, and the cells of a notebook file."""

from __future__ import annotations

import json
from collections.abc import Iterator

MOST_BYTES = 64 * 1024**2


def plain_python(cell: str) -> str:
    """A cell with its magics, shell lines and help marks turned into calls, as IPython does it. Runs nothing."""
    from IPython.core.inputtransformer2 import TransformerManager  # slow to import; policies without rules need none

    try:
        return str(TransformerManager().transform_cell(cell))
    except Exception:  # whoever runs the cell says what is wrong with it
        return cell


def code_cells(notebook: str) -> Iterator[tuple[int, str]]:
    """(number among all cells, from 1; source) of each code cell of an .ipynb file's text.

    Raises:
        ValueError: it is not a notebook of format 4.
    """
    try:
        said = json.loads(notebook)
        cells = said["cells"]
        for number, cell in enumerate(cells, 1):
            if cell["cell_type"] == "code":
                source = cell["source"]
                text = source if isinstance(source, str) else "".join(source)
                yield number, text
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError("it is not a notebook of format 4 (nbconvert --to notebook turns older ones)") from error
