"""smolagents: an agent keeps its memory, and runs blocking."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from offbook.subjects.frameworks.framework import blocking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from offbook.subjects.frameworks.framework import MockFunction
    from offbook.trace.hub import Hub


class SmolAgents:
    """A `ToolCallingAgent` or `CodeAgent`; `options` are what its `run` takes besides the task.

    The first prompt of a run starts with an empty memory.
    """

    name = "smolagents"

    def __init__(self, agent: Any, options: Mapping[str, Any]) -> None:
        self._agent = agent
        self._options = options
        self._started = False

    async def prompt(self, text: str, _hub: Hub, /) -> object:
        """Run it in a thread, on what it remembers, and this."""
        reset, self._started = not self._started, True
        return await asyncio.to_thread(self._agent.run, text, reset=reset, **self._options)

    def tools(self) -> Mapping[str, Any]:
        """Its tools, and those of the agents that it manages."""
        return {name: tool for agent in _managed(self._agent) for name, tool in agent.tools.items()}

    def swap(self, tool: Any, stand_in: MockFunction, /) -> Callable[[], None]:
        """Answer in the place of what the tool does with its inputs."""
        wait, names = blocking(stand_in), list(tool.inputs)
        own: dict[str, Any] = tool.__dict__
        before = {name: own[name] for name in ("forward",) if name in own}

        def forward(*args: Any, **params: Any) -> Any:
            return wait(dict(zip(names, args, strict=False)) | params)

        tool.forward = forward

        def undo() -> None:
            del own["forward"]
            own.update(before)

        return undo


def _managed(agent: Any) -> Iterator[Any]:
    yield agent
    for other in agent.managed_agents.values():
        yield from _managed(other)
