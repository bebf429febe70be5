"""What has to be known about a framework: how to prompt its agents, and how to swap their tools.

To add one, write a file with an `Adapter`, and name it in `recognition.KNOWN`. The model is no
business of an adapter: the agent's own client asks for it, and is answered. Tool calls and results
are read off those exchanges; an adapter tells only what does not show there.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from importlib import import_module
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from offbook.errors import UsageError, did_you_mean
from offbook.trace.events import AGENT_END, AGENT_ERROR, AGENT_START, ERROR, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping


# --- What has to be known about a framework: how to prompt its agents, and how to swap their tools.

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping

    from offbook.exchange.tool_aliases import ToolAliases
    from offbook.subjects.subject import ModelAccess, RunContext
    from offbook.trace.hub import Hub

    MockFunction = Callable[[dict[str, Any]], Coroutine[Any, Any, Any]]


class FrameworkAdapter(Protocol):
    """One agent of one framework, with its conversation."""

    @property
    def name(self) -> str:
        """What the framework is called in a trace."""
        ...

    async def prompt(self, text: str, hub: Hub, /) -> object:
        """Say this to the agent, after all that was said before; what the framework gives back."""
        ...

    def tools(self) -> Mapping[str, Any]:
        """The tools that can be swapped, by the name under which the model knows them."""
        ...

    def swap(self, tool: Any, stand_in: MockFunction, /) -> Callable[[], None]:
        """Let the stand-in run in the place of this tool's own code; how to undo it."""
        ...


@runtime_checkable
class EndpointAdapter(Protocol):
    """An adapter whose agent works in another process: it has to be told where its model is."""

    model_access: ModelAccess
    tool_aliases: ToolAliases

    def settle(self, stage: RunContext, /) -> Callable[[], None]:
        """Get ready for this stage; how to leave it."""
        ...


class FrameworkSubject:
    """An agent of a framework as a subject.

    `mock_tools` stand in for tools while it is on stage: a value, or a function of the parameters.
    The model still sees the tool's own schema. `result` is what the framework gave back last.

    An agent that gives up because its provider refused has done what it was rehearsed to do: that
    ends the turn, and what it raised is kept in `error`. Whatever else it raises fails the run.
    """

    emits_tool_calls = False

    def __init__(
        self, adapter: FrameworkAdapter, mock_tools: Mapping[str, Any] | None = None
    ) -> None:
        self.adapter = adapter
        self._placed = adapter if isinstance(adapter, EndpointAdapter) else None
        self.model_access: ModelAccess = self._placed.model_access if self._placed else "transport"
        self.tool_aliases: ToolAliases = self._placed.tool_aliases if self._placed else {}
        self.result: object = None
        self.error: Exception | None = None
        self._mocks = {name: _StandIn(value) for name, value in (mock_tools or {}).items()}
        self._undo: list[Callable[[], None]] = []

    @property
    def name(self) -> str:
        """What it is called in a trace."""
        return self.adapter.name

    @property
    def mocked(self) -> Collection[str]:
        """The tools that have a stand-in."""
        return self._mocks

    async def open(self, stage: RunContext, /) -> None:
        """Put the stand-ins in the place of their tools."""
        self._hub = stage.hub
        try:
            if self._placed is not None:
                self._undo.append(self._placed.settle(stage))
            for name, mock in self._mocks.items():
                self._undo.append(self.adapter.swap(self._find(name), mock.run))
        except BaseException:
            await self.close()
            raise

    def _find(self, name: str) -> Any:
        tools = self.adapter.tools()
        if name not in tools:
            raise UsageError(
                f"mock_tools: the agent has no tool {name!r}", hint=did_you_mean(name, tools)
            )
        return tools[name]

    async def prompt(self, text: str, /) -> None:
        """Say this to the agent, and wait for what comes of it."""
        last: list[str] = []
        stop_listening = self._hub.subscribe(lambda event: last.append(event.event), "model.*")
        self.result, self.error = None, None
        self._hub.emit(AGENT_START, {"prompt": text})
        try:
            self.result = await self.adapter.prompt(text, self._hub)
        except Exception as error:
            if ERROR not in last[-1:]:
                raise
            self.error = error
            self._hub.emit(AGENT_ERROR, {"error": f"{type(error).__name__}: {error}"})
        finally:
            stop_listening()
        self._hub.emit(AGENT_END, {"stop": "stop" if self.error is None else "error"})

    async def close(self) -> None:
        """Give the tools their own code back."""
        while self._undo:
            self._undo.pop()()

    def tools(self) -> Collection[str] | None:
        """None: an agent may have more than can be swapped, and its requests tell all of them."""
        return None

    def commands(self) -> Collection[str]:
        """None at all."""
        return ()

    def verdicts(self) -> Iterable[Verdict]:
        """Which mocks nobody used."""
        unused = [name for name, mock in self._mocks.items() if not mock.used]
        if unused:
            told = f"never used: mock_tools {', '.join(unused)}"
            yield Verdict("mocks used", "warn", told, actual=unused)


def blocking(stand_in: MockFunction) -> Callable[[dict[str, Any]], Any]:
    """The same stand-in for a tool that is called without being awaited, wherever that happens."""

    def wait(params: dict[str, Any]) -> Any:
        # The caller's thread may have a loop already, so that another one is needed to wait in.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(copy_context().run, asyncio.run, stand_in(params)).result()

    return wait


class _StandIn:
    """A value, or what a function makes of the parameters."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self.used = 0

    async def run(self, params: dict[str, Any]) -> Any:
        self.used += 1
        answer = self._value(params) if callable(self._value) else self._value
        return await answer if isawaitable(answer) else answer


# --- Which framework an agent belongs to, told by its type and without importing anything.

ADAPTERS = {  # the module and name of a type -> the adapter's module and name
    "pydantic_ai.agent.abstract.AbstractAgent": "pydantic_ai.PydanticAI",
    "agents.agent.Agent": "openai_agents.OpenAIAgents",
    "langgraph.pregel.main.Pregel": "langgraph.LangGraph",
    "google.genai.chats._BaseChat": "google_genai.GoogleGenAI",
    "anthropic.lib.tools._beta_runner.BaseToolRunner": "anthropic_runner.AnthropicRunner",
    "smolagents.agents.MultiStepAgent": "smolagents.SmolAgents",
    "inspect_ai._eval.task.task.Task": "inspect_ai.InspectAI",
    "claude_agent_sdk.types.ClaudeAgentOptions": "claude_agent.ClaudeAgent",
}


def wrap_agent(
    agent: object, mock_tools: Mapping[str, Any] | None, options: Mapping[str, Any]
) -> FrameworkSubject | None:
    """The agent as a subject, if it is of a framework that we know, or can at least be called."""
    adapter = _find_adapter(agent)
    if adapter is None and callable(agent):
        adapter = "callable.FunctionAdapter"
    if adapter is None:
        return None
    module, _, name = adapter.rpartition(".")
    kind = getattr(import_module(f"offbook.subjects.frameworks.{module}"), name)
    made: FrameworkAdapter = kind(agent, options)
    return FrameworkSubject(made, mock_tools)


def _find_adapter(agent: object) -> str | None:
    for kind in type(agent).__mro__:
        adapter = ADAPTERS.get(f"{kind.__module__}.{kind.__qualname__}")
        if adapter is not None:
            return adapter
    return None
