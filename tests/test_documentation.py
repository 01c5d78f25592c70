"""What the public names say of themselves, and the site that is built of it; CONTRIBUTING.md has the rules."""

from __future__ import annotations

import builtins
import importlib.util
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sandbox_kernel
from sandbox_kernel import errors

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference.md"


def _public() -> Iterator[tuple[str, Any]]:
    """Every public name, with the methods and properties of the classes."""
    for name in sandbox_kernel.__all__:
        thing = getattr(sandbox_kernel, name)
        yield name, thing
        for member, value in inspect.getmembers_static(thing) if inspect.isclass(thing) else ():
            function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            ours = inspect.isfunction(function) and function.__module__.startswith("sandbox_kernel.")
            if ours and not member.startswith("_"):
                yield f"{name}.{member}", function


PUBLIC = dict(_public())


def _section(text: str, title: str) -> list[str]:
    """The names that a section of a docstring explains."""
    found = re.search(rf"^{title}:\n((?: +.*\n|\n)*)", text + "\n", re.MULTILINE)
    return re.findall(r"^    (\w[\w, ]*):", found[1], re.MULTILINE) if found else []


def _parameters(thing: Any) -> dict[str, inspect.Parameter]:
    """Those that a caller gives. What a plain record holds is explained by its fields."""
    if inspect.isclass(thing):
        if not inspect.isfunction(vars(thing).get("__init__")) or hasattr(thing, "__dataclass_fields__"):
            return {}
        thing = thing.__init__
    given = inspect.signature(thing).parameters.values()
    return {p.name: p for p in given if p.name not in ("self", "cls") and p.kind < p.VAR_KEYWORD}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_says_what_it_is(name: str) -> None:
    text = inspect.getdoc(PUBLIC[name]) or ""
    assert re.match(r"[A-Z`\"].*?[.:](\s|$)", text, re.DOTALL), "it starts with a sentence"
    parameters = _parameters(PUBLIC[name])
    explained = _section(text, "Args")
    assert set(explained) <= set(parameters), "what is explained exists, one a line"
    elsewhere = re.search(r"(?:see|those of) `((?:Async)?Sandbox[\w.]*)`", text)
    if elsewhere:
        assert elsewhere[1] in PUBLIC
    elif len(parameters) > 3:
        assert set(explained) == set(parameters), "four parameters and more are explained"
    for error in (each for line in _section(text, "Raises") for each in line.split(", ")):
        assert issubclass(getattr(errors, error, None) or getattr(builtins, error), BaseException)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_has_types(name: str) -> None:
    thing = PUBLIC[name]
    assert all(p.annotation is not p.empty for p in _parameters(thing).values())
    if inspect.isfunction(thing):
        assert inspect.signature(thing).return_annotation is not inspect.Signature.empty


def test_the_reference_has_every_public_name() -> None:
    listed = re.findall(r"^::: sandbox_kernel\.(\w+)", REFERENCE.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(sandbox_kernel.__all__) <= set(listed)


@pytest.mark.timeout(600)
@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="the extra docs is not installed")
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=590, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "site" / "reference.html").read_text(encoding="utf-8")
    assert all(f'id="sandbox_kernel.{name}"' in page for name in sandbox_kernel.__all__)
