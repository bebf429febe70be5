"""OpenAI Agents: a runner takes the items of the conversation, and agents hand over to others."""

from __future__ import annotations

import json
from functools import wraps
from typing import TYPE_CHECKING, Any

from offbook.errors import UsageError
from offbook.exchange.messages import parse_arguments
from offbook.exchange.people import PersonQuestion, require_decision
from offbook.subjects.frameworks.framework import AsksPeople, override, parameter_names
from offbook.trace.events import AGENT_PARTS, HANDOFF, STEP_POST, STEP_PRE
from offbook.trace.steps import emit_step, make_record

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from offbook.subjects.frameworks.framework import MockFunction
    from offbook.subjects.tool_watch import ToolWatch
    from offbook.trace.hub import Hub

PERSONA = "openai-agents"
CALLABLE = "__agents_function_tool_wrapped_callable__"  # a tool has its function under this name


class OpenAIAgents(AsksPeople):
    """An OpenAI Agents `Agent`; `options` are arguments of `Runner.run` (`context`, …).

    The SDK's own tracing is disabled: it would send to OpenAI, whatever provider the agent uses.
    """

    name = PERSONA
    concurrent = True

    def __init__(self, agent: Any, options: Mapping[str, Any]) -> None:
        self._first_agent = agent
        self._agent = agent
        self._options = dict(options)
        self._history: list[Any] = []
        self._current = ""  # the agent whose model is asked

    def option_names(self) -> Collection[str] | None:
        """Return the arguments of `Runner.run`."""
        from agents import Runner

        return parameter_names(Runner.run, skip=2)

    async def prompt(self, text: str, hub: Hub, /) -> object:
        """Run the agent that replied last with the history and this prompt."""
        from agents import RunConfig, RunHooks, Runner

        self._current = ""
        adapter = self

        class StepHooks(RunHooks[Any]):
            """Emits each agent as a step. One that hands over has no output."""

            async def on_agent_start(self, context: Any, agent: Any) -> None:  # noqa: ARG002 - the SDK's signature
                emit_step(STEP_PRE, make_record(PERSONA, agent.name, args=[text]), hub)

            async def on_llm_start(
                self,
                context: Any,  # noqa: ARG002 - as above
                agent: Any,
                system_prompt: Any,  # noqa: ARG002 - as above
                input_items: Any,  # noqa: ARG002 - as above
            ) -> None:
                adapter._current = agent.name

            async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:  # noqa: ARG002 - as above
                shown = output if isinstance(output, str) else {"type": type(output).__name__}
                emit_step(STEP_POST, make_record(PERSONA, agent.name, output=shown), hub)

            async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:  # noqa: ARG002 - as above
                output = {"handoff": to_agent.name}
                emit_step(STEP_POST, make_record(PERSONA, from_agent.name, output=output), hub)
                hub.emit(HANDOFF, {"from": from_agent.name, "to": to_agent.name})

        if not self._history:
            agents = self._agents()
            if len(agents) > 1:
                edges = [[a.name, b.name] for a in agents for b in _targets(a)]
                nodes = [agent.name for agent in agents]
                data = {"persona": PERSONA, "nodes": nodes, "handoffs": edges}
                hub.emit(AGENT_PARTS, data)
        options: dict[str, Any] = {"run_config": RunConfig(tracing_disabled=True), **self._options}
        options.setdefault("hooks", StepHooks())
        items: list[Any] = [*self._history, {"role": "user", "content": text}]
        result = await Runner.run(self._agent, items, **options)
        while result.interruptions:
            state = result.to_state()
            for item in result.interruptions:
                await self._ask_person(state, item)
            result = await Runner.run(self._agent, state, **options)
        self._history = result.to_input_list()
        self._agent = result.last_agent  # after a handoff, the other agent goes on
        return result

    def current_agent(self) -> str:
        """Return the name of the agent whose model is asked; empty with hooks of the caller."""
        return self._current

    async def _ask_person(self, state: Any, item: Any) -> None:
        """Approve or reject a tool call that waits for a person."""
        name = item.tool_name or "a tool"
        given = parse_arguments(getattr(item.raw_item, "arguments", None) or "{}")

        def approve(params: Mapping[str, Any] | None) -> None:
            if params is not None:
                raise UsageError(
                    f"OpenAI Agents cannot change the parameters of {name}",
                    hint=f"write person({name!r}, allow), or deny",
                )
            state.approve(item)

        answer = await self.ask(PersonQuestion("", name, given))
        require_decision(
            answer,
            name,
            allow=approve,
            deny=lambda reason: state.reject(item, rejection_message=reason or None),
        )

    def output(self, result: Any, /) -> object:
        """Return the final output of the run."""
        return result.final_output

    def tools(self) -> Mapping[str, Any]:
        """Return the functions of the agent and of all agents it can hand over to."""
        return {
            tool.name: tool
            for agent in self._agents()
            for tool in agent.tools
            if hasattr(tool, "on_invoke_tool")
        }

    def _agents(self) -> list[Any]:
        """Return the agent and all that it can hand over to, directly or not."""
        agents: list[Any] = [self._first_agent]
        for agent in agents:  # it grows
            agents += [target for target in _targets(agent) if target not in agents]
        return agents

    def replace_tool(self, tool: Any, mock: MockFunction, /) -> Callable[[], None]:
        """Replace the invocation, which receives its arguments as JSON."""
        from agents import default_tool_error_function

        original = tool.on_invoke_tool

        async def invoke(context: Any, arguments: str) -> Any:
            try:
                return await mock(json.loads(arguments or "{}"))
            except Exception as error:  # noqa: BLE001 - what the SDK does with any tool
                return default_tool_error_function(context, error)

        tool.on_invoke_tool = invoke
        return lambda: setattr(tool, "on_invoke_tool", original)

    def watch_tool(self, tool: Any, watch: ToolWatch, /) -> Callable[[], None]:
        """Watch the function inside the handler that turns exceptions into results."""
        invoker = tool.on_invoke_tool
        inside = hasattr(invoker, "_invoke_tool_impl")
        original = invoker._invoke_tool_impl if inside else invoker  # noqa: SLF001 - no public one
        functions = (getattr(original, CALLABLE, None),)

        @wraps(original)
        async def invoke(context: Any, arguments: str) -> Any:
            call_id = getattr(context, "tool_call_id", "")
            given = parse_arguments(arguments)
            watched = watch.call(tool.name, given, call_id, functions=functions)
            return await watched.run_async(lambda: original(context, arguments))

        if inside:
            return override(invoker, "_invoke_tool_impl", invoke)
        return override(tool, "on_invoke_tool", invoke)


def _targets(agent: Any) -> list[Any]:
    """Return the agents that an agent can hand over to."""
    targets: list[Any] = []
    for handoff in agent.handoffs:
        if hasattr(handoff, "handoffs"):  # the agent itself
            targets.append(handoff)
        # A `Handoff` object has a weak reference to its agent, which may be gone.
        elif (reference := getattr(handoff, "_agent_ref", None)) is not None:
            targets += [target for target in [reference()] if target is not None]
    return targets
