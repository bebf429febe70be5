"""Our session and agents of frameworks pass the suite for subjects."""

from typing import Any

import agents
import openai
import pydantic_ai
import pytest
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from offbook.subjects.frameworks import wrap_agent
from offbook.testing import SubjectConformance
from offbook.types import AgentSession, Subject


def driven(agent: object) -> Subject:
    subject = wrap_agent(agent, None, {})
    assert subject is not None
    return subject


class TestPydanticAI(SubjectConformance):
    def subject(self) -> Subject:
        client = openai.AsyncOpenAI(api_key="none", max_retries=0)
        model = OpenAIChatModel("m", provider=OpenAIProvider(openai_client=client))
        agent = pydantic_ai.Agent(model)

        @agent.tool_plain
        def echo(text: str) -> str:  # pyright: ignore[reportUnusedFunction] - registered by its decorator
            """Return the same text."""
            return text

        return driven(agent)

    def call(self) -> tuple[str, dict[str, Any]]:
        return "echo", {"text": "hi"}


class TestOpenAIAgents(SubjectConformance):
    def subject(self) -> Subject:
        @agents.function_tool
        def echo(text: str) -> str:
            """Return the same text."""
            return text

        client = openai.AsyncOpenAI(api_key="none", max_retries=0)
        model = agents.OpenAIResponsesModel("m", openai_client=client)
        return driven(agents.Agent(name="echo", tools=[echo], model=model))

    def call(self) -> tuple[str, dict[str, Any]]:
        return "echo", {"text": "hi"}


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")


def echoing(api: Any) -> None:
    """Register a tool and a command."""

    @api.tool("echo")
    def echo(params: Any, ctx: Any) -> str:
        return params["text"]

    @api.command("echo")
    def show(args: str, ctx: Any) -> None:
        ctx.ui.notify(args)


class TestSession(SubjectConformance):
    def subject(self) -> Subject:
        return AgentSession()

    def call(self) -> tuple[str, dict[str, Any]]:
        return "bash", {"command": "echo hi"}


class TestSessionWithExtension(SubjectConformance):
    def subject(self) -> Subject:
        return AgentSession(extensions=[echoing], mock_tools={"bash": "ok"})

    def call(self) -> tuple[str, dict[str, Any]]:
        return "echo", {"text": "hi"}
