"""Completion in a session with many cells behind it."""

from __future__ import annotations

from pathlib import Path

from sandbox_kernel.worker.completion import names_shown

from .front import Front

SPY = """
import jedi
shown, stock = [], jedi.Interpreter
def spy(code, namespaces, **options):
    shown.append(sum(map(len, namespaces)))
    return stock(code, namespaces, **options)
jedi.Interpreter = spy
"""


def matches(k: Front, code: str) -> list[str]:
    content = {"code": code, "cursor_pos": len(code)}
    reply = k.finish(k.ask("complete", content=content)).reply
    assert reply["status"] == "ok"
    return list(reply["matches"])


def test_jedi_does_not_look_at_what_old_cells_left(k: Front) -> None:
    k.good(SPY)
    assert "shown" in matches(k, "show")
    for n in range(30):
        k.good(f"{n}")
    assert "shown" in matches(k, "show")
    first, second = k.good("shown").result[1:-1].split(", ")
    assert 0 < int(second) <= int(first) + 8, "thirty cells left sixty names"


def test_what_was_read_is_kept_in_memory_alone(k: Front, tmp_path: Path) -> None:
    k.good(f"import gc, jedi, parso.cache as cache\njedi.settings.cache_directory = {str(tmp_path)!r}")
    assert matches(k, "impor")
    assert not list(tmp_path.rglob("*.pkl"))
    assert k.good("len(cache.parser_cache) > 0, gc.isenabled()").result == "(True, True)"


def test_names_of_cells_can_be_completed(k: Front) -> None:
    k.good("class Thing:\n    colour = 1\nThing()")
    number = k.good("len(In) - 2").result
    assert number is not None
    k.good(f"thing = _{number}")
    assert f"_i{number}" in matches(k, "_i") and f"_{number}" in matches(k, "_")
    assert any("colour" in match for match in matches(k, f"_{number}.col"))


def test_names_shown() -> None:
    names = {"a": 1, "_a": 2, "_1": 3, "_i1": 4, "_i12": 5, "_": 6, "__": 7, "_i": 8, "_1x": 9}
    assert names_shown(names, "x.").keys() == names.keys() - {"_1", "_i1", "_i12"}
    assert names_shown(names, "_i12.").keys() == names.keys() - {"_1", "_i1"}
    assert names_shown(names, "f(_") is names
