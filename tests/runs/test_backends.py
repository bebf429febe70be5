"""The loop with real agents: whatever plays their model, they do the work."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from offbook.errors import UsageError
from offbook.exchange.messages import Text
from offbook.exchange.model import Reply, Request, Usage
from offbook.sources.server.server import Server
from offbook.workflows.loop_cassette import record, replay
from offbook.workflows.loop_run import run
from offbook.workflows.tools import check, inspect, setup
from tests.clients import CLAUDE, CODEX, PI, Shell, installed
from tests.subjects.clis.test_command import AGENT

PLANNED = '<event topic="build.task">Write made.txt</event>'
BACKENDS = {"claude": CLAUDE, "codex": CODEX, "pi": PI}
FLOW = [
    {"type": "exit_code", "expected": 0},
    {"type": "termination_reason", "expected": "CompletionPromise"},
    {"type": "hat_sequence", "hats": ["planner", "builder"]},
    {"type": "event_sequence", "topics": ["task.start", "build.task"]},
    {"type": "file_contains", "path": "made.txt", "pattern": "by the builder"},
    {"type": "stdout_contains", "pattern": "LOOP_COMPLETE"},
]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    setup("w")


@pytest.fixture
def small(tmp_path: Path) -> list[str]:
    """A small agent that knows nothing of Offbook, nor of any SDK."""
    path = tmp_path / "agent.py"
    path.write_text(AGENT)
    return [sys.executable, str(path)]


def write_playbook(folder: Path, tool: str, params: dict[str, Any]) -> str:
    """The model of both hats: the planner plans, the builder writes a file and is done."""
    path = folder / "play.py"
    made = f"call({tool!r}, {params!r})"
    path.write_text(
        "from offbook import call, say, when\n"
        f"playbook = [when('planner', [say({PLANNED!r})]),\n"
        f"    when('builder', [{made}, say('It is there.\\nLOOP_COMPLETE')])]\n"
    )
    return str(path)


WRITES = "echo by the builder > made.txt"


async def test_a_command_finds_its_scripted_model(small: list[str], tmp_path: Path):
    playbook = write_playbook(tmp_path, "shell", {"command": WRITES})
    ran = await run("w", "Make it", backend="command", command=small, playbook=playbook)
    assert ran.error == ""
    assert ran.stdout.count("LOOP_COMPLETE") == 1
    called = {"type": "tool_called", "tool": "shell"}
    assert check("w", [*FLOW, called]).passed
    asked = inspect("w", filter={"event_types": ["model.request"]})["records"]
    assert [one["data"]["metadata"]["hat"] for one in asked] == ["planner", "builder", "builder"]
    assert len({one["data"]["exchange"] for one in asked}) == 3


async def test_a_model_alone_can_do_the_talking(tmp_path: Path):
    path = tmp_path / "mocks.jsonl"
    path.write_text('{"text": "All is well.\\nLOOP_COMPLETE"}\n')
    ran = await run("w", "Say so", backend="playbook", playbook=str(path))
    assert (ran.exit_code, ran.stdout) == (0, "All is well.\nLOOP_COMPLETE")


async def test_a_script_that_is_not_played_to_its_end_is_an_error(small: list[str], tmp_path: Path):
    playbook = write_playbook(tmp_path, "shell", {"command": WRITES})
    ran = await run(
        "w", "Make it", backend="command", command=small, playbook=playbook, max_iterations=1
    )
    assert "playbook not fully consumed" in ran.error
    [verdict] = inspect("w", filter={"event_types": ["check.verdict"]})["records"]
    assert verdict["data"]["status"] == "fail"


async def test_what_the_script_does_not_answer_fails_the_run(small: list[str], tmp_path: Path):
    path = tmp_path / "play.yaml"
    path.write_text("- when: nobody says this\n  do:\n    - say: never\n")
    ran = await run("w", "Make it", backend="command", command=small, playbook=str(path))
    assert ran.exit_code == 1
    assert "nobody says this" in ran.error


@pytest.mark.parametrize(
    "backend, shell", [pytest.param(n, s, marks=installed(s).marks) for n, s in BACKENDS.items()]
)
async def test_a_client_works_for_real_on_a_scripted_model(
    backend: str, shell: Shell, tmp_path: Path
):
    playbook = write_playbook(tmp_path, "shell", {"command": WRITES, **dict(shell.more)})
    ran = await run("w", "Make it", backend=backend, playbook=playbook)
    assert (ran.exit_code, ran.error) == (0, ""), ran
    assert ran.stdout.count("LOOP_COMPLETE") == 1
    checked = check("w", [*FLOW, {"type": "tool_sequence", "tools": ["shell"]}])
    assert checked.passed, checked


class Provider:
    """The real provider, for the purposes of these tests; it notes the keys that it is shown."""

    def __init__(self) -> None:
        self.asked = 0

    async def reply(self, request: Request, /) -> Reply:  # noqa: ARG002 - whatever is asked
        self.asked += 1
        return Reply((Text("Done.\nLOOP_COMPLETE"),), usage=Usage(100, 20))


@pytest.fixture
def provider() -> Iterator[tuple[Provider, str]]:
    source = Provider()
    with Server() as server:
        yield source, server.mount(source).url


@pytest.mark.parametrize("shell", [installed(CODEX)])
async def test_a_client_asks_the_real_model_only_with_its_key(
    shell: Shell, provider: tuple[Provider, str]
):
    source, url = provider
    with pytest.raises(UsageError, match="would ask a real model"):
        await run("w", "Go", backend=shell.client.program)
    assert source.asked == 0
    key = "sk-proj-" + "abcdEFGH1234" * 3
    env = {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": key}
    ran = await run("w", "Go", backend="codex", env=env)
    assert (ran.exit_code, source.asked, ran.error) == (0, 1, "")
    assert key not in read(ran.session_file)
    replies = inspect("w", filter={"event_types": ["model.reply"]})["records"]
    assert [one["data"]["usage"]["input"] for one in replies] == [100]


@pytest.mark.parametrize("shell", [installed(CODEX)])
async def test_a_real_model_is_recorded_with_its_tokens_and_without_its_key(
    shell: Shell, provider: tuple[Provider, str]
):
    source, url = provider
    key = "my own words, and nobody else's"
    env = {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": key}
    recorded = await record("w", "live", "Go", shell.client.program, env=env)
    assert (recorded.interactions, recorded.total_tokens, recorded.error) == (1, 120, "")
    assert key not in read(recorded.cassette_path)
    assert key not in read(recorded.session_file)
    replayed = await replay("w", "live", "Go")
    assert (replayed.exit_code, replayed.cost_dollars, source.asked) == (0, 0.0, 1)


def read(path: str) -> str:
    return Path(path).read_text()


async def test_kiro_is_called_as_it_wants_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shim = tmp_path / "bin" / "kiro-cli"
    shim.parent.mkdir()
    shim.write_text('#!/bin/sh\necho "$1 $2 $3 key=$KIRO_KEY home=$HOME"\necho LOOP_COMPLETE\n')
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shim.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("KIRO_KEY", "mine, and not given")
    with pytest.raises(UsageError, match="would ask a real model"):
        await run("w", "Go", backend="kiro")
    with pytest.raises(UsageError, match="no playbook can be it"):
        await run("w", "Go", backend="kiro", playbook="play.yaml")
    ran = await run("w", "Go", backend="kiro", env={"KIRO_REGION": "here"})
    assert ran.exit_code == 0, ran
    assert ran.stdout.startswith("chat --no-interactive --trust-all-tools key= home=")
    assert str(Path.home()) + "\n" not in ran.stdout


@pytest.mark.parametrize(
    "options, told",
    [
        ({"backend": "codx"}, "did you mean 'codex'"),
        ({"backend": "playbook"}, "needs a playbook"),
        ({"backend": "command", "command": ["no-such-agent"]}, "backend_not_found"),
        ({"backend": "kiro", "env": {"A": "b"}}, "backend_not_found: Kiro is not installed"),
        ({"backend": "codex", "mock_responses": ["x"]}, "takes no mock_responses"),
        ({"backend": "playbook", "playbook": "no-such.yaml"}, "no-such.yaml: cannot be read"),
    ],
)
async def test_what_cannot_work_is_refused_before_it_starts(options: dict[str, Any], told: str):
    with pytest.raises(UsageError, match=told):
        await run("w", "Go", **options)
    with pytest.raises(UsageError, match="no session yet"):
        inspect("w")
