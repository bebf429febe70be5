"""pydantic-ai: an agent is run with the messages of its conversation so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from offbook.subjects.frameworks.framework import MockFunction
    from offbook.trace.hub import Hub


class PydanticAI:
    """An `Agent`; `options` are what its `run` takes besides the prompt (`deps`, …)."""

    name = "pydantic-ai"

    def __init__(self, agent: Any, options: Mapping[str, Any]) -> None:
        self._agent = agent
        self._options = options
        self._history: list[Any] = []

    async def prompt(self, text: str, _hub: Hub, /) -> object:
        """Run the agent on what was said before, and this."""
        history = self._history or None
        result = await self._agent.run(text, message_history=history, **self._options)
        self._history = result.all_messages()
        return result

    def tools(self) -> Mapping[str, Any]:
        """The functions of all its toolsets."""
        found: dict[str, Any] = {}

        def visit(toolset: Any) -> None:
            found.update(getattr(toolset, "tools", {}))

        for toolset in self._agent.toolsets:
            toolset.apply(visit)
        return found

    def swap(self, tool: Any, stand_in: MockFunction, /) -> Callable[[], None]:
        """Answer the call behind the schema, which stays the tool's own."""
        schema = tool.function_schema

        async def call(args: dict[str, Any], _context: Any) -> Any:
            return await stand_in(args)

        schema.call = call
        return lambda: delattr(schema, "call")
