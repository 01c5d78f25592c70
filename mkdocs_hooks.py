"""Takes the pages of the top folder into the documentation; their links are those of the repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent
PAGES = {"README.md": "index.md"} | {name: name for name in (
    "SECURITY.md", "SPECIFICATION.md", "CONTRIBUTING.md", "CHANGELOG.md",
)}  # fmt: skip


def on_files(files: Files, config: Any) -> Files:
    """Add them."""
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links between docs/ and the top folder, as they are among the pages here."""
    return re.sub(r"\]\((?:\.\./|docs/)(?=[\w-]+\.md[)#])", "](", markdown)
