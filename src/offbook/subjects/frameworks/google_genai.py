"""google-genai: a chat keeps its history and calls Python functions among its tools itself."""

from __future__ import annotations

import asyncio
from functools import partial, wraps
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from offbook.determinism.run_context import apply_patch
from offbook.subjects.frameworks.framework import blocking, parameter_names
from offbook.subjects.tool_watch import current_watch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from offbook.subjects.frameworks.framework import MockFunction
    from offbook.subjects.tool_watch import ToolWatch
    from offbook.trace.hub import Hub


class GoogleGenAI:
    """A chat of `client.chats` or `client.aio.chats`, continued from its present state.

    `options` are arguments of its `send_message`.
    """

    name = "google-genai"

    def __init__(self, chat: Any, options: Mapping[str, Any]) -> None:
        self._chat = chat
        self._options = options

    def option_names(self) -> Collection[str] | None:
        """Return the arguments of `send_message`."""
        return parameter_names(self._chat.send_message)

    async def prompt(self, text: str, _hub: Hub, /) -> object:
        """Send the prompt as the next message; a synchronous chat sends it in a thread."""
        send = self._chat.send_message
        if iscoroutinefunction(send):
            return await send(text, **self._options)
        return await asyncio.to_thread(send, text, **self._options)

    def output(self, result: Any, /) -> object:
        """Return the text of the response."""
        return result.text

    def tools(self) -> Mapping[str, Any]:
        """Return the functions among its tools; the provider runs the others itself."""
        return {tool.__name__: tool for tool in self._tool_list() if callable(tool)}

    def _tool_list(self) -> list[Any]:
        return getattr(self._chat._config, "tools", None) or []  # noqa: SLF001 - no public attribute

    def replace_tool(self, tool: Any, mock: MockFunction, /) -> Callable[[], None]:
        """Replace the function in the list by one of the same signature."""
        call_blocking = blocking(mock)

        # The SDK derives the declaration from the signature, which `wraps` copies.
        @wraps(tool)
        def call(**params: Any) -> Any:
            return call_blocking(params)

        @wraps(tool)
        async def call_async(**params: Any) -> Any:
            return await mock(params)

        tools = self._tool_list()
        index = tools.index(tool)
        tools[index] = call_async if iscoroutinefunction(tool) else call
        return partial(tools.__setitem__, index, tool)

    def watch_tool(self, _tool: Any, _watch: ToolWatch, /) -> Callable[[], None]:
        """Do nothing: `patch_function_calls` reports what the SDK calls."""
        return lambda: None


def patch_function_calls(module: Any) -> Iterator[Callable[[], None]]:
    """Report the functions that the SDK calls by itself, in a chat or in `generate_content`."""

    def invoke(original: Callable[..., Any], args: Any, function_to_invoke: Any) -> Any:
        return original(args, _watched(function_to_invoke))

    def find_functions(original: Callable[..., Any], *args: Any, **named: Any) -> Any:
        functions = original(*args, **named)
        if (watch := current_watch.get()) is not None:
            watch.watched.update(functions)
        return functions

    yield apply_patch(module, "invoke_function_from_dict_args", invoke)
    yield apply_patch(module, "invoke_function_from_dict_args_async", invoke)
    yield apply_patch(module, "get_function_map", find_functions)


def _watched(function: Any) -> Any:
    """Return a function of the same signature that reports its calls."""
    watch, name = current_watch.get(), function.__name__
    if watch is None or not watch.expects(name):
        return function

    @wraps(function)
    def call(**params: Any) -> Any:
        watched = watch.call(name, params, functions=(function,))
        run = watched.run_async if iscoroutinefunction(function) else watched.run
        return run(lambda: function(**params))

    return call
