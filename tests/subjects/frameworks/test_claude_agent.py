"""The adapter of claude-agent-sdk, on a stand-in for it; the matrix drives the real one."""

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import pytest

from offbook.errors import RunError
from offbook.sources.playbook import Playbook
from offbook.subjects import RunContext
from offbook.subjects.frameworks import ClaudeAgent, FrameworkSubject
from offbook.trace import Hub


@dataclass(frozen=True)
class Options:
    cwd: Path | None = None
    env: dict[str, str] = field(default_factory=dict[str, str])
    resume: str | None = None
    model: str = ""
    can_use_tool: Any = None


@dataclass
class ResultMessage:
    result: str | None
    is_error: bool = False
    session_id: str = "the session"


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> list["Client"]:
    started: list[Client] = []
    Client.messages = ["a message", ResultMessage("Done.")]

    def start(options: Options) -> Client:
        started.append(Client(options))
        return started[-1]

    sdk = ModuleType("claude_agent_sdk")
    vars(sdk).update(ClaudeSDKClient=start, ResultMessage=ResultMessage)
    monkeypatch.setitem(sys.modules, sdk.__name__, sdk)
    return started


class Client:
    messages: list[Any]

    def __init__(self, options: Options) -> None:
        self.options = options
        self.asked = ""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def query(self, text: str) -> None:
        self.asked = text

    async def receive_response(self) -> AsyncIterator[Any]:
        for message in self.messages:
            yield message


async def test_the_second_prompt_resumes_the_session(clients: list[Client]):
    agent = ClaudeAgent(Options(), {})
    for text in ("one", "two"):
        assert agent.output(await agent.prompt(text, Hub())) == "Done."
    assert [(client.asked, client.options.resume) for client in clients] == [
        ("one", None),
        ("two", "the session"),
    ]


@pytest.mark.parametrize(
    "messages, reason",
    [
        (["a message"], "no result"),
        ([ResultMessage("no credit", is_error=True)], "no credit"),
        ([ResultMessage(None, is_error=True)], "no result"),
    ],
)
async def test_a_run_without_a_result_is_an_error(
    clients: list[Client], messages: list[Any], reason: str
):
    Client.messages = messages
    with pytest.raises(RunError, match=f"^claude-agent-sdk failed: {reason}$"):
        await ClaudeAgent(Options(), {}).prompt("one", Hub())


def test_the_client_has_its_own_home_until_the_end(clients: list[Client], tmp_path: Path):
    options = Options(env={"NO_COLOR": "0"})
    agent = ClaudeAgent(options, {"model": "mine"})
    remove = agent.prepare(RunContext(Playbook(), Hub(), tmp_path, "http://127.0.0.1:1"))
    asyncio.run(agent.prompt("one", Hub()))
    used = clients[0].options
    home = Path(used.env["HOME"])
    assert (used.cwd, used.model, used.env["NO_COLOR"]) == (tmp_path, "mine", "0")
    assert "http://127.0.0.1:1" in used.env["ANTHROPIC_BASE_URL"]
    assert home.is_dir()
    remove()
    assert not home.exists()
    assert options.env == {"NO_COLOR": "0"}


def test_the_options_are_the_fields_of_the_options():
    assert set(ClaudeAgent(Options(), {}).option_names()) == {f.name for f in fields(Options)}


def test_a_subject_prepares_the_client_and_cleans_up(clients: list[Client], tmp_path: Path):
    agent = ClaudeAgent(Options(), {})
    subject = FrameworkSubject(agent)
    assert subject.model_access == agent.model_access != "transport"
    assert subject.tool_aliases == agent.tool_aliases
    asyncio.run(subject.open(RunContext(Playbook(), Hub(), tmp_path, "http://127.0.0.1:1")))
    assert asyncio.run(subject.prompt("one")) == "Done."
    home = Path(clients[0].options.env["HOME"])
    assert home.is_dir()
    for _ in range(2):
        asyncio.run(subject.close())
    assert not home.exists()


async def test_an_error_of_the_client_after_one_of_the_provider_ends_the_turn(
    clients: list[Client], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    hub = Hub()

    async def query(_: Client, text: str) -> None:
        hub.emit("model.error", {"status": 401, "message": text})

    monkeypatch.setattr(Client, "query", query)
    Client.messages = [ResultMessage("API Error: 401", is_error=True)]
    subject = FrameworkSubject(ClaudeAgent(Options(), {}))
    await subject.open(RunContext(Playbook(), hub, tmp_path, "http://127.0.0.1:1"))
    assert await subject.prompt("one") is None
    assert isinstance(subject.error, RunError)
    await subject.close()
