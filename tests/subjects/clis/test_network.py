"""With only a loopback network, the clients work and contact no other address."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.clients import CLAUDE, CODEX, GEMINI, Shell, installed
from tests.matrix.rows import ROWS, WEATHER, WHOLE, Row

TALKATIVE = "openai-agents"  # its tracing contacts OpenAI, whatever its provider is

# In its own network namespace, every name lookup goes to the trap, which records it.
SCRIPT = """
import socket, sys, threading

lookups = []
trap = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
trap.bind(("127.0.0.77", 53))

def listen():
    while True:
        query, sender = trap.recvfrom(4096)
        lookups.append(query[12:].split(bytes(1))[0])
        trap.sendto(query[:2] + bytes.fromhex("8183") + query[4:], sender)  # no such name

threading.Thread(target=listen, daemon=True).start()

from offbook import Command, call, drive, say, when
from tests.clients import CLAUDE, CODEX, GEMINI
from tests.matrix.rows import ROWS

shells = {"codex": CODEX, "claude": CLAUDE, "gemini": GEMINI}
if sys.argv[1] in shells:
    shell = shells[sys.argv[1]]
    subject = shell.make(deadline=240)
    turn = when("Go", [call(shell.tool, shell.params("echo alone")), say("Done.")])
else:
    row = {str(row): row for row in ROWS}[sys.argv[1]]
    subject, turn = Command(row.command, env=row.environment, deadline=240), row.turn
with drive(subject) as rehearsal:
    run = rehearsal.run(turn)
    assert run.tools, "no tool was called"
assert not lookups, lookups
try:
    socket.getaddrinfo("host.example", 443)
except OSError:
    pass
assert lookups, "the trap received nothing"
print("no other address was contacted")
"""


def run_isolated(
    folder: Path, root: Path, script: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run a script with only a loopback network."""
    resolv = folder / "resolv.conf"
    resolv.write_text("nameserver 127.0.0.77\n")
    inner = 'ip link set lo up && mount --bind "$0" /etc/resolv.conf && exec "$@"'
    words = ["unshare", "-n", "-m", "sh", "-c", inner, str(resolv), sys.executable, "-c", script]
    return subprocess.run(
        [*words, *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def clients() -> Iterator[ParameterSet]:
    """Yield the commands, and one row for each client: only TALKATIVE without the whole matrix."""
    yield from (installed(shell) for shell in (CODEX, CLAUDE, GEMINI))
    seen: set[str] = set()
    for row in ROWS:
        if row.client not in seen and row.turn is WEATHER and (WHOLE or row.client == TALKATIVE):
            seen.add(row.client)
            yield pytest.param(row, id=str(row), marks=[pytest.mark.clients, pytest.mark.slow])


@pytest.mark.parametrize("client", [*clients()])
def test_only_loopback_is_contacted(client: Shell | Row, tmp_path: Path, root: Path):
    if not all(map(shutil.which, ("unshare", "ip", "mount"))):
        pytest.skip("unshare, ip and mount are needed for a network namespace")
    if run_isolated(tmp_path, root, "pass").returncode:
        pytest.skip("network namespaces are not allowed here")
    if isinstance(client, Row):
        client.copy_scripts()
    outcome = run_isolated(tmp_path, root, SCRIPT, str(client))
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert "no other address was contacted" in outcome.stdout
