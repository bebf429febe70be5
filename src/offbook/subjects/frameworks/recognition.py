"""Which framework an agent belongs to, told by its type and without importing anything."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from offbook.subjects.frameworks.framework import Framework

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offbook.subjects.frameworks.framework import Adapter

KNOWN = {  # the module and name of a type -> the adapter's module and name
    "pydantic_ai.agent.abstract.AbstractAgent": "pydantic_ai.PydanticAI",
    "agents.agent.Agent": "openai_agents.OpenAIAgents",
    "langgraph.pregel.main.Pregel": "langgraph.LangGraph",
    "google.genai.chats._BaseChat": "google_genai.GoogleGenAI",
    "anthropic.lib.tools._beta_runner.BaseToolRunner": "anthropic_runner.AnthropicRunner",
    "smolagents.agents.MultiStepAgent": "smolagents.SmolAgents",
    "inspect_ai._eval.task.task.Task": "inspect_ai.InspectAI",
    "claude_agent_sdk.types.ClaudeAgentOptions": "claude_agent.ClaudeAgent",
}


def recognise(
    agent: object, mock_tools: Mapping[str, Any] | None, options: Mapping[str, Any]
) -> Framework | None:
    """The agent as a subject, if it is of a framework that we know, or can at least be called."""
    adapter = _find_adapter(agent)
    if adapter is None and callable(agent):
        adapter = "callable.Function"
    if adapter is None:
        return None
    module, _, name = adapter.rpartition(".")
    kind = getattr(import_module(f"offbook.subjects.frameworks.{module}"), name)
    made: Adapter = kind(agent, options)
    return Framework(made, mock_tools)


def _find_adapter(agent: object) -> str | None:
    for kind in type(agent).__mro__:
        adapter = KNOWN.get(f"{kind.__module__}.{kind.__qualname__}")
        if adapter is not None:
            return adapter
    return None
