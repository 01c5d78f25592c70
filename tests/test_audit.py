"""The audit log: what is written, and that no tampering goes unseen."""

from __future__ import annotations

import argparse
import json
import os
import resource
import stat
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox_kernel.audit import AuditError, AuditLog, Verdict, read_key, verify
from sandbox_kernel.cli import audit as command


def _write(path: Path, cells: int = 5, close: bool = True) -> AuditLog:
    log = AuditLog(str(path))
    for at in range(cells):
        log.cell(request_id=f"id-{at}", code=f"print({at})", outcome="ok", level="full", denials=["socket AF_INET"])
    if close:
        log.close()
    return log


def _check(path: Path) -> Verdict:
    return verify(str(path), read_key(f"{path}.key"))


def test_lines_tell_the_cell_without_its_text(tmp_path: Path) -> None:
    _write(tmp_path / "log.jsonl")
    text = (tmp_path / "log.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["event"] for line in lines] == ["start", *["cell"] * 5, "end"]
    assert [line["n"] for line in lines] == list(range(1, 8))
    assert "print" not in text and lines[1]["request"] == "id-0" and len(lines[1]["code_sha256"]) == 64
    assert lines[1]["denials"] == ["socket AF_INET"] and lines[-1]["cells"] == 5
    verdict = _check(tmp_path / "log.jsonl")
    assert (verdict.problems, verdict.cells, verdict.finished) == ([], 5, True)


def test_files_are_the_owners_alone(tmp_path: Path) -> None:
    os.umask(os.umask(0))
    _write(tmp_path / "log.jsonl")
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_second_kernel_goes_on_in_the_same_file(tmp_path: Path) -> None:
    _write(tmp_path / "log.jsonl", 2)
    _write(tmp_path / "log.jsonl", 3)
    verdict = _check(tmp_path / "log.jsonl")
    assert (verdict.problems, verdict.cells, verdict.kernels) == ([], 5, 2)


def test_two_kernels_at_a_time_need_two_files(tmp_path: Path) -> None:
    first = _write(tmp_path / "log.jsonl", 1, close=False)
    with pytest.raises(AuditError, match="pid"):
        AuditLog(str(tmp_path / "log.jsonl"))
    other = AuditLog(str(tmp_path / "log-{pid}-{time}.jsonl"), key_file=str(tmp_path / "log.jsonl.key"))
    assert str(os.getpid()) in other.path
    other.close()
    first.close()
    assert verify(other.path, read_key(str(tmp_path / "log.jsonl.key"))).problems == []


def test_a_killed_kernel_shows_as_a_missing_end(tmp_path: Path) -> None:
    log = _write(tmp_path / "log.jsonl", 2, close=False)
    verdict = _check(tmp_path / "log.jsonl")
    assert [line for line, _ in verdict.problems] == [4] and not verdict.finished
    log.close()


def test_what_is_not_a_private_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "target").touch()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "open").touch(0o666)
    (tmp_path / "open").chmod(0o666)
    (tmp_path / "other").write_text("something else\n")
    for name in ("link", "fifo", "open", "other", "none/log"):
        with pytest.raises(AuditError):
            AuditLog(str(tmp_path / name))
    with pytest.raises(AuditError, match="absolute"):
        AuditLog("log.jsonl")
    with pytest.raises(AuditError, match="cells can see"):
        AuditLog(str(tmp_path / "work" / "log"), visible=[str(tmp_path / "work")])


def test_a_key_that_others_can_read_or_that_is_gone_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    _write(path)
    (tmp_path / "log.jsonl.key").chmod(0o644)
    with pytest.raises(AuditError, match="600"):
        AuditLog(str(path))
    (tmp_path / "log.jsonl.key").unlink()
    with pytest.raises(AuditError, match="is not there"):
        AuditLog(str(path))


@pytest.mark.parametrize("required", [True, False])
def test_a_full_disk_refuses_cells_and_never_raises(tmp_path: Path, required: bool) -> None:
    path = tmp_path / "log.jsonl"
    log = AuditLog(str(path), required=required)
    log.cell(request_id="a", code="1", outcome="ok", level="full")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 40, before[1]))
    try:
        log.cell(request_id="b", code="2", outcome="ok", level="full")
        log.cell(request_id="c", code="3", outcome="ok", level="full")
        refusal = log.refusal()
        assert (refusal is not None) == required
        if refusal is not None:
            assert "audit log" in str(refusal)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert log.refusal() is None
    log.cell(request_id="d", code="4", outcome="ok", level="full")
    log.close()
    verdict = _check(path)
    assert [text for _, text in verdict.problems] == ["says that 2 cells could not be written"]


def test_a_line_costs_little(tmp_path: Path) -> None:
    log = AuditLog(str(tmp_path / "log.jsonl"))
    spent = []
    for _ in range(20):
        since = time.perf_counter()
        for at in range(50):
            log.cell(request_id=f"id-{at}", code="x = 1\n" * 20, outcome="ok", level="full")
        spent.append((time.perf_counter() - since) / 50)
    log.close()
    assert min(spent) < 50e-6


def test_hostile_texts_stay_one_line(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    log = AuditLog(str(path))
    noise = ["\x00\u2028" * 999] * 999
    log.cell(request_id="a\n" * 1000, code="\ud800", outcome='"}\n{', level="full", limits=noise, denials=noise)
    log.close()
    assert path.read_bytes().count(b"\n") == 3 and path.stat().st_size < 65536
    assert _check(path).problems == []


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log.jsonl"
    _write(path)
    parser = argparse.ArgumentParser()
    command.add_command(parser.add_subparsers())
    args = parser.parse_args(["audit", "verify", str(path)])
    assert args.command(args) == 0
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:2], *lines[3:]]))
    assert args.command(args) == 1
    assert "line 3 has number 4" in capsys.readouterr().out
    (tmp_path / "other").write_text("00" * 32)
    (tmp_path / "other").chmod(0o600)
    args = parser.parse_args(["audit", "verify", str(path), "--key", str(tmp_path / "other")])
    assert args.command(args) == 1


@pytest.mark.parametrize("told", ["\x1b]52;c;eA==\x07", "\ud800", ["\x1b[2J"]])
def test_what_others_wrote_into_the_log_is_no_command_to_the_terminal(
    told: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.jsonl"
    _write(path)
    with path.open("a") as file:
        for line in ({"n": 8, "event": "gap", "lost": told}, {"n": 9, "event": "end", "cells": told, "lines": 1}):
            file.write(json.dumps(line, separators=(",", ":"))[:-1] + f',"mac":"{"0" * 64}"}}\n')
    parser = argparse.ArgumentParser()
    command.add_command(parser.add_subparsers())
    args = parser.parse_args(["audit", "verify", str(path)])
    assert args.command(args) == 1
    said = capsys.readouterr().out
    assert "cells could not be written" in said and "cells where" in said
    assert said.isascii() and not {"\x1b", "\x07"} & set(said)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes, Path]:
    folder = tmp_path_factory.mktemp("audit")
    _write(folder / "log.jsonl", 12)
    _write(folder / "other.jsonl", 12)
    return (folder / "log.jsonl").read_bytes(), (folder / "other.jsonl").read_bytes(), folder


_quiet = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _problems(written: tuple[bytes, bytes, Path], text: bytes) -> list[tuple[int, str]]:
    path = written[2] / "changed.jsonl"
    path.write_bytes(text)
    return verify(str(path), read_key(str(written[2] / "log.jsonl.key"))).problems


@_quiet
@given(at=st.floats(0, 1, exclude_max=True), byte=st.integers(0, 255))
def test_any_changed_byte_is_found_in_its_line(written: tuple[bytes, bytes, Path], at: float, byte: int) -> None:
    text = bytearray(written[0])
    spot = int(at * len(text))
    if text[spot] == byte:
        return
    line = text[:spot].count(b"\n") + 1
    text[spot] = byte
    found = _problems(written, bytes(text))
    assert found and abs(found[0][0] - line) <= 1


@_quiet
@given(st.data())
def test_removed_moved_and_repeated_lines_are_found(written: tuple[bytes, bytes, Path], data: st.DataObject) -> None:
    lines = written[0].splitlines(keepends=True)
    changed = data.draw(st.lists(st.sampled_from(lines), max_size=len(lines)) | st.permutations(lines))
    if changed != lines:
        assert _problems(written, b"".join(changed))


@_quiet
@given(at=st.integers(0, 14), own=st.booleans())
def test_added_lines_and_lines_of_another_log_are_found(
    written: tuple[bytes, bytes, Path], at: int, own: bool
) -> None:
    lines, others = written[0].splitlines(keepends=True), written[1].splitlines(keepends=True)
    forged = others[min(at, 13)] if own else b'{"n":%d,"event":"cell","mac":"%s"}\n' % (at + 1, b"0" * 64)
    assert _problems(written, b"".join([*lines[:at], forged, *lines[at:]]))
    assert _problems(written, b"".join([*lines[:at], forged, *lines[at + 1 :]]))


@_quiet
@given(keep=st.floats(0, 1, exclude_max=True))
def test_a_cut_end_is_found(written: tuple[bytes, bytes, Path], keep: float) -> None:
    assert _problems(written, written[0][: int(keep * len(written[0]))])
