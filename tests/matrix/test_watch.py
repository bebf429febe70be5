"""The watch of the matrix logs connections to other hosts, and no others."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.matrix.test_matrix import WATCH

# The events of Python's socket module, without its connections.
LOGGED = {
    "a name": (("getaddrinfo", "telemetry.invalid", 443, 0, 1, 0), "telemetry.invalid:443"),
    "an address": (("connect", None, ("192.0.2.1", 443)), "192.0.2.1:443"),
    "a datagram": (("sendto", None, ("192.0.2.1", 53)), "192.0.2.1:53"),
    "this machine": (("connect", None, ("127.0.0.1", 1)), ""),
    "this machine, by name": (("getaddrinfo", "localhost", 80, 0, 1, 0), ""),
    "a socket file": (("connect", None, "/run/socket"), ""),
}


@pytest.mark.parametrize("event, address", LOGGED.values(), ids=LOGGED)
def test_a_connection_to_another_host_is_logged(
    event: tuple[object, ...], address: str, tmp_path: Path
):
    log = tmp_path / "connections.txt"
    watch = {"PYTHONPATH": str(WATCH), "OFFBOOK_CONNECTIONS": str(log)}
    name, *arguments = event
    code = f"import sys\nsys.audit('socket.{name}', *{arguments!r})"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, **watch}, check=True)
    logged = log.read_text() if log.exists() else ""
    assert logged.partition(" in ")[0] == (f"socket.{name} {address}" if address else "")
