"""The socket of what cells show."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import zmq
from jupyter_client.session import Session

from sandbox_kernel.kernel import iopub as module
from sandbox_kernel.kernel.iopub import IOPub

from ..waiting import wait_for


@pytest.mark.parametrize("topic", [b"", b"kernel."])
def test_a_client_is_greeted_before_it_gets_anything_else(topic: bytes) -> None:
    # (The kernel says "starting" before its loop runs; a client may have been waiting for the socket.)
    with zmq.Context() as context, context.socket(zmq.XPUB) as bound, context.socket(zmq.SUB) as client:
        port = bound.bind_to_random_port("tcp://127.0.0.1")
        iopub = IOPub(bound, Session(key=b"k"))
        client.subscribe(topic)
        client.connect(f"tcp://127.0.0.1:{port}")
        wait_for(lambda: bound.getsockopt(zmq.EVENTS) & zmq.POLLIN)
        iopub.send_multipart([b"kernel.status", b"the first"])
        client.rcvtimeo = 20_000
        first, second = client.recv_multipart(), client.recv_multipart()
        assert b"iopub_welcome" in b"".join(first) and second == [b"kernel.status", b"the first"]


@pytest.fixture
def socket() -> Iterator[zmq.Socket[bytes]]:
    with zmq.Context() as context, context.socket(zmq.XPUB) as bound:
        yield bound


def _subscriber(socket: zmq.Socket[bytes]) -> zmq.Socket[bytes]:
    client = socket.context.socket(zmq.SUB)
    client.rcvtimeo = 20_000
    client.subscribe(b"")
    client.connect(socket.last_endpoint.decode())
    return client


async def _until(client: zmq.Socket[bytes]) -> list[bytes]:
    while not client.poll(0):
        await asyncio.sleep(0.01)
    return client.recv_multipart()


def test_a_cell_that_comes_before_the_subscription_is_answered_all_the_same(socket: zmq.Socket[bytes]) -> None:
    """The sockets of a client that has waited for the kernel connect one by one."""
    socket.bind("tcp://127.0.0.1:*")
    iopub = IOPub(socket, Session(key=b"k"))
    iopub.send_multipart([b"kernel.status", b"starting"])

    async def serve() -> list[list[bytes]]:
        iopub.start_on(asyncio.get_running_loop())
        said = [[b"kernel.status", b"busy"], [b"kernel.result", b"42"], [b"kernel.status", b"idle"]]
        for message in said:
            iopub.send_multipart(message)
        assert iopub.backlog == 0, "the worker need not wait"
        with _subscriber(socket) as client:
            found = [await _until(client) for _ in range(5)]
            iopub.send_multipart([b"kernel.status", b"later"])
            return [*found, await _until(client)]

    welcome, *rest = asyncio.run(serve())
    assert b"iopub_welcome" in b"".join(welcome)
    assert [message[1] for message in rest] == [b"starting", b"busy", b"42", b"idle", b"later"]


def test_what_nobody_wants_to_hear_is_held_for_a_while_only(
    socket: zmq.Socket[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    socket.bind("tcp://127.0.0.1:*")
    iopub = IOPub(socket, Session(key=b"k"))
    monkeypatch.setattr(module, "HOLD_S", 0.05)

    async def serve() -> list[bytes]:
        iopub.start_on(asyncio.get_running_loop())
        for _ in range(1000):
            iopub.send_multipart([b"kernel.stream", b"old"])
        assert iopub.backlog > 0, "there is an end to what is held"
        while iopub.backlog:
            await asyncio.sleep(0.01)
        iopub.send_multipart([b"kernel.stream", b"old"])
        with _subscriber(socket) as client:
            await _until(client)
            iopub.send_multipart([b"kernel.stream", b"new"])
            return await _until(client)

    assert asyncio.run(serve()) == [b"kernel.stream", b"new"]


def test_what_is_to_be_sent_soon_comes_before_all_else_and_by_itself(socket: zmq.Socket[bytes]) -> None:
    socket.bind("tcp://127.0.0.1:*")
    iopub = IOPub(socket, Session(key=b"k"))

    def soon(text: bytes) -> None:
        iopub.soon(lambda: iopub.send_multipart([b"kernel", text]))

    async def serve() -> list[bytes]:
        iopub.start_on(asyncio.get_running_loop())
        with _subscriber(socket) as client:
            await _until(client)
            soon(b"1")
            soon(b"2")
            assert not client.poll(20)
            iopub.send_multipart([b"kernel", b"3"])
            soon(b"4")
            found = [await _until(client) for _ in range(4)]
            assert not client.poll(0), "each of them once"
            return [message[1] for message in found]

    assert asyncio.run(serve()) == [b"1", b"2", b"3", b"4"]


def test_one_that_fails_takes_no_other_along(socket: zmq.Socket[bytes]) -> None:
    socket.bind("tcp://127.0.0.1:*")
    iopub, sent, told = IOPub(socket, Session(key=b"k")), [], []

    def fail() -> None:
        raise ValueError

    async def serve() -> list[bytes]:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: told.append(type(context["exception"])))
        iopub.start_on(loop)
        with _subscriber(socket) as client:
            await _until(client)
            iopub.soon(lambda: sent.append(1))
            iopub.soon(fail)
            iopub.soon(lambda: sent.append(2))
            iopub.send_multipart([b"kernel", b"3"])
            return await _until(client)

    assert asyncio.run(serve()) == [b"kernel", b"3"]
    assert sent == [1, 2] and told == [ValueError]
