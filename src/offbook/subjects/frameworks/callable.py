"""Functions: any callable that takes a prompt, for agents without a framework."""

from __future__ import annotations

import asyncio
from inspect import Parameter, isawaitable, iscoroutinefunction, signature
from typing import TYPE_CHECKING, Any

from offbook.subjects.frameworks.framework import NoToolAccess, parameter_names

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from offbook.trace.hub import Hub


class FunctionAdapter(NoToolAccess):
    """A function of the prompt, plain or async; it keeps its conversation itself.

    `options` are passed as keyword arguments. A plain function runs in a thread, so that it can
    start an event loop. A function without a parameter for the prompt sends its own prompts.
    """

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        self._function = function
        self._options = options
        self.takes_prompt = _takes_prompt(function)

    @property
    def name(self) -> str:
        """Name of the function."""
        return getattr(self._function, "__name__", type(self._function).__name__)

    def option_names(self) -> Collection[str] | None:
        """Return the parameters after the prompt."""
        return parameter_names(self._function, skip=1 if self.takes_prompt else 0)

    async def prompt(self, text: str, _hub: Hub, /) -> object:
        """Call the function."""
        arguments = [text] if self.takes_prompt else []
        if iscoroutinefunction(self._function):
            return await self._function(*arguments, **self._options)
        answer = await asyncio.to_thread(self._function, *arguments, **self._options)
        # A plain function may return a coroutine, as a lambda around an async function does.
        return await answer if isawaitable(answer) else answer

    def output(self, result: Any, /) -> object:
        """Return the value that the function returned."""
        return result


def _takes_prompt(function: Callable[..., Any]) -> bool:
    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):  # functions written in C may have no signature
        return True
    keyword = {Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD}
    return any(parameter.kind not in keyword for parameter in parameters)
