"""Any function of the prompt: for agents that no framework has made."""

from __future__ import annotations

import asyncio
from inspect import isawaitable, iscoroutinefunction
from typing import TYPE_CHECKING, Any

from offbook.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from offbook.subjects.frameworks.framework import MockFunction
    from offbook.trace.hub import Hub


class FunctionAdapter:
    """A function, plain or `async`; what it remembers from prompt to prompt is its own business.

    A plain one runs in a thread of its own, so that it may well start an event loop.
    """

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        self._function = function
        self._options = options

    @property
    def name(self) -> str:
        """What it is called in a trace."""
        return getattr(self._function, "__name__", type(self._function).__name__)

    async def prompt(self, text: str, _hub: Hub, /) -> object:
        """Call it."""
        if iscoroutinefunction(self._function):
            return await self._function(text, **self._options)
        answer = await asyncio.to_thread(self._function, text, **self._options)
        return await answer if isawaitable(answer) else answer

    def tools(self) -> Mapping[str, Any]:
        """Nobody knows what a function uses."""
        return {}

    def swap(self, tool: Any, _stand_in: MockFunction, /) -> Callable[[], None]:
        """Nothing can be swapped in a function."""
        raise UsageError(f"the tool {tool!r} of a function cannot be mocked")
