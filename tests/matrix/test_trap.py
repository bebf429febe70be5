"""The trap of the matrix catches what goes to another machine, and nothing else."""

import shutil
import subprocess
import sys

import pytest

from tests.matrix.trap import Trap, catch

ASK = "import socket\n"
TCP = "socket.socket(socket.{family}).connect_ex(({host!r}, {port}))"
UDP = "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ({host!r}, {port}))"
SENT = {
    "a name, then a connection": (
        "try: socket.create_connection(('telemetry.invalid', 443))\nexcept OSError: pass",
        {"a query for telemetry.invalid", "tcp to telemetry.invalid port 443"},
    ),
    "an address": (
        TCP.format(family="AF_INET", host="192.0.2.1", port=9),
        {"tcp to 192.0.2.1 port 9"},
    ),
    "a datagram": (UDP.format(host="192.0.2.2", port=99), {"udp to 192.0.2.2 port 99"}),
    "a port of this machine": (TCP.format(family="AF_INET", host="127.0.0.1", port=9), set[str]()),
    "the same, of IPv6": (TCP.format(family="AF_INET6", host="::1", port=9), set[str]()),
    "a name of this machine": ("socket.getaddrinfo('localhost', 80)", set[str]()),
}


@pytest.mark.parametrize("code, expected", SENT.values(), ids=SENT)
def test_a_packet_to_another_machine_is_caught(code: str, expected: set[str]) -> None:
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-Urn", "true"], check=False).returncode:
        pytest.skip("no network namespaces here")
    trap = Trap()
    assert catch([sys.executable, "-I", "-S", "-c", ASK + code], trap) == 0
    assert {*trap.caught} == expected
