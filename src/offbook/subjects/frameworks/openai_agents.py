"""OpenAI Agents: a runner takes the items of the conversation, and agents hand over to others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from offbook.subjects.frameworks.framework import MockFunction
    from offbook.trace.hub import Hub

HANDOFF = "handoff"


class OpenAIAgents:
    """An `Agent`; `options` are what `Runner.run` takes besides the input (`context`, …).

    Its own tracing goes to OpenAI's address, whatever the agent talks to: it is switched off.
    """

    name = "openai-agents"

    def __init__(self, agent: Any, options: Mapping[str, Any]) -> None:
        self._first = agent
        self._agent = agent
        self._options = dict(options)
        self._history: list[Any] = []

    async def prompt(self, text: str, hub: Hub, /) -> object:
        """Run whichever agent spoke last, on what was said before, and this."""
        from agents import RunConfig, Runner

        options: dict[str, Any] = {"run_config": RunConfig(tracing_disabled=True), **self._options}
        options.setdefault("hooks", _watch_handoffs(hub))
        said: list[Any] = [*self._history, {"role": "user", "content": text}]
        result = await Runner.run(self._agent, said, **options)
        self._history = result.to_input_list()
        self._agent = result.last_agent
        return result

    def tools(self) -> Mapping[str, Any]:
        """The functions of the agent, and of all that it can hand over to."""
        return {
            tool.name: tool
            for agent in _reachable(self._first)
            for tool in agent.tools
            if hasattr(tool, "on_invoke_tool")
        }

    def swap(self, tool: Any, stand_in: MockFunction, /) -> Callable[[], None]:
        """Answer the invocation, which has its arguments as JSON."""
        original = tool.on_invoke_tool

        async def invoke(_context: Any, arguments: str) -> Any:
            return await stand_in(json.loads(arguments or "{}"))

        tool.on_invoke_tool = invoke
        return lambda: setattr(tool, "on_invoke_tool", original)


def _reachable(agent: Any) -> Iterator[Any]:
    waiting, seen = [agent], set[int]()
    while waiting:
        one = waiting.pop()
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            waiting += [found for other in one.handoffs if (found := _target(other)) is not None]


def _target(handoff: Any) -> Any:
    """The agent that a handoff leads to: itself, or behind a reference that may be gone."""
    if hasattr(handoff, "handoffs"):
        return handoff
    reference = getattr(handoff, "_agent_ref", None)
    return reference() if reference is not None else None


def _watch_handoffs(hub: Hub) -> Any:
    from agents import RunHooks

    class Hooks(RunHooks[Any]):
        async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:  # noqa: ARG002 - the signature of the hook
            hub.emit(HANDOFF, {"from": from_agent.name, "to": to_agent.name})

    return Hooks()
