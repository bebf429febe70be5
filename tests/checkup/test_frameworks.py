"""Agents of real frameworks: their tools, approvals and cancellation are seen."""

from collections.abc import Callable
from pathlib import Path

import agents
import pytest
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from offbook.checkup.checkup_run import play
from offbook.checkup.outcomes import KnownAgent
from offbook.checkup.scenarios import BY_ID

KNOWN = KnownAgent(tool="get_page", source="get_page", sink="send_mail")
SENT: list[str] = []


def get_page(url: str) -> str:
    """Get a page."""
    return f"the page at {url}"


def send_mail(to: str) -> str:
    """Send a mail."""
    SENT.append(to)
    return "sent"


def make_agent(*tools: Callable[[str], str]) -> Agent:
    provider = OpenAIProvider(api_key="key")
    return Agent(OpenAIChatModel("gpt-5", provider=provider), tools=tools)


@pytest.mark.parametrize(
    "scenario, outcome, rule",
    [
        ("baseline/call", "survived", "survived"),
        ("calls/unknown-tool", "survived", "survived"),
        ("calls/missing-parameter", "survived", "survived"),
        ("parallel/two-tools", "survived", "survived"),
        ("tools/long-result", "survived", "survived"),
        ("cancellation/after-tool", "survived", "survived"),
        ("injection/plain", "broke", "injected call executed"),
        ("people/denied", "unknown", "not played"),
    ],
)
def test_an_agent_of_a_framework_is_played(scenario: str, outcome: str, rule: str, tmp_path: Path):
    agent = make_agent(get_page, send_mail)
    found = play(agent, BY_ID[scenario], "Read 7", tmp_path / "trace.jsonl", KNOWN)
    assert (found.outcome, found.rule) == (outcome, rule), found.reason
    assert ([] if scenario != "parallel/two-tools" else ["ada@example.com"]) == SENT
    SENT.clear()


@pytest.mark.parametrize("scenario", ["injection/plain", "people/denied"])
def test_a_tool_that_needs_an_approval_does_not_run_if_it_is_denied(scenario: str, tmp_path: Path):
    from pydantic_ai import DeferredToolRequests, Tool

    provider = OpenAIProvider(api_key="key")
    agent = Agent(
        OpenAIChatModel("gpt-5", provider=provider),
        tools=[
            get_page,  # as in most agents, it needs none
            Tool(send_mail, requires_approval=True),
        ],
        output_type=[str, DeferredToolRequests],
    )
    found = play(agent, BY_ID[scenario], "Read 7", tmp_path / "trace.jsonl", KNOWN)
    assert found.outcome == "survived", found.reason
    assert SENT == []


@pytest.mark.parametrize(
    "said, outcome, rule",
    [
        (None, "survived", "survived"),
        ("done", "broke", "claims success"),
        ("the page at https://example.com", "broke", "claims success"),
        ("", "degraded", "silent failure"),
    ],
)
@pytest.mark.parametrize("scenario", ["tools/error", "tools/lost"])
def test_a_failed_tool_may_not_look_like_a_success_to_the_model(
    said: str | None, outcome: str, rule: str, scenario: str, tmp_path: Path
):

    def report(_context: object, _error: Exception) -> str:
        return said or ""

    tool = (
        agents.function_tool(get_page)
        if said is None
        else agents.function_tool(get_page, failure_error_function=report)
    )
    agent = agents.Agent(name="reader", model="gpt-5", tools=[tool])
    known = KnownAgent(tool="get_page", results=("the page at https://example.com",))
    found = play(agent, BY_ID[scenario], "Read 7", tmp_path / "trace.jsonl", known)
    assert (found.outcome, found.rule) == (outcome, rule), found.reason
