"""Requests of real clients are recorded once and replayed without a network.

The commands `offbook record` and `offbook replay` run as processes, each in its own folder. A
replay has no network except loopback: that of a command is in a network namespace, an SDK runs in
a process with the network guard.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from offbook.exchange import Reply, Request, Text, ToolCall, Usage
from offbook.sources.cassette import load_cassette
from offbook.sources.server import Server
from offbook.subjects.clis import SETTINGS
from tests.clients import CLAUDE, CODEX, GEMINI, OPENCODE, marks_of
from tests.forked import SECONDS, forked_command, run_python
from tests.runs.command_clients import CLIENTS

SCRIPT = Path(__file__).parent / "command_clients.py"
PROMPT = "Look at order 7"
KEY = "sk-proj-" + "abcdEFGH1234" * 3
QUIET = {
    "PYTHONWARNINGS": "ignore",
    "PYDANTIC_AI_NO_UPDATE_CHECK": "1",
    "IS_SANDBOX": "1",
    "GEMINI_CLI_NO_RELAUNCH": "true",
}
SHELL = {
    "find_order": {"id": 7},
    "exec_command": {"cmd": "pwd; echo order 7 is blue"},
    "bash": {"command": "pwd; echo order 7 is blue", "description": "Look"},
    "Bash": {"command": "pwd; echo order 7 is blue", "description": "Look"},
    "run_shell_command": {"command": "pwd; echo order 7 is blue", "description": "Look"},
}
COMMANDS = {
    "claude": [
        *("--print", "--model", "claude-offbook", "--output-format", "stream-json", "--verbose"),
        *("--allowedTools", "Bash", "--", PROMPT),
    ],
    "codex": [
        *("exec", "--skip-git-repo-check", "--json", "--model", "gpt-offbook"),
        *("--dangerously-bypass-approvals-and-sandbox", "--", PROMPT),
    ],
    "opencode": [
        *("run", "--model", "anthropic/claude-sonnet-4-5", "--format", "json", "--pure", PROMPT),
    ],
    "gemini": [
        *("--model", "gemini-2.5-pro", "--output-format", "stream-json", "--skip-trust"),
        *("--approval-mode", "yolo", f"--prompt={PROMPT}"),
    ],
}
# A process that imports its SDK takes seconds of the processor.
IMPORTS = {
    "openai": ["openai"],
    "anthropic": ["anthropic"],
    "google_genai": ["google.genai"],
    "pydantic_ai": ["pydantic_ai", "pydantic_ai.models.openai"],
}


SHELLS = (CLAUDE, CODEX, GEMINI, OPENCODE)


class Upstream:
    """A substitute for the real provider: one tool call, then a text."""

    def __init__(self) -> None:
        self.requests = 0

    async def reply(self, request: Request, /) -> Reply:
        self.requests += 1
        known = [tool.name for tool in request.tools if tool.name in SHELL]
        if known and not any(message.results for message in request.messages):
            call = ToolCall(f"call_{self.requests}aB3", known[0], SHELL[known[0]])
            return Reply((Text("let me look"), call), "tool_use", Usage(20, 9))
        text = f"It is blue, {self.requests} times."
        return Reply((Text(text),), usage=Usage(10, 3), chunks=("It is ", "bl", text[8:]))


def command_of(client: str) -> list[str]:
    """Return the command that runs a client."""
    if client in COMMANDS:
        program = {str(shell): shell for shell in SHELLS}[client].client.find()
        return [str(program), *COMMANDS[client]]
    return forked_command(SCRIPT, client, PROMPT, imports=IMPORTS[client])


def parse_output(client: str, output: str, folder: Path) -> list[Any]:
    """Return the texts and tool results of a client, without ids, times and paths."""
    if client not in COMMANDS:
        return [output]
    events = [msgspec.json.decode(line) for line in output.replace(str(folder), "").splitlines()]
    if client == "codex":
        items = [event["item"] for event in events if event["type"] == "item.completed"]
        return [(one.get("text"), one.get("aggregated_output")) for one in items]
    if client == "gemini":  # chunks are printed as they arrive, two may be joined
        pieces = [event["content"] for event in events if event.get("role") == "assistant"]
        return [*(event.get("output") for event in events), "".join(pieces)]
    if client == "opencode":
        parts = [event["part"] for event in events if event["type"] in {"text", "tool_use"}]
        return [(part.get("text"), part.get("state", {}).get("output")) for part in parts]
    contents = [event["message"]["content"] for event in events if "message" in event]
    return [
        (block.get("text"), block.get("input"), block.get("content"))
        for content in contents
        for block in content
    ]


@cache
def _without_network() -> tuple[str, ...]:
    """Return a prefix that runs a command without a network, if the system allows it."""
    words = ("unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
    if not shutil.which("unshare") or subprocess.run([*words, "true"], check=False).returncode:
        return ()
    return words


def offbook(
    *arguments: object,
    folder: Path,
    env: dict[str, str] | None = None,
    before: tuple[str, ...] = (),
) -> subprocess.CompletedProcess[str]:
    home = folder.with_name(f"{folder.name}-home")
    for made in (folder, home / ".gemini"):
        made.mkdir(parents=True)
    # Gemini CLI sends its skills in the order in which their files happened to be read.
    settings = {**SETTINGS, "skills": {"enabled": False}}
    (home / ".gemini" / "settings.json").write_bytes(msgspec.json.encode(settings))
    variables = {name: held for name, held in os.environ.items() if "API_KEY" not in name}
    folders = {"HOME": str(home), "TMPDIR": str(home), "PWD": str(folder)}
    environment = variables | QUIET | folders | (env or {})
    if not before:
        return run_python("-m", "offbook", *arguments, cwd=folder, env=environment)
    return subprocess.run(
        [*before, sys.executable, "-m", "offbook", *map(str, arguments)],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


@pytest.fixture
def upstream() -> Iterator[tuple[Upstream, dict[str, str]]]:
    model = Upstream()
    with Server() as server:
        yield model, {**server.mount(model, run="").variables, "OPENAI_API_KEY": KEY}


SDKS = [pytest.param(name, marks=pytest.mark.slow) for name in sorted(CLIENTS)]
CLIS = [pytest.param(str(shell), marks=marks_of(shell)) for shell in SHELLS]


@pytest.mark.parametrize("client", [*SDKS, *CLIS])
def test_a_recording_of_a_real_client_is_replayed_the_same(
    client: str, tmp_path: Path, upstream: tuple[Upstream, dict[str, str]]
):
    model, variables = upstream
    cassette, here = tmp_path / f"{client}.yaml", tmp_path / "here"
    words = ["--", *command_of(client)]
    recorded = offbook("record", cassette, *words, folder=here, env=variables)
    assert recorded.returncode == 0, recorded.stderr
    expected = parse_output(client, recorded.stdout, here)
    assert str(expected[-1]).count(" times.") >= len(CLIENTS.get(client, (client,)))
    requests = model.requests
    assert requests == len(load_cassette(cassette))
    streamed = [
        item.response.chunks.split() for item in load_cassette(cassette) if item.request.stream
    ]
    pieces = [[int(piece.split("@")[0]) for piece in chunks] for chunks in streamed]
    assert [6, 2, 12] in pieces or client == "google_genai"  # as upstream cut it
    there = tmp_path / "deeper" / "there"
    isolated = () if client in CLIENTS else _without_network()
    again = offbook("replay", cassette, *words, folder=there, before=isolated)
    assert again.returncode == 0, again.stderr
    assert parse_output(client, again.stdout, there) == expected
    assert model.requests == requests
    if client in CLIENTS:
        assert again.stdout.endswith("refused: 0\n")  # by the network guard of the client
    assert KEY not in cassette.read_text(encoding="utf-8")
    assert str(here) not in cassette.read_text(encoding="utf-8")
