"""Anthropic's tool runner: one runs for each prompt, on the messages so far."""

from __future__ import annotations

import asyncio
import json
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, cast

from offbook.subjects.frameworks.framework import blocking

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from offbook.subjects.frameworks.framework import MockFunction
    from offbook.trace.hub import Hub


class AnthropicRunner:
    """What `client.beta.messages.tool_runner` gives, blocking or not, streaming or not.

    A runner runs once; so this one is the pattern for those that run. `options` take the place of
    parameters of its requests.
    """

    name = "anthropic"

    def __init__(self, runner: Any, options: Mapping[str, Any]) -> None:
        self._runner = runner
        self._options = options
        self._history: list[Any] = list(runner._params["messages"])  # noqa: SLF001 - as in `_again`

    async def prompt(self, text: str, _hub: Hub, /) -> object:
        """Run a runner like it until it is done."""
        runner = self._again([*self._history, {"role": "user", "content": text}])
        if iscoroutinefunction(runner.until_done):
            result = await runner.until_done()
        else:
            result = await asyncio.to_thread(runner.until_done)
        self._history = list(runner._params["messages"])  # noqa: SLF001 - as in `_again`
        return result

    def _again(self, messages: list[Any]) -> Any:
        """A runner of the same kind; it shows nowhere else what it was made of."""
        like = self._runner
        return type(like)(
            params={**like._params, **self._options, "messages": messages},  # noqa: SLF001 - there is no public way
            options=like._options,  # noqa: SLF001 - there is no public way
            tools=[*self.tools().values(), *like._toolsets.values()],  # noqa: SLF001 - there is no public way
            client=like._client,  # noqa: SLF001 - there is no public way
            max_iterations=like._max_iterations,  # noqa: SLF001 - there is no public way
        )

    def tools(self) -> Mapping[str, Any]:
        """The functions that it runs."""
        return self._runner._runnable_tools()  # noqa: SLF001 - as in `_again`

    def swap(self, tool: Any, stand_in: MockFunction, /) -> Callable[[], None]:
        """Answer the call, awaited or not as the tool's own."""
        wait = blocking(stand_in)

        def call(params: Any) -> Any:
            return _content(wait(params))

        async def call_async(params: Any) -> Any:
            return _content(await stand_in(params))

        tool.call = call_async if iscoroutinefunction(tool.call) else call
        return lambda: delattr(tool, "call")


def _content(answer: Any) -> Any:
    """Text or blocks, which is all that a tool may give back."""
    return cast("Any", answer) if isinstance(answer, str | list) else json.dumps(answer)
