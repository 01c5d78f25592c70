"""Frameworks and servers in environments of their own, as the clients of `tests.clients` have them."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from ..clients import conftest as clients
from ..clients.conftest import Client, here, installed, kernelspecs, notebook, outside, serve

__all__ = ["here", "installed", "kernelspecs", "notebook", "outside", "serve"]

clients.REQUIREMENTS |= {
    "agents": ("smolagents>=1.20", "langchain-core>=0.3.30"),
    # (The proxy's ordinary implementation is a program for Node.)
    "hub": ("jupyterhub>=5.2", "configurable-http-proxy>=0.3.1"),
    # It wants a jupyter_client below 7.
    "enterprise": ("jupyter_enterprise_gateway>=3.2.3",),
}
clients.LAID_OVER |= {"agents", "hub"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("integrations")
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(150, func_only=True))


@pytest.fixture
def agents(here: Client, installed: Callable[[str], Path]) -> Client:
    """A program that has agents."""
    return Client(installed("agents"), here.environment, here.folder)


@pytest.fixture
def hub(here: Client, installed: Callable[[str], Path]) -> Client:
    """JupyterHub, a proxy, and the JupyterLab of the tests."""
    return Client(installed("hub"), here.environment, here.folder)


@pytest.fixture
def enterprise(here: Client, installed: Callable[[str], Path]) -> Client:
    """Jupyter Enterprise Gateway."""
    return Client(installed("enterprise"), here.environment, here.folder)


@pytest.fixture
def free_ports() -> Callable[[int], list[int]]:
    """Gives numbers of ports on loopback that nobody listens on now."""

    def give(count: int) -> list[int]:
        with ExitStack() as stack:
            probes = [stack.enter_context(socket.socket()) for _ in range(count)]
            for probe in probes:
                probe.bind(("127.0.0.1", 0))
            return [int(probe.getsockname()[1]) for probe in probes]

    return give
