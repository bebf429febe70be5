"""Agents of six frameworks are driven as functions, and answer a provider's error."""

from typing import Any

from ag2 import Agent as Ag2Agent
from ag2.config import OpenAIConfig
from agent_framework import Agent as MicrosoftAgent
from agent_framework.openai import OpenAIChatClient
from agno.agent import Agent as AgnoAgent
from agno.models.openai import OpenAIChat
from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient
from haystack.components.agents import Agent as HaystackAgent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function
from haystack.utils import Secret
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
from semantic_kernel.functions import KernelPlugin, kernel_function

from offbook import call, drive, fail, say, when
from offbook.errors import UsageError

MODEL: Any = {"model": "gpt-4o", "api_key": "none"}


def find_order(number: int) -> str:
    """Find an order."""
    return f"order {number}: one lamp"


generator = OpenAIChatGenerator(api_key=Secret.from_token("none"), model="gpt-4o")
plugin = KernelPlugin("shop", functions=[kernel_function(find_order)])
# Each agent with the line that Offbook suggests, and its answer in the result of that line.
AGENTS: list[tuple[Any, str, Any]] = [
    (
        AssistantAgent("shop", OpenAIChatCompletionClient(**MODEL), tools=[find_order]),
        "drive(lambda p: agent.run(task=p))",
        None,  # one step: the result of the tool is the answer
    ),
    (
        AssistantAgent(
            "shop",
            OpenAIChatCompletionClient(**MODEL),
            tools=[find_order],
            model_client_stream=True,
            max_tool_iterations=3,
        ),
        "drive(lambda p: agent.run(task=p))",
        lambda result: result.messages[-1].content,
    ),
    (
        HaystackAgent(chat_generator=generator, tools=[create_tool_from_function(find_order)]),
        "drive(lambda p: agent.run([ChatMessage.from_user(p)]))",
        lambda result: result["last_message"].text,
    ),
    (
        AgnoAgent(model=OpenAIChat(id="gpt-4o", api_key="none"), tools=[find_order]),
        "drive(lambda p: agent.run(p))",
        lambda result: result.content,
    ),
    (
        MicrosoftAgent(OpenAIChatClient(**MODEL), tools=[find_order]),
        "drive(lambda p: agent.run(p))",
        lambda result: result.text,
    ),
    (
        Ag2Agent("shop", config=OpenAIConfig(**MODEL), tools=[find_order]),
        "drive(agent.ask)",
        lambda result: result.body,
    ),
    (
        ChatCompletionAgent(
            service=OpenAIChatCompletion("gpt-4o", api_key="none"), plugins=[plugin]
        ),
        "drive(agent.get_response)",
        str,
    ),
]
for agent, line, answer in AGENTS:
    suggested = ""
    try:
        drive(agent)
    except UsageError as error:
        suggested = error.hint
    assert suggested == f"write {line}", suggested
    names = {"drive": drive, "agent": agent, "ChatMessage": ChatMessage}
    tool = "shop-find_order" if isinstance(agent, ChatCompletionAgent) else "find_order"
    if answer is None:
        continue
    with eval(line, names) as rehearsal:  # noqa: S307 - Offbook's own hint
        run = rehearsal.run(when("Find order 7", [call(tool, {"number": 7}), say("One lamp.")]))
        assert run.results(tool)[0].text == "order 7: one lamp", line
        assert answer(run.output) == "One lamp.", line
        assert not rehearsal.events.named("isolation.refused"), line
    # agno reports the error in its result; the others raise it.
    try:
        with eval(line, names) as rehearsal:  # noqa: S307
            rehearsal.run(when("Try", [fail("never", status=400)]))
            error = str(rehearsal.subject.result.content)
    except Exception as raised:  # noqa: BLE001 - of its framework
        error = str(raised)
    assert "never" in error, line
print("driven")
