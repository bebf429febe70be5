"""pydantic-ai: an agent runs with the messages of its conversation so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offbook.exchange.people import PersonQuestion, require_decision, require_value
from offbook.subjects.frameworks.framework import AsksPeople, override, parameter_names

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from offbook.subjects.frameworks.framework import MockFunction
    from offbook.subjects.tool_watch import ToolWatch
    from offbook.trace.hub import Hub


class PydanticAI(AsksPeople):
    """A pydantic-ai `Agent`; `options` are arguments of `Agent.run` (`deps`, …)."""

    name = "pydantic-ai"
    concurrent = True

    def __init__(self, agent: Any, options: Mapping[str, Any]) -> None:
        self._agent = agent
        self._options = options
        self._history: list[Any] = []

    def option_names(self) -> Collection[str] | None:
        """Return the arguments of `Agent.run`."""
        return parameter_names(self._agent.run, reserved=["message_history"])

    async def prompt(self, text: str, _hub: Hub, /) -> object:
        """Run the agent with the history and this prompt; people answer its deferred calls."""
        from pydantic_ai import DeferredToolRequests

        history = self._history or None
        result = await self._agent.run(text, message_history=history, **self._options)
        while isinstance(result.output, DeferredToolRequests):
            given = await self._ask_people(result.output)
            history = result.all_messages()
            result = await self._agent.run(
                message_history=history, deferred_tool_results=given, **self._options
            )
        self._history = result.all_messages()
        return result

    async def _ask_people(self, requests: Any) -> Any:
        """Return the answers to the calls that wait for an approval, or for a result."""
        from pydantic_ai import DeferredToolResults, ToolApproved, ToolDenied

        results = DeferredToolResults()
        for call in requests.approvals:
            answer = await self.ask(PersonQuestion("", call.tool_name, call.args_as_dict()))
            results.approvals[call.tool_call_id] = require_decision(
                answer,
                call.tool_name,
                allow=lambda params: ToolApproved(
                    override_args=None if params is None else dict(params)
                ),
                deny=lambda reason: ToolDenied(reason) if reason else ToolDenied(),
            )
        for call in requests.calls:
            value = await self.ask(PersonQuestion("", call.tool_name, call.args_as_dict()))
            results.calls[call.tool_call_id] = require_value(value, call.tool_name)
        return results

    def output(self, result: Any, /) -> object:
        """Return the output of the run."""
        return result.output

    def tools(self) -> Mapping[str, Any]:
        """Return the functions of all toolsets."""
        tools: dict[str, Any] = {}

        def collect(toolset: Any) -> None:
            tools.update(getattr(toolset, "tools", {}))

        for toolset in self._agent.toolsets:
            toolset.apply(collect)
        return tools

    def replace_tool(self, tool: Any, mock: MockFunction, /) -> Callable[[], None]:
        """Replace the call behind the schema; the schema itself stays."""
        schema = tool.function_schema

        async def call(args: dict[str, Any], _context: Any) -> Any:
            return await mock(args)

        return override(schema, "call", call)

    def watch_tool(self, tool: Any, watch: ToolWatch, /) -> Callable[[], None]:
        """Watch the call behind the schema."""
        from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry

        schema = tool.function_schema
        original = schema.call

        async def call(args: dict[str, Any], context: Any) -> Any:
            pauses = (CallDeferred, ApprovalRequired)
            call_id = context.tool_call_id or ""
            watched = watch.call(
                tool.name, args, call_id, (ModelRetry,), (schema.function,), pauses
            )
            return await watched.run_async(lambda: original(args, context))

        return override(schema, "call", call)
