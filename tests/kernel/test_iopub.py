"""The socket of what cells show."""

from __future__ import annotations

import pytest
import zmq
from jupyter_client.session import Session

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
