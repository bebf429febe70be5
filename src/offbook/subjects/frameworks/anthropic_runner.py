"""Anthropic's tool runner: each prompt makes a new runner with the messages so far."""

from __future__ import annotations

import asyncio
import json
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, cast

from offbook.determinism.run_context import apply_patch
from offbook.subjects.frameworks.framework import (
    blocking,
    override,
    parameter_names,
    report_calls,
)
from offbook.subjects.tool_watch import current_watch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from offbook.subjects.frameworks.framework import MockFunction
    from offbook.subjects.tool_watch import ToolWatch, WatchedCall
    from offbook.trace.hub import Hub

# ruff: noqa: SLF001 - a runner has no public attributes for what it was made of


class AnthropicRunner:
    """A runner of `client.beta.messages.tool_runner`, synchronous or async, streaming or not.

    A runner runs only once, so it serves as the pattern for new ones. `options` replace
    parameters of its requests.
    """

    name = "anthropic"

    def __init__(self, runner: Any, options: Mapping[str, Any]) -> None:
        self._runner = runner
        self._options = options
        self._history: list[Any] = list(runner._params["messages"])

    def option_names(self) -> Collection[str] | None:
        """Return the parameters of a request."""
        create = self._runner._client.beta.messages.create
        known = parameter_names(create, skip=0, reserved=["messages"])
        return None if known is None else {*known, *self._runner._params}

    async def prompt(self, text: str, _hub: Hub, /) -> object:
        """Run a new runner with the history and this prompt."""
        pattern = self._runner
        messages = [*self._history, {"role": "user", "content": text}]
        runner = type(pattern)(
            params={**pattern._params, **self._options, "messages": messages},
            options=pattern._options,
            tools=[*self.tools().values(), *pattern._toolsets.values()],
            client=pattern._client,
            max_iterations=pattern._max_iterations,
        )
        # A synchronous client blocks, so it runs in a thread.
        if iscoroutinefunction(runner.until_done):
            result = await runner.until_done()
        else:
            result = await asyncio.to_thread(runner.until_done)
        # The runner appends its calls and results to the messages of its parameters.
        self._history = list(runner._params["messages"])
        return result

    def output(self, result: Any, /) -> object:
        """Return the text of the last message."""
        return "\n".join(block.text for block in result.content if block.type == "text")

    def tools(self) -> Mapping[str, Any]:
        """Return the functions that the runner calls."""
        return self._runner._runnable_tools()

    def replace_tool(self, tool: Any, mock: MockFunction, /) -> Callable[[], None]:
        """Replace the tool's `call`, async if the tool is."""
        call_blocking = blocking(mock)

        def call(params: Any) -> Any:
            return _to_content(call_blocking(params))

        async def call_async(params: Any) -> Any:
            return _to_content(await mock(params))

        return override(tool, "call", call_async if iscoroutinefunction(tool.call) else call)

    def watch_tool(self, tool: Any, watch: ToolWatch, /) -> Callable[[], None]:
        """Watch the tool's `call`."""
        original, functions = tool.call, (getattr(tool, "func", None),)

        def call(params: Any) -> Any:
            watched = watch.call(tool.name, params, functions=functions)
            run = watched.run_async if iscoroutinefunction(original) else watched.run
            return run(lambda: original(params))

        return override(tool, "call", call)


def patch_tools(module: Any) -> Iterator[Callable[[], None]]:
    """Report the functions of `beta_tool`, for any caller."""

    def find(tool: Any, input: Any) -> WatchedCall | None:  # noqa: A002 - its name
        watch = current_watch.get()
        if watch is None or not watch.expects(tool.name):
            return None
        return watch.call(tool.name, input, signals=(module.ToolError,), functions=(tool.func,))

    for kind in (module.BetaFunctionTool, module.BetaAsyncFunctionTool):
        yield report_calls(kind, "call", find)


def patch_runners(module: Any) -> Iterator[Callable[[], None]]:
    """Note the tools of each runner: it runs them itself, so a result without a run is none."""

    def start(original: Callable[..., Any], runner: Any, *args: Any, **named: Any) -> None:
        original(runner, *args, **named)
        if (watch := current_watch.get()) is not None:
            watch.watched.update(runner._runnable_tools())

    yield apply_patch(module.BaseToolRunner, "__init__", start)


def _to_content(answer: Any) -> Any:
    """Return a string or a list of blocks: the runner accepts nothing else as a result."""
    return cast("Any", answer) if isinstance(answer, str | list) else json.dumps(answer)
