"""Backends: commands and real clients in the loop, with a scripted or a real model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from offbook.errors import UsageError
from offbook.exchange import Reply, Request, Text, Usage
from offbook.sources.server import Server
from offbook.workflows import check, inspect, record, replay, run, setup
from tests.clients import CLAUDE, CODEX, PI, Shell, installed
from tests.forked import forked_command
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
def isolated_workspaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    setup("w")


@pytest.fixture
def small_agent(tmp_path: Path) -> list[str]:
    """The command of a small_agent agent without any SDK."""
    path = tmp_path / "agent.py"
    path.write_text(AGENT)
    return forked_command(path)


def write_playbook(folder: Path, tool: str, params: dict[str, Any]) -> str:
    """Write the playbook of both hats: the planner plans, the builder writes a file."""
    path = folder / "play.py"
    made = f"call({tool!r}, {params!r})"
    path.write_text(
        "from offbook import call, say, when\n"
        f"playbook = [when('planner', [say({PLANNED!r})]),\n"
        f"    when('builder', [{made}, say('It is there.\\nLOOP_COMPLETE')])]\n"
    )
    return str(path)


WRITES = "echo by the builder > made.txt"


async def test_a_command_calls_its_scripted_model(small_agent: list[str], tmp_path: Path):
    playbook = write_playbook(tmp_path, "shell", {"command": WRITES})
    ran = await run("w", "Make it", backend="command", command=small_agent, playbook=playbook)
    assert ran.error == ""
    assert ran.stdout.count("LOOP_COMPLETE") == 1
    called = {"type": "tool_called", "tool": "shell"}
    assert check("w", [*FLOW, called]).passed
    requests = inspect("w", filter={"event_types": ["model.request"]})["records"]
    assert [item["data"]["metadata"]["hat"] for item in requests] == [
        "planner",
        "builder",
        "builder",
    ]
    assert len({item["data"]["exchange"] for item in requests}) == 3


async def test_a_model_without_an_agent_can_be_the_backend(tmp_path: Path):
    path = tmp_path / "mocks.jsonl"
    path.write_text('{"text": "All is well.\\nLOOP_COMPLETE"}\n')
    ran = await run("w", "Say so", backend="playbook", playbook=str(path))
    assert (ran.exit_code, ran.stdout) == (0, "All is well.\nLOOP_COMPLETE")


async def test_a_playbook_with_unused_turns_is_an_error(small_agent: list[str], tmp_path: Path):
    playbook = write_playbook(tmp_path, "shell", {"command": WRITES})
    ran = await run(
        "w", "Make it", backend="command", command=small_agent, playbook=playbook, max_iterations=1
    )
    assert "playbook not fully consumed" in ran.error
    [verdict] = inspect("w", filter={"event_types": ["check.verdict"]})["records"]
    assert verdict["data"]["status"] == "fail"


async def test_a_prompt_without_a_matching_turn_fails_the_run(
    small_agent: list[str], tmp_path: Path
):
    path = tmp_path / "play.yaml"
    path.write_text("- when: no such prompt\n  do:\n    - say: never\n")
    ran = await run("w", "Make it", backend="command", command=small_agent, playbook=str(path))
    assert ran.exit_code == 1
    assert "no such prompt" in ran.error


@pytest.mark.parametrize(
    "backend, shell", [pytest.param(n, s, marks=installed(s).marks) for n, s in BACKENDS.items()]
)
async def test_a_client_runs_with_a_scripted_model(backend: str, shell: Shell, tmp_path: Path):
    playbook = write_playbook(tmp_path, "shell", {"command": WRITES, **dict(shell.more)})
    ran = await run("w", "Make it", backend=backend, playbook=playbook)
    assert (ran.exit_code, ran.error) == (0, ""), ran
    assert ran.stdout.count("LOOP_COMPLETE") == 1
    checked = check("w", [*FLOW, {"type": "tool_sequence", "tools": ["shell"]}])
    assert checked.passed, checked


class Provider:
    """A fake provider that counts its requests."""

    def __init__(self) -> None:
        self.requests = 0

    async def reply(self, request: Request, /) -> Reply:  # noqa: ARG002 - the protocol's
        self.requests += 1
        return Reply((Text("Done.\nLOOP_COMPLETE"),), usage=Usage(100, 20))


@pytest.fixture
def provider() -> Iterator[tuple[Provider, str]]:
    source = Provider()
    with Server() as server:
        yield source, server.mount(source).url


@pytest.mark.parametrize("shell", [installed(CODEX)])
async def test_a_client_calls_the_real_model_only_with_its_key(
    shell: Shell, provider: tuple[Provider, str]
):
    source, url = provider
    with pytest.raises(UsageError, match="would call a real model"):
        await run("w", "Go", backend=shell.client.program)
    assert source.requests == 0
    key = "sk-proj-" + "abcdEFGH1234" * 3
    env = {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": key}
    ran = await run("w", "Go", backend="codex", env=env)
    assert (ran.exit_code, source.requests, ran.error) == (0, 1, "")
    assert key not in read(ran.session_file)
    replies = inspect("w", filter={"event_types": ["model.reply"]})["records"]
    assert [item["data"]["usage"]["input"] for item in replies] == [100]


@pytest.mark.parametrize("shell", [installed(CODEX)])
async def test_a_real_model_is_recorded_with_tokens_and_without_its_key(
    shell: Shell, provider: tuple[Provider, str]
):
    source, url = provider
    key = "a key without a known prefix"
    env = {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": key}
    recorded = await record("w", "live", "Go", shell.client.program, env=env)
    assert (recorded.interactions, recorded.total_tokens, recorded.error) == (1, 120, "")
    assert key not in read(recorded.cassette_path)
    assert key not in read(recorded.session_file)
    replayed = await replay("w", "live", "Go")
    assert (replayed.exit_code, replayed.cost_dollars, source.requests) == (0, 0.0, 1)


def read(path: str) -> str:
    return Path(path).read_text()


async def test_kiro_is_started_with_its_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shim = tmp_path / "bin" / "kiro-cli"
    shim.parent.mkdir()
    shim.write_text('#!/bin/sh\necho "$1 $2 $3 key=$KIRO_KEY home=$HOME"\necho LOOP_COMPLETE\n')
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shim.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("KIRO_KEY", "mine, and not given")
    with pytest.raises(UsageError, match="would call a real model"):
        await run("w", "Go", backend="kiro")
    with pytest.raises(UsageError, match="cannot use a playbook"):
        await run("w", "Go", backend="kiro", playbook="play.yaml")
    ran = await run("w", "Go", backend="kiro", env={"KIRO_REGION": "here"})
    assert ran.exit_code == 0, ran
    assert ran.stdout.startswith("chat --no-interactive --trust-all-tools key= home=")
    assert str(Path.home()) + "\n" not in ran.stdout


@pytest.mark.parametrize(
    "options, message",
    [
        ({"backend": "codx"}, "did you mean 'codex'"),
        ({"backend": "playbook"}, "needs a playbook"),
        ({"backend": "command", "command": ["no-such-agent"]}, "backend_not_found"),
        ({"backend": "kiro", "env": {"A": "b"}}, "backend_not_found: Kiro is not installed"),
        ({"backend": "codex", "mock_responses": ["x"]}, "takes no mock_responses"),
        ({"backend": "playbook", "playbook": "no-such.yaml"}, "no-such.yaml: cannot be read"),
    ],
)
async def test_invalid_options_are_rejected_before_the_run(options: dict[str, Any], message: str):
    with pytest.raises(UsageError, match=message):
        await run("w", "Go", **options)
    with pytest.raises(UsageError, match="no session yet"):
        inspect("w")
