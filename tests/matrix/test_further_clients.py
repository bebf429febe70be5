"""Clients beside the matrix are driven without a base URL, and send no packet past the proxy."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from offbook import Playbook, say, when
from offbook.runs import run_command
from tests.matrix.further_clients import CLIENTS, MODEL, SOURCES, Client, build_go
from tests.matrix.homes import CLIENTS_FOLDER, HOMES
from tests.matrix.rows import WHOLE
from tests.matrix.trap import REPORT

pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(not WHOLE, reason="./dev clients runs the whole matrix"),
]
PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "determinism.md"


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    """Compile what has to be compiled, and put it where its packages are: once for all workers."""
    CLIENTS_FOLDER.mkdir(parents=True, exist_ok=True)
    with (CLIENTS_FOLDER / "further.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        build_go()
        if HOMES["node-http"].ready:
            shutil.copy(SOURCES / "ask.mjs", HOMES["node-http"].folder)


def run_in_trap(client: Client, mode: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the runs of a client, and what it sent past the proxy."""
    if missing := client.find_missing():
        pytest.skip(missing)
    python = [sys.executable, "-m"]
    words = [*python, "tests.matrix.trap", *python, "tests.matrix.further_clients", mode]
    completed = subprocess.run(
        [*words, client.name], capture_output=True, text=True, timeout=300, check=False
    )
    if "cannot make a network namespace" in completed.stderr:
        pytest.skip("no network namespaces here")
    lines = completed.stdout.splitlines()
    runs = [json.loads(line) for line in lines if not line.startswith(REPORT)]
    assert runs, completed.stdout + completed.stderr
    # The first line of the report has their number.
    caught = [line for line in lines if line.startswith(REPORT)]
    assert caught, completed.stderr
    return runs, caught[1:]


@pytest.mark.parametrize("mode", ["plain", "sealed"])
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_client_is_driven_or_refused_and_sends_no_packet(client: Client, mode: str):
    runs, caught = run_in_trap(client, mode)
    elsewhere = client.host_elsewhere()
    if mode == "plain" and not client.reads_proxy:
        assert any(elsewhere in line for line in caught)  # the trap sees it
        assert client.way_out in PAGE.read_text()
        return
    assert caught == []
    assert any(host.startswith(elsewhere) for host in runs[0]["refused"])
    assert (runs[1]["host"], runs[1]["answered"]) == (MODEL, client.driven)


def test_a_command_with_its_host_in_its_code_is_driven(tmp_path: Path):
    home = HOMES["aicommits"]
    if not home.ready:
        pytest.fail(home.describe_missing(), pytrace=False)
    repository = tmp_path / "repository"
    (tmp_path / ".aicommits").write_text("OPENAI_KEY=sk-of-no-account\n")
    person = {"NAME": "A", "EMAIL": "a@example.org"}
    environment = {
        **os.environ,
        **{f"GIT_{role}_{k}": v for role in ("AUTHOR", "COMMITTER") for k, v in person.items()},
        "HOME": str(tmp_path),
        "GIT_EDITOR": "true",
    }

    def run(*words: str) -> str:
        cwd = repository if repository.exists() else tmp_path
        return subprocess.run(
            words, cwd=cwd, env=environment, capture_output=True, text=True, check=True
        ).stdout

    run("git", "init", "-q", str(repository))
    (repository / "weather.txt").write_text("sunny\n")
    run("git", "add", ".")
    run(str(home.folder / "node_modules" / ".bin" / "aicommits"), "hook", "install")
    source = Playbook()
    source.load(when("sunny", [say("Note the weather")]))
    commit = ["git", "commit", "--no-edit"]
    result = run_command(source, commit, echo=False, environment=environment, cwd=repository)
    assert (result.failure, result.refused) == (None, [])
    assert run("git", "log", "--format=%s") == "Note the weather\n"
