"""A server for commands that are started elsewhere."""

import socket

import pytest

from offbook.runs import Service
from offbook.sources.mocks import Mocks
from offbook.trace import Hub


def test_no_client_can_connect_before_the_run_exists():
    refused: list[int] = []

    def make_source() -> Mocks:
        port = service.server.port
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        refused.append(port)
        return Mocks([{"text": "ok"}])

    service = Service(make_source, Hub())
    with service:
        assert refused == [service.server.port]
        socket.create_connection(("127.0.0.1", service.server.port)).close()
