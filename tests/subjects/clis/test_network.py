"""In a network that is nothing but loopback, the clients work, and ask for nobody's address."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients import CLAUDE, CODEX, Shell, installed

# Its own network and mounts: every name would be looked up at the trap, which notes it down.
SCRIPT = """
import socket, sys, threading

asked = []
trap = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
trap.bind(("127.0.0.77", 53))

def listen():
    while True:
        question, sender = trap.recvfrom(4096)
        asked.append(question[12:].split(bytes(1))[0])
        trap.sendto(question[:2] + bytes.fromhex("8183") + question[4:], sender)  # no such name

threading.Thread(target=listen, daemon=True).start()

from offbook import call, drive, say, when
from tests.clients import CLAUDE, CODEX

shell = {"codex": CODEX, "claude": CLAUDE}[sys.argv[1]]
with drive(shell.make(deadline=60)) as rehearsal:
    rehearsal.run(when("Go", [call(shell.tool, shell.params("echo alone")), say("Done.")]))
    assert "alone" in rehearsal.events.tool_results_for(shell.tool)[0].text
assert not asked, asked
try:
    socket.getaddrinfo("somebody.example", 443)
except OSError:
    pass
assert asked, "the trap hears nothing"
print("nobody was asked")
"""


def enter(
    folder: Path, root: Path, script: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run a script where there is no network but loopback."""
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
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("shell", [installed(CODEX), installed(CLAUDE)])
def test_nobody_but_loopback_is_reached(shell: Shell, tmp_path: Path, root: Path):
    if not all(map(shutil.which, ("unshare", "ip", "mount"))):
        pytest.skip("unshare, ip and mount are needed to be alone")
    if enter(tmp_path, root, "pass").returncode:
        pytest.skip("network namespaces are not allowed here")
    outcome = enter(tmp_path, root, SCRIPT, str(shell))
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert "nobody was asked" in outcome.stdout
