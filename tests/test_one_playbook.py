"""One playbook file, unchanged, plays the model of every agent, and each runs a tool of its own."""

import asyncio
import subprocess
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner, function_tool
from langchain import agents as langchain_agents
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI
from pydantic import SecretStr
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from offbook.runs.rehearsal import Rehearsal, drive
from offbook.sources.playbook import Call, Turn
from offbook.sources.scripts import read_script
from offbook.subjects.session.session import AgentSession
from offbook.subjects.subject import Reach, Stage, Subject
from offbook.trace.events import REPLY, TOOL_CALL, TOOL_RESULT
from tests.clients import CLAUDE, CODEX, Shell, marks_of

create_agent: Any = cast("Any", langchain_agents).create_agent
Answer = Callable[[str], Awaitable[object]]
PLAYBOOK = Path(__file__).with_name("one_playbook.yaml")


def run_shell(command: str, cwd: Path) -> str:
    """The tool of the frameworks' agents; the others have their own."""
    told = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    return told.stdout


class Framework:
    """An agent of a framework that is given a base URL, as any program would be."""

    reach: Reach = "endpoint"
    tells = False

    def __init__(self, name: str, build: Callable[[AsyncOpenAI, Path], Answer]) -> None:
        self.name = name
        self._build = build
        self._answer: Answer | None = None
        self._held = AsyncExitStack()

    async def open(self, stage: Stage) -> None:
        client = AsyncOpenAI(base_url=f"{stage.endpoint}/v1", api_key="x", max_retries=0)
        self._answer = self._build(await self._held.enter_async_context(client), stage.cwd)

    async def prompt(self, text: str) -> None:
        assert self._answer is not None
        await self._answer(text)

    async def close(self) -> None:
        await self._held.aclose()

    def tools(self) -> None:
        return None

    def commands(self) -> tuple[str, ...]:
        return ()

    def verdicts(self) -> tuple[()]:
        return ()


def build_pydantic(client: AsyncOpenAI, cwd: Path) -> Answer:
    model = OpenAIChatModel("m", provider=OpenAIProvider(openai_client=client))
    agent = PydanticAgent(model)

    @agent.tool_plain
    async def shell(command: str) -> str:  # pyright: ignore[reportUnusedFunction] - the agent has it
        return await asyncio.to_thread(run_shell, command, cwd)

    history: list[Any] = []

    async def answer(text: str) -> None:
        history[:] = (await agent.run(text, message_history=history)).all_messages()

    return answer


def build_agents(client: AsyncOpenAI, cwd: Path) -> Answer:
    @function_tool
    async def shell(command: str) -> str:
        return await asyncio.to_thread(run_shell, command, cwd)

    agent = Agent(
        name="a", tools=[shell], model=OpenAIChatCompletionsModel("m", openai_client=client)
    )
    history: list[Any] = []

    async def answer(text: str) -> None:
        asked: list[Any] = [*history, {"role": "user", "content": text}]
        quiet = RunConfig(tracing_disabled=True)
        history[:] = (await Runner.run(agent, asked, run_config=quiet)).to_input_list()

    return answer


def build_langgraph(client: AsyncOpenAI, cwd: Path) -> Answer:
    @tool
    async def shell(command: str) -> str:
        """Run a command."""
        return await asyncio.to_thread(run_shell, command, cwd)

    url = str(client.base_url)
    model = ChatOpenAI(model="m", base_url=url, api_key=SecretStr("x"), max_retries=0)
    agent: Any = create_agent(model, tools=[shell])
    history: list[Any] = []

    async def answer(text: str) -> None:
        asked = [*history, {"role": "user", "content": text}]
        history[:] = (await agent.ainvoke({"messages": asked}))["messages"]

    return answer


@dataclass(frozen=True)
class Part:
    """An agent, and what the playbook's `shell` is called there."""

    make: Callable[[], Subject]
    tool: str = "shell"
    word: str = "command"
    more: tuple[tuple[str, str], ...] = ()

    def translate(self, turn: Turn) -> Turn:
        """The same turn, with the agent's own names."""
        return msgspec.structs.replace(turn, actions=[self._rename(a) for a in turn.actions])

    def _rename(self, action: Any) -> Any:
        if not isinstance(action, Call):
            return action
        assert action.tool == "shell"
        assert not callable(action.params)
        params = {self.word: action.params["command"], **dict(self.more)}
        return msgspec.structs.replace(action, tool=self.tool, params=params)

    def tell(self, rehearsal: Rehearsal) -> list[tuple[str, str]]:
        """What happened, with the playbook's own names."""
        told: list[tuple[str, str]] = []
        for event in rehearsal.events.all:
            if event.event == TOOL_CALL:
                assert event.data["tool"] == self.tool
                told.append(("call shell", event.data["input"][self.word]))
            elif event.event == TOOL_RESULT:
                assert not event.data["is_error"]
                text = event.data["content"][0]["text"]
                told.append(("result", "noted" if "noted" in text else text))
            elif event.event == REPLY:
                told += [("say", b["text"]) for b in event.data["blocks"] if b["type"] == "text"]
        return told


def of_client(shell: Shell) -> Any:
    part = Part(shell.make, shell.tool, shell.word, shell.more)
    return pytest.param(part, id=str(shell), marks=marks_of(shell))


PARTS = [
    pytest.param(Part(AgentSession, "bash"), id="session"),
    pytest.param(Part(lambda: Framework("pydantic-ai", build_pydantic)), id="pydantic-ai"),
    pytest.param(Part(lambda: Framework("openai-agents", build_agents)), id="openai-agents"),
    pytest.param(Part(lambda: Framework("langgraph", build_langgraph)), id="langgraph"),
    of_client(CODEX),
    of_client(CLAUDE),
]


@pytest.mark.parametrize("part", PARTS)
def test_one_playbook_plays_the_model_of_every_agent(part: Part):
    script = [part.translate(turn) for turn in read_script(PLAYBOOK) if isinstance(turn, Turn)]
    with drive(part.make()) as rehearsal:
        rehearsal.run(*script)
        assert (rehearsal.cwd / "note.txt").read_text() == "noted\n"
        assert part.tell(rehearsal) == [
            ("call shell", "echo noted > note.txt; cat note.txt"),
            ("result", "noted"),
            ("say", "Noted."),
            ("call shell", "cat note.txt missing.txt; true"),
            ("result", "noted"),
            ("call shell", "cat note.txt"),
            ("result", "noted"),
            ("say", "It says that it is noted."),
        ]
