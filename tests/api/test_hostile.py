"""A worker that speaks on its channel what it must not: the host runs nothing, says so, and goes on."""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.errors import CellError, CopyRefused, FrameRefused, ProtocolError, SandboxError
from sandbox_kernel.session import copies

# What a cell can do: the channel is its descriptor 3, and all of the worker's own code is in its hands.
TOOLS = """
import array, ctypes, fcntl, gc, json, mmap, os, socket, struct, threading, time
from sandbox_kernel import frames
from sandbox_kernel.channel.framing import encode, split
from sandbox_kernel.frames import transport
channel = socket.socket(fileno=os.dup(3))
values = next(o for o in gc.get_objects() if type(o).__name__ == "Values")
questions = values._questions

def say(message, buffers=()):
    for packet in encode(message, buffers):
        channel.send(packet)

def packed(payload, *buffers):
    return b"".join(transport.pack(payload, [memoryview(b) for b in buffers]))

def answer(op, act, reply={"status": "ok"}):
    def evil(request):
        act(request)
        return dict(reply)
    values.handlers[op] = evil

def room(size):
    told = questions.exchange({"type": "room", "size": size})
    return told, (told["fds"] or [-1])[0]
"""


@pytest.fixture(scope="module")
def shared() -> Iterator[Sandbox]:
    # What is brought back would be as hostile as before.
    policy = {"preset": "assistant", "recovery": {"checkpoints": "off"}}
    with Sandbox(policy, modules={"host": {"echo": lambda *a, **k: a[0] if a else None}}) as box:
        yield box


@pytest.fixture
def box(shared: Sandbox) -> Sandbox:
    shared.restart()
    assert shared.run_code(TOOLS).success
    return shared


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "canary"
    yield path
    assert not path.exists(), "code ran in the host"


LOST = ("lost", "restored")
REPLY = "{'type': 'reply', 'id': r.id, 'content': {'status': 'ok'}, 'execution_count': 1"  # of code, to be ended


def ended_between_cells(box: Sandbox) -> None:
    """Waits until the thread that the cell has left has seen the refusal that it is to see while no cell runs."""
    for _ in range(20):
        time.sleep(0.3)
        if box.run_code("thread.is_alive()").results[0].text == "False":
            return
    raise AssertionError(box.run_code("told[-5:]").text())


class Evil:
    """A classic: unpickling it runs a command."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


def still_good(box: Sandbox) -> None:
    """The host is in order, and so is the sandbox."""
    assert box.run_code("6 * 7").results[0].text == "42"
    box["x"] = [1, 2]
    assert box["x"] == [1, 2]


def payloads(canary: Path) -> list[bytes]:
    evil = Evil(canary)
    named = b"cos\nsystem\n(S'touch " + str(canary).encode() + b"'\ntR."
    ext = b"\x80\x05\x82\x01."
    return [pickle.dumps(evil, p) for p in range(6)] + [
        pickle.dumps({"a": [evil]}), pickle.dumps(ValueError(evil)), named, ext, b"", b"\x80\x05", os.urandom(100),
        pickle.dumps([evil]) + pickle.dumps(1), b"\x80\x05]\x94h\x00a.", b"\x80\x05\x8e" + b"\xff" * 8,
    ]  # fmt: skip


class TestValues:
    @pytest.mark.parametrize("at", range(16))
    def test_a_payload_that_is_no_frame(self, box: Sandbox, canary: Path, at: int) -> None:
        payload = payloads(canary)[at]
        code = "answer('get', lambda r: say({'type': 'value', 'id': r.id, 'room': 0}, [packed(payload)]))"
        assert box.run_code(code, inputs={"payload": payload}).success
        with pytest.raises((ProtocolError, FrameRefused)) as caught:
            box["x"]
        assert isinstance(caught.value, ProtocolError) and "protocol" in str(caught.value)
        still_good(box)

    def test_a_payload_that_is_no_frame_with_the_reply(self, box: Sandbox, canary: Path) -> None:
        for payload in payloads(canary):
            code = f"answer('get', lambda r: (say({REPLY}, 'value': True}}, [packed(payload)]), time.sleep(20)))"
            assert box.run_code(TOOLS + code, inputs={"payload": payload}).success
            with pytest.raises(ProtocolError):
                box["x"]
        still_good(box)

    def test_as_part_of_an_execution_it_is_data(self, box: Sandbox, canary: Path) -> None:
        code = "answer('get', lambda r: say({'type': 'value', 'id': r.id, 'room': 0}, [packed(payload)]))"
        ex = box.run_code(code, inputs={"payload": pickle.dumps(Evil(canary))}, returns=["x"])
        assert ex.error is not None and ex.error.name == "ProtocolError" and ex.state in LOST and not ex.returned
        still_good(box)

    def test_a_call_s_value(self, box: Sandbox, canary: Path) -> None:
        code = "answer('call', lambda r: say({'type': 'value', 'id': r.id, 'room': 0}, [packed(payload)]))"
        box.run_code(code, inputs={"payload": pickle.dumps(Evil(canary))})
        with pytest.raises(ProtocolError):
            box.call("f")
        still_good(box)

    @pytest.mark.parametrize(
        "message",
        [
            "{'type': 'value', 'id': r.id, 'room': 0}, []",
            REPLY + ", 'value': True}, []",
            REPLY + ", 'value': True}, [b'', b'']",
            REPLY + ", 'value': 1}, [b'']",
            REPLY + "}, [b'']",
            "{'type': 'value', 'id': r.id, 'room': 0}, [b'', b'']",
            "{'type': 'value', 'id': r.id, 'room': 77}, []", "{'type': 'value', 'id': r.id, 'room': 1}, [b'x']",
            "{'type': 'value', 'id': r.id, 'room': -1}, []", "{'type': 'value', 'id': r.id, 'room': 'x'}, []",
            "{'type': 'value', 'id': [], 'room': 0}, [b'x']", "{'type': 'room', 'serial': 1, 'size': 0}",
            "{'type': 'room', 'serial': 1, 'size': 2**63}", "{'type': 'room', 'serial': 2**40, 'size': 1}",
            "{'type': 'host_call', 'serial': 1, 'module': 'x' * 201, 'name': 'y', 'room': 0}, [b'x']",
            "{'type': 'host_call', 'serial': 1, 'module': 'host', 'name': {}, 'room': 0}, [b'x']",
            "{'type': 'host_call', 'serial': 1, 'module': 'host', 'name': 'echo', 'room': 5}, []",
            "{'type': 'reply', 'id': r.id, 'content': {'status': 'ok', 'ename': 5}, 'execution_count': 1}",
            "{'type': 'reply', 'id': r.id, 'content': {'status': 'what'}, 'execution_count': 1}",
        ],
    )
    def test_a_message_that_is_not_in_order(self, box: Sandbox, message: str) -> None:
        assert box.run_code(f"answer('get', lambda r: (say({message}), time.sleep(20)))").success
        with pytest.raises(ProtocolError):
            box["x"]
        still_good(box)

    def test_raw_bytes_in_place_of_a_frame(self, box: Sandbox, canary: Path) -> None:
        short, long = b"\x03\x00\x00", b"\x03\xff\xff\xff\xff\x00\x01x"
        for raw in (short, long, b"\x03" + os.urandom(50), pickle.dumps(Evil(canary))):
            box.run_code(TOOLS)
            box.run_code("answer('get', lambda r: (channel.send(raw), time.sleep(20)))", inputs={"raw": raw})
            with pytest.raises(ProtocolError):
                box["x"]
        still_good(box)

    def test_two_values_for_one_request(self, box: Sandbox) -> None:
        value = "{'type': 'value', 'id': r.id, 'room': 0}, [packed(*frames.dumps(1)[:1])]"
        box.run_code(f"answer('get', lambda r: (say({value}), say({value}), time.sleep(20)))")
        with pytest.raises(ProtocolError, match="second value"):
            box["x"]
        box.run_code(TOOLS + f"answer('get', lambda r: (say({value}), say({REPLY}, 'value': True}}, [b'x'])))")
        with pytest.raises(ProtocolError, match="second value"):
            box["x"]
        still_good(box)

    def test_a_value_with_the_reply_to_a_cell(self, box: Sandbox) -> None:
        ex = box.run_code(
            "r = next(o for o in gc.get_objects() if type(o).__name__ == 'Request' and o.op == 'execute')\n"
            f"say({REPLY}, 'value': True}}, [b'x']); time.sleep(20)"
        )
        assert ex.error is not None and "nobody has asked for" in ex.error.value
        assert box._box._session is not None and box._box._session.exchange.take() is None
        still_good(box)

    def test_an_answer_without_the_value_is_none(self, box: Sandbox) -> None:
        box.run_code("answer('get', lambda r: None)")
        assert box["x"] is None
        box.run_code("answer('read_file', lambda r: None); answer('list_files', lambda r: None)")
        for call in (lambda: box.get_file("x"), box.files):
            with pytest.raises(ProtocolError):
                call()
            box.run_code(TOOLS + "answer('list_files', lambda r: say({'type': 'value', 'id': r.id, 'room': 0}, "
                         "[packed(frames.dumps([('x', 'y')])[0])]))")  # fmt: skip
        still_good(box)

    def test_words_about_variables_are_text_or_nothing(self, box: Sandbox) -> None:
        for op, value in (("variables", "{'x': 1}"), ("variables", "['x']"), ("describe", "7"), ("describe", "b'x'")):
            box.run_code(TOOLS + f"answer({op!r}, lambda r: say({{'type': 'value', 'id': r.id, 'room': 0}}, "
                         f"[packed(frames.dumps({value})[0])]))")  # fmt: skip
            with pytest.raises(ProtocolError):
                box.variables() if op == "variables" else box.describe("x")
        still_good(box)

    def test_a_value_for_another_request_is_nobody_s(self, box: Sandbox) -> None:
        box.run_code("say({'type': 'value', 'id': 'api-999', 'room': 0}, [b'x'])")
        still_good(box)

    def test_errors_are_text(self, box: Sandbox) -> None:
        reply = {"status": "error", "ename": "os.system", "evalue": "\x1b]0;title\x07", "traceback": ["x"]}
        box.run_code("answer('get', lambda r: None, reply)", inputs={"reply": reply})
        with pytest.raises(SandboxError) as caught:
            box["x"]
        assert type(caught.value).__name__ == "CellError" and "\x1b" not in str(caught.value)
        box.run_code("values.handlers['get'] = values._get")
        still_good(box)


def held(path: str) -> int:
    """How many descriptors of it this process has. (Others come and go with copies of the session.)"""
    links = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(f"/proc/self/fd/{name}"))
    return sum(link.startswith(path) for link in links)


class TestRooms:
    def test_a_room_kept_open_for_writing_is_hostile(self, box: Sandbox) -> None:
        """Else the content could be changed after it was checked."""
        code = """
def evil(r):
    global kept
    data = packed(*frames.dumps(bytes(300_000))[:1])
    told, fd = room(len(data))
    kept = mmap.mmap(fd, len(data))
    kept[:] = data
    say({'type': 'value', 'id': r.id, 'room': told['serial']})
    time.sleep(20)
answer('get', evil)"""
        assert box.run_code(code).success
        with pytest.raises(ProtocolError, match="kept open for writing"):
            box["x"]
        still_good(box)

    def test_a_room_cannot_be_enlarged_nor_changed_later(self, box: Sandbox) -> None:
        code = """
said = []
def evil(r):
    data = packed(*frames.dumps(bytes(300_000))[:1])
    told, fd = room(len(data))
    try: os.ftruncate(fd, 1 << 30); said.append('done')
    except OSError as e: said.append(e.errno)
    os.pwrite(fd, data, 0)
    say({'type': 'value', 'id': r.id, 'room': told['serial']})
    time.sleep(0.3)
    again = lambda: os.pwrite(os.open(f'/proc/self/fd/{fd}', os.O_RDWR), b'x', 0)
    grow = lambda: os.ftruncate(fd, 10)
    for act in (lambda: os.pwrite(fd, b'x', 0), lambda: mmap.mmap(fd, 10), again, grow):
        try: act(); said.append('done')
        except (OSError, ValueError) as e: said.append(getattr(e, 'errno', 0))
answer('get', evil)"""
        assert box.run_code(code).success
        assert box["x"] == bytes(300_000)
        values = box.run_code("values.handlers['get'] = values._get; said").results[0].text
        assert values is not None and "done" not in values.replace("said", "") and values.count(",") == 4, values

    @pytest.mark.parametrize("size", [0, 10, 200_000])
    @pytest.mark.parametrize("keep", [True, False])
    def test_a_room_that_is_cut_short(self, box: Sandbox, size: int, keep: bool) -> None:
        """A host that had it mapped would die of a signal."""
        code = """
def evil(r):
    data = packed(*frames.dumps(bytes(300_000))[:1])
    told, fd = room(len(data))
    os.pwrite(fd, data, 0)
    os.ftruncate(fd, size)
    if not keep: os.close(fd)
    say({'type': 'value', 'id': r.id, 'room': told['serial']})
answer('get', evil)"""
        box.run_code(code, inputs={"size": size, "keep": keep})
        with pytest.raises(ProtocolError, match="cut short"):
            box["x"]
        still_good(box)

    def test_a_forked_process_that_has_a_room_open_is_in_nobody_s_way(self, box: Sandbox) -> None:
        code = """
real = values._questions.exchange
def forking(*arguments):
    answer = real(*arguments)
    if os.fork() == 0:
        time.sleep(20); os._exit(0)
    return answer
values._questions.exchange = forking
big = bytes(range(256)) * 2000"""
        assert box.run_code(code).success
        assert box["big"] == bytes(range(256)) * 2000
        still_good(box)

    @pytest.mark.parametrize("told", [True, False])
    @pytest.mark.parametrize("keep", ["keep = fd", "keep = mmap.mmap(fd, size, mmap.MAP_PRIVATE); keep[:1]"])
    def test_what_a_worker_keeps_of_rooms_is_no_memory(self, box: Sandbox, told: bool, keep: str) -> None:
        """No limit would count it: nobody has it mapped."""
        code = f"""
import time
kept, size = [], 60 << 20
for number in range(12):
    answer, fd = room(size)
    if fd < 0: break
    os.pwrite(fd, bytes(size), 0)
    {keep}
    if told: say({{'type': 'value', 'id': 'nobody', 'room': answer['serial']}})
    kept.append((fd, keep))
time.sleep(0.5)"""
        assert box.run_code(code, inputs={"told": told}).success
        look = """
for fd, _ in kept:
    try: mmap.mmap(fd, size, mmap.MAP_PRIVATE, mmap.PROT_READ)[::4096]
    except ValueError: pass  # it is empty
[len(kept), sum(os.fstat(fd).st_blocks for fd, _ in kept)]"""
        found = box.run_code(look).results[0].text
        assert found == f"[{12 if told else 8}, 0]", found
        still_good(box)

    def test_a_name_for_a_room_is_no_way_to_write_to_it(self, box: Sandbox) -> None:
        """O_PATH: with it nobody has the room open, and yet it can be opened again."""
        code = """
def evil(r):
    global name
    data = packed(*frames.dumps(bytes(300_000))[:1])
    told, fd = room(len(data))
    os.pwrite(fd, data, 0)
    name = os.open(f'/proc/self/fd/{fd}', os.O_PATH)
    os.close(fd)
    say({'type': 'value', 'id': r.id, 'room': told['serial']})
answer('get', evil)"""
        assert box.run_code(code).success
        value = box["x"]
        code = """
values.handlers['get'] = values._get
said, fd = [], os.open(f'/proc/self/fd/{name}', os.O_RDWR)
for act in (lambda: os.pwrite(fd, b'x', 1000), lambda: os.ftruncate(fd, 0), lambda: mmap.mmap(fd, 10)):
    try: act(); said.append('done')
    except OSError as e: said.append(e.errno)
said"""
        assert box.run_code(code).results[0].text == "[1, 1, 1]"
        assert value == bytes(300_000)
        still_good(box)

    def test_what_a_worker_keeps_by_name_is_bounded(self) -> None:
        with Sandbox({"limits": {"memory": "512MiB"}, "recovery": {"checkpoints": "off"}}) as box:
            code = """
import numpy as np
kept = []
def evil(r):
    payload, buffers = frames.dumps(np.zeros(50 << 20, 'u1'))
    data = packed(payload, *buffers)
    told, fd = room(len(data))
    if fd < 0: raise MemoryError(told['reason'])
    os.pwrite(fd, data, 0)
    kept.append(os.open(f'/proc/self/fd/{fd}', os.O_PATH))
    os.close(fd)
    say({'type': 'value', 'id': r.id, 'room': told['serial']})
answer('get', evil)"""
            assert box.run_code(TOOLS + code).success
            mine = [box["x"] for _ in range(12)]  # what the host has of them is its own affair
            assert box.run_code("[os.close(fd) for fd in kept]; kept.clear()").success
            del mine
            with pytest.raises(CellError, match="kept of large values"):
                for _ in range(12):
                    box["x"]
            assert box.run_code("len(kept)").results[0].text in ("10", "9")
            assert box.run_code("[os.close(fd) for fd in kept]; kept.clear()").success
            assert len(box["x"]) == 50 << 20

    def test_who_opens_a_room_just_when_the_host_looks_at_it_sends_no_signal_that_ends_it(self) -> None:
        code = """
import os, time
from sandbox_kernel.session import rooms
room = rooms.Room(300_000, 1)
name = os.open(f"/proc/self/fd/{room.far}", os.O_PATH)
os.close(room.far)
host = os.getpid()
opens = os.fork()
while not opens and os.getppid() == host:
    os.close(os.open(f"/proc/self/fd/{name}", os.O_RDONLY))
end = time.monotonic() + 2
while opens and time.monotonic() < end:
    rooms._alone(room._near)
if opens:
    os.kill(opens, 9)"""
        assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0

    def test_what_it_keeps_of_values_that_it_was_given_is_bounded(self) -> None:
        """Nor would a limit count that; and a host's function may be called for ever."""
        limits = {"limits": {"memory": "512MiB"}, "recovery": {"checkpoints": "off"}}
        with Sandbox(limits, modules={"host": {"big": lambda: bytes(50 << 20)}}) as box:
            code = """
kept, refused = [], ""
for _ in range(20):
    call = {"type": "host_call", "module": "host", "name": "big", "room": 0}
    told = questions.exchange(call, [packed(*frames.dumps(((), {}))[:1])])
    if told.get("ename"): refused = told["ename"] + ": " + told["evalue"]; break
    kept += told["fds"]
[len(kept), refused]"""
            found = box.run_code(TOOLS + code).results[0].text
            assert found is not None and found.startswith("[10,") and "MemoryError: " in found, found
            assert "limits.memory = 512 MiB" in found
            with pytest.raises(FrameRefused, match=r"500 MiB.*limits\.memory"):
                box["x"] = bytes(50 << 20)
            assert box.run_code("for fd in kept: os.close(fd)").success
            box["x"] = bytes(50 << 20)
            assert box.run_code("import host; len(host.big())").results[0].text == str(50 << 20)

    def test_values_that_take_each_other_s_place_need_no_room(self) -> None:
        with Sandbox({"limits": {"memory": "512MiB"}}) as box:
            for number in range(12):  # copies of the session have old ones, and go
                box["x"] = np.full(10 << 20, number, dtype="f8")
                time.sleep(0.15)
            assert box.run_code("float(x[0])").results[0].text == "11.0"

    def test_a_worker_that_forbids_to_give_the_memory_back_is_ended(self, box: Sandbox) -> None:
        code = """
told, fd = room(1 << 20)
fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)"""
        lost = box.status()["workers_lost"]
        box.run_code(code)
        still_good(box)
        assert box.status()["workers_lost"] == lost + 1

    def test_a_room_that_is_filled_with_something_else(self, box: Sandbox, canary: Path) -> None:
        code = """
def evil(r):
    told, fd = room(300_000)
    os.pwrite(fd, packed(payload), 0)
    say({'type': 'value', 'id': r.id, 'room': told['serial']})
answer('get', evil)"""
        for payload in (pickle.dumps(Evil(canary)), b"\x80\x05N."):
            box.run_code(TOOLS + code, inputs={"payload": payload})
            with pytest.raises(ProtocolError):
                box["x"]
        still_good(box)

    def test_rooms_are_few_bounded_and_given_back(self, box: Sandbox) -> None:
        code = """
import collections
found = collections.Counter()
fds = []
for i in range(40):
    told, fd = room(100 << 20)
    found[told['op']] += 1
    fds.append(fd)
dict(found)"""
        before = held("/memfd:")
        assert box.run_code(code).results[0].text in ("{'room': 5, 'room_refused': 35}",)
        assert held("/memfd:") == before
        assert box.run_code("room(2**35)[0]['reason']").results[0].text is not None
        still_good(box)

    def test_no_room_between_cells(self, box: Sandbox) -> None:
        code = """
told = []
def later():
    while not (told and 'no cell runs' in told[-1]):
        time.sleep(0.02)
        told.append(str(room(1000)[0].get('reason')))
thread = threading.Thread(target=later); thread.start()"""
        assert box.run_code(code).success
        ended_between_cells(box)

    def test_descriptors_of_the_worker_go_nowhere(self, box: Sandbox) -> None:
        before = held("/dev/null")
        code = """
fd = os.open('/dev/null', os.O_RDONLY)
for packet in encode({'type': 'stream', 'parent': '', 'name': 'stdout', 'text': 'x'}):
    channel.sendmsg([packet], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [fd] * 10))])"""
        for _ in range(5):
            box.run_code(code)
        assert held("/dev/null") == before


class TestHostCalls:
    @pytest.mark.parametrize("at", range(16))
    def test_arguments_that_are_no_frame(self, box: Sandbox, canary: Path, at: int) -> None:
        call = "{'type': 'host_call', 'serial': 5, 'module': 'host', 'name': 'echo', 'room': 0}, [packed(payload)]"
        ex = box.run_code(f"say({call}); time.sleep(20)", inputs={"payload": payloads(canary)[at]})
        assert ex.error is not None and ex.error.name == "ProtocolError" and ex.state in LOST
        still_good(box)

    @pytest.mark.parametrize("arguments", ["[1]", "(1, 2)", "((1,), {2: 3})", "([1], {})", "'text'"])
    def test_arguments_that_are_none(self, box: Sandbox, arguments: str) -> None:
        call = "{'type': 'host_call', 'serial': 5, 'module': 'host', 'name': 'echo', 'room': 0}"
        ex = box.run_code(f"say({call}, [packed(*frames.dumps({arguments})[:1])]); time.sleep(20)")
        assert ex.error is not None and ex.error.name == "ProtocolError"
        still_good(box)

    @pytest.mark.parametrize("name", ["__class__", "__globals__", "VERSION", "echo.__globals__", "nothing", ""])
    def test_only_what_was_given_can_be_called(self, box: Sandbox, name: str) -> None:
        code = "told = questions.exchange({'type': 'host_call', 'module': 'host', 'name': name, 'room': 0}, "
        ex = box.run_code(code + "[packed(*frames.dumps(((), {}))[:1])])\ntold['ename']", inputs={"name": name})
        assert ex.results[0].text == "'AttributeError'"
        still_good(box)

    def test_a_caller_that_does_not_listen_is_stopped(self, box: Sandbox) -> None:
        call = "{'type': 'host_call', 'serial': 5, 'module': 'host', 'name': 'echo', 'room': 0}"
        code = f"data = [packed(frames.dumps(((bytes(200_000),), {{}}))[0])]\nfor i in range(5000): say({call}, data)"
        ex = box.run_code(code, timeout=2)
        assert ex.error is not None and ex.error.name in ("ProtocolError", "TimeLimit")
        still_good(box)

    def test_no_call_between_cells(self, box: Sandbox) -> None:
        code = """
import host
told = []
def later():
    while not (told and 'while a cell runs' in told[-1]):
        time.sleep(0.02)
        told.append(echo())
def echo():
    try: return str(host.echo(1))
    except RuntimeError as e: return str(e)
thread = threading.Thread(target=later); thread.start()"""
        assert box.run_code(code).success
        ended_between_cells(box)


def test_the_host_s_secrets_are_nowhere_in_the_worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from ..kernel.test_secrets import SCAN, _veiled

    monkeypatch.setenv("HOST_SECRET_TOKEN", "planted-in-the-environment-1")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "planted-name-2").write_text("planted-content-3")
    in_memory = "planted-in-" + "the-memory-4" * 2
    with (tmp_path / "planted-name-2").open() as file:
        os.set_inheritable(file.fileno(), True)
        for level in ("full", "seccomp+landlock"):
            with Sandbox(level=level) as box:
                needles = ["planted-in-the-environment-1", "planted-name-2", "planted-content-3", in_memory]
                needles.append(str(tmp_path))
                box.run_code("marker = 'marker-' + 'planted-0'")
                ex = box.run_code(SCAN.replace("NEEDLES", repr(_veiled([*needles, "marker-planted-0"]))))
                assert ex.stdout.strip() == "[5]", ex.text()
                ex = box.run_code("import os\nprint(dict(os.environ), os.listdir('/proc/self/fd'), os.getcwd())")
                assert not [n for n in needles if n in ex.stdout]


def test_threads_of_the_host_go_on_while_a_worker_floods(box: Sandbox) -> None:
    ticks: list[float] = []
    stop = threading.Event()

    def tick() -> None:
        while not stop.wait(0.01):
            ticks.append(time.monotonic())

    thread = threading.Thread(target=tick)
    thread.start()
    box.run_code("while True: say({'type': 'stream', 'parent': '', 'name': 'stdout', 'text': 'x' * 60000})", timeout=1)
    stop.set()
    thread.join()
    # A hundred where nothing else runs. (A machine that stalls keeps everybody waiting, but not all the time.)
    assert len(ticks) > 15
    still_good(box)


@pytest.mark.parametrize("then", ["time.sleep(1000)", "os.kill(os.getpid(), 19)"])
def test_a_worker_that_never_makes_the_copy_keeps_nobody(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    monkeypatch.setattr(copies, "ANSWER_S", 1.0)
    code = f"""
copier = next(o for o in gc.get_objects() if type(o).__name__ == "Server")._copier
copier.copy = lambda request: {then}"""
    assert box.run_code(code).success
    before = len(os.listdir("/proc/self/fd"))
    for demand in (lambda: box.checkpoint("a"), box.fork):
        with pytest.raises(CopyRefused, match="not answered within 1 s"):
            demand()
    assert len(os.listdir("/proc/self/fd")) <= before
    assert box.run_code("1", timeout=1).state in LOST
    still_good(box)


def test_a_checkpoint_that_does_not_wake_is_not_taken_for_another() -> None:
    with Sandbox() as box:
        box.run_code("x = 1")
        box.checkpoint("good")
        code = "server = next(o for o in gc.get_objects() if type(o).__name__ == 'Server')"
        box.run_code(f"{TOOLS}{code}\nx = 2; server._copier._wake = lambda fields: os._exit(3)")
        box.checkpoint("bad")
        with pytest.raises(SandboxError) as caught:
            box.rollback("bad")
        assert caught.value.state == "restored" and "restored" in caught.value.explain()
        assert box["x"] == 1
        still_good(box)
