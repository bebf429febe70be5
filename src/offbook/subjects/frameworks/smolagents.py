"""smolagents: an agent keeps its memory and runs synchronously."""

from __future__ import annotations

import asyncio
from functools import wraps
from typing import TYPE_CHECKING, Any

from offbook.subjects.frameworks.framework import blocking, override, parameter_names

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from offbook.subjects.frameworks.framework import MockFunction
    from offbook.subjects.tool_watch import ToolWatch
    from offbook.trace.hub import Hub


class SmolAgents:
    """A `ToolCallingAgent` or `CodeAgent`; `options` are arguments of its `run`.

    The first prompt of a run starts with an empty memory.
    """

    name = "smolagents"

    def __init__(self, agent: Any, options: Mapping[str, Any]) -> None:
        self._agent = agent
        self._options = options
        self._started = False

    def option_names(self) -> Collection[str] | None:
        """Return the arguments of `run`."""
        return parameter_names(self._agent.run, reserved=["reset"])

    async def prompt(self, text: str, _hub: Hub, /) -> object:
        """Run the agent in a thread, with its memory and this prompt."""
        # Without `reset` the agent keeps its memory, also that of an earlier run.
        reset, self._started = not self._started, True
        return await asyncio.to_thread(self._agent.run, text, reset=reset, **self._options)

    def output(self, result: Any, /) -> object:
        """Return the result: `run` returns the final answer itself."""
        return result

    def tools(self) -> Mapping[str, Any]:
        """Return its tools and those of the agents that it manages."""
        return {
            name: tool for agent in _with_managed(self._agent) for name, tool in agent.tools.items()
        }

    def replace_tool(self, tool: Any, mock: MockFunction, /) -> Callable[[], None]:
        """Replace `forward`, which receives the validated inputs."""
        call, names = blocking(mock), list(tool.inputs)

        def forward(*args: Any, **params: Any) -> Any:
            return call(dict(zip(names, args, strict=False)) | params)

        # `forward` is a method, or an attribute of the instance if `@tool` made the tool.
        return override(tool, "forward", forward)

    def watch_tool(self, tool: Any, watch: ToolWatch, /) -> Callable[[], None]:
        """Watch `forward`."""
        original, names = tool.forward, list(tool.inputs)

        @wraps(original)
        def forward(*args: Any, **params: Any) -> Any:
            given = dict(zip(names, args, strict=False)) | params
            return watch.call(tool.name, given).run(lambda: original(*args, **params))

        return override(tool, "forward", forward)


def _with_managed(agent: Any) -> Iterator[Any]:
    yield agent
    for other in agent.managed_agents.values():
        yield from _with_managed(other)
