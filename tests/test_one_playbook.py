"""One playbook file scripts the model of every agent; each runs its own tool."""

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from agents import Agent, OpenAIChatCompletionsModel, function_tool
from langchain import agents as langchain_agents
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI
from pydantic import SecretStr
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from offbook.exchange import ToolAlias
from offbook.runs import Rehearsal, drive
from offbook.sources import read_script
from offbook.subjects.session import AgentSession
from offbook.trace import REPLY, TOOL_CALL, TOOL_RESULT
from tests.clients import CLAUDE, CODEX, Shell, marks_of

create_agent: Any = cast("Any", langchain_agents).create_agent
Run = Callable[[str], str]
PLAYBOOK = Path(__file__).with_name("one_playbook.yaml")


def build_pydantic(run: Run) -> object:
    client = AsyncOpenAI(api_key="x", max_retries=0)
    agent = PydanticAgent(OpenAIChatModel("m", provider=OpenAIProvider(openai_client=client)))

    @agent.tool_plain
    def terminal(line: str) -> str:  # pyright: ignore[reportUnusedFunction] - the agent has it
        return run(line)

    return agent


def build_agents(run: Run) -> object:
    @function_tool
    def run_command(command: str) -> str:
        return run(command)

    client = AsyncOpenAI(api_key="x", max_retries=0)
    model = OpenAIChatCompletionsModel("m", openai_client=client)
    return Agent(name="a", tools=[run_command], model=model)


def build_langgraph(run: Run) -> object:
    @tool
    def shell(command: str) -> str:
        """Run a command."""
        return run(command)

    model = ChatOpenAI(model="m", api_key=SecretStr("x"), max_retries=0)
    return create_agent(model, tools=[shell])


@dataclass(frozen=True)
class AgentCase:
    """An agent, and its tool aliases if the subject does not define them."""

    build: Callable[[Run], object]
    tool_aliases: Mapping[str, str | ToolAlias] = field(
        default_factory=dict[str, "str | ToolAlias"]
    )


def client_case(shell: Shell) -> Any:
    case = AgentCase(lambda _run: shell.make())
    return pytest.param(case, id=str(shell), marks=marks_of(shell))


CASES = [
    pytest.param(AgentCase(lambda _run: AgentSession()), id="session"),
    pytest.param(
        AgentCase(build_pydantic, {"shell": ToolAlias("terminal", {"command": "line"})}),
        id="pydantic-ai",
    ),
    pytest.param(AgentCase(build_agents, {"shell": "run_command"}), id="openai-agents"),
    pytest.param(AgentCase(build_langgraph), id="langgraph"),
    client_case(CODEX),
    client_case(CLAUDE),
]


def list_steps(rehearsal: Rehearsal) -> list[tuple[str, str]]:
    """Return the calls, results and texts of the run."""
    steps: list[tuple[str, str]] = []
    for event in rehearsal.events.all:
        if event.event == TOOL_CALL:
            steps.append((f"call {event.data['tool']}", event.data["input"]["command"]))
        elif event.event == TOOL_RESULT:
            assert not event.data["is_error"]
            text = event.data["content"][0]["text"]
            steps.append((f"result of {event.data['tool']}", "noted" if "noted" in text else text))
        elif event.event == REPLY:
            steps += [("say", b["text"]) for b in event.data["blocks"] if b["type"] == "text"]
    return steps


@pytest.mark.parametrize("case", CASES)
def test_one_playbook_scripts_every_agent(case: AgentCase, tmp_path: Path):
    def run(command: str) -> str:
        """Run the tool of the framework agents; the others have their own."""
        words = ["/bin/sh", "-c", f"{command} 2>&1"]
        return subprocess.run(
            words, cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout

    with drive(case.build(run), tool_aliases=case.tool_aliases, cwd=tmp_path) as rehearsal:
        rehearsal.run(*read_script(PLAYBOOK))
        assert (tmp_path / "note.txt").read_text() == "noted\n"
        assert list_steps(rehearsal) == [
            ("call shell", "echo noted > note.txt; cat note.txt"),
            ("result of shell", "noted"),
            ("say", "Noted."),
            ("call shell", "cat note.txt missing.txt; true"),
            ("result of shell", "noted"),
            ("call shell", "cat note.txt"),
            ("result of shell", "noted"),
            ("say", "It says that it is noted."),
        ]
